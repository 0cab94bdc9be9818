"""The object that stands for `ops` in a lowered graph function: one backend's operators plus its random source."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from rlweave import ops
from rlweave.errors import BackendError
from rlweave.ops import OP_NAMES, RANDOM_NAMES
from rlweave.tree import tree_map

# Operators that turn integers into real numbers; add a new one of that kind here. In a float64 build their arguments
# are converted before, and not their results after, or the result has only float32 precision.
# fmt: off
_REAL = frozenset({
    "add", "clip", "cos", "divide", "einsum", "erf", "exp", "expm1", "floor_divide", "lgamma", "log", "log1p",
    "logsumexp", "matmul", "maximum", "mean", "minimum", "multiply", "pow", "remainder", "sin", "sqrt", "std",
    "subtract", "tanh", "var", "where",
})
# fmt: on


_MAKES_ARRAYS = ("arange", "asarray", "eye", "full", "linspace", "ones", "zeros")


class BoundOps:
    """Operators as plain attributes: one dictionary look-up per use, and nothing that `torch.compile` cannot trace."""

    def __init__(self, functions: dict[str, Callable[..., Any]], random: Any) -> None:
        self.__dict__.update(functions)
        self.random = random


class _ConvertedRandom:
    def __init__(self, source: Any, convert: Callable[[Any], Any]) -> None:
        self.__dict__.update({name: _converted(getattr(source, name), convert) for name in RANDOM_NAMES})


def bind_ops(module: Any, random: Any, float_dtype: str = "float32", device: str | None = None) -> BoundOps:
    """Makes a namespace with every operator of a backend as a plain attribute, and `random`.

    Args:
        module: A backend's operators.
        random: Becomes `.random`: a `FastRandom`, a `PortableRandom`, or whatever a tracer puts there.
        float_dtype: `"float64"` makes every float32 (in arguments, requests and results) a float64, so that a graph
            can be evaluated for finite differences. NumPy only.
        device: Where operators that make arrays out of nothing (and random numbers) put them. torch only; on JAX the
            arrays follow the others of a compiled program. A `PortableRandom` for a device must itself be given bound
            ops: `bound = bind_ops(ops, None, device="cuda"); bound.random = PortableRandom(bound, cell)`.

    Raises:
        BackendError: Another dtype, or float64 on another backend.
    """
    functions = {name: getattr(module, name) for name in OP_NAMES}
    if float_dtype == "float64":
        if not isinstance(module.zeros(()), np.ndarray):
            raise BackendError("Only the NumPy backend can evaluate a graph in float64.", received=str(module))
        functions = {name: _in_float64(name, function) for name, function in functions.items()}
        random = _ConvertedRandom(random, _widened)
    elif float_dtype != "float32":
        raise BackendError("bind_ops: float_dtype must be 'float32' or 'float64'.", received=repr(float_dtype))
    if device is not None:
        move = functools.partial(_moved, device=device)
        functions |= {name: _converted(functions[name], move) for name in _MAKES_ARRAYS}
        random = random if random is None else _ConvertedRandom(random, move)
    return BoundOps(functions, random)


def _in_float64(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(getattr(ops, name))
    has_dtype = "dtype" in signature.parameters

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = tree_map(_widened, args), tree_map(_widened, kwargs)
        if has_dtype:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            if bound.arguments["dtype"] in ("float32", np.float32):
                bound.arguments["dtype"] = "float64"
            args, kwargs = bound.args, bound.kwargs
        result = function(*args, **kwargs)
        if name in _REAL and _is_float32(result):
            result = function(*tree_map(_as_float64, args), **tree_map(_as_float64, kwargs))
        if name == "asarray" and _is_float32(result):
            return np.asarray(kwargs.get("x", args[0] if args else None), np.float64)
        return tree_map(_widened, result)

    return wrapped


def _converted(function: Callable[..., Any], convert: Callable[[Any], Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return convert(function(*args, **kwargs))

    return wrapped


def _moved(x: Any, device: str) -> Any:
    return x.to(device)


def _is_float32(x: Any) -> bool:
    return getattr(x, "dtype", None) == np.float32


def _widened(x: Any) -> Any:
    return x.astype(np.float64) if _is_float32(x) else x


def _as_float64(x: Any) -> Any:
    if type(x) is float:
        return np.float64(x)  # an array's scalar makes its result float64, a Python number does not
    return x.astype(np.float64) if hasattr(x, "astype") and x.dtype != bool else x
