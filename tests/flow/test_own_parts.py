"""What users bring along: operators that report, functions that break their promises, learners that diverge, actors
that are no workers of reinforcement learning, sources that are not part of the training."""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import Any, NamedTuple, TypedDict

import numpy as np
import pytest

from rlweave.errors import PlanError
from rlweave.flow import (
    FakeClock,
    LearnerActor,
    Operator,
    ParallelRollouts,
    ReportMetrics,
    SampleBatch,
    TrainOneStep,
    Union,
    UpdateWeights,
    WorkerGroup,
)
from rlweave.flow.item_types import is_a
from tests.flow.conftest import Start
from tests.flow.fake_cluster import SimulatedCluster
from tests.flow.fakes import FakeLearner, FakeWorker, workers

# -- metrics --------------------------------------------------------------------------------------------------------


class FirstStep(Operator):
    """Reports where its batches begin."""

    def __call__(self, batch: SampleBatch) -> SampleBatch:
        self.report(first=batch["step"][0], rows=np.float32(batch.num_steps))
        return batch


def test_an_operator_of_ones_own_reports_metrics_under_its_name(start: Start) -> None:
    plan = start(ReportMetrics(ParallelRollouts(workers(1)).gather_sync().for_each(FirstStep()).named("look")))
    list(islice(plan.items(), 3))
    assert plan.report().metrics == {"look/first": 4.0, "look/rows": 4.0}, "means of what was told"
    assert plan.report().metrics == {}, "since the last report"
    list(islice(plan.items(), 1))
    assert plan.report().flat()["look/first"] == 12.0


def operator_with(**attributes: Any) -> Operator:
    """An operator with a state, and attributes that its ``__init__`` sets."""

    class Own(Operator):
        state = attributes.pop("state", ("count",))

        def __init__(self) -> None:
            self.count, self._hidden = 0, 0
            vars(self).update(attributes)

        def __call__(self, batch: SampleBatch) -> SampleBatch:
            return batch

    return Own()


@pytest.mark.parametrize(
    ("state", "problem"),
    [
        (("cuont",), "cannot keep 'cuont'.*class Own.*received: state = .'cuont',..*mean 'count'.*__init__"),
        ("count", r"is a tuple of names.*class Own.*received: state = 'count'.*write state = .\"count\",."),
    ],
)
@pytest.mark.parametrize("at_workers", [False, True])
def test_a_state_that_names_no_attribute_is_refused_before_the_plan_runs(
    state: Any, problem: str, at_workers: bool
) -> None:
    rollouts = ParallelRollouts(workers(1))
    operator = operator_with(state=state)
    items = rollouts.par_for_each(operator).gather_sync() if at_workers else rollouts.gather_sync().for_each(operator)
    with pytest.raises(PlanError, match=f"(?s){problem}"):
        ReportMetrics(items)


@pytest.mark.parametrize("name", ["timer", "name", "order", "gates", "take", "_context", "report", "start", "progress"])
def test_an_attribute_of_every_operator_cannot_be_set_by_one_of_them(name: str) -> None:
    items = ParallelRollouts(workers(1)).gather_sync()
    with pytest.raises(PlanError, match=f"(?s){name}' of an operator is taken.*'own', class Own.*self.{name} =.*own_"):
        items.for_each(operator_with(**{name: 0}))


def test_metrics_of_an_operator_go_on_from_a_checkpoint() -> None:
    def plan() -> ReportMetrics:
        return ReportMetrics(ParallelRollouts(workers(1)).gather_sync().for_each(FirstStep()))

    cut = plan()
    list(islice(cut.items(), 3))
    resumed = plan()
    resumed.load_state_dict(cut.state_dict())
    assert resumed.report().metrics["first_step/first"] == 4.0


def test_where_nothing_can_be_reported_the_error_says_what_to_do(start: Start) -> None:
    plan = start(ReportMetrics(ParallelRollouts(workers(1)).par_for_each(FirstStep()).gather_sync()))
    with pytest.raises(PlanError, match="first_step") as failed:
        list(islice(plan.items(), 1))
    assert "report them in for_each behind the gather" in str(failed.value.__cause__)
    with pytest.raises(PlanError, match="in a plan that runs"):
        FirstStep()(FakeWorker().sample())


# -- promises that are not kept -------------------------------------------------------------------------------------


def says_text(batch: SampleBatch) -> str:
    return batch.num_steps  # type: ignore[return-value]


def forgets(batch: SampleBatch) -> SampleBatch:
    batch["step"][:] = 0  # type: ignore[return]


class Later(Operator):
    """Keeps its promise for two items."""

    made = 0

    def __call__(self, batch: SampleBatch) -> SampleBatch:
        self.made += 1
        return batch if self.made < 3 else [batch]  # type: ignore[return-value]


class Deceiving(FakeWorker):
    def sample(self) -> SampleBatch:
        return {"worker": np.zeros(3)}  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("operator", "said"),
    [
        (says_text, "'says_text' failed: TypeError: gave int, where the annotation says str"),
        (forgets, "'forgets' failed: TypeError: gave None, where the annotation says SampleBatch"),
        (Later, "'later' failed: TypeError: gave list, where the annotation says SampleBatch"),
    ],
)
def test_a_result_that_is_not_what_the_annotation_says_is_an_error(start: Start, operator: Any, said: str) -> None:
    own = [operator() if operator is Later else operator for _ in range(2)]
    rollouts = ParallelRollouts(workers(1)), ParallelRollouts(workers(1))
    for stream in rollouts[0].gather_sync().for_each(own[0]), rollouts[1].par_for_each(own[1]).gather_async():
        with pytest.raises(PlanError, match=said) as failed:
            list(islice(start(ReportMetrics(stream)).items(), 4))
        assert "parallel_rollouts/0#" in str(failed.value), "which item"


@pytest.mark.parametrize("mode", ["gather_sync", "gather_async"])
def test_a_worker_that_makes_something_else_than_it_says_is_named(start: Start, mode: str) -> None:
    plan = start(ReportMetrics(getattr(ParallelRollouts([Deceiving()]), mode)()))
    with pytest.raises(PlanError, match="'parallel_rollouts' failed: TypeError: gave dict.*says SampleBatch"):
        next(plan.items())


def test_a_result_of_the_wrong_type_can_be_skipped_as_other_failures() -> None:
    def sometimes(batch: SampleBatch) -> SampleBatch:
        return None if batch["step"][0] % 8 else batch  # type: ignore[return-value]

    plan = ReportMetrics(ParallelRollouts(workers(1)).gather_sync().for_each(sometimes).on_error("skip"))
    assert [int(item.payload["step"][0]) for item in islice(plan.items(), 3)] == [0, 8, 16]
    assert plan.counters.failures == {"sometimes": 2}


class Pair(NamedTuple):
    left: int


class Facts(TypedDict):
    left: int


@pytest.mark.parametrize(
    ("value", "item_type"),
    [
        ([1], list[str]), ({}, dict[str, int]), (None, int | None), (Pair(1), tuple), ({"left": 1}, Facts),
        (np.float32(1), float), (np.array(1), int), (1, float), (FakeWorker(), Any), (None, None),
        (FakeWorker().sample(), SampleBatch), (FakeWorker, type), ((1, 2), tuple[int, ...]),
    ],
)  # fmt: skip
def test_what_may_be_right_is_right(value: Any, item_type: Any) -> None:
    assert is_a(value, item_type)


def test_a_learner_that_gives_no_metrics_is_named() -> None:
    class Mute(FakeLearner):
        def update(self, batch: SampleBatch) -> None:  # type: ignore[override]
            pass

    plan = ReportMetrics(ParallelRollouts(workers(1)).gather_sync().for_each(TrainOneStep(Mute())))
    with pytest.raises(PlanError, match=r"'train_one_step' failed: TypeError: update\(\) gave NoneType"):
        plan.pull()


# -- training that diverges -----------------------------------------------------------------------------------------


class OnDevice:
    """A number that has to be fetched."""

    def __init__(self, value: float) -> None:
        self.value = value

    def __float__(self) -> float:
        return self.value


class Diverging(FakeLearner):
    """Its loss is no number from the third update on."""

    def __init__(self, kind: Any = float, value: float = float("nan")) -> None:
        super().__init__()
        self.kind, self.value = kind, value

    def update(self, batch: SampleBatch) -> dict[str, Any]:
        super().update(batch)
        return {"loss": self.kind(self.value if self.updates >= 3 else 1.0)}


@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_stops_the_plan_at_once(start: Start, value: float, elsewhere: bool) -> None:
    learner: Any = LearnerActor(partial(Diverging, float, value)) if elsewhere else Diverging(float, value)
    plan = start(ReportMetrics(ParallelRollouts(workers(1)).gather_sync().for_each(TrainOneStep(learner))))
    with pytest.raises(PlanError, match="'train_one_step' failed: PlanError: training has diverged") as failed:
        list(islice(plan.items(), 10))
    assert f"loss = {value}" in str(failed.value.__cause__)
    assert plan.counters.items == 2


def test_one_on_a_device_is_found_when_it_is_read() -> None:
    plan = ReportMetrics(ParallelRollouts(workers(1)).gather_sync().for_each(TrainOneStep(Diverging(OnDevice))))
    with pytest.raises(PlanError, match="training has diverged"):
        list(islice(plan.items(), 200))
    assert plan.counters.updates < 100
    plan = ReportMetrics(ParallelRollouts(workers(1)).gather_sync().for_each(TrainOneStep(Diverging(OnDevice))))
    with pytest.raises(PlanError, match=r"(?s)training has diverged.*'train_one_step'.*loss = nan"):
        for _ in plan.run():
            pass


# -- actors that are no workers of reinforcement learning ------------------------------------------------------------


class Reader:
    """Makes texts."""

    def __init__(self, lines: int = 3) -> None:
        self.lines = lines

    def sample(self) -> str:
        if not self.lines:
            raise StopIteration
        self.lines -= 1
        return "line"


@pytest.mark.parametrize("engine", ["in this process", "elsewhere"])
def test_an_actor_needs_only_what_the_plan_asks_of_it(engine: str) -> None:
    readers: Any = [Reader(), Reader(2)] if engine == "in this process" else WorkerGroup([Reader, partial(Reader, 2)])
    stream = ParallelRollouts(readers).par_for_each(len).gather_sync().for_each(lambda length: length + 1)
    plan = ReportMetrics(stream)
    if engine == "elsewhere":
        clock = FakeClock()
        plan.start(SimulatedCluster(clock, lambda actor, method: 1.0), clock)
    assert [item.payload for item in plan.items()] == [5] * 5
    report = plan.report()
    assert report.episode_return is None
    state = plan.state_dict()
    assert state["operators"]["parallel_rollouts"]["timer"]["items"] == 5


def test_an_actor_that_is_no_worker_can_be_replaced() -> None:
    made: list[Reader] = []

    class Failing(Reader):
        def sample(self) -> str:
            if len(made) == 1 and self.lines == 2:
                raise ConnectionError("gone")
            return super().sample()

    def make() -> Failing:
        made.append(Failing())
        return made[-1]

    rollouts = ParallelRollouts(WorkerGroup([make])).on_error("replace", first_delay=0.0, longest_delay=0.0)
    assert len(list(ReportMetrics(rollouts.gather_async()).items())) == 1 + 3


# -- sources that do not count ---------------------------------------------------------------------------------------


def evaluating(start: Start, mode: str) -> tuple[ReportMetrics, list[FakeWorker]]:
    group, judges, learner = workers(2), [FakeWorker(9, steps=100)], FakeLearner()
    train = ParallelRollouts(group).gather_async().for_each(TrainOneStep(learner, group))
    judged = getattr(ParallelRollouts(judges, counts=False), mode)().for_each(UpdateWeights(learner, judges))
    return start(ReportMetrics(Union(train, judged, weights=[1, 0.25], output=0), group)), judges


@pytest.mark.parametrize("mode", ["gather_sync", "gather_async"])
def test_a_source_that_evaluates_is_not_counted_as_training(start: Start, mode: str) -> None:
    plan, judges = evaluating(start, mode)
    for _ in plan.run(until=lambda counters: counters.updates >= 40):
        pass
    report = plan.report()
    assert report.env_steps_sampled == 4 * 40 == report.trained_samples
    assert report.replay_ratio == 1.0
    assert report.train_lag == report.gather_lag
    assert sum(report.gather_lag.values()) == 40
    assert report.episodes_finished in (40, 41, 42), "of the training's workers alone, what they have ahead included"
    assert report.episode_length == 4.0
    assert judges[0].made >= 3
    assert judges[0].received == sorted(set(judges[0].received)), "it gets newer weights with each of its items"
    assert judges[0].received[-1] > 10
    assert "counts=False" in plan.explain()


@pytest.mark.parametrize("place", ["here", "actor"])
def test_evaluation_beside_training_holds_nobody_up(place: str) -> None:
    """The judge takes ten times as long as a worker: training goes on meanwhile, and its items come when they come."""
    clock = FakeClock()
    seconds = {FakeWorker: 1.0}
    group, judge = WorkerGroup([FakeWorker] * 2), FakeWorker(9, 100)
    judges = WorkerGroup([lambda: judge])
    learner: Any = FakeLearner() if place == "here" else LearnerActor(FakeLearner)
    train = ParallelRollouts(group).gather_async().for_each(TrainOneStep(learner, group))
    judged = ParallelRollouts(judges, counts=False).gather_async().for_each(UpdateWeights(learner, judges))

    def takes(actor: Any, method: str) -> float:
        return 0.0 if method != "next_items" else 10.0 if actor.worker.number == 9 else seconds[FakeWorker]

    plan = ReportMetrics(Union(train, judged, output=0), group).start(SimulatedCluster(clock, takes), clock)
    list(islice(plan.items(), 100))
    assert clock.now() == pytest.approx(50.0, abs=2.0), "two workers, a second per item"
    assert plan.counters.env_steps_sampled == 400
    assert plan.report().operator_items["union"] in (100 + 4, 100 + 5)
    assert judge.received == sorted(set(judge.received)), "newer weights with each item"
    assert judge.received[-1] > 60


def test_weights_of_a_learner_that_nobody_trains_are_refused() -> None:
    group = workers(1)
    with pytest.raises(PlanError, match="does not live in this plan"):
        ReportMetrics(ParallelRollouts(group).gather_sync().for_each(UpdateWeights(LearnerActor(FakeLearner), group)))
