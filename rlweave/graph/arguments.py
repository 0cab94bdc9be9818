"""What happens to the arguments of a call of an API method.

An executor's attributes are `LazyMethod`s and `StaticMethod`s first: they lower a method when it is first called, once
for each set of static arguments, and explain wrong ones. Arrays are tested inline, by generated code
(`lowering/entry.py`); where that test fails, an `InputCheck` converts the argument or says what is wrong with it.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from rlweave.backends import Backend
from rlweave.errors import ExecutionError
from rlweave.graph.decorators import describe
from rlweave.graph.ir import Structure, Value
from rlweave.spaces import Box, Dim


class Programs(Protocol):
    """What methods ask of their executor."""

    @property
    def root(self) -> Any:
        """The root component."""

    def program(self, name: str, static: Mapping[str, Any] | None = None) -> Any:
        """The lowered program of a method, made on first use."""


class ArgumentsError(ExecutionError, TypeError):
    """An API method was called with the wrong number or the wrong names of arguments."""


class LazyMethod:
    """An API method that has not been called yet: lowers on the first call and replaces itself."""

    def __init__(self, executor: Programs, name: str) -> None:
        self._executor, self._name = executor, name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        entry = self._executor.program(self._name).entry
        _check_arguments(self._executor, self._name, entry, args, kwargs)
        object.__setattr__(self._executor, self._name, entry)
        return entry(*args, **kwargs)


class StaticMethod:
    """An API method with static arguments: one program per combination."""

    def __init__(self, executor: Programs, name: str, declared: Any) -> None:
        self._executor, self._name, self._declared = executor, name, declared
        self._entries: dict[tuple[Any, ...], Any] = {}
        self._static = declared.static
        self._first = min(declared.parameters.index(parameter) for parameter in declared.static)
        self._defaults = declared.static_defaults

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if len(args) > self._first:
            args, kwargs = self._by_name(args, kwargs)
        try:
            values = [kwargs.pop(p) if p in kwargs else self._defaults[p] for p in self._static]
            key = tuple([(value.__class__, value) for value in values])
            entry = self._entries.get(key)
        except KeyError as error:
            raise ArgumentsError(
                f"static argument {error.args[0]!r} is missing", where=self._where, fix=f"pass {error.args[0]}=..."
            ) from None
        except TypeError:
            raise ExecutionError(
                "a static argument cannot be looked up by its value",
                where=self._where,
                received=describe(tuple(values)),
                fix="pass a number, a text or a tuple of them; arrays are no static arguments",
            ) from None
        if entry is None:
            static = dict(zip(self._static, values, strict=True))
            entry = self._executor.program(self._name, static).entry
            _check_arguments(self._executor, self._name, entry, args, kwargs)
            self._entries[key] = entry
        return entry(*args, **kwargs)

    @property
    def _where(self) -> str:
        return f"{self._executor.root.path}.{self._name}"

    def _by_name(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Positional arguments by name, where static ones are among them."""
        names = self._declared.parameters
        given = dict(zip(names, args, strict=False))
        twice = [name for name in given if name in kwargs]
        if len(args) > len(names) or twice:
            what = f"argument {twice[0]!r} was given twice" if twice else f"{len(args)} arguments were given"
            raise ArgumentsError(f"wrong arguments: {what}", where=self._where, fix=f"its parameters are {list(names)}")
        return (), {**given, **kwargs}


def _check_arguments(executor: Programs, name: str, entry: Any, args: Any, kwargs: Any) -> None:
    """Explains wrong arguments, until the first right call; later ones get Python's own error."""
    signature = inspect.signature(entry)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        names = [p.name for p in signature.parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
        raise ArgumentsError(
            f"wrong arguments: {error}",
            where=f"{executor.root.path}.{name}",
            received=", ".join([describe(a) for a in args] + [f"{k}={describe(v)}" for k, v in kwargs.items()]),
            fix=f"its parameters are {names}",
        ) from None


_INTEGERS = frozenset({"uint8", "int8", "int16", "int32", "int64"})


class InputCheck:
    """Checks and converts one argument of an API method; called where the inline test did not pass.

    Args:
        where: Path and method.
        parameter: Name of the argument.
        structure: Nested values of the graph's input.
        backend: Framework arrays of this backend pass as they are.
        float_dtype: dtype of float inputs.
    """

    def __init__(self, where: str, parameter: str, structure: Structure, backend: Backend, float_dtype: str) -> None:
        self.where, self.parameter, self.structure = where, parameter, structure
        self.backend, self.float_dtype = backend, float_dtype

    def __call__(self, argument: Any) -> Any:
        return self._check(self.structure, argument, self.parameter)

    def _check(self, structure: Structure, argument: Any, leaf: str) -> Any:
        if isinstance(structure, Value):
            return self._leaf(structure.space, argument, leaf)
        if isinstance(structure, dict):
            if not isinstance(argument, dict) or set(argument) != set(structure):
                raise self._error(
                    f"argument {leaf!r} has the wrong keys",
                    f"{sorted(argument) if isinstance(argument, dict) else type(argument).__name__}",
                    f"pass a dict with the keys {sorted(structure)}",
                )
            return {key: self._check(item, argument[key], f"{leaf}/{key}") for key, item in structure.items()}
        if isinstance(structure, tuple | list):
            if not isinstance(argument, tuple | list) or len(argument) != len(structure):
                raise self._error(
                    f"argument {leaf!r} is not a tuple of {len(structure)}",
                    f"{type(argument).__name__}",
                    f"pass a tuple of {len(structure)} items",
                )
            return tuple(self._check(item, argument[index], f"{leaf}/{index}") for index, item in enumerate(structure))
        return structure

    def _leaf(self, space: Box, argument: Any, leaf: str) -> Any:
        wanted = self.float_dtype if space.dtype == "float32" else space.dtype
        if type(argument) is not np.ndarray and hasattr(argument, "dtype") and not isinstance(argument, np.generic):
            dtype = self.backend.dtype_name(argument.dtype)
            if dtype != wanted:
                raise self._error(
                    f"argument {leaf!r} has the wrong dtype", f"{dtype} of the framework", f"pass {wanted}"
                )
            self._shape(space, tuple(argument.shape), leaf)
            return argument
        try:
            array = np.asarray(argument)
        except ValueError:
            raise self._error(f"argument {leaf!r} is no array", repr(argument)[:80], f"pass {space!r}") from None
        if array.dtype != wanted:  # its name as text would cost ten times this
            if not _may_cast(array.dtype, np.dtype(wanted)):
                raise self._error(
                    f"argument {leaf!r} has the wrong dtype",
                    f"array of {array.dtype}, shape {array.shape}",
                    f"pass {space!r}",
                )
            if wanted in _INTEGERS and array.size:
                low, high = int(array.min()), int(array.max())
                if low < np.iinfo(wanted).min or high > np.iinfo(wanted).max:
                    raise self._error(
                        f"argument {leaf!r} does not fit into {wanted}",
                        f"values from {low} to {high}",
                        f"pass {space!r}",
                    )
            array = array.astype(wanted)
        self._shape(space, array.shape, leaf)
        return array

    def _shape(self, space: Box, shape: tuple[int, ...], leaf: str) -> None:
        axes = space.axes
        fits = len(shape) == len(axes)
        for size, axis in zip(shape, axes, strict=False):
            if isinstance(axis, int):
                fits = fits and size == axis
            elif isinstance(axis, Dim) and axis.offset == 0 and all("=" in symbol for symbol in axis.symbols):
                fits = fits and size == axis.evaluate({})
        if not fits:
            text = ", ".join(str(axis) for axis in axes)
            raise self._error(
                f"argument {leaf!r} has the wrong shape",
                f"shape {shape}",
                f"pass shape ({text}{',' if len(axes) == 1 else ''})"
                + (" with T steps" if space.time is not None else "")
                + (" and B rows" if space.batch is not None else ""),
            )

    def _error(self, what: str, received: str, fix: str) -> ExecutionError:
        return ExecutionError(what, where=self.where, received=received, fix=fix)


def _may_cast(given: np.dtype[Any], wanted: np.dtype[Any]) -> bool:
    if wanted.kind == "f":
        return given.kind in "fiub"
    if wanted.kind in "iu":
        return given.kind in "iu"
    return given.kind == "b"


def disagree(method: str, symbol: str, sizes: dict[str, int]) -> None:
    """Raises the error for arguments whose batch (or time) sizes differ."""
    axis = "batch" if symbol.startswith("B") else "time"
    raise ExecutionError(
        f"arguments differ in their {axis} size",
        where=method,
        received=", ".join(f"{name}: {size}" for name, size in sizes.items()),
        fix=f"pass arrays of one {axis} size",
    )
