"""The process of one sub-environment, as the process that began it sees it."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import select
import signal
import time
from collections.abc import Iterable
from typing import Any

from rlweave.envs.env_process import LENGTH_BYTES, MESSAGE, SHARED, run_env_process
from rlweave.envs.failures import environment_failure

_CLOSE_GRACE_S = 5.0
_MOST_AT_ONCE = 1 << 12
GUARD_HINT = (
    "start environments below `if __name__ == '__main__':` in a script, as their processes import its module; "
    "check that the environment can be made at all"
)


class Lost(Exception):  # noqa: N818 (its receiver decides whether it is an error)
    """The process of an environment has ended, or does not answer; its text says which.

    Args:
        what: The text.
        hangs: Whether it has not answered in time.
    """

    def __init__(self, what: str, hangs: bool = False) -> None:
        super().__init__(what)
        self.hangs = hangs


class ProcessHandle:
    """A process that was begun for an environment.

    It is begun by ``forkserver`` (``spawn`` where there is none), never by ``fork``, which can dead-lock once JAX or
    another library has started threads.

    Args:
        index: Index of the environment.
        factory: A pickled function without arguments that makes it.

    Attributes:
        descriptor: The file descriptor of our end of the connection.

    Raises:
        EnvError: The process could not be begun.
    """

    def __init__(self, index: int, factory: bytes) -> None:
        self.index = index
        method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
        context = multiprocessing.get_context(method)
        if method == "forkserver":
            # Processes start from a server that has imported this already: 10 ms instead of 400. Python's own choice,
            # "__main__", is left out: a script that computes with JAX at its top level would do so in the server,
            # which then forks.
            context.set_forkserver_preload(["rlweave.envs.env_process"])
        self._connection, theirs = context.Pipe()
        self.process = context.Process(  # type: ignore[attr-defined]
            target=run_env_process, args=(theirs, index, factory), name=f"rlweave-env-{index}", daemon=True
        )
        self.descriptor = self._connection.fileno()
        self._poll = select.poll()
        self._poll.register(self.descriptor, select.POLLIN)
        try:
            self.process.start()
        except (OSError, EOFError) as error:
            self._connection.close()
            what = f"the process could not be started: {error!r}"
            raise environment_failure(what, env=index, phase="construction", fix=GUARD_HINT) from error
        finally:
            theirs.close()

    @property
    def pid(self) -> int:
        """The number of the process."""
        pid: int = self.process.pid
        return pid

    def ring(self) -> None:
        """Asks for a step with the shared action; an end of the process shows at the answer."""
        try:  # noqa: SIM105 (a step of a small environment would notice the time that `suppress` takes)
            os.write(self.descriptor, SHARED)
        except OSError:
            pass

    def send(self, request: Any) -> None:
        """Sends a request; an end of the process shows at the answer."""
        with contextlib.suppress(OSError):
            os.write(self.descriptor, MESSAGE)
            self._connection.send(request)

    def answers_within(self, seconds: float) -> bool:
        """Whether there is an answer, or the end of the process, within so many seconds."""
        return bool(self._poll.poll(1e3 * seconds))

    def answer(self) -> Any:
        """The answer to a request, for which it waits; None if all of it is in shared memory.

        Raises:
            Lost: The process has ended.
        """
        data = self._read()
        if data == SHARED:
            return None
        head = len(MESSAGE) + LENGTH_BYTES
        while len(data) < head or len(data) < head + int.from_bytes(data[1:head], "big"):
            data += self._read()
        return pickle.loads(data[head:])  # noqa: S301 (of a process that this one began)

    def _read(self) -> bytes:
        """What there is to read."""
        try:
            data = os.read(self.descriptor, _MOST_AT_ONCE)
        except OSError:
            data = b""
        if not data:
            raise Lost(f"the process of the environment {self._ending()}")
        return data

    def _ending(self) -> str:
        self.process.join(_CLOSE_GRACE_S)
        code = self.process.exitcode
        if code is None:
            self.process.kill()
            return "closed its connection"
        return f"was killed by {_signal_name(-code)}" if code < 0 else f"ended with exit code {code}"

    def release(self) -> None:
        """Asks the process to close its environment and to end."""
        self._connection.close()

    def end(self, deadline: float) -> None:
        """Waits for the end of a process that was released, until a time; then it is killed."""
        self.process.join(max(0.0, deadline - time.monotonic()))
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join()
        self.process.close()


def who_answers(handles: Iterable[ProcessHandle], seconds: float) -> set[int]:
    """The indices of those of which there is an answer, or an end, as soon as there is one, within so many seconds."""
    poll = select.poll()
    index_of = {handle.descriptor: handle.index for handle in handles}
    for descriptor in index_of:
        poll.register(descriptor, select.POLLIN)
    return {index_of[descriptor] for descriptor, _ in poll.poll(1e3 * seconds)}


def end_processes(handles: list[ProcessHandle], grace_s: float) -> None:
    """Ends processes: asks first, then insists."""
    for handle in handles:
        handle.release()
    deadline = time.monotonic() + grace_s
    for handle in handles:
        handle.end(deadline)
    handles.clear()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
