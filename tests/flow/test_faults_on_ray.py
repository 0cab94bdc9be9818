"""Faults of processes on Ray: what dies, hangs or raises is replaced in place; what was lost is counted."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from rlweave.flow import Envelope, LearnerActor, ParallelRollouts, ReportMetrics, Resources, TrainOneStep, WorkerGroup
from tests.flow.ray_workers import ProcessWorker, RestorableLearner

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.slow


@pytest.fixture
def plan(ray_engine: Any) -> Iterator[ReportMetrics]:
    """Two workers, and a learner in an actor whose state is kept after every fourth update."""
    workers = WorkerGroup([partial(ProcessWorker, n, pause=0.01) for n in range(2)], Resources(cpus=0.5))
    learner = LearnerActor(RestorableLearner, Resources(cpus=0.5), save_every=4)
    queued = ParallelRollouts(workers).on_error("replace", first_delay=0.05).gather_async().queue(4, "drop_oldest")
    train = queued.for_each(TrainOneStep(learner, workers)).on_error("replace", timeout=6.0, first_delay=0.05)
    with ReportMetrics(train, workers) as composed:
        yield composed.start(ray_engine)


def until(plan: ReportMetrics, reached: Any, seconds: float = 90.0) -> list[Any]:
    """Items until something holds."""
    found = []
    deadline = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < deadline, plan.counters
        item = plan.pull()
        if isinstance(item, Envelope):
            found.append(item.payload)
        else:
            plan.wait()
    return found


def updates_from(plan: ReportMetrics, more: int) -> Any:
    goal = plan.counters.updates + more
    return lambda: plan.counters.updates >= goal


@pytest.mark.parametrize("how", ["killed", "exits", "hangs", "raises"])
def test_a_learner_is_made_anew_in_place(plan: ReportMetrics, how: str) -> None:
    until(plan, updates_from(plan, 10))
    record = plan._context._learners[id(plan.graph.nodes[-2].trains)]  # type: ignore[union-attr,attr-defined]
    workers = {told["pid"] for told in plan.ask_workers("tell")}
    if how == "killed":
        ray.kill(record.actor.handle, no_restart=True)
    else:
        record.actor.handle.invoke.remote("break_down", how)
    before = plan.counters.updates
    until(plan, lambda: plan.counters.replacements)
    stats = until(plan, updates_from(plan, 10))
    counters = plan.counters
    assert counters.failures == counters.replacements == {"train_one_step": 1}, "no worker is blamed"
    items = {0, 1} if how == "killed" else {1}  # it may have been killed while it had nothing to do
    assert counters.lost_items.get("train_one_step", 0) in items, "the item that it failed on"
    lost = counters.lost_updates.get("train_one_step", 0)
    made = int(stats[-1].metrics["updates"])
    assert made == stats[-1].version - 1 - lost, "what it has, what was lost, and the version of being made anew"
    assert made == counters.updates - lost, "every update is counted"
    assert lost <= 8, "those since the last snapshot, or since the one before if that was not there yet"
    assert {told["pid"] for told in plan.ask_workers("tell")} == workers, "the workers are the same"
    versions = [each.version for each in stats]
    assert versions == sorted(set(versions))
    until(plan, lambda: min(told["version"] for told in plan.ask_workers("tell")) >= before - lost)
    assert plan.report().measures["train_one_step/recovery_seconds"] > 0
    assert os.getpid() not in workers


def test_an_actor_that_hangs_takes_nobody_along(ray_engine: Any) -> None:
    """One worker hangs at its third item: the other one's items go on, and a new one comes within the time-out."""
    makers = [partial(ProcessWorker, 0, pause=0.01), partial(ProcessWorker, 1, fails={2: "hang"})]
    workers = WorkerGroup(makers, Resources(cpus=0.5))
    rollouts = ParallelRollouts(workers).on_error("replace", timeout=3.0, first_delay=0.05)
    with ReportMetrics(rollouts.gather_async(), workers) as plan:
        plan.start(ray_engine)
        batches = until(plan, lambda: plan.counters.replacements)
        of_other = sum(int(batch["worker"][0]) == 0 for batch in batches)
        assert of_other >= 5, "it went on while the hanging one was waited for; else there would be two"
        items = until(plan, lambda: any(told["replaces"] for told in plan.ask_workers("tell")))
        items += until(plan, lambda: plan.counters.items >= len(batches) + len(items) + 20)
        assert plan.counters.lost_items == {"parallel_rollouts": 1}
        assert plan.counters.env_steps_sampled == 4 * plan.report().operator_items["parallel_rollouts"]
