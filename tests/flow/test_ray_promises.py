"""More promises of plans on Ray: idling is free, finite streams are flushed, ratios hold, messages are bounded."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rlweave.flow import (
    NOT_READY,
    LearnerActor,
    ParallelRollouts,
    Replay,
    ReportMetrics,
    Resources,
    StoreToBuffer,
    TrainOneStep,
    Union,
    WorkerGroup,
)
from tests.flow.fakes import FakeLearner, FakeMemory
from tests.flow.ray_workers import CountingLearner, Gate, ProcessWorker

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.slow

Start = Callable[[ReportMetrics], ReportMetrics]


@pytest.fixture
def start(ray_engine: Any) -> Iterator[Start]:
    """Starts a plan on Ray; all that were started are closed at the end."""
    plans: list[ReportMetrics] = []

    def on_ray(plan: ReportMetrics) -> ReportMetrics:
        plans.append(plan)
        return plan.start(ray_engine)

    yield on_ray
    for plan in plans:
        plan.close()


def group(*workers: dict[str, Any], cpus: float = 0.5) -> WorkerGroup:
    factories = [partial(ProcessWorker, number, **settings) for number, settings in enumerate(workers)]
    return WorkerGroup(factories, Resources(cpus=cpus))


def processes_below(root: int) -> dict[int, float]:
    """Seconds of processor time of a process and of all that it began, directly or not, by process id."""
    parents: dict[int, int] = {}
    seconds: dict[int, float] = {}
    for directory in Path("/proc").iterdir():
        if not directory.name.isdigit():
            continue
        try:
            fields = (directory / "stat").read_text().rsplit(")", 1)[1].split()
        except OSError:  # it has ended meanwhile
            continue
        parents[int(directory.name)] = int(fields[1])
        seconds[int(directory.name)] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    found = {root}
    while more := {process for process, parent in parents.items() if parent in found} - found:
        found |= more
    return {process: seconds[process] for process in found if process in seconds}


def share_of_a_core(wait: Callable[[], None]) -> float:
    """Processor time of this process, its actors and its cluster while it waits, as a share of one core."""
    before, began = processes_below(os.getpid()), time.perf_counter()
    wait()
    after = processes_below(os.getpid())
    return sum(after[process] - before[process] for process in after.keys() & before.keys()) / (
        time.perf_counter() - began
    )


@pytest.mark.skipif(sys.platform != "linux", reason="reads processor times from /proc")
def test_an_idle_plan_costs_less_than_2_percent_of_a_core_more_than_its_idle_actors(start: Start) -> None:
    workers = group({"fails": {0: "hang"}}, {"fails": {0: "hang"}})
    plan = start(ReportMetrics(ParallelRollouts(workers).gather_async(), workers))
    assert plan.step() is NOT_READY
    seconds = 1.5

    def wait_in_plan() -> None:
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            assert plan.step() is NOT_READY
            plan.wait()

    wait_in_plan()  # the first second of a cluster is a busy one
    more = [share_of_a_core(wait_in_plan) - share_of_a_core(lambda: time.sleep(seconds)) for _ in range(3)]
    # what else runs on the machine can only add to it; a plan that spins takes 7.9 % in each of the three
    assert min(more) < 0.02, more


def test_the_end_of_finite_workers_flushes_every_buffer(start: Start) -> None:
    workers = group({"items": 5}, {"items": 3}, cpus=0.25)
    learner = LearnerActor(CountingLearner, Resources(cpus=0.25))
    left, right = ParallelRollouts(workers, fragments=2).gather_async(2).split(2, capacity=2)
    train = left.concat(min_steps=9).queue(2).for_each(TrainOneStep(learner, workers))
    lists = right.batch(3).queue(1).flatten()
    plan = start(ReportMetrics(Union(train, lists), workers))
    made: dict[str, int] = {"trained": 0, "flattened": 0}
    for item in plan.items():
        steps = item.payload.num_steps
        made["trained" if item.source.startswith("concat") else "flattened"] += steps
    assert made == {"trained": 8 * 4, "flattened": 8 * 4}
    assert plan.counters.trained_samples == plan.counters.env_steps_sampled == 8 * 4
    assert plan.ended


def test_the_replay_ratio_holds_to_one_percent(start: Start) -> None:
    workers, memory, learner = group({}, {"pause": 0.002}), FakeMemory(batch_size=32), FakeLearner()
    learner.keep = False
    store = ParallelRollouts(workers, fragments=4).gather_async().for_each(StoreToBuffer(memory))
    train = Replay(memory).for_each(TrainOneStep(learner, workers))
    plan = start(ReportMetrics(Union(store, train.rate_limit(8.0, min_size=100)), workers))
    for _ in plan.run(until=lambda counters: counters.env_steps_sampled >= 2500, every_steps=500):
        pass
    counters = plan.counters
    assert counters.trained_samples / (counters.env_steps_sampled - 100) == pytest.approx(8.0, rel=0.01)


def test_messages_to_a_busy_worker_are_bounded(start: Start, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    gate = Gate(tmp_path / "gate")
    request.addfinalizer(gate.close)
    workers = group({}, {"gate": gate.path})
    stream = ParallelRollouts(workers).gather_async()
    told = stream.notify(workers, "greet", message=lambda batch: int(batch["made"][0]), capacity=2)
    plan = start(ReportMetrics(told, workers))
    channel = plan._context.channels()[0]  # type: ignore[union-attr]
    fast = 0
    for item in plan.items():
        if item.source.endswith("/1"):
            break
        fast += 1
        if fast == 12:
            gate.let(1)
        assert all(len(outbox.under_way) <= 2 and len(outbox.waiting) <= 2 for outbox in channel._outboxes)
    assert fast > 10
    assert plan.counters.drops["notify"] >= fast - 2 - 2 - 1
    channel.send_all()
    heard = [[message for message, _ in told["messages"]] for told in plan.ask_workers("tell")]
    assert heard[1][:2] == [0, 1]
    assert heard[0][-1] == heard[1][-1]
