"""Order and weight lag: the exact numbers that design section 8 promises for the local engine."""

from itertools import islice
from typing import Any

import pytest

from rlweave.flow import (
    END,
    NOT_READY,
    Envelope,
    FakeClock,
    LocalEngine,
    Operator,
    ParallelRollouts,
    ReportMetrics,
    SampleBatch,
    TrainOneStep,
    Union,
    WorkerGroup,
)
from tests.flow.conftest import Start
from tests.flow.fakes import FakeLearner, FakeWorker, SimulatedEngine, workers


def origins(plan: ReportMetrics, n: int) -> list[tuple[int, int]]:
    """(source, sequence) of the next n items."""
    items = list(islice(plan.items(), n))
    return [(int(item.source.rsplit("/", 1)[1]), item.sequence) for item in items]


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_sources_take_turns_in_order(start: Start, mode: str) -> None:
    stream = ParallelRollouts(workers(3))
    plan = start(ReportMetrics(stream.gather_sync() if mode == "sync" else stream.gather_async()))
    assert origins(plan, 7) == [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1), (0, 2)]


def test_two_runs_give_the_same_items_in_the_same_order() -> None:
    def run() -> list[tuple[str, int, list[int]]]:
        plan = ReportMetrics(ParallelRollouts(workers(4)).gather_async(num_async=2))
        items = [plan.pull() for _ in range(20)]
        return [(i.source, i.sequence, i.payload["step"].tolist()) for i in items if isinstance(i, Envelope)]

    assert run() == run()
    assert len(run()) == 20


def test_sync_mode_glues_one_item_of_each_worker_in_order(start: Start) -> None:
    plan = start(ReportMetrics(ParallelRollouts(workers(3, steps=2), mode="sync")))
    items = [next(plan.items()) for _ in range(2)]
    assert [item.payload["worker"].tolist() for item in items] == [[0, 0, 1, 1, 2, 2]] * 2
    assert [item.payload["step"].tolist() for item in items] == [[0, 1] * 3, [2, 3] * 3]
    assert items[1].parts == (("parallel_rollouts/0", 1), ("parallel_rollouts/1", 1), ("parallel_rollouts/2", 1))
    assert [item.sequence for item in items] == [0, 1]


def lags(plan: ReportMetrics, n: int) -> list[int]:
    """Lag of each of the next n items when a learner trains on it."""
    found = []
    for number in range(n):
        item = plan.pull()
        assert isinstance(item, Envelope)
        found.append(number - item.weight_version)  # number = version before this item's update
    return found


@pytest.mark.parametrize("n", [1, 2, 4])
def test_gather_async_is_exactly_n_minus_1_behind_on_local(n: int) -> None:
    group = workers(n)
    plan = ReportMetrics(ParallelRollouts(group).gather_async().for_each(TrainOneStep(FakeLearner(), group)), group)
    assert lags(plan, 3 * n) == [*range(n), *[n - 1] * (2 * n)]
    report = plan.report()
    assert report.train_lag == report.gather_lag
    assert max(report.train_lag) == n - 1
    assert report.train_lag[n - 1] == 2 * n + 1


def test_gather_async_with_two_ahead_is_exactly_2n_minus_1_behind_on_local() -> None:
    group = workers(3)
    plan = ReportMetrics(ParallelRollouts(group).gather_async(2).for_each(TrainOneStep(FakeLearner(), group)), group)
    assert lags(plan, 12) == [0, 1, 2, 3, 4, 5, 5, 5, 5, 5, 5, 5]


@pytest.mark.parametrize("n", [1, 3])
def test_gather_sync_has_no_lag_on_local(n: int) -> None:
    group = workers(n)
    train = ParallelRollouts(group).gather_sync().concat(4 * n).for_each(TrainOneStep(FakeLearner(), group))
    plan = ReportMetrics(train, group)
    for _ in range(5):
        plan.pull()
    assert plan.report().gather_lag == {0: 5 * n}
    assert plan.report().train_lag == {0: 5}


def test_training_on_each_item_of_a_round_by_itself_is_reported_as_the_lag_that_it_is() -> None:
    group = workers(3)
    plan = ReportMetrics(ParallelRollouts(group).gather_sync().for_each(TrainOneStep(FakeLearner(), group)), group)
    for _ in range(6):
        plan.pull()
    assert plan.report().gather_lag == {0: 6}
    assert plan.report().train_lag == {0: 2, 1: 2, 2: 2}


def test_a_round_sees_all_messages_of_the_round_before_and_none_of_its_own(start: Start) -> None:
    group, learner = workers(3), FakeLearner()
    plan = start(ReportMetrics(ParallelRollouts(group).gather_sync().for_each(TrainOneStep(learner, group)), group))
    for _ in range(6):
        next(plan.items())
    seen = [batch["version"].tolist()[0] for batch in learner.batches]
    assert seen == [0, 0, 0, 3, 3, 3]


def test_nothing_upstream_runs_while_a_round_is_processed() -> None:
    group = workers(3)
    plan = ReportMetrics(ParallelRollouts(group).gather_sync())
    made = []
    for _ in range(6):
        plan.pull()
        made.append([worker.made for worker in group])
    assert made == [[1, 1, 1]] * 3 + [[2, 2, 2]] * 3


def test_an_item_is_done_before_the_next_one_is_requested_of_its_source(start: Start) -> None:
    group = workers(2)
    made: list[tuple[int, int]] = []

    def remember(batch: SampleBatch) -> SampleBatch:
        worker = int(batch["worker"][0])
        made.append((worker, group[worker].made))
        return batch

    plan = start(ReportMetrics(ParallelRollouts(group).gather_async().for_each(remember)))
    for _ in range(6):
        next(plan.items())
    # while item i is processed, its worker has made i + 1 items and not one more
    assert made == [(0, 1), (1, 1), (0, 2), (1, 2), (0, 3), (1, 3)]


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_the_end_of_every_source_is_the_end_of_the_stream_and_no_item_is_lost(start: Start, mode: str) -> None:
    group = [FakeWorker(0, items=1), FakeWorker(1, items=3), FakeWorker(2, items=2)]
    stream = ParallelRollouts(group)
    plan = start(ReportMetrics(stream.gather_sync() if mode == "sync" else stream.gather_async()))
    items = [(item.source[-1], item.sequence) for item in plan.items()]
    assert sorted(items) == [("0", 0), ("1", 0), ("1", 1), ("1", 2), ("2", 0), ("2", 1)]
    assert plan.pull() is END
    assert plan.step() is END
    assert plan.counters.env_steps_sampled == 6 * 4


def test_sync_mode_glues_what_is_left_when_sources_end() -> None:
    group = [FakeWorker(0, steps=1, items=1), FakeWorker(1, steps=1, items=2)]
    plan = ReportMetrics(ParallelRollouts(group, mode="sync"))
    assert [item.payload["worker"].tolist() for item in plan.items()] == [[0, 1], [1]]


def test_items_too_old_are_dropped_and_counted() -> None:
    group, learner = workers(4), FakeLearner()
    train = ParallelRollouts(group).gather_async(max_lag=1).for_each(TrainOneStep(learner, group))
    plan = ReportMetrics(train, group)
    for _ in range(20):
        plan.pull()
    report = plan.report()
    assert max(report.train_lag) == 1
    assert report.drops["gather_async"] > 0
    assert report.env_steps_sampled == 4 * (20 + report.drops["gather_async"])


def slow_first_worker(index: int) -> float:
    return 10.0 if index == 0 else 1.0


def simulated(stream: Any, group: Any, seconds: Any) -> tuple[ReportMetrics, SimulatedEngine, FakeClock]:
    clock = FakeClock()
    engine = SimulatedEngine(clock, seconds)
    return ReportMetrics(stream, group).start(engine, clock), engine, clock


def test_a_slow_worker_does_not_hold_up_an_asynchronous_gather() -> None:
    group = workers(3)
    plan, _, clock = simulated(ParallelRollouts(group).gather_async(), group, slow_first_worker)
    order = [item.source[-1] for item in islice(plan.items(), 21)]
    assert order.count("0") == 1
    assert order[:4] == ["1", "2", "1", "2"]
    assert clock.now() == pytest.approx(10.0)


def test_a_slow_worker_holds_up_every_round_of_a_barrier() -> None:
    group = workers(3)
    plan, _, clock = simulated(ParallelRollouts(group).gather_sync(), group, slow_first_worker)
    assert origins(plan, 6) == [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1)]
    assert clock.now() == pytest.approx(20.0)


def test_a_slow_workers_lag_is_measured() -> None:
    group = workers(3)
    stream = ParallelRollouts(group).gather_async().for_each(TrainOneStep(FakeLearner(), group))
    plan, _, _ = simulated(stream, group, slow_first_worker)
    assert len(list(islice(plan.items(), 21))) == 21
    assert max(plan.report().train_lag) > 15


def test_waiting_is_one_call_of_the_engine_per_event() -> None:
    group = workers(2)
    plan, engine, clock = simulated(ParallelRollouts(group).gather_sync(), group, lambda index: 0.5)
    assert plan.step() is NOT_READY
    assert clock.now() == 0.0, "a step never waits"
    engine.waits.clear()
    plan.wait()
    assert engine.waits == [plan.wait_limit]
    assert clock.now() == 0.5


def test_waiting_ends_after_its_limit_so_that_stop_is_heeded() -> None:
    group = workers(1)
    plan, _, clock = simulated(ParallelRollouts(group).gather_sync(), group, lambda index: 1e6)
    assert plan.step() is NOT_READY
    plan.wait()
    assert clock.now() == plan.wait_limit


@pytest.mark.parametrize("gather", ["gather_sync", "gather_async"])
def test_where_all_wait_for_one_gather_an_item_takes_one_wait(gather: str) -> None:
    group = workers(1)
    plan, engine, clock = simulated(getattr(ParallelRollouts(group), gather)(), group, lambda index: 0.5)
    items = plan.items()
    next(items)  # the first one also finds out when a worker will count as hanging
    engine.waits.clear()
    assert len(list(islice(items, 10))) == 10
    assert engine.waits == [plan.wait_limit] * 10
    assert clock.now() == pytest.approx(5.5)
    engine.waits.clear()
    assert plan.step() is NOT_READY
    assert engine.waits in ([0], []), "who steps by himself is not kept waiting, whoever else was"


def test_a_plan_that_is_stopped_while_it_waits_for_its_only_source_ends_within_a_limit() -> None:
    group = workers(1)
    seconds = iter([0.5, 1e6])
    plan, engine, clock = simulated(ParallelRollouts(group).gather_async(), group, lambda index: next(seconds))
    running = plan.run()
    assert next(running).env_steps_sampled > 0
    wait = engine.wait

    def stopped_meanwhile(calls: Any, timeout: float | None = None) -> Any:
        plan.stop()
        return wait(calls, timeout)

    engine.wait = stopped_meanwhile  # type: ignore[method-assign]
    assert list(running) == []
    assert clock.now() == 0.5 + plan.wait_limit


@pytest.mark.parametrize("several", [True, False])
def test_nor_does_a_plan_wait_longer_that_looks_several_times_in_a_step(several: bool) -> None:
    """A barrier whose items trickle in, and a union whose branches all wait for one source."""
    group = workers(20 if several else 1)
    stream = ParallelRollouts(group).gather_sync() if several else ParallelRollouts(group).gather_async()
    branches = stream if several else Union(*stream.split(8, 1))
    plan, engine, clock = simulated(branches, group, lambda index: 0.9 * (index + 1) if several else 1e6)
    wait = engine.wait

    def stopped_meanwhile(calls: Any, timeout: float | None = None) -> Any:
        done = wait(calls, timeout)
        if clock.now() >= 1.8 and not plan.stopped:
            plan.stop()
        return done

    engine.wait = stopped_meanwhile  # type: ignore[method-assign]
    assert list(plan.run()) == []
    assert plan.stopped
    assert clock.now() <= 1.8 + 2 * plan.wait_limit


def test_workers_of_a_group_are_made_by_the_engine_and_closed_by_it() -> None:
    made: list[FakeWorker] = []

    def make() -> FakeWorker:
        made.append(FakeWorker(len(made)))
        return made[-1]

    group = WorkerGroup([make, make])
    with ReportMetrics(ParallelRollouts(group).gather_sync(), group) as plan:
        plan.start(LocalEngine(), FakeClock())
        assert plan.pull().source == "parallel_rollouts/0"  # type: ignore[union-attr]
    assert [worker.closed for worker in made] == [True, True]
    mine = workers(1)
    with ReportMetrics(ParallelRollouts(mine).gather_sync(), mine) as plan:
        plan.pull()
    assert not mine[0].closed, "a worker object belongs to who made it"


class Doubling(Operator):
    """An operator with state, bound to its worker."""

    def __init__(self) -> None:
        self.count = 0
        self.worker: Any = None

    def bind(self, worker: Any) -> None:
        self.worker = worker

    def __call__(self, batch: SampleBatch) -> tuple[int, int]:
        self.count += 1
        return (self.worker.number, self.count)


def test_operators_at_the_sources_are_copies_bound_to_their_worker(start: Start) -> None:
    operator = Doubling()
    plan = start(ReportMetrics(ParallelRollouts(workers(2)).par_for_each(operator).gather_sync()))
    assert [next(plan.items()).payload for _ in range(4)] == [(0, 1), (1, 1), (0, 2), (1, 2)]
    assert operator.count == 0
    assert plan.counters.env_steps_sampled == 16, "environment steps are counted where they were made"
