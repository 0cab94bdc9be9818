"""The one contract of all vector environments, whatever they run on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector.utils import batch_space

from rlweave.envs.batching import Batch, batch_codec
from rlweave.envs.contract import LARGEST_REWARD, OutOfRange
from rlweave.envs.failures import NOT_FINITE, describe, environment_failure, step_phase
from rlweave.envs.infos import InfoMetrics, InfoNumbers
from rlweave.envs.object_state import NotData, capture, only_data
from rlweave.envs.restoring import restore
from rlweave.envs.saving import CANNOT_BE_SAVED, check_number, does_not_fit
from rlweave.envs.seeding import action_seed
from rlweave.envs.steps import Advance, Episode, EpisodeTracker, Infos, StepResult
from rlweave.errors import EnvError
from rlweave.spaces import Space
from rlweave.spaces.gymnasium_spaces import from_gymnasium


class VectorEnv(ABC):
    """Sub-environments that step together and reset themselves; the base of every kind.

    Every kind yields the same list of transitions and the same episodes for the same seed and actions. Reset rows
    are never transitions. Numbers are float32, int32, bool and uint8, discrete values are indices from 0, and
    observations are copies.

    Args:
        gym_observation_space: Gymnasium's space of one sub-environment's observations.
        gym_action_space: Gymnasium's space of one sub-environment's actions.
        num_envs: Number of sub-environments.
        seed: Seed of the run; None takes fresh entropy, which `seed` then holds.
        worker: Number of the worker that owns the environments; different workers get different sub-seeds.
        check_finite: Whether a NaN or infinite observation or reward is an error.
        info_metrics: Leaves of the infos of last steps that are handed out with the episodes.

    Attributes:
        gym_observation_space: As given.
        gym_action_space: As given.
        observation_space: rlweave's space of one observation, without ranks.
        action_space: rlweave's space of one action, without ranks.
        num_envs: Number of sub-environments.
        seed: The seed in use.
        worker: The worker number.
        first: Number of its first sub-environment among those that share the seed and the worker's number.
        tracker: Steps, returns and lengths of episodes.
        unsaved_because: Why the last `save_state` gave none.
    """

    #: The layout of images, if it is known for this kind of environment; None: settings have to say it.
    image_layout: str | None = None

    def __init__(
        self,
        gym_observation_space: gymnasium.Space[Any],
        gym_action_space: gymnasium.Space[Any],
        num_envs: int,
        *,
        seed: int | None,
        worker: int,
        check_finite: bool,
        info_metrics: Sequence[str],
    ) -> None:
        self.gym_observation_space = gym_observation_space
        self.gym_action_space = gym_action_space
        self.observation_space: Space = from_gymnasium(gym_observation_space)
        self.action_space: Space = from_gymnasium(gym_action_space)
        self.num_envs = num_envs
        self.worker = worker
        self.first = 0
        self.tracker = EpisodeTracker(num_envs)
        self._info_metrics = InfoMetrics(info_metrics)
        self._codec = batch_codec(gym_observation_space)
        self._action_codec = batch_codec(gym_action_space)
        self._action_sampler = batch_space(gym_action_space, num_envs)
        self._check_finite = check_finite
        self._observations: Batch = None
        self._infos: Infos = ()
        self._all_rows = np.ones(num_envs, np.bool_)
        self._stepping_with: Batch = None
        self._reseed_at_reset = True
        self._started = self._closed = False
        self.unsaved_because = ""
        self._set_seed(seed)

    @property
    def has_started(self) -> bool:
        """Whether it was reset, so that there are observations to act on."""
        return self._started and not self._closed

    @property
    def observations(self) -> Batch:
        """The observations to act on next, nested (num_envs, *shape), also between two training loops.

        Raises:
            EnvError: If the environment was not reset yet.
        """
        self._require_started()
        return self._observations

    @property
    def infos(self) -> Infos:
        """The info dicts that came with `observations` (an action mask is in these); from a reset where one was.

        Raises:
            EnvError: If the environment was not reset yet.
        """
        self._require_started()
        return self._infos

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Batch:
        """Starts a new episode in every sub-environment.

        Episodes in progress are abandoned and do not count. Only the first reset, and one with a seed, seeds the
        sub-environments; any other continues their random streams, so that no episode repeats.

        Args:
            seed: Restarts all random streams (including action sampling) from this seed.
            options: Gymnasium's options for every sub-environment's reset; left as it is.

        Returns:
            The first observations, nested (num_envs, *shape).

        Raises:
            EnvError: If a sub-environment fails, a step is under way, or the environment is closed.
        """
        self._require_open()
        self._require_no_step()
        if seed is not None:
            self._set_seed(seed)
        try:
            # Gymnasium's vector environments pop keys from the options that they are given.
            observations, infos = self._reset_all(self._reseed_at_reset, None if options is None else dict(options))
            self.tracker.abandon()
            self._refuse_wrong_observations(observations, "reset")
        except BaseException:
            self._abort()
            raise
        self._reseed_at_reset = False
        self._started = True
        self._observations, self._infos = observations, infos
        return observations

    def step(self, actions: Batch) -> StepResult:
        """Steps every sub-environment, and resets those whose episode ended.

        Args:
            actions: A batch of `action_space` values, nested (num_envs, *shape).

        Returns:
            One transition per valid row, and the observations to act on next.

        Raises:
            EnvError: If a sub-environment fails, hangs (in sub-processes) or returns a value that its space or the
                finiteness check refuses; all sub-environments are closed then. If the actions do not fit the action
                space, or the environment was not reset yet; nothing was stepped then.
        """
        self.begin_step(actions)
        return self.finish_step()

    def begin_step(self, actions: Batch) -> None:
        """The first half of `step`: sub-environments in processes, or in threads of C++, begin to step.

        Until `finish_step`, this process is free for other work. Other kinds of environments step in `finish_step`.

        Args:
            actions: As in `step`.

        Raises:
            EnvError: As in `step`, and if another step is under way.
        """
        if self._closed or not self._started or self._stepping_with is not None:
            self._require_started()
            self._require_no_step()
        gym_actions = self._convert_actions(actions)
        try:
            self._begin(gym_actions)
        except BaseException:
            self._abort()
            raise
        self._stepping_with = actions

    def finish_step(self) -> StepResult:
        """The second half of `step`: the results of the actions of `begin_step`.

        Raises:
            EnvError: As in `step`, and if no step is under way.
        """
        actions, self._stepping_with = self._stepping_with, None
        if actions is None:
            self._require_started()
            raise EnvError("no step is under way", where="finish_step", fix="call begin_step(actions) before")
        try:
            result = self._finish()
            self._refuse_wrong_observations(result.next_observations, "step", actions)
            rewards = self._narrow(result.rewards, actions)
            episodes = self.tracker.update(result.rewards, result.terminated, result.truncated, result.valid)
            if episodes and self._info_metrics:
                episodes = tuple(episode._replace(info=self._info_of(episode, result)) for episode in episodes)
            if result.observations is not result.next_observations:
                self._refuse_wrong_observations(result.observations, "reset")
        except BaseException:
            # Replies of sub-processes may still arrive: going on would pair them with the wrong actions.
            self._abort()
            raise
        self._observations, self._infos = result.observations, result.current_infos
        return StepResult(
            result.observations,
            rewards,
            result.terminated,
            result.truncated,
            result.next_observations,
            self._all_rows.copy() if result.valid is None else result.valid,
            result.episode_start,
            result.infos,
            episodes,
        )

    def save_state(self) -> dict[str, Any] | None:
        """All that later steps depend on, as nested plain data and arrays; `load_state` takes it.

        That is the state of every sub-environment with its random stream, the observations to act on, the episodes in
        progress, the counts of `tracker`, and the stream of `sample_actions`. A sub-environment defines its state by
        `get_state()` and `set_state(state)`, or has nothing but plain data for attributes (`object_state`).

        Returns:
            The state; None where a sub-environment cannot be saved: `unsaved_because` says why then.

        Raises:
            EnvError: If a sub-environment fails, a step is under way, or there was no reset yet.
        """
        self._require_started()
        self._require_no_step()
        self.unsaved_because = ""
        try:
            envs = self._save_envs()
            common = capture(self._common_state())
        except NotData as error:
            self.unsaved_because = CANNOT_BE_SAVED.format(error)
            return None
        return {"num_envs": self.num_envs, "envs": envs, "common": common}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Takes over a state that `save_state` of an equal environment gave; nothing in it is executed.

        Args:
            state: The state; what came back from a file has lists for tuples.

        Raises:
            EnvError: If it is of another environment; a reset is needed then.
        """
        self._require_open()
        self._require_no_step()
        self._started = False
        try:
            check_number(state, self.num_envs)
            # A reset may make objects that are no data; all data that it sets is replaced.
            self._reset_all(self._reseed_at_reset, None)
            self._load_envs(state["envs"])
            self._set_common_state(restore(state["common"], self._common_state()))
        except NotData as error:
            raise does_not_fit(error) from error
        except BaseException:
            self._abort()
            raise
        self._started, self._reseed_at_reset = True, False

    def _common_state(self) -> dict[str, Any]:
        """The part of the state that all kinds share, without the sub-environments."""
        return {
            "seed": self.seed,
            "actions": self._action_sampler,
            "tracker": self.tracker,
            "observations": self._observations,
            "infos": [only_data(info) for info in self._infos],
        }

    def _set_common_state(self, state: dict[str, Any]) -> None:
        self.seed, self.tracker = state["seed"], state["tracker"]
        self._observations, self._infos = state["observations"], state["infos"]

    def sample_actions(self) -> Batch:
        """Returns uniformly random actions, nested (num_envs, *shape), from the seeded stream of this worker."""
        return self._action_codec.from_vector(self._action_sampler.sample(), self.num_envs)

    def close(self) -> None:
        """Closes every sub-environment and ends its process; does nothing the second time."""
        if not self._closed:
            self._closed = True
            # a step that is under way is abandoned
            stepping, self._stepping_with = self._stepping_with is not None, None
            self._close_all(failed=stepping)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @abstractmethod
    def _reset_all(self, reseed: bool, options: dict[str, Any] | None) -> tuple[Batch, Infos]:
        """Resets every sub-environment, from `self.seed` and `self.worker` if `reseed`."""

    @abstractmethod
    def _convert_actions(self, actions: Batch) -> Any:
        """Returns actions in Gymnasium's form, as `_begin` wants them."""

    @abstractmethod
    def _begin(self, gym_actions: Any) -> None:
        """Takes actions; sub-environments in other processes or threads begin to step."""

    @abstractmethod
    def _finish(self) -> Advance:
        """Steps every sub-environment, or waits until all have stepped."""

    @abstractmethod
    def _save_envs(self) -> Any:
        """The state of the sub-environments, as nested plain data and arrays.

        Raises:
            NotData: If one cannot be saved.
        """

    @abstractmethod
    def _load_envs(self, state: Any) -> None:
        """Takes over what `_save_envs` gave.

        Raises:
            NotData: If it does not fit.
        """

    @abstractmethod
    def _close_all(self, failed: bool) -> None:
        """Closes every sub-environment; after a failure, quickly and without raising."""

    def _set_seed(self, seed: int | None) -> None:
        entropy = np.random.SeedSequence(seed).entropy
        assert isinstance(entropy, int)
        self.seed = entropy
        self._reseed_at_reset = True
        self._action_sampler.seed(action_seed(entropy, self.worker))

    def _abort(self) -> None:
        if not self._closed:
            self._closed = True
            self._close_all(failed=True)

    def _require_open(self) -> None:
        if self._closed:
            raise EnvError("the environment is closed", fix="make a new one; an environment that failed is closed")

    def _require_started(self) -> None:
        if self._closed or not self._started:
            self._require_open()
            raise EnvError("the environment was not reset yet", fix="call reset() before the first step")

    def _require_no_step(self) -> None:
        if self._stepping_with is not None:
            raise EnvError("a step is under way", where="begin_step", fix="call finish_step() before")

    def _info_of(self, episode: Episode, result: Advance) -> InfoNumbers:
        try:
            return self._info_metrics.of(result.infos[episode.env])
        except EnvError as error:
            phase = step_phase(episode.length)
            raise environment_failure(describe(error)[0], env=episode.env, phase=phase) from error

    def _refuse_wrong_observations(self, batch: Batch, phase: str, actions: Batch = None) -> None:
        if self._codec.is_narrow:
            try:
                self._codec.check_range(batch)
            except OutOfRange as error:
                raise self._failure_of_row(describe(error)[0], error.row or 0, phase, actions) from error
        found = self._codec.find_nonfinite(batch) if self._check_finite else None
        if found is not None:
            row, path = found
            leaf = f"leaf {path!r} of the observation" if path else "the observation"
            self._refuse(f"{leaf} holds NaN or infinity", row, phase, actions)

    def _narrow(self, rewards: npt.NDArray[np.float64], actions: Batch) -> npt.NDArray[np.float32]:
        """Rewards in float32."""
        if not self._check_finite:
            with np.errstate(over="ignore"):
                return rewards.astype(np.float32)
        right = np.abs(rewards) <= LARGEST_REWARD  # False for NaN
        if np.count_nonzero(right) < self.num_envs:
            row = int(right.argmin())
            large = f", beyond {LARGEST_REWARD:.1e}, the largest number of float32"
            self._refuse(
                f"the reward is {rewards[row]}{large if np.isfinite(rewards[row]) else ''}", row, "step", actions
            )
        return rewards.astype(np.float32)

    def _refuse(self, what: str, row: int, phase: str, actions: Batch) -> None:
        raise self._failure_of_row(what, row, phase, actions, fix=NOT_FINITE)

    def _failure_of_row(self, what: str, row: int, phase: str, actions: Batch, fix: str = "") -> EnvError:
        if phase == "reset":
            return environment_failure(what, env=row, phase="reset", fix=fix)
        action = self._action_codec.split(actions, self.num_envs)[row]
        return environment_failure(what, env=row, phase=self._step_phase(row), action=action, fix=fix)

    def _step_phase(self, row: int) -> str:
        """Names the step that is being taken."""
        return step_phase(int(self.tracker.current_lengths[row]) + 1)
