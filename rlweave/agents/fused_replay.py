"""Agents with replay whose environments and memory are in the graph: acting, storing and learning are one call."""

from __future__ import annotations

from typing import Any, ClassVar

from rlweave import graph
from rlweave.agents.agent import Metrics
from rlweave.agents.fused import FusedAgent, episodes_of
from rlweave.agents.replay_agent import ReplayAgent, ReplayGraph
from rlweave.components.memories.graph_n_step import NStepWindow
from rlweave.envs.in_graph import GraphEnvironment
from rlweave.errors import ConfigError
from rlweave.graph import api

_RECORD = ("terminated", "truncated", "episode_returns", "episode_steps")
#: Steps that a call takes where nothing else says how many.
STEPS_PER_CALL = 500


class FusedReplayGraph(ReplayGraph):
    """The environments' side of a component graph; stands before the agent's own graph among the base classes.

    Args:
        environment: The environments.
        window: Makes n-step transitions.
        batch_size: Transitions in an update.
        vector_steps: Steps of all environments in an iteration.
        updates: Updates after them.
        arguments: Those of the agent's graph.
    """

    policy: Any
    act: Any

    def __init__(
        self,
        environment: GraphEnvironment,
        window: NStepWindow,
        batch_size: int,
        vector_steps: int,
        updates: int,
        **arguments: Any,
    ) -> None:
        super().__init__(**arguments)
        self.environment, self.window = environment, window
        self.batch_size, self.vector_steps, self.updates_per_round = batch_size, vector_steps, updates

    def explore(self, observations: Any) -> Any:
        """The policy's own actions (N, ...) for observations (N, ...), as in training."""
        return self.act(observations)[0]

    @api
    def fill_window(self) -> Any:
        """The steps before the first transition is complete; see `NStepWindow`. Returns what `train` returns."""
        return self._steps(self.window.n_step - 1, store=False)

    @api(static=("steps",))
    def collect(self, steps: int) -> Any:
        """Steps every environment without learning.

        Args:
            steps: Static. Steps of each.
        """
        return self._steps(steps, store=True)

    @api(static=("iterations",))
    def train(self, iterations: int = 1) -> Any:
        """Steps and updates in turns.

        Args:
            iterations: Static. How many rounds of `vector_steps` and `updates`.

        Returns:
            Arrays (iterations, vector_steps, N): where episodes ended (`terminated`, `truncated`), and their returns
            and lengths up to each step (`episode_returns`, `episode_steps`).
        """

        def iteration(carry: Any, _: Any) -> Any:
            record = self._steps(self.vector_steps, store=True)
            graph.repeat(self.updates_per_round, self._learn_once)
            return carry, record

        return graph.scan(iteration, (), length=iterations)[1]

    def _learn_once(self) -> None:
        graph.metric("loss", self.update(self.batch_size))

    def _steps(self, count: int, store: bool) -> Any:
        def step(carry: Any, _: Any) -> Any:
            return carry, self._step(store)

        return graph.scan(step, (), length=count)[1]

    def _step(self, store: bool) -> Any:
        observations = self.environment.observations()
        actions = self.explore(observations)
        taken = self.environment.step(self.policy.env_actions(actions))
        names = ("rewards", "terminated", "truncated", "next_observations")
        records = self.window.push(
            {"observations": observations, "actions": actions} | {name: taken[name] for name in names}
        )
        if store:
            self.memory.insert(records)
        return {name: taken[name] for name in _RECORD}


class FusedReplayAgent(FusedAgent, ReplayAgent):
    """An agent with replay on environments that are components; see `FusedAgent`.

    An iteration is some steps, and some updates after them: `samples_per_step` has to make whole numbers of updates, or
    of steps between two updates.

    Raises:
        ConfigError: It does not, or the network is recurrent.
    """

    no_recurrent_networks: ClassVar[tuple[str, str] | None] = (
        "fused agents with replay take no recurrent networks: their memory is of transitions, not of sequences",
        "placement=local, or algorithm ppo",
    )

    def complete_settings(self) -> None:
        super().complete_settings()
        self.config = self.config.model_copy(update={"memory_place": "graph"})
        self.vector_steps, self.updates = rounds(self.num_envs * self.config.samples_per_step / self.config.batch_size)

    def graph_arguments(self) -> dict[str, Any]:
        config = self.config
        return super().graph_arguments() | {
            "environment": self.environment_copy(),
            "window": NStepWindow(config.n_step, config.discount, self.num_envs),
            "batch_size": config.batch_size,
            "vector_steps": self.vector_steps,
            "updates": self.updates,
        }

    @property
    def steps_per_iteration(self) -> int:
        return self.vector_steps * self.num_envs

    @property
    def steps_per_call(self) -> int:
        """Environment steps that one call of the graph takes, about."""
        return STEPS_PER_CALL

    @property
    def iterations_per_call(self) -> int:  # type: ignore[override]
        """Iterations in one call of the graph."""
        return max(1, round(self.steps_per_call / self.steps_per_iteration))

    def learned_per_iteration(self) -> dict[str, int]:
        return {"gradient_steps": self.updates, "trained_samples": self.updates * self.config.batch_size}

    def steps_of_next_call(self, iterations: int | None = None) -> int:
        """Environment steps that `train` will take, those of the beginning included."""
        begin = 0 if self.inserted else (self._first_steps + self.config.n_step - 1) * self.num_envs
        return begin + super().steps_of_next_call(iterations)

    @property
    def _first_steps(self) -> int:
        return max(1, -(-self.config.learning_starts // self.num_envs))

    def train(self, iterations: int | None = None) -> tuple[Metrics, list[tuple[float, int]]]:
        """As `FusedAgent.train`; the first call also fills the memory to `learning_starts`."""
        first = [] if self.inserted else self._begin()
        steps = self.env_steps
        metrics, episodes = super().train(iterations)
        self.inserted += self.env_steps - steps
        return metrics, first + episodes

    def _begin(self) -> list[tuple[float, int]]:
        steps = self._first_steps
        episodes = episodes_of(self.executor.fill_window()) + episodes_of(self.executor.collect(steps=steps))
        self.inserted += steps * self.num_envs
        self.count_steps((steps + self.config.n_step - 1) * self.num_envs)
        return episodes


def rounds(updates_per_step: float) -> tuple[int, int]:
    """(steps, updates) of a round, for a number of updates per step of all environments.

    Raises:
        ConfigError: Neither it nor its inverse is a whole number, to 1 %.

    >>> rounds(2.0), rounds(0.25)
    ((1, 2), (4, 1))
    """
    steps, updates = (1, round(updates_per_step)) if updates_per_step >= 1 else (round(1 / updates_per_step), 1)
    if abs(updates / steps / updates_per_step - 1) > 0.01:
        raise ConfigError(
            "a fused round is a whole number of updates, or of steps between two updates",
            where="samples_per_step",
            received=f"{updates_per_step:.3f} updates for each step of all environments",
            fix="choose samples_per_step, batch_size and num_envs so that one divides the other",
        )
    return steps, updates
