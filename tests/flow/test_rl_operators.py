"""Training, storing, weights, priorities, messages."""

from collections import Counter
from itertools import islice
from typing import Any, Literal

import numpy as np
import pytest

from rlweave.errors import PlanError
from rlweave.flow import (
    Envelope,
    FakeClock,
    LocalEngine,
    ParallelRollouts,
    Replay,
    ReportMetrics,
    SampleBatch,
    StoreToBuffer,
    Stream,
    TrainOneStep,
    TrainStats,
    Union,
    UpdatePriorities,
    UpdateWeights,
)
from tests.flow.conftest import Start
from tests.flow.fakes import FakeLearner, FakeMemory, FakeWorker, SimulatedEngine, workers


class CountingEngine(LocalEngine):
    """Counts what is put."""

    def __init__(self) -> None:
        self.puts = 0

    def put(self, value: Any) -> Any:
        self.puts += 1
        return value


def test_workers_get_the_learners_weights_before_their_first_item(start: Start) -> None:
    group, learner = workers(2), FakeLearner()
    learner.updates = 5  # trained before, by somebody else
    start(ReportMetrics(ParallelRollouts(group).gather_sync().for_each(TrainOneStep(learner, group)), group))
    assert [worker.version for worker in group] == [5, 5]
    assert [worker.received for worker in group] == [[0], [0]]


def test_weights_are_read_and_put_once_per_version_however_many_workers() -> None:
    group, learner, engine = workers(5), FakeLearner(), CountingEngine()
    plan = ReportMetrics(ParallelRollouts(group).gather_sync().for_each(TrainOneStep(learner, group)), group)
    plan.start(engine)
    for _ in range(4):
        plan.pull()
    assert engine.puts == learner.weights_read == 1, "four items of one round: nobody was asked for a new item yet"
    for _ in range(4):
        plan.pull()
    assert engine.puts == learner.weights_read == 2
    assert [worker.received for worker in group] == [[0, 5]] * 5


def test_a_learner_with_many_updates_between_two_items_is_read_once_per_item() -> None:
    group, learner, memory = workers(1, steps=4), FakeLearner(), FakeMemory(batch_size=4)
    store = ParallelRollouts(group).gather_async().for_each(StoreToBuffer(memory))
    train = Replay(memory).for_each(TrainOneStep(learner, group)).rate_limit(8.0, min_size=4)
    plan = ReportMetrics(Union(store, train), group)
    for _ in plan.run(until=lambda counters: counters.env_steps_sampled >= 40):
        pass
    assert group[0].received == [0, 8, 16, 24, 32, 40, 48, 56, 64]
    assert learner.weights_read == 9


def test_publish_every_sends_weights_less_often() -> None:
    group, learner = workers(2), FakeLearner()
    train = TrainOneStep(learner, group, publish_every=3)
    plan = ReportMetrics(ParallelRollouts(group).gather_async().for_each(train), group)
    for _ in range(7):
        plan.pull()
    assert [worker.received for worker in group] == [[0, 3], [0, 4, 6]]
    assert plan.report().train_lag == {0: 1, 1: 3, 2: 1, 3: 2}


class Sharing(FakeWorker):
    """Acts on the learner's own weights."""

    shares_weights = True

    def set_weights(self, weights: Any, version: int) -> None:
        raise AssertionError("never called")


def test_a_worker_that_shares_the_learners_weights_costs_no_copy_and_has_a_version() -> None:
    group, learner = [Sharing(0), Sharing(1)], FakeLearner()
    plan = ReportMetrics(ParallelRollouts(group).gather_async().for_each(TrainOneStep(learner, group)), group)
    for _ in range(6):
        plan.pull()
    assert learner.weights_read == 0
    assert plan.report().train_lag == {0: 1, 1: 5}


def test_update_weights_sends_to_the_worker_that_made_the_item_if_it_is_behind() -> None:
    group, learner, memory = workers(2), FakeLearner(), FakeMemory(batch_size=4)
    store = (
        ParallelRollouts(group).gather_async().for_each(StoreToBuffer(memory)).for_each(UpdateWeights(learner, group))
    )
    train = Replay(memory).rate_limit(0.5, min_size=1).for_each(TrainOneStep(learner))
    plan = ReportMetrics(Union(store, train), group)
    for _ in plan.run(until=lambda counters: counters.updates >= 4):
        pass
    assert [worker.received for worker in group] == [[0, 1, 2, 3], [0, 1, 2, 3]] or all(
        worker.received == sorted(set(worker.received)) for worker in group
    )
    assert learner.weights_read == len({version for worker in group for version in worker.received})


def test_update_weights_counts_each_workers_steps() -> None:
    group, learner = workers(2, steps=10), FakeLearner()
    stream = (
        ParallelRollouts(group)
        .gather_async()
        .for_each(UpdateWeights(learner, group, every_steps=25))
        .for_each(TrainOneStep(learner))
    )
    plan = ReportMetrics(stream, group)
    for _ in range(12):  # 6 items, 60 steps of each worker: at 30 and 50
        plan.pull()
    assert group[0].received == [0, 5, 9]
    assert group[1].received == [0, 6, 10]


def test_update_weights_reaches_all_who_made_a_merged_item() -> None:
    group, learner = workers(3), FakeLearner()
    stream = ParallelRollouts(group).gather_sync().concat(12)
    plan = ReportMetrics(stream.for_each(UpdateWeights(learner, group)).for_each(TrainOneStep(learner)), group)
    for _ in range(3):
        plan.pull()
    assert [worker.received for worker in group] == [[0, 1, 2]] * 3
    assert plan.report().train_lag == {0: 3}


def two_learners(stream: Stream, group: list[FakeWorker], every: int = 1) -> ReportMetrics:
    """One learner trains on each item, another one on so many of them at a time."""
    left, right = stream.split(2, capacity=every)
    ppo = left.for_each(TrainOneStep(FakeLearner(), group)).named("ppo")
    dqn = right.batch(every).for_each(SampleBatch.concat).for_each(TrainOneStep(FakeLearner(), group)).named("dqn")
    return ReportMetrics(Union(ppo, dqn), group)


def test_the_weights_of_each_learner_of_a_group_have_versions_of_their_own() -> None:
    group = workers(2)
    plan = two_learners(ParallelRollouts(group).gather_sync(), group)
    for _ in range(5):
        plan.pull()
    report = plan.report()
    assert report.updates == 5
    assert set(report.metrics) == {"ppo/loss", "dqn/loss"}
    assert group[0].received == [0, 0, 2, 2], "once from each learner, for the first item and for the third"


def test_the_lag_of_an_item_is_counted_in_updates_of_the_learner_that_trains_on_it() -> None:
    group = workers(2)
    plan = two_learners(ParallelRollouts(group).gather_async(), group).start(LocalEngine(), FakeClock())
    items = list(islice(plan.items(), 20))
    assert [(item.weight_version, item.versions) for item in items[:6]] == [
        *[(0, (0, 0))] * 4,
        *[(2, (1, 1))] * 2,
    ]
    report = plan.report()
    # as for a single learner: two workers in turns, each one update behind
    assert report.train_lags == {"ppo": {0: 1, 1: 9}, "dqn": {0: 1, 1: 9}}
    assert report.train_lag == {0: 2, 1: 18}
    assert report.gather_lag == {0: 1, 1: 9}
    flat = report.flat()
    assert flat["train_lag/mean"] == flat["train_lag/ppo/mean"] == flat["train_lag/dqn/mean"] == 0.9
    single = ReportMetrics(
        ParallelRollouts(alone := workers(2)).gather_async().for_each(TrainOneStep(FakeLearner(), alone)), alone
    )
    list(islice(single.items(), 10))
    assert single.report().train_lag == report.train_lags["ppo"]
    assert "train_lag/train_one_step/mean" not in single.report().flat()


class Named(FakeLearner):
    """Its weights say whose they are; it notes how many updates it has made since the oldest that it trains on."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name, self.lags = name, Counter[int]()

    def update(self, batch: SampleBatch) -> dict[str, Any]:
        self.lags[self.updates - int(batch[self.name].min())] += 1
        return super().update(batch)

    def get_weights(self) -> dict[str, Any]:
        return {**super().get_weights(), "of": self.name}


class Knowing(FakeWorker):
    """Its items say how many updates of each learner their weights had seen."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.known: dict[str, int] = {}

    def set_weights(self, weights: Any, version: int) -> None:
        assert version == weights["w"]
        self.known[weights["of"]] = version

    def sample(self) -> SampleBatch:
        batch = super().sample()
        return SampleBatch({**batch.data, **{name: batch["step"] * 0 + seen for name, seen in self.known.items()}})


@pytest.mark.parametrize("slow", [1.0, 4.5])
def test_lags_of_several_learners_are_those_that_workers_and_learners_see_themselves(slow: float) -> None:
    """One learner trains on each item, another one on four at a time; a gather sees who has gone furthest."""
    group, clock = [Knowing(0), Knowing(1)], FakeClock()
    ppo, dqn = Named("ppo"), Named("dqn")
    seen: Counter[int] = Counter()

    def look(batch: SampleBatch) -> SampleBatch:
        seen[max(learner.updates - int(batch[learner.name][0]) for learner in (ppo, dqn))] += 1
        return batch

    left, right = ParallelRollouts(group).gather_async(num_async=2).for_each(look).queue(3).split(2, capacity=4)
    each = left.for_each(TrainOneStep(ppo, group)).named("ppo")
    four = right.batch(4).for_each(SampleBatch.concat).for_each(TrainOneStep(dqn, group)).named("dqn")
    plan = ReportMetrics(Union(each, four), group)
    plan.start(SimulatedEngine(clock, lambda index: slow if index == 1 else 1.0), clock)
    list(islice(plan.items(), 50))
    report = plan.report()
    assert report.gather_lag == seen
    assert report.train_lags == {"ppo": ppo.lags, "dqn": dqn.lags}
    assert max(ppo.lags) > max(dqn.lags) >= 1


@pytest.mark.parametrize("when_old", ["drop", "wait"])
def test_a_bound_on_the_lag_holds_for_each_learner_and_not_for_their_sum(when_old: Literal["drop", "wait"]) -> None:
    group = workers(2)
    stream = ParallelRollouts(group).gather_async(max_lag=1, when_old=when_old)
    plan = two_learners(stream, group).start(LocalEngine(), FakeClock())
    list(islice(plan.items(), 20))
    assert plan.counters.drops == {}
    assert plan.report().measures.get("gather_async/held_back", 0) == 0

    group, clock = workers(2), FakeClock()
    stream = ParallelRollouts(group).gather_async(max_lag=1, when_old=when_old)
    slow = two_learners(stream, group).start(SimulatedEngine(clock, lambda index: 1.0 + 4.0 * index), clock)
    list(islice(slow.items(), 20))
    assert max(slow.report().train_lag) == (0 if when_old == "drop" else 1)
    assert bool(slow.counters.drops) == (when_old == "drop")


def test_items_have_no_lag_for_a_learner_whose_weights_nobody_acts_on() -> None:
    group = workers(1)
    left, right = ParallelRollouts(group).gather_sync().split(2)
    acts = left.for_each(TrainOneStep(FakeLearner(), group)).named("acts")
    plan = ReportMetrics(Union(acts, right.for_each(TrainOneStep(FakeLearner())).named("only_learns")))
    list(islice(plan.items(), 6))
    assert plan.report().train_lags == {"acts": {0: 3}}


def test_train_stats_say_what_was_done() -> None:
    plan = ReportMetrics(ParallelRollouts(workers(1)).gather_sync().for_each(TrainOneStep(FakeLearner())))
    item = plan.pull()
    assert isinstance(item, Envelope)
    assert item.payload == TrainStats({"loss": 1.0}, num_steps=4, gradient_steps=1, version=1)
    assert item.source == "parallel_rollouts/0"


class Prioritized(FakeLearner):
    """Finds the TD errors of what it trains on."""

    def update(self, batch: SampleBatch) -> dict[str, Any]:
        return {**super().update(batch), "priorities": (batch["index"], np.full(batch.num_steps, self.updates))}


def apex(learner: FakeLearner, memory: FakeMemory) -> ReportMetrics:
    store = ParallelRollouts(workers(2)).gather_async().for_each(StoreToBuffer(memory))
    train = Replay(memory).for_each(TrainOneStep(learner)).for_each(UpdatePriorities(memory))
    return ReportMetrics(Union(store, train))


def test_priorities_are_updated_after_training() -> None:
    memory = FakeMemory(batch_size=3)
    plan = apex(Prioritized(), memory)
    for _ in range(6):
        plan.pull()
    assert [priorities.tolist() for _, priorities in memory.priorities] == [[n, n, n] for n in (1, 2, 3)]
    assert memory.priorities[0][0].tolist() == [0, 1, 2]
    assert set(plan.report().metrics) == {"train_one_step/loss"}


def test_a_learner_without_priorities_is_named() -> None:
    plan = apex(FakeLearner(), FakeMemory())
    with pytest.raises(PlanError, match=r"'update_priorities' failed: PlanError: the learner gave no priorities"):
        list(plan.run(until=lambda counters: counters.updates > 2))


@pytest.mark.parametrize("target", ["stream", "workers"])
def test_messages_reach_all_workers_before_their_next_item(start: Start, target: str) -> None:
    group = workers(2)
    rollouts = ParallelRollouts(group)
    stream = rollouts.gather_sync().for_each(lambda batch: int(batch["step"][0]))
    plan = start(ReportMetrics(stream.notify(rollouts if target == "stream" else group, "greet", every=2)))
    seen = []
    for _ in range(4):
        next(plan.items())
        seen.append(len(group[0].messages))
    assert group[0].messages == group[1].messages == [(0, 0), (4, 0)]
    assert seen == [0, 1, 1, 2]


def test_a_message_can_be_made_of_the_item_and_carries_the_weight_version() -> None:
    group, learner = workers(1), FakeLearner()
    rollouts = ParallelRollouts(group)
    train = rollouts.gather_sync().for_each(TrainOneStep(learner, group))
    plan = ReportMetrics(train.notify(rollouts, "greet", message=lambda stats: f"update {stats.version}"))
    for _ in range(2):
        plan.pull()
    assert group[0].messages == [("update 1", 1), ("update 2", 2)]


class Listener(FakeMemory):
    """A memory that takes messages."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[tuple[Any, int]] = []

    def hear(self, message: Any, version: int) -> None:
        self.heard.append((message, version))


@pytest.mark.parametrize("target", ["stream", "object"])
def test_messages_reach_a_memory(target: str) -> None:
    memory = Listener()
    store = ParallelRollouts(workers(1)).gather_sync().for_each(StoreToBuffer(memory))
    replay = Replay(memory)
    receiver = replay if target == "stream" else memory
    train = replay.for_each(TrainOneStep(FakeLearner())).notify(receiver, "hear", message=lambda stats: stats.version)
    plan = ReportMetrics(Union(store, train))
    for _ in range(4):
        plan.pull()
    assert memory.heard == [(1, 1), (2, 2)]


def test_a_failing_receiver_is_named() -> None:
    group = workers(1)
    group[0].greet = lambda message, version: 1 / 0  # type: ignore[method-assign, assignment]
    plan = ReportMetrics(ParallelRollouts(group).gather_sync().notify(group, "greet"))
    with pytest.raises(PlanError, match="operator 'notify' failed: ZeroDivisionError"):
        plan.pull()


def test_weights_that_take_time_to_arrive_do_not_hold_up_the_plan() -> None:
    from rlweave.flow import FakeClock

    clock = FakeClock()
    engine = SimulatedEngine(clock, lambda index: 1.0 + index)
    group, learner = workers(2), FakeLearner()
    plan = ReportMetrics(ParallelRollouts(group).gather_async().for_each(TrainOneStep(learner, group)), group)
    plan.start(engine, clock)
    for item, _ in zip(plan.items(), range(9), strict=False):
        assert isinstance(item, Envelope)
    assert clock.now() < 9.0
