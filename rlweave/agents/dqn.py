"""Deep Q-learning (Mnih et al. 2015, Nature 518).

With double Q-learning (arXiv:1509.06461), dueling streams (1511.06581), prioritized replay (1511.05952) and n-step
returns.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from rlweave.agents.agent import Agent, Batch, Metrics
from rlweave.agents.dqn_config import DQNConfig
from rlweave.agents.dqn_graph import DQNGraph, PrefetchingDQNGraph
from rlweave.agents.recurrent_dqn_graph import PrefetchingRecurrentDQNGraph, RecurrentDQNGraph
from rlweave.agents.sequences import SequenceAccumulator, sequence_space
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
    SequenceDQNLoss,
)
from rlweave.components.schedules import make_schedule
from rlweave.errors import ConfigError, ExecutionError
from rlweave.graph import Component
from rlweave.graph.building import InputSpace
from rlweave.spaces import BoolBox, Dict, FloatBox, IntBox, Space
from rlweave.tree import tree_map

#: Memories by place: without and with priorities.
MEMORIES: dict[str, tuple[Callable[..., Component], Callable[..., Component]]] = {
    "host": (ReplayMemory, PrioritizedReplay),
    "graph": (GraphReplay, GraphPrioritizedReplay),
}


class DrawnBatch(NamedTuple):
    """Transitions that were drawn, on their way to an update.

    Attributes:
        arguments: Of `update_drawn`.
        num_steps: How many transitions.
    """

    arguments: tuple[Any, ...]
    num_steps: int


class DQN(Agent):
    """DQN for all actions that can be counted: discrete, multi-discrete, multi-binary, and nests of them.

    Of several components each has Q-values of its own, see `DQNLoss` (branching: Tavakoli et al. 2018).

    Args:
        state_space: Space of one observation.
        action_space: Space of one action.
        config: `DQNConfig` or its data.
        backend: As in `Agent`.
        seed: As in `Agent`.
    """

    memory_scope = "memory"
    name: ClassVar[str] = "dqn"
    config_class = DQNConfig
    config: DQNConfig
    discrete_only: ClassVar[bool] = True
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
        if self.recurrent:
            self._check_sequences()
        if self.config.prefetch and self.config.memory_place != "host":
            raise ConfigError(
                "a memory in the graph has nothing to prefetch",
                where="prefetch",
                received=f"{self.config.prefetch} with memory_place={self.config.memory_place!r}",
                fix="leave prefetch out, or keep the memory on the host",
            )
        self._epsilon = make_schedule(self.config.epsilon)
        self._accumulators: dict[Any, NStepAccumulator | SequenceAccumulator] = {}
        self._acted: dict[Any, dict[str, Any]] = {}
        self._steps = StepAssembler()
        self.inserted = 0
        #: Environment steps that were made when the memory was empty last.
        self.memory_began_at = 0
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

    def make_root(self) -> DQNGraph:
        arguments = self.graph_arguments()
        if self.recurrent:
            arguments["burn_in"] = self.config.burn_in
            return (PrefetchingRecurrentDQNGraph if self.config.prefetch else RecurrentDQNGraph)(**arguments)
        return (PrefetchingDQNGraph if self.config.prefetch else DQNGraph)(**arguments)

    def graph_arguments(self) -> dict[str, Any]:
        """Arguments of the root component."""
        config = self.config
        even, prioritized = MEMORIES[config.memory_place]
        memory: Component
        # a sequence brings so many new transitions
        capacity = max(config.memory_capacity // self._new_steps, 1) if self.recurrent else config.memory_capacity
        if config.prioritized:
            memory = prioritized(capacity, config.priority_alpha, config.priority_beta)
        else:
            memory = even(capacity)
        return {"memory": memory, **self.learning_arguments()}

    def learning_arguments(self) -> dict[str, Any]:
        """Arguments of the root component, the memory apart."""
        config = self.config
        policy = (DuelingPolicy if config.dueling else QPolicy)(
            network=config.network,
            image_network=config.image_network or None,
            action_space=self.action_space,
            state_space=self.state_space,
            mask_leaf=config.mask_leaf,
        )
        return {
            "policy": policy,
            "loss": self._make_loss(),
            "optimizer": Component.from_spec(
                {"max_grad_norm": config.max_grad_norm, **config.optimizer, "learning_rate": config.lr}
            ),
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
        """Space of one transition over up to `n_step` steps, or of one sequence for recurrent networks.

        `actions` are the agent's own (`own_action_space`). Of a transition `rewards` is their discounted sum,
        `discounts` is discount^(steps used). For a sequence see
        `rlweave.agents.sequences.sequence_space`.
        """
        if self.recurrent:
            length = self.config.burn_in + self.config.unroll
            return sequence_space(self.state_space, self.own_action_space, self.recurrent_space, length)
        return Dict(
            states=self.state_space,
            actions=self.own_action_space,
            rewards=FloatBox(),
            terminated=BoolBox(),
            discounts=FloatBox(),
            next_states=self.state_space,
        )

    @property
    def static_arguments(self) -> dict[str, dict[str, Any]]:
        size = {"batch_size": self._batch_rows}
        return {"update": size, "draw_batch": size} if self.config.prefetch else {"update": size}

    @property
    def _batch_rows(self) -> int:
        """Records in a batch: transitions, or sequences of `unroll` transitions."""
        return self.config.batch_size // self.config.unroll if self.recurrent else self.config.batch_size

    @property
    def _new_steps(self) -> int:
        """Transitions by which a sequence goes on from the one before."""
        return self.config.unroll - self.config.overlap

    def input_spaces(self) -> dict[str, InputSpace]:
        spaces: dict[str, InputSpace] = {
            "states": self.state_space.with_batch_rank(),
            "epsilon": FloatBox(add_batch_rank=True),
            "records": self.record_space().with_batch_rank(),
            "gradients": lambda root: root.policy.variables(),
        }
        if self.config.prefetch:
            spaces |= {"indices": IntBox(add_batch_rank=True), "weights": FloatBox(add_batch_rank=True)}
        if self.recurrent:
            spaces["recurrent_state"] = self.recurrent_space.with_batch_rank()
            spaces["episode_start"] = BoolBox(add_batch_rank=True)
        return spaces

    def make_accumulator(self, num_envs: int) -> NStepAccumulator | SequenceAccumulator:
        """What turns steps of environments into records of the memory: transitions over several steps, or sequences."""
        if self.recurrent:
            return SequenceAccumulator(self.config.burn_in, self.config.unroll, self.config.overlap, num_envs)
        return NStepAccumulator(self.config.n_step, self.config.discount, num_envs)

    # -- acting --------------------------------------------------------------------------------------------------

    @property
    def epsilon(self) -> float:
        """The present share of random actions."""
        return float(self._epsilon(self.env_steps))

    def act(self, states: Any, explore: bool = True) -> Any:
        """Actions (B, ...) for a batch of observations."""
        self.check_masks(states)
        if not explore:
            return self.actor.act_greedily(states)
        rows = _rows(states)
        return self.actor.act(states, np.full(rows, self.epsilon, np.float32))

    def act_recurrently(
        self, states: Any, recurrent_state: Any, episode_start: Any, explore: bool = True, preprocess: bool = True
    ) -> tuple[Any, dict[str, Any], Any]:
        self.check_masks(states)
        if not explore:
            actions, after = self.actor.act_greedily(states, recurrent_state, episode_start)
        else:
            epsilon = np.full(len(episode_start), self.epsilon, np.float32)
            actions, after = self.actor.act(states, epsilon, recurrent_state, episode_start)
        return actions, {}, after

    def get_actions(
        self, states: Any, env_ids: Sequence[Any] | None = None, explore: bool = True, preprocess: bool = True
    ) -> Any:
        single = is_single(self.state_space, states)
        batch = add_axis(states) if single else states
        if self.recurrent:
            names = list(range(_rows(batch))) if env_ids is None else list(env_ids)
            self._check_names(names, _rows(batch))
            actions, extra = self._act_by_name(batch, names, explore, preprocess)
            if explore:
                for row, name in enumerate(names):
                    self._acted[name] = tree_map(operator.itemgetter(row), extra)
        else:
            actions = self.act(batch, explore)
        actions = self.env_actions(actions)
        return first_row(actions) if single else actions

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
        action, extra = self.own_actions(action), self._recurrent_fields(env_id)
        steps = self._steps.observe(env_id, state, action, reward, terminated, truncated, next_state, **extra)
        self._acted.pop(env_id, None)  # only now: a step that is refused may be observed again
        for step in steps:
            if env_id not in self._accumulators:
                self._accumulators[env_id] = self.make_accumulator(1)
            more = {key: add_axis(step[key]) for key in extra}
            rows = self._accumulators[env_id].add(*(add_axis(step[key]) for key in STEP_KEYS), **more)
            if _rows(rows["rewards"]):
                self.insert(rows)
        if terminated or truncated:
            self.begin_episodes([env_id])
        self.count_steps(1)

    def _recurrent_fields(self, env_id: Any) -> dict[str, Any]:
        """The recurrent state before the step that is observed, and whether an episode began with it."""
        if not self.recurrent:
            return {}
        if env_id not in self._acted:
            raise ExecutionError(
                "a step was observed whose action this agent did not choose",
                where=f"environment {env_id!r}",
                fix="call get_actions(states, env_ids=[...]) before observe(..., env_id=...): recurrent networks "
                "store the state that they acted from",
            )
        return self._acted[env_id]

    # -- learning ------------------------------------------------------------------------------------------------

    def insert(self, records: Any) -> None:
        """Stores transitions, dict of arrays (N, ...) as `record_space` says."""
        self.executor.insert(records)
        self.inserted += _rows(records["rewards"])

    def ready(self) -> bool:
        """Whether the memory holds enough for an update without a batch."""
        return self.inserted > 0 and self.env_steps - self.memory_began_at >= self.config.learning_starts

    def refill_memory(self) -> None:
        self.inserted, self.memory_began_at = 0, self.env_steps

    def draw(self) -> tuple[Any, np.ndarray, np.ndarray]:
        """Draws a batch for a later update, with the setting `prefetch`: records, indices and importance weights.

        Raises:
            ExecutionError: The memory holds too little.
        """
        self._require_ready()
        records, indices, weights = self.executor.draw_batch(batch_size=self._batch_rows)
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
            loss, metrics = self.executor.update_drawn(*batch.arguments, with_metrics=True)
            samples = batch.num_steps
        elif batch is None:
            self._require_ready()
            loss, metrics = self.executor.update(batch_size=self._batch_rows, with_metrics=True)
            samples = self.config.batch_size
        else:
            samples = _rows(batch["rewards"]) * (self.config.unroll if self.recurrent else 1)
            if not samples:
                raise ExecutionError(
                    "a batch without transitions", where=f"{self.name}.update", fix="pass at least one"
                )
            loss, metrics = self.executor.update_from(batch, with_metrics=True)
        self._sync_target_when_due()
        self._copy_to_actor()
        metrics = self._checked({"loss": float(loss), **metrics})
        return {**metrics, "epsilon": self.epsilon, "trained_samples": samples, "gradient_steps": 1}

    def _sync_target_when_due(self) -> None:
        due = self.env_steps // self.config.target_update_interval
        if due > self._syncs:
            self._syncs = due
            self.executor.sync_target()

    def _require_ready(self) -> None:
        if not self.ready():
            raise ExecutionError(
                "there is not enough to learn from yet",
                where=f"{self.name}.update",
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
        self._sync_target_when_due()
        self._copy_to_actor()

    def _after_import(self) -> None:
        self.executor.sync_target()
        super()._after_import()

    def counters(self) -> dict[str, int]:
        return {
            **super().counters(),
            "inserted": self.inserted,
            "syncs": self._syncs,
            "memory_began_at": self.memory_began_at,
        }

    def load_counters(self, counters: Mapping[str, int]) -> None:
        super().load_counters(counters)
        self.inserted, self._syncs = int(counters["inserted"]), int(counters["syncs"])
        self.memory_began_at = int(counters["memory_began_at"])


STEP_KEYS = ("states", "actions", "rewards", "terminated", "truncated", "next_states")


def _rows(structure: Any) -> int:
    """Leading size of a nested batch."""
    while isinstance(structure, dict | tuple | list):
        structure = next(iter(structure.values() if isinstance(structure, dict) else structure))
    return int(structure.shape[0])
