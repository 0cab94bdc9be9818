"""An ONNX model while it is written: nodes, constants, inputs, and sub-graphs of control flow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

#: Versions of the operator sets that models are written in; ONNX Runtime reads all earlier ones than its own.
OPSET, IR_VERSION = 21, 10
#: Operators that treat each element of their first input alike, where further inputs have no axes.
_ELEMENTWISE = frozenset({"Cast", "Add", "Sub", "Mul", "Div"})
#: ONNX Runtime's own convolutions on blocks of channels (see `blocked_convolution`).
BLOCKED_DOMAIN = "com.microsoft.nchwc"

_TYPES: dict[str, int] = {
    "float32": TensorProto.FLOAT,
    "float64": TensorProto.DOUBLE,
    "float16": TensorProto.FLOAT16,
    "int8": TensorProto.INT8,
    "int16": TensorProto.INT16,
    "int32": TensorProto.INT32,
    "int64": TensorProto.INT64,
    "uint8": TensorProto.UINT8,
    "uint16": TensorProto.UINT16,
    "uint32": TensorProto.UINT32,
    "uint64": TensorProto.UINT64,
    "bool": TensorProto.BOOL,
}


def onnx_type(dtype: Any) -> int:
    """ONNX's number of a dtype."""
    return _TYPES[np.dtype(dtype).name]


class Model:
    """Collects the nodes of a model in the order in which they are computed.

    Values are names. What no output needs is left out at the end.
    """

    def __init__(self) -> None:
        self._scopes: list[list[Any]] = [[]]
        self._casts: list[dict[tuple[str, str], str]] = [{}]
        self._constants: dict[tuple[bytes, tuple[int, ...], str], str] = {}
        self._initializers: dict[str, Any] = {}
        self._inputs: dict[str, Any] = {}
        #: Inputs that are made of a weight whenever it changes: name -> (position among the weights, function).
        self.derived: dict[str, tuple[int, Callable[[np.ndarray], np.ndarray]]] = {}
        self._derived_names: dict[tuple[int, str], str] = {}
        self._count = 0

    def fresh(self, label: str) -> str:
        """A name that nothing else has."""
        self._count += 1
        return f"{label}_{self._count}"

    def input(self, label: str, dtype: Any, axes: Sequence[int | str | None], name: str | None = None) -> str:
        """An input of the model; an axis that is None, or has a name, is open.

        Args:
            label: What its name is made of.
            dtype: Its dtype.
            axes: Lengths.
            name: Its whole name; None: a fresh one.
        """
        name = name or self.fresh(label)
        shape = [f"{name}_{i}" if n is None else n for i, n in enumerate(axes)]
        self._inputs[name] = helper.make_tensor_value_info(name, onnx_type(dtype), shape)
        return name

    def derived_weight(self, weight: Any, label: str, function: Callable[[np.ndarray], np.ndarray]) -> str:
        """An input that is made of a weight on the host, once for each version of the weights.

        Args:
            weight: The symbol of the weight.
            label: Names what the function makes.
            function: From the weight to the input.
        """
        key = (weight.weight, label)
        if key not in self._derived_names:
            example = function(weight.examples[0])
            name = self._derived_names[key] = self.input(label, example.dtype, example.shape)
            self.derived[name] = (weight.weight, function)
        return self._derived_names[key]

    def constant(self, value: Any, dtype: Any = None) -> str:
        """A constant; equal ones are one."""
        array = np.asarray(value, dtype)
        key = _key(array)
        return self._constants.get(key) or self._name_constant(key, self.fresh("constant"), array)

    def named_constant(self, name: str, value: np.ndarray) -> np.ndarray:
        """An array that is a constant of this name wherever the model uses it."""
        self._name_constant(_key(value), name, value)
        return value

    def derived_constant(self, value: np.ndarray, label: str, function: Callable[[np.ndarray], np.ndarray]) -> str:
        """A constant that is made of another one, and named after it."""
        name, result = self.constant(value), function(value)
        return self._name_constant(_key(result), f"{name}/{label}", result)

    def _name_constant(self, key: tuple[bytes, tuple[int, ...], str], name: str, value: np.ndarray) -> str:
        if key not in self._constants:
            self._constants[key] = name
            self._initializers[name] = numpy_helper.from_array(np.ascontiguousarray(value).reshape(value.shape), name)
        return self._constants[key]

    def alias(self, name: str, output: str) -> None:
        """Gives a value a second name, that of an output."""
        self._scopes[0].append(helper.make_node("Identity", [name], [output]))

    def node(
        self, op_type: str, inputs: Sequence[str], *, domain: str = "", outputs: int | None = None, **attributes: Any
    ) -> Any:
        """Adds a node.

        Args:
            op_type: ONNX's name of the operator.
            inputs: Names of values.
            domain: The operator set.
            outputs: How many results it has; None: one.
            **attributes: Of the operator.

        Returns:
            The name of its result; a tuple of names where `outputs` is given.
        """
        names = [self.fresh(op_type) for _ in range(1 if outputs is None else outputs)]
        self._scopes[-1].append(helper.make_node(op_type, list(inputs), names, domain=domain, **attributes))
        return names[0] if outputs is None else tuple(names)

    def transposed(self, name: str, axes: Sequence[int]) -> str:
        """A value with its axes in another order.

        Where that undoes a transposition, with nothing between but elementwise operators and constants without axes,
        those take what was transposed: pictures that come with their channels first are not moved twice.
        """
        producers = {output: node for node in self._scopes[-1] for output in node.output}
        between: list[Any] = []
        node = producers.get(name)
        while node is not None and node.op_type in _ELEMENTWISE and self._are_scalars(node.input[1:]):
            between.append(node)
            node = producers.get(node.input[0])
        if node is None or node.op_type != "Transpose":
            return str(self.node("Transpose", [name], perm=list(axes)))
        (before,) = (helper.get_attribute_value(attribute) for attribute in node.attribute)
        if [before[axis] for axis in axes] != list(range(len(axes))):
            return str(self.node("Transpose", [name], perm=list(axes)))
        found = node.input[0]
        for node in reversed(between):
            attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
            found = self.node(node.op_type, [found, *node.input[1:]], **attributes)
        return str(found)

    def _are_scalars(self, names: Sequence[str]) -> bool:
        return all(name in self._initializers and not self._initializers[name].dims for name in names)

    def cast(self, name: str, dtype: Any) -> str:
        """A value in another dtype; the same conversion twice is one node."""
        key = (name, np.dtype(dtype).name)
        for casts in self._casts:
            if key in casts:
                return casts[key]
        self._casts[-1][key] = found = self.node("Cast", [name], to=onnx_type(dtype))
        return str(found)

    @property
    def in_subgraph(self) -> bool:
        """Whether nodes are added to a body of control flow now."""
        return len(self._scopes) > 1

    @contextmanager
    def subgraph(self) -> Iterator[list[Any]]:
        """Nodes that are added inside belong to a sub-graph; it sees all values from around it."""
        nodes: list[Any] = []
        self._scopes.append(nodes)
        self._casts.append({})
        try:
            yield nodes
        finally:
            self._scopes.pop()
            self._casts.pop()

    def graph_of(
        self, nodes: list[Any], inputs: Sequence[tuple[str, Any, int]], outputs: Sequence[tuple[str, Any]]
    ) -> Any:
        """A sub-graph as an attribute of a node.

        Args:
            nodes: What `subgraph` collected.
            inputs: (name, dtype, number of axes) of each input.
            outputs: (name, dtype) of each result.
        """
        given = [
            helper.make_tensor_value_info(name, onnx_type(dtype), [f"{name}_{i}" for i in range(axes)])
            for name, dtype, axes in inputs
        ]
        results = [helper.make_tensor_value_info(name, onnx_type(dtype), None) for name, dtype in outputs]
        return helper.make_graph(nodes, self.fresh("body"), given, results)

    def finished(
        self, outputs: Sequence[tuple[str, Any, Sequence[int | str] | None]], keep_inputs: bool = False
    ) -> tuple[bytes, list[str]]:
        """The whole model.

        Args:
            outputs: (name, dtype, axes) of each result; None where axes are not told.
            keep_inputs: Whether inputs that it does not use are among its inputs.

        Returns:
            The serialized model, and the names of the inputs that it uses.
        """
        nodes, used = _needed(self._scopes[0], {name for name, _, _ in outputs})
        inputs = [name for name in self._inputs if keep_inputs or name in used]
        graph = helper.make_graph(
            nodes,
            "acting",
            [self._inputs[name] for name in inputs],
            [helper.make_tensor_value_info(name, onnx_type(dtype), axes) for name, dtype, axes in outputs],
            [tensor for name, tensor in self._initializers.items() if name in used],
        )
        opsets = [helper.make_opsetid("", OPSET)]
        if any(node.domain for node in nodes):
            opsets.append(helper.make_opsetid(BLOCKED_DOMAIN, 1))
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION).SerializeToString(), inputs


def _key(array: np.ndarray) -> tuple[bytes, tuple[int, ...], str]:
    """Equal of equal constants."""
    return array.tobytes(), array.shape, str(array.dtype)


def _needed(nodes: Sequence[Any], wanted: set[str]) -> tuple[list[Any], set[str]]:
    """The nodes that lead to wanted values, and the names of all values that are used."""
    used = set(wanted)
    kept = []
    for node in reversed(nodes):
        if used.intersection(node.output):
            used.update(_inputs_of(node))
            kept.append(node)
    return kept[::-1], used


def _inputs_of(node: Any) -> Iterator[str]:
    """Names that a node and its sub-graphs refer to."""
    yield from node.input
    for attribute in node.attribute:
        if attribute.HasField("g"):
            for inner in attribute.g.node:
                yield from _inputs_of(inner)
            for output in attribute.g.output:
                yield output.name
