"""Workers that act in vector environments and hand batches to a plan."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from rlweave.agents.agent import Agent
from rlweave.agents.elements import stack
from rlweave.agents.replay_agent import ReplayAgent
from rlweave.agents.rollout_agent import RolloutAgent, with_initial_state
from rlweave.algorithms.worker import Worker, load_own_agent_state, own_agent_state
from rlweave.components.memories.trajectory_columns import TrajectoryColumns
from rlweave.envs import StepResult, VectorEnv
from rlweave.envs.seeding import derived_seed
from rlweave.flow import Episode, SampleBatch
from rlweave.tree import tree_map

Transition = dict[str, Any]


class EnvWorker(Worker):
    """One agent in a vector environment.

    Args:
        agent: The agent that acts.
        env: The environments.
    """

    #: Whether it computes gradients, so that an agent of its own is on the backend that learns.
    computes_gradients: ClassVar[bool] = False
    env: VectorEnv

    def __init__(self, agent: Agent, env: VectorEnv) -> None:
        super().__init__(env)
        self.agent = agent
        self._observations: Any = None
        self._episode_start: Any = None
        self._recurrent_state: Any = ()
        #: What was acted on, chosen and stored of the step that the environments take.
        self._step: Transition = {}

    def start(self, seed: int | None = None) -> None:
        if seed is not None and not self.shares_weights:
            self.agent.reseed(seed)
        self.begin_episodes(seed)

    def begin_episodes(self, seed: int | None = None) -> None:
        self.begin_with(self.env.reset(seed))

    def begin_with(self, observations: Any) -> None:
        """Begins new episodes everywhere, with these observations (B, ...); drops what is not complete."""
        self._observations, self._step = observations, {}
        self._recurrent_state = self.agent.initial_state(self.env.num_envs)
        self._episode_start = np.ones(self.env.num_envs, np.bool_)

    def _agent_state(self, weights: bool) -> dict[str, Any]:
        return own_agent_state(self.agent, weights)

    def _load_agent_state(self, state: Mapping[str, Any]) -> None:
        load_own_agent_state(self.agent, state)

    def _acting_state(self) -> dict[str, Any]:
        return {
            "recurrent_state": self._recurrent_state,
            "episode_start": self._episode_start,
            "step": self._step,
        }

    def _load_acting_state(self, state: Mapping[str, Any]) -> None:
        self._observations = self.env.observations
        self._recurrent_state, self._episode_start = state["recurrent_state"], state["episode_start"]
        self._step = state["step"]

    def observations(self) -> Any:
        """The observations to act on next."""
        if self._observations is None:
            self.start()
        return self._observations

    def act(self, observations: Any, recurrent_state: Any, episode_start: Any) -> tuple[Any, dict[str, Any], Any]:
        """One step of acting, see `Agent.act`."""
        return self.agent.act(observations, recurrent_state, episode_start)

    def act_on(self) -> tuple[Any, Any, Any]:
        """What the next step is acted on, as `Agent.act` takes it."""
        return self.observations(), self._recurrent_state, self._episode_start

    def begin_step(self, actions: Any, extra: Mapping[str, Any], recurrent_state: Any) -> None:
        """Notes what `Agent.act` chose for the next step, which the environments are to take."""
        self._step = {"observations": self._observations, "actions": actions, **extra}
        self._recurrent_state = recurrent_state

    def state_of_collecting(self) -> dict[str, Any]:
        """As `state_dict`, of one whose environments are elsewhere."""
        return {"observations": self._observations, **self._acting_state()}

    def load_collecting(self, state: Mapping[str, Any]) -> None:
        """Takes over what `state_of_collecting` gave."""
        self._load_acting_state(state)
        self._observations = state["observations"]

    def _finish_step(self, result: StepResult) -> Transition:
        """The row of a step that the environments have taken, (B, ...) by name."""
        if result.episodes:
            self._episodes += [Episode(e.episode_return, e.length, info=e.info) for e in result.episodes]
        self._observations, self._episode_start = result.observations, result.episode_start
        row, self._step = self._step, {}
        row["rewards"], row["terminated"], row["truncated"] = result.rewards, result.terminated, result.truncated
        row["next_observations"] = result.next_observations
        return row

    def _count(self, valid: np.ndarray) -> int:
        """Counts the transitions of one vector step, and returns how many they are."""
        steps = int(np.count_nonzero(valid))
        self.agent.count_steps(steps * self.workers)
        return steps

    def set_weights(self, weights: Any, version: int) -> None:
        """Takes over what `acting_state` gave; None when the agent's own weights are acted on."""
        if weights is not None:
            self.agent.set_weights(weights["weights"])
            self.agent.env_steps = weights["env_steps"]

    def replacing(self, number: int) -> None:
        """Begins with a seed of its own, as the replacement of `number` failed workers."""
        self.start(derived_seed(self.agent.seed, f"replacement {number}"))


class AlternatingWorker(EnvWorker):
    """Samples from its environments, or by turns from two halves of them (alternating sampling).

    By turns, the environments of one half step while the actions of the other are computed: the halves act one after
    the other, the first one first, and an item has the rows or columns of the first half before those of the second.
    No step is under way between two items.

    Attributes:
        other_half: The worker with the second half, of the same kind and with the same agent; None: there is one half.
    """

    def __init__(self, agent: Agent, env: VectorEnv) -> None:
        super().__init__(agent, env)
        self.other_half: Self | None = None

    @property
    def halves(self) -> Sequence[Self]:
        """The workers that take turns, this one first."""
        return (self,) if self.other_half is None else (self, self.other_half)

    @abc.abstractmethod
    def finish_step(self, result: StepResult) -> SampleBatch | None:
        """Takes in and counts the step that the environments have taken; the item that is complete with it, if any."""

    def _begin(self) -> None:
        """Acts, and lets the environments of its own half begin a step."""
        actions, extra, recurrent_state = self.act(self.observations(), self._recurrent_state, self._episode_start)
        self.begin_step(actions, extra, recurrent_state)
        self.env.begin_step(self.agent.env_actions(actions))

    def sample(self) -> SampleBatch:
        """The next item: each half's, side by side."""
        halves = self.halves
        for half in halves:
            half._begin()
        items: dict[int, SampleBatch] = {}
        while len(items) < len(halves):
            for number, half in enumerate(halves):
                if number in items:
                    continue
                item = half.finish_step(half.env.finish_step())
                if item is None:
                    half._begin()
                else:
                    items[number] = item
        return items[0] if len(items) == 1 else self._joined([items[number] for number in range(len(halves))])

    def _joined(self, items: Sequence[SampleBatch]) -> SampleBatch:
        """The items of both halves as one."""
        return SampleBatch.concat(items)

    def alternate_with(self, other: Self) -> None:
        """Takes turns with a worker that has the second half of the environments."""
        self.other_half = other

    def begin_episodes(self, seed: int | None = None) -> None:
        super().begin_episodes(seed)
        if self.other_half is not None:
            self.other_half.begin_episodes(seed)

    def state_dict(self, environments: bool = True, weights: bool = True) -> dict[str, Any]:
        other = None if self.other_half is None else self.other_half.state_dict(environments, weights)
        return {**super().state_dict(environments, weights), "other_half": other}

    def load_state_dict(self, state: Mapping[str, Any] | None, seed: int) -> str:
        because = super().load_state_dict(state, seed)
        if state is not None and self.other_half is not None:
            self.other_half.load_state_dict(state["other_half"], seed)
        return because

    def close(self) -> None:
        super().close()
        if self.other_half is not None:
            self.other_half.close()

    def episode_stats(self) -> Sequence[Episode]:
        others = () if self.other_half is None else self.other_half.episode_stats()
        return [*super().episode_stats(), *others]


class TrajectoryWorker(AlternatingWorker):
    """Collects rollouts (T, B, ...) on policy.

    Rows that are no transitions (reset rows of foreign vector environments) are left out; see `TrajectoryColumns`.

    Args:
        agent: The agent that acts.
        env: The environments.
        steps: Length T of a rollout.
    """

    def __init__(self, agent: RolloutAgent, env: VectorEnv, steps: int) -> None:
        super().__init__(agent, env)
        self.agent: RolloutAgent = agent
        self.steps = steps
        self._columns = TrajectoryColumns(steps, env.num_envs)

    def begin_with(self, observations: Any) -> None:
        super().begin_with(observations)
        self._columns.clear()

    def _acting_state(self) -> dict[str, Any]:
        return {**super()._acting_state(), "columns": self._columns.state_dict()}

    def _load_acting_state(self, state: Mapping[str, Any]) -> None:
        super()._load_acting_state(state)
        self._columns.load_state_dict(state["columns"])

    def finish_step(self, result: StepResult) -> SampleBatch | None:
        """The rollout of T steps of every environment, if it is complete."""
        row = self._finish_step(result)
        self._count(result.valid)
        self._columns.add(row, result.valid)
        rollout = self._columns.take()
        return None if rollout is None else self._batch(rollout)

    def alternate_with(self, other: Self) -> None:
        super().alternate_with(other)
        other._columns.lie_beside(self._columns)

    def _joined(self, items: Sequence[SampleBatch]) -> SampleBatch:
        rollout = self._columns.take_both()
        return super()._joined(items) if rollout is None else self._batch(rollout)

    def _batch(self, rollout: Any) -> SampleBatch:
        timeless = ("initial_state",) if self.agent.recurrent else ()
        return SampleBatch(with_initial_state(rollout), "trajectories", timeless)


def trajectory_worker(config: Any, agent: RolloutAgent, env: VectorEnv) -> TrajectoryWorker:
    """A worker that collects rollouts of the agent's length."""
    return TrajectoryWorker(agent, env, config.agent.rollout_steps)


class TransitionWorker(AlternatingWorker):
    """Collects n-step transitions off policy.

    Args:
        agent: The agent that acts.
        env: The environments.
        steps: Vector steps in one item, or at most so many.
        make_accumulator: Makes the accumulator of n-step transitions.
        until_update: Says how many environment steps are missing for the next update, where the agent is the one that
            learns: items end there, so that each is what happens between two updates. None: all are equally long.
    """

    def __init__(
        self,
        agent: ReplayAgent,
        env: VectorEnv,
        steps: int,
        make_accumulator: Callable[[], Any],
        until_update: Callable[[], float] | None = None,
    ) -> None:
        super().__init__(agent, env)
        self.agent: ReplayAgent = agent
        self.steps = steps
        self._until_update = until_update
        self._make_accumulator = make_accumulator
        self._accumulator = make_accumulator()
        #: Vector steps of the item under way; its environment steps; and how many of those end it.
        self._rows: list[Transition] = []
        self._env_steps, self._wanted = 0, math.inf

    def begin_with(self, observations: Any) -> None:
        super().begin_with(observations)
        self._accumulator = self._make_accumulator()
        self._rows = []

    def _acting_state(self) -> dict[str, Any]:
        wanted = None if math.isinf(self._wanted) else self._wanted
        item = {"rows": list(self._rows), "env_steps": self._env_steps, "wanted": wanted}
        return {**super()._acting_state(), "steps": self._accumulator.state_dict(), "item": item}

    def _load_acting_state(self, state: Mapping[str, Any]) -> None:
        super()._load_acting_state(state)
        self._accumulator = self._make_accumulator()
        self._accumulator.load_state_dict(state["steps"])
        rows, env_steps, wanted = (state["item"][name] for name in ("rows", "env_steps", "wanted"))
        self._rows, self._env_steps, self._wanted = list(rows), env_steps, math.inf if wanted is None else wanted

    def finish_step(self, result: StepResult) -> SampleBatch | None:
        """The transitions completed in some vector steps, if these are enough."""
        row = self._finish_step(result)
        if not self._rows:
            self._env_steps, self._wanted = 0, math.inf if self._until_update is None else self._until_update()
        self._env_steps += self._count(result.valid)
        row["valid"] = result.valid
        self._rows.append(row)
        if len(self._rows) < self.steps and self._env_steps < self._wanted:
            return None
        rows, self._rows = self._rows, []
        return self._batch(rows, self._env_steps)

    def _batch(self, rows: Sequence[Transition], env_steps: int) -> SampleBatch:
        if env_steps == len(rows) * len(rows[0]["valid"]):  # all are transitions
            for row in rows:
                del row["valid"]
        # a single step gets its axis of time without a copy: the accumulator copies
        columns = stack(rows) if len(rows) > 1 else tree_map(_with_time, rows[0])
        complete = self._accumulator.extend(**columns)
        return SampleBatch(complete if len(complete["rewards"]) else {}, "rows", env_steps=env_steps)


def _with_time(leaf: np.ndarray) -> np.ndarray:
    """(B, ...) as (1, B, ...)."""
    return leaf[None]


def acting_state(agent: Agent) -> dict[str, Any]:
    """The state by which a worker's own agent acts as this one: weights, normalizer statistics, and the step count."""
    return {"weights": agent.get_weights(), "env_steps": agent.env_steps}


def build_acting(agent: Agent) -> None:
    """Builds only the acting part of an agent: no optimizer, no memory, and on NumPy no deep-learning framework."""
    agent.build({"methods": agent.worker_methods or agent.acting_methods, "static": {}})
