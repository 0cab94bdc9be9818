"""TensorFlow: cells, abstract evaluation in graphs that never run, control flow, gradients of segments."""

from __future__ import annotations

import functools
import linecache
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from rlweave.backends import carrying
from rlweave.backends.base import (
    Array,
    Backend,
    Cell,
    Evaluation,
    Suspect,
    is_user_file,
    number_error,
    numpy_error,
    set_cells,
    truth_error,
    values_of_cells,
)
from rlweave.backends.portable_random import PortableRandom
from rlweave.extensions.tensorflow_ import loops, ops
from rlweave.extensions.tensorflow_.array import OpenAxisError, TensorFlowArray, dtype_of, tensor_of
from rlweave.extensions.tensorflow_.cipher import encrypted
from rlweave.extensions.tensorflow_.compilation import CompiledRun
from rlweave.extensions.tensorflow_.framework import tf
from rlweave.tree import tree_leaves, tree_map


class TensorFlowCell(Cell):
    """A cell that rebinds; rows are written functionally."""

    __slots__ = ()

    def assign(self, x: Array) -> None:
        self.value = ops.asarray(x, self.dtype)

    def assign_at(self, indices: Array, x: Array) -> None:
        self.value = ops.set_at(self.value, indices, x)


class TensorFlowBackend(Backend):
    """TensorFlow: device runs are pure functions, each one concrete function with open batch and time axes."""

    name, extra = "tensorflow", "tensorflow"
    functional = True
    immutable = True
    wide = False
    evaluated_types = (TensorFlowArray, tf.Tensor)
    wraps = True
    maps_devices = False
    ops = ops

    def from_numpy(self, x: np.ndarray, device: str | None = None) -> Array:
        return TensorFlowArray(tensor_of(x))

    def stage(self, x: Any, device: str | None = None) -> Any:
        return tensor_of(np.array(x))

    def constant(self, x: np.ndarray, device: str | None = None) -> Array:
        return TensorFlowArray(tensor_of(x))

    def to_numpy(self, x: Array) -> np.ndarray:
        return np.array(x)

    def dtype_name(self, dtype: Any) -> str:
        return str(dtype.name)

    def own_dtype(self, name: str) -> Any:
        return tf.as_dtype(name)

    def make_cell(self, path: str, value: Array, trainable: bool) -> Cell:
        return TensorFlowCell(path, value, trainable)

    def random_module(self) -> Any:
        from rlweave.extensions.tensorflow_ import random

        return random

    def portable_random(self, cell: Any) -> Any:
        return PortableRandom(ops, cell, encrypted)

    def evaluate(
        self,
        run: Callable[[list[Array]], list[Array]],
        specs: Sequence[tuple[tuple[int, ...], str]],
        fill: Sequence[int],
        batch_sizes: frozenset[int],
        host: bool = False,
    ) -> Evaluation:
        graph = loops.watched_graph("abstract_evaluation")
        with graph.as_default():
            args = [tf.compat.v1.placeholder(dtype_of(dtype), shape) for shape, dtype in specs]
            try:
                found = [tensor_of(x) for x in run([TensorFlowArray(x) for x in args])]
            except OpenAxisError as error:
                kinds = {"truth": truth_error(), "number": number_error(), "array": numpy_error("NumPy")}
                raise kinds.get(error.asked_for, error).with_traceback(error.__traceback__) from None
            results = [(tuple(x.shape.as_list()), x.dtype.name) for x in found]
        watched = [graph, *graph.bodies] if batch_sizes else []
        suspects = [suspect for graph in watched for suspect in _double_batch(graph, batch_sizes)]
        if any(None in shape for shape, _ in results):
            # a shape that depends on values: only real arrays tell
            arrays = [
                TensorFlowArray(tf.fill(shape, tf.cast(value, dtype_of(dtype))))
                for (shape, dtype), value in zip(specs, fill, strict=True)
            ]
            results = [(tuple(x.shape.as_list()), x.dtype.name) for x in map(tensor_of, run(arrays))]
        # tensors never change, so that it does not matter who shares their memory
        return Evaluation(results, suspects, [set() for _ in results])

    def runtime(self) -> dict[str, Any]:
        return {
            "scan": scan,
            "cond": functools.partial(carrying.cond, _choose),
            "while_loop": functools.partial(carrying.while_loop, loops.loop),
            "vmap": vmap,
            "vjp": vjp,
            "copy": lambda x: x,
            "stop_gradient": lambda x: tree_map(ops.stop_gradient, x),
            "ones_like": ops.ones_like,
            "zeros_like": ops.zeros_like,
        }

    def boundary(self, device: str | None = None) -> dict[str, Any]:
        return {
            "array_type": type(tf.zeros(())),
            "numpy_of": _numpy_of,
            "copy_numpy_of": np.array,
            "to_host": _to_host,
            "staged": lambda x: x,  # a run copies NumPy arrays
            "handed": _handed,
        }

    def set_threads(self, threads: int) -> bool:
        try:
            tf.config.threading.set_intra_op_parallelism_threads(threads)
            tf.config.threading.set_inter_op_parallelism_threads(threads)
        except RuntimeError:  # it has computed before, and keeps its threads
            return False
        return True

    def differentiate(self, loss: Callable[..., Any], *arguments: Any) -> Any:
        leaves = [tf.identity(tensor_of(leaf)) for leaf in tree_leaves(arguments)]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            for leaf in leaves:
                tape.watch(leaf)
            value = tensor_of(loss(*_like(arguments, leaves)))
        found = tape.gradient(value, leaves, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        return _like(arguments, [tf.convert_to_tensor(g) for g in found])

    def compile(
        self, function: Callable[..., Any], states: Sequence[str], inputs: Sequence[Any] = (), **options: Any
    ) -> Callable[..., Any]:
        return CompiledRun(function, len(states), inputs)


def _like(tree: Any, leaves: Sequence[Any]) -> Any:
    remaining = iter(leaves)
    return tree_map(lambda leaf: TensorFlowArray(next(remaining)), tree)


def _numpy_of(x: Any) -> np.ndarray:
    return x.numpy() if isinstance(x, TensorFlowArray) else np.asarray(x)


def _to_host(x: Any) -> Any:
    return tree_map(lambda leaf: leaf.numpy() if isinstance(leaf, TensorFlowArray) else leaf, x)


def _handed(x: Any) -> Any:
    return tensor_of(x)


def _double_batch(graph: Any, batch_sizes: frozenset[int]) -> Iterator[Suspect]:
    """Intermediate arrays of a graph with the batch axis twice, with the operands that met in them."""
    for operation in graph.get_operations():
        operands = tuple(_known_shape(x) for x in operation.inputs)
        for result in operation.outputs:
            shape = _known_shape(result)
            twice = any(shape.count(size) > 1 for size in batch_sizes)
            if twice and shape not in operands and operation.type != "Placeholder":
                yield Suspect(shape, operands, _location(operation))


def _known_shape(x: Any) -> tuple[int, ...]:
    shape = x.shape
    return () if shape.rank is None else tuple([-1 if n is None else n for n in shape.as_list()])


def _location(operation: Any) -> str:
    for frame in reversed(operation.traceback or ()):
        if is_user_file(frame.filename):
            text = linecache.getline(frame.filename, frame.lineno).strip()
            return f"{frame.filename}:{frame.lineno}: {text}"
    return "unknown line"


def _choose(pred: Any, yes: Callable[[Any], Any], no: Callable[[Any], Any], values: Any) -> Any:
    return loops.cond(pred, lambda: yes(values), lambda: no(values))


def scan(
    body: Callable[[Any, Any], tuple[Any, Any]],
    carry: Any,
    xs: Any,
    length: int | None,
    written: Any,
    rows: loops.Rows | None = None,
) -> Any:
    """`graph.scan` as a while loop, which is told the rows of its results."""
    return carrying.scan(loops.scan, body, carry, xs, length, written, rows=rows)


def vmap(body: Callable[..., Any], in_axes: Sequence[int | None], size: int, args: Sequence[Any]) -> Any:
    """`graph.vmap` as `tf.vectorized_map`."""
    structure: list[Any] = []
    mapped = [arg for arg, axis in zip(args, in_axes, strict=True) if axis is not None]
    fronts = [
        tf.experimental.numpy.moveaxis(x, axis, 0) if axis else x
        for arg, axis in zip(args, in_axes, strict=True)
        if axis is not None
        for x in loops.tensors(loops.as_arrays(arg))
    ]

    def row(slices: Sequence[Any]) -> list[Any]:
        remaining = iter(_like(mapped, slices[1:]))
        rows = [arg if axis is None else next(remaining) for arg, axis in zip(args, in_axes, strict=True)]
        result = body(*rows)
        structure.append(result)
        return loops.tensors(result)

    count = size if isinstance(size, int) else tensor_of(size, tf.int32)
    stacked = tf.vectorized_map(row, [tf.range(count), *fronts])
    return loops.rebuilt(structure[-1], stacked)


def vjp(segment: Callable[..., Any], cells: Sequence[Cell], written: Sequence[Cell], values: Sequence[Any]) -> Any:
    """Evaluates a segment once and keeps its pull-back.

    Derivatives are operations like others here, so that a segment may hold the pull-back of another one.

    Args:
        segment: Function of `values` that returns (outputs to differentiate, other results).
        cells: Variables to differentiate by; the segment reads them.
        written: Variables that the segment writes.
        values: Values to differentiate by.

    Returns:
        (outputs, other results, pull-back from output cotangents to (cell cotangents, value cotangents)).
    """
    before, before_written = values_of_cells(cells), values_of_cells(written)
    # nodes of their own, which nothing but this segment uses
    cell_sources = [tf.identity(tensor_of(value)) for value in before]
    value_sources = [tf.identity(tensor_of(value)) for value in values]
    try:
        set_cells(cells, [TensorFlowArray(x) for x in cell_sources])
        outputs, others = segment(*[TensorFlowArray(x) for x in value_sources])
        after = values_of_cells(written)
    finally:
        set_cells(written, before_written)
        set_cells(cells, before)
    set_cells(written, after)

    def pull(cotangents: Sequence[Any]) -> Any:
        found = tf.gradients(
            [tensor_of(x) for x in outputs],
            [*cell_sources, *value_sources],
            grad_ys=[tensor_of(x) for x in cotangents],
            unconnected_gradients=tf.UnconnectedGradients.ZERO,
        )
        arrays = [TensorFlowArray(tf.convert_to_tensor(g)) for g in found]
        return tuple(arrays[: len(cell_sources)]), tuple(arrays[len(cell_sources) :])

    return outputs, others, pull


BACKEND = TensorFlowBackend()
