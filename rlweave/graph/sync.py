"""Synchronizing the variables of one component with those of another."""

from __future__ import annotations

from typing import Any

from rlweave import ops
from rlweave.errors import BuildError, nearest
from rlweave.graph.composition import ComponentBase
from rlweave.graph.current import require_trace
from rlweave.graph.variable import VariableCollection


def copy_variables(target: Any, source: Any) -> None:
    """Graph function body: `target = source`."""
    for to, of in zip(target, source, strict=True):
        to.assign(of.value)


def move_variables(target: Any, source: Any, tau: Any) -> None:
    """Graph function body: `target += tau * (source - target)`."""
    for to, of in zip(target, source, strict=True):
        value = to.value
        to.assign(value + tau * (ops.stop_gradient(of.value) - value))


def copy_values(target: Any, values: Any) -> None:
    """Graph function body: `target = values`."""
    for to, value in zip(target, values, strict=True):
        to.assign(value)


def move_by_values(target: Any, values: Any, tau: Any) -> None:
    """Graph function body: `target += tau * (values - target)`."""
    for to, of in zip(target, values, strict=True):
        value = to.value
        to.assign(value + tau * (ops.stop_gradient(of) - value))


def sync_variables(
    target: ComponentBase,
    source: ComponentBase,
    all_ours: VariableCollection,
    all_theirs: VariableCollection,
    tau: Any,
) -> None:
    """Moves the variables of `target` towards those of `source`; see `Component.sync`.

    Args:
        target: A component.
        source: A component that was built equally.
        all_ours: All variables of `target`, those of components shared from outside among them.
        all_theirs: All variables of `source`, likewise.
        tau: How far.

    Raises:
        BuildError: The components do not have the same variables.
    """
    trace = require_trace("sync")
    ours, theirs = _own(target, all_ours), _own(source, all_theirs)
    if list(ours) != list(theirs):
        missing = [name for name in ours if name not in theirs] or [name for name in theirs if name not in ours]
        raise BuildError(
            "components with different variables cannot be synchronized",
            where=f"{target.path} from {source.path}",
            received=f"{missing[0]!r} is in one of them only" if missing else "the order differs",
            fix=nearest(missing[0], list(theirs)) if missing else "build both the same way, or use copy()",
        )
    wrong = [name for name in ours if ours[name].shape != theirs[name].shape]
    if wrong:
        raise BuildError(
            "variables of different shapes cannot be synchronized",
            where=ours[wrong[0]].path,
            received=f"{ours[wrong[0]].shape} from {theirs[wrong[0]].shape}",
            fix="build both components from the same spaces",
        )
    to = VariableCollection({v.path: v for v in ours.values()})
    of = VariableCollection({v.path: v for v in theirs.values()})
    plain = isinstance(tau, int | float) and float(tau) == 1.0
    places = {trace.session.place_of(v) for v in (*ours.values(), *theirs.values())}
    if len(places) > 1:
        # read where the source is, and written where the target is: what lies between is a transfer
        for place in dict.fromkeys(trace.session.place_of(v) for v in ours.values()):
            here = {name: v for name, v in ours.items() if trace.session.place_of(v) == place}
            values = VariableCollection({theirs[name].path: theirs[name] for name in here}).read()
            part = VariableCollection({v.path: v for v in here.values()})
            ordered = [values[theirs[name].path] for name in here] if isinstance(values, dict) else values
            arguments = (part, ordered) if plain else (part, ordered, tau)
            body = copy_values if plain else move_by_values
            trace.call_internal(body, "sync", arguments, component=target, differentiable=False)
        return
    if plain:
        trace.call_internal(copy_variables, "sync", (to, of), component=target, differentiable=False)
        return
    trace.call_internal(move_variables, "sync", (to, of, tau), component=target, differentiable=False)


def _own(component: ComponentBase, variables: VariableCollection) -> dict[str, Any]:
    """Variables below a component by relative path, without those of components shared from outside."""
    prefix = component.path + "/"
    return {path[len(prefix) :]: variable for path, variable in variables.items() if path.startswith(prefix)}
