"""Collectives: what several ranks of one training compute together, on whichever engine they live.

A rank is one of several learners with equal weights. All ranks call the same methods in the same order; each call ends
when all of them are there, with the same result everywhere, bit for bit, and within a time-out if one is not.
"""

from __future__ import annotations

import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from rlweave.errors import PlanError
from rlweave.strict_json import to_json
from rlweave.tree import flatten_tree, unflatten_like

TIMEOUT_SECONDS = 300.0
"""How long a rank may be late, unless the settings say otherwise: the first update compiles."""
_COMPARED_CALLS = 64
"""Calls before each of which the ranks compare what they bring; after these they do the same over and over."""


class LostRankError(PlanError):
    """A rank did not take part: its process ended, it failed, or it hangs."""


class Collective(Protocol):
    """The side of one rank. Arrays may be of any framework, on the CPU; NumPy arrays of their own come back.

    Every method raises `LostRankError`, which names the ranks that are missing, within the time-out.

    Attributes:
        rank: Its number, from 0.
        size: Number of ranks.
    """

    rank: int
    size: int

    def all_reduce(self, tree: Any, weight: float | None = None) -> Any:
        """The sum of nested arrays over all ranks; with weights w their mean, sum(w x) / sum(w), for floats."""
        ...

    def broadcast(self, tree: Any, root: int = 0) -> Any:
        """The nested arrays of one rank."""
        ...

    def gather(self, data: Any) -> list[Any]:
        """JSON-able data of all ranks, in their order."""
        ...

    def barrier(self) -> None:
        """Ends when all ranks are there."""
        ...

    def leave(self, reason: str) -> None:
        """Says that this rank takes part no more, so that the others need not wait for it."""
        ...

    def close(self) -> None:
        """Gives connections back."""
        ...


_SAME = "start all ranks with the same settings and the same version of rlweave"


def agree(collective: Collective, settings: Mapping[str, Any], what: str = "settings", fix: str = _SAME) -> None:
    """Checks that all ranks have equal settings.

    Args:
        collective: The ranks.
        settings: JSON-able data by name.
        what: What they are, for the error.
        fix: What to do where they differ.

    Raises:
        PlanError: They differ; names the first setting that does, and its values.
    """
    everyone = collective.gather(settings)
    for name in dict.fromkeys(name for own in everyone for name in own):
        values = [own.get(name) for own in everyone]
        if any(value != values[0] for value in values):
            raise PlanError(
                f"ranks of one training have different {what}",
                where=f"{name!r}",
                received=", ".join(f"rank {rank}: {value!r}" for rank, value in enumerate(values)),
                fix=fix,
            )


class ArrayCollective(ABC):
    """A collective of two primitives: the sum of flat arrays, and bytes of all ranks.

    A tree travels as one contiguous array for each dtype.

    Args:
        rank: Its number.
        size: Number of ranks.
    """

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self._calls = 0

    @abstractmethod
    def _sum(self, x: np.ndarray) -> np.ndarray:
        """The sum of a flat array over all ranks, added in the same order on each; x may be overwritten."""

    @abstractmethod
    def _bytes_of_all(self, data: bytes) -> list[bytes]:
        """What each rank gives, in their order."""

    def all_reduce(self, tree: Any, weight: float | None = None) -> Any:
        """See `Collective`."""
        arrays = {path: np.asarray(leaf) for path, leaf in flatten_tree(tree).items()}
        self._compare("all_reduce" if weight is None else "weighted all_reduce", arrays)
        results: dict[str, np.ndarray] = {}
        for dtype in sorted({array.dtype.str for array in arrays.values()}):
            paths = sorted(path for path, array in arrays.items() if array.dtype.str == dtype)
            flat = np.concatenate([arrays[path].reshape(-1) for path in paths])
            flat = self._sum(flat) if weight is None else self._mean(flat, weight)
            results.update(_cut(flat, {path: arrays[path] for path in paths}))
        return unflatten_like(tree, results)

    def _mean(self, x: np.ndarray, weight: float) -> np.ndarray:
        if x.dtype.kind != "f":
            raise PlanError(
                "only floats have a weighted mean",
                where=f"all_reduce, rank {self.rank}",
                received=f"{x.dtype} with weight {weight:g}",
                fix="leave the weight out, which sums, or convert to float32",
            )
        # a rank without rows has a mean of nothing, NaN perhaps, and no part in that of all
        weighted = x * x.dtype.type(weight) if weight else np.zeros_like(x)
        *summed, total = np.split(self._sum(np.append(weighted, x.dtype.type(weight))), [x.size])
        if not total[0] > 0:
            raise PlanError(
                "a mean over ranks that have nothing",
                where=f"all_reduce, rank {self.rank}",
                received=f"weights that sum up to {total[0]:g}",
                fix="give at least one rank rows to learn from",
            )
        return np.divide(summed[0], total[0], out=summed[0])

    def broadcast(self, tree: Any, root: int = 0) -> Any:
        """See `Collective`."""
        arrays = {path: np.asarray(leaf) for path, leaf in flatten_tree(tree).items()}
        self._compare(f"broadcast of rank {root}", arrays)
        results: dict[str, np.ndarray] = {}
        for path in sorted(arrays):
            array = np.ascontiguousarray(arrays[path]).reshape(arrays[path].shape)
            # as bytes, since 0 and the other ranks' zeros add up to them, whatever the type
            own = array.reshape(-1).view(np.uint8) if self.rank == root else np.zeros(array.nbytes, np.uint8)
            results[path] = self._sum(own.copy()).view(array.dtype).reshape(array.shape)
        return unflatten_like(tree, results)

    def gather(self, data: Any) -> list[Any]:
        """See `Collective`."""
        return [json.loads(own) for own in self._bytes_of_all(to_json(data).encode())]

    def barrier(self) -> None:
        """See `Collective`."""
        self._bytes_of_all(b"")

    def leave(self, reason: str) -> None:
        """See `Collective`."""
        self.close()

    @abstractmethod
    def close(self) -> None:
        """See `Collective`."""

    def _compare(self, method: str, arrays: Mapping[str, np.ndarray]) -> None:
        """Checks that all ranks bring the same: gloo ends the process where sizes differ."""
        self._calls += 1
        if self._calls <= _COMPARED_CALLS:
            brought = {path: [array.dtype.str, list(array.shape)] for path, array in sorted(arrays.items())}
            agree(self, {"method": method, **brought}, "arrays or calls")


def _cut(flat: np.ndarray, like: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A flat array as arrays of the shapes that others have."""
    cut, begin = {}, 0
    for path, array in like.items():
        cut[path] = flat[begin : begin + array.size].reshape(array.shape)
        begin += array.size
    return cut


class LocalCollective(ArrayCollective):
    """The side of one rank among threads of this process. Made by `local_collectives`.

    Args:
        rank: Its number.
        meeting: Where the ranks meet.
    """

    def __init__(self, rank: int, meeting: _Meeting) -> None:
        super().__init__(rank, meeting.size)
        self._meeting = meeting

    def _sum(self, x: np.ndarray) -> np.ndarray:
        first, *others = self._meeting.exchange(self.rank, x)
        total = first.copy()
        for other in others:
            total += other
        return total

    def _bytes_of_all(self, data: bytes) -> list[bytes]:
        return list(self._meeting.exchange(self.rank, data))

    def leave(self, reason: str) -> None:
        """See `Collective`."""
        self._meeting.leave(self.rank, reason)

    def close(self) -> None:
        """See `Collective`."""
        self._meeting.leave(self.rank, "it was closed")


def local_collectives(size: int, timeout: float = TIMEOUT_SECONDS) -> list[LocalCollective]:
    """Collectives of so many ranks in threads of this process: sums are added in the order of ranks.

    Args:
        size: Number of ranks.
        timeout: Seconds that a rank may be late.
    """
    meeting = _Meeting(size, timeout)
    return [LocalCollective(rank, meeting) for rank in range(size)]


class _Meeting:
    """Threads that meet, each with something that all of them get."""

    def __init__(self, size: int, timeout: float) -> None:
        self.size, self._timeout = size, timeout
        self._changed = threading.Condition()
        self._given: dict[int, Any] = {}
        self._met = 0
        self._everything: list[Any] = []
        #: Ranks that were missing first, and why.
        self._gone: dict[int, str] = {}

    def exchange(self, rank: int, given: Any) -> list[Any]:
        """What all ranks give, in their order, when the last one is there."""
        with self._changed:
            number = self._met
            if self._gone:
                raise lost(rank, self._gone, self._timeout)
            self._given[rank] = given
            if len(self._given) == self.size:
                # nobody overwrites this before all have taken it: the next meeting needs all of them
                self._everything = [self._given[other] for other in range(self.size)]
                self._given = {}
                self._met += 1
                self._changed.notify_all()
            self._changed.wait_for(lambda: self._met > number or bool(self._gone), self._timeout)
            if self._met > number:
                return self._everything
            if not self._gone:
                self._gone = {other: "it did not come" for other in range(self.size) if other not in self._given}
                self._changed.notify_all()
            raise lost(rank, self._gone, self._timeout)

    def leave(self, rank: int, reason: str) -> None:
        with self._changed:
            if not self._gone:  # else it leaves because another one did
                self._gone = {rank: reason}
                self._changed.notify_all()


def lost(rank: int, missing: Mapping[int, str], timeout: float) -> LostRankError:
    """The error of a rank that others did not meet.

    Args:
        rank: The rank that waited.
        missing: By number of a rank that was lost why, as far as it is known.
        timeout: Seconds that a rank may be late.
    """
    names = " and ".join(f"rank {other}" for other in missing) or "another rank"
    why = "; ".join(f"rank {other}: {reason}" for other, reason in missing.items()) or "it did not come"
    return LostRankError(
        f"{names} did not take part in what all ranks do together",
        where=f"rank {rank}, which waits for up to {timeout:g} seconds",
        received=why,
        fix="see the error of that rank, or its process; a slow one gets more time by the setting of the time-out",
    )


def run_in_step(calls: Sequence[Callable[[], Any]], collectives: Sequence[Collective]) -> list[Any]:
    """Runs a function for each rank at the same time, in threads; their results, in the order of ranks.

    Args:
        calls: One function for each rank.
        collectives: Those of the ranks: one whose function fails leaves, so that the others end.

    Raises:
        Exception: What the first rank raised that failed of itself.
    """
    results: list[Any] = [None] * len(calls)
    errors: dict[int, BaseException] = {}

    def run(rank: int) -> None:
        try:
            results[rank] = calls[rank]()
        except BaseException as error:
            errors[rank] = error
            collectives[rank].leave(f"{type(error).__name__}: {error}".splitlines()[0])

    threads = [threading.Thread(target=run, args=(rank,), name=f"rank {rank}") for rank in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        own = [error for error in errors.values() if not isinstance(error, LostRankError)]
        raise (own or list(errors.values()))[0]
    return results
