"""`gradients` and `stop_gradient`: derivatives, as API methods say them."""

from __future__ import annotations

from typing import Any

from rlweave.errors import BuildError
from rlweave.graph.current import require_trace
from rlweave.graph.decorators import describe
from rlweave.graph.differentiation import check_path
from rlweave.graph.ir import (
    Gradients,
    Structure,
    Unknown,
    Value,
)
from rlweave.graph.trace import Trace
from rlweave.graph.values import make_result
from rlweave.graph.variable import VariableCollection
from rlweave.tree import has_leaf, leaves_of, tree_map


def gradients(loss: Value, variables: VariableCollection | Structure, allow_unused: bool = False) -> Any:
    """The derivative of a loss, as it was computed, by variables as they were read (or by values).

    Args:
        loss: A scalar float value.
        variables: A variable collection, or nested values made in this graph (substituted weights, say).
        allow_unused: The loss need not depend on all of them; the gradients of others are zeros. What counts is
            whether a path of differentiable nodes leads from one to the other: what a graph function does with what
            it reads (`ops.stop_gradient`) is not looked at.

    Returns:
        For a collection a dict of gradients by variable path; for values the same nesting.

    Raises:
        BuildError: The loss is no scalar; a write, a host node or a while loop lies on the differentiated path; there
            are no variables, or the loss does not depend on one of them.
    """
    trace: Trace = require_trace("gradients")
    if has_leaf((loss, variables), Unknown):
        trace.unknown = True
        return Unknown("gradients")
    if not isinstance(loss, Value) or loss.space.axes != () or not loss.space.dtype.startswith("float"):
        raise BuildError(
            "gradients need a scalar float loss",
            where=trace.calls[-1] if trace.calls else trace.graph.name,
            received=describe(loss),
            fix="reduce it (ops.mean over all axes) in the graph function that computes it",
        )
    if not isinstance(variables, VariableCollection) and not has_leaf(variables, Value):
        raise BuildError(
            "gradients need variables or values to differentiate by",
            received=describe(variables),
            fix="pass component.variables()",
        )
    integers = [v for v in leaves_of(variables, Value) if not v.space.dtype.startswith("float")]
    if integers:
        raise BuildError(
            "gradients by values that are no floats",
            where=trace.calls[-1] if trace.calls else trace.graph.name,
            received=describe(integers[0]),
            fix="differentiate by float values only",
        )
    node = Gradients(label=f"{trace.graph.name}.gradients", args=(loss, variables))
    if isinstance(variables, VariableCollection):
        node.paths = node.reads = tuple(variables.keys())
        spaces: Structure = {path: variable.space for path, variable in variables.items()}
    else:
        node.by_values = tuple(leaves_of(variables, Value))
        spaces = tree_map(lambda leaf: leaf.space if isinstance(leaf, Value) else leaf, variables)
    node.result = make_result(node, spaces)
    # which nodes the derivative goes through is found here, so that errors name the line of the user
    check_path(trace, node, allow_unused)
    trace.emit(node)
    return node.result


def stop_gradient(structure: Structure) -> Structure:
    """The same values as constants for every gradient; what makes them is not differentiated, nor recorded for it.

    Args:
        structure: Nested values.
    """
    trace: Trace = require_trace("stop_gradient")

    def stop(value: Any) -> Any:
        return trace.relabel(value, value.space, differentiable=False) if isinstance(value, Value) else value

    return tree_map(stop, structure)
