"""Errors of plans that several operators raise: what they say, in one place."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Collection, Sequence
from typing import Any

from rlweave.errors import CheckpointError, PlanError
from rlweave.flow.envelope import Envelope, stands_for
from rlweave.flow.item_types import type_name


def failure(operator: str, envelope: Envelope, error: Exception) -> PlanError:
    """An operator failed on an item; raise it from ``error``."""
    said = (str(error).splitlines() or [""])[0]
    return PlanError(
        f"operator {operator!r} failed: {type(error).__name__}: {said}",
        where=f"operator {operator!r}",
        received=envelope.describe(),
        fix="see its cause, the original error; the item named here is the one that was being processed",
    )


def does_not_fit(producer: str, described: str, item_type: Any, consumer: str, takes: Any) -> PlanError:
    """Items are of another type than their consumer takes."""
    fix = f"put an operator between them that makes {type_name(takes)} of {type_name(item_type)}, "
    fix += "or correct the annotations"
    if stands_for(item_type):
        fix = "leave by_reference=True out of the gather, or put for_each(ItemReference.fetch) between them"
    return PlanError(
        f"the items of {producer!r} do not fit {consumer!r}",
        where=f"operators {producer!r} and {consumer!r}",
        received=f"{described}; {consumer!r} takes {type_name(takes)}",
        fix=fix,
    )


def not_gathered(producer: str, described: str, consumer: str) -> PlanError:
    """An operator of one stream stands behind items that are still at their sources."""
    return PlanError(
        f"{consumer!r} needs one stream, but the items of {producer!r} still are at their sources",
        where=f"operators {producer!r} and {consumer!r}",
        received=f"{described}, at several sources in parallel",
        fix="put gather_sync() or gather_async() between them, or use par_for_each to work at the sources",
    )


def gathered_already(producer: str, described: str, consumer: str) -> PlanError:
    """An operator that is to run beside the workers stands behind a gather."""
    return PlanError(
        f"par_for_each({consumer!r}) needs a parallel stream",
        where=f"operators {producer!r} and {consumer!r}",
        received=f"{described}, gathered already",
        fix="use for_each, or call par_for_each before the gather",
    )


def not_at_workers(producer: str, operator: str, kind: str, on_envelopes: bool) -> PlanError:
    """An operator cannot run beside workers: it works on envelopes, or on objects of the driver."""
    problem = "which works on objects of the driver"
    if on_envelopes:
        problem = "which keeps items back or works on envelopes: at the workers an operator makes one item of one item"
    return PlanError(
        f"{operator!r} cannot run at the workers",
        where=f"operators {producer!r} and {operator!r}",
        received=f"{kind}, {problem}",
        fix="gather first, then use for_each",
    )


def items_used_twice(producer: str, described: str, first: str, second: str) -> PlanError:
    """Two operators want the items of one output."""
    return PlanError(
        f"the items of {producer!r} are used twice",
        where=f"operators {first!r} and {second!r}",
        received=f"{described}, as input of both",
        fix=f"use split(2, capacity) on {producer!r} and give each of them one branch",
    )


def used_twice(first: str, second: str, kind: str) -> PlanError:
    """One operator object stands at two places."""
    return PlanError(
        f"the operator object {first!r} is used twice",
        where=f"operators {first!r} and {second!r}",
        received=f"one {kind} object at two places",
        fix="make a second one, or split() the stream behind it",
    )


def no_metrics(operator: str, names: Sequence[str]) -> PlanError:
    """An operator reports metrics where nobody takes them."""
    return PlanError(
        "metrics are reported from operators behind a gather, in a plan that runs",
        where=f"operator {operator!r}",
        received=f"report({', '.join(names)})",
        fix="at the workers, let the item carry the numbers, and report them in for_each behind the gather",
    )


def item_lost(operator: str, described: str) -> CheckpointError:
    """An item that is kept by reference cannot be had for a checkpoint."""
    return CheckpointError(
        "an item that an operator keeps by reference is lost",
        where=f"operator {operator!r}",
        received=described,
        fix="let items that are kept for long come here: leave by_reference=True out of their gather",
    )


def check_workers(saved: int, here: int, operator: str) -> None:
    """Refuses the state of another number of workers.

    Raises:
        CheckpointError: If it is of more or fewer.
    """
    if saved != here:
        raise CheckpointError(
            "the checkpoint is of another number of workers",
            where=f"operator {operator!r}",
            received=f"the state of {saved} workers, for {here}",
            fix=f"go on with {saved} workers, or begin a new run",
        )


def check_names(name: str, operator: object, taken: Collection[str], base: type) -> None:
    """Checks that an operator, before it enters a plan, has set nothing that is the plan's.

    Raises:
        PlanError: If it has set an attribute that is taken, or that hides a method of the base class.
    """
    for key in vars(operator):
        if key in taken or inspect.isfunction(getattr(base, key, None)):
            raise PlanError(
                f"the attribute {key!r} of an operator is taken",
                where=f"operator {name!r}, class {type(operator).__name__}",
                received=f"self.{key} = ..., which every Operator has already",
                fix=f"give it another name, such as 'own_{key.lstrip('_')}'",
            )


def check_state(name: str, operator: object, state: Any) -> None:
    """Checks that an operator has all attributes that its ``state`` names.

    Raises:
        PlanError: If it lacks one, or ``state`` is a single string.
    """
    missing = [state] if isinstance(state, str) else [key for key in state if not hasattr(operator, key)]
    if missing:
        close = difflib.get_close_matches(missing[0], vars(operator), 1)
        meant = f"did you mean {close[0]!r}? " if close else ""
        raise PlanError(
            f"checkpoints cannot keep {missing[0]!r}: state is a tuple of names of attributes",
            where=f"operator {name!r}, class {type(operator).__name__}",
            received=f"state = {state!r}",
            fix=f'write state = ("{state}",)' if isinstance(state, str) else f"{meant}Set all of them in __init__",
        )
