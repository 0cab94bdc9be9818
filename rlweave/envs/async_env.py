"""Sub-environments in processes of their own: for slow environments, and for ones that may hang or crash."""

from __future__ import annotations

import time
import warnings
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import cloudpickle
import numpy as np

from rlweave.envs.batching import Batch
from rlweave.envs.env_process import Attach, Constructed, Failed, Load, Reset, Save, Step, Stepped, WasReset
from rlweave.envs.failures import environment_failure
from rlweave.envs.object_state import Data, NotData
from rlweave.envs.process_handle import GUARD_HINT, Lost, ProcessHandle, end_processes, who_answers
from rlweave.envs.seeding import derived_seed, sub_env_seeds
from rlweave.envs.shared_batches import TERMINATED, TRUNCATED, SharedBatches, memory_file
from rlweave.envs.steps import Advance, Infos
from rlweave.envs.sync_env import EnvFactory, check_same_spaces
from rlweave.envs.vector_env import VectorEnv
from rlweave.errors import EnvError, EnvWarning

DEFAULT_TIMEOUT_S = 60.0
START_TIMEOUT_S = 120.0
_CLOSE_GRACE_S = 5.0
#: Seconds to wait for one environment before it is waited for all, so that a failure of another shows.
_PATIENCE_S = 0.1
_FAILURE_GRACE_S = 2.0


class AsyncEnv(VectorEnv):
    """Steps its sub-environments at the same time, each in a process; every step gives one transition for each.

    Actions, rewards, flags and observations are in shared memory; only text, and infos that are not empty, travel.
    Processes end with this object, with this process (even when it is killed), and at a failure of any of them, except
    at one that has another process take its place.

    Args:
        factories: Makes each sub-environment; they are pickled by value where need be (cloudpickle).
        seed: As in `VectorEnv`.
        worker: As in `VectorEnv`.
        check_finite: As in `VectorEnv`.
        info_metrics: As in `VectorEnv`.
        timeout_s: Seconds after which a reset or step that has not answered is an error. Starting processes and
            making environments gets at least `START_TIMEOUT_S`.
        on_loss: What happens when a process ends or does not answer: ``"stop"``, an error; ``"replace"``, a warning,
            and a new process with a new episode. The step that was lost is a transition that changed nothing, with
            reward 0, and cuts the episode (truncated). A process that is lost before its first whole step is an error.

    Raises:
        EnvError: If a sub-environment cannot be made or the sub-environments' spaces differ.
    """

    def __init__(
        self,
        factories: Sequence[EnvFactory],
        *,
        seed: int | None = None,
        worker: int = 0,
        check_finite: bool = True,
        info_metrics: Sequence[str] = (),
        timeout_s: float = DEFAULT_TIMEOUT_S,
        on_loss: Literal["stop", "replace"] = "stop",
    ) -> None:
        self._timeout_s, self._on_loss = timeout_s, on_loss
        self._processes: list[ProcessHandle] = []
        self._finalizer = weakref.finalize(self, end_processes, self._processes, _FAILURE_GRACE_S)
        self._actions: Any = None
        try:
            self._factories = [_pickled(factory, index) for index, factory in enumerate(factories)]
            for index, factory in enumerate(self._factories):
                self._processes.append(ProcessHandle(index, factory))
            constructed = self._answers(range(len(self._processes)), Constructed, max(timeout_s, START_TIMEOUT_S))
            spaces = [(reply.observation_space, reply.action_space) for reply in constructed.values()]
            check_same_spaces(spaces)
            common: dict[str, Any] = {"seed": seed, "worker": worker, "check_finite": check_finite}
            super().__init__(*spaces[0], len(spaces), **common, info_metrics=info_metrics)
            self._rows = range(self.num_envs)
            self._replaced = np.zeros(self.num_envs, np.int64)
            self._is_new = np.zeros(self.num_envs, np.bool_)
            self._refuse_loss(self._share_memory())
        except BaseException:
            self._close_all(failed=True)
            raise

    def _share_memory(self) -> dict[int, Lost]:
        """Shares new memory with all processes, and returns those that are lost meanwhile."""
        size = SharedBatches.size_of(self._codec, self._action_codec, self.num_envs)
        with memory_file(size) as path:
            self._send({row: Attach(path, self.num_envs) for row in self._rows})
            _, lost = self._collect(self._rows, self._timeout_s)
            self._shared = SharedBatches(path, self._codec, self._action_codec, self.num_envs)
        return lost

    def _reset_all(self, reseed: bool, options: dict[str, Any] | None) -> tuple[Batch, Infos]:
        seeds: Sequence[int | None] = (
            sub_env_seeds(self.seed, self.worker, self.num_envs, self.first) if reseed else [None] * self.num_envs
        )
        self._actions = None
        requests = {row: Reset(seeds[row], options) for row in self._rows}
        self._send(requests)
        replies, lost = self._collect(self._rows, self._timeout_s)
        if lost:
            for row in self._begin_anew(lost):  # with other memory: all are asked again
                requests[row] = Reset(self._seed_of_new(row) if seeds[row] is None else seeds[row], options)
            replies = self._ask(requests, WasReset)
        return self._codec.copy(self._first_observations(replies)), [replies[row].info for row in self._rows]

    def _convert_actions(self, actions: Batch) -> Any:
        return self._action_codec.to_vector(actions, self.num_envs)

    def _begin(self, gym_actions: Any) -> None:
        self._actions = gym_actions
        if self._shared.actions is None:
            self._send({row: Step(self._action(row)) for row in self._rows})
            return
        self._shared.write_actions(gym_actions)
        for process in self._processes:
            process.ring()

    def _finish(self) -> Advance:
        replies, lost = self._collect(self._rows, self._timeout_s)
        shared = self._shared
        final = self._final_observations(replies)
        rewards = shared.rewards.copy()
        terminated, truncated = (shared.flags & TERMINATED) != 0, (shared.flags & TRUNCATED) != 0
        resets = {row: reply.reset for row, reply in replies.items() if reply is not None and reply.reset is not None}
        infos = [{} if (reply := replies.get(row)) is None else reply.info for row in self._rows]
        current_infos = [resets[row].info if row in resets else info for row, info in enumerate(infos)]
        self._is_new[list(replies)] = False
        ended = terminated | truncated
        if not ended.any() and not lost:
            return Advance(final, rewards, terminated, truncated, final, None, ended, infos, infos)
        observations = self._codec.replace(final, self._first_observations(resets), ended)
        if lost:
            rows = np.isin(self._rows, list(lost))
            rewards[rows], terminated[rows] = 0.0, False
            final = self._codec.replace(final, self._observations, rows)
            new = self._begin_anew(lost)
            rows = np.isin(self._rows, list(new))
            truncated[rows] = True
            observations = self._codec.replace(observations, self._first_observations(new), rows)
            ended = terminated | truncated
            current_infos = [new[row].info if row in new else info for row, info in enumerate(current_infos)]
        return Advance(observations, rewards, terminated, truncated, final, None, ended, infos, current_infos)

    # -- processes that are lost ---------------------------------------------------------------------------------

    def _begin_anew(self, lost: Mapping[int, Lost]) -> dict[int, WasReset]:
        """Begins other processes, and episodes, for those that are lost, and those that are lost meanwhile."""
        new: set[int] = set()
        replies: dict[int, WasReset] = {}
        while lost:
            self._replace(lost)
            new |= lost.keys()
            lost = self._share_memory()
            if not lost:
                self._send({row: Reset(self._seed_of_new(row), None) for row in new})
                replies, lost = self._collect(new, self._timeout_s)
        return replies

    def _replace(self, lost: Mapping[int, Lost]) -> None:
        """Begins other processes for those that are lost.

        Raises:
            EnvError: One is lost again, or they are not to be replaced.
        """
        for row, loss in lost.items():
            error = self._loss(row, loss)
            if self._on_loss == "stop" or self._is_new[row]:
                raise error
            warnings.warn(f"{error}\nanother process takes its place, with a new episode", EnvWarning, stacklevel=2)
        gone = [self._processes[row] for row in lost]
        for row in lost:
            self._processes[row] = ProcessHandle(row, self._factories[row])
        end_processes(gone, 0.0)
        self._answers(lost, Constructed, max(self._timeout_s, START_TIMEOUT_S))
        self._replaced[list(lost)] += 1
        self._is_new[list(lost)] = True

    def _seed_of_new(self, row: int) -> int:
        own = sub_env_seeds(self.seed, self.worker, self.num_envs, self.first)[row]
        return derived_seed(own, f"replacement {self._replaced[row]}")

    # -- state ---------------------------------------------------------------------------------------------------

    def _save_envs(self) -> list[Data]:
        return self._states([Save()] * self.num_envs)

    def _load_envs(self, state: list[Data]) -> None:
        self._states([Load(saved) for saved in state])

    def _states(self, requests: Sequence[Any]) -> list[Any]:
        """States of the environments, as their processes report them."""
        self._send(dict(enumerate(requests)))
        replies, lost = self._collect(self._rows, self._timeout_s)
        if self._on_loss == "stop":
            self._refuse_loss(lost)
        if lost:
            raise NotData(f"{next(iter(lost.values()))} (environment {min(lost)})")
        refused = next((reply.unsaved_because for reply in replies.values() if reply.unsaved_because), None)
        if refused is not None:
            raise NotData(refused)
        return [replies[row].state for row in self._rows]

    # -- observations --------------------------------------------------------------------------------------------

    def _final_observations(self, replies: Mapping[int, Stepped | None]) -> Batch:
        if self._shared.final is not None:
            return self._codec.copy(self._shared.final)
        batch = self._codec.allocate(self.num_envs)
        for index, reply in replies.items():
            assert reply is not None
            self._write(batch, index, reply.observation)
        return batch

    def _first_observations(self, resets: Mapping[int, WasReset]) -> Batch:
        """Returns a batch in which the rows in `resets`, or of empty infos, are set; it may be shared memory."""
        if self._shared.first is not None:
            return self._shared.first
        batch = self._codec.allocate(self.num_envs)
        for index, reply in resets.items():
            self._write(batch, index, reply.observation)
        return batch

    def _write(self, batch: Batch, index: int, observation: Any) -> None:
        try:
            self._codec.write(batch, index, observation)
        except EnvError as error:
            what = f"the environment broke its contract: {error}"
            raise environment_failure(what, env=index, phase=self._phase(index)) from error

    # -- messages ------------------------------------------------------------------------------------------------

    def _send(self, requests: Mapping[int, Any]) -> None:
        for row, request in requests.items():
            self._processes[row].send(request)

    def _ask(self, requests: Mapping[int, Any], kind: type | None = None) -> dict[int, Any]:
        self._send(requests)
        return self._answers(requests, kind, self._timeout_s)

    def _answers(self, rows: Iterable[int], kind: type | None, timeout_s: float) -> dict[int, Any]:
        """One reply of each of some processes, none of which may be lost."""
        replies, lost = self._collect(rows, timeout_s)
        self._refuse_loss(lost)
        assert kind is None or all(isinstance(reply, kind) for reply in replies.values())
        return replies

    def _collect(self, rows: Iterable[int], timeout_s: float) -> tuple[dict[int, Any], dict[int, Lost]]:
        """One reply of each of some processes, and those that are lost.

        Args:
            rows: Which processes.
            timeout_s: Seconds to wait for all of them.

        Raises:
            EnvError: An environment failed.
        """
        replies: dict[int, Any] = {}
        lost: dict[int, Lost] = {}
        deadline = time.monotonic() + timeout_s

        def take(row: int) -> None:
            try:
                reply = self._processes[row].answer()
            except Lost as loss:
                lost[row] = loss
                return
            if isinstance(reply, Failed):
                raise self._failure(row, reply)
            replies[row] = reply

        pending = []
        for row in rows:  # one after the other: this process wakes less often than if it waited for any of them
            if self._processes[row].answers_within(min(_PATIENCE_S, timeout_s)):
                take(row)
            else:
                pending.append(row)
        while pending:
            ready = who_answers([self._processes[row] for row in pending], max(0.0, deadline - time.monotonic()))
            for row in sorted(ready):
                take(row)
            pending = [row for row in pending if row not in ready]
            if not ready:
                for row in pending:
                    self._processes[row].process.kill()
                    lost[row] = Lost(f"the environment has not answered for {timeout_s:g} s", hangs=True)
                break
        return replies, lost

    def _failure(self, index: int, reply: Failed) -> EnvError:
        phase = "reset" if reply.during_reset else self._phase(index)
        return environment_failure(reply.what, env=index, phase=phase, action=self._action(index), trace=reply.trace)

    def _loss(self, index: int, loss: Lost) -> EnvError:
        phase = self._phase(index)
        fix = GUARD_HINT if phase == "construction" else "its own output, above, may say why"
        if loss.hangs:
            fix = "raise timeout_s (of a training: env_timeout) if it is only slow"
        return environment_failure(str(loss), env=index, phase=phase, action=self._action(index), fix=fix)

    def _refuse_loss(self, lost: Mapping[int, Lost]) -> None:
        for row, loss in lost.items():
            raise self._loss(row, loss)

    def _phase(self, index: int) -> str:
        if not hasattr(self, "tracker"):
            return "construction"
        return "reset" if self._actions is None else self._step_phase(index)

    def _action(self, index: int) -> Any:
        return None if self._actions is None else self._action_codec.row(self._actions, index)

    def _close_all(self, failed: bool) -> None:
        if self._finalizer.detach() is not None:
            end_processes(self._processes, _FAILURE_GRACE_S if failed else _CLOSE_GRACE_S)


def _pickled(factory: EnvFactory, index: int) -> bytes:
    try:
        pickled: bytes = cloudpickle.dumps(factory)
        return pickled
    except Exception as error:
        what = f"the function that makes the environment cannot be pickled: {error}"
        raise environment_failure(what, env=index, phase="construction") from error
