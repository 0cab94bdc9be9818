"""Items that stay where they were made: whatever holds of a plan by value holds by reference."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from rlweave.errors import CheckpointError, PlanError
from rlweave.flow import (
    ABSORBED,
    NOT_READY,
    ConcatBatches,
    Envelope,
    FakeClock,
    ItemReference,
    ParallelReplay,
    ParallelRollouts,
    ReplayShards,
    ReportMetrics,
    SampleBatch,
    StoreToBuffer,
    Stream,
    TrainOneStep,
    Union,
    UpdatePriorities,
    UpdateWeights,
    WorkerGroup,
)
from rlweave.flow.shards import CALLS_AHEAD
from tests.flow.conftest import Start
from tests.flow.fake_cluster import SimulatedCluster
from tests.flow.fake_shards import BATCH, FakeShard, Prioritizing
from tests.flow.fakes import FakeLearner, FakeMemory, FakeWorker, SimulatedEngine, workers


class Typed(FakeWorker):
    """Says what it gives."""

    def sample(self) -> SampleBatch:
        return super().sample()


def referred(group: Any = None, fragments: int = 1, **options: Any) -> Stream:
    group = [Typed(0), Typed(1)] if group is None else group
    return ParallelRollouts(group, fragments=fragments).gather_async(by_reference=True, **options)


def needs_rows(batch: SampleBatch) -> bool:
    return len(batch.data) > 0


# -- composing ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("compose", "operator"),
    [
        (lambda stream: stream.for_each(TrainOneStep(FakeLearner())), "train_one_step"),
        (lambda stream: stream.for_each(StoreToBuffer(FakeMemory())), "store_to_buffer"),
        (lambda stream: stream.for_each(ConcatBatches(8)).for_each(TrainOneStep(FakeLearner())), "train_one_step"),
        (lambda stream: stream.queue(2).for_each(needs_rows), "needs_rows"),
        (lambda stream: stream.filter(needs_rows), "filter"),
        (lambda stream: stream.flatten(), "flatten"),
        (lambda stream: stream.select("left"), "select"),
        (lambda stream: Union(stream, referred()).for_each(TrainOneStep(FakeLearner())), "train_one_step"),
    ],
)
def test_who_needs_the_item_itself_is_refused_at_construction(
    compose: Callable[[Stream], Stream], operator: str
) -> None:
    with pytest.raises(PlanError) as refused:
        compose(referred())
    text = str(refused.value)
    assert operator in text
    assert any(producer in text for producer in ("gather_async", "queue", "union", "concat_batches"))
    assert "ItemReference[SampleBatch]" in text
    assert "leave by_reference=True out of the gather" in text


def test_a_reference_is_no_message() -> None:
    group = workers(2)
    with pytest.raises(PlanError, match="no message") as refused:
        referred(group).notify(group, "greet")
    assert "gather_async" in str(refused.value)
    assert "ItemReference.fetch" in str(refused.value)
    referred(group).notify(group, "greet", message=ItemReference.fetch)


def test_explain_says_so() -> None:
    shards = ReplayShards([partial(FakeShard, 0)], BATCH)
    group = [Typed(0), Typed(1)]
    store = referred(group).for_each(StoreToBuffer(shards)).for_each(UpdateWeights(FakeLearner(), group))
    train = ParallelReplay(shards).gather_async().for_each(TrainOneStep(FakeLearner()))
    lines = ReportMetrics(Union(store, train), group).explain().splitlines()
    (gather,) = [line for line in lines if line.strip().startswith("gather_async ") and "by reference" in line]
    assert "ItemReference[SampleBatch]" in gather
    (stored,) = [line for line in lines if line.strip().startswith("store_to_buffer ") and "2 shards" not in line][:1]
    assert "ItemReference" in stored


def test_a_function_that_says_nothing_of_its_types_is_told_what_it_got() -> None:
    plan = ReportMetrics(referred().for_each(lambda batch: batch.data)).start(clock=FakeClock())
    with pytest.raises(PlanError, match="leave by_reference=True out of the gather") as failed:
        next(plan.items())
    assert isinstance(failed.value.__cause__, AttributeError)


def test_a_reference_does_not_travel_by_itself() -> None:
    with pytest.raises(TypeError, match=r"send reference.fetch\(\)"):
        pickle.dumps(ItemReference.to(SampleBatch({"step": np.arange(3)})))


class Buffered:
    """An item with a ``data`` that has no truth value, as tensors have."""

    class _Buffer:
        def __bool__(self) -> bool:
            raise RuntimeError("the truth value is ambiguous")

    data = _Buffer()


@pytest.mark.parametrize("item", [np.array(0.5), np.float64(0.5), np.zeros((2, 3)), 0.5, None, Buffered()])
def test_items_need_be_no_batches(item: Any, start: Start) -> None:
    made = ParallelRollouts(workers(1, items=1)).par_for_each(lambda batch: item).gather_async(by_reference=True)
    (left,) = start(ReportMetrics(made)).items()
    assert left.payload.num_steps == (2 if np.ndim(item) else 0)
    assert left.payload.has_rows
    assert type(left.payload.fetch()) is type(item)


# -- the same plan by value and by reference ----------------------------------------------------------------------


class Sometimes:
    """Leaves every third batch out, and fails on every seventh, at its worker."""

    def __init__(self, fails: bool) -> None:
        self.fails, self.seen = fails, 0

    def __call__(self, batch: SampleBatch) -> SampleBatch:
        self.seen += 1
        if self.fails and self.seen % 7 == 0:
            raise ValueError("every seventh")
        return ABSORBED if self.seen % 3 == 0 else batch  # type: ignore[return-value]


def everything_of(item: Envelope) -> Any:
    batch = item.payload
    assert isinstance(batch, SampleBatch)
    return item[1:], {name: array.tolist() for name, array in batch.data.items()}


@pytest.mark.parametrize("fragments", [1, 3])
@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("options", [{}, {"num_async": 2}, {"max_lag": 1}, {"max_lag": 3, "when_old": "wait"}])
def test_items_order_lag_and_counters_are_those_by_value(
    start: Start, fragments: int, fails: bool, options: dict[str, Any]
) -> None:
    """Also where workers end, leave items out, and fail within a call."""
    found = []
    for by_reference in (False, True):
        group, learner = [FakeWorker(n, items=items) for n, items in enumerate((20, 7, 33))], FakeLearner()
        source = ParallelRollouts(group, fragments=fragments).par_for_each(Sometimes(fails)).on_error("skip")
        items = source.gather_async(by_reference=by_reference, **options)
        if by_reference:
            items = items.queue(2).for_each(ItemReference.fetch)
        else:
            items = items.queue(2).for_each(lambda batch: batch)
        seen: list[Any] = []

        def look(item: SampleBatch) -> SampleBatch:
            return item

        plan = start(ReportMetrics(items.for_each(look).for_each(UpdateWeights(learner, group)), group))
        for item in plan.items():
            seen.append(everything_of(item))
            learner.updates += 1
        report = plan.report()
        counted = {**plan.counters.state_dict(), "lag": report.gather_lag, "episodes": report.episodes}
        found.append((seen, counted))
    assert found[0] == found[1]
    assert len(found[0][0]) > 20
    assert not fails or found[0][1]["failures"]


def ape_x(
    group: Any, learner: FakeLearner, shards: ReplayShards, by_reference: bool = True, **options: Any
) -> ReportMetrics:
    items = ParallelRollouts(group, fragments=2).gather_async(2, by_reference=by_reference, **options)
    store = items.for_each(StoreToBuffer(shards)).for_each(UpdateWeights(learner, group, every_steps=8))
    samples = ParallelReplay(shards, 16).gather_async(2)
    train = samples.for_each(TrainOneStep(learner)).for_each(UpdatePriorities(shards)).rate_limit(2.0, 16)
    return ReportMetrics(Union(store, train), group)


def run(plan: ReportMetrics, steps: int) -> None:
    for _ in plan.run(until=lambda counters: counters.env_steps_sampled >= steps, every_steps=1 << 60):
        pass


def test_shards_get_what_they_get_by_value(start: Start) -> None:
    found = []
    for by_reference in (False, True):
        made: list[FakeShard] = []
        learner = Prioritizing()
        shards = ReplayShards([partial(FakeShard, n, made) for n in range(3)], BATCH, capacity=900)
        plan = start(ape_x(workers(2), learner, shards, by_reference))
        run(plan, 400)
        stored = [[{k: v.tolist() for k, v in batch.data.items()} for batch in shard.inserted] for shard in made]
        told = plan.report().measures["parallel_replay/held_steps"]
        found.append((stored, learner.trained_on, told, [shard.priorities for shard in made], vars(plan.counters)))
    assert found[0] == found[1]
    assert sum(map(len, found[0][0])) == 100


def test_shards_that_got_no_rows_are_not_asked_for_samples() -> None:
    made: list[FakeShard] = []

    class Late(FakeWorker):
        def sample(self) -> SampleBatch:
            batch = super().sample()
            return SampleBatch({}, env_steps=4) if self.made <= 6 else batch

    shards = ReplayShards([partial(FakeShard, 0, made)], BATCH)
    plan = ape_x([Late()], Prioritizing(), shards).start(clock=FakeClock())
    run(plan, 24)
    assert made[0].steps == 24
    assert made[0].samples == 0
    run(plan, 40)
    assert made[0].samples > 0


def test_branches_of_a_split_do_not_see_each_others_mutations(start: Start) -> None:
    def spoil(batch: SampleBatch) -> SampleBatch:
        batch["step"][:] = -1
        return batch

    left, right = referred(workers(2), num_async=2).split(2, capacity=2)
    lists = right.batch(2).split(2, capacity=2)  # of references, which are copied as well
    spoiled = [
        left.for_each(ItemReference.fetch).for_each(spoil),
        lists[0].flatten().for_each(ItemReference.fetch).for_each(spoil),
    ]
    stream = Union(*spoiled, lists[1].flatten().for_each(ItemReference.fetch).named("clean"), output=2)
    plan = start(ReportMetrics(stream))
    for item, _ in zip(plan.items(), range(20), strict=False):
        assert item.payload["step"].tolist() == list(range(4 * item.sequence, 4 * item.sequence + 4))


def test_an_error_at_a_worker_names_operator_actor_and_item(start: Start) -> None:
    source = ParallelRollouts([FakeWorker(0), FakeWorker(1)]).par_for_each(Sometimes(fails=True))
    plan = start(ReportMetrics(source.gather_async(by_reference=True)))
    with pytest.raises(PlanError, match="'sometimes' failed: ValueError: every seventh") as failed:
        list(plan.items())
    assert "parallel_rollouts/0#6" in str(failed.value)
    assert isinstance(failed.value.__cause__, ValueError)


# -- how long items are kept --------------------------------------------------------------------------------------


class Followed(FakeWorker):
    """Remembers which of its batches are still there."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.arrays: list[weakref.ref[np.ndarray]] = []

    def sample(self) -> SampleBatch:
        batch = super().sample()
        self.arrays.append(weakref.ref(batch["step"]))
        return batch

    def kept(self) -> int:
        gc.collect()
        return sum(array() is not None for array in self.arrays)


class Counting(FakeShard):
    """Keeps nothing of what it is given."""

    def insert(self, batch: SampleBatch) -> None:
        super().insert(SampleBatch({}, env_steps=batch.num_steps))


@pytest.mark.parametrize("seconds", [0.1, 5.0])
def test_items_are_let_go_when_their_shard_has_them(seconds: float) -> None:
    """At shards that are slow as well, as many are kept as edges say."""
    clock = FakeClock()
    group = [Followed(0), Followed(1)]
    cluster = SimulatedCluster(clock, lambda actor, method: seconds if method == "insert" else 0.5)
    shards = ReplayShards([partial(Counting, n) for n in range(2)], BATCH)
    actors = WorkerGroup([lambda worker=worker: worker for worker in group])
    plan = ape_x(actors, Prioritizing(), shards).start(cluster, clock)
    for _ in range(4):
        run(plan, plan.counters.env_steps_sampled + 100)
        on_edges = 2 * 2 * 2  # fragments, ahead, workers
        assert sum(worker.kept() for worker in group) <= on_edges + 2 * CALLS_AHEAD + 1
    plan.state_dict()  # waits for the shards
    assert sum(worker.kept() for worker in group) <= on_edges


def test_items_too_old_are_dropped_counted_and_let_go() -> None:
    clock, learner = FakeClock(), FakeLearner()
    group = [Followed(0), Followed(1)]
    stream = referred(group, max_lag=2).for_each(ItemReference.fetch).for_each(TrainOneStep(learner, group))
    plan = ReportMetrics(stream, group).start(SimulatedEngine(clock, lambda index: (1.0, 7.0)[index]), clock)
    learner.keep = False
    for _, _ in zip(plan.items(), range(40), strict=False):
        pass
    assert plan.counters.drops["gather_async"] >= 3
    assert sum(worker.kept() for worker in group) <= 4


# -- what is lost -------------------------------------------------------------------------------------------------


class World:
    """Ape-X by reference on a simulated cluster."""

    def __init__(self, policy: Any = "replace") -> None:
        self.clock, self.made = FakeClock(), []  # type: ignore[var-annotated]
        self.cluster = SimulatedCluster(self.clock, lambda actor, method: 0.5 if method == "next_apart" else 0.1)
        self.group = WorkerGroup([partial(FakeWorker, n) for n in range(2)])
        self.shards = ReplayShards([partial(FakeShard, n, self.made) for n in range(2)], BATCH)
        items = ParallelRollouts(self.group).on_error(policy, first_delay=0.0).gather_async(by_reference=True)
        store = items.for_each(StoreToBuffer(self.shards))
        samples = ParallelReplay(self.shards).on_error(policy).gather_async()
        self.learner = Prioritizing()
        train = samples.for_each(TrainOneStep(self.learner)).for_each(UpdatePriorities(self.shards))
        self.plan = ReportMetrics(Union(store, train.rate_limit(2.0)), self.group).start(self.cluster, self.clock)
        self.gather: Any = items.port.node
        self.store: Any = store.port.node

    def step(self) -> Any:
        item = self.plan.step()
        if item is NOT_READY:
            self.plan.wait()
        return item


@pytest.mark.parametrize("policy", ["stop", "replace"])
def test_an_item_lost_on_its_way_is_counted_and_its_shard_is_not_blamed(policy: Any) -> None:
    """It came, so the plan knows of it; then the place went down where it was."""
    world = World(policy)
    lost: list[int] = []

    def lose(reference: ItemReference[SampleBatch]) -> ItemReference[SampleBatch]:
        if len(lost) < 3 and world.plan.counters.env_steps_sampled >= 40:
            reference.argument.gone = True
            lost.append(reference.num_steps)
        return reference

    store, process = world.store, world.store.process
    store.process = lambda envelope: process(envelope.carrying(lose(envelope.payload)))
    while world.plan.counters.env_steps_sampled < 200:
        world.step()
    world.plan.drain()
    report = world.plan.report()
    assert report.lost_items == {"store_to_buffer": 3}
    assert report.replacements == report.failures == {}
    assert report.measures["parallel_replay/lost_steps"] == sum(lost) == 12
    assert sum(shard.steps for shard in world.made) == report.env_steps_sampled - 12
    assert report.measures["parallel_replay/held_steps"] == report.env_steps_sampled - 12


@pytest.mark.parametrize("taken_along", [False, True])
def test_a_worker_that_dies_after_it_told_of_an_item(taken_along: bool) -> None:
    """What it had told of may be lost with it, or not."""
    world = World()

    def told() -> list[Any]:
        return [one for one in world.gather._requested if one.actor == 0 and one.call.arrives < world.clock.now()]

    for _ in range(1_000):
        world.clock.advance(0.01)  # what the plan waited for has been there for a moment, and nobody has looked
        if world.plan.counters.env_steps_sampled >= 40 and told():
            break
        world.step()
    for payload in told()[0].payloads:
        payload.gone = taken_along
    world.cluster.crash(world.cluster.actors[0].worker)
    while world.plan.counters.env_steps_sampled < 200:
        world.step()
    world.plan.drain()
    report = world.plan.report()
    assert report.replacements == {"parallel_rollouts": 1}
    assert report.lost_items == {"parallel_rollouts": 1, **({"store_to_buffer": 1} if taken_along else {})}
    lost = report.measures["parallel_replay/lost_steps"]
    assert lost == 4 * taken_along
    assert sum(shard.steps for shard in world.made) == report.env_steps_sampled - lost


def test_a_checkpoint_leaves_out_what_is_lost_and_asks_for_more() -> None:
    world = World()
    while world.plan.counters.env_steps_sampled < 40 or len(world.gather._requested) < 2:
        world.step()
    world.plan.drain()
    first = world.gather._requested[0]
    first.payloads[0].gone = True
    state = world.plan.state_dict()["operators"]["gather_async"]["state"]
    assert [kept["state"]["actor"] for kept in state["requested"]] == [1 - first.actor]
    assert state["failed"] == [first.actor]
    while world.plan.counters.env_steps_sampled < 80:
        world.step()
    world.plan.drain()
    world.plan.state_dict()
    assert world.plan.counters.lost_items == {"store_to_buffer": 1}, "noticed where it would have been"
    assert sum(shard.steps for shard in world.made) == world.plan.counters.env_steps_sampled - 4


def test_a_checkpoint_of_a_queue_that_lost_an_item_says_whose() -> None:
    clock = FakeClock()
    cluster = SimulatedCluster(clock, lambda actor, method: 0.5)
    group = WorkerGroup([partial(FakeWorker, n) for n in range(2)])
    plan = ReportMetrics(referred(group).queue(4).for_each(ItemReference.fetch), group).start(cluster, clock)
    queue: Any = next(node for node in plan.graph.nodes if node.name == "queue")
    while not queue._waiting:
        queue.fill()
        clock.advance(0.1)
    queue._waiting[0].payload.argument.gone = True
    with pytest.raises(CheckpointError, match="keeps by reference") as failed:
        plan.state_dict()
    assert "operator 'queue'" in str(failed.value)
    assert "parallel_rollouts/" in str(failed.value)


def test_a_restored_reference_has_its_item_and_goes_to_shards(start: Start) -> None:
    """A checkpoint holds the items that were under way, and not where they were."""
    first: list[FakeShard] = []
    group, learner = workers(2), Prioritizing()
    plan = start(ape_x(group, learner, ReplayShards([partial(FakeShard, 0, first)], BATCH)))
    run(plan, 100)
    state = plan.state_dict()
    gather = state["operators"]["gather_async"]["state"]
    assert len(gather["arrived"]) + sum(len(call["state"]["items"]) for call in gather["requested"]) > 4
    second: list[FakeShard] = []
    resumed = start(
        ape_x(copy.deepcopy(group), copy.deepcopy(learner), ReplayShards([partial(FakeShard, 0, second)], BATCH))
    )
    resumed.load_state_dict(state)
    run(plan, 300)
    run(resumed, 300)
    stored = [[batch["step"].tolist() for batch in shard.inserted] for shard in (first[0], second[0])]
    assert stored[0] == stored[1]
    assert len(stored[0]) == 75
