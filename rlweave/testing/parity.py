"""Checks of a component by its descriptor: the same numbers on every backend.

All of them run in portable random mode, where every backend draws the same numbers. Each raises an AssertionError
that names descriptor, method and leaf.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from rlweave.graph import GraphExecutor, build
from rlweave.graph.ir import unique
from rlweave.testing.descriptors import Descriptor
from rlweave.tree import flatten_tree

Result = Any
Mode = Literal["compiled", "eager"]


def build_described(descriptor: Descriptor, backend: str, **options: Any) -> GraphExecutor:
    """Builds what a descriptor describes, in portable random mode.

    Args:
        descriptor: What to build.
        backend: Where.
        options: Further arguments of `build` (seed, mode).
    """
    root = descriptor.made()
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
    """Executors of what a descriptor describes: each is built once, and begins anew when it is asked for.

    Args:
        descriptor: What to build.
    """

    def __init__(self, descriptor: Descriptor) -> None:
        self.descriptor = descriptor
        self._built: dict[tuple[str, str], tuple[GraphExecutor, dict[str, np.ndarray]]] = {}

    def __call__(self, backend: str, mode: Mode = "compiled") -> GraphExecutor:
        """The executor on a backend, in the state after its build."""
        if (backend, mode) not in self._built:
            executor = build_described(self.descriptor, backend, mode=mode)
            self._built[backend, mode] = executor, copied(executor.state_dict())
        executor, state = self._built[backend, mode]
        executor.load_state_dict(state)
        return executor


def copied(state: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Arrays that stay what they are."""
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
    refuse_differences(value_differences(Executors(descriptor), backend))


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
    refuse_differences(eager_differences(Executors(descriptor), backend, descriptor.reference))


def eager_differences(executors: Executors, backend: str, compiled: str) -> Iterator[Difference]:
    """Where eager mode on a backend gives something else than compiled mode on one."""
    descriptor = executors.descriptor
    return _differences(
        descriptor,
        executors(compiled),
        executors(backend, "eager"),
        f"eager on {backend} against compiled on {compiled}",
        descriptor.batch_sizes[-1:],
    )


def state_round_trip(descriptor: Descriptor, backend: str, mode: Mode = "compiled") -> None:
    """After loading a saved state everything goes on as it did then, bit for bit, in the same executor and in another.

    Args:
        descriptor: What to build.
        backend: Where.
        mode: How it runs there.

    Raises:
        AssertionError: It does not: something is missing in the state.
    """
    one, other = (build_described(descriptor, backend, seed=seed, mode=mode) for seed in (1, 2))
    refuse_differences(state_differences(descriptor, one, other, backend))


def state_differences(
    descriptor: Descriptor, one: GraphExecutor, another: GraphExecutor, backend: str
) -> Iterator[Difference]:
    """Where what one executor saved, and it and another one loaded, goes on in another way; see `state_round_trip`."""
    size = descriptor.batch_sizes[-1]
    where = f"{descriptor.name} on {backend}, after load_state_dict"
    run_round(one, descriptor, size)
    state = one.state_dict()
    saved = copied(state)
    first, first_state = run_round(one, descriptor, size, seed=1), one.state_dict()
    yield from _state_differences(state, saved, f"{where}, the saved state has moved", 0.0, size)
    for other in (one, another):
        other.load_state_dict(saved)
        yield from _state_differences(other.state_dict(), saved, where, 0.0, size)
        yield from _result_differences(run_round(other, descriptor, size, seed=1), first, where, 0.0, size)
        yield from _state_differences(other.state_dict(), first_state, where, 0.0, size)


def refuse_differences(found: Iterator[Difference]) -> None:
    """Raises an AssertionError for the first difference."""
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
