"""How a plan starts: resources are summed and compared, then actors are made and get their first weights."""

from __future__ import annotations

from collections.abc import Mapping

from rlweave.flow.clock import Clock
from rlweave.flow.context import Context
from rlweave.flow.counters import Counters
from rlweave.flow.engine import Engine
from rlweave.flow.plan_graph import PlanGraph
from rlweave.flow.resources import Resources, alike, check_capacity, described, total


def running_context(graph: PlanGraph, engine: Engine, clock: Clock, counters: Counters, plan: str) -> Context:
    """Makes the actors of a plan, and gives them the learners' weights.

    Args:
        graph: The operators.
        engine: Where actors live.
        clock: Where the time is read.
        counters: The plan's counters.
        plan: Its name, for errors.

    Raises:
        PlanError: If the plan needs more than the engine has, or an actor cannot be made. Then no actor is left.
    """
    _check_needs(graph.needs_by_operator(), engine.capacity(), plan)
    if engine.in_process:  # plans that are workers here may have actors elsewhere
        for group in graph.groups():
            inner = [("plans in it", *need) for need in alike(group.inner_needs())]
            _check_needs(inner, group.inner_capacity(), plan)
    context = Context(engine, clock, counters)
    context.only_source = graph.has_only_one_source()
    try:
        for node in graph.nodes:
            node.prepare(context)
        for node in graph.nodes:
            node.open(context)
        for channel in context.channels():
            channel.send_all()
    except BaseException:
        context.kill_actors()
        raise
    return context


def _check_needs(needs: list[tuple[str, int, Resources]], capacity: Mapping[str, float] | None, plan: str) -> None:
    parts = " and ".join(
        f"{number} x ({described(resources.amounts())}) of {name!r}" for name, number, resources in needs
    )
    check_capacity(total([(number, resources) for _, number, resources in needs]), capacity, parts, plan)
