"""Sub-environments in processes of their own: for slow environments, and for ones that may hang or crash."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import selectors
import signal
import tempfile
import time
import weakref
from collections.abc import Sequence
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

import cloudpickle
import numpy as np

from rlweave.envs.batching import Batch
from rlweave.envs.env_process import (
    Attach,
    Constructed,
    Failed,
    Load,
    Reset,
    Save,
    Saved,
    SharedBatches,
    Step,
    Stepped,
    WasReset,
    can_share,
    run_env_process,
)
from rlweave.envs.failures import environment_failure
from rlweave.envs.object_state import Data, NotData
from rlweave.envs.seeding import sub_env_seeds
from rlweave.envs.steps import Advance, Infos
from rlweave.envs.sync_env import EnvFactory, check_same_spaces
from rlweave.envs.vector_env import VectorEnv
from rlweave.errors import EnvError

DEFAULT_TIMEOUT_S = 60.0
START_TIMEOUT_S = 120.0
_CLOSE_GRACE_S = 5.0
_FAILURE_GRACE_S = 2.0
_GUARD_HINT = (
    "start environments below `if __name__ == '__main__':` in a script, as their processes import its module; "
    "check that the environment can be made at all"
)


class AsyncEnv(VectorEnv):
    """Steps its sub-environments at the same time, each in a process; every step gives one transition for each.

    Processes are started by ``forkserver`` (``spawn`` where there is none), never by ``fork``, which can dead-lock
    once JAX or another library has started threads. They end with this object, with this process (even when it is
    killed), and at the first failure of any of them.

    Args:
        factories: Makes each sub-environment; they are pickled by value where need be (cloudpickle).
        seed: As in `VectorEnv`.
        worker: As in `VectorEnv`.
        check_finite: As in `VectorEnv`.
        info_metrics: As in `VectorEnv`.
        timeout_s: Seconds after which a reset or step that has not answered is an error. Starting processes and
            making environments gets at least `START_TIMEOUT_S`.

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
    ) -> None:
        self._timeout_s = timeout_s
        self._processes: list[BaseProcess] = []
        self._connections: list[Connection] = []
        self._selector = selectors.DefaultSelector()
        self._finalizer = weakref.finalize(
            self, _end_processes, self._processes, self._connections, self._selector, _FAILURE_GRACE_S
        )
        self._actions: Sequence[Any] | None = None
        try:
            self._start(factories)
            constructed: list[Constructed] = self._collect(max(timeout_s, START_TIMEOUT_S), Constructed)
            spaces = [(reply.observation_space, reply.action_space) for reply in constructed]
            check_same_spaces(spaces)
            common: dict[str, Any] = {"seed": seed, "worker": worker, "check_finite": check_finite}
            super().__init__(*spaces[0], len(spaces), **common, info_metrics=info_metrics)
            self._shared = self._share_memory() if can_share(self._codec) else None
        except BaseException:
            self._close_all(failed=True)
            raise

    def _start(self, factories: Sequence[EnvFactory]) -> None:
        method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
        context = multiprocessing.get_context(method)
        if method == "forkserver":
            # Processes start from a server that has imported this already: 10 ms instead of 400. Python's own choice,
            # "__main__", is left out: a script that computes with JAX at its top level would do so in the server,
            # which then forks.
            context.set_forkserver_preload(["rlweave.envs.env_process"])
        for index, factory in enumerate(factories):
            try:
                pickled = cloudpickle.dumps(factory)
            except Exception as error:
                what = f"the function that makes the environment cannot be pickled: {error}"
                raise environment_failure(what, env=index, phase="construction") from error
            ours, theirs = context.Pipe()
            self._connections.append(ours)
            process = context.Process(  # type: ignore[attr-defined]
                target=run_env_process, args=(theirs, index, pickled), name=f"rlweave-env-{index}", daemon=True
            )
            try:
                process.start()
            except (OSError, EOFError) as error:
                what = f"the process could not be started: {error!r}"
                raise environment_failure(what, env=index, phase="construction", fix=_GUARD_HINT) from error
            finally:
                theirs.close()
            self._processes.append(process)
            self._selector.register(ours, selectors.EVENT_READ, index)

    def _share_memory(self) -> SharedBatches:
        size = SharedBatches.size_of(self._codec, self.num_envs)
        path = _make_file(size)
        try:
            self._send([Attach(path, self.num_envs)] * self.num_envs)
            self._collect(self._timeout_s, None)
            return SharedBatches(path, self._codec, self.num_envs)
        finally:
            # Mapped memory lives on; without a name it cannot be left behind.
            os.unlink(path)

    def _reset_all(self, reseed: bool, options: dict[str, Any] | None) -> tuple[Batch, Infos]:
        seeds: Sequence[int | None] = (
            sub_env_seeds(self.seed, self.worker, self.num_envs) if reseed else [None] * self.num_envs
        )
        self._actions = None
        self._send([Reset(seed, options) for seed in seeds])
        replies: list[WasReset] = self._collect(self._timeout_s, WasReset)
        first = self._first_observations(dict(enumerate(replies)))
        return self._codec.copy(first), [reply.info for reply in replies]

    def _convert_actions(self, actions: Batch) -> Sequence[Any]:
        return self._action_codec.split(actions, self.num_envs)

    def _begin(self, gym_actions: Sequence[Any]) -> None:
        self._actions = gym_actions
        self._send([Step(action) for action in gym_actions])

    def _finish(self) -> Advance:
        replies: list[Stepped] = self._collect(self._timeout_s, Stepped)
        rewards = np.array([reply.reward for reply in replies], np.float64)
        terminated = np.array([reply.terminated for reply in replies], np.bool_)
        truncated = np.array([reply.truncated for reply in replies], np.bool_)
        infos = [reply.info for reply in replies]
        ended = terminated | truncated
        final = self._final_observations(replies)
        if not ended.any():
            return Advance(final, rewards, terminated, truncated, final, None, ended, infos, infos)
        resets = {index: reply.reset for index, reply in enumerate(replies) if reply.reset is not None}
        observations = self._codec.replace(final, self._first_observations(resets), ended)
        current_infos = [info if index not in resets else resets[index].info for index, info in enumerate(infos)]
        return Advance(observations, rewards, terminated, truncated, final, None, ended, infos, current_infos)

    def _save_envs(self) -> list[Data]:
        return self._ask([Save()] * self.num_envs)

    def _load_envs(self, state: list[Data]) -> None:
        self._ask([Load(saved) for saved in state])

    def _ask(self, requests: Sequence[Any]) -> list[Any]:
        """States of the environments, as their processes report them."""
        self._send(requests)
        replies: list[Saved] = self._collect(self._timeout_s, Saved)
        refused = next((reply.unsaved_because for reply in replies if reply.unsaved_because), None)
        if refused is not None:
            raise NotData(refused)
        return [reply.state for reply in replies]

    def _final_observations(self, replies: Sequence[Stepped]) -> Batch:
        if self._shared is not None:
            return self._codec.copy(self._shared.final)
        batch = self._codec.allocate(self.num_envs)
        for index, reply in enumerate(replies):
            self._write(batch, index, reply.observation)
        return batch

    def _first_observations(self, resets: dict[int, WasReset]) -> Batch:
        """Returns a batch in which the rows in `resets` are set; it may be shared memory."""
        if self._shared is not None:
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

    def _send(self, requests: Sequence[Any]) -> None:
        for index, (connection, request) in enumerate(zip(self._connections, requests, strict=True)):
            try:
                connection.send(request)
            except OSError:
                raise self._death(index) from None

    def _collect(self, timeout_s: float, kind: type | None) -> list[Any]:
        """Returns one reply of each process.

        Args:
            timeout_s: Seconds to wait for all of them.
            kind: The only right kind of reply; None takes any but a failure.
        """
        replies: list[Any] = [None] * len(self._connections)
        pending = set(range(len(replies)))
        deadline = time.monotonic() + timeout_s
        while pending:
            ready = self._selector.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                raise self._hang(min(pending), pending, timeout_s)
            for key, _ in ready:
                index: int = key.data
                try:
                    reply = key.fileobj.recv()  # type: ignore[union-attr]
                except (EOFError, OSError):
                    raise self._death(index) from None
                if isinstance(reply, Failed):
                    raise self._failure(index, reply)
                assert kind is None or isinstance(reply, kind)
                replies[index] = reply
                pending.discard(index)
        return replies

    def _failure(self, index: int, reply: Failed) -> EnvError:
        phase = "reset" if reply.during_reset else self._phase(index)
        return environment_failure(reply.what, env=index, phase=phase, action=self._action(index), trace=reply.trace)

    def _death(self, index: int) -> EnvError:
        process = self._processes[index]
        process.join(_CLOSE_GRACE_S)
        code = process.exitcode
        if code is None:
            how = "closed its connection"
        elif code < 0:
            how = f"was killed by {_signal_name(-code)}"
        else:
            how = f"ended with exit code {code}"
        phase = self._phase(index)
        fix = _GUARD_HINT if phase == "construction" else "its own output, above, may say why"
        what = f"the process of the environment {how}"
        return environment_failure(what, env=index, phase=phase, action=self._action(index), fix=fix)

    def _hang(self, index: int, pending: set[int], timeout_s: float) -> EnvError:
        for hung in pending:
            self._processes[hung].kill()
        what = f"the environment has not answered for {timeout_s:g} s"
        if len(pending) > 1:
            what += f" (nor have environments {sorted(pending)[1:]})"
        fix = "raise timeout_s (of a training: env_timeout) if it is only slow"
        return environment_failure(what, env=index, phase=self._phase(index), action=self._action(index), fix=fix)

    def _phase(self, index: int) -> str:
        if not hasattr(self, "tracker"):
            return "construction"
        return "reset" if self._actions is None else self._step_phase(index)

    def _action(self, index: int) -> Any:
        return None if self._actions is None else self._actions[index]

    def _close_all(self, failed: bool) -> None:
        if self._finalizer.detach() is not None:
            grace_s = _FAILURE_GRACE_S if failed else _CLOSE_GRACE_S
            _end_processes(self._processes, self._connections, self._selector, grace_s)


def _end_processes(
    processes: Sequence[BaseProcess],
    connections: Sequence[Connection],
    selector: selectors.BaseSelector,
    grace_s: float,
) -> None:
    """Ends all processes: asks first (a closed connection is the request), then insists."""
    selector.close()
    for connection in connections:
        connection.close()
    deadline = time.monotonic() + grace_s
    for process in processes:
        process.join(max(0.0, deadline - time.monotonic()))
    for process in processes:
        if process.exitcode is None:
            process.kill()
    for process in processes:
        process.join()
        process.close()


def _make_file(size: int) -> str:
    """Returns the path of a new file with that many bytes, in memory if there is room for it."""
    for directory in ("/dev/shm", None):
        if directory is not None and not os.access(directory, os.W_OK):
            continue
        descriptor, path = tempfile.mkstemp(prefix="rlweave-", dir=directory)
        try:
            # Writing beyond a full file system through a mapping would kill the process; this asks for the room first.
            os.posix_fallocate(descriptor, 0, size)
            return path
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(path)
            if directory is None:
                raise
        finally:
            os.close(descriptor)
    raise AssertionError("the last directory either returns or raises")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
