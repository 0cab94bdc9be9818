"""Memory that is shared: what was returned stays as it is, and what was passed may be written to afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlweave.extensions.eager import watched
from rlweave.graph.ir import Node
from rlweave.testing.checks.findings import Cause, Finding
from rlweave.testing.checks.recording import place_of, same_array
from rlweave.testing.checks.subject import Situation, Subject
from rlweave.tree import flatten_tree, tree_map


@dataclass(frozen=True)
class _Kept:
    """An array that was handed out, and what was in it then."""

    where: str
    path: str
    array: np.ndarray
    copy: np.ndarray

    @property
    def has_changed(self) -> bool:
        return not same_array(self.copy, self.array)


def results_stay(subject: Subject) -> Iterator[Finding]:
    """Results are kept over a second round of calls with other inputs, and still hold then what they held."""
    if subject.descriptor.reference != "numpy":
        return  # arrays of other backends are copied
    executor, calls = subject.fast, subject.calls(0)
    executor.load_state_dict(calls[0].state)
    kept = []
    for call in [*calls, *calls, *subject.calls(1)]:
        result = executor.execute(call.method, **call.arguments, **call.static)
        flat = flatten_tree(result).items()
        kept += [_Kept(call.place, p, x, np.array(x)) for p, x in flat if isinstance(x, np.ndarray)]
    for item in kept:
        if item.has_changed:
            name = f" {item.path!r}" if item.path else ""
            yield Finding(
                "shared memory",
                _node_of(subject, item.copy) or item.where,
                f"{item.where}: its result{name} was kept, and holds other numbers after further calls",
                Cause.SHARED_MEMORY,
                "return a new array in each call: without out=, and a copy of a buffer that is used again",
            )
            return


def _node_of(subject: Subject, array: np.ndarray) -> str:
    """The graph function that made a result, and whose own result changes later; "" where none is seen."""
    made: list[tuple[Node, np.ndarray, np.ndarray]] = []

    def watch(node: Node, arrays: list[Any]) -> Callable[[list[Any]], None]:
        def after(results: list[Any]) -> None:
            made.extend((node, x, np.array(x)) for x in results if isinstance(x, np.ndarray))

        return after

    executor, calls = subject.eager, subject.calls(0)
    executor.load_state_dict(calls[0].state)
    with watched(executor, watch):
        _play(executor, [*calls, *calls, *subject.calls(1)])
    changed = [(node, copy) for node, now, copy in made if not same_array(now, copy)]
    return next((place_of(node) for node, copy in changed if same_array(copy, array)), "")


def _play(executor: Any, calls: Sequence[Situation]) -> None:
    for call in calls:
        executor.execute(call.method, **call.arguments, **call.static)


def arguments_are_free(subject: Subject) -> Iterator[Finding]:
    """Arrays that were passed are filled with other numbers after each call; later results stay what they are."""
    if subject.descriptor.reference != "numpy":
        return
    calls = subject.calls(0)
    once, again = (_results(subject, calls, overwrite=False) for _ in range(2))
    overwritten = _results(subject, calls, overwrite=True)
    for place, array in once.items():
        if same_array(array, again[place]) and not same_array(array, overwritten[place]):
            where, path = place
            yield Finding(
                "shared memory",
                where,
                f"arrays that had been passed got other numbers after each call, and {path} is another one",
                Cause.SHARED_MEMORY,
                "keep a copy of what is passed (np.array(x)): whoever passed it may use the array again",
            )
            return


def _results(subject: Subject, calls: Sequence[Situation], overwrite: bool) -> dict[tuple[str, str], np.ndarray]:
    """Results and the state of two rounds, by place."""
    executor, found = subject.fast, {}
    executor.load_state_dict({path: np.array(array) for path, array in calls[0].state.items()})
    for number, call in enumerate([*calls, *calls]):
        arguments = tree_map(lambda x: None if x is None else np.array(x), call.arguments)
        result = executor.execute(call.method, **arguments, **call.static)
        found.update(
            {(call.place, f"result {path!r} of call {number}"): np.array(x) for path, x in flatten_tree(result).items()}
        )
        if overwrite:
            for path, array in flatten_tree(arguments).items():
                if isinstance(array, np.ndarray) and array.dtype != object:
                    array[...] = call.flat_others[path]
    state = executor.state_dict().items()
    found.update({(subject.root_path, f"variable {path}"): np.array(array) for path, array in state})
    return found
