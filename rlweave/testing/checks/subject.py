"""What is checked: a component with inputs, and the calls of one round, each with the state that it begins from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np

from rlweave.backends import LEARNING, is_installed
from rlweave.extensions.eager import EagerExecutor
from rlweave.graph import GraphExecutor
from rlweave.graph.component import api_methods
from rlweave.graph.ir import RANDOM_PATHS, Graph, Value, all_nodes
from rlweave.spaces import Box, Dim
from rlweave.testing.checks.axes import Along, replaced
from rlweave.testing.checks.findings import Cause, Finding
from rlweave.testing.checks.recording import Recording, Step, record, source_line
from rlweave.testing.descriptors import TIME_STEPS, Descriptor
from rlweave.testing.parity import Executors
from rlweave.tree import flatten_tree, unflatten_like

#: Rows of the batch in most checks: a number that no small component has as a feature size.
ROWS = 5

#: Backends that differentiate, the one first that starts the fastest.
DIFFERENTIATING = ("torch", "jax", "tensorflow")

#: Backends that run code as it is; others compile a program for each method and batch size, which takes the most time.
WITHOUT_COMPILER = ("numpy", "torch")


@dataclass
class Situation:
    """A call of an API method, ready to be made again with other inputs.

    Args:
        subject: Whose method it is.
        method: The API method.
        arguments: Its inputs, nested.
        others: Inputs of the same shapes, sampled anew.
        static: Its static arguments.
        state: What the executor held before, by path.
        sizes: Sizes of the ranks "B" and "T".
    """

    subject: Subject
    method: str
    arguments: dict[str, Any]
    others: dict[str, Any]
    static: Mapping[str, Any]
    state: dict[str, np.ndarray]
    sizes: dict[str, int]

    @property
    def where(self) -> str:
        """Component path and method."""
        return f"{self.subject.root_path}.{self.method}"

    @property
    def place(self) -> str:
        """The same, with the source line of the method."""
        return f"{self.where}, {source_line(api_methods(type(self.subject.eager.root))[self.method].function)}"

    def finding(self, check: str, step: Step | None, seen: str, cause: Cause, fix: str) -> Finding:
        """A finding of this call, at a node that ran; None: of all of it."""
        return Finding(check, step.where if step is not None else self.where, f"{self.where}: {seen}", cause, fix)

    @cached_property
    def inputs(self) -> dict[str, Box]:
        """Spaces of the inputs, with their ranks, by path."""
        flat = flatten_tree(
            {name: structure for name, structure in self.graph.inputs.items() if name in self.arguments}
        )
        return {path: value.space for path, value in flat.items() if isinstance(value, Value)}

    @cached_property
    def flat(self) -> dict[str, np.ndarray]:
        """The inputs by path."""
        return flatten_tree(self.arguments)

    @cached_property
    def flat_others(self) -> dict[str, np.ndarray]:
        """The other inputs by path."""
        return flatten_tree(self.others)

    @property
    def graph(self) -> Graph:
        """The traced method."""
        return self.subject.graph_of(self.method, self.static)

    @property
    def draws(self) -> bool:
        """Whether the method draws random numbers."""
        return any(path in RANDOM_PATHS for node in all_nodes(self.graph) for path in node.reads)

    @property
    def outputs(self) -> dict[str, Box]:
        """Spaces of the results, by path."""
        flat = flatten_tree(self.graph.outputs)
        return {path: value.space for path, value in flat.items() if isinstance(value, Value)}

    @cached_property
    def base(self) -> Recording:
        """The call as it is."""
        return self.run({})

    def name_of(self, result: str) -> str:
        """What a result is called, by its path: its own name, or that of the method where it has none."""
        name = result.rpartition("/")[2]
        return self.method if name.isdigit() or not name else name

    @property
    def open_inputs(self) -> dict[str, int]:
        """Axis of the rows, by path of the inputs that have one whose length is open."""
        found = {path: open_rows(space) for path, space in self.inputs.items()}
        return {path: axis for path, axis in found.items() if axis is not None}

    def rows(self, indices: Sequence[int] | np.ndarray) -> dict[str, np.ndarray]:
        """The inputs with some of their rows, which may repeat, in place of all; {} where the batch size is fixed."""
        return {path: np.take(np.asarray(self.flat[path]), indices, axis) for path, axis in self.open_inputs.items()}

    def seeded(self, seed: int) -> dict[str, np.ndarray]:
        """The state before the call, with other random numbers to come."""
        return {**self.state, **self.subject.random_state(seed)}

    def run(self, changed: Mapping[str, np.ndarray], state: Mapping[str, np.ndarray] | None = None) -> Recording:
        """Makes the call with some inputs changed, from the state before it.

        Args:
            changed: Arrays by path.
            state: Another state to begin from.
        """
        arguments = unflatten_like(self.arguments, {**self.flat, **changed})
        return record(self.subject.eager, self.method, {**arguments, **self.static}, state or self.state)

    def call(self, changed: Mapping[str, np.ndarray], state: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Makes the call with some inputs changed, without a recording of its nodes: much faster.

        Args:
            changed: Arrays by path.
            state: What the executor holds before.

        Returns:
            Results ("result/..."), metrics ("metric/...") and the state after ("state/...").
        """
        executor = self.subject.fast
        executor.load_state_dict(state)
        arguments = unflatten_like(self.arguments, {**self.flat, **changed})
        result, metrics = executor.execute(self.method, **arguments, **self.static, with_metrics=True)
        # copied: a component may write its next result into the same array
        found = {path: np.array(x) for path, x in flatten_tree(result, "result").items() if x is not None}
        found.update({f"metric/{name}": np.asarray(x) for name, x in metrics.items()})
        found.update({f"state/{path}": np.asarray(x) for path, x in executor.state_dict().items()})
        return found

    def is_open(self, along: Along) -> bool:
        """Whether the inputs have a rank, which may have any size."""
        dims = [dim for space in self.inputs.values() for dim in space.axes if isinstance(dim, Dim)]
        return {symbol for dim in dims for symbol in dim.symbols if symbol[0] == along.value} == {along.value}

    def with_index(self, along: Along, index: int, names: list[str] | None = None) -> dict[str, np.ndarray]:
        """The inputs that have a rank, with one row (or time step) sampled anew.

        Args:
            along: Batch or time.
            index: Which.
            names: Paths of the inputs; None: all.
        """
        found = {}
        for path, space in self.inputs.items():
            if names is None or path in names:
                array = np.asarray(self.flat[path])
                new = replaced(space, array, np.asarray(self.flat_others[path]), along, index, self.sizes)
                if new is not array:
                    found[path] = new
        return found


def open_rows(space: Box) -> int | None:
    """The axis of the rows, where it is the batch alone and of any length."""
    axes = [axis for axis, dim in enumerate(space.axes) if isinstance(dim, Dim) and dim == Dim(("B",))]
    return axes[0] if len(axes) == 1 else None


class Subject:
    """A component that is checked.

    Args:
        descriptor: How to make and call it.
        backends: Where it is checked, "all": wherever it runs and is installed; None: on its reference backend.
    """

    def __init__(self, descriptor: Descriptor, backends: Sequence[str] | None = None) -> None:
        self.descriptor = descriptor
        wanted = (descriptor.reference,) if backends is None else backends
        #: Whether nobody said which.
        self.by_default = backends is None
        #: The backends that are compared.
        self.backends = tuple(
            name
            for name in (descriptor.backends if backends == "all" else wanted)
            if name in descriptor.backends and is_installed(name)
        )
        #: On each backend, compiled and eager.
        self.executors = Executors(descriptor)
        self.situations = cache(self._situations)
        #: All calls of a first round with inputs of a seed.
        self.calls = cache(lambda seed: list(self.round(seed=seed)))

    @cached_property
    def eager(self) -> EagerExecutor:
        """It, built on its reference backend, in portable random mode, to run node by node."""
        return self._eager_on(self.descriptor.reference)

    @cached_property
    def compiled(self) -> GraphExecutor:
        """It, built on its reference backend."""
        return self.executors(self.descriptor.reference)

    @cached_property
    def fast(self) -> GraphExecutor:
        """What runs it the fastest, few times: compiled code, unless a compiler makes it."""
        if self.descriptor.reference not in WITHOUT_COMPILER:
            return self.eager
        for call in self.calls(0):  # what an environment holds begins with a reset
            self.compiled.execute(call.method, **call.arguments, **call.static)
        return self.compiled

    @cached_property
    def learner(self) -> EagerExecutor | None:
        """It on a backend that differentiates, to run node by node; None where none is installed."""
        if self.descriptor.reference in LEARNING:
            return self.eager
        names = [n for n in DIFFERENTIATING if n in self.descriptor.backends and is_installed(n)]
        return self._eager_on(names[0]) if names else None

    def _eager_on(self, backend: str) -> EagerExecutor:
        executor = self.executors(backend, "eager")
        assert isinstance(executor, EagerExecutor)
        return executor

    @cached_property
    def variables(self) -> tuple[str, ...]:
        """Paths of all variables, the random state apart."""
        return tuple(path for path in self.eager.store.cells if path not in RANDOM_PATHS)

    @cached_property
    def trainable(self) -> frozenset[str]:
        """Paths of the variables that may be trained."""
        cells = self.eager.store.cells
        return frozenset(path for path in self.variables if cells[path].trainable)

    def random_state(self, seed: int) -> dict[str, np.ndarray]:
        """The random state of a build with this seed, by path."""
        self.eager.reseed(seed)
        return {path: array for path, array in self.eager.state_dict().items() if path in RANDOM_PATHS}

    @cached_property
    def second_round(self) -> list[Situation]:
        """The calls of a round after a first one."""
        last = self.calls(0)[-1]
        self.eager.load_state_dict(last.state)
        self.eager.execute(last.method, **last.arguments, **last.static)
        return list(self.round(seed=1, state=self.eager.state_dict()))

    @cached_property
    def start(self) -> dict[str, np.ndarray]:
        """What it holds once it is built."""
        return self.executors(self.descriptor.reference).state_dict()

    @property
    def root_path(self) -> str:
        """Path of the root component."""
        return self.eager.root.path

    def graph_of(self, method: str, static: Mapping[str, Any]) -> Graph:
        """A traced method."""
        found = [graph for (name, _), graph in self.eager.graphs.items() if name == method]
        return next((graph for graph in found if all(graph.static.get(k) == v for k, v in static.items())), found[0])

    def _situations(self, rows: int = ROWS, seed: int = 0) -> list[Situation]:
        """The calls of one round, in order, each from the state that the ones before it left; of each method the last.

        Args:
            rows: Rows of the batch.
            seed: Seeds inputs.
        """
        return list({situation.method: situation for situation in self.round(rows, seed)}.values())

    def round(self, rows: int = ROWS, seed: int = 0, state: dict[str, np.ndarray] | None = None) -> Iterator[Situation]:
        """All calls of one round, in order; the state of each is that which the calls before it left.

        Args:
            rows: Rows of the batch.
            seed: Seeds inputs.
            state: What the round begins from; None: what a build begins with.
        """
        executor, descriptor = self.eager, self.descriptor
        state = self.start if state is None else state
        for method in descriptor.methods(executor.root):
            one, other = (descriptor.sample(executor.root, method, rows, seed=s) for s in (seed, seed + 1))
            static = descriptor.static.get(method, {})
            situation = Situation(self, method, one, other, static, state, {"B": rows, "T": TIME_STEPS})
            yield situation
            executor.load_state_dict(state)
            executor.execute(method, **one, **static)
            state = executor.state_dict()
