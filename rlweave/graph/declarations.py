"""What API methods say of values: which leading axes are rows and steps, and what is reported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlweave.errors import BuildError
from rlweave.graph.current import require_trace
from rlweave.graph.decorators import describe
from rlweave.graph.ir import (
    Structure,
    Unknown,
    Value,
)
from rlweave.graph.trace import Trace, lift
from rlweave.spaces import Dim, fixed_batch, fixed_time, from_axes
from rlweave.tree import has_leaf, tree_map


def batch_rank(structure: Structure) -> Structure:
    """Declares the first axis of every leaf to be its batch rank (a minibatch taken by indices, say).

    Args:
        structure: Nested values with at least one axis.

    Returns:
        The same values with a batch rank; a symbolic axis keeps its symbols, a constant one becomes a fixed rank.
    """
    return _with_ranks("batch_rank", structure, 1)


def time_rank(structure: Structure) -> Structure:
    """Declares the first two axes of every leaf to be its time and batch ranks (what a scan over steps stacked, say).

    Args:
        structure: Nested values with at least two axes.

    Returns:
        The same values with both ranks; symbolic axes keep their symbols, constant ones become fixed ranks.
    """
    return _with_ranks("time_rank", structure, 2)


def _with_ranks(name: str, structure: Structure, ranks: int) -> Structure:
    trace: Trace = require_trace(name)
    if has_leaf(structure, Unknown):
        trace.unknown = True
        return structure
    fixed = (fixed_time, fixed_batch)[-ranks:]

    def declare(value: Any) -> Any:
        if not isinstance(value, Value) or (value.space.has_batch_rank and value.space.ranks >= ranks):
            return value
        axes = value.space.axes
        if len(axes) < ranks:
            raise BuildError(
                f"{name} of a value with too few axes",
                where=trace.graph.name,
                received=describe(value),
                fix=f"pass values with {ranks} leading axes or more",
            )
        leading = [a if isinstance(a, Dim) else make(a) for a, make in zip(axes, fixed, strict=False)]
        space = from_axes((*leading, *axes[ranks:]), value.space.dtype)
        if ranks == 2 and space.ranks != 2:
            raise BuildError(
                "the first two axes are not time and batch",
                where=trace.graph.name,
                received=describe(value),
                fix="time comes first, then the batch",
            )
        return trace.relabel(value, space)

    return tree_map(declare, structure)


def metric(name: str, value: Any, reduce: str = "mean") -> None:
    """Reports a scalar from anywhere in a graph, scans included; the executor hands it out beside the result.

    Args:
        name: Name of the metric.
        value: A scalar.
        reduce: "mean", "sum" or "last", over the steps of a scan and the rows of a vmap.
    """
    trace: Trace = require_trace("metric")
    if reduce not in ("mean", "sum", "last"):
        raise BuildError("unknown reduction", where=f"metric {name!r}", received=repr(reduce), fix="mean, sum or last")
    if isinstance(value, Unknown):
        trace.unknown = True
        return
    value = lift(value)
    if value.space.axes != ():
        raise BuildError(
            "a metric has to be a scalar", where=f"metric {name!r}", received=describe(value), fix="reduce it first"
        )
    trace.metric(name, value, reduce)


def metrics(values: Mapping[str, Any], reduce: str = "mean") -> None:
    """Reports several scalars by name; see `metric`."""
    for name, value in values.items():
        metric(name, value, reduce)
