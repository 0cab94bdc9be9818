"""Gradients of a component, on each backend, against central differences in float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

import numpy as np

from rlweave import ops
from rlweave.graph import Component, GraphExecutor, api, build, gradients, graph_fn
from rlweave.graph.ir import Unknown, Value, unique
from rlweave.spaces import Dict, Space
from rlweave.testing.descriptors import Descriptor
from rlweave.testing.parity import Difference, build_described, copied, refuse_differences
from rlweave.tree import flatten_tree, has_leaf, leaves_of, tree_map

#: Step of central differences in float64: the error is about 1e-10 of a smooth function of order 1.
_STEP = 1e-6
#: Entries of each array that are checked one by one; the others only by a random direction over all of them.
_ENTRIES = 4
#: Results below are left out of the loss.
_MASKED = -1e6


class GradientProbe(Component):
    """A root around a component that differentiates a fixed projection of any of its API methods.

    Args:
        component: The component.
        static: Static arguments by method.
        differentiated: The part of the result that is differentiated, by method; all of it by default.
    """

    def __init__(
        self,
        component: Component,
        static: Mapping[str, Mapping[str, Any]],
        differentiated: Mapping[str, Callable[[Any], Any]] = MappingProxyType({}),
    ) -> None:
        super().__init__("probe")
        self.component = component
        self.static_arguments, self.differentiated = static, differentiated

    @api(static=("method",))
    def loss(self, arguments: Any, method: str) -> Any:
        """A scalar: all float results of a method, each entry times a fixed number, averaged."""
        result = self._call(method, arguments)
        if has_leaf(result, Unknown):
            return result
        if method in self.differentiated:
            result = self.differentiated[method](result)
        # by path: entries of a dict come in an order of their own from each backend
        leaves = [leaf for _, leaf in sorted(flatten_tree(result).items()) if isinstance(leaf, Value)]
        return self._project([leaf for leaf in leaves if leaf.space.dtype.startswith("float")])

    @api(static=("method",))
    def gradients(self, arguments: Any, method: str) -> Any:
        """The loss, and its gradients by variables (by relative path) and by float inputs (by path)."""
        loss = self.loss(arguments, method)
        if has_leaf(loss, Unknown):
            return loss
        variables = self.component.variables()
        by_variables = gradients(loss, variables, allow_unused=True) if len(variables) else {}
        inputs = {
            path: value
            for path, value in flatten_tree(arguments.get(method, {})).items()
            if isinstance(value, Value) and value.space.dtype.startswith("float")
        }
        by_inputs = gradients(loss, inputs, allow_unused=True) if inputs else {}
        return {"loss": loss, "variables": by_variables, "inputs": by_inputs}

    @api
    def feed(self, arguments: Any) -> None:
        """Calls all API methods; it is built and never run, so that the component gets all inputs that it needs."""
        for method in arguments:
            self._call(method, arguments)

    def _call(self, method: str, arguments: dict[str, Any]) -> Any:
        return getattr(self.component, method)(**arguments.get(method, {}), **self.static_arguments.get(method, {}))

    @graph_fn(returns=1)
    def _project(self, results: Any) -> Any:
        total: Any = 0.0
        for number, x in enumerate(results):
            size = math.prod(x.shape)
            angles = ops.astype(ops.arange(size), "float32") * 1.7 + (0.4 + number)
            x = ops.where(x > _MASKED, x, 0.0)  # logits of masked categories would leave no digits for the others
            total = total + ops.sum(ops.reshape(x, (size,)) * ops.cos(angles)) / ops.maximum(ops.asarray(size), 1)
        return total


def differentiable_methods(descriptor: Descriptor, executor: GraphExecutor | None = None) -> tuple[str, ...]:
    """The API methods whose results `gradient_parity` differentiates.

    Args:
        descriptor: Of the component.
        executor: What `build_described` gives, where there is one.
    """
    if descriptor.gradients is not None:
        return descriptor.gradients
    executor = executor or build_described(descriptor, descriptor.reference)
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
    probes = Probes(descriptor)
    for method in differentiable_methods(descriptor):
        refuse_differences(probes.differences(backend, method))


def build_probe(descriptor: Descriptor, what: str, **options: Any) -> GraphExecutor:
    """Builds the probe of all API methods: what of it, its loss or its gradients too, is asked for."""
    probe = GradientProbe(descriptor.make(), descriptor.static, descriptor.differentiated)
    fed = {name: descriptor.inputs(probe.component, name) for name in unique(descriptor.methods(probe.component))}
    spaces: dict[str, Space] = {"arguments": Dict({name: Dict(inputs) for name, inputs in fed.items() if inputs})}
    return build(probe, spaces, rng="portable", methods=[what, "feed"], **options)


def probe_arguments(
    descriptor: Descriptor, executor: GraphExecutor, rows: int | None = None
) -> dict[str, dict[str, Any]]:
    """What a probe is called with: samples for all API methods, by method and parameter."""
    component, rows = executor.root.component, rows or descriptor.batch_sizes[-1]
    sampled = {name: descriptor.sample(component, name, rows) for name in descriptor.methods(component)}
    return {name: arguments for name, arguments in sampled.items() if arguments}


class Probes:
    """Gradients of a descriptor's methods on each backend, and by differences, each computed once.

    Args:
        descriptor: Of the component.
    """

    def __init__(self, descriptor: Descriptor) -> None:
        self.descriptor = descriptor
        self._oracles: dict[str, _Differences] = {}
        self._built = cache(self._build)
        #: The variables of all probes: those of the first one.
        self._weights: dict[str, np.ndarray] = {}

    def differences(self, backend: str, method: str) -> Iterator[Difference]:
        """Where the gradients of one method on a backend are not those by differences; see `gradient_parity`."""
        descriptor = self.descriptor
        rows = descriptor.batch_sizes[-1]
        where = f"{descriptor.name}.{method} on {backend}"

        def difference(what: str, seen: str) -> Difference:
            return Difference(where, "", what, 0, rows, seen)

        result = self._gradients(backend, method)
        oracle = self._oracle(method)
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
            seen = oracle.compare(name, array, np.asarray(gradient), descriptor.gradient_tolerance * scale)
            if seen:
                yield difference(f"{name}{seen[0]}", seen[1])

    def _build(self, what: str, **options: Any) -> tuple[GraphExecutor, dict[str, np.ndarray]]:
        """A probe, and the state that it begins with."""
        executor = build_probe(self.descriptor, what, **options)
        return executor, copied(executor.state_dict())

    def _gradients(self, backend: str, method: str) -> Any:
        executor, start = self._built("gradients", backend=backend)
        if not self._weights:
            self._weights = copied(executor.get_weights())
        executor.load_state_dict({**start, **self._weights})
        return executor.gradients(probe_arguments(self.descriptor, executor), method=method)

    def _oracle(self, method: str) -> _Differences:
        if method not in self._oracles:
            executor, start = self._built("loss", float_dtype="float64")
            self._oracles[method] = _Differences(self.descriptor, executor, method, {**start, **self._weights})
        return self._oracles[method]


class _Differences:
    """The loss of a gradient probe in float64, as a function of arrays that are changed in place.

    Args:
        descriptor: Of the component.
        executor: Its probe in float64.
        method: The API method.
        state: What the probe begins with.
    """

    def __init__(
        self, descriptor: Descriptor, executor: GraphExecutor, method: str, state: Mapping[str, np.ndarray]
    ) -> None:
        def widened(leaf: Any) -> Any:
            array = np.asarray(leaf)
            return array.astype(np.float64) if array.dtype == np.float32 else array

        self.executor, self.method = executor, method
        self.arguments = tree_map(widened, probe_arguments(descriptor, executor))
        self.inputs = flatten_tree(self.arguments.get(method, {}))
        self.weights = {path: widened(array) for path, array in state.items()}
        self._slopes: dict[tuple[str, int], float] = {}

    def loss(self) -> float:
        self.executor.load_state_dict(self.weights)
        return float(self.executor.loss(self.arguments, method=self.method))

    def slope(self, array: np.ndarray, direction: np.ndarray) -> float:
        """Derivative of the loss along a direction of one of the arrays."""
        before = array.copy()
        array[...] = before + _STEP * direction
        above = self.loss()
        array[...] = before - _STEP * direction
        below = self.loss()
        array[...] = before
        return (above - below) / (2 * _STEP)

    def compare(self, name: str, array: np.ndarray, gradient: np.ndarray, tolerance: float) -> tuple[str, str] | None:
        """Where a gradient differs from the slopes, and how; None: nowhere."""
        if gradient.shape != array.shape:
            return "", f"gradient of shape {gradient.shape}, not {array.shape}"
        if array.size == 0:
            return None
        for number, direction in enumerate(_directions(array.shape)):
            if (name, number) not in self._slopes:
                self._slopes[name, number] = self.slope(array, direction)
            slope, given = self._slopes[name, number], float(np.sum(gradient * direction))
            changed = np.argwhere(direction)
            if abs(slope - given) <= tolerance * np.sqrt(len(changed)):
                continue
            part = str(changed[0].tolist()) if len(changed) == 1 else ", over all entries"
            return part, f"{given}, by differences {slope}"
        return None


def _directions(shape: tuple[int, ...]) -> Iterator[np.ndarray]:
    """Some entries of an array one by one, and a random direction over all of them."""
    rng, size = np.random.default_rng(0), math.prod(shape)
    for entry in rng.permutation(size)[:_ENTRIES]:
        yield np.where(np.arange(size) == entry, 1.0, 0.0).reshape(shape)
    yield rng.choice([-1.0, 1.0], size=shape)


__all__ = ["GradientProbe", "Probes", "build_probe", "differentiable_methods", "gradient_parity", "probe_arguments"]
