"""Creation and conversion as ONNX nodes; without a symbol among the sizes they make constants."""
# ruff: noqa: D103 (documented once, in rlweave.ops)

from __future__ import annotations

from typing import Any

from rlweave.backends.numpy_ import ops as reference
from rlweave.backends.onnx_.ops.shapes import stack
from rlweave.backends.onnx_.symbol import Size, Symbol
from rlweave.backends.onnx_.symbolic import Operator, Target, symbolic, without_form

Array = Any


@symbolic(reference.asarray)
def asarray(target: Target, x: Array, dtype: str | None = None) -> str:
    if isinstance(x, (Symbol, Size)):
        return target.name(x, target.dtype)
    return target.name(stack([asarray(item) for item in x]), target.dtype)


@symbolic(reference.astype)
def astype(target: Target, x: Array, dtype: str) -> str:
    return target.name(x, target.dtype)


def _filled(function: Operator, number: int) -> Operator:
    @symbolic(function)
    def write(target: Target, shape: Any, dtype: str = "float32") -> str:
        sizes = shape if isinstance(shape, (tuple, list)) else (shape,)
        return str(target.node("Expand", [target.model.constant(number, target.dtype), target.shape(sizes)]))

    return write


zeros = _filled(reference.zeros, 0)
ones = _filled(reference.ones, 1)


@symbolic(reference.full)
def full(target: Target, shape: Any, fill_value: Array, dtype: str = "float32") -> str:
    sizes = shape if isinstance(shape, (tuple, list)) else (shape,)
    return str(target.node("Expand", [target.name(fill_value, target.dtype), target.shape(sizes)]))


@symbolic(reference.arange)
def arange(target: Target, start: Any, stop: Any = None, step: Any = 1, dtype: str = "int32") -> str:
    if stop is None:
        start, stop = 0, start
    return str(target.node("Range", [target.name(x, target.dtype) for x in (start, stop, step)]))


linspace = without_form(reference.linspace)
eye = without_form(reference.eye)


def _like(function: Operator, number: int) -> Operator:
    @symbolic(function)
    def write(target: Target, x: Array, dtype: str | None = None) -> str:
        return _expanded(target, x, target.model.constant(number, target.dtype))

    return write


def _expanded(target: Target, x: Array, value: str) -> str:
    return str(target.node("Expand", [value, target.node("Shape", [target.name(x)])]))


zeros_like = _like(reference.zeros_like, 0)
ones_like = _like(reference.ones_like, 1)


@symbolic(reference.full_like)
def full_like(target: Target, x: Array, fill_value: Array, dtype: str | None = None) -> str:
    return _expanded(target, x, target.name(fill_value, target.dtype))
