"""A replay memory in shards that are processes of Ray."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from rlweave.flow import (
    ParallelReplay,
    ParallelRollouts,
    ReplayShards,
    ReportMetrics,
    StoreToBuffer,
    TrainOneStep,
    Union,
    UpdatePriorities,
    UpdateWeights,
    WorkerGroup,
)
from tests.flow.fake_shards import BATCH, FakeShard, Prioritizing
from tests.flow.ray_workers import ProcessWorker

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.slow

RATIO, MINIMUM = 4.0, 40


class ProcessShard(FakeShard):
    """Tells what it knows."""

    def tell(self) -> dict[str, Any]:
        values = {value for _, given in self.priorities for value in given}
        told = {"pid": os.getpid(), "steps": self.steps, "samples": self.samples}
        return {**told, "priorities": len(self.priorities), "values": values, "replaces": self.replaces}


class Plan:
    """Ape-X over two workers and two shards on Ray."""

    def __init__(self, engine: Any, by_reference: bool) -> None:
        self.workers = WorkerGroup([partial(ProcessWorker, number) for number in range(2)])
        self.shards = ReplayShards([partial(ProcessShard, number) for number in range(2)], BATCH)
        self.learner = Prioritizing()
        self.learner.keep = False
        items = ParallelRollouts(self.workers).gather_async(by_reference=by_reference)
        store = items.for_each(StoreToBuffer(self.shards))
        store = store.for_each(UpdateWeights(self.learner, self.workers, every_steps=20))
        samples = ParallelReplay(self.shards, MINIMUM).on_error("replace", first_delay=0.01).gather_async(2)
        train = samples.for_each(TrainOneStep(self.learner)).for_each(UpdatePriorities(self.shards))
        limited = train.rate_limit(RATIO, MINIMUM)
        self.plan = ReportMetrics(Union(store, limited), self.workers).start(engine)

    def run(self, steps: int) -> None:
        for _ in self.plan.run(until=lambda counters: counters.env_steps_sampled >= steps, every_steps=1 << 60):
            pass

    def run_until_replaced_shard_is_used(self, seconds: float = 60.0) -> None:
        """How many steps that takes depends on how long a process takes to begin."""
        deadline, used = time.monotonic() + seconds, None
        while used is None or self.learner.trained_on.count(0) < used + 10:
            assert time.monotonic() < deadline
            self.run(self.plan.counters.env_steps_sampled + 100)
            if used is None and self.plan.report().replacements:
                used = self.learner.trained_on.count(0)

    def actors(self) -> list[Any]:
        assert self.plan._context is not None
        return self.plan._context.actors(self.shards)

    def told(self) -> list[dict[str, Any]]:
        """What each shard tells, when all that was sent to it is there."""
        self.plan.drain()
        assert self.plan._context is not None
        engine = self.plan._context.engine
        calls = [engine.call(actor, "ask", "tell") for actor in self.actors()]
        for call in calls:
            engine.wait([call], 60.0)
        return [call.result() for call in calls]


@pytest.fixture(
    params=[pytest.param(False, id="by value", marks=pytest.mark.thorough), pytest.param(True, id="by reference")]
)
def replay(ray_engine: Any, request: pytest.FixtureRequest) -> Iterator[Plan]:
    plan = Plan(ray_engine, request.param)
    yield plan
    plan.plan.close()


def test_the_replay_ratio_holds_and_priorities_find_their_shard(replay: Plan) -> None:
    replay.run(1500)
    counters = replay.plan.counters
    assert counters.trained_samples / (counters.env_steps_sampled - MINIMUM) == pytest.approx(RATIO, rel=0.01)
    told = replay.told()
    assert len({shard["pid"] for shard in told} | {os.getpid()}) == 3
    assert abs(told[0]["steps"] - told[1]["steps"]) <= 4
    for number, shard in enumerate(told):
        assert shard["values"] == {number + 0.25}
        assert shard["priorities"] == replay.learner.trained_on.count(number) > 100
        assert shard["samples"] - shard["priorities"] <= 2
    state = replay.plan.state_dict()["operators"]["parallel_replay"]["state"]["record"]["shards"]
    assert [state[str(number)]["samples"] for number in range(2)] == [shard["samples"] for shard in told]


def test_a_killed_shard_is_replaced_in_place_and_what_was_lost_is_counted(replay: Plan) -> None:
    replay.run(400)
    before = replay.told()
    trained = replay.plan.counters.trained_samples
    ray.kill(replay.actors()[0].handle)
    replay.run_until_replaced_shard_is_used()
    report, told = replay.plan.report(), replay.told()
    assert report.replacements == {"parallel_replay": 1}
    assert told[0]["replaces"] == 1
    assert told[0]["pid"] != before[0]["pid"]
    assert told[1]["pid"] == before[1]["pid"]
    lost = report.measures["parallel_replay/lost_steps"]
    assert before[0]["steps"] <= lost <= before[0]["steps"] + 200
    assert lost + told[0]["steps"] + told[1]["steps"] == report.env_steps_sampled, "not a step more"
    assert report.lost_items["parallel_replay"] <= 2, "what was asked of it"
    assert told[0]["values"] == {0.25}
    assert told[1]["priorities"] > before[1]["priorities"]
    assert report.trained_samples > trained
    assert report.trained_samples / (report.env_steps_sampled - MINIMUM) == pytest.approx(RATIO, rel=0.02)
