"""`substitute`: a component whose variables read given values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rlweave.errors import BuildError, nearest
from rlweave.graph.component import Component
from rlweave.graph.current import require_trace
from rlweave.graph.decorators import describe
from rlweave.graph.ir import (
    NotReady,
    Unknown,
    Value,
)
from rlweave.graph.trace import Trace
from rlweave.tree import has_leaf, tree_map


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
