"""A replay memory in shards: samples know their shard, the replay ratio is exact, and a dead shard is replaced."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from rlweave.errors import PlanError
from rlweave.flow import (
    NOT_READY,
    ConcatBatches,
    Envelope,
    FakeClock,
    LocalEngine,
    ParallelReplay,
    ParallelRollouts,
    Replay,
    ReplayShards,
    ReportMetrics,
    Resources,
    SampleBatch,
    StoreToBuffer,
    TrainOneStep,
    Union,
    UpdatePriorities,
    UpdateWeights,
    WorkerGroup,
)
from rlweave.flow.shards import CALLS_AHEAD
from tests.flow.conftest import Start
from tests.flow.fake_shards import BATCH, FakeShard, Prioritizing
from tests.flow.fakes import FakeLearner, FakeMemory, FakeWorker, SimulatedCall, SimulatedEngine, workers


def shards_of(made: list[FakeShard], n: int = 2, capacity: int | None = None, **options: Any) -> ReplayShards:
    return ReplayShards([functools.partial(FakeShard, i, made, **options) for i in range(n)], BATCH, capacity)


def ape_x(
    group: Sequence[FakeWorker] | WorkerGroup,
    learner: FakeLearner,
    shards: ReplayShards,
    num_async: int = 1,
    min_size: int = 1,
    ratio: float | None = None,
    policy: Any = None,
    **options: Any,
) -> ReportMetrics:
    store = ParallelRollouts(group).gather_async().for_each(StoreToBuffer(shards))
    store = store.for_each(UpdateWeights(learner, group))
    replay = ParallelReplay(shards, min_size, **options)
    samples = (replay.on_error(policy) if policy else replay).gather_async(num_async)
    train = samples.for_each(TrainOneStep(learner)).for_each(UpdatePriorities(shards))
    limited = train if ratio is None else train.rate_limit(ratio, min_size)
    return ReportMetrics(Union(store, limited), group)


def run(plan: ReportMetrics, steps: int) -> None:
    for _ in plan.run(until=lambda counters: counters.env_steps_sampled >= steps, every_steps=1 << 60):
        pass


def test_priorities_go_back_to_the_shard_that_a_sample_came_from(start: Start) -> None:
    made: list[FakeShard] = []
    learner = Prioritizing()
    plan = start(ape_x(workers(2), learner, shards_of(made, n=3), num_async=2))
    run(plan, 400)
    assert set(learner.trained_on) == {0, 1, 2}
    for shard in made:
        numbers = [indices for indices, _ in shard.priorities]
        assert len(numbers) == learner.trained_on.count(shard.number) > 5
        # in the order in which it made them, each once: 100 to 107, 200 to 207, ...
        assert numbers == [list(range(100 * (i + 1), 100 * (i + 1) + BATCH)) for i in range(len(numbers))]
        assert {value for _, values in shard.priorities for value in values} == {shard.number + 0.25}


def test_samples_that_overtake_each_other_still_know_their_shard() -> None:
    made: list[FakeShard] = []
    clock, learner = FakeClock(), Prioritizing()
    engine = SimulatedEngine(clock, lambda number: {1: 5.0, 2: 0.3}.get(number, 1.0))  # worker 0, shards 1 and 2
    plan = ape_x(workers(1, steps=16), learner, shards_of(made), num_async=3).start(engine, clock)
    run(plan, 320)
    slow, fast = made
    assert learner.trained_on.count(1) > 3 * learner.trained_on.count(0) > 0, "the fast one is not held up"
    for shard in (slow, fast):
        assert {value for _, values in shard.priorities for value in values} == {shard.number + 0.25}


def test_items_are_stored_in_turns_and_samples_are_no_environment_steps(start: Start) -> None:
    made: list[FakeShard] = []
    plan = start(ape_x(workers(2), Prioritizing(), shards_of(made, n=3)))
    run(plan, 48)
    assert [shard.steps for shard in made] == [16, 16, 16]
    assert plan.counters.env_steps_sampled == 48
    report = plan.report()
    assert report.measures["parallel_replay/held_steps"] == 48
    assert sum(report.gather_lag.values()) == 12, "of the rollouts alone: a memory mixes many versions"


@pytest.mark.parametrize(("ratio", "n", "num_async"), [(0.25, 2, 1), (1.0, 1, 1), (1.0, 3, 4), (8.0, 2, 2)])
def test_trained_samples_per_step_hold_to_one_percent(start: Start, ratio: float, n: int, num_async: int) -> None:
    learner = Prioritizing()
    learner.keep = False
    plan = start(ape_x(workers(2, steps=20), learner, shards_of([], n), num_async, min_size=100, ratio=ratio))
    # what is under way at the end, n x num_async batches, has to be less than 1 %
    goal = 100 + int(110 * (BATCH * (n * num_async + 1) / ratio + 20))
    run(plan, goal)
    stored = plan.counters.env_steps_sampled - 100
    assert plan.counters.trained_samples / stored == pytest.approx(ratio, rel=0.01)
    assert plan.report().flat()["rate_limit/samples_per_insert"] == pytest.approx(ratio, rel=0.01)


@pytest.mark.parametrize("raises_every", [0, 5])
@pytest.mark.parametrize(("ratio", "fragments"), [(0.5, 3), (8.0, 4)])
def test_the_ratio_holds_with_several_samples_per_call_also_where_some_fail(
    start: Start, ratio: float, fragments: int, raises_every: int
) -> None:
    made: list[FakeShard] = []
    learner = Prioritizing()
    learner.keep = False
    shards = shards_of(made, raises_every=raises_every)
    plan = start(ape_x(workers(2, steps=20), learner, shards, 2, 100, ratio, "skip", fragments=fragments))
    run(plan, 100 + int(110 * (BATCH * (2 * 2 * fragments + 1) / ratio + 20)))
    counters = plan.counters
    assert counters.trained_samples / (counters.env_steps_sampled - 100) == pytest.approx(ratio, rel=0.01)
    assert plan.report().flat()["rate_limit/samples_per_insert"] == pytest.approx(ratio, rel=0.01)
    failed = sum(shard.samples // raises_every for shard in made) if raises_every else 0
    assert counters.lost_items.get("parallel_replay", 0) == pytest.approx(failed, abs=2)
    for shard in made:  # each in its place, and its priorities come back once
        numbers = [indices[0] // 100 for indices, _ in shard.priorities]
        sampled = [n for n in range(1, shard.samples + 1) if not raises_every or n % raises_every]
        assert numbers == sampled[: len(numbers)]
        assert len(numbers) > 20


def test_several_samples_per_call_take_fewer_calls() -> None:
    clock, learner, made = FakeClock(), Prioritizing(), []  # type: ignore[var-annotated]
    asked: list[int] = []
    engine = SimulatedEngine(clock, lambda number: asked.append(number) or 1.0)  # type: ignore[func-returns-value]
    plan = ape_x(workers(1, steps=64), learner, shards_of(made), ratio=4.0, fragments=4).start(engine, clock)
    run(plan, 1280)
    samples = sum(shard.samples for shard in made)
    assert samples == pytest.approx((1280 - 64) * 4 / BATCH, rel=0.02)
    assert "fragments=4" in plan.explain()
    assert sum(number > 0 for number in asked) < samples / 2


def test_no_shard_is_asked_for_more_than_num_async_batches_ahead(start: Start) -> None:
    made: list[FakeShard] = []
    learner = Prioritizing()
    plan = start(ape_x(workers(1, steps=64), learner, shards_of(made), num_async=3))
    for _ in range(300):
        if plan.step() is NOT_READY:
            plan.wait()
        for shard in made:
            assert shard.samples - learner.trained_on.count(shard.number) <= 3
    assert learner.updates > 20


def test_a_shard_is_asked_once_it_holds_its_share() -> None:
    made: list[FakeShard] = []
    learner = Prioritizing()
    plan = ape_x(workers(1, steps=10), learner, shards_of(made), min_size=40)
    while not learner.updates:
        plan.step()
    assert [shard.steps for shard in made] == [20, 10], "the first one has half of 40"
    run(plan, 100)
    assert set(learner.trained_on) == {0, 1}


# -- failures ------------------------------------------------------------------------------------------------------


def test_a_shard_that_dies_is_replaced_in_place_and_what_it_held_is_counted() -> None:
    made: list[FakeShard] = []
    clock, learner = FakeClock(), Prioritizing()
    engine, group = SimulatedEngine(clock), workers(1)
    shards = shards_of(made)
    plan = ape_x(group, learner, shards, num_async=2, min_size=40, ratio=4.0, policy="replace").start(engine, clock)
    run(plan, 400)
    trained, held, updates = plan.counters.trained_samples, made[0].steps, learner.updates
    engine.crash(plan._context.actors(shards)[0])  # type: ignore[union-attr]
    run(plan, 420)
    assert learner.updates > updates, "the other one goes on"
    run(plan, 800)
    report = plan.report()
    assert len(made) == 3
    assert (made[2].number, made[2].replaces) == (0, 1)
    assert 0 < held - 20 <= report.measures["parallel_replay/lost_steps"] <= held + 20
    assert report.replacements == {"parallel_replay": 1}
    assert 1 <= report.lost_items["parallel_replay"] <= 4
    assert made[2].samples > 0, "the new one is asked again"
    assert made[2].steps + made[1].steps == report.measures["parallel_replay/held_steps"]
    # counters go on, and the ratio holds: what was lost on its way counts as not sampled
    assert plan.counters.trained_samples > trained
    assert plan.counters.trained_samples / (plan.counters.env_steps_sampled - 40) == pytest.approx(4.0, rel=0.02)
    assert made[1].steps > held


def test_priorities_of_a_dead_shards_samples_do_not_reach_others() -> None:
    made: list[FakeShard] = []
    clock, learner = FakeClock(), Prioritizing()
    engine, shards = SimulatedEngine(clock), shards_of(made)
    plan = ape_x(workers(1), learner, shards, num_async=2, min_size=8, policy="replace").start(engine, clock)
    run(plan, 100)
    engine.crash(plan._context.actors(shards)[0])  # type: ignore[union-attr]
    run(plan, 600)
    assert {value for shard in made for _, values in shard.priorities for value in values} == {0.25, 1.25}
    assert all(indices[0] >= 10_000 for indices, _ in made[2].priorities)
    assert made[2].priorities


def test_a_shard_found_dead_by_who_stores_is_replaced_before_it_is_ever_asked() -> None:
    made: list[FakeShard] = []
    clock, learner = FakeClock(), Prioritizing()
    engine, shards = SimulatedEngine(clock), shards_of(made)
    plan = ape_x(workers(1), learner, shards, min_size=400, ratio=1.0, policy="replace").start(engine, clock)
    run(plan, 40)
    engine.crash(plan._context.actors(shards)[1])  # type: ignore[union-attr]
    run(plan, 1200)
    assert len(made) == 3
    assert made[2].steps > 0
    assert plan.report().lost_items == {}, "nothing had been asked of it"
    assert plan.report().measures["parallel_replay/lost_steps"] >= 20
    assert learner.updates > 0


def test_a_shard_that_dies_stops_the_plan_unless_told_otherwise() -> None:
    made: list[FakeShard] = []
    clock = FakeClock()
    engine, shards = SimulatedEngine(clock), shards_of(made)
    plan = ape_x(workers(1), Prioritizing(), shards).start(engine, clock)
    run(plan, 40)
    engine.crash(plan._context.actors(shards)[1])  # type: ignore[union-attr]
    with pytest.raises(PlanError, match="'parallel_replay' failed: ActorLost") as caught:
        run(plan, 400)
    assert "parallel_replay/1#" in str(caught.value)


def test_an_insert_that_fails_names_who_stored() -> None:
    plan = ape_x(workers(1), Prioritizing(), shards_of([], fails_at=3))
    with pytest.raises(PlanError, match="'store_to_buffer' failed: MemoryError: full"):
        run(plan, 400)


class BadPriorities(FakeShard):
    def update_priorities(self, indices: Any, priorities: Any) -> int:
        raise FloatingPointError("nan")


class Late(SimulatedEngine):
    """Answers to messages come late, so that nobody looks at them when they are sent."""

    in_process = False

    def call(self, actor: Any, method: str, *arguments: Any) -> SimulatedCall:
        call = super().call(actor, method, *arguments)
        if method == "update_priorities":
            call.arrives += 3.0
        return call


@pytest.mark.parametrize("where", ["run", "checkpoint"])
def test_an_error_that_comes_late_still_names_an_operator(where: str) -> None:
    clock, shards = FakeClock(), ReplayShards([functools.partial(BadPriorities, 0)], BATCH)
    workers_ = WorkerGroup([functools.partial(FakeWorker, 0)])
    plan = ape_x(workers_, Prioritizing(), shards).start(Late(clock), clock)
    if where == "run":
        with pytest.raises(PlanError, match=r"'(store_to_buffer|update_priorities)' failed: FloatingPointError: nan"):
            run(plan, 4000)
    else:
        run(plan, 12)
        with pytest.raises(PlanError, match="a shard of a replay memory failed: FloatingPointError: nan") as caught:
            plan.state_dict()
        assert isinstance(caught.value.__cause__, FloatingPointError)


class SlowToStore(SimulatedEngine):
    """Storing an item takes ten seconds."""

    def call(self, actor: Any, method: str, *arguments: Any) -> SimulatedCall:
        call = super().call(actor, method, *arguments)
        if method == "insert":
            call.arrives += 10.0
            self.busy_until[id(actor)] = call.arrives
        return call


def test_items_on_their_way_to_a_shard_are_bounded_and_nothing_is_dropped() -> None:
    made: list[FakeShard] = []
    clock = FakeClock()
    engine, shards = SlowToStore(clock), shards_of(made, n=1)
    plan = ape_x(workers(1), Prioritizing(), shards, min_size=1000).start(engine, clock)
    waiting: list[int] = []
    record = plan._context.shards(shards)  # type: ignore[union-attr]
    for _ in range(300):
        if plan.step() is NOT_READY:
            plan.wait()
        waiting.append(len(record._calls[0]))
    assert max(waiting) == CALLS_AHEAD
    assert plan.counters.drops == {}
    assert made[0].steps == plan.counters.env_steps_sampled > 4 * CALLS_AHEAD
    assert clock.now() >= 10.0 * (len(made[0].inserted) - CALLS_AHEAD), "it waited for the shard"


def test_a_shard_that_hangs_while_it_stores_is_replaced() -> None:
    made: list[FakeShard] = []
    clock = FakeClock()

    class Hangs(SimulatedEngine):
        def call(self, actor: Any, method: str, *arguments: Any) -> SimulatedCall:
            call = super().call(actor, method, *arguments)
            if method == "insert" and actor.worker is made[0]:
                call.arrives = 1e9
            return call

    shards = shards_of(made)
    store = ParallelRollouts(workers(1)).gather_async().for_each(StoreToBuffer(shards))
    samples = ParallelReplay(shards, min_size=1000).on_error("replace", timeout=30.0).gather_async()
    plan = ReportMetrics(Union(store, samples.for_each(TrainOneStep(Prioritizing())))).start(Hangs(clock), clock)
    run(plan, 2000)
    assert len(made) == 3
    assert clock.now() < 1000
    assert made[2].steps > 400
    assert plan.counters.replacements == {"parallel_replay": 1}


# -- ends and checkpoints ------------------------------------------------------------------------------------------


def test_what_is_owed_is_still_trained_when_the_rollouts_end_and_then_the_plan_ends(start: Start) -> None:
    learner = Prioritizing()
    plan = start(ape_x(workers(2, items=50), learner, shards_of([]), num_async=2, min_size=40, ratio=3.0))
    list(plan.items())
    assert plan.ended
    assert plan.counters.trained_samples == (400 - 40) * 3 // BATCH * BATCH


def test_without_a_limiter_the_plan_ends_with_the_rollouts(start: Start) -> None:
    plan = start(ape_x(workers(2, items=10), Prioritizing(), shards_of([]), num_async=2))
    list(plan.items())
    assert plan.counters.env_steps_sampled == 80


def composed(save: bool = True) -> tuple[ReportMetrics, list[FakeShard], Prioritizing, list[FakeWorker]]:
    made: list[FakeShard] = []
    learner, group = Prioritizing(), workers(2)
    plan = ape_x(group, learner, shards_of(made), num_async=2, min_size=40, ratio=3.0, save=save)
    return plan.start(LocalEngine(), FakeClock()), made, learner, group


def shown(made: list[FakeShard]) -> list[Any]:
    return [(shard.samples, [batch["step"].tolist() for batch in shard.inserted], shard.priorities) for shard in made]


def test_cut_and_resumed_equals_uncut() -> None:
    uncut, made, learner, working = composed()
    run(uncut, 160)
    state = uncut.state_dict()
    at_checkpoint, items = learner.updates, [worker.made for worker in working]
    run(uncut, 400)

    resumed, made_again, other, group = composed()
    for worker, made_before in zip(group, items, strict=True):
        worker.made = made_before  # what workers hold is saved by who owns them
    other.updates = at_checkpoint
    resumed.load_state_dict(state)
    run(resumed, 400)
    assert shown(made_again) == shown(made)
    assert other.trained_on == learner.trained_on[at_checkpoint:]
    assert resumed.counters == uncut.counters
    assert resumed.report().measures == uncut.report().measures


def test_a_plan_whose_memory_is_not_saved_begins_with_empty_shards_and_says_what_is_lost() -> None:
    cut, _, _, _ = composed(save=False)
    run(cut, 160)
    state = cut.state_dict()
    assert state["operators"]["parallel_replay"]["state"]["record"]["shards"] == {}
    resumed, made_again, other, _ = composed(save=False)
    resumed.load_state_dict(state)
    assert resumed.report().measures["parallel_replay/lost_steps"] == 160
    for _ in range(8):
        resumed.step()
    assert other.updates <= 4, "only what had been drawn before"
    run(resumed, 400)
    assert other.updates > 4
    assert sum(shard.steps for shard in made_again) == 240


@pytest.mark.parametrize("policy", [None, "replace"])
def test_a_checkpoint_leaves_an_idle_shard_out_that_is_found_dead_if_it_is_to_be_replaced(policy: Any) -> None:
    made: list[FakeShard] = []
    clock = FakeClock()
    engine, shards = SimulatedEngine(clock), shards_of(made)
    plan = ape_x(workers(1), Prioritizing(), shards, min_size=4000, policy=policy).start(engine, clock)
    run(plan, 40)
    plan.state_dict()
    engine.crash(plan._context.actors(shards)[1])  # type: ignore[union-attr]
    if policy is None:
        with pytest.raises(PlanError, match="'parallel_replay' failed: ActorLost: found dead") as caught:
            plan.state_dict()
        assert "parallel_replay/1" in str(caught.value)
        return
    record = plan.state_dict()["operators"]["parallel_replay"]["state"]["record"]
    assert list(record["shards"]) == ["0"]
    assert (record["stored"][1], record["lost_steps"]) == (0, 20)
    run(plan, 80)
    assert plan.counters.replacements == {"parallel_replay": 1}
    assert made[2].steps > 0


def test_a_shard_that_cannot_say_its_state_is_named() -> None:
    made: list[FakeShard] = []
    shards = shards_of(made)
    plan = ape_x(workers(1), Prioritizing(), shards)
    run(plan, 40)
    made[1].state_dict = None  # type: ignore[assignment,method-assign]
    with pytest.raises(PlanError, match="operator 'parallel_replay' failed: TypeError") as caught:
        plan.state_dict()
    assert "parallel_replay/1" in str(caught.value)


# -- composition ---------------------------------------------------------------------------------------------------


def test_wrong_composition_is_refused_at_once() -> None:
    group, shards = workers(1), shards_of([])
    with pytest.raises(PlanError, match="do not come in rounds"):
        ParallelReplay(shards).gather_sync()
    with pytest.raises(PlanError, match="needs a memory in shards"):
        ParallelReplay(FakeMemory())  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="needs shards"):
        ReplayShards([], 8)
    with pytest.raises(PlanError, match="'replay_shards' needs a Shard"):
        ReplayShards([functools.partial(FakeShard, 0), FakeWorker], 8)
    with pytest.raises(PlanError, match="can never fill") as caught:
        ReportMetrics(ParallelReplay(shards).gather_async().for_each(TrainOneStep(FakeLearner())))
    assert "nothing in the plan stores into it" in str(caught.value)
    store = ParallelRollouts(group).gather_async().for_each(StoreToBuffer(shards_of([], capacity=10)))
    with pytest.raises(PlanError, match="not those that this plan samples from"):
        ReportMetrics(store)
    too_large = shards_of([], capacity=10)
    store = ParallelRollouts(group).gather_async().for_each(StoreToBuffer(too_large))
    with pytest.raises(PlanError, match="min_size 11 is above the memory's capacity 10"):
        ReportMetrics(Union(store, ParallelReplay(too_large, min_size=11).gather_async()))


def test_priorities_of_an_item_that_is_no_single_sample_are_refused() -> None:
    shards = shards_of([], n=1)
    store = ParallelRollouts(workers(1)).gather_async().for_each(StoreToBuffer(shards))
    merged = ParallelReplay(shards).gather_async().for_each(ConcatBatches(2 * BATCH))
    train = merged.for_each(TrainOneStep(Prioritizing()))
    plan = ReportMetrics(Union(store, train.for_each(UpdatePriorities(shards))))
    with pytest.raises(PlanError, match="this item does not come from one shard"):
        run(plan, 200)


def test_priorities_of_samples_of_another_memory_are_refused_before_anything_starts() -> None:
    shards, memory = shards_of([], n=1), FakeMemory(BATCH)
    memory.insert(SampleBatch({"x": np.zeros(8)}))
    store = ParallelRollouts(workers(1)).gather_async().for_each(StoreToBuffer(shards))
    samples = ParallelReplay(shards).gather_async()
    train = Replay(memory).for_each(TrainOneStep(Prioritizing())).for_each(UpdatePriorities(shards))
    with pytest.raises(PlanError, match="would go to a memory that its items do not come from"):
        ReportMetrics(Union(store, samples, train))


def test_what_shards_hold_is_part_of_the_resources() -> None:
    shards = ReplayShards([functools.partial(FakeShard, 0)] * 3, BATCH, resources=Resources(cpus=0.5))
    plan = ape_x(workers(1), Prioritizing(), shards)
    assert sum(number * resources.cpus for number, resources in plan.graph.needs()) == 1 + 1.5
    assert ReplayShards([functools.partial(FakeShard, 0)], BATCH).resources.cpus == 0.0
    assert "3 shards" in plan.explain()
    assert "parallel_replay" in plan.draw()


def test_an_item_of_a_shard_says_so() -> None:
    shards = shards_of([])
    store = ParallelRollouts(workers(1)).gather_async().for_each(StoreToBuffer(shards))
    plan = ReportMetrics(Union(store, ParallelReplay(shards).gather_async(), output=1))
    items = [item for item in (plan.pull() for _ in range(4)) if isinstance(item, Envelope)]
    assert [(item.source, item.sequence, item.weight_version) for item in items][:2] == [
        ("parallel_replay/0", 0, -1),
        ("parallel_replay/1", 0, -1),
    ]
