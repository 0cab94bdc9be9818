"""Messages beside the streams: bounded, the newest to whoever is busy, and seen before the next item."""

from functools import partial
from itertools import islice
from typing import Any

import pytest

from rlweave.errors import CheckpointError, ConfigError, PlanError
from rlweave.flow import (
    ConcatBatches,
    Envelope,
    FakeClock,
    LocalEngine,
    ParallelReplay,
    ParallelRollouts,
    Replay,
    ReplayShards,
    ReportMetrics,
    SampleBatch,
    StoreToBuffer,
    TrainOneStep,
    Union,
    UpdatePriorities,
    UpdateWeights,
    WorkerGroup,
)
from rlweave.flow.plan_graph import messages_of
from rlweave.flow.weights import Outbox, Told
from tests.flow.conftest import Start
from tests.flow.fake_shards import BATCH, FakeShard
from tests.flow.fakes import FakeLearner, FakeMemory, FakeWorker, SimulatedCall, SimulatedEngine, workers


class Listener:
    """An actor that is told things."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, Any, int]] = []

    def notify(self, method: str, message: Any, version: int) -> None:
        self.heard.append((method, message, version))

    def next_items(self) -> int:
        return len(self.heard)


def test_an_outbox_lets_so_many_through_and_keeps_the_newest_of_the_rest() -> None:
    clock = FakeClock()
    engine = SimulatedEngine(clock, lambda index: 10.0)
    (listener,) = engine.create_actors([Listener])
    outbox = Outbox(engine, listener)
    engine.call(listener, "next_items")  # busy for ten seconds
    left_out = [outbox.add(Told("greet", number, 0), 2) for number in range(7)]
    assert left_out == [0, 0, 0, 0, 1, 1, 1], "two are under way, two wait, and older ones make room"
    assert outbox.add(Told("part", 0, 0), 2) == 0, "another kind has room of its own"
    assert [told.handle for told, _ in outbox.waiting] == [5, 6]
    assert [message for _, message, _ in listener.heard] == [0, 1, 0]
    clock.advance(10.0)
    outbox.settle({id(call) for call in engine.wait([call for _, call in outbox.under_way], 0)})
    assert [message for _, message, _ in listener.heard] == [0, 1, 0, 5, 6]
    assert not outbox.waiting


def test_messages_to_a_busy_worker_are_bounded_and_what_is_left_out_is_counted() -> None:
    group, clock = workers(2), FakeClock()
    engine = SimulatedEngine(clock, lambda index: 100.0 if index == 0 else 1.0)
    stream = ParallelRollouts(group).gather_async()
    plan = ReportMetrics(
        stream.notify(group, "greet", message=lambda batch: int(batch["step"][0]), capacity=3), group
    ).start(engine, clock)
    (channel,) = plan._context.channels()  # type: ignore[union-attr]
    items = plan.items()
    for _ in range(90):
        assert next(items).source == "parallel_rollouts/1"
        assert all(len(outbox.under_way) <= 3 and len(outbox.waiting) <= 3 for outbox in channel._outboxes)
    assert [message for message, _ in group[0].messages] == [0, 4, 8]
    assert plan.counters.drops == {"notify": 90 - 3 - 3}
    made = group[0].made
    while group[0].made == made:  # until it is asked again; the engine makes an item when it is asked for
        next(items)
    newest = [message for message, _ in group[1].messages][-2:]
    assert group[0].messages[-1][0] in newest, "it knew the newest one before its next item was asked for"


def test_where_calls_run_at_once_nothing_is_ever_left_out(start: Start) -> None:
    group = workers(3, items=40)
    plan = start(ReportMetrics(ParallelRollouts(group).gather_sync().notify(group, "greet", capacity=1), group))
    for _ in plan.items():
        pass
    if isinstance(plan._context.engine, LocalEngine):  # type: ignore[union-attr]
        assert [len(worker.messages) for worker in group] == [120, 120, 120]
        assert plan.counters.drops == {}
    # on the other engine a worker is idle while a round is processed, so messages arrive at once as well
    assert all(worker.messages[-1][0]["step"][0] == 39 * 4 for worker in group)


def test_messages_of_a_round_are_seen_by_the_next_one(start: Start) -> None:
    group = workers(2, items=5)
    seen: list[list[int]] = []
    stream = ParallelRollouts(group).par_for_each(lambda batch: batch).gather_sync()

    def note(batch: Any) -> Any:
        seen.append([int(worker.messages[-1][0]) if worker.messages else -1 for worker in group])
        return batch

    told = stream.for_each(note).notify(group, "greet", message=lambda batch: int(batch["step"][0]) // 4)
    for _ in start(ReportMetrics(told, group)).items():
        pass
    # both items of round r are noted when everybody has heard of round r - 1, and perhaps of the item before
    assert [max(pair) for pair in seen] == [-1, 0, 0, 1, 1, 2, 2, 3, 3, 4]


def test_a_checkpoint_leaves_no_message_behind() -> None:
    group, clock = workers(2), FakeClock()
    engine = SimulatedEngine(clock, lambda index: 50.0 if index == 0 else 1.0)
    plan = ReportMetrics(ParallelRollouts(group).gather_async().notify(group, "greet", capacity=2)).start(engine, clock)
    for _ in range(60):
        if not isinstance(plan.step(), Envelope):
            plan.wait()
    waiting = [len(outbox.waiting) for channel in plan._context.channels() for outbox in channel._outboxes]  # type: ignore[union-attr]
    assert sum(waiting) == 2
    plan.state_dict()
    waiting = [len(outbox.waiting) for channel in plan._context.channels() for outbox in channel._outboxes]  # type: ignore[union-attr]
    assert sum(waiting) == 0
    assert group[0].messages[-1] == group[1].messages[-1]


def test_a_capacity_is_a_count() -> None:
    stream = ParallelRollouts(workers(1)).gather_sync()
    with pytest.raises(ConfigError, match="capacity must be a whole number above 0"):
        stream.notify(workers(1), "greet", capacity=0)


def test_every_way_beside_the_streams_is_known() -> None:
    group, memory, learner = workers(2), FakeMemory(), FakeLearner()
    log = Listener()
    store = (
        ParallelRollouts(group).gather_async().for_each(StoreToBuffer(memory)).for_each(UpdateWeights(learner, group))
    )
    train = Replay(memory).for_each(TrainOneStep(learner, group)).for_each(UpdatePriorities(memory))
    told = train.notify(group, "greet", capacity=5).notify(log, "notify")
    plan = ReportMetrics(
        Union(store, told, ParallelRollouts(workers(1)).gather_sync().for_each(ConcatBatches(4))), group
    )
    found = [(m.sender.name, m.to, m.what, m.capacity, m.when_full) for m in messages_of(plan.graph)]
    assert found == [
        ("store_to_buffer", "replay", "items", "1000000", "the memory's own"),
        ("update_weights", "parallel_rollouts", "weights", "1", "the newest replace older ones"),
        ("train_one_step", "parallel_rollouts", "weights", "1", "the newest replace older ones"),
        ("update_priorities", "replay", "priorities", "1", "block"),
        ("notify", "parallel_rollouts", "greet", "5", "drop_oldest"),
        ("notify-2", "Listener", "notify", "1", "block"),
    ]


def test_shards_that_tell_no_capacity_have_a_dash() -> None:
    shards, group = ReplayShards([partial(FakeShard, 0)], BATCH), workers(1)
    store = ParallelRollouts(group).gather_async().for_each(StoreToBuffer(shards))
    train = ParallelReplay(shards, 10).gather_async().for_each(TrainOneStep(FakeLearner()))
    messages = messages_of(ReportMetrics(Union(store, train), group).graph)
    assert [m.capacity for m in messages if m.what == "items"] == ["-"]


class LateEngine(SimulatedEngine):
    """Messages take half a second to arrive."""

    def call(self, actor: Any, method: str, *arguments: Any) -> SimulatedCall:
        call = super().call(actor, method, *arguments)
        call.arrives += 0.5 if method == "notify" else 0.0
        return call


class HardOfHearing(FakeWorker):
    """Fails on its second message."""

    def greet(self, message: Any, version: int) -> None:
        super().greet(message, version)
        if len(self.messages) == 2:
            raise ValueError("what?")


def test_a_message_that_fails_is_one_failure_and_those_after_it_arrive() -> None:
    group = [HardOfHearing()]
    greet = ParallelRollouts(group).gather_sync().notify(group, "greet").on_error("skip", attempts=2)
    plan = ReportMetrics(greet, group).start(LocalEngine(), FakeClock())
    list(islice(plan.items(), 11))
    assert len(group[0].messages) == 12
    assert plan.counters.failures == {"notify": 1}


def test_a_message_whose_failure_nobody_has_seen_is_named_at_a_checkpoint() -> None:
    group, clock = [HardOfHearing()], FakeClock()
    greet = ParallelRollouts(group).gather_sync().notify(group, "greet")
    plan = ReportMetrics(greet, group).start(LateEngine(clock), clock)
    list(islice(plan.items(), 2))
    clock.advance(1.0)
    with pytest.raises(
        PlanError, match="weights or a message for 'parallel_rollouts' failed: ValueError: what"
    ) as caught:
        plan.drain()
    assert isinstance(caught.value.__cause__, ValueError)
    plan.drain()


def test_a_message_that_failed_elsewhere_is_not_charged_to_a_worker_that_is_made_anew() -> None:
    clock = FakeClock()
    engine, made = LateEngine(clock), []

    def make(number: int) -> FakeWorker:
        made.append(HardOfHearing(number) if number == 0 else FakeWorker(number))
        return made[-1]

    group = WorkerGroup([partial(make, number) for number in range(2)])
    rollouts = ParallelRollouts(group).on_error("replace", attempts=2, first_delay=0.0, longest_delay=0.0)
    plan = ReportMetrics(rollouts.gather_sync().notify(group, "greet"), group).start(engine, clock)
    list(islice(plan.items(), 2))
    clock.advance(1.0)
    channel = plan._context.channel(group)  # type: ignore[union-attr]
    channel.replace(1, engine.create_actors([plan._context._factory(group, 1, 1)])[0])  # type: ignore[union-attr]
    with pytest.raises(PlanError, match="operator 'notify' failed: ValueError: what"):
        list(islice(plan.items(), 4))


def made_by_the_plan(made: list[FakeWorker], n: int = 2) -> WorkerGroup:
    def make(number: int) -> FakeWorker:
        made.append(FakeWorker(number))
        return made[-1]

    return WorkerGroup([partial(make, number) for number in range(n)])


class Mortal(FakeWorker):
    """Dies at an item, unless it stands in for one that did."""

    dies_at, replaces = -1, 0

    def replacing(self, number: int) -> None:
        self.replaces = number

    def sample(self) -> SampleBatch:
        if self.made == self.dies_at and not self.replaces:
            raise ConnectionError("gone")
        return super().sample()


def test_the_last_message_is_part_of_a_checkpoint_and_workers_made_anew_know_it(start: Start) -> None:
    def begun() -> tuple[ReportMetrics, list[Mortal]]:
        made: list[Mortal] = []

        def make(number: int) -> Mortal:
            made.append(Mortal(number))
            return made[-1]

        group = WorkerGroup([partial(make, number) for number in range(2)])
        rollouts = ParallelRollouts(group).on_error("replace", first_delay=0.0, longest_delay=0.0).gather_sync()
        stream = rollouts.notify(group, "greet", every=5, message=lambda batch: {"level": (1, 5)})
        return start(ReportMetrics(stream, group)), made

    plan, _ = begun()
    list(islice(plan.items(), 6))
    resumed, made = begun()
    resumed.load_state_dict(plan.state_dict())
    told = [({"level": (1, 5)}, 0)]
    assert [worker.messages for worker in made] == [told, told], "they are new as well"
    made[1].dies_at = 0
    list(islice(resumed.items(), 3))  # the tenth item would be the next message
    assert made[2].replaces == 1
    assert made[2].messages == told


def test_a_message_that_cannot_be_saved_names_its_operator_at_a_checkpoint() -> None:
    group = workers(1)
    plan = ReportMetrics(ParallelRollouts(group).gather_sync().notify(group, "greet", message=lambda b: {1, 2}), group)
    list(islice(plan.items(), 1))
    with pytest.raises(CheckpointError, match=r"(?s)operator 'notify'.*set"):
        plan.state_dict()
