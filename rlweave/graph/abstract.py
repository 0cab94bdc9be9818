"""Abstract evaluation: the result spaces of a graph function from its input spaces.

Batch and time are varied one at a time, with primes that are no feature size of the graph, and every result axis is
fitted as `factor * symbols + offset`. Results are cached for the process.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from rlweave.backends import Backend
from rlweave.backends.base import ArrayUseError, Evaluation, Suspect
from rlweave.errors import BuildError
from rlweave.graph.ir import Structure
from rlweave.graph.stand_ins import NoArray
from rlweave.spaces import Box, Dim, from_axes
from rlweave.spaces.dim import fixed_size
from rlweave.tree import tree_map

_PRIMES = (11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97)
_LARGEST_OFFSET = 8


@dataclass
class Inference:
    """What abstract evaluation says about one call.

    Args:
        result: Nested result with spaces as leaves (constants stay).
        reads: Positions of the variables read.
        writes: Positions of the variables written.
        row_writes: Positions of those written by `assign_at`.
        aliased_writes: Positions written with an array that may be an argument or another variable.
        alias_variables: Positions of variables that a result may share memory with.
        alias_arguments: Whether a result may share memory with an argument.
        random: Random numbers are drawn.
    """

    result: Structure
    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    row_writes: tuple[int, ...] = ()
    aliased_writes: tuple[int, ...] = ()
    alias_variables: tuple[int, ...] = ()
    alias_arguments: bool = False
    random: bool = False


class RecordingCell(NoArray):
    """A cell that notes what a graph function does with it and keeps nothing."""

    __slots__ = ("_log", "_value", "index", "path", "space")

    def misuse(self) -> ArrayUseError:
        """The error for what computes with it in place of its array."""
        return ArrayUseError(f"a variable was used as if it were its array: {self.path}", "read it: self.<name>.value")

    def refuse(self) -> NoReturn:
        raise self.misuse()

    def __init__(self, index: int, path: str, space: Box, log: CellLog) -> None:
        self.index, self.path, self.space, self._log = index, path, space, log
        self._value: Any = None

    @property
    def value(self) -> Any:
        self._log.reads.append(self.index)
        return self._value

    @value.setter
    def value(self, x: Any) -> None:
        raise ArrayUseError(f"a variable was set by `.value = `: {self.path}", "write self.<name>.assign(x)")

    @property
    def shape(self) -> tuple[int, ...]:
        return self.space.concrete_shape({})

    @property
    def dtype(self) -> Any:
        return self._value.dtype

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        self.refuse()

    def assign(self, x: Any) -> None:
        if isinstance(x, RecordingCell):
            x.refuse()
        shape = tuple(getattr(x, "shape", ()))
        if shape != self.shape:
            raise BuildError(
                "a variable was assigned an array of another shape",
                where=self.path,
                received=f"shape {shape}, the variable has {self.shape}",
                fix="assign an array of the variable's shape",
            )
        self._log.writes.append(self.index)
        self._log.written_values.append((self.index, x))
        self._value = x

    def assign_at(self, indices: Any, x: Any) -> None:
        self._log.reads.append(self.index)
        self._log.writes.append(self.index)
        self._log.row_writes.append(self.index)


@dataclass
class CellLog:
    """What happened to the recording cells of one trial: positions of variables."""

    reads: list[int] = field(default_factory=list)
    writes: list[int] = field(default_factory=list)
    row_writes: list[int] = field(default_factory=list)
    written_values: list[tuple[int, Any]] = field(default_factory=list)


class ScratchRandom:
    """The state cell of random draws during abstract evaluation."""

    def __init__(self, value: Any) -> None:
        self._value, self.used = value, False

    @property
    def value(self) -> Any:
        self.used = True
        return self._value

    @value.setter
    def value(self, new: Any) -> None:
        pass


def infer(
    backend: Backend,
    call: Callable[[Sequence[Any]], Structure],
    leaves: Sequence[Box],
    cells: Sequence[RecordingCell],
    log: CellLog,
    random: ScratchRandom,
    feature_sizes: set[int],
    *,
    mixes_batch: bool,
    where: str,
    host: bool = False,
) -> Inference:
    """Infers result spaces.

    Args:
        backend: The backend to evaluate on.
        call: The bound call: from argument leaves to a nested result.
        leaves: Spaces of the argument leaves.
        cells: Recording cells of the variables it may touch.
        log: Their common log.
        random: State cell of the random draws.
        feature_sizes: Sizes that may not stand for a batch or time axis.
        mixes_batch: Arrays with the batch axis twice are meant.
        where: Component path and function, for errors.
        host: The function runs in NumPy on the host.
    """
    symbols = sorted(
        {symbol for leaf in leaves for axis in leaf.axes if isinstance(axis, Dim) for symbol in axis.symbols}
    )
    trial = _Trial(backend, call, leaves, cells, log, random, host)
    primes = [prime for prime in _PRIMES if prime not in feature_sizes]
    try:
        return trial.run(symbols, primes, mixes_batch, where)
    except _DoubleBatchError:
        raise
    except Exception:
        free = [symbol for symbol in symbols if fixed_size(symbol) is None]
        if free == symbols:
            raise
    # the function may count on the number of a fixed rank: (B=64,) as (4, 16)
    return trial.run(free, primes, mixes_batch, where, pinned=[s for s in symbols if s not in free])


class _DoubleBatchError(BuildError):
    """An intermediate array has the batch axis twice."""


class _Trial:
    """One call of a graph function, evaluated for several batch and time sizes."""

    def __init__(
        self,
        backend: Backend,
        call: Callable[[Sequence[Any]], Structure],
        leaves: Sequence[Box],
        cells: Sequence[RecordingCell],
        log: CellLog,
        random: ScratchRandom,
        host: bool,
    ) -> None:
        self.backend, self.call, self.leaves, self.host = backend, call, leaves, host
        self.cells, self.log, self.random = cells, log, random
        self.structure: Structure = None
        self.written: list[tuple[int, Any]] = []
        self.constants: list[list[Any]] = []
        self.specs = [(cell.shape, cell.space.dtype) for cell in cells]
        self.fill = [_fill(leaf) for leaf in leaves] + [1] * len(cells)
        self.shared: set[int] = set()

    def run(
        self, symbols: Sequence[str], primes: Sequence[int], mixes_batch: bool, where: str, pinned: Sequence[str] = ()
    ) -> Inference:
        """Varies each symbol and fits the result axes; pinned symbols keep their numbers."""
        remaining = iter(primes)
        base = {symbol: next(remaining) for symbol in symbols}
        other = {symbol: next(remaining) for symbol in symbols}
        batch_symbols = [] if mixes_batch else [symbol for symbol in symbols if symbol.startswith("B")]
        self.constants = []
        first = self._evaluate(base, batch_symbols)
        varied = {symbol: self._evaluate({**base, symbol: other[symbol]}, batch_symbols) for symbol in symbols}
        for symbol in batch_symbols:
            suspect = _confirmed_suspect(first, varied[symbol], base[symbol], other[symbol])
            if suspect is not None:
                _refuse_double_batch(suspect, base, where)
        _check_constants(self.constants, where)
        written = self.written
        count = len(first.results) - len(written)
        evaluations = (first, *varied.values())
        spaces = [
            _with_pinned(_fit([e.results[i] for e in evaluations], symbols, base, other, where), pinned)
            for i in range(count)
        ]
        cells_at = len(self.leaves)
        alias_positions = set(itertools.chain.from_iterable(first.aliases[:count]))
        aliased_writes = [
            index
            for (index, _), aliases in zip(written, first.aliases[count:], strict=True)
            if aliases - {cells_at + index}
        ]
        return Inference(
            result=tree_map(
                lambda leaf: leaf.value if isinstance(leaf, _Constant) else spaces[leaf.index], self.structure
            ),
            reads=tuple(dict.fromkeys(self.log.reads)),
            writes=tuple(dict.fromkeys(self.log.writes)),
            row_writes=tuple(dict.fromkeys(self.log.row_writes)),
            aliased_writes=tuple(dict.fromkeys([*aliased_writes, *self.shared])),
            alias_variables=tuple(sorted(p - cells_at for p in alias_positions if p >= cells_at)),
            alias_arguments=any(p < cells_at for p in alias_positions),
            random=self.random.used,
        )

    def _evaluate(self, sizes: dict[str, int], batch_symbols: Sequence[str]) -> Evaluation:
        specs = [(leaf.concrete_shape(sizes), leaf.dtype) for leaf in self.leaves] + self.specs
        watched = frozenset(sizes[symbol] for symbol in batch_symbols)
        try:
            return self.backend.evaluate(self._call, specs, self.fill, watched, self.host)
        except (IndexError, RuntimeError):
            zeros = [0 if leaf.dtype.startswith(("int", "uint")) else 1 for leaf in self.leaves] + [1] * len(self.cells)
            if zeros == self.fill:
                raise
            # integers without bounds may be indices into an axis of length 1
            self.fill = zeros
            return self.backend.evaluate(self._call, specs, self.fill, watched, self.host)

    def _call(self, arrays: list[Any]) -> list[Any]:
        self.log.written_values.clear()
        for cell, array in zip(self.cells, arrays[len(self.leaves) :], strict=True):
            cell._value = array
        result = self.call(arrays[: len(self.leaves)])
        flat: list[Any] = []
        constants: list[Any] = []

        def place(leaf: Any) -> Any:
            if leaf is None or type(leaf) in (str, bool, int, float):
                constants.append(leaf)
                return _Constant(leaf)
            if isinstance(leaf, RecordingCell):
                leaf.refuse()
            flat.append(leaf)
            return _Slot(len(flat) - 1)

        self.structure = tree_map(place, result)
        self.constants.append(constants)
        self.written = list(self.log.written_values)
        self._note_shared(flat)
        return flat + [value for _, value in self.written]

    def _note_shared(self, results: Sequence[Any]) -> None:
        """Variables that were assigned an array which is a result, too, or was assigned to another variable."""
        seen = {id(array) for array in results}
        for index, array in self.written:
            if id(array) in seen:
                self.shared.add(index)
            seen.add(id(array))


@dataclass
class _Slot:
    index: int


@dataclass
class _Constant:
    value: Any


def _check_constants(constants: Sequence[Sequence[Any]], where: str) -> None:
    for found in constants[1:]:
        if list(map(repr, found)) != list(map(repr, constants[0])):
            raise BuildError(
                "a graph function returned a Python number that depends on the batch or time size",
                where=where,
                received=f"{constants[0]} and {list(found)} for two sizes",
                fix='return an array: ops.asarray(number, "int32")',
            )


def _fill(leaf: Box) -> int:
    """One, or zero where one would be out of an index space."""
    if leaf.dtype.startswith(("int", "uint")) and leaf.high is not None:
        try:
            if float(leaf.high.min()) <= 1:
                return 0
        except (TypeError, ValueError):
            return 1
    return 1


def _confirmed_suspect(first: Evaluation, varied: Evaluation, size: int, other: int) -> Suspect | None:
    """An intermediate array with two axes that follow the batch size; an axis that only equals one size is none."""

    def moved(shape: tuple[int, ...], again: tuple[int, ...]) -> int:
        """How many axes follow the batch; -1 where the shapes differ in another way."""
        pairs = [pair for pair in zip(shape, again, strict=False) if pair[0] != pair[1]]
        return len(pairs) if len(shape) == len(again) and set(pairs) <= {(size, other)} else -1

    for suspect in first.suspects:
        for again in varied.suspects:
            operands = list(zip(suspect.operands, again.operands, strict=False))
            if (
                moved(suspect.shape, again.shape) > 1
                and len(suspect.operands) == len(again.operands)
                and all(moved(shape, other_shape) >= 0 for shape, other_shape in operands)
            ):
                return suspect
    return None


def _refuse_double_batch(suspect: Suspect, sizes: dict[str, int], where: str) -> None:
    names = {size: symbol.partition("=")[0] for symbol, size in sizes.items()}

    def name(shape: tuple[int, ...]) -> str:
        return "(" + ", ".join(names.get(size, str(size)) for size in shape) + ("," if len(shape) == 1 else "") + ")"

    raise _DoubleBatchError(
        f"an intermediate array has the batch axis twice: {name(suspect.shape)}",
        where=f"{where}, {suspect.location}",
        received="operands of shapes " + " and ".join(name(shape) for shape in suspect.operands),
        fix="give both operands the same axes (squeeze or expand one of them); if rows of the batch are meant to meet, "
        "declare @graph_fn(mixes_batch=True)",
    )


def _with_pinned(space: Box, pinned: Sequence[str]) -> Box:
    """Makes leading axes of the numbers of fixed ranks these ranks again."""
    axes = list(space.axes)
    position = 0
    for kind in "TB":
        for symbol in pinned:
            if symbol.startswith(kind) and position < len(axes) and axes[position] == fixed_size(symbol):
                axes[position] = Dim((symbol,))
                position += 1
                break
    return from_axes(axes, space.dtype) if position else space


def _fit(
    results: Sequence[tuple[tuple[int, ...], str]],
    symbols: Sequence[str],
    base: dict[str, int],
    other: dict[str, int],
    where: str,
) -> Box:
    shape, dtype = results[0]
    if any(len(varied) != len(shape) for varied, _ in results[1:]):
        raise BuildError(
            "the number of axes of a result depends on the batch or time size",
            where=where,
            received=str([result[0] for result in results]),
            fix="keep the rank of results fixed",
        )
    axes: list[int | Dim] = []
    for axis, size in enumerate(shape):
        moved = [s for s, (varied, _) in zip(symbols, results[1:], strict=True) if varied[axis] != size]
        if not moved:
            axes.append(size)
            continue
        if len(moved) == 1:
            symbol = moved[0]
            varied_size = results[1 + symbols.index(symbol)][0][axis]
            factor, rest = divmod(varied_size - size, other[symbol] - base[symbol])
            offset = size - factor * base[symbol]
            fits = rest == 0 and abs(offset) <= _LARGEST_OFFSET
        else:
            product = 1
            for symbol in moved:
                product *= base[symbol]
            factor, rest = divmod(size, product)
            offset, fits = 0, rest == 0
        if not fits:
            raise BuildError(
                "a result axis is no multiple of the batch and time sizes",
                where=where,
                received=f"axis {axis} of {[result[0] for result in results]} for sizes {base} and {other}",
                fix="an axis may be a*B*T, a*B, a*T + b or constant",
            )
        # time first, as in time-major folding (T, B) -> T*B
        ordered = tuple(sorted(moved, key=lambda symbol: (not symbol.startswith("T"), symbol)))
        axes.append(Dim(ordered, factor, offset))
    return from_axes(tuple(axes), dtype)
