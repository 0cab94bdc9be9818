"""Device runs as concrete functions: one signature for all batch sizes.

A run is traced once, with open batch and time axes. Where Python in a graph function needs a length (a loop over time,
`if len(x) > 1`), it is traced again for each length: first of the time axis alone, then of all axes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from rlweave.backends.base import OpenArray
from rlweave.backends.python_loops import row_builder
from rlweave.extensions.tensorflow_.array import TensorFlowArray, dtype_of, tensor_of
from rlweave.extensions.tensorflow_.framework import tf
from rlweave.tree import tree_leaves

#: Which axes are open, from the most general to the most special signature.
_OPEN: tuple[Callable[[str], bool], ...] = (lambda name: True, lambda name: "T" not in name, lambda name: False)


#: How to call a concrete function, and how to nest its results.
_Traced = tuple[Callable[[Sequence[Any]], Sequence[Any]], Callable[[tuple[Any, ...]], Any]]


class CompiledRun:
    """A pure run as concrete functions of TensorFlow.

    Args:
        function: From groups of states and nested inputs to nested results, all arrays of rlweave.
        groups: How many groups of states come first.
        inputs: For each other argument, nested `OpenArray`s.
    """

    def __init__(self, function: Callable[..., Any], groups: int, inputs: Sequence[Any]) -> None:
        self.function = self.__wrapped__ = function
        self.groups, self.inputs = groups, inputs
        self.open_arrays = [leaf for tree in inputs for leaf in tree_leaves(tree) if isinstance(leaf, OpenArray)]
        #: The concrete functions, whose graphs can be looked at.
        self.concrete_functions: list[Any] = []
        #: How often the Python function ran.
        self.traces = 0
        self._level = 0
        self._known: dict[tuple[int, ...], _Traced] = {}
        # with open axes there is one signature, and nothing to look at
        self._only: _Traced | None = None

    def __call__(self, *arguments: Any) -> Any:
        flat = [array.tensor for group in arguments[: self.groups] for array in group]
        states = len(flat)
        for tree, argument in zip(self.inputs, arguments[self.groups :], strict=True):
            _collect(tree, argument, flat)
        found = self._only
        if found is None:
            key = self._key(flat[states:])
            found = self._known.get(key)
            if found is None:
                found = self._traced(flat, [len(group) for group in arguments[: self.groups]])
        try:
            results = found[0](flat)
        except tf.errors.InvalidArgumentError:
            # the rows of a loop over nothing have no shape, unless it is known while tracing
            if not any(0 in x.shape for x in flat[states:]):
                raise
            found = self._empty(flat, [len(group) for group in arguments[: self.groups]])
            results = found[0](flat)
        return found[1](tuple([TensorFlowArray(x) for x in results]))

    def _empty(self, flat: Sequence[Any], sizes: Sequence[int]) -> _Traced:
        """The run for arguments some of which are empty, with all lengths known."""
        key = (-1, *[size for x in flat[sum(sizes) :] for size in x.shape])
        if key not in self._known:
            self._known[key] = self._trace(flat, sizes, _OPEN[-1])
        return self._known[key]

    def _key(self, tensors: Sequence[Any]) -> tuple[int, ...]:
        is_open = _OPEN[self._level]
        return tuple(
            [
                size
                for x, known in zip(tensors, self.open_arrays, strict=True)
                for size, axis in zip(x.shape, known.axes, strict=True)
                if isinstance(axis, str) and not is_open(axis)
            ]
        )

    def _traced(self, flat: Sequence[Any], sizes: Sequence[int]) -> _Traced:
        while True:
            level = self._level
            key = self._key(flat[sum(sizes) :])
            try:
                found = self._trace(flat, sizes, _OPEN[level])
            except Exception:
                if level + 1 == len(_OPEN) or not self.open_arrays:
                    raise
                # what fails with open axes may do with the lengths of this call; if not, that error says why
                self._level = level + 1
                continue
            self._known[key] = found
            if level == 0:
                self._only = found
            return found

    def _trace(self, flat: Sequence[Any], sizes: Sequence[int], is_open: Callable[[str], bool]) -> _Traced:
        states = sum(sizes)
        specs = [tf.TensorSpec(x.shape, x.dtype) for x in flat[:states]]
        for x, known in zip(flat[states:], self.open_arrays, strict=True):
            axes = zip(x.shape, known.axes, strict=True)
            shape = [None if isinstance(axis, str) and is_open(axis) else size for size, axis in axes]
            specs.append(tf.TensorSpec(shape, x.dtype))
        built: list[Callable[[tuple[Any, ...]], Any]] = []

        def run(*tensors: Any) -> list[Any]:
            self.traces += 1
            arrays = iter([TensorFlowArray(x) for x in tensors])
            groups = [tuple([next(arrays) for _ in range(size)]) for size in sizes]
            result = self.function(*groups, *[_filled(tree, arrays) for tree in self.inputs])
            built.append(row_builder(result))
            return [tensor_of(leaf) for leaf in tree_leaves(result)]

        # a function of its own for each signature: two threads never wait for each other's trace
        concrete = tf.function(run, autograph=False).get_concrete_function(*specs)
        self.concrete_functions.append(concrete)
        return _caller(concrete), built[-1]


def _caller(concrete: Any) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """Calls a concrete function with flat tensors, as the operation that it is.

    Its own `__call__` binds names and looks at shapes first, which takes three times as long as a small run; here the
    executor has checked the inputs.
    """
    types = [x.dtype for x in concrete.outputs]
    captured = list(concrete.captured_inputs)
    if not types:
        return lambda flat: concrete(*flat)
    call = tf.raw_ops.StatefulPartitionedCall
    return lambda flat: call(args=[*flat, *captured], Tout=types, f=concrete)


def _collect(known: Any, argument: Any, tensors: list[Any]) -> None:
    """Adds the tensors of an argument to a list; NumPy arrays are copied, as a caller may refill them."""
    if isinstance(known, OpenArray):
        if type(argument) is TensorFlowArray:
            tensors.append(argument.tensor)
        elif type(argument) is np.ndarray and argument.dtype == known.dtype:
            tensors.append(tf.constant(argument))
        else:
            tensors.append(tensor_of(argument, dtype_of(known.dtype)))
    elif isinstance(known, dict):
        for key, inner in known.items():
            _collect(inner, argument[key], tensors)
    elif isinstance(known, tuple | list):
        for inner, item in zip(known, argument, strict=True):
            _collect(inner, item, tensors)


def _filled(known: Any, arrays: Iterator[TensorFlowArray]) -> Any:
    """The argument with the next arrays in place of what is known of them; constants stay."""
    if isinstance(known, OpenArray):
        return next(arrays)
    if isinstance(known, dict):
        return {key: _filled(inner, arrays) for key, inner in known.items()}
    if isinstance(known, tuple | list):
        items = [_filled(inner, arrays) for inner in known]
        if isinstance(known, list):
            return items
        return type(known)(*items) if hasattr(known, "_fields") else tuple(items)
    return known
