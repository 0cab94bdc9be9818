"""A learner in an actor of its own: the driver goes on while it trains, and weights do not pass through it."""

from itertools import islice

import pytest

from rlweave.errors import PlanError
from rlweave.flow import (
    NOT_READY,
    FakeClock,
    LearnerActor,
    LocalEngine,
    ParallelRollouts,
    ReportMetrics,
    Resources,
    TrainOneStep,
    WorkerGroup,
)
from tests.flow.conftest import Start
from tests.flow.fakes import FakeLearner, FakeWorker, SimulatedEngine, workers


def test_it_trains_and_its_weights_reach_the_workers(start: Start) -> None:
    group = workers(2)
    train = ParallelRollouts(group).gather_sync().for_each(TrainOneStep(LearnerActor(FakeLearner), group))
    plan = start(ReportMetrics(train, group))
    versions = [item.payload.version for item in islice(plan.items(), 6)]
    assert versions == [1, 2, 3, 4, 5, 6]
    assert group[0].received == [0, 2, 4]
    assert plan.report().train_lag == {0: 3, 1: 3}
    assert plan.counters.trained_samples == 6 * 4


def test_a_queue_keeps_the_rollouts_moving_while_it_trains() -> None:
    group = workers(1)
    clock = FakeClock()
    engine = SimulatedEngine(clock, lambda index: 1.0 if index == 0 else 5.0)
    queued = ParallelRollouts(group).gather_async().queue(3, "drop_oldest")
    plan = ReportMetrics(queued.for_each(TrainOneStep(LearnerActor(FakeLearner), group)), group).start(engine, clock)
    assert [item.payload.version for item in islice(plan.items(), 3)] == [1, 2, 3]
    assert clock.now() == pytest.approx(16.0), "one second for the first item, then updates without a pause"
    assert plan.counters.env_steps_sampled >= 15 * 4
    assert plan.counters.drops["queue"] > 0


def test_an_update_on_its_way_is_finished_for_a_checkpoint() -> None:
    def compose() -> tuple[ReportMetrics, SimulatedEngine]:
        clock, group = FakeClock(), workers(1)
        engine = SimulatedEngine(clock, lambda index: 1.0 if index == 0 else 5.0)
        train = ParallelRollouts(group).gather_async().for_each(TrainOneStep(LearnerActor(FakeLearner), group))
        return ReportMetrics(train, group).start(engine, clock), engine

    plan, _ = compose()
    while plan.step() is NOT_READY and not plan.graph.nodes[2].state_dict()["finished"]:
        plan.wait()
        working = plan.graph.nodes[2]._working  # type: ignore[attr-defined]
        if working is not None:
            break
    state = plan.state_dict()
    assert plan.counters.updates == 1
    resumed, _ = compose()
    resumed.load_state_dict(state)
    assert resumed.pull().payload.version == 1  # type: ignore[union-attr]
    assert next(resumed.items()).payload.version == 2


class Broken(FakeLearner):
    """Fails at its second update."""

    def update(self, batch: object) -> dict[str, float]:
        if self.updates == 1:
            raise ArithmeticError("diverged")
        self.updates += 1
        return {}


def test_its_failure_names_operator_and_item(start: Start) -> None:
    group = workers(2)
    train = ParallelRollouts(group).gather_sync().for_each(TrainOneStep(LearnerActor(Broken), group))
    plan = start(ReportMetrics(train, group))
    with pytest.raises(PlanError, match="operator 'train_one_step' failed: ArithmeticError: diverged") as caught:
        list(plan.items())
    assert "parallel_rollouts/1#0" in str(caught.value)
    assert isinstance(caught.value.__cause__, ArithmeticError)


def test_a_hanging_learner_is_an_error() -> None:
    group, clock = workers(1), FakeClock()
    engine = SimulatedEngine(clock, lambda index: 1.0 if index == 0 else 1e9)
    train = ParallelRollouts(group).gather_sync().for_each(TrainOneStep(LearnerActor(FakeLearner), group))
    plan = ReportMetrics(train.on_error("stop", timeout=20.0), group).start(engine, clock)
    with pytest.raises(PlanError, match="did not answer for 20 seconds"):
        list(plan.items())
    assert clock.now() == pytest.approx(21.0, abs=2.0)


def test_what_a_learner_actor_takes_is_checked() -> None:
    with pytest.raises(PlanError, match="makes its learner itself"):
        LearnerActor(FakeLearner())  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="needs a Learner"):
        LearnerActor(FakeWorker)  # type: ignore[arg-type]


def test_more_than_there_is_is_refused_with_the_sum_before_anything_is_made() -> None:
    made = []

    def make() -> FakeWorker:
        made.append(FakeWorker())
        return made[-1]

    group = WorkerGroup([make] * 3, Resources(cpus=0.5))
    learner = LearnerActor(FakeLearner, Resources(cpus=1, gpus=1))
    train = ParallelRollouts(group).gather_sync().for_each(TrainOneStep(learner, group))
    plan = ReportMetrics(train, group)
    clock = FakeClock()
    engine = SimulatedEngine(clock)
    engine.resources = {"CPU": 2.0, "memory": 1e9}
    with pytest.raises(PlanError, match="the plan needs more than there is") as caught:
        plan.start(engine, clock)
    assert "2.5 CPU, 1 GPU in all; there is 2 CPU, 0 GPU" in str(caught.value)
    assert "3 x (0.5 CPU, 0 GPU) of 'parallel_rollouts' and 1 x (1 CPU, 1 GPU) of 'train_one_step'" in str(caught.value)
    assert made == []
    engine.resources = {"CPU": 2.5, "GPU": 1.0}
    assert plan.start(engine, clock).counters.items == 0
    assert len(made) == 3
    unlimited = ReportMetrics(ParallelRollouts(WorkerGroup([make] * 99)).gather_sync())
    assert unlimited.start(LocalEngine(), clock) is unlimited, "workers that take turns need nothing"
