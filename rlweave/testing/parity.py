"""Checks of a component by its descriptor: the same numbers on every backend, and the right gradients.

All of them run in portable random mode, where every backend draws the same numbers. Each raises an AssertionError
that names descriptor, method and leaf.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from rlweave import ops
from rlweave.graph import Component, GraphExecutor, api, build, gradients, graph_fn
from rlweave.graph.ir import Unknown, Value, unique
from rlweave.spaces import Dict, Space
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


class Executors:
    """Compiled executors of what a descriptor describes: each is built once, and begins anew when it is asked for.

    Args:
        descriptor: What to build.
    """

    def __init__(self, descriptor: Descriptor) -> None:
        self.descriptor = descriptor
        self._built: dict[str, tuple[GraphExecutor, dict[str, np.ndarray]]] = {}

    def __call__(self, backend: str) -> GraphExecutor:
        """The executor on a backend, in the state after its build."""
        if backend not in self._built:
            executor = build_described(self.descriptor, backend)
            self._built[backend] = executor, _copied(executor.state_dict())
        executor, state = self._built[backend]
        executor.load_state_dict(state)
        return executor


def _copied(state: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {path: np.array(array, order="C") for path, array in state.items()}


@dataclass(frozen=True)
class Difference:
    """What two executors of one component do differently.

    Args:
        where: Descriptor, backends and batch size.
        method: The API method; "" for the state after a round.
        what: The result's path, or the variable.
        call: Number of the call in the round.
        rows: The batch size.
        seen: Both numbers.
    """

    where: str
    method: str
    what: str
    call: int
    rows: int
    seen: str

    def __str__(self) -> str:
        place = f", {self.method}/" if self.method else ": "
        return f"{self.where}{place}{self.what}: {self.seen}"


def value_parity(descriptor: Descriptor, backend: str) -> None:
    """Results and state are those of the reference backend, for several batch sizes in a row.

    Raises:
        AssertionError: They are not.
    """
    _refuse(value_differences(Executors(descriptor), backend))


def value_differences(executors: Executors, backend: str) -> Iterator[Difference]:
    """Where compiled mode on a backend gives something else than on the reference backend."""
    descriptor = executors.descriptor
    other = build_described(descriptor, backend) if backend == descriptor.reference else executors(backend)
    return _differences(
        descriptor,
        executors(descriptor.reference),
        other,
        f"{backend} against {descriptor.reference}",
        descriptor.batch_sizes,
    )


def eager_parity(descriptor: Descriptor, backend: str) -> None:
    """Eager mode on a backend gives what compiled mode gives on the reference backend.

    Together with `value_parity` this makes eager mode equal to compiled mode on each backend.

    Raises:
        AssertionError: It does not.
    """
    _refuse(eager_differences(Executors(descriptor), backend, descriptor.reference))


def eager_differences(executors: Executors, backend: str, compiled: str) -> Iterator[Difference]:
    """Where eager mode on a backend gives something else than compiled mode on one."""
    descriptor = executors.descriptor
    return _differences(
        descriptor,
        executors(compiled),
        build_described(descriptor, backend, mode="eager"),
        f"eager on {backend} against compiled on {compiled}",
        descriptor.batch_sizes[-1:],
    )


def state_round_trip(descriptor: Descriptor, backend: str, mode: Literal["compiled", "eager"] = "compiled") -> None:
    """After loading a saved state everything goes on as it did then, bit for bit, in the same executor and in another.

    Args:
        descriptor: What to build.
        backend: Where.
        mode: How it runs there.

    Raises:
        AssertionError: It does not: something is missing in the state.
    """
    one, other = (build_described(descriptor, backend, seed=seed, mode=mode) for seed in (1, 2))
    _refuse(state_differences(descriptor, one, other, backend))


def state_differences(
    descriptor: Descriptor, one: GraphExecutor, another: GraphExecutor, backend: str
) -> Iterator[Difference]:
    """Where what one executor saved, and it and another one loaded, goes on in another way; see `state_round_trip`."""
    size = descriptor.batch_sizes[-1]
    where = f"{descriptor.name} on {backend}, after load_state_dict"
    run_round(one, descriptor, size)
    state = one.state_dict()
    saved = _copied(state)
    first, first_state = run_round(one, descriptor, size, seed=1), one.state_dict()
    yield from _state_differences(state, saved, f"{where}, the saved state has moved", 0.0, size)
    for other in (one, another):
        other.load_state_dict(saved)
        yield from _state_differences(other.state_dict(), saved, where, 0.0, size)
        yield from _result_differences(run_round(other, descriptor, size, seed=1), first, where, 0.0, size)
        yield from _state_differences(other.state_dict(), first_state, where, 0.0, size)


def _refuse(found: Iterator[Any]) -> None:
    for difference in found:
        raise AssertionError(str(difference))


def _differences(
    descriptor: Descriptor, one: GraphExecutor, other: GraphExecutor, what: str, batch_sizes: tuple[int, ...]
) -> Iterator[Difference]:
    tolerance = descriptor.tolerance
    for size in batch_sizes:
        where = f"{descriptor.name}, {what}, batch size {size}"
        results, expected = run_round(other, descriptor, size), run_round(one, descriptor, size)
        yield from _result_differences(results, expected, where, tolerance, size)
        yield from _state_differences(other.state_dict(), one.state_dict(), where, tolerance, size)


def _result_differences(
    results: list[tuple[str, Result]], expected: list[tuple[str, Result]], where: str, tolerance: float, rows: int
) -> Iterator[Difference]:
    for call, ((method, result), (_, wanted)) in enumerate(zip(results, expected, strict=True)):
        flat = flatten_tree(wanted)
        found = flatten_tree(result)
        if sorted(found) != sorted(flat):  # JAX sorts the keys of a dict
            yield Difference(where, method, "", call, rows, f"leaves {list(found)} / {list(flat)}")
            continue
        for path, array in found.items():
            seen = _difference(array, flat[path], tolerance)
            if seen:
                yield Difference(where, method, path, call, rows, seen)


def _state_differences(
    state: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray], where: str, tolerance: float, rows: int
) -> Iterator[Difference]:
    if list(state) != list(expected):
        yield Difference(where, "", "state", 0, rows, f"{list(state)} / {list(expected)}")
        return
    for path, array in expected.items():
        seen = _difference(state[path], array, tolerance)
        if seen:
            yield Difference(where, "", f"variable {path}", 0, rows, seen)


def _difference(result: Any, expected: Any, tolerance: float) -> str:
    """What differs between two leaves, in words; "" where nothing does."""
    if result is None or expected is None:
        return "" if result is expected else f"{result} / {expected}"
    one, other = np.asarray(result), np.asarray(expected)
    if one.shape != other.shape:
        return f"{one.shape} / {other.shape}"
    if one.dtype != other.dtype:
        return f"{one.dtype} / {other.dtype}"
    if one.dtype.kind not in "fc":
        different = np.asarray(one != other)
    else:
        different = ~np.isclose(one, other, rtol=tolerance, atol=tolerance, equal_nan=True)
    if not different.any():
        return ""
    index = tuple(int(i) for i in np.argwhere(different)[0])
    return f"{one[index]} / {other[index]}" + (f" at {list(index)}" if index else "")


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
        _refuse(gradient_differences(descriptor, backend, method))


def gradient_differences(descriptor: Descriptor, backend: str, method: str) -> Iterator[Difference]:
    """Where the gradients of one method on a backend are not those of `gradient_parity`."""
    rows = descriptor.batch_sizes[-1]
    where = f"{descriptor.name}.{method} on {backend}"

    def difference(what: str, seen: str) -> Difference:
        return Difference(where, "", what, 0, rows, seen)

    executor = _build_probe(descriptor, method, "gradients", backend=backend)
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


__all__ = [
    "Difference",
    "Executors",
    "GradientProbe",
    "build_described",
    "differentiable_methods",
    "eager_differences",
    "eager_parity",
    "gradient_differences",
    "gradient_parity",
    "run_round",
    "state_differences",
    "state_round_trip",
    "value_differences",
    "value_parity",
]
