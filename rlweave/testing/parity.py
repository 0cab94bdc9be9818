"""Checks of a component by its descriptor: the same numbers on every backend, and the right gradients.

All of them run in portable random mode, where every backend draws the same numbers. Each raises an AssertionError
that names descriptor, method and leaf.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np

from rlweave import ops
from rlweave.graph import Component, GraphExecutor, api, build, gradients, graph_fn
from rlweave.graph.ir import Unknown, Value, unique
from rlweave.spaces import Dict, Space
from rlweave.testing.component_test import assert_close
from rlweave.testing.descriptors import Descriptor
from rlweave.tree import flatten_tree, has_leaf, leaves_of, tree_map

#: Step of central differences in float64: the error is about 1e-10 of a smooth function of order 1.
_STEP = 1e-6
#: Entries of each array that are checked one by one; the others only by a random direction over all of them.
_ENTRIES = 4
#: Results below are left out of the loss.
_MASKED = -1e6

Result = Any


def build_described(descriptor: Descriptor, backend: str, **options: Any) -> GraphExecutor:
    """Builds what a descriptor describes, in portable random mode.

    Args:
        descriptor: What to build.
        backend: Where.
        options: Further arguments of `build` (seed, mode).
    """
    root = descriptor.make()
    methods = unique(descriptor.methods(root))
    spaces = {f"{method}.{p}": s for method in methods for p, s in descriptor.inputs(root, method).items()}
    return build(root, spaces, backend=backend, rng="portable", methods=methods, static=_static(descriptor), **options)


def run_round(
    executor: GraphExecutor, descriptor: Descriptor, batch_size: int, seed: int = 0
) -> list[tuple[str, Result]]:
    """Calls every API method once, in the descriptor's order, with sampled inputs.

    Args:
        executor: From `build_described`.
        descriptor: The same.
        batch_size: Length of open batch axes.
        seed: Seeds the inputs.

    Returns:
        (method, result) of each call.
    """
    results = []
    for method in descriptor.methods(executor.root):
        arguments = descriptor.sample(executor.root, method, batch_size, seed)
        results.append((method, executor.execute(method, **arguments, **descriptor.static.get(method, {}))))
    return results


def value_parity(descriptor: Descriptor, backend: str) -> None:
    """Results and state are those of the reference backend, for several batch sizes in a row.

    Raises:
        AssertionError: They are not.
    """
    _compare(
        descriptor,
        build_described(descriptor, descriptor.reference),
        build_described(descriptor, backend),
        f"{backend} against {descriptor.reference}",
        descriptor.batch_sizes,
    )


def eager_parity(descriptor: Descriptor, backend: str) -> None:
    """Eager mode on a backend gives what compiled mode gives on the reference backend.

    Together with `value_parity` this makes eager mode equal to compiled mode on each backend.

    Raises:
        AssertionError: It does not.
    """
    compiled = build_described(descriptor, descriptor.reference)
    eager = build_described(descriptor, backend, mode="eager")
    what = f"eager on {backend} against compiled on {descriptor.reference}"
    _compare(descriptor, compiled, eager, what, descriptor.batch_sizes[-1:])


def state_round_trip(descriptor: Descriptor, backend: str, mode: Literal["compiled", "eager"] = "compiled") -> None:
    """After loading a saved state everything goes on as it did then, bit for bit.

    Args:
        descriptor: What to build.
        backend: Where.
        mode: How it runs there.

    Raises:
        AssertionError: It does not: something is missing in the state.
    """
    size = descriptor.batch_sizes[-1]
    where = f"{descriptor.name} on {backend}, after load_state_dict"
    executor = build_described(descriptor, backend, seed=1, mode=mode)
    run_round(executor, descriptor, size)
    state = executor.state_dict()
    saved = {path: np.array(array, order="C") for path, array in state.items()}
    first, first_state = run_round(executor, descriptor, size, seed=1), executor.state_dict()
    for path, array in state.items():
        np.testing.assert_array_equal(array, saved[path], err_msg=f"{where}: the saved {path} has moved")
    for other in (executor, build_described(descriptor, backend, seed=2, mode=mode)):
        other.load_state_dict(saved)
        for path, array in other.state_dict().items():
            np.testing.assert_array_equal(array, saved[path], err_msg=f"{where}: {path}")
    second = run_round(executor, descriptor, size, seed=1)
    for (method, result), (_, again) in zip(first, second, strict=True):
        assert_close(again, result, 0.0, 0.0, f"{where}, {method}")
    for path, array in executor.state_dict().items():
        np.testing.assert_array_equal(array, first_state[path], err_msg=f"{where}: {path}")


def _compare(
    descriptor: Descriptor, one: GraphExecutor, other: GraphExecutor, what: str, batch_sizes: tuple[int, ...]
) -> None:
    tolerance = descriptor.tolerance
    for size in batch_sizes:
        where = f"{descriptor.name}, {what}, batch size {size}"
        pairs = zip(run_round(one, descriptor, size), run_round(other, descriptor, size), strict=True)
        for (method, expected), (_, result) in pairs:
            assert_close(result, expected, tolerance, tolerance, f"{where}, {method}")
            _assert_same_types(result, expected, f"{where}, {method}")
        state, expected_state = other.state_dict(), one.state_dict()
        assert list(state) == list(expected_state), f"{where}: state {list(state)} / {list(expected_state)}"
        for path, array in expected_state.items():
            np.testing.assert_allclose(
                state[path], array, rtol=tolerance, atol=tolerance, err_msg=f"{where}: variable {path}"
            )


def _assert_same_types(result: Result, expected: Result, where: str) -> None:
    flat = flatten_tree(expected)
    for path, array in flatten_tree(result).items():
        if array is None:
            continue
        assert np.shape(array) == np.shape(flat[path]), f"{where}/{path}: {np.shape(array)} / {np.shape(flat[path])}"
        given, wanted = np.asarray(array).dtype, np.asarray(flat[path]).dtype
        assert given == wanted, f"{where}/{path}: {given} / {wanted}"


def _static(descriptor: Descriptor) -> dict[str, dict[str, Any]]:
    return {method: dict(given) for method, given in descriptor.static.items()}


# -- gradients ---------------------------------------------------------------------------------------------------


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
        where = f"{descriptor.name}.{method} on {backend}"
        executor = _build_probe(descriptor, method, "gradients", backend=backend)
        arguments = descriptor.sample(executor.root.component, method, descriptor.batch_sizes[-1])
        result = executor.gradients(arguments)
        oracle = _Differences(descriptor, method, arguments, executor.get_weights())
        np.testing.assert_allclose(
            result["loss"], oracle.loss(), rtol=1e-4, atol=descriptor.tolerance, err_msg=f"{where}: loss"
        )
        constants = descriptor.constants.get(method, ())
        flowing = {path: g for path, g in result["inputs"].items() if path.split("/")[0] not in constants}
        for path in set(result["inputs"]) - set(flowing):
            assert not np.any(result["inputs"][path]), f"{where}: a gradient reaches {path}, which is constant"
        checked = [
            *((f"variable {path}", oracle.weights[path], g) for path, g in result["variables"].items()),
            *((f"input {path}", oracle.inputs[path], g) for path, g in flowing.items()),
        ]
        assert checked, f"{where}: nothing to differentiate by"
        scale = max(max((float(np.max(np.abs(g), initial=0.0)) for _, _, g in checked)), 1e-3)
        for name, array, gradient in checked:
            oracle.compare(array, np.asarray(gradient), descriptor.gradient_tolerance * scale, f"{where}: {name}")


def _build_probe(descriptor: Descriptor, method: str, what: str, **options: Any) -> GraphExecutor:
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
        self.executor = _build_probe(descriptor, method, "loss", float_dtype="float64")

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

    def compare(self, array: np.ndarray, gradient: np.ndarray, tolerance: float, where: str) -> None:
        assert gradient.shape == array.shape, f"{where}: gradient of shape {gradient.shape}, not {array.shape}"
        if array.size == 0:
            return
        rng = np.random.default_rng(0)
        entries = rng.permutation(array.size)[:_ENTRIES]
        for entry in entries:
            direction = np.zeros(array.size)
            direction[entry] = 1.0
            slope, given = self.slope(array, direction.reshape(array.shape)), float(gradient.reshape(-1)[entry])
            index = tuple(int(i) for i in np.unravel_index(entry, array.shape))
            assert abs(slope - given) <= tolerance, f"{where}{list(index)}: {given}, by differences {slope}"
        direction = rng.choice([-1.0, 1.0], size=array.shape)
        slope, given = self.slope(array, direction), float(np.sum(gradient * direction))
        assert abs(slope - given) <= tolerance * np.sqrt(array.size), (
            f"{where}, over all entries: {given}, by differences {slope}"
        )


__all__ = [
    "GradientProbe",
    "build_described",
    "differentiable_methods",
    "eager_parity",
    "gradient_parity",
    "run_round",
    "state_round_trip",
    "value_parity",
]
