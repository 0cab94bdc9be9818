"""What the graph layer asks of a backend."""

from __future__ import annotations

import difflib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rlweave.errors import BackendError, nearest
from rlweave.ops import OP_NAMES

Array = Any


class Cell:
    """One variable in the store of one executor: a plain object that holds an array.

    Graph functions see cells in place of variables: `.value`, `.assign(x)`, `.assign_at(indices, x)`.
    """

    __slots__ = ("dtype", "path", "trainable", "value")

    def __init__(self, path: str, value: Array, trainable: bool = False) -> None:
        self.path, self.value, self.trainable = path, value, trainable
        self.dtype = getattr(value, "dtype", None)

    def assign(self, x: Array) -> None:
        raise NotImplementedError

    def assign_at(self, indices: Array, x: Array) -> None:
        raise NotImplementedError

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.value.shape)


def values_of_cells(cells: Sequence[Cell]) -> tuple[Array, ...]:
    """The arrays of cells."""
    return tuple([cell.value for cell in cells])


def set_cells(cells: Sequence[Cell], values: Sequence[Array]) -> None:
    """Gives cells new arrays."""
    for cell, value in zip(cells, values, strict=True):
        cell.value = value


class ArrayUseError(TypeError):
    """A graph function used an array in a way that only some backends support; the same error on all of them.

    Args:
        what: What it did.
        fix: What to write in place of it.
    """

    def __init__(self, what: str, fix: str) -> None:
        self.what, self.fix = what, fix
        super().__init__(f"{what}; {fix}")


def truth_error() -> ArrayUseError:
    """A branch on an array."""
    return ArrayUseError(
        "a Python branch on an array (`if`, `while`, `and`, `not`, `assert`)",
        "choose by ops.where(condition, a, b), combine conditions by ops.logical_and and ops.logical_not; whole "
        "branches are graph.cond in an API method",
    )


def number_error() -> ArrayUseError:
    """A Python number out of an array."""
    return ArrayUseError(
        "a Python number was taken out of an array (int(), float(), .item(), .tolist(), range())",
        "compute with the array itself; a number that decides on shapes or loops is a static argument of the API "
        "method: @api(static=...)",
    )


def numpy_error(function: str) -> ArrayUseError:
    """A function of NumPy on an array of a backend."""
    return ArrayUseError(
        f"a function of NumPy got an array: {function}",
        f"{operator_for(function)}; what needs NumPy itself is @graph_fn(host=True)",
    )


def operator_for(function: str) -> str:
    """What to write in place of a function of a framework ("np.tanh")."""
    close = difflib.get_close_matches(function.rpartition(".")[2], OP_NAMES, 1)
    return f"use rlweave.ops: ops.{close[0]}" if close else "use rlweave.ops (`from rlweave import ops`)"


def random_error(function: str) -> ArrayUseError:
    """Random numbers that no build knows of."""
    return ArrayUseError(
        f"random numbers that are drawn once and then stay the same: {function}",
        "draw by ops.random (uniform, normal, randint, ...), whose state is the graph's, or pass numbers as an input",
    )


def clock_error(function: str) -> ArrayUseError:
    """A clock that a compiled program would not look at again."""
    return ArrayUseError(
        f"a clock that is read once and then stays the same: {function}",
        "read it outside, and pass the time as an input",
    )


#: What stands between the names of devices that make one place, see `Backend.spreads`.
TOGETHER = "+"

#: Integers of 64 bits, and what becomes of them on a backend that has 32.
WIDE = {"int64": "int32", "uint64": "uint32"}


def fits(x: np.ndarray | np.generic, dtype: str | np.dtype[Any]) -> bool:
    """Whether numbers can be converted to a dtype and are the same (integers), or stay finite (floats)."""
    x, target = np.asarray(x), np.dtype(dtype)
    if x.dtype == target or not x.size or x.dtype.kind not in "iuf":
        return True
    if target.kind in "iu":
        limits = np.iinfo(target)
        return bool(np.all((x >= limits.min) & (x <= limits.max)) and (x.dtype.kind != "f" or np.all(x == np.trunc(x))))
    if target.kind == "f":
        with np.errstate(over="ignore"):
            return bool(np.all(np.isfinite(x.astype(target)) | ~np.isfinite(x)))
    return True


@dataclass(frozen=True)
class OpenArray:
    """What is known of an array that a run takes before it is called.

    Args:
        axes: Lengths; the name of a symbolic one ("B", "T", "T*B").
        dtype: Name of the dtype.
    """

    axes: tuple[int | str, ...]
    dtype: str


@dataclass
class Suspect:
    """An intermediate array that has the batch axis twice."""

    shape: tuple[int, ...]
    operands: tuple[tuple[int, ...], ...]
    location: str


@dataclass
class Evaluation:
    """What abstract evaluation of a function found: result shapes and dtypes, and double-batch suspects.

    Args:
        results: (shape, dtype) of each result.
        suspects: Intermediate arrays with the batch axis twice.
        aliases: For each result, the positions of arguments it may share memory with.
    """

    results: list[tuple[tuple[int, ...], str]]
    suspects: list[Suspect] = field(default_factory=list)
    aliases: list[set[int]] = field(default_factory=list)


class Backend(ABC):
    """A numeric framework behind the graph layer. One instance per process and framework."""

    name: str
    #: The module with all ops.
    ops: Any
    #: Device runs are handed to a compiler as pure functions (state goes in and comes out).
    functional: bool
    #: No array ever changes, and runs take NumPy's arrays as they are; so a run that only reads needs no lock.
    immutable = False
    #: Integers of 64 bits stay what they are.
    wide = True
    #: Whether the axes of a variable can lie in memory in another order than its shape names them.
    strided = False
    #: Graph functions see wrapped arrays, and callers plain ones (TensorFlow).
    wraps = False
    #: It computes in NumPy on the host: nothing goes elsewhere, and what components say of devices does not matter.
    on_host = False
    #: Variables can be put on a device by name.
    maps_devices = True
    #: One program can run on several devices at once: their names, with `TOGETHER` between them, are a place.
    spreads = False
    #: New arrays are on the CPU unless operators say otherwise; random numbers are drawn there.
    creates_on_cpu = False
    #: Gradients exist.
    differentiable: bool = True
    #: Gradients come from a tape that records what is computed with tracked arrays (torch); otherwise from `vjp`.
    has_tape = False
    #: Its compiler reads the bytecode of runs: it compiles bodies of loops by themselves, and takes no generator.
    reads_bytecode = False
    #: Name of the attribute of an array that holds shape and dtype (JAX: `aval`); empty: the array itself.
    description = ""
    #: Graphs that write variables (random state apart) or take gradients are refused.
    acts_only: bool = False
    #: Extra to install for it.
    extra: str
    #: The types of arrays while functions are evaluated abstractly.
    evaluated_types: tuple[type, ...] = ()

    @abstractmethod
    def from_numpy(self, x: np.ndarray, device: str | None = None) -> Array:
        """A fresh array of the backend."""

    def constant(self, x: np.ndarray, device: str | None = None) -> Array:
        """What a NumPy constant in a graph becomes; NumPy and JAX use it unchanged."""
        return x

    @abstractmethod
    def to_numpy(self, x: Array) -> np.ndarray:
        """A copy as NumPy."""

    @abstractmethod
    def make_cell(self, path: str, value: Array, trainable: bool) -> Cell:
        """A store cell that holds an array of the backend."""

    def tracked(self, value: Array) -> Array:
        """The value of a cell by which gradients can be taken, as an array without a history."""
        return value

    def traced_cell(self, cell: Cell) -> type[Cell]:
        """The class of the cell that takes the place of another one in a run that is a function."""
        return type(cell)

    def dtype_name(self, dtype: Any) -> str:
        """The name that NumPy has for a dtype of an array of the backend."""
        return str(dtype).replace("torch.", "")

    def own_dtype(self, name: str) -> Any:
        """`.dtype` of an array that is handed out, one object per name; None where it is NumPy's."""
        return None

    def device_names(self) -> list[str]:
        """Names of the devices that are there; the first is where things are unless a build says otherwise."""
        return ["cpu"]

    def device_name(self, name: str) -> str:
        """The one name of a device that may be named in several ways ("cuda" is "cuda:0").

        Raises:
            BackendError: There is no such device.
        """
        if name not in self.device_names():
            raise self._no_device(name)
        return name

    def _no_device(self, name: str) -> BackendError:
        names = self.device_names()
        return BackendError(
            f"the {self.name} backend has no such device",
            where="device",
            received=f"{name!r}; there are {', '.join(map(repr, names))}",
            fix=f'{nearest(name, [*names, "host"])} ("host" computes in NumPy)',
        )

    def split_rows(self, x: Array, axis: int, place: str) -> Array:
        """An array of which each of the devices of a place has its part of the rows, in a run that they share."""
        raise NotImplementedError

    def transfer(self, device: str) -> Callable[[Any], Any]:
        """A function that puts nested arrays (NumPy's as well) on a device; those that are there stay."""
        return lambda x: x

    def stage(self, x: Any, device: str | None = None) -> Array:
        """A copy of an array, as an entry function takes it without another one, on a device (None: the default)."""
        return self.from_numpy(np.asarray(x), device)

    def watch_ops(self, bound: Any) -> None:  # noqa: B027 - a hook: most backends see intermediate arrays otherwise
        """Makes bound operators of abstract evaluation report intermediate arrays, where `evaluate` cannot see them."""

    @abstractmethod
    def evaluate(
        self,
        run: Callable[[list[Array]], list[Array]],
        specs: Sequence[tuple[tuple[int, ...], str]],
        fill: Sequence[int],
        batch_sizes: frozenset[int],
        host: bool = False,
    ) -> Evaluation:
        """Abstract evaluation.

        Args:
            run: Function from argument arrays to result arrays.
            specs: (shape, dtype) of each argument.
            fill: Value of each argument where real arrays are used.
            batch_sizes: Sizes that stand for a batch axis.
            host: It runs in NumPy on the host, so Python may read what arrays hold.

        Raises:
            ArrayUseError: The function did with an array what only some backends could do.
        """

    @abstractmethod
    def random_module(self) -> Any:
        """The module with `FastRandom`, `initial_state`, `state_to_numpy`, `state_from_numpy`."""

    def portable_random(self, cell: Any) -> Any:
        """The source of the random numbers that are the same on all backends, over the cell of their state."""
        from rlweave.backends.portable_random import PortableRandom

        return PortableRandom(self.ops, cell)

    @abstractmethod
    def runtime(self) -> dict[str, Any]:
        """Functions that generated code calls by name: scan, cond, while_loop, vmap, vjp or gradient, copy, ..."""

    @abstractmethod
    def boundary(self, device: str | None = None) -> dict[str, Any]:
        """Names that entry functions use to take arrays in and hand them out.

        Among them `array_type`, the class of its arrays where that is not NumPy's.
        """

    def set_threads(self, threads: int) -> bool:
        """Sets how many threads the kernels use from now on, in the whole process.

        Returns:
            Whether the backend can do that; here it cannot.
        """
        return False

    def differentiate(self, loss: Callable[..., Any], *arguments: Any) -> Any:
        """Derivatives of a scalar function by each of its (nested) arguments, evaluated at once.

        Raises:
            BackendError: The backend has no gradients.
        """
        raise BackendError(
            f"the {self.name} backend cannot differentiate functions",
            where="a gradient node",
            fix='run this method on backend="jax" or backend="torch"',
        )

    def eager_scope(self) -> AbstractContextManager[Any]:
        """What eager API methods run in."""
        return nullcontext()

    def compile(
        self, function: Callable[..., Any], states: Sequence[str], inputs: Sequence[Any] = (), **options: Any
    ) -> Callable[..., Any]:
        """Compiles a pure run; the default hands it back.

        Args:
            function: The run.
            states: What its first arguments are: "donated" for arrays that it may overwrite, "kept" for others.
            inputs: For each argument after these, nested `OpenArray`s in place of its arrays.
            options: `device`: where it is to run, if that was named; `whole`: it holds no loops of compiled bodies.
        """
        return function


@contextmanager
def untouched(cells: Iterable[Cell], copy: Callable[[Array], Array]) -> Iterator[None]:
    """Takes back what is written to cells inside (the trial step of a loop over nothing)."""
    before = [(cell, cell.value) for cell in cells]
    for cell, value in before:
        if hasattr(value, "clone_state"):
            cell.value = value.clone_state()
        else:
            cell.value = copy(value) if hasattr(value, "dtype") else deepcopy(value)
    try:
        yield
    finally:
        for cell, value in before:
            cell.value = value


def user_location(depth_limit: int = 60) -> str:
    """File, line and text of the innermost frame that belongs to a graph function (outside of backends and ops)."""
    import linecache
    import sys

    frame: Any = sys._getframe(1)
    while frame is not None and depth_limit:
        name = frame.f_code.co_filename
        if is_user_file(name):
            text = linecache.getline(name, frame.f_lineno).strip()
            return f"{name}:{frame.f_lineno}: {text}"
        frame, depth_limit = frame.f_back, depth_limit - 1
    return "unknown line"


_INTERNAL = (
    *("/rlweave/backends/", "/rlweave/ops/", "/rlweave/graph/", "/rlweave/extensions/"),
    *("/site-packages/", "/torch/", "/jax/", "/numpy/"),
)


def is_user_file(filename: str) -> bool:
    """Whether a file holds graph functions (components and user code) and not the machinery below them."""
    name = filename.replace("\\", "/")
    return not name.startswith("<") and not any(part in name for part in _INTERNAL)
