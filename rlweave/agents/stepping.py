"""How all agents act and observe: in a vector of environments, and step by step in environments that have names."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from rlweave.agents.elements import add_axis, finite, first_row, fitted, flag, is_single, same, stack
from rlweave.components.action_boundary import ActionBoundary
from rlweave.components.action_masks import check_allowed
from rlweave.errors import ExecutionError
from rlweave.spaces import Space
from rlweave.tree import tree_leaves, tree_map

Names = Sequence[Any]
Step = dict[str, Any]


class ActsAndObserves(ABC):
    """The side of an agent that acts and observes, also step by step in environments that have names.

    An agent says how it chooses actions (`choose_actions`), and takes whole steps of an environment (`collect`) into
    the same accumulators that workers use. What belongs to an environment between two calls is kept here: the recurrent
    state, the action that was chosen with what is stored of it, and a step whose next observation is still to come.
    """

    name: ClassVar[str]
    config: Any
    observation_space: Space
    action_space: Space
    _boundary: ActionBoundary
    env_steps: int
    #: Whether the networks carry a state from step to step.
    recurrent: bool
    #: Whether it learns from its own actions only.
    on_policy: ClassVar[bool] = False
    #: Why it cannot learn from single steps, and what to do instead; None: it can.
    no_single_steps: ClassVar[tuple[str, str] | None] = None

    # -- what an agent says --------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def recurrent_space(self) -> Space:
        """Space of what is carried from step to step in one environment, without ranks; `Tuple()`: nothing."""

    @abstractmethod
    def choose_actions(
        self, observations: Any, carried: dict[str, Any], explore: bool, preprocess: bool
    ) -> tuple[Any, dict[str, Any], Any]:
        """As `act`, which calls it.

        Args:
            observations: As in `act`.
            carried: `recurrent_state` and `episode_start`, as API methods that act take them after the observations;
                empty where nothing is carried from step to step.
            explore: As in `act`.
            preprocess: As in `act`.
        """

    def collect(self, env_id: Any, step: Step) -> None:
        """Takes in a whole step that was observed, `observations` to `next_observations`, without ranks."""
        raise ExecutionError(
            "this agent does not learn from single steps",
            where=f"{self.name}.observe",
            fix="pass what it learns from to update(batch)",
        )

    @property
    def own_action_space(self) -> Space:
        """Space of one action as the agent learns from it, without ranks: what memories and batches hold.

        Indices from 0 for integers, numbers around 0 for floats, of which [-1, 1] is the box where it is bounded on
        both sides (see `rlweave.components.action_leaves.ActionLeaf`).
        """
        return self._boundary.own_space

    def env_actions(self, actions: Any) -> Any:
        """Actions (..., *shape) of the action space, for the environment, from those that the agent learns from."""
        return self._boundary.to_environment(actions)

    def own_actions(self, actions: Any) -> Any:
        """What the agent learns from, (..., *shape), for actions of the action space; undoes `env_actions`."""
        return self._boundary.from_environment(actions)

    # -- acting in a vector of environments ----------------------------------------------------------------------

    def act(
        self,
        observations: Any,
        recurrent_state: Any = (),
        episode_start: Any = None,
        explore: bool = True,
        preprocess: bool = True,
    ) -> tuple[Any, dict[str, Any], Any]:
        """One step of acting, in a vector of environments.

        Args:
            observations: Nested arrays (B, ...) of the observation space.
            recurrent_state: Before the step, nested (B, ...); at first `initial_state(B)`. () without memory.
            episode_start: Bool (B,): the observation is the first of its episode, and the state starts anew.
            explore: As in `get_actions`.
            preprocess: As in `get_actions`.

        Returns:
            Actions (B, ...) as the agent learns from them (`env_actions` makes the environment's), what else it stores
            of the step by name, (B, ...) each, and the recurrent state after the step.
        """
        self.check_masks(observations)
        carried = self._carried(observations, recurrent_state, episode_start) if self.carries_state else {}
        return self.choose_actions(observations, carried, explore, preprocess)

    def check_masks(self, observations: Any) -> None:
        """Checks that each row of observations (B, ...) allows an action; only with the setting `mask_leaf`.

        Raises:
            ExecutionError: One does not; names its row and the step.
        """
        if self.config.mask_leaf is None:
            return
        masks = np.asarray(self.observation_space.flatten_value(observations)[self.config.mask_leaf]) != 0
        check_allowed(masks, self.config.mask_leaf, self.env_steps)

    @cached_property
    def carries_state(self) -> bool:
        """Whether acting carries something from step to step: the state of a network, or noise that drifts."""
        return bool(self.recurrent_space.flatten())

    def initial_state(self, num_envs: int) -> Any:
        """The recurrent state at the start of an episode: zeros, nested (B, ...); () without memory."""
        return self.recurrent_space.with_batch_rank().zeros(num_envs)

    def _carried(self, observations: Any, recurrent_state: Any, episode_start: Any) -> dict[str, Any]:
        """State and episode starts by name: without a state episodes begin, with a state alone they go on."""
        if isinstance(recurrent_state, tuple) and not recurrent_state:
            rows = rows_of(observations)
            recurrent_state, episode_start = self.initial_state(rows), np.ones(rows, np.bool_)
        elif episode_start is None:
            episode_start = np.zeros(rows_of(observations), np.bool_)
        return {"recurrent_state": recurrent_state, "episode_start": episode_start}

    def greedy_player(self) -> Callable[..., Any]:
        """What plays greedily: a function of observations (B, ...) and episode starts, bool (B,), to actions (B, ...).

        Of recurrent networks it carries a state of its own; where a third argument says which rows act, bool (B,),
        that of the others stays.
        """
        state: Any = None

        def play(observations: Any, episode_start: Any, acting: Any = None) -> Any:
            nonlocal state
            if state is None:
                state = self.initial_state(len(episode_start))
            actions, _, after = self.act(observations, state, episode_start, explore=False)
            state = after if acting is None else rows_from(acting, after, state)
            return self.env_actions(actions)

        return play

    # -- step by step --------------------------------------------------------------------------------------------

    def count_steps(self, steps: int) -> None:
        """Counts environment steps, which schedules and intervals depend on."""
        self.env_steps += steps

    def forget_steps(self) -> None:
        """Drops what `get_actions` and `observe` keep between calls; episodes begin anew in all environments."""
        self._recurrent: dict[bool, RecurrentStates] = {}
        #: By environment: the action to learn from, what is stored with it, and the action that was handed out.
        self._acted: dict[Any, tuple[Any, dict[str, Any], Any]] = {}
        self._pending: dict[Any, Step] = {}

    def get_actions(
        self, observations: Any, env_ids: Names | None = None, explore: bool = True, preprocess: bool = True
    ) -> Any:
        """Actions for a batch of observations.

        The state of recurrent networks is kept inside for each environment, and each call is taken as one step of
        these environments. It starts anew after `observe` was told of an episode's end, or `begin_episodes` was
        called. Looks with `explore=False` have states of their own, and disturb none. `act` takes and returns the
        state instead.

        Args:
            observations: Nested arrays (B, ...) of the observation space; a single one (...) gives a single action.
            env_ids: Names of the environments that the rows belong to; 0 to B-1 when None.
            explore: Samples (or explores); False acts greedily.
            preprocess: Applies the agent's preprocessing (normalization); False takes observations as processed.

        Returns:
            Nested arrays (B, ...) of the action space.
        """
        single = is_single(self.observation_space, observations)
        batch = add_axis(observations) if single else observations
        rows = rows_of(batch)
        names = range(rows) if env_ids is None else list(env_ids)
        self._check_names(names, rows)
        if self.carries_state:
            kept = self._states(explore)
            own, extra, after = self.act(batch, *kept.gather(names), explore, preprocess)
            kept.keep(names, after)
        else:
            own, extra, _ = self.act(batch, explore=explore, preprocess=preprocess)
        actions = self.env_actions(own)
        if explore and extra:  # a greedy look is for evaluation, and no step of an environment
            for row, name in enumerate(names):
                self._acted[name] = tree_map(operator.itemgetter(row), (own, extra, actions))
        return first_row(actions) if single else actions

    def observe(
        self,
        observation: Any,
        action: Any,
        reward: Any,
        terminated: Any,
        truncated: Any,
        next_observation: Any = None,
        env_id: Any = 0,
    ) -> None:
        """Takes in one step of a named environment.

        Args:
            observation: What was acted on.
            action: The action.
            reward: The reward.
            terminated: The episode reached a terminal state.
            truncated: The episode was cut.
            next_observation: What the action led to, the final observation where the episode ended; may be left out
                only where the episode goes on.
            env_id: Name of the environment.
        """
        where = f"environment {env_id!r}"
        self.check_single_steps("observe")
        chosen: Any
        own, extra, chosen = self._acted_in(env_id)
        observation = fitted(self.observation_space, observation, f"{where}, observation")
        action = fitted(self.action_space, action, f"{where}, action", within=True)
        reward, terminated, truncated = finite(reward, where), flag(terminated, where), flag(truncated, where)
        if next_observation is not None:
            next_observation = fitted(self.observation_space, next_observation, f"{where}, next_observation")
        if not self.on_policy:
            own = self.own_actions(action)
        elif not same(action, chosen):
            raise ExecutionError(
                "another action was observed than the one this agent chose",
                where=where,
                received=f"{action}, chosen was {chosen}",
                fix=f"{self.name} learns from its own actions only; pass the action of the last get_actions",
            )
        step = {"observations": observation, "actions": own, "rewards": reward, **extra}
        step |= {"terminated": terminated, "truncated": truncated}
        for whole in self._whole_steps(env_id, step, next_observation):
            self.collect(env_id, whole)
        self._acted.pop(env_id, None)  # only now: a step that is refused may be observed again
        if terminated or truncated:
            self.begin_episodes([env_id])
        self.count_steps(1)

    def check_single_steps(self, method: str) -> None:
        """Checks that it learns from single steps, which `method` is about.

        Raises:
            ExecutionError: It does not.
        """
        if self.no_single_steps is not None:
            what, fix = self.no_single_steps
            raise ExecutionError(what, where=f"{self.name}.{method}", fix=fix)

    def begin_episodes(self, env_ids: Iterable[Any] | None = None) -> None:
        """The next step of these environments (None: of all) is the first of an episode; drops recurrent states."""
        for states in self._recurrent.values():
            states.forget(env_ids)
        for env_id in list(self._pending) if env_ids is None else env_ids:
            self._pending.pop(env_id, None)  # its next observation will not come

    def _acted_in(self, env_id: Any) -> tuple[Any, dict[str, Any], Any]:
        """What was remembered of the last action in an environment.

        Raises:
            ExecutionError: Nothing, but the agent stores more of a step than can be observed.
        """
        if env_id in self._acted:
            return self._acted[env_id]
        if self.on_policy or self.recurrent:
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
            self._recurrent[explore] = RecurrentStates(self.recurrent_space)
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
                where=f"{self.name}.get_actions",
                received=f"{rows} rows, env_ids={list(names)}",
                fix="pass one distinct name per row, a str or number each",
            )


def rows_from(chosen: np.ndarray, first: Any, second: Any) -> Any:
    """The rows of one nested batch (B, ...) where `chosen`, bool (B,), is set, and of another where it is not."""
    return tree_map(
        lambda one, other: np.where(chosen.reshape(-1, *(1 for _ in other.shape[1:])), one, other), first, second
    )


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
