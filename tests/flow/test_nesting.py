"""A plan can be an actor in another plan: on every engine, with actors of its own, and resources that are summed."""

from __future__ import annotations

import os
import time
from functools import partial
from itertools import islice
from typing import Any

import pytest

from rlweave.errors import PlanError
from rlweave.flow import (
    FakeClock,
    LocalEngine,
    NestedPlan,
    ParallelRollouts,
    PlanItem,
    ReportMetrics,
    Resources,
    TrainOneStep,
    WorkerGroup,
)
from rlweave.flow.codec import decode, encode
from tests.flow.conftest import Start
from tests.flow.fakes import FakeLearner, FakeWorker, SimulatedEngine
from tests.flow.ray_workers import CountingLearner, ProcessWorker


def compose_small(items: int | None = None) -> ReportMetrics:
    """Two workers with batches of 4 steps, trained on one by one."""
    workers = [FakeWorker(number, items=items) for number in range(2)]
    return ReportMetrics(
        ParallelRollouts(workers).gather_async().for_each(TrainOneStep(FakeLearner(), workers)), workers
    )


def compose_group(number: int, cpus: float, pause: float = 0.0) -> ReportMetrics:
    """Workers in processes of their own."""
    makers = [partial(ProcessWorker, 10 * number + inner, pause=pause) for inner in range(2)]
    workers = WorkerGroup(makers, Resources(cpus=cpus))
    return ReportMetrics(
        ParallelRollouts(workers).gather_async().for_each(TrainOneStep(CountingLearner(), workers)), workers
    )


def test_a_plan_is_a_worker_of_another(start: Start) -> None:
    trials = WorkerGroup([NestedPlan(compose_small, steps=10) for _ in range(3)])
    plan = start(ReportMetrics(ParallelRollouts(trials).gather_sync(), trials))
    items = list(islice(plan.items(), 6))
    assert [item.source[-1] for item in items] == ["0", "1", "2"] * 2
    for item in items:
        assert isinstance(item.payload, PlanItem)
        assert item.payload.num_steps == 12, "three batches of 4 are the first that are 10 steps"
    assert [item.payload.report["env_steps_sampled"] for item in items] == [12] * 3 + [24] * 3
    assert [item.payload.report["updates"] for item in items] == [3] * 3 + [6] * 3
    assert plan.counters.env_steps_sampled == 6 * 12
    assert plan.report().episodes_finished >= 6 * 3, "episodes of the inner plans come along"


def test_the_end_of_an_inner_plan_is_the_end_of_its_items(start: Start) -> None:
    trials = WorkerGroup([NestedPlan(partial(compose_small, items), steps=8) for items in (1, 3)])
    plan = start(ReportMetrics(ParallelRollouts(trials).gather_async(), trials))
    steps = {"0": 0, "1": 0}
    for item in plan.items():
        steps[item.source[-1]] += item.payload.num_steps
    assert steps == {"0": 2 * 1 * 4, "1": 2 * 3 * 4}, "two workers each, and no step is lost"


def test_closing_the_outer_plan_closes_the_inner_ones() -> None:
    made: list[FakeWorker] = []

    def compose() -> ReportMetrics:
        def make() -> FakeWorker:
            made.append(FakeWorker())
            return made[-1]

        workers = WorkerGroup([make])
        return ReportMetrics(ParallelRollouts(workers).gather_sync(), workers)

    trials = WorkerGroup([NestedPlan(compose, steps=4) for _ in range(2)])
    with ReportMetrics(ParallelRollouts(trials).gather_sync(), trials) as plan:
        list(islice(plan.items(), 4))
        assert [worker.closed for worker in made] == [False, False]
    assert [worker.closed for worker in made] == [True, True]


def test_weights_of_the_outer_plan_reach_the_inner_one() -> None:
    got: list[tuple[int, int]] = []
    trials = WorkerGroup(
        [NestedPlan(compose_small, 4, on_weights=lambda w, version: got.append((int(w["w"]), version)))]
    )
    stream = ParallelRollouts(trials).gather_sync().for_each(TrainOneStep(FakeLearner(), trials))
    list(islice(ReportMetrics(stream, trials).items(), 3))
    assert got == [(0, 0), (1, 1), (2, 2)]


def test_resources_of_inner_plans_are_summed_and_refused_before_anything_is_made() -> None:
    clock = FakeClock()
    engine = SimulatedEngine(clock)
    engine.resources = {"CPU": 4.0}
    inner = [NestedPlan(partial(compose_group, number, 1.5), 8, lambda: engine) for number in range(2)]
    trials = WorkerGroup(inner)
    assert trials.resources == Resources(cpus=0.0), "who only drives others takes no core"
    plan = ReportMetrics(ParallelRollouts(trials).gather_sync(), trials)
    with pytest.raises(PlanError, match="the plan needs more resources than the engine has") as caught:
        plan.start(engine, clock)
    parts = "2 x (0 CPU, 0 GPU) of 'parallel_rollouts' and 4 x (1.5 CPU, 0 GPU) of 'plans in parallel_rollouts'"
    assert f"{parts} need 6 CPU in all; there is 4 CPU" in str(caught.value)
    assert engine.made == 0
    nested_twice = WorkerGroup([NestedPlan(lambda: plan_of(inner), 8, lambda: engine)])
    with pytest.raises(PlanError, match="need 6 CPU in all"):
        ReportMetrics(ParallelRollouts(nested_twice).gather_sync(), nested_twice).start(engine, clock)


def plan_of(inner: list[NestedPlan]) -> ReportMetrics:
    trials = WorkerGroup(inner)
    return ReportMetrics(ParallelRollouts(trials).gather_sync(), trials)


def test_plans_driven_from_this_process_are_summed_as_well() -> None:
    elsewhere = SimulatedEngine(FakeClock())
    elsewhere.resources = {"CPU": 2.0}
    trials = WorkerGroup([NestedPlan(partial(compose_group, n, 1.0), 8, lambda: elsewhere) for n in range(2)])
    with pytest.raises(PlanError, match="4 CPU in all; there is 2 CPU"):
        ReportMetrics(ParallelRollouts(trials).gather_sync(), trials).start(LocalEngine())


def test_an_item_goes_through_a_checkpoint() -> None:
    item = PlanItem(7, {"a": 1.5}, {"state": {"__kind__": "left alone", "x": [1, None]}})
    assert decode(encode(item, "gather_sync")) == item


# -- on Ray -----------------------------------------------------------------------------------------------------------


def ray_engine_here() -> Any:
    """The cluster that the process is part of."""
    from rlweave.flow.ray_engine import RayEngine

    return RayEngine()


def inner_pids(plan: ReportMetrics) -> list[int]:
    return [pid for told in plan.ask_workers("inner_pids") for pid in told]


class Tells(NestedPlan):
    """Makes workers that tell in which processes their inner plan's workers live."""

    def __call__(self) -> Any:
        worker = super().__call__()
        worker.inner_pids = lambda: [told["pid"] for told in worker.plan.ask_workers("tell")]  # type: ignore[attr-defined]
        return worker


@pytest.mark.slow
@pytest.mark.parametrize("outer", ["local", "ray"])
def test_inner_plans_have_workers_of_their_own_on_ray(ray_engine: Any, outer: str) -> None:
    """Two trials with two workers of half a core each fill two cores, and drivers take nothing."""
    pytest.importorskip("ray")
    inner = [Tells(partial(compose_group, number, 0.5), 16, ray_engine_here) for number in range(2)]
    trials = WorkerGroup(inner)
    with ReportMetrics(ParallelRollouts(trials).gather_sync(), trials) as plan:
        plan.start(ray_engine if outer == "ray" else LocalEngine())
        items = list(islice(plan.items(), 6))
        assert {item.source[-1] for item in items} == {"0", "1"}
        assert all(item.payload.num_steps == 16 for item in items)
        pids = inner_pids(plan)
        assert len(set(pids) | {os.getpid()}) == 5, "each worker has a process"
    deadline = time.monotonic() + 10
    while (left := [pid for pid in pids if os.path.exists(f"/proc/{pid}")]) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left, "ending the outer plan ends the workers of the inner ones"


@pytest.mark.slow
def test_workers_of_a_plan_whose_driver_is_killed_do_not_stay(ray_engine: Any) -> None:
    ray = pytest.importorskip("ray")
    trials = WorkerGroup([Tells(partial(compose_group, 0, 0.5, 0.01), 16, ray_engine_here)])
    rollouts = ParallelRollouts(trials).on_error("replace", first_delay=0.05)
    with ReportMetrics(rollouts.gather_async(), trials) as plan:
        plan.start(ray_engine)
        stream = plan.items()
        next(stream)
        before = inner_pids(plan)
        ray.kill(plan._context.actors(trials)[0].handle, no_restart=True)  # type: ignore[union-attr]
        while plan.counters.replacements != {"parallel_rollouts": 1}:
            next(stream)
        next(stream)
        assert set(inner_pids(plan)).isdisjoint(before)
        deadline = time.monotonic() + 10
        while any(os.path.exists(f"/proc/{pid}") for pid in before) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not any(os.path.exists(f"/proc/{pid}") for pid in before)


@pytest.mark.slow
def test_trials_that_would_wait_for_each_other_are_refused(ray_engine: Any) -> None:
    pytest.importorskip("ray")
    trials = WorkerGroup([NestedPlan(partial(compose_group, n, 1.0), 16, ray_engine_here) for n in range(2)])
    with pytest.raises(PlanError, match=r"4 CPU in all; there is 2 CPU"):
        ReportMetrics(ParallelRollouts(trials).gather_async(), trials).start(ray_engine)
