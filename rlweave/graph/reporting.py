"""`metric` and `metrics`: numbers that are reported from inside of a graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlweave.errors import BuildError
from rlweave.graph.current import require_trace
from rlweave.graph.decorators import describe
from rlweave.graph.ir import (
    Unknown,
)
from rlweave.graph.trace import Trace, lift


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
