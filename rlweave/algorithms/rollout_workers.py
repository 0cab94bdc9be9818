"""Workers that act in vector environments and hand batches to a plan."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from rlweave.agents.actor_critic import ActorCriticAgent, with_initial_state
from rlweave.agents.agent import Agent
from rlweave.agents.elements import stack
from rlweave.agents.replay_agent import ReplayAgent
from rlweave.algorithms.worker import Worker, load_own_agent_state, own_agent_state
from rlweave.components.memories.trajectory_columns import TrajectoryColumns
from rlweave.envs import StepResult, VectorEnv
from rlweave.envs.seeding import derived_seed
from rlweave.flow import Episode, SampleBatch

Transition = dict[str, Any]
#: Makes an item; a generator that pauses while environments step.
Sampling = Generator[None, None, SampleBatch]


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

    def start(self, seed: int | None = None) -> None:
        if seed is not None and not self.shares_weights:
            self.agent.reseed(seed)
        self.begin_episodes(seed)

    def begin_episodes(self, seed: int | None = None) -> None:
        self._observations = self.env.reset(seed)
        self._recurrent_state = self.agent.initial_state(self.env.num_envs)
        self._episode_start = np.ones(self.env.num_envs, np.bool_)

    def _agent_state(self, weights: bool) -> dict[str, Any]:
        return own_agent_state(self.agent, weights)

    def _load_agent_state(self, state: Mapping[str, Any]) -> None:
        load_own_agent_state(self.agent, state)

    def _acting_state(self) -> dict[str, Any]:
        return {"recurrent_state": self._recurrent_state, "episode_start": self._episode_start}

    def _load_acting_state(self, state: Mapping[str, Any]) -> None:
        self._observations = self.env.observations
        self._recurrent_state, self._episode_start = state["recurrent_state"], state["episode_start"]

    def observations(self) -> Any:
        """The observations to act on next."""
        if self._observations is None:
            self.start()
        return self._observations

    def act(self, observations: Any, recurrent_state: Any, episode_start: Any) -> tuple[Any, dict[str, Any], Any]:
        """One step of acting, see `Agent.act`."""
        return self.agent.act(observations, recurrent_state, episode_start)

    def _step(self) -> Generator[None, None, tuple[Transition, np.ndarray]]:
        """One step of every environment: its row, (B, ...) by name, and which rows are transitions, bool (B,)."""
        observations = self.observations()
        actions, extra, self._recurrent_state = self.act(observations, self._recurrent_state, self._episode_start)
        self.env.begin_step(self.agent.env_actions(actions))
        yield
        result = self._finish_step()
        row = {
            "observations": observations,
            "actions": actions,
            **extra,
            "rewards": result.rewards,
            "terminated": result.terminated,
            "truncated": result.truncated,
            "next_observations": result.next_observations,
        }
        return row, result.valid

    def _finish_step(self) -> StepResult:
        result = self.env.finish_step()
        if result.episodes:
            self._episodes += [Episode(e.episode_return, e.length, info=e.info) for e in result.episodes]
        self._observations, self._episode_start = result.observations, result.episode_start
        return result

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
    def _sampling(self) -> Sampling:
        """Makes the next item of its own half."""

    def sample(self) -> SampleBatch:
        """The next item: each half's, side by side."""
        items = _by_turns([half._sampling() for half in self.halves])
        return items[0] if len(items) == 1 else self._joined(items)

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


def _by_turns(samplings: Sequence[Sampling]) -> list[SampleBatch]:
    """The items of several generators that take turns."""
    items: dict[int, SampleBatch] = {}
    while len(items) < len(samplings):
        for index, sampling in enumerate(samplings):
            if index not in items:
                try:
                    next(sampling)
                except StopIteration as end:
                    items[index] = end.value
    return [items[index] for index in range(len(samplings))]


class TrajectoryWorker(AlternatingWorker):
    """Collects rollouts (T, B, ...) on policy.

    Rows that are no transitions (reset rows of foreign vector environments) are left out; see `TrajectoryColumns`.

    Args:
        agent: The agent that acts.
        env: The environments.
        steps: Length T of a rollout.
    """

    def __init__(self, agent: ActorCriticAgent, env: VectorEnv, steps: int) -> None:
        super().__init__(agent, env)
        self.agent: ActorCriticAgent = agent
        self.steps = steps
        self._columns = TrajectoryColumns(steps, env.num_envs)

    def begin_episodes(self, seed: int | None = None) -> None:
        super().begin_episodes(seed)
        self._columns.clear()

    def _acting_state(self) -> dict[str, Any]:
        return {**super()._acting_state(), "columns": self._columns.state_dict()}

    def _load_acting_state(self, state: Mapping[str, Any]) -> None:
        super()._load_acting_state(state)
        self._columns.load_state_dict(state["columns"])

    def _sampling(self) -> Sampling:
        """A rollout of T steps of every environment."""
        while True:
            row, valid = yield from self._step()
            self._count(valid)
            self._columns.add(row, valid)
            rollout = self._columns.take()
            if rollout is not None:
                return self._batch(rollout)

    def alternate_with(self, other: Self) -> None:
        super().alternate_with(other)
        other._columns.lie_beside(self._columns)

    def _joined(self, items: Sequence[SampleBatch]) -> SampleBatch:
        rollout = self._columns.take_both()
        return super()._joined(items) if rollout is None else self._batch(rollout)

    def _batch(self, rollout: Any) -> SampleBatch:
        timeless = ("initial_state",) if self.agent.recurrent else ()
        return SampleBatch(with_initial_state(rollout), "trajectories", timeless)


def trajectory_worker(config: Any, agent: ActorCriticAgent, env: VectorEnv) -> TrajectoryWorker:
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

    def begin_episodes(self, seed: int | None = None) -> None:
        super().begin_episodes(seed)
        self._accumulator = self._make_accumulator()

    def _acting_state(self) -> dict[str, Any]:
        return {**super()._acting_state(), "steps": self._accumulator.state_dict()}

    def _load_acting_state(self, state: Mapping[str, Any]) -> None:
        super()._load_acting_state(state)
        self._accumulator = self._make_accumulator()
        self._accumulator.load_state_dict(state["steps"])

    def _sampling(self) -> Sampling:
        """The transitions completed in some vector steps."""
        rows: list[dict[str, Any]] = []
        env_steps = 0
        wanted = math.inf if self._until_update is None else self._until_update()
        while not rows or (len(rows) < self.steps and env_steps < wanted):
            row, valid = yield from self._step()
            env_steps += self._count(valid)
            rows.append({**row, "valid": valid})
        columns = stack(rows)
        if columns["valid"].all():
            del columns["valid"]
        complete = self._accumulator.extend(**columns)
        return SampleBatch(complete if len(complete["rewards"]) else {}, "rows", env_steps=env_steps)


def acting_state(agent: Agent) -> dict[str, Any]:
    """The state by which a worker's own agent acts as this one: weights, normalizer statistics, and the step count."""
    return {"weights": agent.get_weights(), "env_steps": agent.env_steps}


def build_acting(agent: Agent) -> None:
    """Builds only the acting part of an agent: no optimizer, no memory, and on NumPy no deep-learning framework."""
    agent.build({"methods": agent.worker_methods or agent.acting_methods, "static": {}})
