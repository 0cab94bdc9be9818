"""Fused placement: environments, rollout and update are in the graph, and a plan only counts and reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlweave.agents.fused_dqn import FusedDQN
from rlweave.agents.fused_ppo import FusedPPO
from rlweave.algorithms.agent_making import describe_environment
from rlweave.algorithms.config import TrainConfig
from rlweave.envs.in_graph import GraphEnvironment
from rlweave.flow import Episode, ParallelRollouts, ReportMetrics, SampleBatch, TrainOneStep
from rlweave.spaces.gymnasium_spaces import to_gymnasium


class FusedLearner:
    """Worker and learner in one: it asks for steps, and takes them where it learns from them.

    Its environments are part of the agent's state, so a checkpoint has them, and no episode is begun anew.

    Args:
        agent: The agent.
        iterations: How many rounds of steps and updates are one call of the graph.
    """

    shares_weights = True

    def __init__(self, agent: FusedPPO | FusedDQN, iterations: int = 1) -> None:
        self.agent, self.iterations = agent, iterations
        self._episodes: list[Episode] = []

    def start(self, seed: int | None = None) -> None:
        """Nothing: episodes go on where they stand."""

    begin_episodes = start

    def state_dict(self, environments: bool = True, weights: bool = True) -> dict[str, Any]:
        """The episodes that nobody has asked for; all else is the agent's state."""
        return {"episodes": [episode.to_data() for episode in self._episodes]}

    def load_state_dict(self, state: Mapping[str, Any], seed: int) -> str:
        """Takes over what `state_dict` gave."""
        self._episodes = [Episode.from_data(episode) for episode in state["episodes"]]
        return ""

    def close(self) -> None:
        """Nothing to close."""

    def sample(self) -> SampleBatch:
        """The steps that the next call will take; their data stay in the graph."""
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
        """Nothing: it acts on what it learns."""

    def episode_stats(self) -> Sequence[Episode]:
        """Episodes that ended since the last call."""
        episodes, self._episodes = self._episodes, []
        return episodes


def fused_plan(learner: FusedLearner) -> ReportMetrics:
    """One call of the graph after the other."""
    rollouts = ParallelRollouts([learner]).gather_sync()
    return ReportMetrics(rollouts.for_each(TrainOneStep(learner, [learner])), [learner])


def describe_fused(config: TrainConfig, environment: GraphEnvironment) -> dict[str, Any]:
    """What a model says of the environment, see `describe_environment`."""
    spaces = environment.observation_space, environment.action_space
    return describe_environment(config, *(to_gymnasium(space) for space in spaces))
