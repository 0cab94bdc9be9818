"""Whether a batch may be split: what a graph function does to parts of a batch, compared with what it does to all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rlweave.errors import ExecutionError, RlweaveError
from rlweave.graph.binding import bind_node_function, fill_arguments
from rlweave.graph.ir import Call, Node, Value
from rlweave.graph.session.inference import Session
from rlweave.graph.values import same
from rlweave.spaces import Box, Dim
from rlweave.tree import leaves_of

if TYPE_CHECKING:
    from rlweave.graph.variable import Variable

_STEPS, _ROWS, _PARTS = 3, 4, 2


def batch_axis(space: Box) -> int | None:
    """The axis in which rows lie, alone or folded with time; None where there is none, -1 where there are several."""
    found = [i for i, axis in enumerate(space.axes) if isinstance(axis, Dim) and axis.is_batch]
    if not found:
        return None
    axis = space.axes[found[0]]
    assert isinstance(axis, Dim)
    return found[0] if len(found) == 1 and axis.offset == 0 else -1


def rows_of(space: Box) -> str:
    """What the rows of a space are: "B", or "T*B" where time is folded into them; "" where it has none."""
    axis = batch_axis(space)
    if axis is None:
        return ""
    dim = space.axes[axis]
    assert isinstance(dim, Dim)
    return str(Dim(tuple(symbol[0] for symbol in dim.symbols), dim.factor))


def check_rows(size: int, count: int, where: str, error: type[RlweaveError] = ExecutionError) -> None:
    """Checks that each replica gets as many rows.

    Raises:
        RlweaveError: It does not; of the class `error`.
    """
    if size % count:
        raise error(
            "a batch cannot be divided evenly among the replicas",
            where=where,
            received=f"a batch of {size} rows for {count} replicas",
            fix=f"pass a multiple of {count} rows",
        )


def batch_size(space: Box) -> int | None:
    """The number of rows of a space whose batch rank is fixed."""
    axis = batch_axis(space)
    if axis is None or axis < 0:
        return None
    dim = space.axes[axis]
    assert isinstance(dim, Dim)
    return dim.evaluate({}) if all("=" in symbol for symbol in dim.symbols) else None


def may_be_split(node: Node, session: Session) -> bool | None:
    """Tries a node on a small random batch and on its halves, in NumPy.

    Results with a batch axis have to be the halves' side by side, others the mean of the halves'.

    Returns:
        None where it cannot be tried: a loop, a function of a framework.
    """
    if not isinstance(node, Call):
        return None
    if node.function is same:  # other roles of the same axes: rows have to be rows before and after
        before, after = node.args[0].space, node.result.space
        return (batch_axis(before), rows_of(before)) == (batch_axis(after), rows_of(after))
    values = list(leaves_of((node.args, node.kwargs), Value))
    results = list(node.values())
    if any(batch_axis(value.space) == -1 for value in (*values, *results)):
        return None
    if len({rows_of(value.space) for value in (*values, *results)} - {""}) > 1:
        return False  # rows that are folded, or unfolded, are not those of parts
    generator = np.random.default_rng(0)
    arrays = [_sample(value.space, generator) for value in values]
    substituted = {path: _sample(value.space, generator) for path, value in node.substitution.items()}
    variables = {v.path: v for v in session.all_variables()}
    contents = {path: variables[path].initial_value(0) for path in node.reads if path in variables}
    # zeros make everything equal; what was made so is tried with numbers
    contents = {p: x if x.any() else _like(x, generator) for p, x in contents.items()}
    try:
        whole = _run(node, session, arrays, {**contents, **substituted})
        parts = [_run(node, session, _part(values, arrays, k), {**contents, **substituted}) for k in range(_PARTS)]
    except Exception:  # a function of one framework, or one that asks for other numbers than these
        return None
    for i, value in enumerate(results):
        axis = batch_axis(value.space)
        pieces = [np.asarray(part[i]) for part in parts]
        expected = np.mean(pieces, axis=0) if axis is None else np.concatenate(pieces, axis)
        if expected.shape != np.shape(whole[i]) or not np.allclose(whole[i], expected, 1e-3, 1e-4, equal_nan=True):
            return False
    return True


def _sample(space: Box, generator: np.random.Generator) -> np.ndarray:
    sizes = {symbol: _ROWS if symbol[0] == "B" else _STEPS for axis in space.axes for symbol in _symbols(axis)}
    return _like(np.zeros(space.concrete_shape(sizes), space.dtype), generator)


def _symbols(axis: int | Dim) -> tuple[str, ...]:
    return axis.symbols if isinstance(axis, Dim) else ()


def _like(array: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    if array.dtype.kind == "f":
        return generator.uniform(0.1, 0.9, array.shape).astype(array.dtype)
    return generator.integers(0, 2, array.shape).astype(array.dtype)  # small enough for any index


def _part(values: list[Value], arrays: list[np.ndarray], k: int) -> list[np.ndarray]:
    found = []
    for value, array in zip(values, arrays, strict=True):
        axis = batch_axis(value.space)
        found.append(array if axis is None else np.split(array, _PARTS, axis)[k])
    return found


def _run(node: Call, session: Session, arrays: list[np.ndarray], contents: dict[str, np.ndarray]) -> list[Any]:
    backend = session.host_backend
    binder, _ = session.binder(True)
    cells: dict[str, Any] = {}

    def cell_of(variable: Variable) -> Any:
        if variable.path not in cells:
            array = contents.get(variable.path)
            value = variable.initial_value(0) if array is None else array.copy()
            cells[variable.path] = backend.make_cell(variable.path, value, False)
        return cells[variable.path]

    function = bind_node_function(binder, node, cell_of, fixed_cells=False)
    copies = [array.copy() for array in arrays]
    args, kwargs = fill_arguments(node, copies, lambda c: binder.collection(c, cell_of), backend.constant)
    return list(leaves_of(function(*args, **kwargs), np.ndarray | np.generic | float | int | bool))
