"""Randomness: the same state gives the same numbers, and another one gives others."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from rlweave.graph.component import api_methods
from rlweave.graph.ir import RANDOM_PATHS, Call, Node
from rlweave.testing.checks.findings import Cause, Finding
from rlweave.testing.checks.outside import (
    attributes_read,
    changeable_global,
    changed_attribute,
    draws_elsewhere,
    outside_name,
)
from rlweave.testing.checks.recording import Recording, Step, same_array, source_line
from rlweave.testing.checks.subject import Situation, Subject
from rlweave.tree import tree_leaves

#: Method names that say that the result is drawn.
DRAWING_NAMES = ("sample", "draw", "explore")

FROM_THE_GRAPH = (
    "draw by ops.random (its state is the graph's: seeded, saved, the same on all backends); pass times and other "
    "numbers as inputs; keep what changes in variables"
)
_CLOCKS = ("time", "monotonic", "perf_counter", "process_time", "time_ns", "monotonic_ns", "perf_counter_ns")
_LATER = 12345.678  # seconds
#: Rows, all with the same inputs, and random states of the calls that are compared.
ROWS, CALLS = 96, 12

# -- the same state, the same numbers ----------------------------------------------------------------------------


def repeatability(subject: Subject) -> Iterator[Finding]:
    """Each call is made twice from one state, and by another instance with the same seed; every node gives the same."""
    twin = Subject(subject.descriptor)
    yield from _other_start(subject, twin)
    for situation in subject.situations():
        with _later():
            again = situation.run({})
        found = _first_difference(situation, again, "it was called twice with the same inputs, from the same state")
        if found is None:
            other = replace(situation, subject=twin)
            what = "it was built twice with the same seed, and called with the same inputs"
            found = _first_difference(situation, other.run({}), what)
        if found is not None:
            yield found
        yield from _set_later(situation)


@contextmanager
def _later() -> Iterator[None]:
    """Sets the clocks of Python's `time` forward."""
    clocks = {name: getattr(time, name) for name in _CLOCKS}

    def moved(name: str, clock: Any) -> Any:
        return lambda: clock() + (int(_LATER * 1e9) if name.endswith("_ns") else _LATER)

    try:
        for name, clock in clocks.items():
            setattr(time, name, moved(name, clock))
        yield
    finally:
        for name, clock in clocks.items():
            setattr(time, name, clock)


def _other_start(subject: Subject, twin: Subject) -> Iterator[Finding]:
    state = subject.start
    for path, array in twin.eager.state_dict().items():
        if path in state and path not in RANDOM_PATHS and not same_array(np.asarray(array), np.asarray(state[path])):
            owners = [c for c in twin.eager.session.components if path.startswith(c.path + "/")]
            owner = max(owners, key=lambda c: len(c.path), default=twin.eager.root)
            function = type(owner).create_variables
            name = outside_name(function, owner) or outside_name(type(owner).__init__, owner)
            yield Finding(
                "repeatability",
                f"{owner.path}.create_variables, {source_line(function)}",
                f"two instances that were built with the same seed begin with other numbers in variable {path}"
                + (f"; the code reads {name}" if name else ""),
                Cause.RANDOMNESS_OUTSIDE,
                "give the variable an initializer: the build seeds those, by the variable's path",
            )
            return


def _first_difference(situation: Situation, again: Recording, done: str) -> Finding | None:
    """The first node that gives something else for the same, as a finding."""
    for before, after in zip(situation.base.steps, again.steps, strict=False):
        if before.node.label != after.node.label:
            seen = f"{situation.where}: {done}; it ran {before.node.label} once and {after.node.label} then"
            return _outside_of_method(situation, seen)
        if _constants(before) != _constants(after):
            seen = f"{situation.where}: {done}; {before.node.label} was given {_constants(before)} once and "
            return _outside_of_method(situation, f"{seen}{_constants(after)} then")
        moved = _moved_outputs(before, after)
        if moved and before.gets_the_same(after):
            name = _other_attribute(before.node, after.node) or _name_in(before.node)
            frozen = "" if before.node.host else "; compiled, it may stay what it was when it was compiled"
            reads = f"; the code reads {name}" if name else ""
            seen = f"{situation.where}: {done}; {moved} differs{reads}"
            if name.startswith("the attribute self.") and "twice with the same inputs" in done:
                fix = "keep it in a variable: self.variable(...) in create_variables, .assign(x) in the graph function"
                return Finding("repeatability", before.where, seen, Cause.INCOMPLETE_STATE, fix)
            return Finding("repeatability", before.where, seen + frozen, Cause.RANDOMNESS_OUTSIDE, FROM_THE_GRAPH)
    for path, array in situation.base.result.items():
        if path not in again.result or not same_array(array, again.result[path]):
            name = f" {path!r}" if path else ""
            return _outside_of_method(situation, f"{situation.where}: {done}; its result{name} differs")
    return None


def _name_in(node: Node) -> str:
    return outside_name(node.function, node.component) if isinstance(node, Call) else ""


def _other_attribute(one: Node, other: Node) -> str:
    """The attribute that a graph function reads, and that two instances of its component have as two numbers."""
    if not (isinstance(one, Call) and isinstance(other, Call)) or one.plain or other.plain:
        return ""
    here, there = vars(one.component), vars(other.component)
    for name in attributes_read(one.function):
        values = here.get(name), there.get(name)
        numbers = all(isinstance(value, int | float | np.ndarray) for value in values)
        if numbers and not same_array(np.asarray(values[0]), np.asarray(values[1])):
            return f"the attribute self.{name}"
    return ""


def _outside_of_method(situation: Situation, seen: str) -> Finding:
    """A finding for what an API method, and no graph function, reads."""
    root = situation.subject.eager.root
    declared = api_methods(type(root))[situation.method]
    components = situation.subject.eager.session.components
    places: list[tuple[Any, Any]] = [(root, declared.function)]
    places += [(component, d.function) for component in components for d in api_methods(type(component)).values()]
    named = ((component, function, outside_name(function, component)) for component, function in places)
    component, function, name = next((found for found in named if found[2]), (root, declared.function, ""))
    reads = f"; {component.path}.{function.__name__} reads {name}" if name else ""
    return Finding(
        "repeatability",
        f"{component.path}.{function.__name__}, {source_line(function)}",
        f"{seen}{reads}; compiled, it stays what it was when the graph was built",
        Cause.RANDOMNESS_OUTSIDE,
        FROM_THE_GRAPH,
    )


def _constants(step: Step) -> list[Any]:
    """Plain numbers and words among the arguments of a node."""
    if not isinstance(step.node, Call):
        return []
    leaves = tree_leaves((step.node.args, step.node.kwargs))
    return [leaf for leaf in leaves if isinstance(leaf, bool | int | float | str)]


def _moved_outputs(before: Step, after: Step) -> str:
    """Which result, or variable, differs; "" for none."""
    for name, leaf in before.outputs.items():
        if not same_array(leaf.array, after.outputs[name].array):
            return f"its result {name!r}" if name else "its result"
    for path, array in before.written.items():
        if not same_array(array, after.written[path]):
            return f"variable {path}"
    return ""


def _set_later(situation: Situation) -> Iterator[Finding]:
    for step in situation.base.steps:
        node = step.node
        if not isinstance(node, Call) or node.plain:
            continue
        found, name = changed_attribute(node), changeable_global(node.function, node.component)
        if found is not None:
            what = f"the attribute self.{found[0]}, which {found[1]} sets"
        elif name:
            what = f"the global {name}, a dict that other code may change"
        else:
            continue
        yield Finding(
            "repeatability",
            step.where,
            f"{situation.where} reads {what}; compiled, it stays what it was when the graph was built",
            Cause.RANDOMNESS_OUTSIDE,
            "keep what changes in a variable, or pass it as an input; what stays is a number, a tuple, or an attribute "
            "that is set in __init__",
        )


# -- other numbers, other results --------------------------------------------------------------------------------


def draws_count(subject: Subject) -> Iterator[Finding]:
    """Calls from other random states give other numbers, wherever a graph function draws."""
    for situation in subject.situations():
        if not situation.draws and situation.method.startswith(DRAWING_NAMES) and situation.outputs:
            yield _not_random(situation.place, f"{situation.where} draws no random numbers")
        yield from _fixed_generators(situation)
        for index, step in enumerate(situation.base.steps):
            if step.drew and not step.written and not _has_effect(situation, index):
                seen = f"{situation.where} was called with several random states, and it draws, to no effect"
                yield _not_random(step.where, seen)


def _not_random(where: str, seen: str) -> Finding:
    fix = "use what ops.random gives: add the noise, take the drawn index; a draw that is not needed goes"
    return Finding("draws count", where, seen, Cause.NOT_RANDOM, fix)


def _has_effect(situation: Situation, index: int) -> bool:
    """Whether what a node draws moves its results, for some inputs."""
    known = [recording.steps for recording in drawn(situation)]
    for inputs in ({}, situation.flat_others):
        if any(index >= len(steps) or _moved_outputs(known[0][index], steps[index]) for steps in known[1:]):
            return True
        known = [situation.run(inputs, situation.seeded(seed)).steps for seed in range(3)]
    return any(index >= len(steps) or bool(_moved_outputs(known[0][index], steps[index])) for steps in known[1:])


def _fixed_generators(situation: Situation) -> Iterator[Finding]:
    """Graph functions that make a generator with a fixed seed in each call."""
    for step in situation.base.steps:
        node = step.node
        name = draws_elsewhere(node.function, node.component) if isinstance(node, Call) and not node.plain else ""
        if name and not step.drew and step.outputs:
            steps = zip(situation.base.steps, situation.run({}).steps, strict=False)
            if not any(before is step and _moved_outputs(before, after) for before, after in steps):
                seen = f"{situation.where}: the code draws by {name}, and gets the same numbers in each call"
                yield _not_random(step.where, seen)


def draws(situation: Situation) -> bool:
    """Whether random numbers are drawn in the call, and not only in what it could do besides."""
    return any(step.drew for step in situation.base.steps)


def drawn(situation: Situation) -> list[Recording]:
    """The call from several random states, with many rows that are equal (where the batch size is open)."""
    if "drawn" not in vars(situation):
        changed = situation.rows([0] * ROWS)
        recordings = [situation.run(changed, situation.seeded(seed)) for seed in range(CALLS)]
        vars(situation)["drawn"] = recordings
    found: list[Recording] = vars(situation)["drawn"]
    return found
