"""A collective between processes, on one machine or many, over gloo, which comes with PyTorch."""

from __future__ import annotations

import datetime
import socket
from typing import Any

import numpy as np

from rlweave.errors import BackendError, PlanError, install_command
from rlweave.flow.collective import TIMEOUT_SECONDS, ArrayCollective, lost

try:
    import torch
    import torch.distributed as dist
except ImportError as missing:
    raise BackendError(
        "PyTorch is not installed, whose gloo connects the processes of several learners",
        where="rlweave.flow.collective_gloo",
        fix=install_command("torch"),
    ) from missing

_GRACE_SECONDS = 2.0
"""How long those that are left wait for each other's word, to know who is lost."""


LOOPBACK = "127.0.0.1"
"""The address at which only this machine's processes can connect."""


def open_store(host: str = LOOPBACK, port: int = 0, timeout: float = TIMEOUT_SECONDS) -> tuple[Any, int]:
    """Begins the place where ranks find each other, in the process of rank 0.

    Args:
        host: The address that it listens at: `LOOPBACK` where all ranks are on this machine; ``"0.0.0.0"``, which is
            all addresses, where they are on several.
        port: Where it listens; 0: a free one.
        timeout: Seconds that a rank may be late.

    Returns:
        The store, and its port.

    Raises:
        BackendError: The port is taken.
    """
    listening = socket.socket()  # torch itself would listen at all addresses
    try:
        listening.bind((host, port))
        listening.listen()
        port = listening.getsockname()[1]
        descriptor = listening.detach()  # the store's from here on
        store = dist.TCPStore(
            host, port, None, True, _time(timeout), wait_for_workers=False, master_listen_fd=descriptor
        )
    except (RuntimeError, ValueError, OSError, OverflowError) as error:
        listening.close()
        raise BackendError(
            "the ranks have no place to meet",
            where="rank 0, which the others connect to",
            received=f"{host}:{port}: {_first_line(error)}",
            fix="choose another port; 0 takes a free one",
        ) from error
    return store, port


class GlooCollective(ArrayCollective):
    """The side of one rank in a process of its own.

    All ranks get the same sums, bit for bit. A rank whose process ends is noticed at once, one that hangs after the
    time-out. Sums of NumPy arrays, and of torch's and JAX's on the CPU.

    Args:
        rank: Its number.
        size: Number of ranks.
        meeting: Of rank 0 the store that it opened; of others its address, "host:port".
        timeout: Seconds that a rank may be late.

    Raises:
        LostRankError: A rank does not come.
        BackendError: There is nobody at the address.
    """

    def __init__(self, rank: int, size: int, meeting: Any, timeout: float = TIMEOUT_SECONDS) -> None:
        super().__init__(rank, size)
        self._timeout = timeout
        self._store: Any = _connected(meeting, timeout) if isinstance(meeting, str) else meeting
        self._store.set(f"here/{rank}", "yes")
        missing = self._missing("here", timeout)
        if missing:
            raise lost(rank, dict.fromkeys(missing, "it did not come"), timeout)
        gloo: Any = dist.ProcessGroupGloo  # its hints lack the options
        how: Any = _time(timeout)
        if self._store.host == LOOPBACK:  # gloo itself would listen at the address of this machine's name
            how, at_loopback = gloo._Options(), gloo.create_device(hostname=LOOPBACK)
            how._timeout, how._devices = _time(timeout), [at_loopback]
        self._group: Any = gloo(dist.PrefixStore("gloo", self._store), rank, size, how)

    def _sum(self, x: np.ndarray) -> np.ndarray:
        self._run(lambda group: group.allreduce([torch.from_numpy(x)]))
        return x

    def _bytes_of_all(self, data: bytes) -> list[bytes]:
        lengths = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
        self._run(lambda group: group.allgather([lengths], [torch.tensor([len(data)])]))
        longest = max(int(length) for length in lengths)
        own = np.zeros(max(longest, 1), np.uint8)
        own[: len(data)] = np.frombuffer(data, np.uint8)
        everything = [torch.zeros(own.size, dtype=torch.uint8) for _ in range(self.size)]
        self._run(lambda group: group.allgather([everything], [torch.from_numpy(own)]))
        return [part.numpy()[: int(length)].tobytes() for part, length in zip(everything, lengths, strict=True)]

    def _run(self, begin: Any) -> None:
        if self._group is None:
            raise PlanError(
                "a rank that has left takes part in nothing more",
                where=f"rank {self.rank}",
                received="a collective that is closed, or has lost a rank",
                fix="begin a new one",
            )
        try:
            begin(self._group).wait(_time(self._timeout))
        except RuntimeError as error:
            reason = _first_line(error)
            self.close()  # which ends the wait of the others, too
            missing = self._lost_ranks()
            raise lost(self.rank, dict.fromkeys(missing, reason), self._timeout) from error

    def _lost_ranks(self) -> list[int]:
        """The ranks that do not say, as this one does, that another one is lost."""
        others = [rank for rank in range(self.size) if rank != self.rank]
        if len(others) == 1:
            return others
        try:
            self._store.set(f"left/{self.rank}", "yes")
        except RuntimeError:
            return [0]  # the store is in its process
        return self._missing("left", min(_GRACE_SECONDS, self._timeout))

    def _missing(self, word: str, seconds: float) -> list[int]:
        """The ranks that do not say a word within so many seconds, all together."""
        keys = [f"{word}/{rank}" for rank in range(self.size)]
        try:
            self._store.wait(keys, _time(seconds))
            return []
        except RuntimeError:
            return [rank for rank, key in enumerate(keys) if not self._says(key)]

    def _says(self, key: str) -> bool:
        try:
            return bool(self._store.check([key]))
        except RuntimeError:
            return False

    def close(self) -> None:
        """See `Collective`."""
        self._group = None  # the connections go with it


def _connected(address: str, timeout: float) -> Any:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=timeout).close()  # torch repeats and warns for long
        return dist.TCPStore(host, int(port), None, False, _time(timeout), wait_for_workers=False)
    except (RuntimeError, ValueError, OSError) as error:
        raise BackendError(
            "rank 0 cannot be reached",
            where="a rank that is to meet the others",
            received=f"{address}: {_first_line(error)}",
            fix="see whether its process runs, and whether a firewall is between the machines",
        ) from error


def _time(seconds: float) -> datetime.timedelta:
    return datetime.timedelta(seconds=seconds)


def _first_line(error: BaseException) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
