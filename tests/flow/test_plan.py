"""Running a plan: one item at a time, not ready as a value, reports, failures, stopping, nothing to do."""

import gc
import json
import signal
import weakref
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest

from rlweave.errors import PlanError
from rlweave.flow import (
    ABSORBED,
    END,
    NOT_READY,
    Envelope,
    Episode,
    Every,
    FakeClock,
    ParallelRollouts,
    Replay,
    ReportMetrics,
    SampleBatch,
    StoreToBuffer,
    TrainOneStep,
    Union,
    WorkerGroup,
)
from rlweave.flow.interrupt import PlanInterrupt
from rlweave.flow.reports import UnreportedEpisodes
from rlweave.graph import guard
from tests.flow.conftest import Start
from tests.flow.fake_cluster import SimulatedCluster
from tests.flow.fakes import FakeLearner, FakeMemory, FakeWorker, SimulatedEngine, workers


def ppo(group: list[FakeWorker], learner: FakeLearner, min_steps: int = 8) -> ReportMetrics:
    rollouts = ParallelRollouts(group).gather_sync()
    return ReportMetrics(rollouts.concat(min_steps).for_each(TrainOneStep(learner, group)), group)


def step_of(batch: SampleBatch) -> int:
    return int(batch["step"][0])


# -- moving -------------------------------------------------------------------------------------------------------


def test_a_step_moves_exactly_one_item() -> None:
    group, learner = workers(2), FakeLearner()
    plan = ppo(group, learner, min_steps=12)
    answers = [plan.step() for _ in range(6)]
    assert [answer is ABSORBED for answer in answers] == [True, True, False, True, True, False]
    assert plan.counters.env_steps_sampled == 6 * 4
    assert learner.updates == 2


def test_pull_gives_the_next_item_of_the_end_of_the_plan() -> None:
    plan = ppo(workers(2), FakeLearner(), min_steps=12)
    item = plan.pull()
    assert isinstance(item, Envelope)
    assert (item.payload.num_steps, item.payload.version) == (12, 1)
    assert plan.counters.items == 1


def test_not_ready_is_a_value_and_the_plan_goes_on_when_something_arrives() -> None:
    clock = FakeClock()
    engine = SimulatedEngine(clock, lambda index: 3.0)
    plan = ReportMetrics(ParallelRollouts(workers(1)).gather_async()).start(engine, clock)
    assert [plan.step() for _ in range(3)] == [NOT_READY] * 3
    assert plan.pull() is NOT_READY
    clock.advance(3.0)
    assert isinstance(plan.step(), Envelope)


def test_a_result_that_arrives_between_step_and_wait_is_no_stall() -> None:
    clock = FakeClock()
    engine = SimulatedEngine(clock, lambda index: 3.0)
    plan = ReportMetrics(ParallelRollouts(workers(1)).gather_async()).start(engine, clock)
    assert plan.step() is NOT_READY
    clock.advance(5.0)
    plan.wait()
    assert clock.now() == 5.0
    assert isinstance(plan.step(), Envelope)


def test_a_plan_in_which_nothing_can_move_says_what_each_operator_lacks() -> None:
    memory = FakeMemory(batch_size=8, capacity=10)
    store = ParallelRollouts(workers(1)).gather_sync().for_each(StoreToBuffer(memory))
    union = Union(store, Replay(memory).rate_limit(1.0, min_size=4).filter(lambda item: False))
    plan = ReportMetrics(union)
    limiter = next(node for node in plan.graph.nodes if node.name == "rate_limit")
    limiter.pull = lambda output=0: NOT_READY  # type: ignore[method-assign]
    with pytest.raises(PlanError, match=r"(?s)has stalled.*store_to_buffer: held back by the rate limiter"):
        for _ in plan.run():
            pass


# -- reports ------------------------------------------------------------------------------------------------------


def test_reports_count_what_their_names_say(start: Start) -> None:
    group = workers(2, steps=4)
    plan = start(ppo(group, FakeLearner()))
    reports = list(islice(plan.run(), 3))
    assert [report.env_steps_sampled for report in reports] == [8, 16, 24]
    assert [report.trained_samples for report in reports] == [8, 16, 24]
    assert [report.gradient_steps for report in reports] == [1, 2, 3]
    assert [report.updates for report in reports] == [1, 2, 3]
    assert [report.metrics for report in reports] == [
        {"train_one_step/loss": pytest.approx(1 / number)} for number in (1, 2, 3)
    ]
    assert [report.episodes for report in reports] == [(Episode(0.0, 4), Episode(1.0, 4))] * 3
    last = reports[-1]
    assert (last.episodes_finished, last.episode_return, last.episode_length) == (6, 0.5, 4.0)
    assert last.operator_items["train_one_step"] == 3
    assert last.flat()["train_lag/max"] == 0


class Epochs(FakeLearner):
    """Uses each sample three times, in minibatches of four."""

    def update(self, batch: SampleBatch) -> dict[str, Any]:
        return {
            **super().update(batch),
            "gradient_steps": 3 * batch.num_steps // 4,
            "trained_samples": 3 * batch.num_steps,
        }


def test_a_learner_says_how_many_gradient_steps_and_samples_an_update_was() -> None:
    plan = ppo(workers(2), Epochs())
    report = next(plan.run())
    assert (report.updates, report.gradient_steps, report.trained_samples, report.replay_ratio) == (1, 6, 24, 3.0)
    assert set(report.metrics) == {"train_one_step/loss"}


def test_means_are_over_the_updates_since_the_last_report() -> None:
    plan = ppo(workers(1), FakeLearner(), min_steps=4)
    first, second = islice(plan.run(every_steps=8), 2)
    assert first.metrics["train_one_step/loss"] == pytest.approx((1 + 1 / 2) / 2)
    assert second.metrics["train_one_step/loss"] == pytest.approx((1 / 3 + 1 / 4) / 2)


def test_reports_come_at_every_crossing_and_once_more_at_the_end() -> None:
    plan = ppo(workers(3), FakeLearner(), min_steps=4)
    steps = [r.env_steps_sampled for r in plan.run(until=lambda c: c.env_steps_sampled >= 90, every_steps=25)]
    assert steps == [28, 52, 76, 92]


def test_steps_per_second_are_those_since_the_last_report() -> None:
    clock = FakeClock()
    plan = ppo(workers(1), FakeLearner(), min_steps=4).start(SimulatedEngine(clock, lambda index: 0.5), clock)
    rates = [report.env_steps_per_second for report in islice(plan.run(), 3)]
    assert rates == [pytest.approx(8.0)] * 3
    assert plan.report().env_steps_per_second == 0.0
    assert plan.seconds == pytest.approx(1.5)


def test_time_is_attributed_to_the_operator_that_takes_it() -> None:
    clock = FakeClock()

    def slow(batch: SampleBatch) -> SampleBatch:
        clock.advance(2.0)
        return batch

    def fast(batch: SampleBatch) -> SampleBatch:
        clock.advance(0.5)
        return batch

    plan = ReportMetrics(ParallelRollouts(workers(1)).gather_sync().for_each(slow).for_each(fast)).start(clock=clock)
    for _ in range(3):
        plan.pull()
    seconds = plan.report().operator_seconds
    assert (seconds["slow"], seconds["fast"], seconds["gather_sync"]) == (6.0, 1.5, 0.0)


@pytest.mark.parametrize("window", [20, 100])
def test_the_mean_return_is_over_a_window_of_the_last_episodes(window: int) -> None:
    group = workers(1)
    plan = ReportMetrics(ParallelRollouts(group).gather_sync(), group)
    plan.start(**{} if window == 20 else {"episode_window": window})
    for number in range(250):
        group[0].number = number
        plan.pull()
    report = plan.report()
    assert report.episodes_finished == 250
    assert len(report.episodes) == 250
    assert report.episode_return == pytest.approx(sum(range(250 - window, 250)) / window)


def elsewhere(group: list[FakeWorker]) -> ReportMetrics:
    """A plan whose workers' episodes come with their items, as from another process."""
    clock = FakeClock()
    factories = WorkerGroup([lambda worker=worker: worker for worker in group])
    plan = ReportMetrics(ParallelRollouts(factories).gather_sync(), factories)
    return plan.start(SimulatedCluster(clock, lambda actor, method: 1.0), clock)


def test_episodes_that_nobody_reports_take_bounded_memory_and_all_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(UnreportedEpisodes, "limit", 120)
    worker = FakeWorker()
    plan = elsewhere([worker])

    def go_on(plan: ReportMetrics, last: int) -> None:
        while worker.made < last:
            worker.number = worker.made
            next(plan.items())

    go_on(plan, 250)
    (kept,) = plan._running().episodes.values()
    assert (len(kept.newest), kept.earlier) == (120, 130)
    state = plan.state_dict()
    resumed = elsewhere([worker])
    resumed.load_state_dict(json.loads(json.dumps(state)))
    go_on(resumed, 300)
    report = resumed.report()
    assert report.episodes_finished == 300
    assert [episode.episode_return for episode in report.episodes] == list(range(180, 300))
    assert report.episode_return == pytest.approx(sum(range(280, 300)) / 20)
    go_on(resumed, 301)
    report = resumed.report()
    assert (report.episodes_finished, len(report.episodes)) == (301, 1)


def test_saving_every_50_000_steps_with_32_environments_fires_once_per_crossing() -> None:
    group, save = [FakeWorker(steps=32)], Every(50_000)
    plan = ReportMetrics(ParallelRollouts(group).gather_sync())
    reports = plan.run(until=lambda counters: counters.env_steps_sampled >= 150_000, every_steps=32)
    saved = [report.env_steps_sampled for report in reports if save(report.env_steps_sampled)]
    assert saved == [50_016, 100_000, 150_016]


# -- nothing to do, and stopping ----------------------------------------------------------------------------------


def test_training_of_length_zero_ends_cleanly() -> None:
    plan = ppo(workers(1), FakeLearner())
    assert list(plan.run(until=lambda counters: counters.env_steps_sampled >= 0)) == []
    report = plan.report()
    assert (report.env_steps_sampled, report.replay_ratio, report.env_steps_per_second) == (0, 0.0, 0.0)
    assert (report.episode_return, report.episode_length, report.metrics) == (None, None, {})
    assert "episode_return" not in report.flat()


def test_workers_with_nothing_to_give_end_the_plan_cleanly(start: Start) -> None:
    plan = start(ppo(workers(3, items=0), FakeLearner()))
    assert list(plan.run()) == []
    assert plan.step() is END
    assert plan.ended
    assert plan.report().updates == 0


def test_a_run_may_go_on_with_a_larger_goal() -> None:
    plan = ppo(workers(1), FakeLearner(), min_steps=4)
    for goal in (20, 40):
        assert list(plan.run(until=lambda c, goal=goal: c.env_steps_sampled >= goal))[-1].env_steps_sampled == goal


def test_stop_lets_the_item_on_its_way_go_through() -> None:
    group, learner = workers(1), FakeLearner()
    plan: ReportMetrics

    def stop_at_twelve(batch: SampleBatch) -> SampleBatch:
        if step_of(batch) == 12:
            plan.stop()
        return batch

    stream = ParallelRollouts(group).gather_sync().for_each(stop_at_twelve).for_each(TrainOneStep(learner, group))
    plan = ReportMetrics(stream, group)
    reports = list(plan.run())
    assert plan.stopped
    assert reports[-1].env_steps_sampled == 16
    assert learner.updates == 4, "the item during which it was stopped was still trained on"
    with pytest.raises(PlanError, match=r"(?s)was stopped.*load_state_dict"):
        next(plan.run())


@pytest.fixture
def ctrl_c() -> Iterator[Any]:
    """The handler that interrupts at once, whatever ran in this process before; gives back what it found."""
    found = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield signal.default_int_handler
    signal.signal(signal.SIGINT, found)


def test_ctrl_c_stops_after_the_item_and_a_second_one_interrupts(ctrl_c: Any) -> None:
    presses = {8: 1, 20: 2}

    def press(batch: SampleBatch) -> SampleBatch:
        pressed = presses.get(step_of(batch), 0)
        if pressed:  # else this would end all of the tests
            assert isinstance(signal.getsignal(signal.SIGINT), PlanInterrupt)
        for _ in range(pressed):
            signal.raise_signal(signal.SIGINT)
        return batch

    plan = ReportMetrics(ParallelRollouts(workers(1)).gather_sync().for_each(press))
    assert [report.env_steps_sampled for report in plan.run()] == [4, 8, 12]
    assert plan.stopped
    assert signal.getsignal(signal.SIGINT) is ctrl_c
    presses.pop(8)
    plan = ReportMetrics(ParallelRollouts(workers(1)).gather_sync().for_each(press))
    with pytest.raises(KeyboardInterrupt):
        list(plan.run())
    assert signal.getsignal(signal.SIGINT) is ctrl_c


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_of_a_program_that_built_a_graph_stops_plans_too() -> None:
    guard.install_guard()
    found = signal.getsignal(signal.SIGINT)
    assert found is not signal.default_int_handler
    plan = ppo(workers(1), FakeLearner())
    running = plan.run()
    next(running)
    signal.raise_signal(signal.SIGINT)
    assert plan.stopped
    assert list(running) == []
    assert signal.getsignal(signal.SIGINT) is found
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_a_run_that_was_left_halfway_does_not_keep_the_interrupts_of_the_next_plan(ctrl_c: Any) -> None:
    left, plan = ppo(workers(1), FakeLearner()), ppo(workers(1), FakeLearner())
    halfway = left.run()
    next(halfway)  # and the iterator is kept
    running = plan.run()
    next(running)
    signal.raise_signal(signal.SIGINT)
    assert plan.stopped
    assert left.stopped
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    assert list(running) == list(halfway) == []
    assert signal.getsignal(signal.SIGINT) is ctrl_c


def test_plans_whose_runs_overlap_are_let_go_when_they_have_ended(ctrl_c: Any) -> None:
    """The handler of each was there when the next one began: they are no chain that grows."""
    plans, halfway = [], None
    for _ in range(6):
        plan = ppo(workers(1), FakeLearner())
        newer = plan.run()
        next(newer)
        halfway = newer  # only now does the run before it end
        plans.append(weakref.ref(plan))
    del plan, newer
    gc.collect()
    kept = [reference() is not None for reference in plans]
    assert sum(kept) <= 2, kept
    assert kept[-1]
    assert halfway is not None
    halfway.close()
    assert signal.getsignal(signal.SIGINT) is ctrl_c


@pytest.mark.parametrize("closed", [False, True])
def test_a_run_that_was_left_halfway_leaves_newer_handlers_alone(closed: bool, ctrl_c: Any) -> None:
    left, plan = ppo(workers(1), FakeLearner()), ppo(workers(1), FakeLearner())
    halfway = left.run()
    next(halfway)
    if closed:
        left.close()
    running = plan.run()
    next(running)
    halfway.close()  # as when it is collected at last
    signal.raise_signal(signal.SIGINT)
    assert plan.stopped
    assert list(running) == []
    assert signal.getsignal(signal.SIGINT) is ctrl_c


@pytest.mark.usefixtures("ctrl_c")
def test_a_stopped_plan_does_not_swallow_an_interrupt() -> None:
    left = ppo(workers(1), FakeLearner())
    halfway = left.run()
    next(halfway)
    left.close()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_an_outer_plan_gets_its_interrupts_back_when_an_inner_one_ends(ctrl_c: Any) -> None:
    outer, inner = ppo(workers(1), FakeLearner()), ppo(workers(1), FakeLearner())
    running = outer.run()
    next(running)
    list(inner.run(until=lambda counters: counters.env_steps_sampled >= 8))
    signal.raise_signal(signal.SIGINT)
    assert outer.stopped
    assert not inner.stopped
    assert list(running) == []
    assert signal.getsignal(signal.SIGINT) is ctrl_c


def test_a_handler_of_the_programs_own_is_left_alone() -> None:
    def own(number: int, frame: Any) -> None:
        pass

    before = signal.signal(signal.SIGINT, own)
    try:
        next(ppo(workers(1), FakeLearner()).run())
        assert signal.getsignal(signal.SIGINT) is own
    finally:
        signal.signal(signal.SIGINT, before)


def test_leaving_a_run_early_gives_ctrl_c_back(ctrl_c: Any) -> None:
    for _ in ppo(workers(1), FakeLearner()).run():
        assert signal.getsignal(signal.SIGINT) is not ctrl_c
        break
    assert signal.getsignal(signal.SIGINT) is ctrl_c


def test_closing_ends_the_actors_and_the_plan() -> None:
    group = workers(2)
    with ppo(group, FakeLearner()) as plan:
        plan.pull()
    with pytest.raises(PlanError, match="was stopped"):
        next(plan.run())
    assert plan.counters.env_steps_sampled == 8


def test_a_plan_is_started_once() -> None:
    plan = ppo(workers(1), FakeLearner()).start()
    with pytest.raises(PlanError, match="started once"):
        plan.start()


# -- failures -----------------------------------------------------------------------------------------------------


class Unlucky(FakeWorker):
    """Fails at its third item."""

    def sample(self) -> SampleBatch:
        if self.made == 2:
            raise ZeroDivisionError("the environment broke")
        return super().sample()


def test_a_failing_worker_is_named_with_actor_item_and_cause(start: Start) -> None:
    plan = start(ReportMetrics(ParallelRollouts([FakeWorker(0), Unlucky(1)]).gather_sync()))
    with pytest.raises(PlanError) as caught:
        for _ in plan.run():
            pass
    assert "operator 'parallel_rollouts' failed: ZeroDivisionError: the environment broke" in str(caught.value)
    assert "item parallel_rollouts/1#2" in str(caught.value)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert caught.value.__cause__.__traceback__ is not None


def fail_at_eight(batch: SampleBatch) -> SampleBatch:
    if step_of(batch) == 8:
        raise ValueError("eight\nmore about eight")
    return batch


@pytest.mark.parametrize("place", ["driver", "sources"])
def test_a_failing_operator_is_named_with_item_and_cause(start: Start, place: str) -> None:
    stream = ParallelRollouts(workers(2))
    stream = (
        stream.gather_async().for_each(fail_at_eight)
        if place == "driver"
        else stream.par_for_each(fail_at_eight).gather_async()
    )
    plan = start(ReportMetrics(stream))
    with pytest.raises(PlanError, match=r"operator 'fail_at_eight' failed: ValueError: eight\n") as caught:
        for _ in plan.run():
            pass
    assert "item parallel_rollouts/0#2" in str(caught.value)
    assert isinstance(caught.value.__cause__, ValueError)


def test_a_merged_item_that_fails_lists_what_it_was_made_of() -> None:
    plan = ReportMetrics(ParallelRollouts(workers(2)).gather_sync().concat(8).for_each(lambda batch: 1 / 0))
    with pytest.raises(PlanError, match=r"item concat_batches#0 .*parallel_rollouts/0#0, parallel_rollouts/1#0"):
        plan.pull()


@pytest.mark.parametrize("broken", ["insert", "sample", "update", "get_weights", "set_weights"])
def test_every_object_that_fails_is_named_by_its_operator(broken: str) -> None:
    def fail(*arguments: Any) -> Any:
        raise OSError("broken")

    memory, learner, group = FakeMemory(), FakeLearner(), workers(1)
    store = ParallelRollouts(group).gather_sync().for_each(StoreToBuffer(memory))
    train = Replay(memory).for_each(TrainOneStep(learner, group))
    plan = ReportMetrics(Union(store, train)).start()
    owner: Any = {"insert": memory, "sample": memory, "set_weights": group[0]}.get(broken, learner)
    setattr(owner, broken, fail)
    operator = {"insert": "store_to_buffer", "sample": "replay", "update": "train_one_step"}.get(
        broken, "weights for parallel_rollouts"
    )
    with pytest.raises(PlanError, match=f"operator '{operator}' failed: OSError: broken") as caught:
        for _ in plan.run():
            pass
    assert isinstance(caught.value.__cause__, OSError)


def test_a_failure_while_flushing_is_named() -> None:
    class Numbers(FakeWorker):
        def sample(self):  # type: ignore[no-untyped-def, override]
            super().sample()
            return self.made

    plan = ReportMetrics(ParallelRollouts([Numbers(items=1)]).gather_sync().concat(8))
    with pytest.raises(PlanError, match=r"'concat_batches' failed: AttributeError(?s:.*)item end of stream#1"):
        plan.pull()


def test_a_plan_that_has_failed_does_not_go_on() -> None:
    plan = ReportMetrics(ParallelRollouts([Unlucky()]).gather_sync())
    with pytest.raises(PlanError, match="the environment broke"):
        list(plan.run())
    with pytest.raises(PlanError, match="has failed before"):
        plan.step()
