"""Agents that learn off policy from a replay memory: what DQN, DDPG, TD3 and SAC share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from rlweave.agents.agent import Agent, AgentConfig, Batch, Metrics
from rlweave.agents.elements import add_axis
from rlweave.agents.records import SequenceRecords, TransitionRecords
from rlweave.agents.sequences import SequenceAccumulator
from rlweave.agents.stepping import rows_of
from rlweave.components import (
    GraphPrioritizedReplay,
    GraphReplay,
    NStepAccumulator,
    PrioritizedReplay,
    ReplayMemory,
)
from rlweave.errors import ConfigError, ExecutionError
from rlweave.graph import Component, api
from rlweave.graph.assembly import InputSpace
from rlweave.settings.config import setting
from rlweave.settings.ranges import NOT_NEGATIVE, POSITIVE, PROBABILITY
from rlweave.spaces import FloatBox, IntBox, Space

#: Memories by place: without and with priorities.
MEMORIES: dict[str, tuple[Callable[..., Component], Callable[..., Component]]] = {
    "host": (ReplayMemory, PrioritizedReplay),
    "graph": (GraphReplay, GraphPrioritizedReplay),
}

STEP_KEYS = ("observations", "actions", "rewards", "terminated", "truncated", "next_observations")


class ReplayConfig(AgentConfig):
    """Settings of agents that learn from a replay memory, wherever that is."""

    n_step: int = setting(3, "rewards in an n-step return before it bootstraps", ge=1, unit="steps")
    discount: float = setting(0.99, "discount of future rewards", ge=0, le=1)
    memory_capacity: int = setting(100_000, "transitions kept", ge=1, unit="transitions")
    priority_alpha: float = setting(0.6, "exponent of priorities in sampling; 0: uniform", ge=0)
    priority_beta: float | dict[str, Any] = setting(
        0.4, "strength of the importance weights, or a schedule over inserted transitions", within=PROBABILITY
    )
    batch_size: int = setting(64, "transitions in an update", ge=1, unit="transitions")
    learning_starts: int = setting(1_000, "environment steps before the first update", ge=1, unit="environment steps")
    samples_per_step: float = setting(
        16.0, "transitions trained on for each environment step", gt=0, unit="transitions per environment step"
    )
    optimizer: dict[str, Any] = setting({"type": "adam"}, "optimizer spec, learning rate apart")
    lr: float | dict[str, Any] = setting(1e-3, "learning rate, or a schedule over optimizer steps", within=NOT_NEGATIVE)
    max_grad_norm: float | None = setting(
        10.0, "global norm that gradients are clipped to; null: not clipped", within=POSITIVE
    )


class OwnMemoryConfig(ReplayConfig):
    """Settings of agents whose replay memory is in their own graph."""

    memory_place: Literal["host", "graph"] = setting(
        "host", "where transitions are kept: host (NumPy, float64 sum tree) or graph (on the device, float32)"
    )
    prioritized: bool = setting(True, "prioritized replay: transitions are drawn by their TD error")
    prefetch: int = setting(
        0,
        "batches drawn and copied to the device ahead of the update (host memory only); each sees the memory, and sets "
        "priorities, as many updates late",
        ge=0,
        unit="batches",
    )


class ReplayGraph(Component):
    """The component graph of an agent with a replay memory.

    Args:
        memory: The replay memory; None: all that is learned from is passed in.
        prefetch: Whether drawing and learning are two calls, so that batches can be under way between them.
        scope: Name within the owner.
    """

    def __init__(self, memory: Component | None, prefetch: bool, scope: str) -> None:
        super().__init__(scope)
        self.memory: Any = memory
        self.prefetch = prefetch

    def offers(self, method: str) -> bool:
        """What uses a memory needs one, and drawing is apart from learning only where that is asked for."""
        if method in ("draw_batch", "update_drawn"):
            return self.memory is not None and self.prefetch
        return self.memory is not None or method not in ("insert", "update")

    @abstractmethod
    def learn(self, records: Any, weights: Any) -> Any:
        """An update from transitions: the loss, and the sizes of the TD errors, (B,)."""

    @api
    def insert(self, records: Any) -> None:
        """Stores transitions."""
        self.memory.insert(records)

    @api(static=("batch_size",))
    def update(self, batch_size: int) -> Any:
        """Learns from transitions of the memory, and gives them their new priorities."""
        return self.update_drawn(*self.memory.sample(batch_size))

    @api
    def update_from(self, records: Any) -> Any:
        """Learns from transitions that are passed in."""
        loss, _ = self.learn(records, None)
        return loss

    @api(static=("batch_size",))
    def draw_batch(self, batch_size: int) -> Any:
        """Records of the memory, where they lie, and their importance weights."""
        return self.memory.sample(batch_size)

    @api
    def update_drawn(self, records: Any, indices: Any, weights: Any) -> Any:
        """Learns from records that were drawn before, and gives them their new priorities."""
        loss, td_errors = self.learn(records, weights)
        self.memory.update_priorities(indices, td_errors)
        return loss


class DrawnBatch(NamedTuple):
    """Transitions that were drawn, on their way to an update.

    Attributes:
        arguments: Of `update_drawn`.
        num_steps: How many transitions.
    """

    arguments: tuple[Any, ...]
    num_steps: int


def rows_in(batch: Batch | DrawnBatch) -> int:
    """Transitions in a batch."""
    return batch.num_steps if isinstance(batch, DrawnBatch) else rows_of(batch["rewards"])


class ReplayAgent(Agent):
    """An agent that stores transitions, and learns from those that it draws.

    Args:
        observation_space: Space of one observation.
        action_space: Space of one action.
        config: Settings or their data.
        backend: As in `Agent`.
        seed: As in `Agent`.

    Raises:
        ConfigError: Learning would never start, or a memory in the graph is to be drawn from ahead.
    """

    memory_scope = "memory"
    config: Any
    acting_methods: ClassVar[tuple[str, ...]] = ("act", "act_greedily")

    def complete_settings(self) -> None:
        super().complete_settings()
        config = self.config
        if config.learning_starts > config.memory_capacity:
            raise ConfigError(
                "learning would never start",
                where="learning_starts",
                received=f"{config.learning_starts} with room for {config.memory_capacity} transitions",
                fix="lower learning_starts, or raise memory_capacity",
            )
        if config.prefetch and config.memory_place != "host":
            raise ConfigError(
                "a memory in the graph has nothing to prefetch",
                where="prefetch",
                received=f"{config.prefetch} with memory_place={config.memory_place!r}",
                fix="leave prefetch out, or keep the memory on the host",
            )
        self.records = (SequenceRecords if self.recurrent else TransitionRecords)(config)

    #: Whether its memory is in its graph, and not elsewhere.
    has_memory = True
    #: Records that were stored.
    inserted = 0
    #: Environment steps that were made when the memory was empty last.
    memory_began_at = 0
    #: Says how many environment steps the plan still has to store before the next update; None: there is no plan.
    missing_steps: Callable[[], int] | None = None
    #: Class of the root component.
    graph_class: ClassVar[type[ReplayGraph]]

    def make_root(self) -> ReplayGraph:
        return self.graph_class(**self.graph_arguments())

    def graph_arguments(self) -> dict[str, Any]:
        """Arguments of the root component."""
        return {"memory": self.make_memory(), "prefetch": bool(self.config.prefetch)}

    def make_memory(self) -> Component | None:
        """The replay memory; None where it is elsewhere."""
        config = self.config
        if not self.has_memory:
            return None
        uniform, prioritized = MEMORIES[config.memory_place]
        if config.prioritized:
            return prioritized(self.records.capacity, config.priority_alpha, config.priority_beta)
        return uniform(self.records.capacity)

    def memory_bytes(self) -> int:
        """Size of the replay memory when it is full, wherever it is."""
        if self.has_memory:
            return super().memory_bytes()
        leaves = self.record_space().flatten().values()
        record = sum(int(np.prod(leaf.feature_shape)) * np.dtype(leaf.dtype).itemsize for leaf in leaves)
        return int(self.config.memory_capacity * record)

    def make_optimizer(self, lr: Any = None, scope: str = "optimizer") -> Component:
        """An optimizer as the settings have it; `lr` None: the setting of that name."""
        config = self.config
        settings = {"max_grad_norm": config.max_grad_norm, **config.optimizer}
        return Component.from_spec({**settings, "learning_rate": config.lr if lr is None else lr, "scope": scope})

    def record_space(self) -> Space:
        """Space of one record of the memory; see `records`. `actions` are the agent's own (`own_action_space`)."""
        return self.records.space(self.observation_space, self.own_action_space, self.recurrent_space)

    @property
    def static_arguments(self) -> dict[str, dict[str, Any]]:
        size = {"batch_size": self.records.in_batch}
        if not self.has_memory:
            return {}
        return {"update": size, "draw_batch": size} if self.config.prefetch else {"update": size}

    def input_spaces(self) -> dict[str, InputSpace]:
        spaces = self.acting_spaces() | {"records": self.record_space().with_batch_rank()}
        if self.config.prefetch:
            spaces |= {"indices": IntBox(add_batch_rank=True), "weights": FloatBox(add_batch_rank=True)}
        return spaces

    def make_accumulator(self, num_envs: int) -> NStepAccumulator | SequenceAccumulator:
        """What turns steps of environments into records of the memory."""
        return self.records.accumulator(num_envs)

    def forget_steps(self) -> None:
        super().forget_steps()
        #: What makes records of the steps of an environment, by its name.
        self._accumulators: dict[Any, NStepAccumulator | SequenceAccumulator] = {}

    def collect(self, env_id: Any, step: dict[str, Any]) -> None:
        if env_id not in self._accumulators:
            self._accumulators[env_id] = self.make_accumulator(1)
        row = add_axis(step)
        memory = {name: row[name] for name in row if name not in STEP_KEYS}
        records = self._accumulators[env_id].add(*(row[name] for name in STEP_KEYS), **memory)
        if rows_of(records["rewards"]):
            self.insert(records)

    # -- learning ------------------------------------------------------------------------------------------------

    def insert(self, records: Any) -> None:
        """Stores transitions, dict of arrays (N, ...) as `record_space` says."""
        self.executor.insert(records)
        self.inserted += rows_of(records["rewards"])

    def ready(self) -> bool:
        """Whether the memory holds enough for an update without a batch."""
        return self.inserted > 0 and self.env_steps - self.memory_began_at >= self.config.learning_starts

    def steps_to_update(self) -> float:
        """Environment steps from now until the next update, or until the training pauses."""
        if not self.inserted or self.missing_steps is None:
            return 1  # which step completes the first transition is not known
        filled = self.memory_began_at + self.config.learning_starts
        return min(max(self.missing_steps(), filled - self.env_steps), self.pauses_at - self.env_steps)

    def refill_memory(self) -> None:
        self.inserted, self.memory_began_at = 0, self.env_steps

    def draw(self) -> tuple[Any, np.ndarray, np.ndarray]:
        """Draws a batch for a later update, with the setting `prefetch`: records, indices and importance weights.

        Raises:
            ExecutionError: The memory holds too little.
        """
        self._require_ready()
        records, indices, weights = self.executor.draw_batch(batch_size=self.records.in_batch)
        return records, indices, weights

    def stage(self, drawn: tuple[Any, Any, Any]) -> DrawnBatch:
        """Starts to copy what `draw` gave to the device."""
        return DrawnBatch(self.executor.stage("update_drawn", *drawn), self.config.batch_size)

    def observed(self) -> None:
        """Nothing is handed out: what was observed is in the memory, which `learn(None)` draws from."""
        self._require_ready()

    def learn(self, batch: Batch | DrawnBatch | None) -> Metrics:
        """Learns from a batch of transitions; keeps target networks up to date.

        Args:
            batch: Dict of arrays (N, ...) as `record_space` says, or what `stage` gave; None draws from the memory.
        """
        if self.share is not None:
            self.share.rows = self.config.batch_size if batch is None else rows_in(batch)
        if isinstance(batch, DrawnBatch):
            loss, metrics = self.executor.update_drawn(*batch.arguments, with_metrics=True)
            samples = batch.num_steps
        elif batch is None:
            loss, metrics = self.executor.update(batch_size=self.records.in_batch, with_metrics=True)
            samples = self.config.batch_size
        else:
            samples = rows_of(batch["rewards"]) * self.records.trained_steps
            if not samples:
                raise ExecutionError(
                    "a batch without transitions", where=f"{self.name}.update", fix="pass at least one"
                )
            loss, metrics = self.executor.update_from(batch, with_metrics=True)
        self._after_update()
        self._acting_is_behind = True  # several updates may come before anyone acts
        metrics = self._checked({"loss": float(loss), **metrics})
        return {**metrics, "trained_samples": samples, "gradient_steps": 1}

    def _require_ready(self) -> None:
        if not self.ready():
            raise ExecutionError(
                "there is not enough to learn from yet",
                where=f"{self.name}.update",
                received=f"{self.env_steps} environment steps, {self.inserted} transitions",
                fix=f"observe {self.config.learning_starts} steps first (learning_starts), or ask agent.ready()",
            )

    def counters(self) -> dict[str, int]:
        return {**super().counters(), "inserted": self.inserted, "memory_began_at": self.memory_began_at}

    def load_counters(self, counters: Mapping[str, int]) -> None:
        super().load_counters(counters)
        self.inserted, self.memory_began_at = int(counters["inserted"]), int(counters["memory_began_at"])
