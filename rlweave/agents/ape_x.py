"""Ape-X DQN: distributed prioritized experience replay (Horgan et al. 2018, https://arxiv.org/abs/1803.00933).

A DQN (double, dueling, n-step) whose memory is elsewhere: it learns from batches that shards of a replay memory drew,
and gives them priorities; workers compute the priorities of new transitions.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np

from rlweave.agents.agent import AgentConfig, Batch, Metrics
from rlweave.agents.dqn import DQN, DQNConfig, DQNGraph
from rlweave.agents.replay_agent import ReplayGraph
from rlweave.components import PrioritizedReplay
from rlweave.components.exploration import ape_x_epsilons
from rlweave.components.schedules import make_schedule, shared_out
from rlweave.errors import ExecutionError
from rlweave.graph import api
from rlweave.graph.assembly import InputSpace
from rlweave.settings.config import setting
from rlweave.spaces import FloatBox, Space


def _as_of_dqn(name: str, default: Any = None) -> Any:
    """The setting of DQN of this name, perhaps with another default."""
    field = copy.deepcopy(DQNConfig.model_fields[name])
    if default is not None:
        field.default = default
    return field


class ApeXConfig(AgentConfig):
    """Settings of Ape-X."""

    default_network: ClassVar[list[dict[str, Any]]] = DQNConfig.default_network
    network: list[dict[str, Any]] | None = _as_of_dqn("network")
    image_network: list[dict[str, Any]] | None = _as_of_dqn("image_network")
    dueling: bool = _as_of_dqn("dueling")
    double: bool = _as_of_dqn("double")
    n_step: int = _as_of_dqn("n_step")
    discount: float = _as_of_dqn("discount")
    replicas: int | list[str] | None = _as_of_dqn("replicas")
    huber_delta: float | None = _as_of_dqn("huber_delta")
    memory_capacity: int = setting(100_000, "transitions kept, in all shards together", ge=1, unit="transitions")
    priority_alpha: float = _as_of_dqn("priority_alpha")
    priority_beta: float | dict[str, Any] = _as_of_dqn("priority_beta")
    batch_size: int = _as_of_dqn("batch_size")
    learning_starts: int = _as_of_dqn("learning_starts")
    samples_per_step: float = _as_of_dqn("samples_per_step")
    target_update_samples: int = setting(
        8_000, "interval between two copies to the target network (the paper: 2,500 batches of 512)", ge=1,
        unit="trained samples",
    )  # fmt: skip
    epsilon_base: float = setting(
        0.4, "share of random actions of the first environment; environment i of N has this to the power of "
        "1 + epsilon_alpha i / (N - 1)", ge=0, le=1,
    )  # fmt: skip
    epsilon_alpha: float = setting(7.0, "how much less the other environments explore than the first", ge=0)
    optimizer: dict[str, Any] = _as_of_dqn("optimizer")
    lr: float | dict[str, Any] = _as_of_dqn("lr")
    max_grad_norm: float | None = _as_of_dqn("max_grad_norm")
    reduce_components: str = _as_of_dqn("reduce_components")

    # DQN's settings that have one value here, and so are none
    prefetch: ClassVar[int] = 0
    memory_place: ClassVar[str] = "host"
    epsilon: ClassVar[float] = 0.0


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
    no_single_steps: ClassVar[tuple[str, str]] = (
        "the memory of Ape-X is in shards, which belong to a plan",
        "train it with rlweave.algorithms.ape_x, pass a batch to update, or use DQN, which has a memory",
    )
    no_recurrent_networks: ClassVar[tuple[str, str]] = (
        "Ape-X takes no recurrent networks",
        "use layers without a state, or DQN, which stores sequences for them",
    )
    config_class = ApeXConfig  # type: ignore[assignment]
    config: ApeXConfig  # type: ignore[assignment]
    acting_methods: ClassVar[tuple[str, ...]] = ("act", "act_greedily", "q_values", "td_errors")

    def __init__(
        self,
        observation_space: Space,
        action_space: Space,
        config: ApeXConfig | Mapping[str, Any] | None = None,
        *,
        backend: str = "jax",
        seed: int = 0,
    ) -> None:
        super().__init__(observation_space, action_space, config, backend=backend, seed=seed)  # type: ignore[arg-type]
        self.trained_samples = 0

    def make_root(self) -> ReplayGraph:
        return ApeXGraph(**self.learning_arguments(), scope="ape-x")

    def memory_bytes(self) -> int:
        """Size of all shards of the memory together when they are full."""
        leaves = self.record_space().flatten().values()
        record = sum(int(np.prod(leaf.feature_shape)) * np.dtype(leaf.dtype).itemsize for leaf in leaves)
        return self.config.memory_capacity * record

    def memory_factory(self, shards: int) -> Callable[[], PrioritizedReplay]:
        """Makes one of so many shards of the memory; travels to other processes."""
        config = self.config
        capacity = -(-config.memory_capacity // shards)
        beta = shared_out(make_schedule(config.priority_beta), shards)  # each counts its own transitions
        return functools.partial(PrioritizedReplay, capacity, config.priority_alpha, beta)

    @property
    def static_arguments(self) -> dict[str, dict[str, Any]]:
        return {}

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
        actions, _ = self.actor.act(observations, epsilons)
        return actions

    def priorities(self, records: Any) -> np.ndarray:
        """Sizes of the TD errors (N,) of transitions, as `record_space` says, by the weights acted on."""
        errors: np.ndarray = self.actor.td_errors(records)
        return errors

    # -- learning ------------------------------------------------------------------------------------------------

    def insert(self, records: Any) -> None:
        raise self._no_memory("insert")

    def ready(self) -> bool:
        """Whether it can update without a batch: never."""
        return False

    def observed(self) -> None:
        raise self._no_memory("update")

    def learn(self, batch: Batch) -> Metrics:
        """Learns from a batch of transitions (N, ...); copies to the target network when it is time."""
        return self.learn_weighted(batch, np.ones(len(batch["rewards"]), np.float32))[0]

    def learn_weighted(self, records: Any, weights: np.ndarray) -> tuple[Metrics, np.ndarray]:
        """As `learn`, with importance weights (N,); also gives the sizes of the TD errors, (N,)."""
        loss, errors = self.executor.update_weighted(records, weights)
        self._count_samples(len(weights))
        self._actor_is_behind = True  # several updates may come before anyone acts
        metrics = self._checked({"loss": float(loss)})
        return {**metrics, "trained_samples": len(weights), "gradient_steps": 1}, errors

    def apply_gradients(self, gradients: Mapping[str, np.ndarray]) -> None:
        """As `DQN.apply_gradients`; for the target network, they are those of one batch of `batch_size`."""
        self.executor.apply(dict(gradients))
        self._count_samples(self.config.batch_size)
        self._copy_to_actor()

    def _count_samples(self, samples: int) -> None:
        """Counts, and copies to the target network when it is time."""
        before, self.trained_samples = self.trained_samples, self.trained_samples + samples
        interval = self.config.target_update_samples
        if self.trained_samples // interval > before // interval:
            self.executor.sync_target()

    def _no_memory(self, method: str) -> ExecutionError:
        what, fix = self.no_single_steps
        return ExecutionError(what, where=f"{self.name}.{method}", fix=fix)

    def counters(self) -> dict[str, int]:
        return {"env_steps": self.env_steps, "trained_samples": self.trained_samples}

    def load_counters(self, counters: Mapping[str, int]) -> None:
        self.env_steps, self.trained_samples = int(counters["env_steps"]), int(counters["trained_samples"])
