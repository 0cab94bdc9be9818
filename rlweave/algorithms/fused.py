"""Fused placement: environments, rollout and update are in the graph, and a plan only counts and reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlweave.agents.fused import FusedAgent
from rlweave.algorithms.config import TrainConfig
from rlweave.algorithms.environments import describe_environment
from rlweave.algorithms.parts import Parts
from rlweave.envs.in_graph import make_graph_environment
from rlweave.errors import ConfigError
from rlweave.flow import Episode, ParallelRollouts, ReportMetrics, SampleBatch, TrainOneStep
from rlweave.plugins import imported
from rlweave.spaces.gymnasium_spaces import to_gymnasium

if TYPE_CHECKING:
    from rlweave.algorithms.algorithm import Algorithm


class FusedLearner:
    """Worker and learner in one: `sample` announces steps, `update` takes them and learns from them.

    Its environments are part of the agent's state, so checkpoints hold them, and episodes go on after a resume.

    Args:
        agent: The agent.
    """

    shares_weights = True

    def __init__(self, agent: FusedAgent) -> None:
        self.agent = agent
        #: How many rounds of steps and updates are one call of the graph.
        self.iterations = agent.iterations_per_call
        self._episodes: list[Episode] = []

    def start(self, seed: int | None = None) -> None:
        """Does nothing: episodes go on."""

    begin_episodes = start

    def state_dict(self, environments: bool = True, weights: bool = True) -> dict[str, Any]:
        """The episodes not yet reported; all else is the agent's state."""
        return {"episodes": [episode.to_data() for episode in self._episodes]}

    def load_state_dict(self, state: Mapping[str, Any], seed: int) -> str:
        """Takes over what `state_dict` gave."""
        self._episodes = [Episode.from_data(episode) for episode in state["episodes"]]
        return ""

    def close(self) -> None:
        """Nothing to close."""

    def sample(self) -> SampleBatch:
        """A batch without data that announces the steps of the next call."""
        return SampleBatch({}, env_steps=self.agent.steps_of_next_call(self.iterations))

    def update(self, batch: SampleBatch) -> dict[str, Any]:
        """Takes the steps, and learns from them."""
        metrics, episodes = self.agent.train(self.iterations)
        self._episodes += [Episode(episode_return, length) for episode_return, length in episodes]
        return metrics

    def get_weights(self) -> dict[str, Any]:
        """Weights that acting needs."""
        return self.agent.get_weights()

    def set_weights(self, weights: Any, version: int) -> None:
        """Does nothing: it acts on the weights that it trains."""

    def episode_stats(self) -> Sequence[Episode]:
        """Episodes that ended since the last call."""
        episodes, self._episodes = self._episodes, []
        return episodes


def fused_plan(learner: FusedLearner) -> ReportMetrics:
    """A plan that calls the graph again and again."""
    rollouts = ParallelRollouts([learner]).gather_sync()
    return ReportMetrics(rollouts.for_each(TrainOneStep(learner, [learner])), [learner])


def fused_parts(config: TrainConfig, algorithm: Algorithm) -> Parts:
    """Agent and plan of a training whose environments are in the graph.

    Args:
        config: Settings of the training.
        algorithm: What is trained; it has a fused form.

    Raises:
        ConfigError: That form is of another agent, or the environment cannot be in a graph.
    """
    agent_class, fused_name = algorithm.agent, algorithm.fused
    assert agent_class is not None
    assert fused_name is not None
    fused_class: type[FusedAgent] = imported(fused_name)
    graph, fused_graph = (getattr(kind, "graph_class", object) for kind in (agent_class, fused_class))
    if not issubclass(fused_class, agent_class) or not issubclass(fused_graph, graph):
        raise ConfigError(
            f"the fused form of this algorithm is not of its agent: it would not train {agent_class.__name__}",
            where="placement.name",
            received=f"fused, with the agent {agent_class.__name__} and {fused_class.__name__} as its fused form",
            fix=f"use placement local; or give the Algorithm a fused form, "
            f"`class Fused{agent_class.__name__}({fused_class.__name__}, {agent_class.__name__})`, whose graph_class "
            f"inherits from {graph.__name__}",
        )
    environment = make_graph_environment(config.env, config.num_envs, config.env_options)
    own = config.agent  # type: ignore[attr-defined]
    agent = fused_class(environment, own, backend=config.backend, seed=config.seed)
    spaces = to_gymnasium(environment.observation_space), to_gymnasium(environment.action_space)
    agent.made_for = describe_environment(config, *spaces)
    learner = FusedLearner(agent)
    return Parts(agent, [learner], lambda: fused_plan(learner))
