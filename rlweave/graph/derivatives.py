"""`gradients`, `stop_gradient` and `substitute`: derivatives, and variables that read given values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rlweave.errors import BuildError, nearest
from rlweave.graph.component import Component
from rlweave.graph.current import require_trace
from rlweave.graph.decorators import describe
from rlweave.graph.differentiation import check_path
from rlweave.graph.ir import (
    Gradients,
    NotReady,
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
    """The same values as constants for every gradient: nothing before them is differentiated, or recorded for it.

    Args:
        structure: Nested values.
    """
    trace: Trace = require_trace("stop_gradient")

    def stop(value: Any) -> Any:
        return trace.relabel(value, value.space, differentiable=False) if isinstance(value, Value) else value

    return tree_map(stop, structure)


class SubstitutedComponent:
    """A component whose variables read given values; made by `substitute`."""

    def __init__(self, component: Component, mapping: dict[str, Value]) -> None:
        self._component, self._mapping = component, mapping

    def variables(self, trainable: bool | None = True) -> dict[str, Value]:
        """The substituted values by variable path."""
        return dict(self._mapping)

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._component, name)
        if not callable(attribute) or isinstance(attribute, Component):
            return self._view(attribute)

        def call(*args: Any, **kwargs: Any) -> Any:
            trace: Trace = require_trace("a substituted component")
            with _substituting(trace, self._mapping):
                return attribute(*args, **kwargs)

        return call

    def _view(self, attribute: Any) -> Any:
        """Sub-components, those in lists and dicts too, read the given values as well."""
        if isinstance(attribute, Component):
            return SubstitutedComponent(attribute, self._mapping)
        return tree_map(self._view, attribute) if isinstance(attribute, list | tuple | dict) else attribute


@contextmanager
def _substituting(trace: Trace, mapping: dict[str, Value]) -> Iterator[None]:
    trace.substitutions.append(mapping)
    try:
        yield
    finally:
        trace.substitutions.pop()


def substitute(component: Component, values: Mapping[str, Value] | Sequence[Value]) -> Any:
    """A view of a component whose variables read given values instead of the store.

    Args:
        component: Any component of the graph.
        values: By variable path, as `component.variables().read()` and `gradients` give them, or in that order.
    """
    trace: Trace = require_trace("substitute")
    if has_leaf(values if isinstance(values, dict) else [values], Unknown):
        trace.unknown = True
        raise NotReady("substituted values")
    variables = component.variables(trainable=None)
    if not isinstance(values, Mapping):
        trainable = component.variables()
        values = dict(zip(trainable.keys(), values, strict=True))
    for path, value in values.items():
        if path not in variables.keys():  # noqa: SIM118 - iterating a collection yields variables
            raise BuildError(
                "a value was substituted for a variable that the component does not have",
                where=component.path,
                received=path,
                fix=nearest(path, variables.keys()),
            )
        if not isinstance(value, Value) or value.space.axes != variables[path].space.shape:
            raise BuildError(
                "a substituted value has another shape than its variable",
                where=path,
                received=describe(value),
                fix=f"pass {variables[path].space!r}",
            )
    return SubstitutedComponent(component, dict(values))
