"""What a checkpoint keeps of a plan that runs: counters, operators, and items on their way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rlweave.errors import CheckpointError
from rlweave.flow.codec import decode, encode
from rlweave.flow.context import Context
from rlweave.flow.engine import ActorLost
from rlweave.flow.operator import Operator
from rlweave.flow.plan_errors import check_workers, item_lost
from rlweave.flow.plan_graph import PlanGraph


def saved_plan(graph: PlanGraph, context: Context) -> dict[str, Any]:
    """Counters, weight versions, operators, and items on their way.

    Raises:
        CheckpointError: If an operator keeps items of a type that cannot be saved, or that are lost.
    """
    return {
        "counters": context.counters.state_dict(),
        **context.state_dict(),
        "channels": [channel.state_dict() for channel in context.channels()],
        "operators": {operator.name: _saved(operator, context) for operator in graph.nodes},
    }


def restore_plan(graph: PlanGraph, context: Context, state: Mapping[str, Any], plan: str) -> None:
    """Takes over what `saved_plan` gave; workers get the learners' weights.

    Args:
        graph: The operators.
        context: Of the plan.
        state: The state.
        plan: Name of the plan, for errors.

    Raises:
        CheckpointError: If it is of another plan, or of another number of workers.
    """
    saved, here = state["operators"], {operator.name for operator in graph.nodes}
    if saved.keys() != here or len(state["gather_lag"]) != len(context.channels()):
        raise CheckpointError(
            "the checkpoint is of another plan",
            where=f"plan {plan!r}",
            received=f"operators only in the checkpoint: {sorted(saved.keys() - here)}; "
            f"only in the plan: {sorted(here - saved.keys())}",
            fix="compose the plan as it was when the checkpoint was written",
        )
    context.counters.load_state_dict(state["counters"])
    context.load_state_dict(state)
    for operator in graph.nodes:
        _restore(operator, context, saved[operator.name])
    for channel in context.channels():
        channel.forget()
        channel.send_all()
        channel.repeat_messages()


def _saved(operator: Operator, context: Context) -> dict[str, Any]:
    """The state of an operator, or of its copies beside workers, with what every operator has."""
    saved: dict[str, Any] = {"timer": operator.timer.state_dict(), "ended": operator.ended}
    try:
        if operator.beside is None:
            saved.update(state=operator.state_dict(), flushed=encode(operator.flushed, operator.name))
        elif operator.keeps_state():  # nobody is asked for nothing
            saved["at_workers"] = _ask_copies(operator, context, "stage_state", lambda index: (operator.name,))
    except ActorLost as lost:
        raise item_lost(operator.name, str(lost)) from lost
    return saved


def _restore(operator: Operator, context: Context, saved: Mapping[str, Any]) -> None:
    """Takes over what `_saved` gave. The copy of a worker that was gone then begins anew."""
    operator.timer.load_state_dict(saved["timer"])
    operator.ended = bool(saved["ended"])
    if operator.beside is None:
        operator.load_state_dict(saved["state"])
        operator.flushed = decode(saved["flushed"])
    elif (states := saved.get("at_workers")) is not None:
        assert operator.beside.group is not None
        check_workers(len(states), len(operator.beside.group), operator.name)
        given = [None if state is None else (operator.name, state) for state in states]
        _ask_copies(operator, context, "load_stage_state", given.__getitem__)


def _ask_copies(
    operator: Operator, context: Context, method: str, arguments: Callable[[int], tuple[Any, ...] | None]
) -> list[Any]:
    source = operator.beside
    assert source is not None
    assert source.group is not None
    given = [arguments(index) for index in range(len(source.group))]
    return context.ask_living(source.group, method, given, operator.name, source.name)
