"""Sub-environments stepped one after the other in this process: the fastest way for cheap environments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np

from rlweave.envs.batching import Batch
from rlweave.envs.contract import check_environment, plain_flag, plain_reward, reset_values, step_values
from rlweave.envs.failures import describe, environment_failure
from rlweave.envs.object_state import Data
from rlweave.envs.ownership import Ownership, own
from rlweave.envs.saving import load_environments, save_environments
from rlweave.envs.seeding import sub_env_seeds
from rlweave.envs.steps import Advance, Infos
from rlweave.envs.vector_env import VectorEnv
from rlweave.errors import EnvError

EnvFactory = Callable[[], "gymnasium.Env[Any, Any]"]


class SyncEnv(VectorEnv):
    """Steps its sub-environments in turn; every step gives one transition per sub-environment.

    An environment that hangs or ends the process cannot be helped here; `AsyncEnv` can.

    Args:
        factories: Makes each sub-environment.
        seed: As in `VectorEnv`.
        worker: As in `VectorEnv`.
        check_finite: As in `VectorEnv`.
        info_metrics: As in `VectorEnv`.

    Raises:
        EnvError: If a factory fails or the sub-environments' spaces differ.
    """

    def __init__(
        self,
        factories: Sequence[EnvFactory],
        *,
        seed: int | None = None,
        worker: int = 0,
        check_finite: bool = True,
        info_metrics: Sequence[str] = (),
    ) -> None:
        self._envs: list[gymnasium.Env[Any, Any]] = []
        self._ownership: Ownership | None = None
        self._actions: Sequence[Any] = ()
        try:
            for index, factory in enumerate(factories):
                self._envs.append(construct(factory, index))
            self._ownership = own(self._envs)
            spaces = [(env.observation_space, env.action_space) for env in self._envs]
            check_same_spaces(spaces)
            common: dict[str, Any] = {"seed": seed, "worker": worker, "check_finite": check_finite}
            super().__init__(*spaces[0], len(spaces), **common, info_metrics=info_metrics)
        except BaseException:
            self._close_all(failed=True)
            raise

    def _reset_all(self, reseed: bool, options: dict[str, Any] | None) -> tuple[Batch, Infos]:
        seeds: Sequence[int | None] = (
            sub_env_seeds(self.seed, self.worker, self.num_envs, self.first) if reseed else [None] * self.num_envs
        )
        observations = self._codec.allocate(self.num_envs)
        infos = [
            self._reset_one(index, observations, seed, None if options is None else dict(options))
            for index, seed in enumerate(seeds)
        ]
        return observations, infos

    def _convert_actions(self, actions: Batch) -> Sequence[Any]:
        return self._action_codec.split(actions, self.num_envs)

    def _begin(self, gym_actions: Sequence[Any]) -> None:
        self._actions = gym_actions

    def _finish(self) -> Advance:
        gym_actions = self._actions
        num_envs, write = self.num_envs, self._codec.write
        final = self._codec.allocate(num_envs, np.empty)
        rewards = np.empty(num_envs, np.float64)
        terminated = np.empty(num_envs, np.bool_)
        truncated = np.empty(num_envs, np.bool_)
        infos: list[dict[str, Any]] = []
        last: list[int] = []  # those whose episode ended; a list, because most steps end none
        index = 0
        try:
            for index, env in enumerate(self._envs):
                result = env.step(gym_actions[index])
                if type(result) is not tuple or len(result) != 5 or type(result[4]) is not dict:
                    result = step_values(result)
                observation, reward, end, cut, info = result
                rewards[index] = reward if type(reward) is float else plain_reward(reward)
                terminated[index] = end if type(end) is bool else plain_flag("terminated", end)
                truncated[index] = cut if type(cut) is bool else plain_flag("truncated", cut)
                if end or cut:
                    last.append(index)
                write(final, index, observation)
                infos.append(info)
        except (Exception, SystemExit) as error:
            what, trace = describe(error)
            phase = self._step_phase(index)
            raise environment_failure(what, env=index, phase=phase, action=gym_actions[index], trace=trace) from error
        ended = terminated | truncated
        if not last:
            return Advance(final, rewards, terminated, truncated, final, None, ended, infos, infos)
        first = self._codec.allocate(num_envs)
        current_infos = list(infos)
        for index in last:
            current_infos[index] = self._reset_one(index, first, None, None)
        observations = self._codec.replace(final, first, ended)
        return Advance(observations, rewards, terminated, truncated, final, None, ended, infos, current_infos)

    def _reset_one(self, index: int, batch: Batch, seed: int | None, options: dict[str, Any] | None) -> dict[str, Any]:
        try:
            observation, info = reset_values(self._envs[index].reset(seed=seed, options=options))
            self._codec.write(batch, index, observation)
        except (Exception, SystemExit) as error:
            what, trace = describe(error)
            raise environment_failure(what, env=index, phase="reset", trace=trace) from error
        return info

    def _save_envs(self) -> list[Data]:
        return save_environments(self._envs)

    def _load_envs(self, state: list[Data]) -> None:
        load_environments(self._envs, state)

    def _close_all(self, failed: bool) -> None:
        if self._ownership is not None:
            self._ownership.release()
        first: EnvError | None = None
        for index, env in enumerate(self._envs):
            try:
                env.close()
            except Exception as error:
                what, trace = describe(error)
                first = first or environment_failure(what, env=index, phase="close", trace=trace)
        if first is not None and not failed:
            raise first


def check_same_spaces(spaces: Sequence[tuple[gymnasium.Space[Any], gymnasium.Space[Any]]]) -> None:
    """Refuses sub-environments that cannot share one batch.

    Args:
        spaces: Observation and action space of each sub-environment.

    Raises:
        EnvError: If there is none, or one differs from the first.
    """
    if not spaces:
        raise EnvError("a vector environment needs at least one sub-environment", fix="pass num_envs >= 1")
    for index, pair in enumerate(spaces):
        for name, first, other in zip(("observation", "action"), spaces[0], pair, strict=True):
            if first != other:
                raise EnvError(
                    f"the sub-environments have different {name} spaces",
                    where=f"environment {index}",
                    received=f"{other}, where environment 0 has {first}",
                    fix="make them all alike, or use one vector environment for each kind",
                )


def construct(factory: EnvFactory, index: int) -> gymnasium.Env[Any, Any]:
    """Makes a sub-environment.

    Raises:
        EnvError: It cannot be made, or is no environment.
    """
    try:
        env = factory()
        check_environment(env)
        return env
    except (Exception, SystemExit) as error:
        what, trace = describe(error)
        raise environment_failure(what, env=index, phase="construction", trace=trace) from error
