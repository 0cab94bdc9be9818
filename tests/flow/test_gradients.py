"""Gradients through plans: computed at workers or a learner, averaged by samples, applied; exact numbers of each."""

from __future__ import annotations

import copy
from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np
import pytest

from rlweave.errors import ConfigError, PlanError
from rlweave.flow import (
    ApplyGradients,
    AverageGradients,
    ComputeGradients,
    Envelope,
    FakeClock,
    Gradients,
    LearnerActor,
    LocalEngine,
    ParallelRollouts,
    ReportMetrics,
    SampleBatch,
    TrainOneStep,
    TrainStats,
    Workers,
)
from rlweave.flow.gradients import parts_of
from tests.flow.conftest import Start
from tests.flow.fakes import FakeLearner, FakeWorker, SimulatedEngine, workers
from tests.flow.test_checkpoint import through_json, trail


class Computing(FakeWorker):
    """Its gradient is made of the weight it has, its number, and the first of its steps: none is like another."""

    def compute_gradients(self, batch: SampleBatch) -> Gradients:
        number, step = float(self.number), float(batch["step"][0])
        return Gradients({"w": np.array([self.version, number, step])}, batch.num_steps, {"loss": step})


class Descending(FakeLearner):
    """Its weight is the number of steps taken; what it was given is kept."""

    def __init__(self) -> None:
        super().__init__()
        self.given: list[list[float]] = []
        self.parts: list[SampleBatch] = []

    def compute_gradients(self, batch: SampleBatch) -> Gradients:
        self.parts.append(batch)
        return Gradients({"w": np.array([batch["step"].mean()])}, batch.num_steps, {"loss": batch["step"].mean()})

    def apply_gradients(self, gradients: Gradients) -> dict[str, Any]:
        self.updates += 1
        self.given.append(gradients.values["w"].tolist())
        return {"norm": float(np.abs(gradients.values["w"]).max())}


def computing(n: int, steps: int = 4, items: int | None = None) -> list[Computing]:
    return [Computing(number, steps, items) for number in range(n)]


def a3c(workers: Workers, learner: Descending, max_lag: int | None = None) -> ReportMetrics:
    """RLlib Flow's listing; the learner is named."""
    grads = ParallelRollouts(workers).par_for_each(ComputeGradients()).gather_async(max_lag=max_lag)
    return ReportMetrics(grads.for_each(ApplyGradients(learner, workers)), workers)


def a2c(workers: list[Computing], learner: Descending) -> ReportMetrics:
    grads = ParallelRollouts(workers).par_for_each(ComputeGradients()).gather_sync()
    average = grads.batch_rounds().for_each(AverageGradients())
    return ReportMetrics(average.for_each(ApplyGradients(learner, workers)), workers)


@pytest.mark.parametrize("n", [1, 2, 4])
def test_a3c_trains_on_gradients_at_most_n_minus_1_versions_old_on_local(n: int) -> None:
    group, learner = computing(n), Descending()
    plan = a3c(group, learner).start(LocalEngine(), FakeClock())
    for _ in range(4 * n):
        plan.pull()
    # gradient i was computed by worker i % n, on the weights of update max(0, i - (n - 1))
    expected = [[max(0, i - (n - 1)), i % n, i // n * 4] for i in range(4 * n)]
    assert learner.given == expected
    lags = dict.fromkeys(range(n - 1), 1) | {n - 1: 4 * n - (n - 1)}
    assert plan.report().train_lag == plan.report().gather_lag == lags


def test_counters_and_metrics_of_a3c_mean_what_their_names_say(start: Start) -> None:
    group, learner = computing(2, steps=5), Descending()
    plan = start(a3c(group, learner))
    items = list(islice(plan.items(), 6))
    report = plan.report()
    assert (report.env_steps_sampled, report.trained_samples) == (30, 30)
    assert (report.gradient_steps, report.updates) == (6, 6)
    assert report.metrics == {"apply_gradients/loss": 5.0, "apply_gradients/norm": pytest.approx(np.mean(
        [max(map(abs, given)) for given in learner.given]
    ))}  # fmt: skip
    assert [item.payload.version for item in items] == [1, 2, 3, 4, 5, 6]
    assert items[0].payload == TrainStats({"loss": 0.0, "norm": items[0].payload.metrics["norm"]}, 5, 1, 1)
    assert (items[3].source, items[3].sequence) == ("parallel_rollouts/1", 1)


def test_a_slow_workers_gradients_are_as_old_as_they_are_and_bounded_where_asked() -> None:
    def run(max_lag: int | None) -> ReportMetrics:
        clock = FakeClock()
        engine = SimulatedEngine(clock, lambda index: 1.0 if index == 0 else 4.5)
        plan = a3c(computing(2), learner := Descending(), max_lag).start(engine, clock)
        for _ in islice(plan.items(), 20):
            pass
        assert len(learner.given) == plan.counters.updates == 20
        return plan

    free, bounded = run(None), run(2)
    # nine steps of the fast one pass while the slow one makes two
    assert max(free.report().train_lag) == 5
    assert free.counters.drops == {}
    assert max(bounded.report().train_lag) <= 2
    assert bounded.counters.drops == {"gather_async": 4}
    assert bounded.counters.env_steps_sampled == (20 + 4) * 4, "what was dropped was sampled all the same"


def test_gradients_of_a_round_are_averaged_without_lag(start: Start) -> None:
    group, learner = computing(3), Descending()
    plan = start(a2c(group, learner))
    for _ in islice(plan.items(), 4):
        pass
    np.testing.assert_allclose(learner.given, [[version, 1.0, 4.0 * version] for version in range(4)])
    report = plan.report()
    assert report.train_lag == {0: 4}
    assert report.metrics["apply_gradients/loss"] == 6.0
    assert (report.env_steps_sampled, report.trained_samples, report.gradient_steps) == (48, 48, 4)


def test_each_part_counts_by_its_samples() -> None:
    parts = [
        Gradients({"a": np.array([3.0, 0.0], np.float32), "b": np.float32(1.0)[None]}, 1, {"loss": 10.0}),
        Gradients({"a": np.array([0.0, 6.0], np.float32), "b": np.float32(4.0)[None]}, 5, {"loss": 4.0}),
    ]
    average = AverageGradients()(parts)
    np.testing.assert_allclose(average.values["a"], [0.5, 5.0])
    np.testing.assert_allclose(average.values["b"], [3.5])
    assert average.values["a"].dtype == np.float32
    assert average.num_steps == 6
    assert average.metrics == {"loss": 5.0}
    np.testing.assert_array_equal(parts[0].values["a"], [3.0, 0.0])


def test_averaging_ten_thousand_parts_loses_nothing() -> None:
    values = np.random.default_rng(0).normal(size=10_000).astype(np.float32)
    average = AverageGradients()([Gradients({"w": value[None]}, 1) for value in values])
    assert average.values["w"][0] == np.float32(values.astype(np.float64).mean())


@pytest.mark.parametrize(
    ("parts", "match"),
    [
        ([], "no samples"),
        ([Gradients({"w": np.zeros(1)}, 0)], "no samples"),
        (
            [Gradients({"w": np.zeros(1)}, 1), Gradients({"v": np.zeros(1)}, 1)],
            r"different variables.*\n.*\n.*'v', 'w'",
        ),
        ([Gradients({}, 1, {"loss": 1.0}), Gradients({}, 1)], "different metrics"),
    ],
)
def test_gradients_that_do_not_belong_together_are_refused(parts: list[Gradients], match: str) -> None:
    with pytest.raises(PlanError, match=match):
        AverageGradients()(parts)


def micro(group: list[FakeWorker], learner: Descending) -> ReportMetrics:
    """Rounds of 2 x 6 steps, in parts of 5: 5 + 5 + 2."""
    batches = ParallelRollouts(group).gather_sync().concat(12)
    grads = batches.for_each(ComputeGradients(learner, microbatch_size=5))
    return ReportMetrics(grads.for_each(ApplyGradients(learner, group)), group)


def test_micro_batches_are_one_step_with_the_mean_over_all_samples(start: Start) -> None:
    group, learner = workers(2, steps=6), Descending()
    plan = start(micro(group, learner))
    for _ in islice(plan.items(), 3):
        pass
    assert learner.given == [pytest.approx([2.5 + 6 * update]) for update in range(3)]
    assert [part.num_steps for part in learner.parts] == [5, 5, 2] * 3
    report = plan.report()
    assert report.metrics["apply_gradients/loss"] == pytest.approx(2.5 + 6)
    assert (report.env_steps_sampled, report.trained_samples, report.gradient_steps) == (36, 36, 3)
    assert group[0].received == group[1].received == [0, 1, 2]


def test_micro_batches_at_the_workers(start: Start) -> None:
    group, learner = computing(2, steps=6), Descending()
    grads = ParallelRollouts(group).par_for_each(ComputeGradients(microbatch_size=4)).gather_async()
    plan = start(ReportMetrics(grads.for_each(ApplyGradients(learner, group)), group))
    items = list(islice(plan.items(), 2))
    # parts begin at steps 0 and 4, of 4 and 2 samples
    np.testing.assert_allclose(learner.given, [[0, 0, 4 / 3], [0, 1, 4 / 3]])
    assert [item.payload.num_steps for item in items] == [6, 6]


def test_items_are_cut_into_rows_or_whole_trajectories() -> None:
    rows = SampleBatch({"step": np.arange(7)})
    assert [part["step"].tolist() for part in parts_of(rows, 3)] == [[0, 1, 2], [3, 4, 5], [6]]
    columns = SampleBatch({"step": np.arange(10).reshape(2, 5), "initial": np.arange(5)}, "trajectories", ("initial",))
    parts = parts_of(columns, 4)
    assert [part.num_steps for part in parts] == [4, 4, 2]
    assert [part["initial"].tolist() for part in parts] == [[0, 1], [2, 3], [4]]
    assert parts[1]["step"].tolist() == [[2, 3], [7, 8]]
    with pytest.raises(PlanError, match=r"trajectories of 2 steps[\s\S]*multiple of 2"):
        parts_of(columns, 3)
    with pytest.raises(PlanError, match=r"received: list[\s\S]*let items be SampleBatch"):
        parts_of([1, 2, 3], 3)
    with pytest.raises(ConfigError, match="microbatch_size"):
        ComputeGradients(microbatch_size=0)


def test_a_learner_in_an_actor_applies_gradients_there(start: Start) -> None:
    group = computing(2)
    grads = ParallelRollouts(group).par_for_each(ComputeGradients()).gather_async()
    plan = start(ReportMetrics(grads.for_each(ApplyGradients(LearnerActor(Descending), group)), group))
    assert [item.payload.version for item in islice(plan.items(), 5)] == [1, 2, 3, 4, 5]
    assert plan.counters.trained_samples == 20
    assert plan.report().metrics["apply_gradients/loss"] == pytest.approx(np.mean([0, 0, 4, 4, 8]))
    assert max(group[0].received) >= 3, "weights come back"


Composition = Callable[[], Any]


@pytest.mark.parametrize(
    ("compose", "match"),
    [
        (
            lambda: ParallelRollouts(workers(2)).gather_sync().for_each(ComputeGradients()),
            r"'gather_sync' and 'compute_gradients'[\s\S]*no learner in for_each",
        ),
        (
            lambda: ParallelRollouts(computing(2)).par_for_each(ComputeGradients(Descending())),
            r"'parallel_rollouts' and 'compute_gradients'[\s\S]*a learner in par_for_each",
        ),
        (
            lambda: ParallelRollouts(workers(2)).par_for_each(ComputeGradients()),
            r"'compute_gradients' needs a ComputesGradients as its workers[\s\S]*FakeWorker, which lacks compute_grad",
        ),
        (lambda: ComputeGradients(FakeLearner()), r"as its learner[\s\S]*FakeLearner, which lacks compute_gradients"),  # type: ignore[arg-type]
        (lambda: ApplyGradients(FakeLearner()), r"GradientLearner as its learner[\s\S]*lacks apply_gradients"),  # type: ignore[arg-type]
        (
            lambda: ParallelRollouts(workers(2)).gather_sync().for_each(ApplyGradients(Descending())),
            r"'gather_sync' do not fit 'apply_gradients'[\s\S]*SampleBatch[\s\S]*takes Gradients",
        ),
        (
            lambda: a3c_stream().gather_async().for_each(TrainOneStep(FakeLearner())),
            r"'gather_async' do not fit 'train_one_step'[\s\S]*Gradients",
        ),
        (
            lambda: a3c_stream().gather_async().for_each(AverageGradients()),
            r"'gather_async' do not fit 'average_gradients'[\s\S]*takes list\[Gradients\]",
        ),
        (lambda: a3c_stream().for_each(ApplyGradients(Descending())), "'apply_gradients' needs one stream"),
        (
            lambda: a3c_stream().par_for_each(ApplyGradients(Descending())),
            "'apply_gradients' cannot run at the workers",
        ),
        (
            lambda: ParallelRollouts(workers(2)).gather_sync().batch(2).for_each(AverageGradients()),
            r"'batch' do not fit 'average_gradients'[\s\S]*list\[SampleBatch\]",
        ),
    ],
)
def test_wrong_composition_is_refused_at_construction(compose: Composition, match: str) -> None:
    with pytest.raises(PlanError, match=match):
        compose()


def a3c_stream() -> Any:
    return ParallelRollouts(computing(2)).par_for_each(ComputeGradients())


def test_a_refused_operator_leaves_the_stream_as_it_was() -> None:
    stream = ParallelRollouts(computing(2))
    with pytest.raises(PlanError):
        stream.par_for_each(ComputeGradients(Descending()))
    plan = ReportMetrics(stream.par_for_each(ComputeGradients()).gather_sync().for_each(ApplyGradients(Descending())))
    assert isinstance(plan.pull(), Envelope)


def test_a_failing_computation_names_operator_actor_and_item(start: Start) -> None:
    group = computing(2)
    group[1].compute_gradients = lambda batch: 1 / 0  # type: ignore[method-assign, assignment]
    plan = start(a3c(group, Descending()))
    with pytest.raises(PlanError, match=r"'compute_gradients' failed: ZeroDivisionError[\s\S]*parallel_rollouts/1#0"):
        list(islice(plan.items(), 2))


@pytest.mark.parametrize("compose", [a3c, a2c, micro])
@pytest.mark.parametrize("cut", [0, 1, 2, 4, 5, 7, 12])
def test_cut_at_a_checkpoint_and_resumed_equals_uncut(compose: Callable[..., ReportMetrics], cut: int) -> None:
    """Gradients on their way, in a half-filled list or made and not yet taken, are in the checkpoint."""
    world = computing(2, steps=6), Descending()
    plan = compose(*world).start(clock=FakeClock())
    trail(plan, cut)
    state = through_json(plan.state_dict())  # also in the uncut run: a checkpoint sends weights
    saved = copy.deepcopy(world)
    uncut = trail(plan, 20)
    resumed = compose(*saved).start(clock=FakeClock())
    resumed.load_state_dict(state)
    assert trail(resumed, 20) == uncut
    assert saved[1].given == world[1].given
    assert len(world[1].given) >= 2
    assert resumed.report() == plan.report()


def test_the_end_of_the_rollouts_applies_what_is_left(start: Start) -> None:
    group, learner = computing(2, items=3), Descending()
    grads = ParallelRollouts(group).par_for_each(ComputeGradients()).gather_sync()
    plan = start(
        ReportMetrics(grads.batch(4).for_each(AverageGradients()).for_each(ApplyGradients(learner, group)), group)
    )
    assert [item.payload.num_steps for item in plan.items()] == [16, 8]
