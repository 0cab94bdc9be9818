"""What stands for NumPy, random numbers and clocks while a graph function is tried on small arrays.

On some backends a graph function runs once, while it is compiled, and what it asked NumPy, a generator or a clock for
is a constant of the program from there on. The stand-ins refuse that on all backends alike. They are found as globals
of graph functions (and of plain functions that these call) and as attributes of components; a module that is imported
inside of a function is not seen.
"""

from __future__ import annotations

import random
import time
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from rlweave.backends.base import ArrayUseError, clock_error, numpy_error, random_error
from rlweave.tree import tree_leaves

_GENERATORS = (np.random.Generator, np.random.RandomState, np.random.BitGenerator, random.Random)
_CLOCKS = {id(value) for value in vars(time).values() if isinstance(value, types.BuiltinFunctionType)}


def stand_in(name: str, value: Any, arrays: tuple[type, ...]) -> Any:
    """What a graph function finds in place of a value; mostly the value itself.

    Args:
        name: The name under which it finds it.
        value: A module, function or object.
        arrays: The types of arrays inside of graph functions.
    """
    if isinstance(value, types.ModuleType):
        if value is np:
            return _NumPy(np, "np", arrays)
        if value is np.random or value is random:
            return _Refusing(value, name, random_error)
        return _Refusing(value, name, clock_error) if value is time else value
    if isinstance(value, _GENERATORS):
        return _Refusing(value, name, random_error)
    if isinstance(value, type) or not callable(value):
        return value
    if id(value) in _CLOCKS:
        return _Refusing(value, name, clock_error)
    module = getattr(value, "__module__", None) or ""
    if isinstance(getattr(value, "__self__", None), _GENERATORS) or module.startswith("numpy.random"):
        return _Refusing(value, name, random_error)
    if isinstance(value, np.ufunc) or module.partition(".")[0] == np.__name__:
        return _Function(value, f"np.{value.__name__}", arrays)
    return value


class _Refusing:
    """A module, generator or function that nothing may be asked of."""

    def __init__(self, value: Any, name: str, error: Callable[[str], ArrayUseError]) -> None:
        self._value, self._name, self._error = value, name, error

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._value, name)
        return found if isinstance(found, type) else _Refusing(found, f"{self._name}.{name}", self._error)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise self._error(self._name)


class _NumPy:
    """NumPy, whose functions refuse arrays of graph functions."""

    def __init__(self, module: types.ModuleType, name: str, arrays: tuple[type, ...]) -> None:
        self._module, self._name, self._arrays = module, name, arrays

    def __getattr__(self, name: str) -> Any:
        found, full = getattr(self._module, name), f"{self._name}.{name}"
        if found is np.random:
            found = _Refusing(found, full, random_error)
        elif isinstance(found, types.ModuleType):
            found = _NumPy(found, full, self._arrays)
        elif callable(found) and not isinstance(found, type):
            found = _Function(found, full, self._arrays)
        setattr(self, name, found)
        return found


class _Function:
    """A function of NumPy that refuses arrays of graph functions."""

    def __init__(self, function: Any, name: str, arrays: tuple[type, ...]) -> None:
        self._function, self._name, self._arrays = function, name, arrays

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._function, name)
        return _Function(found, f"{self._name}.{name}", self._arrays) if callable(found) else found

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if any(isinstance(leaf, self._arrays) for leaf in tree_leaves((args, kwargs))):
            raise numpy_error(self._name)
        return self._function(*args, **kwargs)
