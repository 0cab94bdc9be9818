"""No branch of a union starves another one, and a plan that is busy with nothing says so."""

from __future__ import annotations

import random
import warnings
from collections import Counter
from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest

from rlweave.errors import ConfigError, PlanWarning
from rlweave.flow import (
    ABSORBED,
    END,
    NOT_READY,
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
    Union,
)
from tests.flow.conftest import Start
from tests.flow.fakes import FakeLearner, FakeMemory, FakeWorker, SimulatedEngine


def one(number: int = 0, mode: str = "sync", **settings: Any) -> Stream:
    rollouts = ParallelRollouts([FakeWorker(number, **settings)])
    return rollouts.gather_sync() if mode == "sync" else rollouts.gather_async()


def sources(plan: ReportMetrics, n: int) -> list[int]:
    return [int(item.payload["worker"][0]) for item in islice(plan.items(), n)]


def nothing(batch: SampleBatch) -> bool:
    return False


# -- branches that absorb -------------------------------------------------------------------------------------------

ABSORBING: dict[str, Callable[[Stream], Stream]] = {
    "filter": lambda stream: stream.filter(nothing),
    "function": lambda stream: stream.for_each(lambda batch: ABSORBED),
    "empty lists": lambda stream: stream.for_each(lambda batch: []).flatten(),
    "batch": lambda stream: stream.batch(10**9).flatten(),
    "concat": lambda stream: stream.concat(10**9),
    "rounds": lambda stream: stream.filter(nothing).batch_rounds().flatten(),
    "queue": lambda stream: stream.queue(2).filter(nothing),
    "union": lambda stream: Union(stream.filter(nothing)),
    "output": lambda stream: Union(stream, one(7).filter(nothing), output=1),
}


@pytest.mark.parametrize("mode", ["round_robin", "async"])
@pytest.mark.parametrize("how", ABSORBING)
def test_a_branch_that_absorbs_all_it_gets_starves_nobody(start: Start, how: str, mode: Any) -> None:
    plan = start(ReportMetrics(Union(one(1), ABSORBING[how](one(0)), one(2), mode=mode)))
    found = sources(plan, 40)
    assert min(found.count(1), found.count(2)) >= 15, found


@pytest.mark.parametrize("weights", [[1, 5], [3, 0.5], [0.25, 1]])
def test_nor_does_it_with_weights_in_a_union_within_a_union_or_behind_a_split(weights: list[float]) -> None:
    left, right = one(1).split(2, capacity=3)
    inner = Union(right.filter(nothing), one(2).filter(nothing), weights=weights)
    plan = ReportMetrics(Union(inner, left, one(3), weights=[4, 1, 1]))
    found = sources(plan, 60)
    assert min(found.count(1), found.count(3)) >= 15, found


def test_operators_at_the_workers_that_absorb_starve_nobody(start: Start) -> None:
    absorbing = ParallelRollouts([FakeWorker(0)]).par_for_each(lambda batch: ABSORBED).gather_async()
    plan = start(ReportMetrics(Union(one(1), absorbing)))
    assert sources(plan, 20) == [1] * 20


def test_items_too_old_starve_nobody() -> None:
    learner = FakeLearner()
    train = one(1).for_each(TrainOneStep(learner))
    late = FakeWorker(0)
    old = ParallelRollouts([late]).gather_async(max_lag=0).for_each(TrainOneStep(learner, [late])).named("old")
    plan = ReportMetrics(Union(train, old))
    found = [item.payload.version for item in islice(plan.items(), 20)]
    assert found == sorted(found)
    assert learner.updates == 20


def random_stream(rng: random.Random, number: int, depth: int) -> tuple[Stream, bool]:
    """A stream of one worker through random operators, and whether items come out of it."""
    stream, gives = one(number, rng.choice(["sync", "async"])), True
    for _ in range(rng.randrange(3)):
        name = rng.choice(["filter", "some", "batch", "queue", "drops", "union", "concat"])
        if name == "filter":
            stream, gives = stream.filter(nothing), False
        elif name == "some":
            keep = rng.randrange(1, 4)
            stream = stream.filter(lambda batch, keep=keep: int(batch["step"][0]) // 4 % keep == 0)
        elif name == "batch":
            stream = stream.batch(rng.randrange(1, 4)).flatten()
        elif name == "concat":
            stream = stream.concat(rng.randrange(1, 20))
        elif name in ("queue", "drops"):
            stream = stream.queue(rng.randrange(1, 4), "block" if name == "queue" else "drop_oldest")
        elif depth:
            other, other_gives = random_stream(rng, number, depth - 1)
            stream, gives = Union(stream, other, mode=rng.choice(["round_robin", "async"])), gives or other_gives
    return stream, gives


@pytest.mark.parametrize("seed", range(16))
def test_whatever_the_branches_do_each_that_has_items_gives_some(start: Start, seed: int) -> None:
    """Weights bound how long a branch waits: movements of the others in their turns, times what makes one item."""
    rng = random.Random(seed)
    made = [random_stream(rng, number, depth=2) for number in range(rng.randrange(2, 5))]
    weights = None if rng.random() < 0.4 else [rng.choice([0.2, 0.5, 1, 2, 3.5]) for _ in made]
    mode = "round_robin" if weights is not None else rng.choice(["round_robin", "async"])
    plan = start(ReportMetrics(Union(*[stream for stream, _ in made], weights=weights, mode=mode)))
    steps = 0
    found: Counter[int] = Counter()
    while steps < 1500:
        item = plan.step()
        steps += 1
        if item is NOT_READY:
            plan.wait()
        elif isinstance(item, Envelope):
            found[int(item.payload["worker"][0])] += 1
    for number, (_, gives) in enumerate(made):
        assert not gives or found[number] >= 3, (number, found, plan.explain())


# -- weights --------------------------------------------------------------------------------------------------------


def test_weights_need_not_be_whole_numbers() -> None:
    plan = ReportMetrics(Union(one(1), one(2), weights=[1, 0.25]))
    assert sources(plan, 15) == [1, 1, 1, 1, 2] * 3
    plan = ReportMetrics(Union(one(1), one(2), one(3), weights=[1.5, 1, 0.1]))
    assert Counter(sources(plan, 260)) == {1: 150, 2: 100, 3: 10}
    plan = ReportMetrics(Union(one(1), one(2), weights=[0.3, 0.1]))
    assert Counter(sources(plan, 40)) == {1: 30, 2: 10}, "only their ratio matters"


def test_a_branch_with_few_turns_does_not_wait_where_no_other_can_go() -> None:
    memory = FakeMemory(batch_size=4)
    plan = ReportMetrics(Union(Replay(memory, min_size=9), one(1).for_each(StoreToBuffer(memory)), weights=[1, 0.1]))
    assert [item.source for item in islice(plan.items(), 5)] == ["parallel_rollouts/0"] * 3 + ["replay"] * 2


@pytest.mark.parametrize("weight", [0, -1, 1e-9, float("nan"), float("inf"), True, "2", None])
def test_what_is_no_weight_is_refused_when_composed(weight: Any) -> None:
    with pytest.raises(ConfigError, match="weight"):
        Union(one(1), one(2), weights=[1, weight])


def test_turns_go_on_from_a_checkpoint() -> None:
    def plan() -> ReportMetrics:
        return ReportMetrics(Union(one(1), one(2), one(3), weights=[2, 0.4, 1]))

    uncut = plan()
    order = sources(uncut, 40)
    cut = plan()
    before = sources(cut, 17)
    resumed = plan()
    resumed.load_state_dict(cut.state_dict())
    assert before + sources(resumed, 23) == order


# -- warnings -------------------------------------------------------------------------------------------------------


class TickingWorker(FakeWorker):
    """Each item takes it a second of a fake clock."""

    def __init__(self, clock: FakeClock, number: int = 0, **settings: Any) -> None:
        super().__init__(number, **settings)
        self.clock = clock

    def sample(self) -> SampleBatch:
        self.clock.advance(1.0)
        return super().sample()


def stepped(plan: ReportMetrics, clock: FakeClock, seconds: float) -> list[str]:
    """What it warns of in so many seconds."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        until = clock.now() + seconds
        while clock.now() < until and (item := plan.step()) is not END:
            if item is NOT_READY:
                plan.wait()
    assert all(warning.category is PlanWarning for warning in caught)
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize("engine", ["local", "simulated"])
@pytest.mark.parametrize(("how", "named"), [
    ("filter", "filter"), ("function", "lambda"), ("empty lists", "flatten"), ("union", "filter"),
    ("queue", "filter"), ("output", "union"),
])  # fmt: skip
def test_a_plan_that_moves_without_an_item_at_its_end_says_who_absorbs(engine: str, how: str, named: str) -> None:
    clock = FakeClock()
    worker = TickingWorker(clock) if engine == "local" else FakeWorker()
    plan = ReportMetrics(ABSORBING[how](ParallelRollouts([worker]).gather_async()))
    plan.warn_after = 30.0
    plan.start(LocalEngine() if engine == "local" else SimulatedEngine(clock), clock)
    assert stepped(plan, clock, 25.0) == []
    (message,) = stepped(plan, clock, 100.0)
    assert f"'{named}' took" in message
    assert "report_metrics" in message
    assert stepped(plan, clock, 100.0) == [], "said once"


def test_absorbing_at_the_workers_and_what_is_too_old_is_named_as_well() -> None:
    clock = FakeClock()
    stages = ParallelRollouts([TickingWorker(clock)]).par_for_each(lambda b: b).par_for_each(lambda b: ABSORBED)
    plan = ReportMetrics(stages.gather_async()).start(clock=clock)
    (message,) = stepped(plan, clock, 70.0)
    assert "'lambda-2' took" in message
    assert "'lambda' took" not in message


def test_who_makes_one_item_of_many_has_more_time_and_0_is_no_warning() -> None:
    clock = FakeClock()
    plan = ReportMetrics(ParallelRollouts([TickingWorker(clock)]).gather_sync().batch(500)).start(clock=clock)
    assert stepped(plan, clock, 1400.0) == []
    plan = ReportMetrics(ParallelRollouts([TickingWorker(clock)]).gather_sync().batch(5000)).start(clock=clock)
    (message,) = stepped(plan, clock, 700.0)
    assert "'batch' took" in message
    plan = ReportMetrics(ParallelRollouts([TickingWorker(clock)]).gather_sync().filter(nothing))
    plan.warn_after = 0.0
    assert stepped(plan.start(clock=clock), clock, 1000.0) == []


def test_a_plan_that_makes_progress_again_may_warn_again() -> None:
    clock = FakeClock()
    some = ParallelRollouts([TickingWorker(clock)]).gather_sync().filter(lambda batch: batch["step"][0] == 4 * 100)
    assert len(stepped(ReportMetrics(some).start(clock=clock), clock, 200.0)) == 2


class EmptyHanded(TickingWorker):
    """Its items have no steps."""

    def sample(self) -> SampleBatch:
        super().sample()
        return SampleBatch({})


def test_a_run_that_reports_by_steps_says_that_it_gets_none() -> None:
    clock = FakeClock()
    plan = ReportMetrics(ParallelRollouts([EmptyHanded(clock)]).gather_sync()).start(clock=clock)
    with pytest.warns(
        PlanWarning, match=r"no environment step was counted: \d+ items of 'parallel_rollouts' have none"
    ):
        for _ in plan.run(until=lambda counters: counters.env_steps_sampled > 0 or clock.now() > 90, every_steps=100):
            pass
    # where every item is a report, nothing is silent
    plan = ReportMetrics(ParallelRollouts([EmptyHanded(clock)]).gather_sync()).start(clock=clock)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(list(islice(plan.run(), 90))) == 90


def test_operators_of_every_kind_count_their_items() -> None:
    memory, workers = FakeMemory(), [FakeWorker(items=6)]
    stored = ParallelRollouts(workers).par_for_each(lambda b: b).gather_sync().for_each(StoreToBuffer(memory))
    plan = ReportMetrics(Union(stored, Replay(memory).rate_limit(1.0).for_each(lambda batch: batch)))
    found = len(list(plan.items()))
    items = plan.report().operator_items
    assert all(items.values()), items
    assert items["lambda"] == items["parallel_rollouts"] == 6
    assert items["rate_limit"] == items["lambda-2"] == found - 6
    assert items["report_metrics"] == found
