"""The replay ratio is what `rate_limit` says."""

from itertools import pairwise
from typing import Any

import pytest

from rlweave.flow import (
    END,
    Envelope,
    FakeClock,
    ParallelRollouts,
    Replay,
    ReportMetrics,
    StoreToBuffer,
    TrainOneStep,
    Union,
)
from tests.flow.conftest import Start
from tests.flow.fakes import FakeLearner, FakeMemory, FakeWorker, SimulatedEngine, workers


def dqn(
    group: list[FakeWorker], learner: FakeLearner, memory: FakeMemory, ratio: float, min_size: int, **options: Any
) -> ReportMetrics:
    weights = options.pop("weights", None)
    learner.keep = False
    store = ParallelRollouts(group).gather_async().for_each(StoreToBuffer(memory))
    train = Replay(memory).for_each(TrainOneStep(learner, group))
    return ReportMetrics(Union(store, train.rate_limit(ratio, min_size, **options), weights=weights), group)


@pytest.mark.parametrize("ratio", [0.25, 1.0, 8.0])
@pytest.mark.parametrize(("n", "steps"), [(1, 1), (3, 4), (2, 50)])
@pytest.mark.parametrize("weights", [None, [1, 7], [7, 1]])
def test_trained_samples_per_step_hold_to_one_percent(
    start: Start, ratio: float, n: int, steps: int, weights: list[int] | None
) -> None:
    memory = FakeMemory(batch_size=8)
    plan = start(dqn(workers(n, steps), FakeLearner(), memory, ratio, min_size=100, weights=weights))
    goal = 100 + int(110 * (8 / ratio + steps))  # 1 % of this is more than one batch and one fragment
    for _ in plan.run(until=lambda counters: counters.env_steps_sampled >= goal, every_steps=goal):
        pass
    assert plan.counters.trained_samples / (memory.stored - 100) == pytest.approx(ratio, rel=0.01)
    assert plan.report().flat()["rate_limit/samples_per_insert"] == pytest.approx(ratio, rel=0.01)


def test_training_begins_after_min_size_and_then_every_fourth_step() -> None:
    memory, learner = FakeMemory(batch_size=32), FakeLearner()
    plan = dqn(workers(1, steps=1), learner, memory, ratio=8.0, min_size=100)
    trained_at = []
    while plan.counters.env_steps_sampled < 130:
        before = learner.updates
        plan.step()
        if learner.updates > before:
            trained_at.append(plan.counters.env_steps_sampled)
    assert trained_at[0] == 104
    assert {second - first for first, second in pairwise(trained_at)} == {4}


def test_neither_side_runs_away_at_any_moment() -> None:
    memory = FakeMemory(batch_size=32)
    plan = dqn(workers(2, steps=5), FakeLearner(), memory, ratio=3.0, min_size=50, weights=[10, 1])
    for _ in range(2000):
        plan.step()
        owed = 3.0 * (memory.stored - 50) - memory.sampled
        if memory.stored >= 50:
            assert -1e-9 <= owed < 32 + 3.0 * 5


def test_error_buffer_lets_each_side_go_ahead_by_that_many_samples() -> None:
    memory = FakeMemory(batch_size=32)
    plan = dqn(workers(1, steps=1), FakeLearner(), memory, ratio=1.0, min_size=50, error_buffer=100, weights=[1000, 1])
    owed = []
    for _ in range(5000):
        plan.step()
        if memory.stored >= 50:
            owed.append(1.0 * (memory.stored - 50) - memory.sampled)
    assert max(owed) == 132
    assert min(owed) >= -100
    memory = FakeMemory(batch_size=32)
    plan = dqn(workers(1, steps=1), FakeLearner(), memory, ratio=1.0, min_size=50, error_buffer=100, weights=[1, 1000])
    owed = []
    for _ in range(5000):
        plan.step()
        if memory.stored >= 50:
            owed.append(1.0 * (memory.stored - 50) - memory.sampled)
    assert min(owed) == -100
    assert max(owed) <= 132


class Undeclared(FakeMemory):
    """Does not say how large its batches are, and they vary."""

    def __init__(self) -> None:
        super().__init__(batch_size=8)
        self.size = 8
        del self.batch_size

    def sample(self) -> Any:
        self.size = self.batch_size = 8 + (self.size + 5) % 24
        batch = super().sample()
        del self.batch_size
        return batch


def test_a_memory_that_does_not_declare_its_batch_size_holds_the_ratio_too() -> None:
    memory = Undeclared()
    plan = dqn(workers(2), FakeLearner(), memory, ratio=2.0, min_size=10)
    for _ in plan.run(until=lambda counters: counters.env_steps_sampled >= 5000, every_steps=10_000):
        pass
    assert memory.sampled / (memory.stored - 10) == pytest.approx(2.0, rel=0.01)


def test_training_before_the_memory_can_serve_waits_and_says_so() -> None:
    memory = FakeMemory(batch_size=8)
    plan = dqn(workers(1), FakeLearner(), memory, ratio=1.0, min_size=10)
    limiter = next(node for node in plan.graph.nodes if node.name == "rate_limit")
    replay = next(node for node in plan.graph.nodes if node.name == "replay")
    plan.step()
    assert limiter.obstacle() == "4 steps stored (min_size 10), -6 samples owed"
    assert replay.obstacle() == ""
    assert memory.sampled == 0


def test_what_is_owed_is_still_trained_when_the_rollouts_end_and_then_the_plan_ends(start: Start) -> None:
    memory, learner = FakeMemory(batch_size=8), FakeLearner()
    plan = start(dqn(workers(2, steps=4, items=25), learner, memory, ratio=2.0, min_size=40))
    for _ in plan.run():
        pass
    assert plan.step() is END
    assert memory.stored == 200
    assert memory.sampled == 2 * (200 - 40)
    assert plan.counters.env_steps_sampled == 200


def test_without_a_limiter_replay_ends_with_the_rollouts() -> None:
    memory = FakeMemory(batch_size=8)
    store = ParallelRollouts(workers(1, items=5)).gather_sync().for_each(StoreToBuffer(memory))
    plan = ReportMetrics(Union(store, Replay(memory)))
    assert sum(item.source == "replay" for item in plan.items()) == 5


def test_a_memory_that_never_fills_enough_ends_with_its_rollouts() -> None:
    memory = FakeMemory(batch_size=8)
    store = ParallelRollouts(workers(1, items=5)).gather_sync().for_each(StoreToBuffer(memory))
    plan = ReportMetrics(Union(store, Replay(memory, min_size=1000).rate_limit(1.0)))
    assert len(list(plan.items())) == 5
    assert memory.sampled == 0


def test_an_item_sampled_from_a_memory_has_no_known_weight_version() -> None:
    memory, learner = FakeMemory(batch_size=8), FakeLearner()
    plan = dqn(workers(1), learner, memory, ratio=1.0, min_size=4)
    while learner.updates < 3:
        item = plan.step()
    assert isinstance(item, Envelope)
    assert (item.source, item.sequence, item.weight_version) == ("replay", 2, -1)
    assert "weight version unknown" in item.describe()
    assert plan.report().train_lag == {}


def test_with_real_delays_the_ratio_holds_and_the_plan_waits_for_the_rollouts() -> None:
    memory, clock = FakeMemory(batch_size=8), FakeClock()
    plan = dqn(workers(2), FakeLearner(), memory, ratio=4.0, min_size=20)
    plan.start(SimulatedEngine(clock, lambda index: 0.1 * (index + 1)), clock)
    for _ in plan.run(until=lambda counters: counters.env_steps_sampled >= 4000, every_steps=1000):
        pass
    assert memory.sampled / (memory.stored - 20) == pytest.approx(4.0, rel=0.01)
    assert clock.now() > 10.0


@pytest.mark.parametrize(("size", "ratio", "min_size"), [(7, 0.7, 30), (100, 6.0, 100), (3, 1 / 3, 1), (8, 16.0, 5)])
def test_the_steps_that_are_missing_are_those_that_let_the_next_sample_through(size, ratio, min_size) -> None:
    """However owed samples are rounded."""
    memory = FakeMemory(batch_size=size)
    plan = dqn(workers(1, steps=1), FakeLearner(), memory, ratio, min_size)
    limit = next(node for node in plan.graph.nodes if node.name == "rate_limit")
    (store,), (replay,) = limit._stores, limit._replays
    for _ in range(300):
        missing = limit.missing()
        one_less = store.inserted + missing - 1
        assert not missing or ratio * (one_less - min_size) - limit.sampled() < size or one_less < min_size
        store.inserted += missing
        assert limit.owed() >= size
        assert store.inserted >= min_size
        replay.sampled += size
