"""Deep Q-learning (Mnih et al. 2015, Nature 518).

With double Q-learning (arXiv:1509.06461), dueling streams (1511.06581), prioritized replay (1511.05952) and n-step
returns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from rlweave import graph
from rlweave.agents.agent import Agent, AgentConfig, Batch, Metrics
from rlweave.agents.config import setting
from rlweave.agents.trajectories import StepAssembler, add_axis, first_row, is_single
from rlweave.components import (
    DQNLoss,
    DuelingPolicy,
    EpsilonGreedy,
    GraphPrioritizedReplay,
    GraphReplay,
    NStepAccumulator,
    PrioritizedReplay,
    QPolicy,
    ReplayMemory,
)
from rlweave.components.schedules import make_schedule
from rlweave.errors import ConfigError, ExecutionError
from rlweave.graph import Component, api
from rlweave.graph.building import InputSpace
from rlweave.spaces import BoolBox, Dict, FloatBox, IntBox, Space


class DQNConfig(AgentConfig):
    """Settings of DQN."""

    network: list[dict[str, Any]] = setting(
        [
            {"type": "dense", "units": 64, "activation": "relu"},
            {"type": "dense", "units": 64, "activation": "relu"},
        ],
        "layers of the Q network",
    )
    image_network: list[dict[str, Any]] = setting([], "layers that image observations go through first")
    dueling: bool = setting(True, "state value and advantages in streams of their own")
    double: bool = setting(True, "the online network chooses the next action, the target network values it")
    n_step: int = setting(3, "steps of a return before it bootstraps", ge=1, unit="steps")
    discount: float = setting(0.99, "discount of future rewards", ge=0, le=1)
    huber_delta: float | None = setting(1.0, "where the loss becomes linear; null: squared everywhere")
    memory_capacity: int = setting(100_000, "transitions kept", ge=1, unit="transitions")
    memory_place: Literal["host", "graph"] = setting(
        "host", "where transitions are kept: host (NumPy, float64 sum tree) or graph (on the device, float32)"
    )
    prioritized: bool = setting(True, "draw transitions by their TD error")
    priority_alpha: float = setting(0.6, "how much priorities matter; 0: evenly", ge=0)
    priority_beta: float | dict[str, Any] = setting(
        0.4, "strength of the importance weights, or a schedule over inserted transitions"
    )
    batch_size: int = setting(64, "transitions in an update", ge=1, unit="transitions")
    learning_starts: int = setting(1_000, "environment steps before the first update", ge=1, unit="environment steps")
    samples_per_step: float = setting(
        16.0, "transitions trained on for each environment step", gt=0, unit="transitions per environment step"
    )
    target_update_interval: int = setting(
        500, "distance of two copies to the target network", ge=1, unit="environment steps"
    )
    epsilon: float | dict[str, Any] = setting(
        {"type": "linear", "start": 1.0, "end": 0.05, "steps": 10_000},
        "share of random actions, or a schedule over environment steps",
    )
    optimizer: dict[str, Any] = setting({"type": "adam"}, "optimizer spec, learning rate apart")
    lr: float | dict[str, Any] = setting(1e-3, "learning rate, or a schedule over optimizer steps")
    max_grad_norm: float | None = setting(10.0, "global norm that gradients are clipped to; null: not clipped")
    reduce_components: str = setting("loss", "how several action components are reduced: loss or td")
    prefetch: int = setting(
        0,
        "batches drawn and copied to the device ahead of the update (host memory only); each sees the memory, and sets "
        "priorities, as many updates late",
        ge=0,
        unit="batches",
    )


#: Memories by place: without and with priorities.
MEMORIES: dict[str, tuple[Callable[..., Component], Callable[..., Component]]] = {
    "host": (ReplayMemory, PrioritizedReplay),
    "graph": (GraphReplay, GraphPrioritizedReplay),
}


class DQNGraph(Component):
    """The component graph of DQN.

    Args:
        policy: The Q network.
        memory: Replay memory.
        loss: The DQN loss.
        optimizer: Moves the Q network.
        exploration: Epsilon-greedy choice.
    """

    def __init__(
        self,
        policy: Component,
        memory: Component,
        loss: DQNLoss,
        optimizer: Component,
        exploration: EpsilonGreedy,
        scope: str = "dqn",
    ) -> None:
        super().__init__(scope)
        self.policy, self.memory, self.loss, self.optimizer = policy, memory, loss, optimizer
        self.exploration = exploration
        self.target_policy = policy.copy(scope="target-policy", trainable=False)

    @api
    def act(self, states: Any, epsilon: Any) -> Any:
        """Epsilon-greedy actions for observations (B, ...)."""
        return self.exploration.select(self.policy.q_values(states), epsilon)

    @api
    def act_greedily(self, states: Any) -> Any:
        """Actions of the largest Q value."""
        return self.policy.greedy(states)

    @api
    def q_values(self, states: Any) -> Any:
        """Q values (B, ..., actions)."""
        return self.policy.q_values(states)

    @api
    def insert(self, records: Any) -> None:
        """Stores transitions."""
        self.memory.insert(records)

    @api(static=("batch_size",))
    def update(self, batch_size: int) -> Any:
        """Learns from transitions of the memory, and gives them their new priorities."""
        records, indices, weights = self.memory.sample(batch_size)
        loss, td_errors = self._learn(records, weights)
        self.memory.update_priorities(indices, td_errors)
        return loss

    @api
    def update_from(self, records: Any) -> Any:
        """Learns from transitions that are passed in."""
        loss, _ = self._learn(records, None)
        return loss

    @api
    def gradients(self, records: Any) -> Any:
        """Gradients of the loss on transitions, by variable path."""
        loss, _ = self._loss(records, None)
        return graph.gradients(loss, self.policy.variables())

    @api
    def apply(self, gradients: Any) -> None:
        """One optimizer step with given gradients, by variable path."""
        self.optimizer.apply(gradients, self.policy.variables())

    @api
    def sync_target(self) -> None:
        """Copies the Q network to the target network."""
        self.target_policy.sync(self.policy)

    def _learn(self, records: Any, weights: Any) -> Any:
        loss, td_errors = self._loss(records, weights)
        self.optimizer.step(loss, self.policy.variables())
        return loss, td_errors

    def _loss(self, records: Any, weights: Any) -> Any:
        return self.loss.td_loss(
            self.policy.q_values(records["states"]),
            records["actions"],
            records["rewards"],
            records["terminated"],
            self.target_policy.q_values(records["next_states"]),
            graph.stop_gradient(self.policy.q_values(records["next_states"])) if self.loss.double else None,
            weights,
            records["discounts"],
        )


class PrefetchingDQNGraph(DQNGraph):
    """DQN that draws and learns in two calls, so that batches can be under way between them."""

    @api(static=("batch_size",))
    def draw_batch(self, batch_size: int) -> Any:
        """Transitions of the memory, where they lie, and their importance weights."""
        return self.memory.sample(batch_size)

    @api
    def update_drawn(self, records: Any, indices: Any, weights: Any) -> Any:
        """Learns from transitions that were drawn before, and gives them their new priorities."""
        loss, td_errors = self._learn(records, weights)
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


class DQN(Agent):
    """DQN for discrete, multi-discrete and multi-binary action spaces.

    Args:
        state_space: Space of one observation.
        action_space: Space of one action.
        config: `DQNConfig` or its data.
        backend: As in `Agent`.
        seed: As in `Agent`.
    """

    name: ClassVar[str] = "dqn"
    config_class = DQNConfig
    config: DQNConfig
    acting_methods: ClassVar[tuple[str, ...]] = ("act", "act_greedily", "q_values")

    def __init__(
        self,
        state_space: Space,
        action_space: Space,
        config: DQNConfig | Mapping[str, Any] | None = None,
        *,
        backend: str = "jax",
        seed: int = 0,
    ) -> None:
        super().__init__(state_space, action_space, config, backend=backend, seed=seed)
        if self.config.learning_starts > self.config.memory_capacity:
            raise ConfigError(
                "learning would never start",
                where="learning_starts",
                received=f"{self.config.learning_starts} with room for {self.config.memory_capacity} transitions",
                fix="lower learning_starts, or raise memory_capacity",
            )
        if self.config.prefetch and self.config.memory_place != "host":
            raise ConfigError(
                "a memory in the graph has nothing to prefetch",
                where="prefetch",
                received=f"{self.config.prefetch} with memory_place={self.config.memory_place!r}",
                fix="leave prefetch out, or keep the memory on the host",
            )
        if not _has_q_values(self.action_space):
            raise ConfigError(
                "DQN needs one discrete action space, with the same number of choices in each component",
                where="action_space",
                received=repr(self.action_space),
                fix="use PPO, which takes any action space",
            )
        self._epsilon = make_schedule(self.config.epsilon)
        self._accumulators: dict[Any, NStepAccumulator] = {}
        self._steps = StepAssembler()
        self.inserted = 0
        self._syncs = 0

    def make_root(self) -> DQNGraph:
        return (PrefetchingDQNGraph if self.config.prefetch else DQNGraph)(**self.graph_arguments())

    def graph_arguments(self) -> dict[str, Any]:
        """Arguments of the root component."""
        config = self.config
        policy = (DuelingPolicy if config.dueling else QPolicy)(
            network=config.network,
            image_network=config.image_network or None,
            action_space=self.action_space,
            state_space=self.state_space,
        )
        even, prioritized = MEMORIES[config.memory_place]
        memory: Component
        if config.prioritized:
            memory = prioritized(config.memory_capacity, config.priority_alpha, config.priority_beta)
        else:
            memory = even(config.memory_capacity)
        return {
            "policy": policy,
            "memory": memory,
            "loss": DQNLoss(
                discount=config.discount,
                n_step=config.n_step,
                double=config.double,
                huber_delta=config.huber_delta,
                reduce_components=config.reduce_components,
            ),
            "optimizer": Component.from_spec(
                {"max_grad_norm": config.max_grad_norm, **config.optimizer, "learning_rate": config.lr}
            ),
            "exploration": EpsilonGreedy(),
        }

    def record_space(self) -> Space:
        """Space of one transition over up to `n_step` steps.

        `rewards` is their discounted sum, `discounts` is discount^(steps used).
        """
        return Dict(
            states=self.state_space,
            actions=self.action_space,
            rewards=FloatBox(),
            terminated=BoolBox(),
            discounts=FloatBox(),
            next_states=self.state_space,
        )

    @property
    def static_arguments(self) -> dict[str, dict[str, Any]]:
        size = {"batch_size": self.config.batch_size}
        return {"update": size, "draw_batch": size} if self.config.prefetch else {"update": size}

    def input_spaces(self) -> dict[str, InputSpace]:
        prefetch = self.config.prefetch > 0
        return {
            "states": self.state_space.with_batch_rank(),
            "epsilon": FloatBox(add_batch_rank=True),
            "records": self.record_space().with_batch_rank(),
            "gradients": lambda root: root.policy.variables(),
            **({"indices": IntBox(add_batch_rank=True), "weights": FloatBox(add_batch_rank=True)} if prefetch else {}),
        }

    def make_accumulator(self, num_envs: int) -> NStepAccumulator:
        """What turns steps of environments into transitions over several steps."""
        return NStepAccumulator(self.config.n_step, self.config.discount, num_envs)

    # -- acting --------------------------------------------------------------------------------------------------

    @property
    def epsilon(self) -> float:
        """The present share of random actions."""
        return float(self._epsilon(self.env_steps))

    def act(self, states: Any, explore: bool = True) -> Any:
        """Actions (B, ...) for a batch of observations."""
        if not explore:
            return self.actor.act_greedily(states)
        rows = _rows(states)
        return self.actor.act(states, np.full(rows, self.epsilon, np.float32))

    def get_actions(
        self, states: Any, env_ids: Sequence[Any] | None = None, explore: bool = True, preprocess: bool = True
    ) -> Any:
        if is_single(self.state_space, states):
            return first_row(self.env_actions(self.act(add_axis(states), explore)))
        return self.env_actions(self.act(states, explore))

    def env_actions(self, actions: Any) -> Any:
        """Actions as the environment takes them: booleans where it has booleans."""
        return actions.astype(np.bool_) if isinstance(self.action_space, BoolBox) else actions

    def observe(
        self,
        state: Any,
        action: Any,
        reward: Any,
        terminated: Any,
        truncated: Any,
        next_state: Any = None,
        env_id: Any = 0,
    ) -> None:
        state, action, reward, next_state = self._fit_step(state, action, reward, next_state, env_id)
        for step in self._steps.observe(env_id, state, action, reward, terminated, truncated, next_state):
            if env_id not in self._accumulators:
                self._accumulators[env_id] = self.make_accumulator(1)
            rows = self._accumulators[env_id].add(*(add_axis(step[key]) for key in STEP_KEYS))
            if _rows(rows["rewards"]):
                self.insert(rows)
        self.count_steps(1)

    # -- learning ------------------------------------------------------------------------------------------------

    def insert(self, records: Any) -> None:
        """Stores transitions, dict of arrays (N, ...) as `record_space` says."""
        self.executor.insert(records)
        self.inserted += _rows(records["rewards"])

    def ready(self) -> bool:
        """Whether the memory holds enough for an update without a batch."""
        return self.inserted > 0 and self.env_steps >= self.config.learning_starts

    def draw(self) -> tuple[Any, np.ndarray, np.ndarray]:
        """Draws a batch for a later update, with the setting `prefetch`: records, indices and importance weights.

        Raises:
            ExecutionError: The memory holds too little.
        """
        self._require_ready()
        records, indices, weights = self.executor.draw_batch(batch_size=self.config.batch_size)
        return records, indices, weights

    def stage(self, drawn: tuple[Any, Any, Any]) -> DrawnBatch:
        """Starts to copy what `draw` gave to the device."""
        return DrawnBatch(self.executor.stage("update_drawn", *drawn), self.config.batch_size)

    def update(self, batch: Batch | DrawnBatch | None = None) -> Metrics:
        """Learns from the memory, or from a batch of transitions; copies to the target network when it is time.

        Args:
            batch: Dict of arrays (N, ...) as `record_space` says, or what `stage` gave; None draws from the memory.

        Raises:
            ExecutionError: Without a batch, when the memory holds too little.
        """
        if isinstance(batch, DrawnBatch):
            loss, samples = self.executor.update_drawn(*batch.arguments), batch.num_steps
        elif batch is None:
            self._require_ready()
            loss = self.executor.update(batch_size=self.config.batch_size)
            samples = self.config.batch_size
        else:
            samples = _rows(batch["rewards"])
            if not samples:
                raise ExecutionError("a batch without transitions", where="dqn.update", fix="pass at least one")
            loss = self.executor.update_from(batch)
        due = self.env_steps // self.config.target_update_interval
        if due > self._syncs:
            self._syncs = due
            self.executor.sync_target()
        self._copy_to_actor()
        self._checked({"loss": float(loss)})
        return {"loss": float(loss), "epsilon": self.epsilon, "trained_samples": samples, "gradient_steps": 1}

    def _require_ready(self) -> None:
        if not self.ready():
            raise ExecutionError(
                "there is not enough to learn from yet",
                where="dqn.update",
                received=f"{self.env_steps} environment steps, {self.inserted} transitions",
                fix=f"observe {self.config.learning_starts} steps first (learning_starts), or ask agent.ready()",
            )

    def postprocess(self, batch: Batch) -> Batch:
        return batch

    def compute_gradients(self, batch: Batch) -> dict[str, np.ndarray]:
        gradients: dict[str, np.ndarray] = self.executor.gradients(batch)
        return gradients

    def apply_gradients(self, gradients: Mapping[str, np.ndarray]) -> None:
        self.executor.apply(dict(gradients))
        self._copy_to_actor()

    def counters(self) -> dict[str, int]:
        return {**super().counters(), "inserted": self.inserted, "syncs": self._syncs}

    def load_counters(self, counters: Mapping[str, int]) -> None:
        super().load_counters(counters)
        self.inserted, self._syncs = int(counters["inserted"]), int(counters["syncs"])


STEP_KEYS = ("states", "actions", "rewards", "terminated", "truncated", "next_states")


def _has_q_values(space: Space) -> bool:
    """Whether every component of an action space has the same finite number of choices."""
    return isinstance(space, BoolBox) or (isinstance(space, IntBox) and isinstance(space.num_categories, int))


def _rows(structure: Any) -> int:
    """Leading size of a nested batch."""
    while isinstance(structure, dict | tuple | list):
        structure = next(iter(structure.values() if isinstance(structure, dict) else structure))
    return int(structure.shape[0])
