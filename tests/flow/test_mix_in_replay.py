"""Replayed trajectories in every item: how many, which, what is counted, and checkpoints."""

from functools import partial
from itertools import islice

import numpy as np
import pytest

from rlweave.errors import ConfigError, PlanError
from rlweave.flow import (
    FakeClock,
    MixInReplay,
    ParallelReplay,
    ParallelRollouts,
    ReplayShards,
    ReportMetrics,
    SampleBatch,
    StoreToBuffer,
    Stream,
    TrainOneStep,
    Union,
)
from rlweave.flow.codec import decode
from tests.flow.conftest import Start
from tests.flow.fake_shards import BATCH, FakeShard
from tests.flow.fakes import FakeLearner, FakeWorker


class TrajectoryWorker(FakeWorker):
    """Makes batches of B trajectories of 3 steps, numbered through; their last state has no time axis."""

    def __init__(self, columns: int = 2, items: int | None = None) -> None:
        super().__init__(items=items)
        self.columns = columns

    def sample(self) -> SampleBatch:
        batch = super().sample()  # counts, and ends
        first = (self.made - 1) * self.columns
        numbers = np.arange(first, first + self.columns)
        rows = {
            "number": np.tile(numbers, (3, 1)),
            "version": np.full((3, self.columns), self.version),
            "last": numbers,
        }
        assert batch.num_steps
        return SampleBatch(rows, "trajectories", ("last",))


def composed(operator: MixInReplay, items: int | None = None, columns: int = 2) -> tuple[ReportMetrics, FakeLearner]:
    group, learner = [TrajectoryWorker(columns, items)], FakeLearner()
    mixed = ParallelRollouts(group).gather_async().for_each(operator)
    return ReportMetrics(mixed.for_each(TrainOneStep(learner, group)), group), learner


@pytest.mark.parametrize("proportion", [0.25, 0.5, 1.0, 2.5])
def test_the_proportion_holds_exactly_and_what_is_new_comes_first(start: Start, proportion: float) -> None:
    plan, learner = composed(MixInReplay(100, proportion), items=40)
    plan = start(plan)
    assert len(list(plan.items())) == 40
    assert plan.counters.env_steps_sampled == 40 * 6, "replayed steps are no new steps"
    sizes = [batch["last"].size for batch in learner.batches]
    assert sum(sizes) == 80 * (1 + proportion)
    assert max(sizes) - min(sizes) <= 1
    for index, batch in enumerate(learner.batches):
        assert batch["last"][:2].tolist() == [2 * index, 2 * index + 1]
        assert batch.num_steps == 6
        np.testing.assert_array_equal(batch["number"], np.tile(batch["last"], (3, 1)))
        assert batch["last"].max() <= 2 * index + 1, "nothing is replayed before it was there"


def test_the_buffer_is_bounded_and_every_trajectory_in_it_equally_likely(start: Start) -> None:
    plan, learner = composed(MixInReplay(10, 1.0), items=400)
    list(start(plan).items())
    ages = [
        2 * index + 1 - batch["last"][2:] for index, batch in enumerate(learner.batches) if index >= 5
    ]  # of the draws, in trajectories
    counts = np.bincount(np.concatenate(ages), minlength=10)
    assert counts.size == 10
    assert counts.sum() == 790
    assert np.sum((counts - 79.0) ** 2 / 79.0) < 27.9, "chi-squared with 9 degrees of freedom, at 0.001"


def test_the_age_of_what_is_replayed_is_reported_and_the_items_lag_is_its_own(start: Start) -> None:
    plan, learner = composed(MixInReplay(100, 1.0), items=3)
    plan = start(plan)
    reports = list(plan.run())
    assert plan.report().train_lag == {0: 3}
    for update, (report, batch) in enumerate(zip(reports, learner.batches, strict=False)):
        assert report.metrics["mix_in_replay/lag"] == pytest.approx(update - batch["version"][0, 2:].mean())


@pytest.mark.parametrize("shared", [True, False], ids=["for the same workers", "for others"])
def test_the_age_is_in_updates_of_the_learner_that_trains_on_the_items(start: Start, shared: bool) -> None:
    """Beside another learner that makes as many updates."""
    group, learner, other = [TrajectoryWorker(2, 6)], FakeLearner(), FakeLearner()
    operator = MixInReplay(100, 1.0)

    def trained(stream: Stream) -> Stream:
        return stream.for_each(operator).for_each(TrainOneStep(learner, group))

    if shared:
        first, second = ParallelRollouts(group).gather_async().split(2)
        plan = ReportMetrics(Union(trained(first), second.for_each(TrainOneStep(other, group))), group)
    else:
        group_of_other = [TrajectoryWorker(2, 6)]
        beside = ParallelRollouts(group_of_other).gather_async().for_each(TrainOneStep(other, group_of_other))
        plan = ReportMetrics(Union(trained(ParallelRollouts(group).gather_async()), beside), group)
    plan = start(plan)
    lags = [report.metrics["mix_in_replay/lag"] for report in plan.run() if "mix_in_replay/lag" in report.metrics]
    assert learner.updates == other.updates == 6
    assert lags == [
        pytest.approx(update - batch["version"][0, 2:].mean()) for update, batch in enumerate(learner.batches)
    ]
    assert max(lags) > 1
    state = plan.state_dict()["operators"]["mix_in_replay"]["state"]
    made_with = [versions for _, versions in decode(state["made_with"])]
    assert made_with == [(n, n) if shared else () for n in range(6) for _ in range(2)]


class TrajectoryShard(FakeShard):
    """Serves trajectories."""

    def sample(self) -> SampleBatch:
        return SampleBatch({"number": np.zeros((3, 2))}, "trajectories")


def test_samples_of_a_memory_are_of_no_age() -> None:
    shards, learner, group = ReplayShards([partial(TrajectoryShard, 0)], BATCH), FakeLearner(), [TrajectoryWorker()]
    store = ParallelRollouts(group).gather_async().for_each(StoreToBuffer(shards))
    mixed = ParallelReplay(shards, 4).gather_async().for_each(MixInReplay(4, 1.0))
    plan = ReportMetrics(Union(store, mixed.for_each(TrainOneStep(learner)))).start(clock=FakeClock())
    for _ in islice(plan.items(), 10):
        pass
    metrics = plan.report().metrics
    assert "train_one_step/loss" in metrics
    assert "mix_in_replay/lag" not in metrics


def test_a_checkpoint_holds_the_buffer_and_the_draws(start: Start) -> None:
    plan, learner = composed(MixInReplay(7, 1.5, seed=4), items=12)
    plan = start(plan)
    items = plan.items()
    for _ in range(5):
        next(items)
    state = plan.state_dict()
    again, other = composed(MixInReplay(7, 1.5, seed=4), items=12)
    again = start(again)
    again.load_state_dict(state)
    again.graph.nodes[0].group.factories[0].worker.made = 5  # type: ignore[attr-defined]
    list(items)
    list(again.items())
    assert len(other.batches) == 7
    for first, second in zip(learner.batches[5:], other.batches, strict=True):
        np.testing.assert_array_equal(first["last"], second["last"])


def test_other_seeds_draw_others(start: Start) -> None:
    drawn = []
    for seed in (0, 1):
        plan, learner = composed(MixInReplay(50, 1.0, seed), items=20)
        list(start(plan).items())
        drawn.append(np.concatenate([batch["last"] for batch in learner.batches]).tolist())
    assert drawn[0] != drawn[1]


def test_wrong_arguments_and_items_are_refused(start: Start) -> None:
    with pytest.raises(ConfigError, match="proportion must be above 0"):
        MixInReplay(10, 0.0)
    with pytest.raises(ConfigError, match="capacity must be a whole number"):
        MixInReplay(0, 1.0)
    group = [FakeWorker()]
    rows = ParallelRollouts(group).gather_async().for_each(MixInReplay(10, 1.0))
    with pytest.raises(PlanError, match="only trajectories can be mixed in"):
        next(start(ReportMetrics(rows, group)).items())
