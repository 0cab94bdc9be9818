"""Symbolic arrays: what graph functions compute with while a model is written.

Each symbol holds *examples*: what the NumPy backend computes at the same place for a few batch and time sizes. They say
which dtype and which axes a result has (an axis that differs between examples is open), so that one implementation of
the vocabulary, the oracle of all others, decides on types and shapes here as well.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import numpy as np

from rlweave.errors import BackendError
from rlweave.extensions.onnx_.model import Model

#: Sizes of the open axes in each example: a first one, one with another batch, one with other steps.
EXAMPLE_SIZES: tuple[dict[str, int], ...] = ({"B": 5, "T": 3}, {"B": 7, "T": 3}, {"B": 5, "T": 4})
EXAMPLES = len(EXAMPLE_SIZES)


class ToldApartByIdentity:
    """What symbols and sizes share: NumPy leaves operators to them, and they are told apart by identity."""

    __array_ufunc__ = None

    def __hash__(self) -> int:
        return id(self)


class Symbol(ToldApartByIdentity):
    """An array that an ONNX model will compute.

    Args:
        model: The model.
        name: Its value there.
        examples: What it is for each of `EXAMPLE_SIZES`.
        weight: Position among the weights where it is one of them, unchanged; None: it is not.
    """

    __slots__ = ("blocked", "examples", "model", "name", "weight")

    def __init__(self, model: Model, name: str, examples: Sequence[np.ndarray], weight: int | None = None) -> None:
        self.model, self.name, self.examples, self.weight = model, name, tuple(examples), weight
        #: The same values in blocks of channels, where they come from a convolution.
        self.blocked: Any = None

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.examples[0].dtype

    @property
    def ndim(self) -> int:
        return self.examples[0].ndim

    @property
    def static_shape(self) -> tuple[int | None, ...]:
        """Lengths of the axes; None where an axis is open."""
        shapes = [example.shape for example in self.examples]
        return tuple([sizes[0] if len(set(sizes)) == 1 else None for sizes in zip(*shapes, strict=True)])

    @property
    def shape(self) -> tuple[int | Size, ...]:
        """Lengths of the axes, symbolic ones of open axes."""
        return tuple([self._size(axis) if n is None else n for axis, n in enumerate(self.static_shape)])

    def _size(self, axis: int) -> Size:
        def name() -> str:
            model = self.model
            whole = model.node("Shape", [self.name], start=axis, end=axis + 1)
            return str(model.node("Squeeze", [whole]))

        return Size(self.model, name, tuple([example.shape[axis] for example in self.examples]))

    @property
    def size(self) -> Any:
        result: Any = 1
        for n in self.shape:
            result = n * result
        return result

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("an array without axes has no length")
        length = self.static_shape[0]
        if length is None:
            unknown("the length of an open axis")
        return length

    def __iter__(self) -> Iterator[Any]:
        return iter([self[i] for i in range(len(self))])

    def __getitem__(self, key: Any) -> Any:
        raise NotImplementedError  # as all Python operators of symbols it is an operator, which `ops` puts here

    T: Any  # all axes in reverse order; so is this

    def copy(self) -> Symbol:
        """The same array: values of a model never change."""
        return self

    def __bool__(self) -> bool:
        unknown("the truth of an array")

    __int__ = __float__ = __index__ = __array__ = __bool__

    def __repr__(self) -> str:
        return f"Symbol({self.name}, shape={self.static_shape}, dtype={self.dtype})"


class Size(ToldApartByIdentity):
    """The length of an open axis, or a number that depends on one. In a model it is an int64 without axes."""

    __slots__ = ("_law", "_name", "_write", "model", "values")

    def __init__(self, model: Model, write: Callable[[], str], values: tuple[int, ...]) -> None:
        self.model, self._write, self.values = model, write, values
        self._name = ""
        self._law: tuple[Sequence[tuple[int, tuple[str, ...]]], int] | None = None

    @property
    def name(self) -> str:
        """Its value in the model; written at the first use, as most sizes end in a reshape that needs none."""
        if not self._name:
            self._name = self._write()
        return self._name

    def _with(self, other: Any, op_type: str, function: Callable[[Any, Any], Any], swapped: bool = False) -> Any:
        if isinstance(other, np.integer):
            other = int(other)
        if type(other) is int:
            others: tuple[int, ...] = (other,) * EXAMPLES
        elif isinstance(other, Size):
            others = other.values
        else:
            return NotImplemented
        pairs = [(b, a) if swapped else (a, b) for a, b in zip(self.values, others, strict=True)]
        values = tuple([int(function(a, b)) for a, b in pairs])

        def write() -> str:
            names = [self.name, other.name if isinstance(other, Size) else self.model.constant(other, np.int64)]
            return str(self.model.node(op_type, names[::-1] if swapped else names))

        return Size(self.model, write, values)

    def __add__(self, other: Any) -> Any:
        return self._with(other, "Add", operator.add)

    __radd__ = __add__

    def __mul__(self, other: Any) -> Any:
        return self if type(other) is int and other == 1 else self._with(other, "Mul", operator.mul)

    __rmul__ = __mul__

    def __sub__(self, other: Any) -> Any:
        return self._with(other, "Sub", operator.sub)

    def __rsub__(self, other: Any) -> Any:
        return self._with(other, "Sub", operator.sub, swapped=True)

    def __floordiv__(self, other: Any) -> Any:
        return self._with(other, "Div", operator.floordiv)  # sizes are not negative

    def __mod__(self, other: Any) -> Any:
        return self._with(other, "Mod", operator.mod)

    def __eq__(self, other: object) -> bool:
        others = other.values if isinstance(other, Size) else (other,) * EXAMPLES
        same = [a == b for a, b in zip(self.values, others, strict=True)]
        if len(set(same)) > 1:
            unknown("whether the length of an open axis has one value")
        return same[0]

    def __hash__(self) -> int:
        return id(self)

    def __bool__(self) -> bool:
        unknown("the length of an open axis")

    __int__ = __float__ = __index__ = __bool__

    def _ordered(self, other: Any) -> bool:
        unknown("the length of an open axis")

    __lt__ = __le__ = __gt__ = __ge__ = _ordered

    def as_symbol(self) -> Symbol:
        """The number as an int32 array without axes."""
        name = self.model.cast(self.name, np.int32)
        return Symbol(self.model, name, [np.asarray(value, np.int32) for value in self.values])

    def _found_law(self) -> tuple[Sequence[tuple[int, tuple[str, ...]]], int]:
        """Factors of products of open axes, and the number that is added to their sum.

        Raises:
            BackendError: It is nothing of the kind.
        """
        base, more_rows, more_steps = self.values
        first = EXAMPLE_SIZES[0]
        by_batch = (more_rows - base) // (EXAMPLE_SIZES[1]["B"] - first["B"])
        by_time = (more_steps - base) // (EXAMPLE_SIZES[2]["T"] - first["T"])
        terms: list[tuple[int, tuple[str, ...]]]
        if by_batch and by_time:
            terms = [(base // (first["B"] * first["T"]), ("B", "T"))]
        else:
            terms = [(by_batch, ("B",)), (by_time, ("T",))]
        terms = [(factor, symbols) for factor, symbols in terms if factor]
        offset = base - _total(terms, first)
        if any(_total(terms, sizes) + offset != value for sizes, value in zip(EXAMPLE_SIZES, self.values, strict=True)):
            raise BackendError(
                "a random draw has a shape that is no multiple of the batch and time sizes",
                where=f"the onnx backend, {calling_component()}",
                received=f"{self.values} rows for sizes {EXAMPLE_SIZES}",
                fix="act with numpy, or the backend that learns",
            )
        return terms, offset

    def at(self, sizes: dict[str, int]) -> int:
        """Its value for given sizes of the open axes: a multiple of them, plus a number.

        Raises:
            BackendError: It is nothing of the kind.
        """
        if self._law is None:
            self._law = self._found_law()
        terms, offset = self._law
        return _total(terms, sizes) + offset


def _total(terms: Sequence[tuple[int, tuple[str, ...]]], sizes: dict[str, int]) -> int:
    return sum(factor * math.prod([sizes[symbol] for symbol in symbols]) for factor, symbols in terms)


def unknown(what: str) -> NoReturn:
    """Python asked for the number behind a symbol."""
    raise BackendError(
        f"{what} is not known while an acting graph is written for ONNX Runtime",
        where=calling_component(),
        fix="write ops.where or graph.cond in place of a Python branch on it, or act with numpy, torch, jax or "
        "tensorflow (acting_backend)",
    )


def calling_component() -> str:
    """Path and function of the component whose graph function runs now."""
    import sys

    frame: Any = sys._getframe(1)
    while frame is not None:
        owner = frame.f_locals.get("self")
        path = getattr(owner, "path", None) if owner is not None and hasattr(owner, "_scope") else None
        if isinstance(path, str):
            return f"{path}.{frame.f_code.co_name}"
        frame = frame.f_back
    return "a graph function"
