"""Start, report, checkpoint and resume of a plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlweave.errors import CheckpointError
from rlweave.flow.codec import decode, encode
from rlweave.flow.context import Context
from rlweave.flow.counters import Counters
from rlweave.flow.engine import ActorLost, Clock, Engine
from rlweave.flow.operator import Operator
from rlweave.flow.plan_errors import check_workers, item_lost
from rlweave.flow.plan_graph import PlanGraph
from rlweave.flow.protocols import Episode
from rlweave.flow.reports import EpisodeWindow, Report
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
        PlanError: If the plan needs more than the engine has, or an actor cannot be made; no actor is left then.
    """
    _check_needs(graph.needs_by_operator(), engine.capacity(), plan)
    if engine.in_process:  # inner plans may have actors on another engine
        for group in graph.groups():
            inner = [("plans in it", *need) for need in alike(group.inner_needs())]
            _check_needs(inner, group.inner_capacity(), plan)
    context = Context(engine, clock, counters, graph.has_only_one_source())
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


def report_of(
    context: Context,
    nodes: Sequence[Operator],
    window: EpisodeWindow,
    episodes: Sequence[Episode],
    seconds: float,
    env_steps_per_second: float,
) -> Report:
    """A report on a plan; means of metrics start again.

    Args:
        context: The context of its operators.
        nodes: All operators.
        window: The last episodes.
        episodes: Episodes since the last report, which are in the window already.
        seconds: Time that the plan has been running.
        env_steps_per_second: Since the last report.
    """
    counters = context.counters
    gather_lag: dict[int, int] = {}
    for channel in context.channels():
        for lag, count in channel.gather_lag.counts.items():
            gather_lag[lag] = gather_lag.get(lag, 0) + count
    return Report(
        seconds=seconds,
        env_steps_sampled=counters.env_steps_sampled,
        trained_samples=counters.trained_samples,
        gradient_steps=counters.gradient_steps,
        updates=counters.updates,
        replay_ratio=counters.replay_ratio,
        env_steps_per_second=env_steps_per_second,
        episodes=tuple(episodes),
        episodes_finished=window.finished,
        episode_return=window.mean_return,
        episode_length=window.mean_length,
        infos=window.mean_infos(),
        policy_returns=window.returns_by_policy(),
        metrics=context.metrics.take(),
        gather_lag=gather_lag,
        train_lag=dict(context.train_lag.counts),
        train_lags={name: dict(lag.counts) for name, lag in context.train_lags.items()},
        drops=dict(counters.drops),
        failures=dict(counters.failures),
        replacements=dict(counters.replacements),
        lost_items=dict(counters.lost_items),
        lost_updates=dict(counters.lost_updates),
        measures={f"{node.name}/{name}": value for node in nodes for name, value in node.measures().items()},
        operator_seconds={node.name: node.timer.seconds for node in nodes},
        operator_items={node.name: node.timer.items for node in nodes},
    )


def saved_plan(graph: PlanGraph, context: Context) -> dict[str, Any]:
    """Counters, weight versions, states of operators, and items in flight.

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
    """The state of an operator, or of its copies beside workers, with name, timer and other common state."""
    state: dict[str, Any] = {}
    try:
        if operator.beside is None:
            state = operator.state_dict()
        elif operator.keeps_state():  # no request without need
            state["at_workers"] = _ask_copies(operator, context, "stage_state", lambda index: (operator.name,))
        flushed = encode(operator.flushed, operator.name)
    except ActorLost as lost:
        raise item_lost(operator.name, str(lost)) from lost
    return {"timer": operator.timer.state_dict(), "ended": operator.ended, "state": state, "flushed": flushed}


def _restore(operator: Operator, context: Context, saved: Mapping[str, Any]) -> None:
    """Takes over what `_saved` gave. The copy of a worker that was lost then starts from its initial state."""
    operator.timer.load_state_dict(saved["timer"])
    operator.ended = bool(saved["ended"])
    operator.flushed = decode(saved["flushed"])
    if operator.beside is None:
        operator.load_state_dict(saved["state"])
    elif (states := saved["state"].get("at_workers")) is not None:
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
