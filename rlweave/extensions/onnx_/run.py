"""A run of an acting graph as an ONNX model: written at its first call, one session for all batch sizes and weights."""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from onnxruntime import OrtValue

from rlweave.backends.base import OpenArray
from rlweave.backends.python_loops import in_order_of, row_builder
from rlweave.extensions.onnx_.draws import Draws
from rlweave.extensions.onnx_.model import Model
from rlweave.extensions.onnx_.ops.control import as_symbols
from rlweave.extensions.onnx_.random import source_of
from rlweave.extensions.onnx_.session import make_session
from rlweave.extensions.onnx_.symbol import EXAMPLE_SIZES, Symbol
from rlweave.tree import tree_leaves, tree_map


class OnnxRun:
    """What stands for a run in a generated program.

    Weights are values of ONNX Runtime that are made once for each version, as long as the store holds the same arrays.
    Observations are read where they are; results are fresh arrays.

    Args:
        function: The run: from state and inputs to results (and the state after it).
        states: What its first arguments are: "donated" (here: random state only) and "kept".
        inputs: What is known of the others: nested `OpenArray`s.
    """

    def __init__(self, function: Callable[..., Any], states: Sequence[str], inputs: Sequence[Any]) -> None:
        self._function, self._states, self._inputs = function, tuple(states), tuple(inputs)
        self._nested = not all(isinstance(item, OpenArray) for item in inputs)
        self._draws_from_state = "donated" in states
        self._open = _open_axes(tree_leaves(self._inputs))
        #: Sessions made so far: at most one, whatever batch sizes and weights come.
        self.sessions = 0
        #: The serialized model, once it is written.
        self.content = b""
        self._lock = threading.Lock()
        self._weights: tuple[Any, ...] = ()
        self._shapes: Any = None

    def __call__(self, *arguments: Any) -> Any:
        """Runs the model."""
        random = SimpleNamespace(value=arguments[0][0]) if self._draws_from_state else None
        position = int(self._draws_from_state)
        kept: tuple[Any, ...] = ()
        if len(self._states) > position:
            kept = arguments[position]
            position += 1
        given = arguments[position:]
        leaves = tree_leaves(in_order_of(self._inputs, given)) if self._nested else given
        if 0 in [leaves[index].shape[axis] for index, axis in self._open]:
            # ONNX Runtime gives reductions of no rows a wrong shape; without symbols the run is NumPy's
            return self._function(*arguments)
        with self._lock:  # one binding, and threads that read do not wait for each other elsewhere
            if not self.sessions:
                self._write(kept)
            if kept is not self._weights:
                self._bind_weights(kept)
            binding = self._binding
            shapes = []
            held = []  # until the run is over: the binding reads arrays where they are, and does not own them
            for name, index in self._used:
                x = leaves[index]
                if not x.flags.c_contiguous:
                    x = np.ascontiguousarray(x)
                    held.append(x)
                binding.bind_cpu_input(name, x)
                shapes.append(x.shape)
            if random is not None:
                held += self._bind_random(random, leaves)
            if shapes != self._shapes:
                # results of another shape need memory of their own; they are copied out of it in any case
                self._shapes = shapes
                for name in self._outputs:
                    binding.bind_output(name)
            self._session.run_with_iobinding(binding)
            found = binding.copy_outputs_to_cpu()
        result = self._build(found)
        return result if random is None else (result, (random.value,))

    def _bind_weights(self, kept: tuple[Any, ...]) -> None:
        """Hands over new weights, those that are not the same arrays as before."""
        before = self._weights if len(self._weights) == len(kept) else (None,) * len(kept)
        changed = {index for index, (old, new) in enumerate(zip(before, kept, strict=True)) if old is not new}
        for name, (index, function) in self._fed.items():
            if index in changed:
                array = kept[index] if function is None else function(kept[index])
                value = OrtValue.ortvalue_from_numpy(np.require(array, requirements="C"))
                self._held[name] = value
                self._binding.bind_ortvalue_input(name, value)
        self._weights = kept

    def _bind_random(self, cell: Any, leaves: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Draws the numbers of this run, which advances the state in a cell, and hands them over."""
        sizes = {symbol: leaves[index].shape[axis] for symbol, (index, axis) in self._sizes.items()}
        drawn = self._draws.take(source_of(cell), sizes)
        held = {name: np.require(numbers, requirements="C") for name, numbers in drawn.items() if name in self._names}
        for name, numbers in held.items():
            self._binding.bind_cpu_input(name, numbers)
        return list(held.values())

    def _write(self, kept: tuple[Any, ...]) -> None:
        """Writes the model by running the function on symbols, and makes its session."""
        model = Model()
        symbols = [example_input(model, leaf) for leaf in tree_leaves(self._inputs) if isinstance(leaf, OpenArray)]
        remaining = iter(symbols)
        given = tree_map(lambda leaf: next(remaining) if isinstance(leaf, OpenArray) else leaf, self._inputs)
        weights = [
            Symbol(model, model.input("weight", x.dtype, x.shape), [x] * len(EXAMPLE_SIZES), weight=index)
            for index, x in enumerate(kept)
        ]
        states: list[Any] = []
        self._draws = Draws(model)
        if self._draws_from_state:
            states.append((self._draws,))
        if len(self._states) > len(states):
            states.append(tuple(weights))
        result = self._function(*states, *given)
        if self._draws_from_state:
            result, _ = result
        found = as_symbols(model, result)
        self._build = _builder(result)
        outputs = [(str(model.node("Identity", [symbol.name])), symbol.dtype, None) for symbol in found]
        self.content, names = model.finished(outputs)
        self._names, self._outputs = frozenset(names), [name for name, _, _ in outputs]
        self._used = [(symbol.name, i) for i, symbol in enumerate(symbols) if symbol.name in self._names]
        own = {symbol.name: (index, None) for index, symbol in enumerate(weights)}
        self._fed = {name: source for name, source in {**own, **model.derived}.items() if name in self._names}
        arrays = tree_leaves(self._inputs)
        self._sizes = {arrays[i].axes[axis]: (i, axis) for i, axis in reversed(self._open)}
        self._session = make_session(self.content)
        self._binding = self._session.io_binding()
        self._held: dict[str, Any] = {}
        self.sessions += 1


def example_input(model: Model, array: OpenArray, name: str | None = None) -> Symbol:
    """An input of a model, with examples: of ones, and of zeros where they may be indices.

    Args:
        model: The model.
        array: What is known of it.
        name: Its name; then open axes have one name ("batch"). None: a fresh one.
    """
    value = 1 if array.dtype.startswith("float") else 0
    examples = []
    for sizes in EXAMPLE_SIZES:
        shape = [n if isinstance(n, int) else int(np.prod([sizes[s] for s in n.split("*")])) for n in array.axes]
        examples.append(np.full(shape, value, array.dtype))
    open_axis = None if name is None else "batch"
    axes = [n if isinstance(n, int) else open_axis for n in array.axes]
    return Symbol(model, model.input("input", array.dtype, axes, name), examples)


def _builder(result: Any) -> Callable[[list[Any]], Any]:
    """A function that nests a list of arrays like a result."""
    if not isinstance(result, (dict, list, tuple)):
        return operator.itemgetter(0)
    build = row_builder(result)
    return lambda arrays: build(tuple(arrays))


def _open_axes(arrays: Sequence[Any]) -> list[tuple[int, int]]:
    """(input, axis) of all open axes."""
    known = [(i, array) for i, array in enumerate(arrays) if isinstance(array, OpenArray)]
    return [(i, axis) for i, array in known for axis, n in enumerate(array.axes) if isinstance(n, str)]
