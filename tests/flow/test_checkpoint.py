"""A plan cut at a checkpoint and resumed goes on exactly as the one that was not cut."""

import copy
import json
from collections.abc import Callable
from itertools import islice
from typing import Any, ClassVar

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
    LocalEngine,
    Operator,
    ParallelRollouts,
    Replay,
    ReportMetrics,
    SampleBatch,
    StoreToBuffer,
    TrainOneStep,
    Union,
    UpdateWeights,
    WorkerGroup,
)
from tests.flow.fakes import FakeLearner, FakeMemory, FakeWorker, SimulatedEngine, workers


class World:
    """All that is not the plan's own: workers, learner, memory. Saved and restored by who owns them."""

    def __init__(self) -> None:
        self.workers, self.learner, self.memory = workers(3), HashingLearner(), FakeMemory(batch_size=6)
        self.other = HashingLearner()


class HashingLearner(FakeLearner):
    """Its weight depends on everything that it ever trained on, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = 1
        self.keep = False

    def update(self, batch: SampleBatch) -> dict[str, Any]:
        super().update(batch)
        for name in sorted(batch.data):
            for number in batch[name].tolist():
                self.weight = (self.weight * 31 + number + 7) % 1_000_003
        return {"loss": float(self.weight)}

    def get_weights(self) -> dict[str, np.ndarray]:
        return {"w": np.array(self.weight)}


def ppo(world: World) -> ReportMetrics:
    rollouts = ParallelRollouts(world.workers).gather_sync()
    train = rollouts.for_each(ConcatBatches(min_steps=20)).for_each(TrainOneStep(world.learner, world.workers))
    return ReportMetrics(train, world.workers)


def ppo_sync_mode(world: World) -> ReportMetrics:
    rollouts = ParallelRollouts(world.workers, mode="sync")
    return ReportMetrics(rollouts.for_each(TrainOneStep(world.learner, world.workers)), world.workers)


def dqn(world: World) -> ReportMetrics:
    store = ParallelRollouts(world.workers).gather_async(num_async=2).for_each(StoreToBuffer(world.memory))
    train = Replay(world.memory).for_each(TrainOneStep(world.learner, world.workers))
    return ReportMetrics(Union(store, train.rate_limit(2.0, min_size=10), weights=[1, 2]), world.workers)


def everything(world: World) -> ReportMetrics:
    left, right = ParallelRollouts(world.workers).gather_async().split(2, capacity=2)
    store = left.for_each(StoreToBuffer(world.memory)).for_each(UpdateWeights(world.learner, world.workers, 8))
    lists = right.queue(2, "drop_oldest").batch(2).filter(lambda item: True).flatten()
    train = Replay(world.memory).rate_limit(1.0, min_size=10).for_each(TrainOneStep(world.learner))
    greet = lists.notify(world.workers, "greet", every=3, message=lambda batch: int(batch["step"][0]))
    return ReportMetrics(Union(store, greet, train, weights=[2, 1, 1]), world.workers)


def in_rounds(world: World) -> ReportMetrics:
    rounds = ParallelRollouts(world.workers).gather_sync().batch_rounds().for_each(SampleBatch.concat)
    return ReportMetrics(rounds.for_each(TrainOneStep(world.learner, world.workers)), world.workers)


class Numbering(Operator):
    """Gives each batch its number at its worker, and the mean of all steps that it saw there: two kinds of state."""

    state = ("seen", "total")

    def __init__(self) -> None:
        self.seen, self.total = 0, np.zeros(1, np.int64)

    def __call__(self, batch: SampleBatch) -> SampleBatch:
        self.seen += 1
        self.total = self.total + batch["step"].sum()
        return SampleBatch({**batch.data, "seen": batch["step"] * 0 + self.seen, "total": self.total + batch["step"]})


def at_workers(world: World) -> ReportMetrics:
    rollouts = ParallelRollouts(world.workers).par_for_each(Numbering()).par_for_each(lambda batch: batch)
    rollouts = rollouts.par_for_each(Numbering()).gather_async(num_async=2)
    return ReportMetrics(rollouts.for_each(TrainOneStep(world.learner, world.workers)), world.workers)


def two_learners(world: World) -> ReportMetrics:
    left, right = ParallelRollouts(world.workers).gather_async(num_async=2).queue(2).split(2, capacity=3)
    every = left.for_each(TrainOneStep(world.learner, world.workers)).named("every")
    third = right.batch(3).for_each(SampleBatch.concat).for_each(TrainOneStep(world.other, world.workers))
    return ReportMetrics(Union(every, third), world.workers)


def by_reference(world: World) -> ReportMetrics:
    items = ParallelRollouts(world.workers, fragments=2).gather_async(num_async=2, by_reference=True).queue(3)
    left, right = items.for_each(UpdateWeights(world.learner, world.workers, 8)).split(2, capacity=2)
    lists = right.batch(3).flatten().for_each(ItemReference.fetch).for_each(TrainOneStep(world.other))
    train = left.for_each(ItemReference.fetch).for_each(TrainOneStep(world.learner))
    return ReportMetrics(Union(train, lists), world.workers)


PLANS: dict[str, Callable[[World], ReportMetrics]] = {
    "ppo": ppo,
    "ppo_sync_mode": ppo_sync_mode,
    "dqn": dqn,
    "everything": everything,
    "at_workers": at_workers,
    "in_rounds": in_rounds,
    "two_learners": two_learners,
    "by_reference": by_reference,
}


def through_json(state: Any) -> Any:
    """Writes arrays on one side and JSON on the other, as a checkpoint does, and reads both back."""
    arrays: list[np.ndarray] = []

    def out(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            arrays.append(value.copy())
            return {"__array__": len(arrays) - 1}
        if isinstance(value, dict):
            assert all(isinstance(key, str) for key in value)
            return {key: out(inner) for key, inner in value.items()}
        return [out(inner) for inner in value] if isinstance(value, list) else value

    def back(value: Any) -> Any:
        if isinstance(value, dict):
            return arrays[value["__array__"]] if "__array__" in value else {k: back(v) for k, v in value.items()}
        return [back(inner) for inner in value] if isinstance(value, list) else value

    return back(json.loads(json.dumps(out(state))))


def trail(plan: ReportMetrics, steps: int) -> list[Any]:
    """What each of the next steps gives, in a form that can be compared."""
    found: list[Any] = []
    for _ in range(steps):
        item = plan.step()
        if isinstance(item, Envelope):
            batch = item.payload
            content = {k: v.tolist() for k, v in batch.data.items()} if isinstance(batch, SampleBatch) else str(batch)
            found.append((item.source, item.sequence, item.weight_version, item.parts, content))
        else:
            found.append(item)
    return found


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("cut", [0, 1, 2, 3, 5, 8, 13, 21, 34, 35, 36, 37, 38, 39, 40])
def test_cut_and_resumed_equals_uncut(name: str, cut: int) -> None:
    world = World()
    plan = PLANS[name](world).start(clock=FakeClock())
    trail(plan, cut)
    state = through_json(plan.state_dict())
    saved = copy.deepcopy(world)
    unseen = World()
    undisturbed = PLANS[name](unseen).start(clock=FakeClock())
    trail(undisturbed, cut)
    uncut = trail(undisturbed, 60)
    assert trail(plan, 60) == uncut, "who looks changes nothing"
    assert unseen.learner.weight == world.learner.weight

    acted_on = [(worker.version, list(worker.received)) for worker in saved.workers]
    resumed = PLANS[name](saved).start(clock=FakeClock())
    resumed.load_state_dict(state)
    for worker, (version, received) in zip(saved.workers, acted_on, strict=True):  # they are restored as they were
        worker.version, worker.received = version, received
    resumed.recall_weights(state)
    assert trail(resumed, 60) == uncut
    assert saved.learner.weight == world.learner.weight
    assert [worker.version for worker in saved.workers] == [worker.version for worker in world.workers]
    assert [worker.messages for worker in saved.workers] == [worker.messages for worker in world.workers]
    assert resumed.counters == plan.counters
    ours, theirs = resumed.report(), plan.report()
    assert ours == theirs


def test_counters_and_time_go_on() -> None:
    world, clock = World(), FakeClock()
    plan = ppo(world).start(clock=clock)
    trail(plan, 10)
    clock.advance(7.0)
    state = plan.state_dict()
    assert state["counters"]["env_steps_sampled"] == 40
    later = FakeClock(1000.0)
    resumed = ppo(World()).start(clock=later)
    resumed.load_state_dict(state)
    later.advance(3.0)
    assert resumed.seconds == 10.0
    assert [r.env_steps_sampled for r in resumed.run(until=lambda c: c.env_steps_sampled >= 60)][-1] == 60


def test_workers_get_the_loaded_learners_weights() -> None:
    world = World()
    plan = ppo(world)
    trail(plan, 20)
    state = plan.state_dict()
    fresh = World()
    resumed = ppo(fresh).start()
    fresh.learner.weight = world.learner.weight  # as loading a learner does
    resumed.load_state_dict(state)
    assert [worker.version for worker in fresh.workers] == [world.learner.weight] * 3
    assert [worker.received[-1] for worker in fresh.workers] == [world.learner.updates] * 3


def test_weights_that_were_replaced_without_an_update_are_sent_again() -> None:
    world = World()
    state = ppo(world).state_dict()
    resumed = ppo(world).start()
    world.learner.weight = 77
    resumed.load_state_dict(state)
    assert [worker.version for worker in world.workers] == [77] * 3


def test_a_checkpoint_after_the_end_resumes_at_the_end() -> None:
    world = World()
    world.workers = workers(2, items=2)
    plan = ppo(world)
    list(plan.run())
    saved = copy.deepcopy(world)
    resumed = ppo(saved).start()
    resumed.load_state_dict(through_json(plan.state_dict()))
    assert list(resumed.run()) == []
    assert resumed.counters == plan.counters


def test_a_checkpoint_of_another_plan_is_refused_with_the_difference() -> None:
    with pytest.raises(CheckpointError, match=r"(?s)of another plan.*\['concat_batches'.*'rate_limit', 'replay'"):
        dqn(World()).load_state_dict(ppo(World()).state_dict())


class InPlace(Operator):
    """Changes its state and its items in place, at every level."""

    state = ("nested",)

    def __init__(self) -> None:
        self.nested = {"mean": np.zeros(2), "last": [np.zeros(2)]}

    def __call__(self, batch: SampleBatch) -> SampleBatch:
        self.nested["mean"] += batch["step"].mean()
        self.nested["last"][0] += 1
        batch["step"][:] += 1
        return batch


def test_a_state_in_memory_is_not_changed_by_the_plan_that_goes_on_nor_by_one_that_goes_on_from_it() -> None:
    def compose() -> ReportMetrics:
        items = ParallelRollouts(workers(2)).par_for_each(InPlace()).gather_async(num_async=2)
        return ReportMetrics(items.queue(4).for_each(InPlace()).batch(3).flatten().for_each(InPlace()))

    plan = compose().start(clock=FakeClock())
    trail(plan, 20)
    state = plan.state_dict()
    frozen = copy.deepcopy(state)
    trail(plan, 20)
    np.testing.assert_equal(state, frozen)
    resumed = compose().start(clock=FakeClock())
    resumed.load_state_dict(state)
    trail(resumed, 20)
    np.testing.assert_equal(state, frozen)


def test_an_item_that_cannot_be_saved_is_named() -> None:
    plan = ReportMetrics(ParallelRollouts([FakeWorker()]).gather_sync().for_each(lambda batch: object()).batch(2))
    plan.step()
    with pytest.raises(CheckpointError, match=r"(?s)'batch'.*object.*SampleBatch, arrays"):
        plan.state_dict()


@pytest.mark.parametrize("look", ["drain", "state_dict"])
def test_looking_in_between_changes_nothing_that_workers_act_on(look: str) -> None:
    def versions(look: str | None) -> list[int]:
        group = workers(1)
        train = ParallelRollouts(group).gather_async().for_each(TrainOneStep(FakeLearner(), group, publish_every=8))
        plan = ReportMetrics(train, group).start(clock=FakeClock())
        found = []
        for number in range(14):
            item = plan.pull()
            assert isinstance(item, Envelope)
            found.append(item.weight_version)
            if number == 4 and look is not None:
                getattr(plan, look)()
        return found

    assert versions(look) == versions(None)


def test_workers_that_were_not_restored_go_on_with_the_newest_weights() -> None:
    world = World()
    plan = dqn(world).start(clock=FakeClock())
    trail(plan, 23)
    versions = [worker.version for worker in world.workers]
    state = through_json(plan.state_dict())
    assert [worker.version for worker in world.workers] == versions != [world.learner.weight] * 3
    saved = copy.deepcopy(world)
    resumed = dqn(saved).start(clock=FakeClock())
    resumed.load_state_dict(state)
    assert [worker.version for worker in saved.workers] == [world.learner.weight] * 3
    assert resumed.counters == plan.counters

    def stored(trail: list[Any]) -> list[tuple[str, int]]:
        return [found[:2] for found in trail if isinstance(found, tuple) and found[0] != "replay"]

    assert stored(trail(resumed, 60)) == stored(trail(plan, 60))


def numbers(plan: ReportMetrics, items: int) -> list[list[int]]:
    return [[int(item.source[-1]), int(item.payload["seen"][0])] for item in islice(plan.items(), items)]


def numbered(n: int) -> ReportMetrics:
    return ReportMetrics(ParallelRollouts(workers(n)).par_for_each(Numbering()).gather_sync())


def test_operators_at_the_workers_go_on_with_the_state_of_their_worker() -> None:
    plan = numbered(2).start(LocalEngine(), FakeClock())
    assert numbers(plan, 4) == [[0, 1], [1, 1], [0, 2], [1, 2]]
    state = through_json(plan.state_dict())
    states = state["operators"]["numbering"]["state"]["at_workers"]
    assert [kept["seen"] for kept in states] == [2, 2]
    states[1]["seen"] = 40  # of the second one
    resumed = numbered(2).start(LocalEngine(), FakeClock())
    resumed.load_state_dict(state)
    assert numbers(resumed, 4) == [[0, 3], [1, 41], [0, 4], [1, 42]]


def every_second(batch: SampleBatch) -> SampleBatch:
    return ABSORBED if batch["step"][0] % 8 == 4 else batch  # type: ignore[return-value]


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_items_that_stayed_at_a_worker_stay_there_in_answers_under_way(cut: int) -> None:
    def compose(group: list[FakeWorker]) -> ReportMetrics:
        return ReportMetrics(ParallelRollouts(group).par_for_each(every_second).gather_async(num_async=3)).start()

    group = workers(1)
    plan = compose(group)
    list(islice(plan.items(), cut))
    resumed = compose(copy.deepcopy(group))
    resumed.load_state_dict(through_json(plan.state_dict()))
    first, again = ([int(item.payload["step"][0]) for item in islice(each.items(), 4)] for each in (plan, resumed))
    assert first == again == [8 * (cut + n) for n in range(4)]


def test_a_worker_that_is_gone_has_no_state_and_its_successor_begins_anew() -> None:
    clock = FakeClock()
    engine = SimulatedEngine(clock)
    group = WorkerGroup([FakeWorker, FakeWorker])
    rollouts = ParallelRollouts(group).on_error("replace", first_delay=100.0, longest_delay=100.0)
    plan = ReportMetrics(rollouts.par_for_each(Numbering()).gather_async(), group).start(engine, clock)
    list(islice(plan.items(), 4))
    engine.crash(plan._context.actors(group)[0])  # type: ignore[union-attr]
    while not plan.counters.failures:
        if plan.step() is NOT_READY:
            plan.wait()
    first, second = plan.state_dict()["operators"]["numbering"]["state"]["at_workers"]
    assert first is None
    assert second["seen"] >= 2
    state = plan.state_dict()
    resumed = ReportMetrics(ParallelRollouts(group).par_for_each(Numbering()).gather_async(), group).start(
        LocalEngine(), FakeClock()
    )
    resumed.load_state_dict(state)
    seen = {int(item.source[-1]): int(item.payload["seen"][0]) for item in islice(resumed.items(), 4, 6)}
    assert seen[0] < seen[1]


def test_who_has_no_state_at_the_workers_is_not_asked() -> None:
    class Listening(LocalEngine):
        heard: ClassVar[list[str]] = []

        def call(self, actor: Any, method: str, *arguments: Any) -> Any:
            self.heard.append(method)
            return super().call(actor, method, *arguments)

    def asked(*operators: Any) -> set[str]:
        stream = ParallelRollouts(workers(2))
        for operator in operators:
            stream = stream.par_for_each(operator)  # type: ignore[assignment]
        plan = ReportMetrics(stream.gather_sync()).start(Listening(), FakeClock())
        Listening.heard.clear()
        plan.state_dict()
        return set(Listening.heard)

    assert asked(lambda batch: batch) == set()
    assert asked(lambda batch: batch, Numbering()) == {"stage_state"}


@pytest.mark.parametrize("number", [1, 3])
def test_a_checkpoint_of_another_number_of_workers_is_refused(number: int) -> None:
    plan = numbered(2)
    plan.step()
    with pytest.raises(
        CheckpointError, match=rf"(?s)another number of workers.*'numbering'.*of 2 workers, for {number}"
    ):
        numbered(number).load_state_dict(plan.state_dict())
    plain = ReportMetrics(ParallelRollouts(workers(2)).gather_sync())
    with pytest.raises(CheckpointError, match=rf"(?s)another number.*'gather_sync'.*of 2 workers, for {number}"):
        ReportMetrics(ParallelRollouts(workers(number)).gather_sync()).load_state_dict(plain.state_dict())


def test_an_operator_at_a_worker_that_cannot_be_saved_is_named() -> None:
    class Broken(Numbering):
        def state_dict(self) -> dict[str, Any]:
            raise RuntimeError("no state today")

    plan = ReportMetrics(ParallelRollouts(workers(2)).par_for_each(Broken()).gather_sync())
    with pytest.raises(PlanError, match=r"(?s)'broken'.*no state today"):
        plan.state_dict()
