"""An ONNX model as a Python file that needs nothing but NumPy, a line for each node, and an archive of its weights."""

from __future__ import annotations

import inspect
import io
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import helper, load_from_string, numpy_helper

from rlweave.backends.base import OpenArray
from rlweave.errors import BackendError
from rlweave.extensions.onnx_ import numpy_forms
from rlweave.extensions.onnx_.export import FlatFunction, write_model

#: Constants of up to so many elements stand in the source, larger ones in the archive.
_INLINE = 4
_END = np.iinfo(np.int64).max


def write(
    function: FlatFunction, weights: Mapping[str, np.ndarray], inputs: Mapping[str, OpenArray], file: str
) -> dict[str, bytes]:
    """The files of the artefact, by name; see `rlweave.extensions.onnx_.export.write_model`."""
    archive = str(Path(file).with_suffix(".npz"))
    title = "A trained policy: the arithmetic of its network, line after line."
    source, arrays = write_source(write_model(function, weights, inputs), title, archive)
    return {file: source.encode(), archive: arrays}


def load(path: Path) -> Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]:
    """What runs the module, from arrays by name to arrays by name."""
    scope: dict[str, Any] = {"__file__": str(path), "__name__": "exported_policy"}
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), scope)
    act: Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]] = scope["act"]
    return act


def write_source(content: bytes, title: str, archive: str) -> tuple[str, bytes]:
    """Writes the source of a module with a function `act` from arrays by name to arrays by name.

    Args:
        content: The serialized model.
        title: First line of its docstring.
        archive: File name of the archive, which lies beside the source.

    Returns:
        The source, and the content of the archive (.npz).

    Raises:
        BackendError: The model has a loop or a branch, or another operator without a form here.
    """
    graph = load_from_string(content).graph
    writer = _Writer({tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer})
    lines = [f"{writer.name(value.name)} = np.asarray(inputs[{value.name!r}])" for value in graph.input]
    lines += [writer.line(node) for node in graph.node]
    results = [f"{value.name!r}: {writer.text(value.name)}," for value in graph.output]
    helpers = [inspect.getsource(getattr(numpy_forms, name)) for name in writer.forms()]
    source = _TEMPLATE.format(
        title=title,
        maths="import math\n" if any("math." in text for text in helpers) else "",
        archive=archive,
        helpers="".join(f"\n\n{text.rstrip()}\n" for text in helpers),
        lines="\n    ".join(lines),
        results="\n        ".join(results),
    )
    buffer = io.BytesIO()
    np.savez(buffer, **writer.kept)
    return source, buffer.getvalue()


_TEMPLATE = '''"""{title}"""

{maths}from pathlib import Path

import numpy as np

weights = dict(np.load(Path(__file__).with_name({archive!r})))
{helpers}

def act(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Arrays by name to arrays by name; the JSON file beside this one describes them."""
    {lines}
    return {{
        {results}
    }}
'''

_BINARY = {
    "Add": "+", "Sub": "-", "Mul": "*", "MatMul": "@", "Pow": "**", "Mod": "%", "Equal": "==", "Less": "<",
    "LessOrEqual": "<=", "Greater": ">", "GreaterOrEqual": ">=", "And": "&", "Or": "|", "Xor": "^", "BitwiseAnd": "&",
    "BitwiseOr": "|", "BitwiseXor": "^",
}  # fmt: skip
_FUNCTIONS = {
    "Exp": "np.exp", "Log": "np.log", "Sqrt": "np.sqrt", "Sin": "np.sin", "Cos": "np.cos", "Tanh": "np.tanh",
    "Abs": "np.abs", "Neg": "-", "Sign": "np.sign", "Floor": "np.floor", "Ceil": "np.ceil", "Round": "np.rint",
    "Not": "~", "BitwiseNot": "~", "IsNaN": "np.isnan", "IsInf": "np.isinf", "Min": "np.minimum", "Max": "np.maximum",
    "Where": "np.where", "Sigmoid": "sigmoid", "Erf": "erf", "Expand": "expand", "Div": "divide", "Range": "np.arange",
    "Tile": "np.tile", "Identity": "",
}  # fmt: skip
_REDUCTIONS = {
    "ReduceSum": "np.sum", "ReduceMean": "np.mean", "ReduceProd": "np.prod", "ReduceMax": "np.max",
    "ReduceMin": "np.min",
}  # fmt: skip


class _Writer:
    """Names of values, and lines of nodes.

    Args:
        constants: By name in the model.
    """

    def __init__(self, constants: dict[str, np.ndarray]) -> None:
        self._constants = constants
        self._names: dict[str, str] = {}
        self._used_forms: set[str] = set()
        #: What goes into the archive.
        self.kept: dict[str, Any] = {}

    def name(self, value: str) -> str:
        """The Python name of a value of the model."""
        if value not in self._names:
            base = name = re.sub(r"\W+", "_", value).lower().strip("_") or "value"
            number = 1
            while name in self._names.values() or name in _TAKEN:
                number += 1
                name = f"{base}_{number}"
            self._names[value] = name
        return self._names[value]

    def text(self, value: str) -> str:
        """The expression of a value: its name, or a constant."""
        if value not in self._constants:
            return self.name(value)
        array = self._constants[value]
        if (
            not value.startswith("constant_")
            or array.size > _INLINE
            or (array.dtype.kind == "f" and not np.all(np.isfinite(array)))
        ):
            self.kept[value] = array
            return f"weights[{value!r}]"
        if array.ndim == 0:
            return f"np.{array.dtype.name}({array.item()!r})".replace("np.bool(", "np.bool_(")
        return f"np.array({array.tolist()!r}, {array.dtype.name!r})"

    def forms(self) -> list[str]:
        """The helpers that the lines call."""
        if "gelu" in self._used_forms:
            self._used_forms.add("erf")
        return [name for name, f in vars(numpy_forms).items() if inspect.isfunction(f) and name in self._used_forms]

    def line(self, node: Any) -> str:
        """The line of a node."""
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        attributes = {k: v.decode() if isinstance(v, bytes) else v for k, v in attributes.items()}
        expression = self._expression(node.op_type, list(node.input), attributes)
        targets = ", ".join(self.name(output) for output in node.output)
        return f"{targets} = {expression}"

    def _expression(self, op: str, inputs: list[str], attributes: dict[str, Any]) -> str:
        operands = [self.text(name) for name in inputs]
        if op in _BINARY:
            return f" {_BINARY[op]} ".join(operands)
        if op == "Div" and self._constants.get(inputs[1], np.zeros(0, np.int32)).dtype.kind == "f":
            return " / ".join(operands)
        if op in _FUNCTIONS:
            return self._call(_FUNCTIONS[op], *operands)
        if op in _REDUCTIONS:
            axes = f"axis={tuple(self._numbers(inputs[1]))!r}, " if len(inputs) > 1 else ""
            return f"{_REDUCTIONS[op]}({operands[0]}, {axes}keepdims={bool(attributes.get('keepdims', 1))})"
        writer: Callable[..., str] | None = getattr(self, f"_{op.lower()}", None)
        if writer is None:
            raise BackendError(
                f"the ONNX node {op} has no expression in plain NumPy",
                where="the export to numpy",
                fix="export to onnx, torch or jax, or add one to rlweave/extensions/onnx_/numpy_source.py",
            )
        return writer(inputs, operands, **attributes)

    def _call(self, function: str, *operands: str) -> str:
        if hasattr(numpy_forms, function):
            self._used_forms.add(function)
        return f"{function}({', '.join(operands)})" if len(function) > 1 else f"{function}{operands[0]}"

    def _numbers(self, value: str) -> list[int]:
        """A constant list of integers."""
        if value not in self._constants:
            raise BackendError(
                "axes that are computed have no form in plain NumPy",
                where="the export to numpy",
                received=value,
                fix="export to onnx, torch or jax",
            )
        return [int(n) for n in np.ravel(self._constants[value])]

    # -- one function for each operator that is more than a call -----------------------------------------------------

    def _gemm(self, inputs: list[str], operands: list[str], transA: int = 0, transB: int = 0) -> str:
        left, right = operands[0] + (".T" if transA else ""), operands[1] + (".T" if transB else "")
        return f"{left} @ {right}" + (f" + {operands[2]}" if len(operands) > 2 else "")

    def _conv(self, inputs: list[str], operands: list[str], strides: Sequence[int], auto_pad: str, **rest: Any) -> str:
        bias = operands[2] if len(operands) > 2 else "None"
        same = auto_pad == "SAME_UPPER"
        return self._call("convolution", operands[0], operands[1], bias, repr(tuple(strides)), f"same={same}")

    def _relu(self, inputs: list[str], operands: list[str]) -> str:
        return f"np.maximum({operands[0]}, 0)"

    def _leakyrelu(self, inputs: list[str], operands: list[str], alpha: float) -> str:
        return f"np.where({operands[0]} >= 0, {operands[0]}, {operands[0]} * {_float(alpha)})"

    def _elu(self, inputs: list[str], operands: list[str], alpha: float = 1.0) -> str:
        x = operands[0]
        return f"np.where({x} > 0, {x}, {_float(alpha)} * np.expm1(np.minimum({x}, 0)))"

    def _gelu(self, inputs: list[str], operands: list[str], approximate: str) -> str:
        return self._call("gelu", operands[0], f"approximate={approximate == 'tanh'}")

    def _softplus(self, inputs: list[str], operands: list[str]) -> str:
        return f"np.logaddexp({operands[0]}, np.float32(0))"

    def _softmax(self, inputs: list[str], operands: list[str], axis: int = -1) -> str:
        return f"np.exp({self._call('log_softmax', operands[0], f'axis={axis}')})"

    def _logsoftmax(self, inputs: list[str], operands: list[str], axis: int = -1) -> str:
        return self._call("log_softmax", operands[0], f"axis={axis}")

    def _cast(self, inputs: list[str], operands: list[str], to: int) -> str:
        return f"{operands[0]}.astype({_dtype(to)!r})"

    def _concat(self, inputs: list[str], operands: list[str], axis: int) -> str:
        return f"np.concatenate([{', '.join(operands)}], axis={axis})"

    def _transpose(self, inputs: list[str], operands: list[str], perm: Sequence[int]) -> str:
        return f"np.transpose({operands[0]}, {tuple(perm)!r})"

    def _unsqueeze(self, inputs: list[str], operands: list[str]) -> str:
        return f"np.expand_dims({operands[0]}, {tuple(self._numbers(inputs[1]))!r})"

    def _squeeze(self, inputs: list[str], operands: list[str]) -> str:
        axes = f", {tuple(self._numbers(inputs[1]))!r}" if len(inputs) > 1 else ""
        return f"np.squeeze({operands[0]}{axes})"

    def _reshape(self, inputs: list[str], operands: list[str], allowzero: int = 0) -> str:
        x = operands[0]
        if inputs[1] not in self._constants:
            return f"np.reshape({x}, {operands[1]})" if allowzero else self._call("reshape", x, operands[1])
        shape = self._numbers(inputs[1])
        lengths = [f"{x}.shape[{i}]" if n == 0 and not allowzero else repr(n) for i, n in enumerate(shape)]
        return f"np.reshape({x}, ({', '.join(lengths)}{',' if len(lengths) == 1 else ''}))"

    def _shape(self, inputs: list[str], operands: list[str], start: int = 0, end: int | None = None) -> str:
        return f"np.array({operands[0]}.shape[{start}:{'' if end is None else end}])"

    def _slice(self, inputs: list[str], operands: list[str]) -> str:
        starts, ends, axes, steps = [self._numbers(name) for name in inputs[1:5]]
        keys = [":"] * (max(axes) + 1)
        for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
            first = "" if start == (0 if step > 0 else _END) else start
            last = "" if abs(end) >= _END - 1 else end
            keys[axis] = f"{first}:{last}" + (f":{step}" if step != 1 else "")
        return f"{operands[0]}[{', '.join(keys)}]"

    def _gather(self, inputs: list[str], operands: list[str], axis: int = 0) -> str:
        return f"np.take({operands[0]}, {operands[1]}, axis={axis})"

    def _gatherelements(self, inputs: list[str], operands: list[str], axis: int = 0) -> str:
        return f"np.take_along_axis({operands[0]}, {operands[1]}, axis={axis})"

    def _argmax(self, inputs: list[str], operands: list[str], axis: int = 0, keepdims: int = 1) -> str:
        return f"np.argmax({operands[0]}, axis={axis}, keepdims={bool(keepdims)})"

    def _argmin(self, inputs: list[str], operands: list[str], axis: int = 0, keepdims: int = 1) -> str:
        return f"np.argmin({operands[0]}, axis={axis}, keepdims={bool(keepdims)})"

    def _cumsum(self, inputs: list[str], operands: list[str]) -> str:
        return f"np.cumsum({operands[0]}, axis={self._numbers(inputs[1])[0]})"

    def _topk(self, inputs: list[str], operands: list[str], axis: int, largest: int, sorted: int = 1) -> str:
        return self._call("top", operands[0], operands[1], f"axis={axis}", f"largest={bool(largest)}")

    def _einsum(self, inputs: list[str], operands: list[str], equation: str) -> str:
        return f"np.einsum({equation!r}, {', '.join(operands)})"


_TAKEN = frozenset(
    ("np", "math", "weights", "inputs", "act", *(n for n, f in vars(numpy_forms).items() if inspect.isfunction(f)))
)


def _float(number: float) -> str:
    """An attribute, which is kept in single precision."""
    return f"np.float32({float(np.float32(number))!r})"


def _dtype(number: int) -> str:
    return str(helper.tensor_dtype_to_np_dtype(number))
