"""Wrong composition is an error at construction that names both operators and their types."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from rlweave.errors import ConfigError, PlanError
from rlweave.flow import (
    ConcatBatches,
    Envelope,
    LearnerActor,
    Operator,
    ParallelRollouts,
    Prefetch,
    Replay,
    ReportMetrics,
    SampleBatch,
    Select,
    StoreToBuffer,
    TrainOneStep,
    Union,
    UpdatePriorities,
    UpdateWeights,
    WorkerGroup,
)
from tests.flow.fakes import FakeLearner, FakeMemory, FakeWorker, workers


def to_text(number: int) -> str:
    return str(number)


def count(batch: SampleBatch) -> int:
    return batch.num_steps


class Silent:
    """Has nothing that a worker, a learner or a memory needs."""


class NumberWorker(FakeWorker):
    def sample(self) -> int:  # type: ignore[override]
        return 1


class Plain:
    """Makes numbers, and that is all."""

    def sample(self) -> int:
        return 1


def fits_two(batch: SampleBatch, other: int) -> bool:
    return batch.num_steps == other


class OfTwo(Operator):
    def __call__(self, batch: SampleBatch, other: int) -> SampleBatch:  # type: ignore[override]
        return batch


class PolicyWorker(FakeWorker):
    def sample(self) -> dict[str, SampleBatch]:  # type: ignore[override]
        return {"ppo": super().sample()}


class OnEnvelopes(Operator):
    def process(self, envelope: Envelope) -> Envelope:
        return envelope


def priorities_for(memory: FakeMemory) -> Any:
    other = FakeMemory()
    store = rollouts().for_each(StoreToBuffer(other)).for_each(StoreToBuffer(memory))
    train = Replay(other).for_each(TrainOneStep(FakeLearner())).for_each(UpdatePriorities(memory))
    return Union(store, train)


def rollouts() -> Any:
    return ParallelRollouts(workers(2)).gather_sync()


def test_types_flow_through_a_plan() -> None:
    stream = rollouts()
    assert stream.item_type is SampleBatch
    assert stream.batch(3).item_type == list[SampleBatch]
    assert rollouts().batch(3).flatten().item_type is SampleBatch
    assert rollouts().concat(10).item_type is SampleBatch
    assert rollouts().filter(lambda item: True).item_type is SampleBatch
    assert rollouts().for_each(count).for_each(to_text).item_type is str
    assert ParallelRollouts([PolicyWorker()]).gather_sync().select("ppo").item_type is SampleBatch
    assert Select(ParallelRollouts([PolicyWorker()]).gather_async(), policy="ppo").item_type is SampleBatch
    assert Union(rollouts(), rollouts().for_each(count)).item_type == SampleBatch | int
    assert Union(rollouts(), rollouts().for_each(count), output=1).item_type is int
    assert ParallelRollouts([NumberWorker(), FakeWorker()]).item_type == int | SampleBatch
    assert ParallelRollouts(WorkerGroup([FakeWorker])).item_type is SampleBatch


MISTAKES: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "gather missing": (
        lambda: ParallelRollouts(workers(2)).for_each(ConcatBatches(4)),
        ["'parallel_rollouts'", "'concat_batches'", "SampleBatch", "gather_sync() or gather_async()"],
    ),
    "gather missing before a union": (
        lambda: Union(ParallelRollouts(workers(2))),
        ["'parallel_rollouts'", "'union'", "gather"],
    ),
    "gather missing at the end": (
        lambda: ReportMetrics(ParallelRollouts(workers(2))),
        ["'parallel_rollouts'", "'report_metrics'", "gather"],
    ),
    "gathered twice": (lambda: rollouts().gather_async(), ["'gather_sync'", "'gather_async'", "gathered already"]),
    "par_for_each after the gather": (
        lambda: rollouts().par_for_each(count),
        ["'gather_sync'", "'count'", "gathered already"],
    ),
    "driver's operator at the sources": (
        lambda: ParallelRollouts(workers(2)).par_for_each(StoreToBuffer(FakeMemory())),
        ["'parallel_rollouts'", "'store_to_buffer'", "gather first"],
    ),
    "an operator that keeps items back at the sources": (
        lambda: ParallelRollouts(workers(2)).par_for_each(ConcatBatches(4)),
        ["'parallel_rollouts'", "'concat_batches'", "ConcatBatches, which keeps items back", "gather first"],
    ),
    "an operator on envelopes at the sources": (
        lambda: ParallelRollouts(workers(2)).par_for_each(OnEnvelopes()),
        ["'parallel_rollouts'", "'on_envelopes'", "works on envelopes", "gather first"],
    ),
    "priorities for another memory": (
        lambda: ReportMetrics(priorities_for(FakeMemory())),
        ["'replay'", "'update_priorities'", "samples of one FakeMemory, priorities for another FakeMemory"],
    ),
    "items do not fit": (
        lambda: rollouts().for_each(count).for_each(ConcatBatches(4)),
        ["'count'", "gives int", "'concat_batches' takes Batch"],
    ),
    "lists do not fit a learner": (
        lambda: rollouts().batch(2).for_each(TrainOneStep(FakeLearner())),
        ["'batch'", "list[SampleBatch]", "'train_one_step' takes Batch"],
    ),
    "items do not fit at the sources": (
        lambda: ParallelRollouts(workers(2)).par_for_each(to_text),
        ["'parallel_rollouts'", "SampleBatch", "'to_text' takes int"],
    ),
    "numbers cannot be glued": (
        lambda: ParallelRollouts([NumberWorker()], mode="sync"),
        ["'parallel_rollouts'", "gives int", "'gather_sync' takes Batch"],
    ),
    "flatten of what is no list": (
        lambda: rollouts().flatten(),
        ["'gather_sync'", "SampleBatch", "'flatten' takes list"],
    ),
    "select from what is no mapping": (lambda: rollouts().select("ppo"), ["SampleBatch", "'select' takes Mapping"]),
    "an operator's class": (lambda: rollouts().for_each(ConcatBatches), ["ConcatBatches(...)"]),
    "not callable": (lambda: rollouts().for_each(3), ["must be callable", "int"]),
    "no stream": (lambda: Union([rollouts()]), ["must be a stream", "list"]),
    "no workers": (lambda: ParallelRollouts([]), ["'parallel_rollouts'", "no workers"]),
    "one worker instead of a list": (lambda: ParallelRollouts(FakeWorker()), ["FakeWorker", "list"]),
    "not a worker": (lambda: ParallelRollouts([Silent()]), ["Source", "Silent", "sample()"]),
    "not a factory of workers": (lambda: ParallelRollouts(WorkerGroup([Silent])), ["Source", "Silent", "sample()"]),
    "workers that take no weights": (
        lambda: TrainOneStep(FakeLearner(), [Plain()]),
        ["'train_one_step'", "TakesWeights", "Plain, which lacks set_weights()"],
    ),
    "workers that tell no episodes": (
        lambda: ReportMetrics(rollouts(), [Plain()]),
        ["'report_metrics'", "TellsEpisodes", "Plain, which lacks episode_stats()"],
    ),
    "a function of two arguments": (
        lambda: rollouts().for_each(lambda batch, other: batch),
        ["operator 'lambda'", "called with one item", "(batch, other)", "functools.partial"],
    ),
    "a function of none": (lambda: rollouts().for_each(lambda: 0), ["called with one item", "too many"]),
    "a function of two arguments at the sources": (
        lambda: ParallelRollouts(workers(2)).par_for_each(fits_two),
        ["'fits_two'", "called with one item"],
    ),
    "an operator of two arguments": (lambda: rollouts().for_each(OfTwo()), ["'of_two'", "called with one item"]),
    "a predicate of two arguments": (lambda: rollouts().filter(fits_two), ["'filter'", "called with one item"]),
    "a message of two arguments": (
        lambda: rollouts().notify(workers(1), "greet", message=fits_two),
        ["'notify'", "called with one item"],
    ),
    "staging with two arguments": (lambda: Prefetch(1, fits_two), ["'prefetch'", "called with one item"]),
    "a factory that wants arguments": (lambda: WorkerGroup([fits_two]), ["WorkerGroup", "called without arguments"]),
    "a learner's factory that wants arguments": (
        lambda: LearnerActor(fits_two),
        ["LearnerActor", "called without arguments"],
    ),
    "not a learner": (lambda: TrainOneStep(Silent()), ["'train_one_step'", "Learner", "update()"]),
    "not a memory": (lambda: StoreToBuffer(Silent()), ["'store_to_buffer'", "Memory", "insert()"]),
    "message to a method that is not there": (
        lambda: rollouts().notify(workers(1), "gret"),
        ["FakeWorker", "'gret'", "did you mean 'greet'?"],
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_wrong_composition_is_refused_at_once(mistake: str) -> None:
    make, parts = MISTAKES[mistake]
    with pytest.raises(PlanError) as caught:
        make()
    for part in parts:
        assert part in str(caught.value)


def test_a_stream_used_twice_names_all_three_operators() -> None:
    stream = rollouts()
    stream.for_each(count)
    with pytest.raises(PlanError, match=r"(?s)'gather_sync' are used twice.*'count' and 'batch'.*split\(2"):
        stream.batch(2)


def test_an_operator_object_used_twice_is_refused() -> None:
    concat = ConcatBatches(4)
    rollouts().for_each(concat)
    with pytest.raises(PlanError, match="operator object 'concat_batches' is used twice"):
        rollouts().for_each(concat)


def test_the_same_workers_in_two_sources_are_refused() -> None:
    group = workers(2)
    union = Union(ParallelRollouts(group).gather_sync(), ParallelRollouts(group).gather_async())
    with pytest.raises(PlanError, match=r"(?s)'parallel_rollouts' and 'parallel_rollouts-2'.*split\(\)"):
        ReportMetrics(union, group)


def test_priorities_for_the_memory_that_the_items_come_from_are_fine() -> None:
    memory = FakeMemory()
    train = Replay(memory).for_each(TrainOneStep(FakeLearner())).for_each(UpdatePriorities(memory))
    ReportMetrics(Union(rollouts().for_each(StoreToBuffer(memory)), train))


def test_an_output_that_nobody_consumes_is_refused() -> None:
    one, other = rollouts().split(2)
    with pytest.raises(PlanError, match=r"(?s)the items of 'split' have no consumer.*output 1.*SampleBatch"):
        ReportMetrics(one)
    one, other = rollouts().split(2)
    other.for_each(count)
    with pytest.raises(PlanError, match=r"(?s)the items of 'count' have no consumer.*gives int"):
        ReportMetrics(one)


def test_workers_that_the_plan_does_not_sample_from_are_refused() -> None:
    group = workers(2)
    train = ParallelRollouts(group).gather_sync().for_each(TrainOneStep(FakeLearner(), group[:1]))
    with pytest.raises(PlanError, match=r"(?s)'train_one_step' are not those.*1 workers.*2 workers in 'parallel_roll"):
        ReportMetrics(train, group)
    with pytest.raises(PlanError, match="'update_weights' are not those"):
        ReportMetrics(rollouts().for_each(UpdateWeights(FakeLearner(), workers(1))))
    with pytest.raises(PlanError, match="'report_metrics' are not those"):
        ReportMetrics(rollouts(), workers(1))


def test_a_memory_that_can_never_fill_is_refused() -> None:
    memory = FakeMemory()
    with pytest.raises(PlanError, match=r"(?s)memory of 'replay' can never fill.*nothing in the plan stores into it"):
        ReportMetrics(Replay(memory))
    other = rollouts().for_each(StoreToBuffer(FakeMemory()))
    with pytest.raises(PlanError, match="nothing in the plan stores into it"):
        ReportMetrics(Union(other, Replay(memory)))
    store = rollouts().for_each(StoreToBuffer(FakeMemory(capacity=50)))
    small = store.port.node.fills
    with pytest.raises(PlanError, match="min_size 51 is above the memory's capacity 50"):
        ReportMetrics(Union(store, Replay(small, min_size=51)))
    with pytest.raises(PlanError, match="only 'store_to_buffer' stores into it, which itself waits"):
        ReportMetrics(Replay(memory).for_each(StoreToBuffer(memory)))


def test_a_memory_that_is_filled_already_needs_no_store() -> None:
    memory = FakeMemory()
    memory.stored = 100
    plan = ReportMetrics(Replay(memory, min_size=100))
    assert plan.pull().payload.num_steps == memory.batch_size  # type: ignore[union-attr]


def limited(memory: FakeMemory, ratio: float = 1.0, min_size: int = 1) -> ReportMetrics:
    store = rollouts().for_each(StoreToBuffer(memory))
    return ReportMetrics(Union(store, Replay(memory).rate_limit(ratio, min_size)))


def test_a_rate_limiter_that_can_never_open_is_refused() -> None:
    memory = FakeMemory(capacity=50)
    memory.stored = 50
    with pytest.raises(PlanError, match=r"(?s)'rate_limit' behind 'replay' can never open.*samples_per_insert is 0"):
        limited(memory, ratio=0)
    with pytest.raises(PlanError, match=r"samples_per_insert is inf(?s:.*)finite number"):
        limited(memory, ratio=float("inf"))
    with pytest.raises(PlanError, match="min_size 51 is above the memory's capacity 50"):
        limited(memory, min_size=51)
    with pytest.raises(PlanError, match="'gather_sync' does not get its items from a memory"):
        ReportMetrics(rollouts().rate_limit(1.0))
    with pytest.raises(PlanError, match="nothing in the plan stores into its memory"):
        ReportMetrics(Replay(memory).rate_limit(1.0))
    with pytest.raises(PlanError, match="only 'store_to_buffer' stores into its memory, which itself waits"):
        ReportMetrics(Replay(memory).rate_limit(1.0).for_each(StoreToBuffer(memory)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ParallelRollouts(workers(1), mode="bulk"), "'raw', 'sync' or 'async'"),  # type: ignore[arg-type]
        (lambda: rollouts().batch(0), "n must be a whole number above 0"),
        (lambda: rollouts().concat(1.5), "min_steps must be a whole number"),
        (lambda: rollouts().queue(2, "forget"), "unknown policy"),
        (lambda: rollouts().queue(0), "capacity must be"),
        (lambda: rollouts().split(0), "n must be"),
        (lambda: ParallelRollouts(workers(1)).gather_async(0), "num_async must be"),
        (lambda: ParallelRollouts(workers(1)).gather_async(max_lag=-1), "max_lag is a number of weight versions"),
        (lambda: ParallelRollouts(workers(1)).gather_async(max_lag=0.5), "max_lag is a number"),  # type: ignore[arg-type]
        (lambda: Union(), "needs branches"),
        (lambda: Union(rollouts(), mode="random"), "unknown mode"),  # type: ignore[arg-type]
        (lambda: Union(rollouts(), weights=[1, 2]), "one per branch"),
        (lambda: Union(rollouts(), mode="async", weights=[1]), "weights are for mode 'round_robin'"),
        (lambda: Union(rollouts(), output=1), "number of a branch"),
        (lambda: rollouts().rate_limit(1.0, min_size=0), "min_size must be at least 1"),
        (lambda: rollouts().rate_limit(1.0, error_buffer=-1), "error_buffer not negative"),
        (lambda: rollouts().named("a/b"), "must not be empty or contain"),
        (lambda: TrainOneStep(FakeLearner(), publish_every=0), "publish_every must be"),
    ],
)
def test_values_out_of_range_are_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


def test_names_are_unique_and_users_choose_them() -> None:
    plan = ReportMetrics(rollouts().for_each(count).for_each(lambda n: n).for_each(lambda n: n).named("mine"))
    names = [node.name for node in plan.graph.nodes]
    assert names == ["parallel_rollouts", "gather_sync", "count", "lambda", "mine", "report_metrics"]
    with pytest.raises(PlanError, match="two operators are named 'mine'"):
        ReportMetrics(rollouts().for_each(count).named("mine").for_each(to_text).named("mine"))


def test_operators_of_ones_own_are_checked_by_their_annotations() -> None:
    class Untyped(Operator):
        def __call__(self, item):  # type: ignore[no-untyped-def]
            return item

    assert rollouts().for_each(Untyped()).item_type is Any
    with pytest.raises(NotImplementedError, match="neither __call__ nor process"):
        Operator()(1)


def test_composing_starts_nothing() -> None:
    made: list[int] = []

    def make() -> FakeWorker:
        made.append(1)
        return FakeWorker()

    group, learner = WorkerGroup([make, make]), FakeLearner()
    train = ParallelRollouts(group).gather_sync().concat(4).for_each(TrainOneStep(learner, group))
    plan = ReportMetrics(train, group)
    plan.explain()
    plan.draw()
    assert made == []
    assert learner.weights_read == 0
    plan.start()
    assert made == [1, 1]
    assert learner.weights_read == 1


def test_importing_flow_imports_no_deep_learning_framework() -> None:
    code = "import sys, rlweave.flow; sys.exit(any(m in sys.modules for m in ('torch', 'jax', 'tensorflow', 'ray')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
