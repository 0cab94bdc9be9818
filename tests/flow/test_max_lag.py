"""``max_lag`` bounds what a learner trains on, wherever items age on their way from the gather."""

from __future__ import annotations

import random
from functools import partial
from itertools import islice
from typing import Any

import pytest

from rlweave.flow import (
    FakeClock,
    LearnerActor,
    LocalEngine,
    ParallelRollouts,
    ReportMetrics,
    Stream,
    TrainOneStep,
    Union,
    WorkerGroup,
)
from tests.flow.conftest import Start
from tests.flow.fake_cluster import SimulatedCluster
from tests.flow.fakes import FakeLearner, FakeWorker, SimulatedEngine


def group(n: int) -> WorkerGroup:
    return WorkerGroup([partial(FakeWorker, number) for number in range(n)])


def bounded_by(report: Any, max_lag: int) -> bool:
    return max(report.gather_lag) <= max_lag and max(report.train_lag) <= max_lag


def test_items_that_age_in_the_queue_of_a_learner_in_an_actor() -> None:
    """IMPALA's plan: two rollouts ahead, a queue, and a learner that takes longer than a rollout."""
    clock, workers = FakeClock(), group(2)
    seconds = {"update": 1.0, "next_items": 0.6}
    cluster = SimulatedCluster(clock, lambda actor, method: seconds.get(method, 0.0))

    def run(max_lag: int | None) -> Any:
        items = ParallelRollouts(workers).gather_async(num_async=2, max_lag=max_lag)
        queued = items.concat(4).queue(4)
        train = queued.for_each(TrainOneStep(LearnerActor(FakeLearner), workers))
        plan = ReportMetrics(train, workers).start(cluster, clock)
        assert len(list(islice(plan.items(), 40))) == 40
        return plan.report()

    assert max(run(None).train_lag) > 3
    report = run(1)
    assert bounded_by(report, 1)
    assert sum(report.train_lag.values()) == report.updates == 40, "items that were dropped were not trained on"
    dropped = report.drops["train_one_step"]
    assert dropped > 0
    gathered = sum(report.gather_lag.values())
    assert gathered + report.drops.get("gather_async", 0) == report.env_steps_sampled // 4
    assert 0 <= gathered - report.updates - dropped <= 4 + 1, "the rest is in the queue"


def test_a_learner_whose_weights_are_published_seldom_still_gets_items_to_train_on(start: Start) -> None:
    workers = group(2)
    queued = ParallelRollouts(workers).gather_async(max_lag=1).queue(2)
    plan = start(ReportMetrics(queued.for_each(TrainOneStep(FakeLearner(), workers, publish_every=50)), workers))
    assert len(list(islice(plan.items(), 30))) == 30
    report = plan.report()
    assert bounded_by(report, 1)
    assert sum(report.drops.values()) > 0


def random_way(rng: random.Random, stream: Stream) -> Stream:
    """Random operators that let items age."""
    for _ in range(rng.randrange(4)):
        way = rng.choice(["queue", "batch", "concat", "split", "parts"])
        if way == "queue":
            stream = stream.queue(rng.randrange(1, 5), rng.choice(["block", "drop_oldest", "drop_newest"]))
        elif way == "batch":
            stream = stream.batch(rng.randrange(1, 4)).flatten()
        elif way == "concat":
            stream = stream.concat(rng.randrange(1, 13))
        elif way == "parts":
            stream = stream.for_each(lambda batch: [batch] * 2).flatten()
        else:
            left, right = stream.split(2, rng.randrange(1, 4))
            stream = Union(left, right, weights=[rng.choice([0.5, 1, 3]), 1])
    return stream


@pytest.mark.parametrize("seed", range(24))
def test_whatever_lies_between_gather_and_learner_the_bound_holds_and_learning_goes_on(seed: int) -> None:
    rng = random.Random(seed)
    clock, workers, max_lag = FakeClock(), group(rng.randrange(1, 4)), rng.randrange(3)
    when_old: Any = rng.choice(["drop", "wait"])
    gathered = ParallelRollouts(workers, fragments=rng.randrange(1, 3)).gather_async(
        rng.randrange(1, 4), max_lag, when_old
    )
    learners: list[Any] = [rng.choice([FakeLearner(), LearnerActor(FakeLearner)])]
    stream = random_way(rng, gathered)
    publish_every = rng.choice([1, 1, 4])
    trained = stream.for_each(TrainOneStep(learners[0], workers, publish_every))
    durations = {method: rng.uniform(0.1, 2.0) for method in ("next_items", "update")}
    engine: Any = rng.choice(
        [
            LocalEngine(),
            SimulatedEngine(clock, lambda index: durations["next_items"] * (1 + index)),
            SimulatedCluster(clock, lambda actor, method: durations.get(method, 0.0)),
        ]
    )
    plan = ReportMetrics(trained, workers).start(engine, clock)
    assert len(list(islice(plan.items(), 40))) == 40
    report = plan.report()
    assert bounded_by(report, max_lag), (report.gather_lag, report.train_lag)
    assert sum(report.train_lag.values()) == report.updates == 40


def test_each_learner_has_the_bound_for_its_own_updates() -> None:
    workers, often, seldom = group(2), FakeLearner(), FakeLearner()
    left, right = ParallelRollouts(workers).gather_async(max_lag=2).split(2, capacity=4)
    one = left.for_each(TrainOneStep(often, workers)).named("often")
    other = right.batch(2).flatten().queue(3).for_each(TrainOneStep(seldom, workers)).named("seldom")
    plan = ReportMetrics(Union(one, other, weights=[3, 1]), workers)
    list(islice(plan.items(), 60))
    lags = plan.report().train_lags
    assert max(lags["often"]) <= 2
    assert max(lags["seldom"]) <= 2
