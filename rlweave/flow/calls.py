"""Waiting for several calls at once, for a bounded time: for what has nothing to run beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlweave.errors import PlanError
from rlweave.flow.clock import Clock
from rlweave.flow.engine import ActorLost, Call, Engine

ANSWER_SECONDS = 120.0
"""How long actors may take to be made, or to answer a question, all of them together."""


def wait_for_all(engine: Engine, clock: Clock, calls: Sequence[Call], seconds: float) -> list[Call]:
    """Waits until all calls are done, or the time is over.

    Returns:
        The calls that are not done.
    """
    waiting = list(calls)
    deadline = clock.now() + seconds
    while waiting:
        done = {id(call) for call in engine.wait(waiting, max(0.0, deadline - clock.now()))}
        if not done and clock.now() >= deadline:
            break
        waiting = [call for call in waiting if id(call) not in done]
    return waiting


def results_of(
    engine: Engine,
    clock: Clock,
    calls: Sequence[Call],
    whose: str,
    seconds: float = ANSWER_SECONDS,
    lost: bool = False,
) -> list[Any]:
    """The results of all calls, in order; raises what they raise.

    Args:
        engine: Where the actors live.
        clock: Where the time is read.
        calls: The calls.
        whose: Their actors, for the error.
        seconds: How long all of them may take together.
        lost: Whether None stands for the result of an actor that is lost, in place of an error.

    Raises:
        PlanError: If they take too long, as actors do that wait for resources which nobody gives back.
    """
    _wait_for_answers(engine, clock, calls, whose, seconds)
    return [_result(call, lost) for call in calls]


def answers_of(
    engine: Engine,
    clock: Clock,
    calls: Sequence[Call],
    operator: str,
    method: str,
    names: Sequence[str],
    lost: bool = False,
) -> list[Any]:
    """The answers of an operator's actors to a question, in order.

    Args:
        engine: Where the actors live.
        clock: Where the time is read.
        calls: The calls that ask them.
        operator: Name of the operator.
        method: What is called.
        names: Of the actors.
        lost: Whether None stands for the answer of an actor that is lost, in place of an error.

    Raises:
        PlanError: If one fails, naming operator and actor, with the original error as its cause; or if they take too
            long.
    """
    _wait_for_answers(engine, clock, calls, f"the actors of {operator!r}", ANSWER_SECONDS)
    answers = []
    for call, name in zip(calls, names, strict=True):
        try:
            answers.append(_result(call, lost))
        except Exception as error:
            said = (str(error).splitlines() or [""])[0]
            raise PlanError(
                f"operator {operator!r} failed: {type(error).__name__}: {said}",
                where=f"operator {operator!r}, {name}",
                received=f"{method}(), asked of it",
                fix="see its cause, the original error",
            ) from error
    return answers


def _wait_for_answers(engine: Engine, clock: Clock, calls: Sequence[Call], whose: str, seconds: float) -> None:
    waiting = wait_for_all(engine, clock, calls, seconds)
    if waiting:
        raise PlanError(
            f"{whose} do not answer",
            where=f"engine {engine.name!r}",
            received=f"{len(waiting)} of {len(calls)} answers missing after {seconds:g} seconds",
            fix="see whether others hold the cluster's resources, or whether making a worker hangs",
        )


def _result(call: Call, lost: bool) -> Any:
    try:
        return call.result()
    except ActorLost:
        if not lost:
            raise
        return None
