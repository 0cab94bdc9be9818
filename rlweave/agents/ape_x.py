"""Ape-X DQN: distributed prioritized experience replay (Horgan et al. 2018, https://arxiv.org/abs/1803.00933).

A DQN (double, dueling, n-step) whose memory is elsewhere: it learns from batches that shards of a replay memory drew,
and gives them priorities; workers compute the priorities of new transitions.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np

from rlweave.agents.agent import Batch, Metrics
from rlweave.agents.dqn import DQN, DQNGraph, QLearningConfig
from rlweave.components import PrioritizedReplay
from rlweave.components.exploration import ape_x_epsilons
from rlweave.components.schedules import make_schedule, per_worker_shares
from rlweave.graph import api
from rlweave.graph.assembly import InputSpace
from rlweave.settings.config import setting
from rlweave.spaces import FloatBox


class ApeXConfig(QLearningConfig):
    """Settings of Ape-X."""

    memory_capacity: int = setting(100_000, "transitions kept, in all shards together", ge=1, unit="transitions")
    target_update_samples: int = setting(
        8_000, "interval between two copies to the target network (the paper: 2,500 batches of 512)", ge=1,
        unit="trained samples",
    )  # fmt: skip
    epsilon_base: float = setting(
        0.4, "share of random actions of the first environment; environment i of N has this to the power of "
        "1 + epsilon_alpha i / (N - 1)", ge=0, le=1,
    )  # fmt: skip
    epsilon_alpha: float = setting(7.0, "how much less the other environments explore than the first", ge=0)

    # the shards of the memory are on the host, and a plan draws from them
    prefetch: ClassVar[int] = 0
    memory_place: ClassVar[str] = "host"


class ApeXGraph(DQNGraph):
    """The component graph of Ape-X: it learns from what shards drew, and has no memory of its own."""

    @api
    def td_errors(self, records: Any) -> Any:
        """Sizes of the TD errors of transitions, (B,), with the acting network as its own target network.

        (Workers have no target network; the paper leaves open what they take.)
        """
        next_values = self.policy.q_values(records["next_observations"])
        _, errors = self.loss.td_loss(
            self.policy.q_values(records["observations"]),
            records["actions"],
            records["rewards"],
            records["terminated"],
            next_values,
            next_values if self.loss.double else None,
            None,
            records["discounts"],
        )
        return errors

    @api
    def update_weighted(self, records: Any, weights: Any) -> Any:
        """Learns from transitions with importance weights; the loss, and the sizes of the TD errors (B,)."""
        return self.learn(records, weights)


class ApeX(DQN):
    """Ape-X for all actions that can be counted: discrete, multi-discrete, multi-binary, and nests of them.

    Has no memory of its own, so `observe`, and `update` without a batch, are refused: a plan stores and draws.

    Args:
        observation_space: Space of one observation.
        action_space: Space of one action.
        config: `ApeXConfig` or its data.
        backend: As in `Agent`.
        seed: As in `Agent`.
    """

    name: ClassVar[str] = "ape-x"
    learns_in_ranks = False
    has_memory = False  # shards have it
    no_single_steps: ClassVar[tuple[str, str]] = (
        "the memory of Ape-X is in shards, which belong to a plan",
        "train it with rlweave.algorithms.ape_x, pass a batch to update, or use DQN, which has a memory",
    )
    no_recurrent_networks: ClassVar[tuple[str, str]] = (
        "Ape-X takes no recurrent networks",
        "use layers without a state, or DQN, which stores sequences for them",
    )
    config_class: ClassVar[type[QLearningConfig]] = ApeXConfig
    graph_class: ClassVar[type[DQNGraph]] = ApeXGraph
    acting_methods: ClassVar[tuple[str, ...]] = ("act", "act_greedily", "q_values", "td_errors")

    #: Transitions that were trained on.
    trained_samples = 0

    def graph_arguments(self) -> dict[str, Any]:
        return super().graph_arguments() | {"scope": self.name}

    def memory_factory(self, shards: int) -> Callable[[], PrioritizedReplay]:
        """Makes one of so many shards of the memory; travels to other processes."""
        config = self.config
        capacity = -(-config.memory_capacity // shards)
        beta = per_worker_shares(make_schedule(config.priority_beta), shards)  # each counts its own transitions
        return functools.partial(PrioritizedReplay, capacity, config.priority_alpha, beta)

    def input_spaces(self) -> dict[str, InputSpace]:
        return {**super().input_spaces(), "weights": FloatBox(add_batch_rank=True)}

    # -- acting --------------------------------------------------------------------------------------------------

    def epsilons(self, first: int, count: int, total: int) -> np.ndarray:
        """Shares of random actions of `count` environments from number `first` on, of `total` in all workers.

        Returns:
            float32 (count,).
        """
        ladder = ape_x_epsilons(total, self.config.epsilon_base, self.config.epsilon_alpha)
        return np.array(ladder[first : first + count], np.float32)

    @property
    def epsilon(self) -> float:
        """The share of random actions of an agent that acts alone: that of the first environment."""
        return float(self.config.epsilon_base)

    def act_with(self, observations: Any, epsilons: np.ndarray) -> Any:
        """Actions (B, ...) for a batch of observations, with an epsilon for each, (B,)."""
        self.check_masks(observations)
        actions, _ = self.acting.act(observations, epsilons)
        return actions

    def priorities(self, records: Any) -> np.ndarray:
        """Sizes of the TD errors (N,) of transitions, as `record_space` says, by the weights acted on."""
        errors: np.ndarray = self.acting.td_errors(records)
        return errors

    # -- learning ------------------------------------------------------------------------------------------------

    def learn(self, batch: Batch) -> Metrics:
        """Learns from a batch of transitions (N, ...); copies to the target network when it is time."""
        return self.learn_weighted(batch, np.ones(len(batch["rewards"]), np.float32))[0]

    def learn_weighted(self, records: Any, weights: np.ndarray) -> tuple[Metrics, np.ndarray]:
        """As `learn`, with importance weights (N,); also gives the sizes of the TD errors, (N,)."""
        loss, errors = self.executor.update_weighted(records, weights)
        self.trained_samples += len(weights)
        self._after_update()
        self._acting_is_behind = True  # several updates may come before anyone acts
        metrics = self._checked({"loss": float(loss)})
        return {**metrics, "trained_samples": len(weights), "gradient_steps": 1}, errors

    def apply_gradients(self, gradients: Mapping[str, np.ndarray]) -> None:
        """As `DQN.apply_gradients`; for the target network, they are those of one batch of `batch_size`."""
        self.trained_samples += self.config.batch_size
        super().apply_gradients(gradients)

    @property
    def _due_syncs(self) -> int:
        return int(self.trained_samples // self.config.target_update_samples)

    def counters(self) -> dict[str, int]:
        return {**super().counters(), "trained_samples": self.trained_samples}

    def load_counters(self, counters: Mapping[str, int]) -> None:
        super().load_counters(counters)
        self.trained_samples = int(counters["trained_samples"])
