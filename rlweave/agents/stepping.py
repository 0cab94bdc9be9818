"""The driver of agents step by step: `get_actions` and `observe`, in environments that have names."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, ClassVar, Protocol

import numpy as np

from rlweave.agents.elements import add_axis, finite, first_row, fitted, flag, is_single, same, stack
from rlweave.errors import ExecutionError
from rlweave.spaces import Space
from rlweave.tree import tree_leaves, tree_map

Names = Sequence[Any]
Step = dict[str, Any]


class Stepped(Protocol):
    """What the driver asks of an agent."""

    name: ClassVar[str]
    observation_space: Space
    action_space: Space
    recurrent: bool
    #: Whether it learns from its own actions only.
    on_policy: ClassVar[bool]
    #: Why it cannot learn from single steps, and what to do instead; None: it can.
    no_single_steps: ClassVar[tuple[str, str] | None]

    @property
    def recurrent_space(self) -> Space:
        """Space of the recurrent state of one environment."""

    def act(
        self,
        observations: Any,
        recurrent_state: Any = (),
        episode_start: Any = None,
        explore: bool = True,
        preprocess: bool = True,
    ) -> tuple[Any, dict[str, Any], Any]:
        """Own actions, what to store of the step, and the state after it."""

    def env_actions(self, actions: Any) -> Any:
        """Actions of the environment for own ones."""

    def own_actions(self, actions: Any) -> Any:
        """Own actions for those of the environment."""

    def collect(self, env_id: Any, step: Step) -> None:
        """Takes in one whole step of an environment."""

    def count_steps(self, steps: int) -> None:
        """Counts environment steps."""


class StepDriver:
    """Acts and observes step by step, in environments that have names.

    It keeps what belongs to each environment between two calls: the recurrent state, the action that was chosen with
    what is stored of it, and a step whose next observation is still to come. Whole steps go to `Stepped.collect`, into
    the same accumulators that workers use.

    Args:
        agent: Acts, and takes whole steps.
    """

    def __init__(self, agent: Stepped) -> None:
        self.agent = agent
        self._recurrent: dict[bool, RecurrentStates] = {}
        #: By environment: the action to learn from, what is stored with it, and the action that was handed out.
        self.acted: dict[Any, tuple[Any, dict[str, Any], Any]] = {}
        self._pending: dict[Any, Step] = {}

    def get_actions(self, observations: Any, env_ids: Names | None, explore: bool, preprocess: bool) -> Any:
        """See `Agent.get_actions`."""
        agent = self.agent
        single = is_single(agent.observation_space, observations)
        batch = add_axis(observations) if single else observations
        rows = rows_of(batch)
        names = range(rows) if env_ids is None else list(env_ids)
        self._check_names(names, rows)
        if self._keeps_state:
            kept = self._states(explore)
            own, extra, after = agent.act(batch, *kept.gather(names), explore, preprocess)
            kept.keep(names, after)
        else:
            own, extra, _ = agent.act(batch, explore=explore, preprocess=preprocess)
        actions = agent.env_actions(own)
        if explore and extra:  # a greedy look is for evaluation, and no step of an environment
            for row, name in enumerate(names):
                self.acted[name] = tree_map(operator.itemgetter(row), (own, extra, actions))
        return first_row(actions) if single else actions

    def observe(
        self,
        observation: Any,
        action: Any,
        reward: Any,
        terminated: Any,
        truncated: Any,
        next_observation: Any,
        env_id: Any,
    ) -> None:
        """See `Agent.observe`."""
        agent, where = self.agent, f"environment {env_id!r}"
        if agent.no_single_steps is not None:
            what, fix = agent.no_single_steps
            raise ExecutionError(what, where=f"{agent.name}.observe", fix=fix)
        chosen: Any
        own, extra, chosen = self._acted_in(env_id)
        observation = fitted(agent.observation_space, observation, f"{where}, observation")
        action = fitted(agent.action_space, action, f"{where}, action", within=True)
        reward, terminated, truncated = finite(reward, where), flag(terminated, where), flag(truncated, where)
        if next_observation is not None:
            next_observation = fitted(agent.observation_space, next_observation, f"{where}, next_observation")
        if not agent.on_policy:
            own = agent.own_actions(action)
        elif not same(action, chosen):
            raise ExecutionError(
                "another action was observed than the one this agent chose",
                where=where,
                received=f"{action}, chosen was {chosen}",
                fix=f"{agent.name} learns from its own actions only; pass the action of the last get_actions",
            )
        step = {"observations": observation, "actions": own, "rewards": reward, **extra}
        step |= {"terminated": terminated, "truncated": truncated}
        for whole in self._whole_steps(env_id, step, next_observation):
            agent.collect(env_id, whole)
        self.acted.pop(env_id, None)  # only now: a step that is refused may be observed again
        if terminated or truncated:
            self.begin_episodes([env_id])
        agent.count_steps(1)

    @cached_property
    def _keeps_state(self) -> bool:
        """Whether acting keeps something of each environment: of a recurrent network, or of noise that drifts."""
        return bool(self.agent.recurrent_space.flatten())

    def begin_episodes(self, env_ids: Iterable[Any] | None = None) -> None:
        """See `Agent.begin_episodes`."""
        for states in self._recurrent.values():
            states.forget(env_ids)
        for env_id in list(self._pending) if env_ids is None else env_ids:
            self._pending.pop(env_id, None)  # its next observation will not come

    def _acted_in(self, env_id: Any) -> tuple[Any, dict[str, Any], Any]:
        """What was remembered of the last action in an environment.

        Raises:
            ExecutionError: Nothing, but the agent stores more of a step than can be observed.
        """
        if env_id in self.acted:
            return self.acted[env_id]
        if self.agent.on_policy or self.agent.recurrent:
            raise ExecutionError(
                "a step was observed whose action this agent did not choose",
                where=f"environment {env_id!r}",
                fix="call get_actions(observations, env_ids=[...]) before observe(..., env_id=...): it remembers what "
                "is stored with the action",
            )
        return None, {}, None

    def _whole_steps(self, env_id: Any, step: Step, next_observation: Any) -> list[Step]:
        """The steps that have their next observation now: the one before where it was left out, and this one.

        Raises:
            ExecutionError: An episode ended without its last observation; then nothing has changed.
        """
        if next_observation is None and (step["terminated"] or step["truncated"]):
            raise ExecutionError(
                "an episode ended without its last observation",
                where=f"environment {env_id!r}",
                fix="pass next_observation where terminated or truncated is set; values bootstrap from it",
            )
        pending = self._pending.pop(env_id, None)
        whole = [] if pending is None else [{**pending, "next_observations": step["observations"]}]
        if next_observation is None:
            self._pending[env_id] = step
            return whole
        return [*whole, {**step, "next_observations": next_observation}]

    def _states(self, explore: bool) -> RecurrentStates:
        """States of acting with exploration, or without: greedy looks disturb no episode."""
        if explore not in self._recurrent:
            self._recurrent[explore] = RecurrentStates(self.agent.recurrent_space)
        return self._recurrent[explore]

    def _check_names(self, names: Names, rows: int) -> None:
        """Refuses names of environments that do not tell the rows of a batch apart.

        Raises:
            ExecutionError: Not one distinct name per row.
        """
        try:
            distinct = len(set(names)) == len(names)
        except TypeError:  # a name that is no key
            distinct = False
        if len(names) != rows or not distinct:
            raise ExecutionError(
                "each row of the observations needs the name of its environment",
                where=f"{self.agent.name}.get_actions",
                received=f"{rows} rows, env_ids={list(names)}",
                fix="pass one distinct name per row, a str or number each",
            )


def greedy_player(agent: Stepped) -> Callable[..., Any]:
    """See `Agent.greedy_player`."""
    state: Any = None

    def play(observations: Any, episode_start: Any, acting: Any = None) -> Any:
        nonlocal state
        if state is None:
            state = agent.recurrent_space.with_batch_rank().zeros(len(episode_start))
        actions, _, after = agent.act(observations, state, episode_start, explore=False)
        state = after if acting is None else rows_from(acting, after, state)
        return agent.env_actions(actions)

    return play


def rows_from(chosen: np.ndarray, first: Any, second: Any) -> Any:
    """The rows of one nested batch (B, ...) where `chosen`, bool (B,), is set, and of another where it is not."""
    return tree_map(
        lambda one, other: np.where(chosen.reshape(-1, *(1 for _ in other.shape[1:])), one, other), first, second
    )


def carried(agent: Stepped, observations: Any, recurrent_state: Any, episode_start: Any) -> dict[str, Any]:
    """What an agent that carries a state acts from, by name: without a state episodes begin, with one alone they go on.

    Args:
        agent: The agent.
        observations: Nested (B, ...).
        recurrent_state: Nested (B, ...); () for none.
        episode_start: Bool (B,), or None.
    """
    if isinstance(recurrent_state, tuple) and not recurrent_state:
        rows = rows_of(observations)
        recurrent_state = agent.recurrent_space.with_batch_rank().zeros(rows)
        episode_start = np.ones(rows, np.bool_)
    elif episode_start is None:
        episode_start = np.zeros(rows_of(observations), np.bool_)
    return {"recurrent_state": recurrent_state, "episode_start": episode_start}


class RecurrentStates:
    """Recurrent states of environments by name. One that is not known starts an episode.

    Args:
        space: Of the state of one environment, without ranks.
    """

    def __init__(self, space: Space) -> None:
        self._zeros, self._none = space.zeros(), space.with_batch_rank().zeros(0)
        self._states: dict[Any, Any] = {}

    def gather(self, names: Names) -> tuple[Any, np.ndarray]:
        """States (B, ...) and episode starts, bool (B,), of named environments."""
        states = stack([self._states.get(name, self._zeros) for name in names]) if names else self._none
        return states, np.array([name not in self._states for name in names], np.bool_)

    def keep(self, names: Names, states: Any) -> None:
        """Takes over the states (B, ...) after a step of named environments."""
        for row, name in enumerate(names):
            self._states[name] = tree_map(operator.itemgetter(row), states)

    def forget(self, names: Iterable[Any] | None = None) -> None:
        """The next step of these environments (None: of all) is the first of an episode."""
        for name in list(self._states) if names is None else names:
            self._states.pop(name, None)


def rows_of(structure: Any) -> int:
    """Leading size of a nested batch; containers in it may be empty."""
    if isinstance(structure, dict | tuple | list):
        structure = tree_leaves(structure)[0]
    return int(structure.shape[0])
