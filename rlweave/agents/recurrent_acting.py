"""What agents with recurrent networks offer besides: their state, inside by environment, or taken and returned."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, ClassVar

from rlweave.agents.recurrent_states import RecurrentStates
from rlweave.errors import ConfigError
from rlweave.spaces import Space


class RecurrentActing:
    """The recurrent side of an agent. Of feed-forward agents only `greedy_player` and `begin_episodes` are of use."""

    name: ClassVar[str]
    recurrent: bool

    @abstractmethod
    def make_root(self) -> Any:
        """The root component of the agent's graph."""

    @abstractmethod
    def get_actions(
        self, observations: Any, env_ids: Sequence[Any] | None = None, explore: bool = True, preprocess: bool = True
    ) -> Any:
        """See `Agent`."""

    @cached_property
    def recurrent_space(self) -> Space:
        """Space of the recurrent state of one environment, without ranks; see `initial_state`."""
        if not self.recurrent:
            raise ConfigError(
                "the networks of this agent carry no state",
                where=self.name,
                fix='put a recurrent layer into network, such as {"type": "lstm", "units": 64}',
            )
        space: Space = self.make_root().recurrent_space
        return space

    def initial_state(self, num_envs: int) -> Any:
        """The recurrent state at the start of an episode: zeros, nested (B, ...)."""
        return self.recurrent_space.with_batch_rank().zeros(num_envs)

    def act_recurrently(
        self, observations: Any, recurrent_state: Any, episode_start: Any, explore: bool = True, preprocess: bool = True
    ) -> tuple[Any, dict[str, Any], Any]:
        """Actions by recurrent networks, which take and return their state.

        Args:
            observations: Nested observations (B, ...).
            recurrent_state: Before the step, nested (B, ...); at first `initial_state(B)`.
            episode_start: Bool (B,): the observation is the first of its episode, and the state starts anew.
            explore: As in `get_actions`.
            preprocess: As in `get_actions`.

        Returns:
            Actions (B, ...) as the agent learns from them (`env_actions` makes the environment's), what else it has
            to store of the step by name, (B, ...) each, and the recurrent state after the step.
        """
        raise NotImplementedError(f"{type(self).__name__} has no recurrent networks")

    def begin_episodes(self, env_ids: Sequence[Any] | None = None) -> None:
        """The next step of these environments (None: of all) is the first of an episode; drops recurrent states."""
        for states in self._recurrent_states.values():
            states.forget(env_ids)

    def greedy_player(self) -> Callable[[Any, Any], Any]:
        """What plays greedily: a function of observations (B, ...) and episode starts, bool (B,), to actions (B, ...).

        Of recurrent networks it carries a state of its own, so nothing of the training is disturbed.
        """
        if not self.recurrent:
            return lambda observations, episode_start: self.get_actions(observations, explore=False)
        state: Any = None

        def play(observations: Any, episode_start: Any) -> Any:
            nonlocal state
            before = self.initial_state(len(episode_start)) if state is None else state
            actions, _, state = self.act_recurrently(observations, before, episode_start, explore=False)
            return self.env_actions(actions)

        return play

    @abstractmethod
    def env_actions(self, actions: Any) -> Any:
        """See `Agent`."""

    @cached_property
    def _recurrent_states(self) -> dict[bool, RecurrentStates]:
        """Observations by environment: of acting with exploration, and without."""
        if not self.recurrent:
            return {}
        return {explore: RecurrentStates(self.recurrent_space) for explore in (True, False)}

    def _act_by_name(
        self, observations: Any, names: Sequence[Any], explore: bool, preprocess: bool
    ) -> tuple[Any, dict[str, Any]]:
        """Actions (B, ...) of recurrent networks for named environments, and what to store of the step."""
        kept = self._recurrent_states[explore]
        before, start = kept.gather(names)
        actions, extra, after = self.act_recurrently(observations, before, start, explore, preprocess)
        kept.keep(names, after)
        return actions, {**extra, "recurrent_state": before, "episode_start": start}
