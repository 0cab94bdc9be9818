"""A learner in an actor of its own: the driver goes on while it trains, and weights do not pass through it."""

from __future__ import annotations

from itertools import islice
from typing import Any, ClassVar

import numpy as np
import pytest

from rlweave.errors import PlanError
from rlweave.flow import (
    NOT_READY,
    ConcatBatches,
    FakeClock,
    LearnerActor,
    LocalEngine,
    ParallelRollouts,
    ReportMetrics,
    Resources,
    TrainOneStep,
    WorkerGroup,
)
from rlweave.flow.engine import ArgumentFailed, LocalCall
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


@pytest.mark.parametrize("min_steps", [4, 8])
def test_it_gets_items_from_their_makers(min_steps: int, start: Start) -> None:
    """A batch of one item stays a reference; one of several is joined here. The learner trains on the same rows."""

    def trained(by_reference: bool) -> list[Any]:
        seen: list[Any] = []

        class Sees(FakeLearner):
            def update(self, batch: Any) -> Any:
                seen.append({name: np.array(column) for name, column in batch.data.items()})
                return super().update(batch)

        group = workers(2)
        items = ParallelRollouts(group).gather_async(by_reference=by_reference).for_each(ConcatBatches(min_steps))
        plan = start(ReportMetrics(items.for_each(TrainOneStep(LearnerActor(Sees), group)), group))
        assert [item.payload.num_steps for item in islice(plan.items(), 4)] == [min_steps] * 4
        assert plan.counters.trained_samples == 4 * min_steps
        return seen

    for here, apart in zip(trained(False), trained(True), strict=True):
        assert here.keys() == apart.keys()
        for name, column in here.items():
            np.testing.assert_array_equal(apart[name], column)


class LosesArguments(LocalEngine):
    """The items of some calls are lost with the machine of their worker."""

    updates = 0

    def call(self, actor: Any, method: str, *arguments: Any) -> Any:
        if method == "update":
            self.updates += 1
            if self.updates in (2, 3):
                return LocalCall(None, ArgumentFailed("an argument is lost"))
        return super().call(actor, method, *arguments)


def test_an_item_that_is_lost_with_its_worker_is_counted_and_the_learner_is_not_blamed() -> None:
    group = workers(1)
    items = ParallelRollouts(group).gather_async(by_reference=True)
    plan = ReportMetrics(items.for_each(TrainOneStep(LearnerActor(FakeLearner), group)), group)
    plan = plan.start(LosesArguments(), FakeClock())
    assert [item.payload.version for item in islice(plan.items(), 3)] == [1, 2, 3]
    assert plan.counters.lost_items == {"train_one_step": 2}
    assert plan.counters.env_steps_sampled == plan.counters.trained_samples + 2 * 4
    assert not plan.counters.failures


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


def test_an_update_on_its_way_is_part_of_a_checkpoint() -> None:
    def compose() -> tuple[ReportMetrics, SimulatedEngine]:
        clock, group = FakeClock(), workers(1)
        engine = SimulatedEngine(clock, lambda index: 1.0 if index == 0 else 5.0)
        train = ParallelRollouts(group).gather_async().for_each(TrainOneStep(LearnerActor(FakeLearner), group))
        return ReportMetrics(train, group).start(engine, clock), engine

    plan, _ = compose()
    while plan.step() is NOT_READY and not plan.graph.nodes[2].state_dict()["at_actor"]["finished"]["state"]:
        plan.wait()
        working = plan.graph.nodes[2]._at_actor.working  # type: ignore[attr-defined]
        if working is not None:
            break
    state = plan.state_dict()
    assert plan.counters.updates == 0, "it is taken by who goes on"
    assert not plan.report().train_lag
    resumed, _ = compose()
    resumed.load_state_dict(state)
    assert resumed.pull().payload.version == 1  # type: ignore[union-attr]
    assert resumed.report().train_lag == {0: 1}
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


class Restorable(FakeLearner):
    """Its state is its number of updates; dies, raises or hangs at some update, unless it has been made anew."""

    made: ClassVar[list[Restorable]] = []
    fails_at: ClassVar[dict[int, int]] = {}
    """Update at which the n-th one made raises."""

    def __init__(self) -> None:
        super().__init__()
        self.number = len(self.made)
        self.made.append(self)

    def update(self, batch: object) -> dict[str, Any]:
        if self.fails_at.get(self.number) == self.updates + 1:
            raise ArithmeticError("diverged")
        return super().update(batch)  # type: ignore[arg-type]

    def state_dict(self) -> dict[str, int]:
        return {"updates": self.updates}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.updates = state["updates"]


def restorable(fails_at: dict[int, int], save_every: int = 4) -> LearnerActor:
    Restorable.made, Restorable.fails_at = [], fails_at
    return LearnerActor(Restorable, save_every=save_every)


def test_it_is_made_anew_in_place_and_what_was_lost_is_counted(start: Start) -> None:
    group = workers(2)
    train = ParallelRollouts(group).gather_sync().for_each(TrainOneStep(restorable({0: 11}), group))
    plan = start(ReportMetrics(train.on_error("replace", first_delay=0.5), group))
    stats = [item.payload for item in islice(plan.items(), 14)]
    first, second = Restorable.made
    assert first.updates == 10
    assert second.updates == 8 + 4, "it went on from the snapshot after update 8"
    assert [each.version for each in stats] == [*range(1, 11), 12, 13, 14, 15], "being made anew is a version"
    counters = plan.counters
    assert counters.updates == 14
    assert counters.failures == counters.replacements == {"train_one_step": 1}
    assert counters.lost_items == {"train_one_step": 1}, "the item that it failed on"
    assert counters.lost_updates == {"train_one_step": 2}
    assert counters.env_steps_sampled in (15 * 4, 16 * 4), "a round has two items"
    assert group[0].version in (10, 11), "workers act on the weights of the one that lives"
    assert plan.report().measures["train_one_step/recovery_seconds"] >= 0.5


def test_workers_go_on_with_the_weights_they_have_until_it_is_there() -> None:
    group, clock = workers(1), FakeClock()
    engine = SimulatedEngine(clock, lambda index: 1.0)
    queued = ParallelRollouts(group).gather_async().queue(2, "drop_oldest")
    train = queued.for_each(TrainOneStep(restorable({}), group))
    plan = ReportMetrics(train.on_error("replace", first_delay=8.0, longest_delay=8.0), group).start(engine, clock)
    items = plan.items()
    for _ in range(6):
        next(items)
    before = plan.counters.env_steps_sampled
    engine.crash(plan._context.learner(train.port.node.trains).actor)  # type: ignore[union-attr,attr-defined]
    for _ in range(4):
        next(items)
    assert plan.counters.replacements == {"train_one_step": 1}
    assert plan.counters.env_steps_sampled - before >= 8 * 4, "rollouts went on in the meantime"
    assert plan.counters.replacements.keys() == {"train_one_step"}, "no worker is blamed"
    assert plan.counters.failures == {"train_one_step": 1}


def test_one_that_hangs_is_made_anew() -> None:
    group, clock = workers(1), FakeClock()
    engine = SimulatedEngine(clock, lambda index: 1e9 if index == 1 else 1.0)  # the worker is 0, the first learner 1
    train = ParallelRollouts(group).gather_async().for_each(TrainOneStep(restorable({}), group))
    plan = ReportMetrics(train.on_error("replace", timeout=20.0, first_delay=0.5), group).start(engine, clock)
    assert [item.payload.version for item in islice(plan.items(), 2)] == [2, 3]
    assert plan.counters.replacements == {"train_one_step": 1}
    assert plan.counters.lost_items == {"train_one_step": 1}


def test_a_checkpoint_waits_until_it_is_there_again(start: Start) -> None:
    group = workers(1)
    train = ParallelRollouts(group).gather_sync().for_each(TrainOneStep(restorable({0: 6}), group))
    plan = start(ReportMetrics(train.on_error("replace", first_delay=0.5), group))
    while not plan.counters.failures:
        if plan.step() is NOT_READY:
            plan.wait()
    state = plan.state_dict()
    assert state["counters"]["replacements"] == {"train_one_step": 1}
    assert state["counters"]["lost_updates"] == {"train_one_step": 1}
    assert len(Restorable.made) == 2


def test_one_that_fails_again_and_again_stops_the_plan(start: Start) -> None:
    group = workers(1)
    train = ParallelRollouts(group).gather_sync().for_each(TrainOneStep(restorable(dict.fromkeys(range(9), 3)), group))
    plan = start(ReportMetrics(train.on_error("replace", attempts=3, first_delay=0.01), group))
    with pytest.raises(PlanError, match="ArithmeticError: diverged"):
        list(plan.items())
    assert len(Restorable.made) == 3
    assert plan.counters.failures == {"train_one_step": 2}, "that the plan went on after"


def test_one_without_a_state_cannot_be_made_anew() -> None:
    group = workers(1)
    train = ParallelRollouts(group).gather_sync().for_each(TrainOneStep(LearnerActor(FakeLearner), group))
    with pytest.raises(PlanError, match=r"lacks state_dict\(\), load_state_dict\(\)"):
        ReportMetrics(train.on_error("replace"), group)


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
    with pytest.raises(PlanError, match="the plan needs more resources than the engine has") as caught:
        plan.start(engine, clock)
    assert "2.5 CPU, 1 GPU in all; there is 2 CPU, 0 GPU" in str(caught.value)
    assert "3 x (0.5 CPU, 0 GPU) of 'parallel_rollouts' and 1 x (1 CPU, 1 GPU) of 'train_one_step'" in str(caught.value)
    assert made == []
    engine.resources = {"CPU": 2.5, "GPU": 1.0}
    assert plan.start(engine, clock).counters.items == 0
    assert len(made) == 3
    unlimited = ReportMetrics(ParallelRollouts(WorkerGroup([make] * 99)).gather_sync())
    assert unlimited.start(LocalEngine(), clock) is unlimited, "workers that take turns need nothing"
