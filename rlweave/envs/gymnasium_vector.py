"""Foreign vector environments: Gymnasium's own, ALE's, and any other `gymnasium.vector.VectorEnv`."""

from __future__ import annotations

import contextlib
import multiprocessing
import time
from collections.abc import Sequence
from typing import Any, overload

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from rlweave.envs.batching import Batch
from rlweave.envs.contract import OutOfRange, batch_flags, batch_rewards, check_environment
from rlweave.envs.failures import SubEnvFailure, SubEnvGuard, describe, environment_failure
from rlweave.envs.object_state import Data, NotData
from rlweave.envs.ownership import own, refuse_shared
from rlweave.envs.restoring import restore
from rlweave.envs.saving import save_environment
from rlweave.envs.seeding import sub_env_seeds, vector_seed
from rlweave.envs.steps import Advance, BoolArray, Infos
from rlweave.envs.vector_env import VectorEnv
from rlweave.errors import EnvError

GymVectorEnv = gymnasium.vector.VectorEnv[Any, Any, Any]

_FAILURE_GRACE_S = 0.5


class GymnasiumVectorEnv(VectorEnv):
    """Adapts a Gymnasium vector environment of any autoreset mode to the one contract.

    * DISABLED: rows whose episode ended are reset at once, by ``options={"reset_mask": ...}``.
    * SAME_STEP: the final observation is taken from ``infos["final_obs"]``.
    * NEXT_STEP: Gymnasium's own vector environments can reset single rows, which is done at once. Any other resets
      a row instead of stepping it the next time. If all rows ended, that step is taken at once. If only some did,
      the rows are marked as not `valid` in the next result: they are no transitions, their reward is 0, and
      their `observations` are first ones.

    So the transitions of each sub-environment are the same in each mode; only in the last case it takes more steps
    to get as many.

    Args:
        env: The vector environment.
        seed: As in `VectorEnv`. An environment that is not Gymnasium's own gets one integer to seed all its rows.
        worker: As in `VectorEnv`.
        check_finite: As in `VectorEnv`.
        info_metrics: As in `VectorEnv`.
        timeout_s: Seconds after which a step or reset of a `gymnasium.vector.AsyncVectorEnv` is an error; None waits.

    Raises:
        EnvError: If the environment does not declare its autoreset mode.
    """

    def __init__(
        self,
        env: GymVectorEnv,
        *,
        seed: int | None = None,
        worker: int = 0,
        check_finite: bool = True,
        info_metrics: Sequence[str] = (),
        timeout_s: float | None = None,
    ) -> None:
        self._env = env
        self._mode = autoreset_mode(env)
        self._ownership = own([env], what="vector environment")
        if isinstance(env.unwrapped, SyncVectorEnv):
            _guard_all(env.unwrapped)
        self._timeout_s = timeout_s
        self._resets_rows = isinstance(env, SyncVectorEnv) or (
            # Without shared memory, Gymnasium 1.4 forgets the row reset and resets once more at the next step.
            isinstance(env, AsyncVectorEnv) and env.shared_memory
        )
        super().__init__(
            env.single_observation_space,
            env.single_action_space,
            env.num_envs,
            seed=seed,
            worker=worker,
            check_finite=check_finite,
            info_metrics=info_metrics,
        )
        self._to_be_reset: BoolArray = np.zeros(self.num_envs, np.bool_)
        self._actions: Any = None

    def _reset_all(self, reseed: bool, options: dict[str, Any] | None) -> tuple[Batch, Infos]:
        seed: Any = None
        if reseed and isinstance(self._env.unwrapped, (SyncVectorEnv, AsyncVectorEnv)):
            seed = sub_env_seeds(self.seed, self.worker, self.num_envs, self.first)
        elif reseed:
            seed = vector_seed(self.seed, self.worker, self.first)
        self._to_be_reset = np.zeros(self.num_envs, np.bool_)
        observations, infos = self._call_reset(seed, options)
        return observations, BatchedInfos(infos, self.num_envs)

    def _convert_actions(self, actions: Batch) -> Any:
        return self._action_codec.to_vector(actions, self.num_envs)

    def _begin(self, gym_actions: Any) -> None:
        self._actions = gym_actions
        if isinstance(self._env, AsyncVectorEnv):
            with self._telling_failures("step", gym_actions):
                self._env.step_async(gym_actions)

    def _finish(self) -> Advance:
        observations, rewards, terminated, truncated, gym_infos = self._finish_gym_step()
        infos = BatchedInfos(gym_infos, self.num_envs)
        current_infos: Infos = infos
        valid: BoolArray | None = None
        just_reset = self._to_be_reset
        if np.count_nonzero(just_reset):
            valid = ~just_reset
            rewards, terminated, truncated = rewards * valid, terminated & valid, truncated & valid
            self._to_be_reset = np.zeros(self.num_envs, np.bool_)
        final = observations
        ended = terminated | truncated
        episode_start = ended | just_reset
        if np.count_nonzero(ended):
            if self._mode is AutoresetMode.SAME_STEP:
                final = self._final_observations(observations, gym_infos, ended)
                infos = BatchedInfos(gym_infos, self.num_envs, final=ended)
            elif self._mode is AutoresetMode.DISABLED or self._resets_rows:
                first, first_infos = self._call_reset(None, {"reset_mask": ended.copy()})
                observations = self._codec.replace(final, first, ended)
                current_infos = _merge_infos(infos, BatchedInfos(first_infos, self.num_envs), ended)
            elif ended.all():
                self._begin(self._actions)
                observations, _, _, _, first_infos = self._finish_gym_step()
                current_infos = BatchedInfos(first_infos, self.num_envs)
            else:
                self._to_be_reset, episode_start = ended, just_reset
        return Advance(observations, rewards, terminated, truncated, final, valid, episode_start, infos, current_infos)

    def _final_observations(self, observations: Batch, infos: dict[str, Any], ended: BoolArray) -> Batch:
        final_obs = infos.get("final_obs")
        if final_obs is None:
            raise EnvError(
                "a SAME_STEP vector environment ended an episode without its final observation",
                where=f"environments {ended.nonzero()[0].tolist()}",
                received=f"infos with the keys {sorted(infos)}",
                fix="put it into infos['final_obs'], as Gymnasium's vector environments do",
            )
        if not isinstance(final_obs, np.ndarray) or final_obs.dtype != object:
            return self._codec.replace(observations, self._codec.from_vector(final_obs, self.num_envs), ended)
        final = self._codec.copy(observations)
        for index in ended.nonzero()[0].tolist():
            self._codec.write(final, index, final_obs[index])
        return final

    def _call_reset(self, seed: Any, options: dict[str, Any] | None) -> tuple[Batch, dict[str, Any]]:
        with self._telling_failures("reset", None):
            if isinstance(self._env, AsyncVectorEnv):
                self._env.reset_async(seed=seed, options=options)
                observations, infos = self._env.reset_wait(timeout=self._timeout_s)
            else:
                observations, infos = self._env.reset(seed=seed, options=options)
            return self._codec.from_vector(observations, self.num_envs), infos

    def _receive(self) -> Any:
        """What Gymnasium's `step` returns."""
        if isinstance(self._env, AsyncVectorEnv):
            return self._env.step_wait(timeout=self._timeout_s)
        return self._env.step(self._actions)

    def _finish_gym_step(self) -> tuple[Batch, Any, BoolArray, BoolArray, dict[str, Any]]:
        with self._telling_failures("step", self._actions):
            observations, rewards, terminated, truncated, infos = self._receive()
            return (
                self._codec.from_vector(observations, self.num_envs),
                batch_rewards(rewards, self.num_envs),
                batch_flags("terminated", terminated, self.num_envs),
                batch_flags("truncated", truncated, self.num_envs),
                infos,
            )

    @contextlib.contextmanager
    def _telling_failures(self, phase: str, gym_actions: Any) -> Any:
        try:
            yield
        except NotData:
            raise
        except SubEnvFailure as failure:
            raise failure.error from failure
        except OutOfRange as error:
            if error.row is None:  # a final observation
                raise self._failure(error, phase, gym_actions) from error
            index = error.row
            at = "reset" if phase == "reset" else self._step_phase(index)
            raise environment_failure(describe(error)[0], env=index, phase=at) from error
        except (Exception, SystemExit) as error:
            raise self._failure(error, phase, gym_actions) from error

    def _failure(self, error: BaseException, phase: str, gym_actions: Any) -> EnvError:
        where = f"vector environment {type(self._env).__name__}, {phase}"
        received = "" if gym_actions is None else f"actions {gym_actions!r}"
        if isinstance(error, multiprocessing.TimeoutError):
            what, fix = f"an environment has not answered for {self._timeout_s:g} s", "raise timeout_s if it is slow"
            return EnvError(what, where=where, received=received, fix=fix)
        if isinstance(error, EOFError):
            return EnvError("the process of an environment has ended", where=where, received=received)
        what, trace = describe(error)
        return EnvError(f"{what}\n{trace}".rstrip(), where=where, received=received)

    def _save_envs(self) -> Data:
        with self._telling_failures("get_state", None):
            return {"env": save_environment(self._env), "to_be_reset": self._to_be_reset.copy()}

    def _load_envs(self, state: Data) -> None:
        with self._telling_failures("set_state", None):
            restore(state["env"], self._env)
        self._to_be_reset = state["to_be_reset"]

    def _close_all(self, failed: bool) -> None:
        self._ownership.release()
        if not failed:
            self._env.close()
            return
        if not isinstance(self._env.unwrapped, AsyncVectorEnv):
            with contextlib.suppress(Exception):
                self._env.close()
            return
        # Its `close` waits for answers that may never come; closing the pipe does not wait.
        base = self._env.unwrapped
        for pipe in base.parent_pipes:
            if pipe is not None:
                pipe.close()
        deadline = time.monotonic() + _FAILURE_GRACE_S
        for process in base.processes:
            process.join(max(0.0, deadline - time.monotonic()))
            process.kill()
            process.join()
        base.closed = True


class BatchedInfos(Sequence[dict[str, Any]]):
    """Gymnasium's batched infos, as one dict per sub-environment, made on demand.

    Args:
        infos: ``{key: array, "_key": mask}``, nested for nested infos; a key without a mask holds for all rows.
        num_envs: Number of sub-environments.
        final: Rows whose info is the one under ``"final_info"``, of the step before the reset.
    """

    def __init__(self, infos: dict[str, Any], num_envs: int, final: BoolArray | None = None) -> None:
        self._infos, self._num_envs, self._final = infos, num_envs, final

    def __len__(self) -> int:
        return self._num_envs

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[dict[str, Any]]: ...

    def __getitem__(self, index: int | slice) -> dict[str, Any] | Sequence[dict[str, Any]]:
        if isinstance(index, slice):
            return [self._row(self._infos, row) for row in range(*index.indices(self._num_envs))]
        if not -self._num_envs <= index < self._num_envs:
            raise IndexError(f"sub-environment {index} of {self._num_envs}")
        row = index % self._num_envs
        if self._final is not None and self._final[row]:
            return self._row(self._infos.get("final_info", {}), row)
        return self._row({key: value for key, value in self._infos.items() if key not in _FINAL_KEYS}, row)

    def _row(self, infos: dict[str, Any], row: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in infos.items():
            mask = infos.get(f"_{key}")
            if (key.startswith("_") and key[1:] in infos) or (mask is not None and not mask[row]):
                continue
            if isinstance(value, dict):
                found[key] = self._row(value, row)
            elif isinstance(value, (np.ndarray, list, tuple)) and len(value) == self._num_envs:
                found[key] = value[row]
            else:
                found[key] = value
        return found


_FINAL_KEYS = ("final_obs", "_final_obs", "final_info", "_final_info")


def autoreset_mode(env: GymVectorEnv) -> AutoresetMode:
    """Reads a vector environment's autoreset mode from its metadata.

    Args:
        env: The vector environment.

    Raises:
        EnvError: If there is none, or one that Gymnasium does not know.
    """
    declared = (env.metadata or {}).get("autoreset_mode")
    try:
        return AutoresetMode(declared)
    except ValueError:
        raise EnvError(
            "the vector environment does not declare an autoreset mode that is known, so its transitions cannot be "
            "told from its resets",
            where=f"metadata['autoreset_mode'] of {type(env.unwrapped).__name__}",
            received=repr(declared),
            fix="set it to one of gymnasium.vector.AutoresetMode: NEXT_STEP, SAME_STEP, DISABLED",
        ) from None


def _guard_all(env: SyncVectorEnv[Any, Any]) -> None:
    """Has each sub-environment checked before Gymnasium casts and batches what it returns."""
    refuse_shared(env.envs)
    for index, sub_env in enumerate(env.envs):
        if not isinstance(sub_env, SubEnvGuard):
            check_environment(sub_env)
            env.envs[index] = SubEnvGuard(sub_env, index)


def _merge_infos(infos: Infos, others: Infos, mask: BoolArray) -> Infos:
    return [others[row] if mask[row] else infos[row] for row in range(len(infos))]
