"""Gradients of a component, on each backend, against central differences in float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from rlweave import ops
from rlweave.graph import Component, GraphExecutor, api, build, gradients, graph_fn
from rlweave.graph.ir import Unknown, Value, unique
from rlweave.spaces import Dict, Space
from rlweave.testing.descriptors import Descriptor
from rlweave.testing.parity import Difference, build_described, refuse_differences
from rlweave.tree import flatten_tree, has_leaf, leaves_of, tree_map

#: Step of central differences in float64: the error is about 1e-10 of a smooth function of order 1.
_STEP = 1e-6
#: Entries of each array that are checked one by one; the others only by a random direction over all of them.
_ENTRIES = 4
#: Results below are left out of the loss.
_MASKED = -1e6


class GradientProbe(Component):
    """A root around a component that differentiates a fixed projection of one of its API methods.

    Args:
        component: The component.
        method: Its API method.
        static: Static arguments by method.
        differentiated: The part of the result that is differentiated; all of it by default.
    """

    def __init__(
        self,
        component: Component,
        method: str,
        static: Mapping[str, Mapping[str, Any]],
        differentiated: Callable[[Any], Any] | None = None,
    ) -> None:
        super().__init__("probe")
        self.component = component
        self.method, self.static_arguments, self.differentiated = method, static, differentiated

    @api
    def loss(self, arguments: Any) -> Any:
        """A scalar: all float results, each entry times a fixed number, averaged."""
        result = self._call(self.method, arguments)
        if has_leaf(result, Unknown):
            return result
        if self.differentiated is not None:
            result = self.differentiated(result)
        # by path: entries of a dict come in an order of their own from each backend
        leaves = [leaf for _, leaf in sorted(flatten_tree(result).items()) if isinstance(leaf, Value)]
        return self._project([leaf for leaf in leaves if leaf.space.dtype.startswith("float")])

    @api
    def gradients(self, arguments: Any) -> Any:
        """The loss, and its gradients by variables (by relative path) and by float inputs (by path)."""
        loss = self.loss(arguments)
        if has_leaf(loss, Unknown):
            return loss
        variables = self.component.variables()
        by_variables = gradients(loss, variables, allow_unused=True) if len(variables) else {}
        inputs = {
            path: value
            for path, value in flatten_tree(arguments).items()
            if isinstance(value, Value) and value.space.dtype.startswith("float")
        }
        by_inputs = gradients(loss, inputs, allow_unused=True) if inputs else {}
        return {"loss": loss, "variables": by_variables, "inputs": by_inputs}

    @api
    def feed(self, arguments_by_method: Any) -> None:
        """Calls API methods; it is built and never run, so that the component gets all inputs that it needs."""
        for method, arguments in arguments_by_method.items():
            self._call(method, arguments)

    def _call(self, method: str, arguments: dict[str, Any]) -> Any:
        return getattr(self.component, method)(**arguments, **self.static_arguments.get(method, {}))

    @graph_fn(returns=1)
    def _project(self, results: Any) -> Any:
        total: Any = 0.0
        for number, x in enumerate(results):
            size = math.prod(x.shape)
            angles = ops.astype(ops.arange(size), "float32") * 1.7 + (0.4 + number)
            x = ops.where(x > _MASKED, x, 0.0)  # logits of masked categories would leave no digits for the others
            total = total + ops.sum(ops.reshape(x, (size,)) * ops.cos(angles)) / ops.maximum(ops.asarray(size), 1)
        return total


def differentiable_methods(descriptor: Descriptor) -> tuple[str, ...]:
    """The API methods whose results `gradient_parity` differentiates."""
    if descriptor.gradients is not None:
        return descriptor.gradients
    executor = build_described(descriptor, descriptor.reference)
    trainable = any(cell.trainable for cell in executor.store.cells.values())
    found = []
    for method in descriptor.methods(executor.root):
        graph = next(graph for (name, _), graph in executor.graphs.items() if name == method)
        floats = [v for v in graph.output_values() if v.space.dtype.startswith("float")]
        inputs = [v for v in leaves_of(graph.inputs, Value) if v.space.dtype.startswith("float")]
        if floats and (inputs or (trainable and graph.inputs)):
            found.append(method)
    return unique(found)


def gradient_parity(descriptor: Descriptor, backend: str) -> None:
    """Gradients are those of central differences in float64 on NumPy: by every variable and every float input.

    So the backends agree with each other as well. A gradient has to be exactly 0 for inputs that the descriptor calls
    constant.

    Args:
        descriptor: What to check.
        backend: "torch", "jax" or "tensorflow".

    Raises:
        AssertionError: They differ.
    """
    for method in differentiable_methods(descriptor):
        refuse_differences(gradient_differences(descriptor, backend, method))


def gradient_differences(descriptor: Descriptor, backend: str, method: str) -> Iterator[Difference]:
    """Where the gradients of one method on a backend are not those of `gradient_parity`."""
    rows = descriptor.batch_sizes[-1]
    where = f"{descriptor.name}.{method} on {backend}"

    def difference(what: str, seen: str) -> Difference:
        return Difference(where, "", what, 0, rows, seen)

    executor = build_probe(descriptor, method, "gradients", backend=backend)
    arguments = descriptor.sample(executor.root.component, method, rows)
    result = executor.gradients(arguments)
    oracle = _Differences(descriptor, method, arguments, executor.get_weights())
    loss, expected = float(result["loss"]), oracle.loss()
    if not np.isclose(loss, expected, rtol=1e-4, atol=descriptor.tolerance):
        yield difference("loss", f"{loss} / {expected}")
    constants = descriptor.constants.get(method, ())
    flowing = {path: g for path, g in result["inputs"].items() if path.split("/")[0] not in constants}
    for path in set(result["inputs"]) - set(flowing):
        if np.any(result["inputs"][path]):
            yield difference(f"input {path}", f"a gradient reaches {path}, which is constant")
    checked = [
        *((f"variable {path}", oracle.weights[path], g) for path, g in result["variables"].items()),
        *((f"input {path}", oracle.inputs[path], g) for path, g in flowing.items()),
    ]
    if not checked:
        yield difference("gradients", "nothing to differentiate by")
    scale = max(max((float(np.max(np.abs(g), initial=0.0)) for _, _, g in checked), default=0.0), 1e-3)
    for name, array, gradient in checked:
        seen = oracle.compare(array, np.asarray(gradient), descriptor.gradient_tolerance * scale)
        if seen:
            yield difference(f"{name}{seen[0]}", seen[1])


def build_probe(descriptor: Descriptor, method: str, what: str, **options: Any) -> GraphExecutor:
    """Builds the probe of one API method: what of it, its loss or its gradients too, is asked for."""
    probe = GradientProbe(descriptor.make(), method, descriptor.static, descriptor.differentiated.get(method))
    fed = {name: descriptor.inputs(probe.component, name) for name in unique(descriptor.methods(probe.component))}
    spaces: dict[str, Space] = {
        "arguments": Dict(fed[method]),
        "arguments_by_method": Dict({name: Dict(inputs) for name, inputs in fed.items() if inputs}),
    }
    return build(probe, spaces, rng="portable", methods=[what, "feed"], **options)


class _Differences:
    """The loss of a gradient probe in float64, as a function of arrays that are changed in place."""

    def __init__(
        self,
        descriptor: Descriptor,
        method: str,
        arguments: dict[str, Any],
        weights: Mapping[str, np.ndarray],
    ) -> None:
        self.executor = build_probe(descriptor, method, "loss", float_dtype="float64")

        def widen(leaf: Any) -> Any:
            array = np.asarray(leaf)
            return array.astype(np.float64) if array.dtype == np.float32 else array

        self.arguments = tree_map(widen, arguments)
        self.inputs = flatten_tree(self.arguments)
        self.state = {**self.executor.state_dict(), **{path: widen(array) for path, array in weights.items()}}
        self.weights = self.state

    def loss(self) -> float:
        self.executor.load_state_dict(self.state)
        return float(self.executor.loss(self.arguments))

    def slope(self, array: np.ndarray, direction: np.ndarray) -> float:
        """Derivative of the loss along a direction of one of the arrays."""
        before = array.copy()
        array[...] = before + _STEP * direction
        above = self.loss()
        array[...] = before - _STEP * direction
        below = self.loss()
        array[...] = before
        return (above - below) / (2 * _STEP)

    def compare(self, array: np.ndarray, gradient: np.ndarray, tolerance: float) -> tuple[str, str] | None:
        """Where a gradient differs from the slopes, and how; None: nowhere."""
        if gradient.shape != array.shape:
            return "", f"gradient of shape {gradient.shape}, not {array.shape}"
        if array.size == 0:
            return None
        rng = np.random.default_rng(0)
        for entry in rng.permutation(array.size)[:_ENTRIES]:
            direction = np.zeros(array.size)
            direction[entry] = 1.0
            slope, given = self.slope(array, direction.reshape(array.shape)), float(gradient.reshape(-1)[entry])
            index = [int(i) for i in np.unravel_index(entry, array.shape)]
            if not abs(slope - given) <= tolerance:
                return str(index), f"{given}, by differences {slope}"
        direction = rng.choice([-1.0, 1.0], size=array.shape)
        slope, given = self.slope(array, direction), float(np.sum(gradient * direction))
        if not abs(slope - given) <= tolerance * np.sqrt(array.size):
            return ", over all entries", f"{given}, by differences {slope}"
        return None


__all__ = ["GradientProbe", "build_probe", "differentiable_methods", "gradient_differences", "gradient_parity"]
