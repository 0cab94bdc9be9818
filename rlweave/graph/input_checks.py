"""Checks of what an executor is called with: fast when it fits, and an error that teaches when it does not."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlweave.backends import Backend
from rlweave.errors import ExecutionError
from rlweave.graph.ir import Structure, Value
from rlweave.spaces import Box, Dim

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
