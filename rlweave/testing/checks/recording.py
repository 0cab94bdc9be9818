"""A call of an API method, node by node: which arrays went into each graph function, and which came out.

Checks compare two recordings of the same call with inputs that differ in one place. The first node whose results move
where its inputs do not is the place of the fault.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rlweave.errors import BuildError
from rlweave.extensions.eager import EagerExecutor, Interpreter, watched
from rlweave.graph.ir import RANDOM_PATHS, Call, Node, Structure, Value
from rlweave.spaces import Box
from rlweave.tree import flatten_tree, leaves_of


@dataclass(frozen=True)
class Leaf:
    """An array that goes into a node or comes out of it.

    Args:
        value: Its place in the graph, the same in all recordings of one call that run in one graph.
        space: Which of its axes are batch and time.
        array: A copy.
    """

    value: Value
    space: Box
    array: np.ndarray


@dataclass
class Step:
    """A node that ran.

    Args:
        node: The node.
        inputs: What went in, by parameter name and path: "records/rewards".
        outputs: What came out, by path; "" for a result that is one array.
        read: The variables that it reads, before, by path.
        written: The variables that it writes, after, by path.
        changed: Names of the inputs that it changed in place.
        drew: It drew random numbers.
    """

    node: Node
    inputs: dict[str, Leaf]
    read: dict[str, np.ndarray]
    outputs: dict[str, Leaf] = field(default_factory=dict)
    written: dict[str, np.ndarray] = field(default_factory=dict)
    changed: tuple[str, ...] = ()
    drew: bool = False

    @property
    def where(self) -> str:
        """Component path, function and source line: `dqn/loss.td_loss, losses/dqn.py:41`."""
        return place_of(self.node)

    @property
    def declared(self) -> Call | None:
        """The node, where it is the call of a graph function of a component."""
        return self.node if isinstance(self.node, Call) and not self.node.plain else None

    def reads_the_same(self, other: Step) -> bool:
        """Whether the variables that it reads are those of another call."""
        return all(same_array(array, other.read[path]) for path, array in self.read.items())

    def gets_the_same(self, other: Step) -> bool:
        """Whether its inputs are, too."""
        same = (same_array(leaf.array, other.inputs[name].array) for name, leaf in self.inputs.items())
        return all(same) and self.reads_the_same(other)

    def gives_the_same(self, other: Step) -> bool:
        """Whether its results are those of another call."""
        return all(same_array(leaf.array, other.outputs[name].array) for name, leaf in self.outputs.items())

    @property
    def may_mix(self) -> bool:
        """Whether it may tell rows apart: they meet, it keeps something of each, or it names an axis the batch."""
        node = self.node
        return isinstance(node, Call) and bool(node.mixes_batch or node.writes or node.relabels)


@dataclass
class Recording:
    """A call of an API method.

    Args:
        steps: All nodes that ran, in order; those of loops once per turn.
        result: What the method returned, by path.
        metrics: The numbers that it reported, by name.
        state: All variables after the call, and the random state, by path.
    """

    steps: list[Step]
    result: dict[str, np.ndarray]
    metrics: dict[str, float]
    state: dict[str, np.ndarray]

    @property
    def mixes_batch(self) -> bool:
        """Whether rows meet on purpose, as a graph function declares."""
        return any(step.declared is not None and step.declared.mixes_batch for step in self.steps)

    @property
    def writes(self) -> bool:
        """Whether a variable was written."""
        return any(path not in RANDOM_PATHS for step in self.steps for path in step.written)


def record(
    executor: EagerExecutor, method: str, arguments: Mapping[str, Any], state: Mapping[str, np.ndarray]
) -> Recording:
    """Calls an API method from a given state, and records every node.

    Args:
        executor: Eager; what it holds is overwritten.
        method: The API method.
        arguments: Its arguments by name, static ones among them.
        state: Of `executor.state_dict()`.
    """
    executor.load_state_dict(state)
    steps: list[Step] = []
    to_numpy = executor.backend.to_numpy
    cells = executor.store.cells

    def copied(array: Any) -> np.ndarray:
        return np.array(array if isinstance(array, np.ndarray | np.generic) else to_numpy(array))

    def variables(paths: tuple[str, ...]) -> dict[str, np.ndarray]:
        return {path: copied(cells[path].value) for path in paths if path not in RANDOM_PATHS}

    def random_states(node: Node) -> list[np.ndarray]:
        return [copied(cells[path].value) for path in node.reads if path in RANDOM_PATHS]

    def watch(node: Node, arrays: list[Any]) -> Callable[[list[Any]], None]:
        values = node.inputs()
        named = zip(input_names(node), values, arrays, strict=True)
        step = Step(node, {name: Leaf(v, v.space, copied(x)) for name, v, x in named}, variables(node.reads))
        random_before = random_states(node)

        def after(results: list[Any]) -> None:
            pairs = zip(result_names(node), node.values(), results, strict=True)
            step.outputs = {name: Leaf(value, value.space, copied(array)) for name, value, array in pairs}
            step.written = variables(node.writes)
            states = zip(random_before, random_states(node), strict=True)
            step.drew = not all(same_array(before, now) for before, now in states)
            again = zip(step.inputs.items(), arrays, strict=True)
            step.changed = tuple(name for (name, leaf), array in again if not same_array(leaf.array, copied(array)))
            steps.append(step)

        return after

    with watched(executor, watch):
        result, metrics = executor.execute(method, **arguments, with_metrics=True)
    flat = {path: np.asarray(x) for path, x in flatten_tree(result).items() if x is not None}
    return Recording(steps, flat, metrics, executor.state_dict())


def run_alone(executor: EagerExecutor, step: Step, changed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Runs one node of a recording again, with the variables that it read then.

    Args:
        executor: What made the recording; what it holds stays.
        step: The node. It draws nothing.
        changed: Inputs in place of those it had, by name.

    Returns:
        Its results by path.
    """
    backend = executor.backend

    def array(x: np.ndarray) -> Any:
        return x if x.dtype == object else backend.from_numpy(x)  # text stays on the host

    with backend.eager_scope():
        inputs = {id(leaf.value): array(changed.get(name, leaf.array)) for name, leaf in step.inputs.items()}
        variables = {path: array(x) for path, x in step.read.items()}
        Interpreter(executor, {}).evaluate(step.node, inputs, variables)
        found = {name: inputs[id(leaf.value)] for name, leaf in step.outputs.items()}
        return {name: np.array(x if isinstance(x, np.ndarray) else backend.to_numpy(x)) for name, x in found.items()}


def same_array(one: np.ndarray, other: np.ndarray) -> bool:
    """Equal bit by bit; NaN is NaN."""
    return one.shape == other.shape and bool(np.array_equal(one, other, equal_nan=one.dtype.kind in "fc"))


def pairs(one: Recording, other: Recording) -> Iterator[tuple[Step, Step]]:
    """The steps of two recordings of one call.

    Raises:
        BuildError: They ran different nodes.
    """
    for first, second in zip(one.steps, other.steps, strict=False):
        if first.node.label != second.node.label:
            raise BuildError(
                "a method ran different graph functions in two calls with equal shapes",
                where=first.where,
                received=f"{first.node.label} and {second.node.label}",
                fix="let nothing that an API method does depend on what lies outside of the graph",
            )
        yield first, second


def input_names(node: Node) -> list[str]:
    """A name for each value of `node.inputs()`: parameter and path, as far as they are known."""
    names: list[str] = []
    if isinstance(node, Call):
        parameters = _parameters(node)
        for index, argument in enumerate(node.args):
            names += _names(argument, parameters[index] if index < len(parameters) else f"argument {index}")
        for name, argument in node.kwargs.items():
            names += _names(argument, name)
        names += list(node.substitution)
    return _numbered([*names, *[""] * (len(node.inputs()) - len(names))])


def _parameters(node: Call) -> list[str]:
    try:
        parameters = list(inspect.signature(node.function).parameters)
    except (TypeError, ValueError):
        return []
    return parameters if node.plain else parameters[1:]


def _names(argument: Structure, prefix: str) -> list[str]:
    count = len(list(leaves_of(argument, Value)))
    paths = [path for path, leaf in flatten_tree(argument, prefix).items() if isinstance(leaf, Value)]
    return paths if len(paths) == count else [prefix] * count


def result_names(node: Node) -> list[str]:
    """A name for each value that a node makes: its path in the result."""
    return _numbered(_names(node.result, ""))


def _numbered(names: list[str]) -> list[str]:
    """The names, made different from each other."""
    found: dict[str, None] = {}
    for index, name in enumerate(names):
        found[name if name not in found and (name or len(names) == 1) else f"{name}#{index}"] = None
    return list(found)


def place_of(node: Node) -> str:
    """The label of a node, and the file and line of its function."""
    if not isinstance(node, Call) or node.plain:
        return node.label
    return f"{node.label}, {source_line(node.function)}"


def source_line(function: Callable[..., Any]) -> str:
    """File (its last two parts) and line of a function."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return "/".join(Path(code.co_filename).parts[-2:]) + f":{code.co_firstlineno}" if code is not None else "?"
