"""Deep Q-learning (Mnih et al. 2015, Nature 518).

With double Q-learning (arXiv:1509.06461), dueling streams (1511.06581), prioritized replay (1511.05952) and n-step
returns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from rlweave.agents.agent import Batch, Metrics
from rlweave.agents.dqn_config import DQNConfig
from rlweave.agents.dqn_graph import DQNGraph
from rlweave.agents.recurrent_dqn_graph import RecurrentDQNGraph
from rlweave.agents.replay_agent import DrawnBatch, ReplayAgent, ReplayGraph, rows_of
from rlweave.agents.sequences import SequenceAccumulator, sequence_space
from rlweave.components import DQNLoss, DuelingPolicy, EpsilonGreedy, NStepAccumulator, QPolicy, SequenceDQNLoss
from rlweave.components.action_leaves import COUNTABLE
from rlweave.components.schedules import make_schedule
from rlweave.errors import ConfigError
from rlweave.graph.assembly import InputSpace
from rlweave.spaces import BoolBox, FloatBox, Space


class DQN(ReplayAgent):
    """DQN for all actions that can be counted: discrete, multi-discrete, multi-binary, and nests of them.

    Of several components each has Q-values of its own, see `DQNLoss` (branching: Tavakoli et al. 2018).

    Args:
        observation_space: Space of one observation.
        action_space: Space of one action.
        config: `DQNConfig` or its data.
        backend: As in `Agent`.
        seed: As in `Agent`.
    """

    name: ClassVar[str] = "dqn"
    config_class = DQNConfig
    config: DQNConfig
    graph_class: ClassVar[type[DQNGraph]] = DQNGraph
    action_kinds = COUNTABLE
    acting_methods: ClassVar[tuple[str, ...]] = ("act", "act_greedily", "q_values")

    def __init__(
        self,
        observation_space: Space,
        action_space: Space,
        config: DQNConfig | Mapping[str, Any] | None = None,
        *,
        backend: str = "jax",
        seed: int = 0,
    ) -> None:
        super().__init__(observation_space, action_space, config, backend=backend, seed=seed)
        if self.recurrent:
            self._check_sequences()
        self._epsilon = make_schedule(self.config.epsilon)
        self._syncs = 0

    def _check_sequences(self) -> None:
        config = self.config
        if config.batch_size % config.unroll:
            raise ConfigError(
                "a batch of recurrent networks is made of whole sequences",
                where="batch_size",
                received=f"{config.batch_size} transitions, with sequences of {config.unroll} (unroll)",
                fix=f"choose a multiple of {config.unroll}",
            )
        if config.overlap >= config.unroll:
            raise ConfigError(
                "neighbouring sequences share more than a sequence has",
                where="overlap",
                received=f"overlap={config.overlap}, unroll={config.unroll}",
                fix=f"choose less than {config.unroll}",
            )

    def make_root(self) -> ReplayGraph:
        if self.recurrent:
            return RecurrentDQNGraph(burn_in=self.config.burn_in, **self.graph_arguments())
        return super().make_root()

    def graph_arguments(self) -> dict[str, Any]:
        return super().graph_arguments() | self.learning_arguments()

    @property
    def capacity(self) -> int:
        """Records that the memory keeps: transitions, or sequences, each of which brings so many new ones."""
        capacity: int = self.config.memory_capacity
        return max(capacity // self._new_steps, 1) if self.recurrent else capacity

    def learning_arguments(self) -> dict[str, Any]:
        """Arguments of the root component, the memory apart."""
        config = self.config
        policy = (DuelingPolicy if config.dueling else QPolicy)(
            network=config.network,
            image_network=config.image_network or None,
            action_space=self.action_space,
            observation_space=self.observation_space,
            mask_leaf=config.mask_leaf,
        )
        return {
            "policy": policy,
            "loss": self._make_loss(),
            "optimizer": self.make_optimizer(),
            "exploration": EpsilonGreedy(action_space=self.action_space),
        }

    def _make_loss(self) -> DQNLoss:
        config = self.config
        settings: dict[str, Any] = {
            "discount": config.discount,
            "n_step": config.n_step,
            "double": config.double,
            "huber_delta": config.huber_delta,
            "reduce_components": config.reduce_components,
        }
        if self.recurrent:
            return SequenceDQNLoss(**settings, priority_eta=config.priority_eta)
        return DQNLoss(**settings)

    def record_space(self) -> Space:
        """Space of one transition, or of one sequence for recurrent networks; see `sequence_space`."""
        if not self.recurrent:
            return super().record_space()
        length = self.config.burn_in + self.config.unroll
        return sequence_space(self.observation_space, self.own_action_space, self.recurrent_space, length)

    @property
    def _batch_rows(self) -> int:
        """Records in a batch: transitions, or sequences of `unroll` transitions."""
        return self.config.batch_size // self.config.unroll if self.recurrent else self.config.batch_size

    @property
    def _new_steps(self) -> int:
        """Transitions by which a sequence goes on from the one before."""
        return self.config.unroll - self.config.overlap

    def input_spaces(self) -> dict[str, InputSpace]:
        spaces = super().input_spaces() | {
            "epsilon": FloatBox(add_batch_rank=True),
            "gradients": lambda root: root.policy.variables(),
        }
        if self.recurrent:
            spaces["recurrent_state"] = self.recurrent_space.with_batch_rank()
            spaces["episode_start"] = BoolBox(add_batch_rank=True)
        return spaces

    def make_accumulator(self, num_envs: int) -> NStepAccumulator | SequenceAccumulator:
        if self.recurrent:
            return SequenceAccumulator(self.config.burn_in, self.config.unroll, self.config.overlap, num_envs)
        return super().make_accumulator(num_envs)

    # -- acting --------------------------------------------------------------------------------------------------

    @property
    def epsilon(self) -> float:
        """The present share of random actions."""
        return float(self._epsilon(self.env_steps))

    def act(self, observations: Any, explore: bool = True) -> Any:
        """Actions (B, ...) for a batch of observations."""
        self.check_masks(observations)
        if not explore:
            return self.actor.act_greedily(observations)
        rows = rows_of(observations)
        return self.actor.act(observations, np.full(rows, self.epsilon, np.float32))

    def act_recurrently(
        self, observations: Any, recurrent_state: Any, episode_start: Any, explore: bool = True, preprocess: bool = True
    ) -> tuple[Any, dict[str, Any], Any]:
        self.check_masks(observations)
        if not explore:
            actions, after = self.actor.act_greedily(observations, recurrent_state, episode_start)
        else:
            epsilon = np.full(len(episode_start), self.epsilon, np.float32)
            actions, after = self.actor.act(observations, epsilon, recurrent_state, episode_start)
        return actions, {}, after

    # -- learning ------------------------------------------------------------------------------------------------

    def update(self, batch: Batch | DrawnBatch | None = None) -> Metrics:
        return {**super().update(batch), "epsilon": self.epsilon}

    def _after_update(self) -> None:
        """Copies to the target network when it is time."""
        due = self.env_steps // self.config.target_update_interval
        if due > self._syncs:
            self._syncs = due
            self.executor.sync_target()

    def compute_gradients(self, batch: Batch) -> dict[str, np.ndarray]:
        gradients: dict[str, np.ndarray] = self.executor.gradients(batch)
        return gradients

    def apply_gradients(self, gradients: Mapping[str, np.ndarray]) -> None:
        self.executor.apply(dict(gradients))
        self._after_update()
        self._copy_to_actor()

    def _after_import(self) -> None:
        self.executor.sync_target()
        super()._after_import()

    def counters(self) -> dict[str, int]:
        return {**super().counters(), "syncs": self._syncs}

    def load_counters(self, counters: Mapping[str, int]) -> None:
        super().load_counters(counters)
        self._syncs = int(counters["syncs"])
