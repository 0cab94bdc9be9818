"""Sample calls of every operator: the table behind the parity tests. An operator without a case fails the suite."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Case:
    """One call. NumPy arrays among the arguments are handed over as arrays of the backend, all else as it is."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    gradient: bool = True  # compare gradients with respect to all float arrays
    finite_differences: bool = True  # and with finite differences; off where the function has a kink at the sample
    vmap: bool = True


def case(*args: Any, gradient: bool = True, finite_differences: bool = True, vmap: bool = True, **kwargs: Any) -> Case:
    return Case(args, kwargs, gradient, finite_differences, vmap)


def floats(*shape: int, low: float = -2.0, high: float = 2.0, seed: int = 0) -> np.ndarray:
    """Evenly distributed float32 numbers at least 0.01 away from 0 (where abs, relu and others have a kink)."""
    x = np.random.default_rng((seed, *shape)).uniform(low, high, shape)
    x = np.where(np.abs(x) < 0.01, 0.05, x)
    return x.astype(np.float32)


def integers(*shape: int, low: int = 0, high: int = 5, seed: int = 0) -> np.ndarray:
    return np.random.default_rng((seed, *shape)).integers(low, high, shape, np.int32)


X = floats(3, 4)
Y = floats(3, 4, seed=1)
POSITIVE = floats(3, 4, low=0.2, high=3.0, seed=2)
ROW = floats(4, seed=3)
WHOLE = integers(3, 4, low=-4, high=5)
WHOLE_2 = integers(3, 4, low=1, high=4, seed=1)
BYTES = integers(3, 4, high=200).astype(np.uint8)
FLAGS = X > 0
FLAGS_2 = Y > 0
EDGES = np.array([0.0, -0.0, 0.5, 1.5, 2.5, -0.5, -1.5, 1e-7, -30.0, 30.0, 80.0, -80.0], np.float32)
SPECIAL = np.array([0.0, 1.0, np.inf, -np.inf, np.nan], np.float32)
SCALAR = np.array(0.7, np.float32)
DISTINCT = np.random.default_rng(5).permutation(24).reshape(2, 3, 4).astype(np.float32) / 7 - 1.5

_UNARY_REAL = ("exp", "expm1", "sin", "cos", "tanh", "erf")
_UNARY_STEP = ("sign", "floor", "ceil", "round")
_COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
_REDUCTIONS = ("sum", "mean", "prod", "max", "min", "any", "all", "std", "var", "logsumexp")


def _scan_step(carry: Any, x: Any) -> tuple[Any, Any]:
    total = carry["total"] * 0.9 + x[0]
    return {"total": total, "count": carry["count"] + 1}, (total * x[1], carry["count"])


def _add_step(carry: Any, x: Any) -> tuple[Any, Any]:
    return carry + 1.5, None


def _optimizer_cases() -> dict[str, list[Case]]:
    p, g, slot = [X, ROW], [Y, floats(4, seed=4)], [floats(3, 4, seed=6), ROW * 0.5]
    squares = [np.square(x) + 4 for x in slot]
    rate, step = np.array(0.05, np.float32), np.array(3, np.int32)

    def update(*args: Any, **kwargs: Any) -> Case:
        return case(*args, gradient=False, **kwargs)

    return {
        "global_norm_clip": [
            update(g, 0.5),
            update(g, 100.0),
            update(g, rate),
            update([np.zeros(3, np.float32)], 0.5),
        ],
        "sgd_update": [
            update(p, g, [], 0.1),
            update(p, g, slot, rate, 0.9),
            update(p, g, slot, 0.1, momentum=0.9, nesterov=True),
        ],
        "adam_update": [
            update(p, g, slot, squares, step, 0.1),
            update(p, g, slot, squares, np.array(1, np.int32), rate, 0.8, 0.99, 1e-3, 0.1),
            update(p, g, slot, squares, step, 0.1, beta1=0.0),
        ],
        "rmsprop_update": [
            update(p, g, squares, [], [], 0.1),
            update(p, g, squares, slot, [], rate, 0.9, 1e-2, 0.9),
            update(p, g, squares, slot, slot, rate, momentum=0.5),
            update(p, g, squares, [], slot, 0.1, epsilon=1e-3),
        ],
    }


def _cases() -> dict[str, list[Case]]:
    table: dict[str, list[Case]] = {
        # creation
        "asarray": [
            case(X),
            case(WHOLE, "float32"),
            case([1.5, 2.0]),
            case([1, 2]),
            case([[True], [False]]),
            case(3),
            case(2.5),
            case(True),
            case([1, 2], "uint8"),
            case(X, "bool"),
            case(X, "int32"),
        ],
        "zeros": [case((2, 3)), case(3, "int32"), case((), "bool")],
        "ones": [case((2, 3)), case(3, "int32"), case((), "bool")],
        "full": [case((2, 3), 1.5), case((2,), 3, "int32"), case((2, 3), SCALAR), case(2, True, "bool")],
        "arange": [case(4), case(1, 7, 2), case(0, 1, 0.25, "float32"), case(5, 1, -2)],
        "linspace": [case(0.0, 1.0, 5), case(-2, 2, 3)],
        "eye": [case(3), case(2, 3), case(2, dtype="int32")],
        "zeros_like": [case(X), case(WHOLE), case(X, "int32"), case(1.5)],
        "ones_like": [case(X), case(FLAGS), case(X, "int32"), case(2)],
        "full_like": [case(X, 2.5), case(WHOLE, 2), case(X, 1, "int32"), case(X, SCALAR)],
        "astype": [
            case(X, "float32"),
            case(X, "int32"),
            case(X, "bool"),
            case(FLAGS, "float32"),
            case(BYTES, "float32"),
            case(WHOLE, "bool"),
            case(POSITIVE, "uint8"),
            case(1.5, "int32"),
        ],
        # elementwise
        "abs": [case(X), case(WHOLE), case(EDGES, finite_differences=False)],
        "negative": [case(X), case(WHOLE)],
        "square": [case(X), case(WHOLE)],
        "log": [case(POSITIVE), case(WHOLE_2), case(2.0)],
        "log1p": [case(POSITIVE), case(WHOLE_2)],
        "sqrt": [case(POSITIVE), case(WHOLE_2), case(BYTES)],
        "lgamma": [case(POSITIVE), case(floats(20, low=-5.3, high=30.0)), case(WHOLE_2)],
        "isfinite": [case(SPECIAL), case(WHOLE)],
        "isnan": [case(SPECIAL), case(WHOLE)],
        "logical_not": [case(FLAGS), case(X), case(WHOLE)],
        "add": [
            case(X, Y),
            case(X, ROW),
            case(X, 1.5),
            case(2, X),
            case(WHOLE, X),
            case(WHOLE, 1),
            case(WHOLE, 0.5),
            case(FLAGS, 1),
            case(FLAGS, 0.5),
            case(BYTES, WHOLE),
            case(FLAGS, X),
            case(1, 2),
            case(1.5, 2),
        ],
        "subtract": [case(X, Y), case(1.0, X), case(WHOLE, 1), case(WHOLE, X), case(1, FLAGS)],
        "multiply": [case(X, Y), case(X, 2), case(WHOLE, WHOLE_2), case(FLAGS, X), case(WHOLE, 0.5), case(BYTES, 2.0)],
        "divide": [case(X, POSITIVE), case(1.0, POSITIVE), case(WHOLE, WHOLE_2), case(WHOLE, 2), case(BYTES, 255.0)],
        "floor_divide": [case(X, POSITIVE), case(WHOLE, WHOLE_2), case(WHOLE, 2), case(7, WHOLE_2), case(X, 0.5)],
        "remainder": [case(X, POSITIVE), case(WHOLE, WHOLE_2), case(WHOLE, 3), case(7, WHOLE_2), case(X, -0.75)],
        "pow": [case(POSITIVE, Y), case(X, 2), case(2.0, X), case(WHOLE, 2), case(POSITIVE, 0.5), case(WHOLE, 2.0)],
        "minimum": [
            case(X, Y),
            case(X, 0.5),
            case(0, X),
            case(WHOLE, 1),
            case(SPECIAL, 0.5, gradient=False),
            case(X, X, finite_differences=False),
            case(EDGES, 0.0, finite_differences=False),
            case(WHOLE, 0.5),
        ],
        "maximum": [
            case(X, Y),
            case(X, 0.5),
            case(0, X),
            case(WHOLE, 1),
            case(SPECIAL, 0.5, gradient=False),
            case(X, X, finite_differences=False),
            case(EDGES, 0.0, finite_differences=False),
            case(1, 2.5),
        ],
        "clip": [
            case(X, -1.0, 1.0),
            case(X, min=0.0),
            case(X, max=0.5),
            case(X, None, None),
            case(WHOLE, -1, 1),
            case(X, ROW - 0.3, ROW + 0.7),
            case(X, 0.0, POSITIVE),
            case(EDGES, 0.0, 0.5, finite_differences=False),
            case(SPECIAL, -1.0, 1.0, gradient=False),
            case(WHOLE, -0.5, 1.5),
            case(X, SCALAR),
        ],
        "where": [
            case(FLAGS, X, Y),
            case(FLAGS, X, 0.0),
            case(FLAGS, 1, X),
            case(FLAGS, 1.0, 0.0),
            case(FLAGS, 1, 0),
            case(WHOLE, X, Y),
            case(FLAGS, WHOLE, 0),
            case(FLAGS, WHOLE, 0.5),
            case(FLAGS, X, ROW),
            case(True, X, Y),
            case(FLAGS, FLAGS_2, False),
            case(FLAGS, WHOLE, X),
        ],
        # reductions
        "argmax": [case(DISTINCT, 1), case(DISTINCT), case(np.array([1, 3, 3, 2], np.int32)), case(FLAGS, -1, True)],
        "argmin": [case(DISTINCT, -1), case(DISTINCT), case(np.array([2, 1, 1, 2], np.int32)), case(FLAGS, 0, True)],
        "cumulative_sum": [case(X, 0), case(ROW), case(X, -1), case(WHOLE, 1), case(FLAGS, 1)],
        "discounted_sums": [case(floats(steps, 2, 3), floats(steps, 2, 3, seed=1)) for steps in (1, 2, 3, 5, 16, 17)],
        # shapes
        "reshape": [case(X, (2, 6)), case(X, -1), case(X, (2, -1, 3))],
        "expand_dims": [case(X, 0), case(X, -1), case(X, 1)],
        "squeeze": [case(X[:, None], 1), case(X[None, :, None], (0, 2)), case(X[..., None], -1)],
        "permute_dims": [case(X, (1, 0)), case(DISTINCT, (2, 0, 1))],
        "concat": [case([X, Y]), case((X, POSITIVE), 1), case([X, WHOLE], -1), case([WHOLE, WHOLE_2])],
        "stack": [case([X, Y]), case((X, Y), -1), case([X, WHOLE], 1), case([SCALAR, SCALAR])],
        "unstack": [case(X), case(X, 1), case(X, axis=-1)],
        "broadcast_to": [case(ROW, (3, 4)), case(X[:, :1], (2, 3, 4)), case(SCALAR, (2,))],
        "flip": [case(X), case(X, 1), case(X, (0, 1))],
        "roll": [case(X, 1, 0), case(X, -2, 1)],
        "repeat": [case(X, 2, 0), case(X, 3, -1)],
        "tile": [case(X, (2, 1)), case(ROW, (2, 3))],
        "sort": [case(DISTINCT), case(DISTINCT, 0), case(DISTINCT, -1, True), case(WHOLE, 1, descending=True)],
        "argsort": [
            case(DISTINCT),
            case(WHOLE, 0),
            case(WHOLE, -1, True),
            case(DISTINCT, 1, descending=True),
            case(integers(50, high=3)),
            case(integers(50, high=3), descending=True),
        ],
        "searchsorted": [
            case(np.sort(ROW), X, vmap=False),
            case(np.array([0, 1, 1, 3], np.int32), WHOLE, vmap=False),
            case(np.array([0, 1, 1, 3], np.int32), WHOLE, side="right", vmap=False),
            case(np.sort(ROW), floats(4, 3).T, vmap=False),
            case(np.sort(ROW), SCALAR, vmap=False),
        ],
        "fold_ranks": [
            case(DISTINCT),
            case(DISTINCT, 3),
            case(X, 1),
            case(X, 0),
            case(np.zeros((0, 3, 2), np.float32)),
        ],
        "unfold_ranks": [
            case(floats(6, 2), (2, 3)),
            case(floats(6), (3, 2)),
            case(np.zeros((0, 2), np.float32), (0, 3)),
        ],
        # indexing
        "take": [
            case(X, integers(5, high=3)),
            case(X, integers(2, 2, high=4), 1),
            case(X, np.array(2, np.int32)),
            case(X, integers(5, high=4), axis=-1),
            case(WHOLE, integers(2, high=3)),
            case(X, [0, 2]),
        ],
        "take_along_axis": [case(X, integers(3, 2, high=4)), case(X, integers(2, 4, high=3), 0)],
        "take_last": [
            case(X, integers(3, high=4)),
            case(DISTINCT, integers(2, 3, high=4)),
            case(ROW, np.array(1, np.int32)),
        ],
        "set_at": [
            case(X, np.array([2, 0], np.int32), Y[:2]),
            case(X, np.array([2, 0, 2, 2, 0], np.int32), floats(5, 4)),
            case(X, np.array(1, np.int32), ROW),
            case(X, np.array([1, 1], np.int32), 0.0),
            case(ROW, integers(100, high=4), floats(100)),
            case(WHOLE, np.array([[0, 1], [1, 2]], np.int32), integers(2, 2, 4)),
            case(X, np.array([2, 0, 2], np.int32), np.arange(4)),
            case(floats(3, 2, 0), np.array([2, 0], np.int32), floats(2, 2, 0)),
        ],
        "add_at": [
            case(floats(3, 0), np.array([2, 0], np.int32), floats(2, 0)),
            case(X, np.array([2, 0], np.int32), Y[:2]),
            case(X, np.array([2, 0, 2, 2, 0], np.int32), floats(5, 4)),
            case(X, np.array(1, np.int32), ROW),
            case(X, np.array([1, 1], np.int32), 1.0),
            case(WHOLE, np.array([[0, 1], [1, 2]], np.int32), integers(2, 2, 4)),
        ],
        # linear algebra
        "matmul": [
            case(X, floats(4, 2)),
            case(X, ROW),
            case(DISTINCT, floats(4, 2)),
            case(DISTINCT, floats(2, 4, 3)),
            case(WHOLE, floats(4, 2)),
            case(ROW, ROW),
        ],
        "einsum": [
            case("ij,jk->ik", X, floats(4, 2)),
            case("tbi,ij->tbj", DISTINCT, floats(4, 2)),
            case("ij->i", X),
            case("ij,ij->", X, Y),
            case("bik,bjk->bij", DISTINCT, DISTINCT),
            case("ij,j,jk->k", X, ROW, floats(4, 2)),
        ],
        "linear": [
            case(X, floats(4, 2), floats(2)),
            case(X, floats(4, 2), floats(2), "relu"),
            case(X, floats(4, 2), None, "tanh"),
            case(X, floats(4, 2)),
            case(DISTINCT, floats(4, 2), floats(2)),
            case(ROW, floats(4, 2), floats(2)),
            case(floats(2, 2, 3, 4), floats(4, 5)),
        ],
        # neural
        "relu": [case(X), case(EDGES, finite_differences=False)],
        "leaky_relu": [case(X), case(X, 0.2), case(EDGES, finite_differences=False)],
        "elu": [case(X), case(X, 0.5), case(EDGES, finite_differences=False)],
        "gelu": [case(X), case(X, True), case(EDGES, approximate=True), case(EDGES)],
        "silu": [case(X), case(EDGES)],
        "sigmoid": [case(X), case(EDGES)],
        "softplus": [case(X), case(EDGES)],
        "huber_loss": [case(X, Y), case(X, Y, 0.5), case(Y, X, delta=3.0, reduction="mean")],
        "softmax": [case(X), case(X, 0), case(X * 100, finite_differences=False)],
        "log_softmax": [case(X), case(X, 0), case(X * 100, finite_differences=False)],
        "one_hot": [
            case(integers(3, high=4), 4),
            case(integers(2, 2, high=3), 3, "int32"),
            case(WHOLE, 3),
            case(BYTES, 9),
        ],
        "conv2d": [
            case(floats(2, 6, 5, 3), floats(3, 2, 3, 4)),
            case(floats(2, 7, 7, 2), floats(3, 3, 2, 4), 2),
            case(floats(2, 7, 6, 2), floats(3, 2, 2, 4), (2, 1), "same"),
            case(floats(1, 5, 5, 1), floats(4, 4, 1, 2), padding="same"),
            case(floats(1, 8, 8, 2), floats(1, 1, 2, 2), stride=3, padding="same"),
            case(floats(2, 6, 5, 3), floats(3, 2, 3, 4), bias=floats(4)),
            case(floats(2, 6, 5, 3), floats(3, 2, 3, 4), bias=floats(4), activation="relu"),
            case(floats(2, 6, 5, 3), floats(3, 2, 3, 4), activation="tanh"),
        ],
        # control
        "scan": [
            case(_scan_step, {"total": SCALAR, "count": np.array(0, np.int32)}, (ROW, floats(4, 2, seed=9))),
            case(_scan_step, {"total": ROW, "count": 0}, [floats(5, 4), floats(5, 1)], reverse=True),
            case(_add_step, 0.5, None, length=3),
            case(_add_step, SCALAR, None, length=3),
        ],
        "cond": [
            case(np.array(True), lambda x: x * 2, lambda x: x + 1, X),
            case(np.array(False), lambda x, y: {"a": x * y}, lambda x, y: {"a": x - y}, X, Y),
            case(True, lambda x: (x, -x), lambda x: (-x, x), X),
        ],
        "stop_gradient": [case(X, finite_differences=False), case(WHOLE)],
        # optimization
        **_optimizer_cases(),
    }
    for name in _UNARY_REAL:
        table[name] = [case(X), case(WHOLE), case(FLAGS), case(BYTES % 5), case(SCALAR), case(0.5), case(DISTINCT)]
    table["erf"].append(case(floats(40, low=-5.0, high=5.0), finite_differences=False))
    for name in _UNARY_STEP:
        table[name] = [case(X), case(WHOLE), case(EDGES, finite_differences=False)]
    for name in _COMPARISONS:
        table[name] = [case(X, Y), case(WHOLE, WHOLE_2), case(X, X), case(1, WHOLE), case(X, 0.5), case(WHOLE, 0.5)]
        table[name] += [case(1.0, 2), case(SPECIAL, SPECIAL)]
    for name in ("logical_and", "logical_or"):
        table[name] = [case(FLAGS, FLAGS_2), case(WHOLE, FLAGS), case(FLAGS, True), case(X, WHOLE), case(False, FLAGS)]
    for name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
        table[name] = [case(WHOLE, WHOLE_2), case(WHOLE, 3), case(5, WHOLE), case(FLAGS, FLAGS_2), case(BYTES, 15)]
    for name in ("bitwise_left_shift", "bitwise_right_shift"):
        table[name] = [case(WHOLE, WHOLE_2), case(WHOLE, 3), case(np.array([2**31 - 1, -(2**31), -7], np.int32), 5)]
    for name in _REDUCTIONS:
        table[name] = [case(DISTINCT), case(DISTINCT, 1), case(DISTINCT, (0, 2)), case(DISTINCT, -1, True)]
        table[name] += [case(WHOLE, 0), case(BYTES, 1), case(SCALAR), case(DISTINCT, keepdims=True), case(0.5)]
        if name not in ("max", "min"):
            table[name].append(case(FLAGS, 0))
    for name in ("max", "min"):
        table[name] += [case(np.array([1.0, 1.0, 1.0], np.float32), finite_differences=False)]
        table[name] += [case(SPECIAL, gradient=False)]
    table["std"].append(case(np.ones((2, 3), np.float32), 1, finite_differences=False))
    table["prod"].append(case(np.array([[0.0, 2.0, 3.0], [0.0, 0.0, 1.0]], np.float32), 1))
    table["logsumexp"] += [case(X * 100, 1), case(np.full((2, 3), -np.inf, np.float32), 1, gradient=False)]
    return table


CASES = _cases()


def arrays_of(one: Case) -> list[np.ndarray]:
    """The NumPy arrays among the arguments, in order."""
    found: list[np.ndarray] = []
    _replace((one.args, one.kwargs), lambda array: found.append(array) or array)
    return found


def call(function: Callable[..., Any], one: Case, arrays: list[Any]) -> Any:
    """Calls an operator with the case's arguments, its arrays replaced by those given."""
    remaining = iter(arrays)
    args, kwargs = _replace((one.args, one.kwargs), lambda array: next(remaining))
    return function(*args, **kwargs)


def with_arrays(one: Case, arrays: list[Any]) -> Case:
    """The same call with other arrays."""
    args, kwargs = call(lambda *args, **kwargs: (args, kwargs), one, arrays)
    return dataclasses.replace(one, args=args, kwargs=kwargs)


def _replace(tree: Any, f: Callable[[np.ndarray], Any]) -> Any:
    if isinstance(tree, np.ndarray):
        return f(tree)
    if isinstance(tree, dict):
        return {key: _replace(value, f) for key, value in tree.items()}
    if isinstance(tree, tuple | list):
        return type(tree)(_replace(value, f) for value in tree)
    return tree


def leaves(tree: Any) -> list[Any]:
    """Arrays of a result, in order."""
    if tree is None:
        return []
    if isinstance(tree, dict):
        return [leaf for key in sorted(tree) for leaf in leaves(tree[key])]
    if isinstance(tree, tuple | list):
        return [leaf for value in tree for leaf in leaves(value)]
    return [tree]


def load_tensorflow() -> Any:
    """The operators on TensorFlow, or None where it is not installed."""
    import importlib.util

    if importlib.util.find_spec("tensorflow") is None:
        return None
    from rlweave.extensions.tensorflow_ import ops

    return ops
