"""Items that are staged ahead of a learner: order, counts, lag, the end of a stream, checkpoints."""

import numpy as np
import pytest

from rlweave.errors import ConfigError, PlanError
from rlweave.flow import (
    LocalEngine,
    ParallelRollouts,
    Prefetch,
    Replay,
    ReportMetrics,
    SampleBatch,
    StoreToBuffer,
    TrainOneStep,
    Union,
)
from tests.flow.conftest import Start
from tests.flow.fakes import FakeLearner, FakeMemory, workers


class Stager:
    """Notes which items it was given, and hands out copies that say so."""

    def __init__(self) -> None:
        self.staged: list[int] = []

    def __call__(self, batch: SampleBatch) -> SampleBatch:
        self.staged.append(int(batch["step"][0]))
        return SampleBatch({**batch.data, "staged": np.ones(batch.num_steps, bool)})


def prefetching(n: int, items: int | None = None):
    group, learner, stager = workers(1, steps=1, items=items), FakeLearner(), Stager()
    stream = ParallelRollouts(group).gather_async().for_each(Prefetch(n, stager)).for_each(TrainOneStep(learner, group))
    return ReportMetrics(stream, group), learner, stager


@pytest.mark.parametrize("n", [1, 3])
def test_items_keep_their_order_and_are_staged_n_ahead(start: Start, n: int) -> None:
    plan, learner, stager = prefetching(n)
    start(plan)
    for done in range(1, 6):
        for _ in plan.run(until=lambda counters, done=done: counters.updates >= done):
            pass
        assert [int(batch["step"][0]) for batch in learner.batches] == list(range(done))
        assert stager.staged == list(range(done + n))
    assert all(batch["staged"].all() for batch in learner.batches)


@pytest.mark.parametrize("items", [0, 1, 2, 5])
def test_the_end_of_a_stream_lets_all_items_out_once(start: Start, items: int) -> None:
    plan, learner, stager = prefetching(2, items)
    for _ in start(plan).run():
        pass
    assert learner.updates == plan.report().updates == items
    assert [int(batch["step"][0]) for batch in learner.batches] == stager.staged == list(range(items))


def test_lag_is_the_number_of_updates_in_between() -> None:
    plan, learner, _ = prefetching(2)
    plan.start(LocalEngine())
    for _ in range(6):
        plan.pull()
    report = plan.report()
    # the first three were staged before any update: they wait 0, 1 and 2 of them
    assert report.metrics["prefetch/lag"] == pytest.approx((0 + 1 + 2 + 2 + 2 + 2) / 6)
    # the worker's weights were as old when the learner got to see the item
    assert report.train_lag == {0: 1, 1: 1, 2: 4}
    assert learner.updates == 6


def test_lag_counts_the_updates_of_the_learner_that_trains_on_the_items(start: Start) -> None:
    """Beside another learner that makes as many: neither the other's own ones count, nor those of both."""
    learner, other, group = FakeLearner(), FakeLearner(), workers(1, steps=1, items=12)
    own = ParallelRollouts(workers(1, steps=1, items=6)).gather_async().for_each(Prefetch(1, Stager()))
    beside = ParallelRollouts(group).gather_async().for_each(TrainOneStep(other, group))
    plan = start(ReportMetrics(Union(own.for_each(TrainOneStep(learner)), beside)))
    lags = [report.metrics["prefetch/lag"] for report in plan.run() if "prefetch/lag" in report.metrics]
    assert (learner.updates, other.updates) == (6, 12)
    assert lags == [0, 1, 1, 1, 1, 1]


def test_it_is_typed_named_and_explained() -> None:
    plan, _, _ = prefetching(2)
    assert "prefetch" in plan.explain()
    assert "n=2" in plan.explain()
    with pytest.raises(PlanError, match="gather"):
        ParallelRollouts(workers(1)).for_each(Prefetch(1, Stager()))
    with pytest.raises(ConfigError, match="whole number above 0"):
        Prefetch(0, Stager())


def test_a_checkpoint_keeps_what_is_under_way() -> None:
    cut, cut_learner, _ = prefetching(2, items=9)
    cut.start(LocalEngine())
    for _ in range(4):
        cut.pull()
    state = cut.state_dict()
    again, learner, stager = prefetching(2, items=9)
    again.start(LocalEngine())
    again.load_state_dict(state)
    assert stager.staged == [4, 5]
    again.pull()
    again.pull()
    assert [int(batch["step"][0]) for batch in learner.batches] == [4, 5]
    assert [int(batch["step"][0]) for batch in cut_learner.batches] == [0, 1, 2, 3]
    assert again.report().metrics["prefetch/lag"] == pytest.approx((0 + 1 + 2 + 2 + 2 + 2) / 6)
    assert all(batch["staged"].all() for batch in learner.batches)


def test_samples_under_way_come_out_when_the_rate_limiter_ends(start: Start) -> None:
    group, learner, memory = workers(1, steps=4, items=4), FakeLearner(), FakeMemory(batch_size=4)
    seen: list[int] = []

    def stage(batch: SampleBatch) -> SampleBatch:
        seen.append(batch.num_steps)
        return batch

    store = ParallelRollouts(group).gather_async().for_each(StoreToBuffer(memory))
    train = Replay(memory).for_each(Prefetch(2, stage)).for_each(TrainOneStep(learner, group))
    plan = ReportMetrics(Union(store, train.rate_limit(1.0, min_size=4)), group)
    for _ in start(plan).run():
        pass
    assert learner.updates == len(seen) == 3  # 16 steps, 4 of them before the first sample
    assert memory.sampled == 12
