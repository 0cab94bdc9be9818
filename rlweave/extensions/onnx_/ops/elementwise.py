"""Elementwise operators as ONNX nodes; NumPy decides on the dtype of each result."""
# ruff: noqa: D103 (documented once, in rlweave.ops)

from __future__ import annotations

from typing import Any

import numpy as np

from rlweave.backends.numpy_ import ops as reference
from rlweave.extensions.onnx_.symbol import Symbol, ToldApartByIdentity
from rlweave.extensions.onnx_.symbolic import Operator, Target, composed, symbolic, without_form

Array = Any

#: Types for which ONNX Runtime has few kernels, and what they are computed in.
_COMPUTED_IN = {name: np.dtype("int32") for name in ("bool", "int8", "int16", "uint8", "uint16")}


def computed_in(dtype: Any) -> np.dtype[Any]:
    """The dtype that numbers of a dtype are computed in."""
    return _COMPUTED_IN.get(np.dtype(dtype).name, np.dtype(dtype))


def in_dtype_of_result(target: Target, name: str, dtype: Any) -> str:
    """A value that was computed in a dtype, in that of the result."""
    return name if np.dtype(dtype) == target.dtype else target.model.cast(name, target.dtype)


def arithmetic(op_type: str, function: Operator, **attributes: Any) -> Operator:
    """An operator whose operands have the dtype of its result."""

    @symbolic(function)
    def write(target: Target, *operands: Array) -> str:
        dtype = computed_in(target.dtype)
        names = [target.name(x, dtype) for x in operands]
        return in_dtype_of_result(target, target.node(op_type, names, **attributes), dtype)

    return write


def _meeting(operands: tuple[Array, ...]) -> np.dtype[Any]:
    """The dtype in which the operands of a comparison meet."""
    examples = [x.examples[0] if isinstance(x, Symbol) else x for x in operands]
    return computed_in(reference.add(*[x.astype(np.int32) if _is_bool(x) else x for x in examples]).dtype)


def _is_bool(x: Any) -> bool:
    return hasattr(x, "dtype") and x.dtype == np.bool_


def comparison(op_type: str, function: Operator, negated: bool = False) -> Operator:
    """An operator with a boolean result."""

    @symbolic(function)
    def write(target: Target, *operands: Array) -> str:
        dtype = _meeting(operands)
        found = target.node(op_type, [target.name(x, dtype) for x in operands])
        return str(target.node("Not", [found]) if negated else found)

    return write


def logical(op_type: str, function: Operator) -> Operator:
    """An operator on truth values."""

    @symbolic(function)
    def write(target: Target, *operands: Array) -> str:
        return str(target.node(op_type, [target.name(x, np.bool_) for x in operands]))

    return write


def bitwise(op_type: str, truth: str, function: Operator) -> Operator:
    """An operator on bits, or truth values."""

    @symbolic(function)
    def write(target: Target, *operands: Array) -> str:
        names = [target.name(x, target.dtype) for x in operands]
        return str(target.node(truth if target.dtype == np.bool_ else op_type, names))

    return write


exp = arithmetic("Exp", reference.exp)
log = arithmetic("Log", reference.log)
sqrt = arithmetic("Sqrt", reference.sqrt)
sin = arithmetic("Sin", reference.sin)
cos = arithmetic("Cos", reference.cos)
tanh = arithmetic("Tanh", reference.tanh)
erf = arithmetic("Erf", reference.erf)
abs = arithmetic("Abs", reference.abs)
negative = arithmetic("Neg", reference.negative)
sign = arithmetic("Sign", reference.sign)
lgamma = without_form(reference.lgamma)

add = arithmetic("Add", reference.add)
subtract = arithmetic("Sub", reference.subtract)
multiply = arithmetic("Mul", reference.multiply)
divide = arithmetic("Div", reference.divide)
pow = arithmetic("Pow", reference.pow)
minimum = arithmetic("Min", reference.minimum)
maximum = arithmetic("Max", reference.maximum)

equal = comparison("Equal", reference.equal)
not_equal = comparison("Equal", reference.not_equal, negated=True)
less = comparison("Less", reference.less)
less_equal = comparison("LessOrEqual", reference.less_equal)
greater = comparison("Greater", reference.greater)
greater_equal = comparison("GreaterOrEqual", reference.greater_equal)

logical_and = logical("And", reference.logical_and)
logical_or = logical("Or", reference.logical_or)
logical_not = logical("Not", reference.logical_not)
bitwise_and = bitwise("BitwiseAnd", "And", reference.bitwise_and)
bitwise_or = bitwise("BitwiseOr", "Or", reference.bitwise_or)
bitwise_xor = bitwise("BitwiseXor", "Xor", reference.bitwise_xor)


@symbolic(reference.square)
def square(target: Target, x: Array) -> str:
    dtype = computed_in(target.dtype)
    name = target.name(x, dtype)
    return in_dtype_of_result(target, target.node("Mul", [name, name]), dtype)


def _whole(op_type: str, function: Operator) -> Operator:
    """Rounding: whole numbers stay as they are."""

    @symbolic(function)
    def write(target: Target, x: Array) -> str:
        name = target.name(x, target.dtype)
        return str(target.node(op_type, [name])) if target.dtype.kind == "f" else name

    return write


floor = _whole("Floor", reference.floor)
ceil = _whole("Ceil", reference.ceil)
round = _whole("Round", reference.round)


@symbolic(reference.isnan)
def isnan(target: Target, x: Array) -> str:
    return str(target.node("IsNaN", [target.name(x, np.float32)]))


@symbolic(reference.isfinite)
def isfinite(target: Target, x: Array) -> str:
    name = target.name(x, np.float32)
    wrong = target.node("Or", [target.node("IsNaN", [name]), target.node("IsInf", [name])])
    return str(target.node("Not", [wrong]))


@composed(reference.expm1)
def expm1(x: Array) -> Array:
    # e^x - 1 = tanh(x/2) (e^x + 1), which cancels nothing near 0
    return multiply(tanh(multiply(x, 0.5)), add(exp(x), 1.0))


@composed(reference.log1p)
def log1p(x: Array) -> Array:
    # log(u) x / (u - 1) with u = 1 + x as it was rounded (Goldberg 1991, theorem 4); infinity stays infinity
    u = add(x, 1.0)
    plain = logical_or(equal(u, 1.0), logical_not(isfinite(u)))
    quotient = divide(multiply(log(u), x), where(plain, 1.0, subtract(u, 1.0)))
    return where(plain, multiply(x, 1.0), quotient)


@composed(reference.floor_divide)
def floor_divide(x1: Array, x2: Array) -> Array:
    if _meeting((x1, x2)).kind == "f":
        return floor(divide(x1, x2))
    return _cut(subtract(x1, remainder(x1, x2)), x2)


@symbolic(reference.floor_divide)
def _cut(target: Target, x1: Array, x2: Array) -> str:
    """A quotient of integers without a rest: ONNX rounds others towards zero."""
    dtype = computed_in(target.dtype)
    return in_dtype_of_result(target, target.node("Div", [target.name(x1, dtype), target.name(x2, dtype)]), dtype)


@composed(reference.remainder)
def remainder(x1: Array, x2: Array) -> Array:
    if _meeting((x1, x2)).kind == "f":
        return subtract(x1, multiply(x2, floor(divide(x1, x2))))
    return _whole_remainder(x1, x2)


_whole_remainder = arithmetic("Mod", reference.remainder)


def _shifted(direction: str, target: Target, name: str, x2: Array) -> str:
    """ONNX shifts unsigned numbers only."""
    bits = target.model.cast(name, np.uint32)
    moved = target.node("BitShift", [bits, target.name(x2, np.uint32)], direction=direction)
    return target.model.cast(moved, np.int32)


@symbolic(reference.bitwise_left_shift)
def bitwise_left_shift(target: Target, x1: Array, x2: Array) -> str:
    return in_dtype_of_result(target, _shifted("LEFT", target, target.name(x1, np.int32), x2), np.int32)


@symbolic(reference.bitwise_right_shift)
def bitwise_right_shift(target: Target, x1: Array, x2: Array) -> str:
    # the complement of a negative number is not negative, and shifts as its number does
    x = target.name(x1, np.int32)
    negative = target.node("Less", [x, target.model.constant(0, np.int32)])
    positive = target.node("Where", [negative, target.node("BitwiseNot", [x]), x])
    moved = _shifted("RIGHT", target, positive, x2)
    found = target.node("Where", [negative, target.node("BitwiseNot", [moved]), moved])
    return in_dtype_of_result(target, found, np.int32)


@composed(reference.clip)
def clip(x: Array, min: Array | None = None, max: Array | None = None) -> Array:
    result = x if min is None else maximum(x, min)
    return result if max is None else minimum(result, max)


@symbolic(reference.where)
def where(target: Target, condition: Array, x1: Array, x2: Array) -> str:
    dtype = computed_in(target.dtype)
    names = [target.name(condition, np.bool_), target.name(x1, dtype), target.name(x2, dtype)]
    return in_dtype_of_result(target, target.node("Where", names), dtype)


def _install_operators() -> None:
    """Gives symbols Python's operators."""

    def swapped(function: Operator) -> Operator:
        return lambda self, other: function(other, self)

    binary = {
        "add": add,
        "sub": subtract,
        "mul": multiply,
        "truediv": divide,
        "floordiv": floor_divide,
        "mod": remainder,
        "pow": pow,
        "and": bitwise_and,
        "or": bitwise_or,
        "xor": bitwise_xor,
        "lshift": bitwise_left_shift,
        "rshift": bitwise_right_shift,
    }
    for name, function in binary.items():
        setattr(Symbol, f"__{name}__", lambda self, other, function=function: function(self, other))
        setattr(Symbol, f"__r{name}__", swapped(function))
    compared = {"eq": equal, "ne": not_equal, "lt": less, "le": less_equal, "gt": greater, "ge": greater_equal}
    for name, function in compared.items():
        setattr(Symbol, f"__{name}__", lambda self, other, function=function: function(self, other))
    # equality is elementwise, and takes the hash away
    operators = {"hash": ToldApartByIdentity.__hash__, "neg": negative, "abs": abs, "invert": _inverted}
    for name, function in operators.items():
        setattr(Symbol, f"__{name}__", lambda self, function=function: function(self))


def _inverted(x: Symbol) -> Any:
    return logical_not(x) if x.dtype == np.bool_ else bitwise_xor(x, -1)


_install_operators()
