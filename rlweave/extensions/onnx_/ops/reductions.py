"""Reductions as ONNX nodes."""
# ruff: noqa: D103 (documented once, in rlweave.ops)

from __future__ import annotations

from typing import Any

import numpy as np

from rlweave.backends.numpy_ import ops as reference
from rlweave.extensions.onnx_.ops import elementwise
from rlweave.extensions.onnx_.symbolic import Operator, Target, composed, no_form, symbolic, without_form

Array = Any
Axis = int | tuple[int, ...] | None


def _reduced(target: Target, op_type: str, name: str, axis: Axis, keepdims: bool) -> str:
    inputs = [name]
    if axis is not None:
        inputs.append(target.model.constant([axis] if isinstance(axis, int) else list(axis), np.int64))
    return str(target.node(op_type, inputs, keepdims=int(keepdims)))


def _source(target: Target, x: Array, dtype: Any) -> str:
    """What is reduced, in a dtype. ONNX Runtime gives results of a wrong shape for arrays without elements."""
    if 0 in getattr(x, "static_shape", ()):
        raise no_form("a reduction of an array without elements")
    return target.name(x, dtype)


def _in_result(op_type: str, function: Operator) -> Operator:
    """A reduction in the dtype of its result."""

    @symbolic(function)
    def write(target: Target, x: Array, axis: Axis = None, keepdims: bool = False) -> str:
        dtype = elementwise.computed_in(target.dtype)
        found = _reduced(target, op_type, _source(target, x, dtype), axis, keepdims)
        return elementwise.in_dtype_of_result(target, found, dtype)

    return write


def _extreme(op_type: str, function: Operator) -> Operator:
    """The largest or smallest element, NaN if one is: ONNX Runtime passes over NaN where it reduces all axes."""

    @symbolic(function)
    def write(target: Target, x: Array, axis: Axis = None, keepdims: bool = False) -> str:
        dtype = elementwise.computed_in(target.dtype)
        name = _source(target, x, dtype)
        found = _reduced(target, op_type, name, axis, keepdims)
        if dtype.kind != "f":
            return elementwise.in_dtype_of_result(target, found, dtype)
        wrong = target.model.cast(target.node("IsNaN", [name]), np.int32)
        wrong = target.model.cast(_reduced(target, "ReduceMax", wrong, axis, keepdims), np.bool_)
        return str(target.node("Where", [wrong, target.model.constant(np.nan, dtype), found]))

    return write


def _of_truth(op_type: str, function: Operator) -> Operator:
    @symbolic(function)
    def write(target: Target, x: Array, axis: Axis = None, keepdims: bool = False) -> str:
        numbers = target.model.cast(_source(target, x, np.bool_), np.int32)
        return target.model.cast(_reduced(target, op_type, numbers, axis, keepdims), np.bool_)

    return write


sum = _in_result("ReduceSum", reference.sum)
mean = _in_result("ReduceMean", reference.mean)
prod = _in_result("ReduceProd", reference.prod)
max = _extreme("ReduceMax", reference.max)
min = _extreme("ReduceMin", reference.min)
any = _of_truth("ReduceMax", reference.any)
all = _of_truth("ReduceMin", reference.all)


@composed(reference.var)
def var(x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
    return mean(elementwise.square(elementwise.subtract(x, mean(x, axis, True))), axis, keepdims)


@composed(reference.std)
def std(x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
    return elementwise.sqrt(var(x, axis, keepdims))


@symbolic(reference.logsumexp)
def logsumexp(target: Target, x: Array, axis: Axis = None, keepdims: bool = False) -> str:
    name = _source(target, x, target.dtype)
    largest = _reduced(target, "ReduceMax", name, axis, True)
    # an infinite maximum must not be subtracted from itself
    largest = target.node("Where", [target.node("IsInf", [largest]), target.model.constant(0, target.dtype), largest])
    powers = target.node("Exp", [target.node("Sub", [name, largest])])
    found = target.node("Add", [target.node("Log", [_reduced(target, "ReduceSum", powers, axis, True)]), largest])
    if keepdims:
        return str(found)
    axes = list(range(x.ndim)) if axis is None else [axis] if isinstance(axis, int) else list(axis)
    return str(target.node("Squeeze", [found, target.model.constant(axes, np.int64)])) if axes else str(found)


def _index(op_type: str, function: Operator) -> Operator:
    @symbolic(function)
    def write(target: Target, x: Array, axis: int | None = None, keepdims: bool = False) -> str:
        name = _source(target, x, elementwise.computed_in(x.dtype))
        if axis is None:
            flat = target.node("Reshape", [name, target.model.constant([-1], np.int64)])
            found = target.node(op_type, [flat], axis=0, keepdims=0)
            if keepdims:
                found = target.node("Reshape", [found, target.model.constant([1] * x.ndim, np.int64)])
        else:
            found = target.node(op_type, [name], axis=axis, keepdims=int(keepdims))
        return target.model.cast(found, target.dtype)

    return write


argmax = _index("ArgMax", reference.argmax)
argmin = _index("ArgMin", reference.argmin)


@symbolic(reference.cumulative_sum)
def cumulative_sum(target: Target, x: Array, axis: int | None = None) -> str:
    return str(target.node("CumSum", [target.name(x, target.dtype), target.model.constant(axis or 0, np.int64)]))


discounted_sums = without_form(reference.discounted_sums)
