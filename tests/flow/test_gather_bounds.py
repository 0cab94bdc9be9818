"""Gathers that do not wait for everybody, that bound the weight lag, and that fetch several items per call."""

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import pytest

from rlweave.errors import ConfigError
from rlweave.flow import (
    ABSORBED,
    Call,
    FakeClock,
    ItemReference,
    ParallelRollouts,
    ReportMetrics,
    SampleBatch,
    TrainOneStep,
    UpdateWeights,
)
from tests.flow.conftest import Start
from tests.flow.fakes import FakeLearner, FakeWorker, SimulatedEngine, workers


def simulated(plan: ReportMetrics, seconds: Callable[[int], float]) -> tuple[ReportMetrics, FakeClock]:
    clock = FakeClock()
    return plan.start(SimulatedEngine(clock, seconds), clock), clock


def slow_last(index: int) -> float:
    return 10.0 if index == 2 else 1.0


def test_a_quorum_closes_the_round_after_its_time_and_late_items_say_so() -> None:
    group = workers(3)
    plan, clock = simulated(ReportMetrics(ParallelRollouts(group).gather_sync(quorum=2, timeout=3.0), group), slow_last)
    found = [
        (int(item.source[-1]), item.sequence, item.rounds_late, round(clock.now(), 6))
        for item in islice(plan.items(), 12)
    ]
    # rounds at 3, 6, 9; in the fourth (from 9 on) worker 2 delivers what it was asked for in the first
    assert found[:6] == [(0, 0, 0, 3.0), (1, 0, 0, 3.0), (0, 1, 0, 6.0), (1, 1, 0, 6.0), (0, 2, 0, 9.0), (1, 2, 0, 9.0)]
    assert found[6:9] == [(0, 3, 0, 10.0), (1, 3, 0, 10.0), (2, 0, 3, 10.0)]
    assert plan.report().measures["gather_sync/late_items"] == 1


@pytest.mark.parametrize("when_old", ["drop", "wait"])
def test_a_worker_whose_item_was_too_old_gets_weights_with_its_next_one(when_old: Any) -> None:
    """Weights are sent by the items that come through, so one that is left out must not leave its worker behind."""
    group, learner = workers(3), FakeLearner()
    stream = ParallelRollouts(group).gather_async(max_lag=1, when_old=when_old).for_each(UpdateWeights(learner, group))
    plan = ReportMetrics(stream.for_each(TrainOneStep(learner)), group).start()
    for _ in range(300):
        plan.step()
    newest = [worker.received[-1] if worker.received else 0 for worker in group]
    assert learner.updates > 90
    assert min(newest) >= learner.updates - 4
    dropped = plan.report().drops.get("gather_async", 0)
    on_their_way = sum(worker.made for worker in group) - learner.updates - dropped
    assert 0 <= on_their_way <= len(group)


def test_a_quorum_without_time_takes_the_first_that_come() -> None:
    group = workers(3)
    plan, clock = simulated(
        ReportMetrics(ParallelRollouts(group).gather_sync(quorum=1, timeout=0.0)), lambda i: 1.0 + i
    )
    items = list(islice(plan.items(), 3))
    assert [item.source[-1] for item in items] == ["0", "0", "1"]
    assert [item.rounds_late for item in items] == [0, 0, 1]
    assert clock.now() == 2.0


def test_everybody_in_time_closes_the_round_at_once() -> None:
    group = workers(3)
    plan, clock = simulated(ReportMetrics(ParallelRollouts(group).gather_sync(quorum=1, timeout=60.0)), lambda i: 1.0)
    assert [item.source[-1] for item in islice(plan.items(), 6)] == ["0", "1", "2"] * 2
    assert clock.now() == 2.0


def test_a_merged_item_is_as_late_as_its_latest_part(start: Start) -> None:
    assert next(start(ReportMetrics(ParallelRollouts(workers(2), mode="sync"))).items()).rounds_late == 0
    group = workers(3)
    stream = ParallelRollouts(group).gather_sync(quorum=2, timeout=3.0).batch(9)
    plan, _ = simulated(ReportMetrics(stream), slow_last)
    assert next(plan.items()).rounds_late == 3


@pytest.mark.parametrize(
    "settings", [{"quorum": 2}, {"timeout": 1.0}, {"quorum": 4, "timeout": 1.0}, {"quorum": 1, "timeout": -1.0}]
)
def test_a_quorum_needs_a_time_and_may_not_exceed_the_sources(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="a quorum and a timeout"):
        ParallelRollouts(workers(3)).gather_sync(**settings)


def train_lags(when_old: str, max_lag: int, seconds: Callable[[int], float], items: int) -> tuple[ReportMetrics, float]:
    group = workers(3)
    gathered = ParallelRollouts(group).gather_async(max_lag=max_lag, when_old=when_old)  # type: ignore[arg-type]
    plan, clock = simulated(ReportMetrics(gathered.for_each(TrainOneStep(FakeLearner(), group)), group), seconds)
    assert len(list(islice(plan.items(), items))) == items
    return plan, clock.now()


def test_a_resumed_plan_goes_on_counting_what_it_held_back() -> None:
    first, _ = train_lags("wait", 4, slow_last, 30)
    state = first.state_dict()
    resumed, _ = train_lags("wait", 4, slow_last, 0)
    resumed.load_state_dict(state)
    assert resumed.report().measures["gather_async/held_back"] == first.report().measures["gather_async/held_back"] > 0


class TellsLate(SimulatedEngine):
    """Tells of some calls only when it is asked again, after later ones of the same actor, as Ray of large results."""

    def wait(self, calls: Sequence[Call], timeout: float | None = None) -> list[Call]:
        done = super().wait(calls, timeout)
        told = [call for call in done if getattr(call, "asked", not self._is_late(call))]
        for call in done:
            call.asked = True  # type: ignore[attr-defined]
        return told

    def _is_late(self, call: Call) -> bool:
        self.looks = getattr(self, "looks", 0) + 1
        return self.looks % 3 == 1


@pytest.mark.parametrize("by_reference", [False, True])
@pytest.mark.parametrize("options", [{}, {"max_lag": 8, "when_old": "wait"}])
def test_items_of_a_source_come_in_order_whichever_call_the_engine_tells_of_first(
    by_reference: bool, options: dict[str, Any]
) -> None:
    group, learner = workers(2), FakeLearner()
    made = ParallelRollouts(group).gather_async(num_async=3, by_reference=by_reference, **options)
    made = made.for_each(ItemReference.fetch) if by_reference else made
    clock = FakeClock()
    plan = ReportMetrics(made.for_each(TrainOneStep(learner, group)), group).start(
        TellsLate(clock, lambda index: 0.0), clock=clock
    )
    for _ in range(3):
        assert len(list(islice(plan.items(), 20))) == 20
        plan.state_dict()
    for number in range(2):
        steps = [int(batch["step"][0]) for batch in learner.batches if batch["worker"][0] == number]
        assert steps == list(range(0, 4 * len(steps), 4))


def test_waiting_bounds_the_lag_without_a_loss_and_costs_time() -> None:
    waiting, long = train_lags("wait", 4, slow_last, 30)
    report = waiting.report()
    assert max(report.train_lag) == 4
    assert report.drops == {}
    assert report.measures["gather_async/held_back"] > 0
    assert report.operator_items["parallel_rollouts"] == 30
    dropping, short = train_lags("drop", 4, slow_last, 30)
    assert max(dropping.report().train_lag) <= 4
    assert dropping.report().drops == {"gather_async": 1}
    assert long > 2 * short, "the slow worker's items cost waiting, or are lost"


def test_waiting_holds_nobody_back_where_all_are_young() -> None:
    plan, _ = train_lags("wait", 2, lambda index: 1.0, 30)
    assert plan.report().drops == {}
    assert max(plan.report().train_lag) == 2


def test_what_is_too_old_although_others_waited_is_dropped_and_counted() -> None:
    group, learner = workers(2), FakeLearner()
    gathered = ParallelRollouts(group).gather_async(max_lag=1, when_old="wait")
    train = gathered.for_each(lambda batch: [batch] * 3).flatten().for_each(TrainOneStep(learner, group))
    plan, _ = simulated(ReportMetrics(train, group), lambda index: 1.0)
    list(islice(plan.items(), 30))
    report = plan.report()
    assert report.drops["gather_async"] > 0, "updates on the parts of one item age the other one"
    assert report.drops["train_one_step"] > 0, "and the last of its own parts"
    assert max(report.gather_lag) <= 1
    assert max(report.train_lag) <= 1


def test_old_items_need_a_bound() -> None:
    with pytest.raises(ConfigError, match="needs a bound"):
        ParallelRollouts(workers(2)).gather_async(when_old="wait")
    with pytest.raises(ConfigError, match="'drop' or 'wait'"):
        ParallelRollouts(workers(2)).gather_async(max_lag=1, when_old="skip")  # type: ignore[arg-type]


@pytest.mark.parametrize("gather", ["gather_sync", "gather_async"])
def test_several_fragments_per_call_come_one_by_one_with_the_weights_of_their_call(start: Start, gather: str) -> None:
    group, learner = workers(2), FakeLearner()
    rollouts = ParallelRollouts(group, fragments=3)
    plan = start(ReportMetrics(getattr(rollouts, gather)().for_each(TrainOneStep(learner, group)), group))
    items = [(item.source[-1], item.sequence) for item in islice(plan.items(), 12)]
    first, second = [("0", n) for n in range(6)], [("1", n) for n in range(6)]
    assert items == [*first[:3], *second[:3], *first[3:], *second[3:]]
    versions = [batch["version"].tolist()[0] for batch in learner.batches]
    later = [6] * 6 if gather == "gather_sync" else [3] * 3 + [6] * 3
    assert versions == [0] * 6 + later
    assert plan.counters.env_steps_sampled == 12 * 4


@pytest.mark.parametrize("gather", ["gather_sync", "gather_async"])
def test_the_end_in_the_middle_of_a_call_loses_nothing(start: Start, gather: str) -> None:
    group = [FakeWorker(0, items=5), FakeWorker(1, items=2)]
    plan = start(ReportMetrics(getattr(ParallelRollouts(group, fragments=3), gather)(), group))
    items = sorted((item.source[-1], item.sequence) for item in plan.items())
    assert items == [("0", n) for n in range(5)] + [("1", n) for n in range(2)]


def test_items_absorbed_at_their_source_are_counted(start: Start) -> None:
    def even(batch: SampleBatch) -> Any:
        return batch if batch["step"][0] % 8 == 0 else ABSORBED

    group = [FakeWorker(0, items=6)]
    for gather in ("gather_sync", "gather_async"):
        group[0].made = 0
        stream = ParallelRollouts(group, fragments=2).par_for_each(even)
        plan = start(ReportMetrics(getattr(stream, gather)()))
        assert [item.sequence for item in plan.items()] == [0, 2, 4]
        assert plan.counters.env_steps_sampled == 24
