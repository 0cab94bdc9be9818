"""Objects that stand for arrays and are none: what a framework would do with them is an error of ours."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

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
