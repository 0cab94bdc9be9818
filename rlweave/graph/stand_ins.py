"""Objects that stand for arrays, NumPy, random numbers and clocks while a graph is built, and refuse misuse.

`Symbolic` and `NoArray` are bases of what no framework can make an array of. `stand_in` makes what a graph function
finds in place of NumPy, of generators and of clocks while it is tried on small arrays: some backends run a graph
function once, while they compile it, and what it asked there is a constant of the program from then on. That is refused
on all backends, for globals of graph functions (and of plain functions that these call) and for attributes of
components; a module that is imported inside of a function is not seen.
"""

from __future__ import annotations

import random
import time
import types
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from rlweave.backends.base import ArrayUseError, clock_error, numpy_error, random_error
from rlweave.tree import tree_leaves

_OPERATORS = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor")
_COMPARISONS = ("lt", "le", "gt", "ge")
_OTHERS = ("neg", "pos", "abs", "invert", "bool", "int", "float", "index", "len", "iter", "getitem", "contains")
#: What takes the place of a ufunc that NumPy calls for an operator with one of its arrays on the left.
_REFLECTED = {
    np.add: "__radd__", np.subtract: "__rsub__", np.multiply: "__rmul__", np.divide: "__rtruediv__",
    np.floor_divide: "__rfloordiv__", np.remainder: "__rmod__", np.power: "__rpow__", np.matmul: "__rmatmul__",
    np.less: "__gt__", np.less_equal: "__ge__", np.greater: "__lt__", np.greater_equal: "__le__",
    np.equal: "__eq__", np.not_equal: "__ne__",
}  # fmt: skip


class Symbolic:
    """Base of what no framework can make an array of; `refuse_function` says what to write instead."""

    __slots__ = ()

    def refuse_function(self, function: str) -> NoReturn:
        """Raises the error for a function of a framework that got this object."""
        raise NotImplementedError

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        self.refuse_function("np.asarray")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        operator = _REFLECTED.get(ufunc) if method == "__call__" and not kwargs else None
        if operator is None or not isinstance(inputs[0], np.ndarray | np.generic):
            self.refuse_function(f"np.{ufunc.__name__}")
        return getattr(self, operator)(inputs[0])

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        self.refuse_function(f"np.{function.__name__}")

    def __jax_array__(self) -> Any:
        self.refuse_function("a function of JAX")

    def __tf_tensor__(self, *args: Any, **kwargs: Any) -> Any:
        self.refuse_function("a function of TensorFlow")

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = next(x for x in tree_leaves((args, kwargs or {})) if isinstance(x, Symbolic))
        found.refuse_function(f"torch.{function.__name__}")


class NoArray(Symbolic):
    """Base of what cannot be computed with at all."""

    __slots__ = ()

    def refuse(self) -> NoReturn:
        """Raises the error for an operator on this object."""
        raise NotImplementedError

    def refuse_function(self, function: str) -> NoReturn:
        self.refuse()


def _refusing(self: NoArray, *args: Any) -> Any:
    self.refuse()


for _name in (*_OPERATORS, *(f"r{name}" for name in _OPERATORS), *_COMPARISONS, *_OTHERS):
    setattr(NoArray, f"__{_name}__", _refusing)


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
