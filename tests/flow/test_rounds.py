"""Lists of whole rounds: whoever is there, and never items of two rounds."""

from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest

from rlweave.errors import PlanError
from rlweave.extras.multi_agent_worker import PackTrajectories
from rlweave.flow import (
    ABSORBED,
    END,
    Envelope,
    FakeClock,
    LocalEngine,
    Operator,
    ParallelRollouts,
    Replay,
    ReportMetrics,
    SampleBatch,
    Stream,
    TrainOneStep,
    Union,
)
from rlweave.flow.envelope import RoundMark, merge
from tests.flow.conftest import Start
from tests.flow.fakes import FakeLearner, FakeMemory, FakeWorker, SimulatedEngine, workers
from tests.flow.test_checkpoint import through_json
from tests.flow.test_failures import Cluster, never


def members(item: Any) -> list[tuple[int, int]]:
    """Of each item in a list: who made it, and which one of its it is."""
    return [(int(batch["worker"][0]), int(batch["step"][0]) // len(batch["step"])) for batch in item.payload]


def glue(batches: list[SampleBatch]) -> SampleBatch:
    return SampleBatch.concat(batches)


def lists(plan: ReportMetrics) -> list[list[tuple[int, int]]]:
    return [members(item) for item in plan.items()]


def test_a_list_has_one_item_of_each_source_that_is_not_over(start: Start) -> None:
    group = [FakeWorker(number, items=items) for number, items in enumerate((3, 1, 2))]
    plan = start(ReportMetrics(ParallelRollouts(group).gather_sync().batch_rounds()))
    assert lists(plan) == [[(0, 0), (1, 0), (2, 0)], [(0, 1), (2, 1)], [(0, 2)]]
    assert plan.pull() is END


def test_a_round_that_comes_by_two_ways_is_refused() -> None:
    first, second = ParallelRollouts(workers(2)).gather_sync().split(2)
    with pytest.raises(PlanError, match="come by two ways") as caught:
        Union(first, second).batch_rounds()
    assert "'gather_sync'" in str(caught.value)


def test_what_merges_items_gives_no_rounds() -> None:
    packed = ParallelRollouts(workers(2)).gather_sync().for_each(PackTrajectories(4, 2))
    with pytest.raises(PlanError, match="needs items in rounds") as caught:
        packed.batch_rounds()
    assert "'pack_trajectories' makes other items" in str(caught.value)


def test_several_fragments_per_call_are_one_round(start: Start) -> None:
    plan = start(ReportMetrics(ParallelRollouts(workers(2, items=3), fragments=2).gather_sync().batch_rounds()))
    assert lists(plan) == [[(0, 0), (0, 1), (1, 0), (1, 1)], [(0, 2), (1, 2)]]


def test_a_worker_that_is_given_up_leaves_rounds_whole_and_without_a_lag() -> None:
    cluster = Cluster("local", never, lambda item: item >= 2, never)
    stream = ParallelRollouts(cluster.group).on_error("replace", attempts=2, first_delay=0.0, longest_delay=0.0)
    learner = FakeLearner()
    train = stream.gather_sync().batch_rounds().for_each(glue).for_each(TrainOneStep(learner, cluster.group))
    plan = cluster.start(ReportMetrics(train, cluster.group))
    for _ in islice(plan.items(), 8):
        pass
    rounds = [(sorted(set(batch["worker"].tolist())), set(batch["version"].tolist())) for batch in learner.batches]
    assert rounds == [([0, 1, 2], {0}), ([0, 1, 2], {1}), *(([0, 2], {update}) for update in range(2, 8))]
    report = plan.report()
    assert report.train_lag == {0: 8}
    assert report.measures["gather_sync/given_up"] == 1


def test_late_items_are_in_the_list_of_the_round_that_they_came_in() -> None:
    clock = FakeClock()
    engine = SimulatedEngine(clock, lambda index: 1.0 if index < 2 else 5.0)
    stream = ParallelRollouts(workers(3)).gather_sync(quorum=2, timeout=3.0).batch_rounds()
    plan = ReportMetrics(stream).start(engine, clock)
    first, second = islice(plan.items(), 2)
    assert members(first) == [(0, 0), (1, 0)]
    assert members(second)[:2] == [(0, 1), (1, 1)]
    late = next(item for item in plan.items() if item.rounds_late) if len(members(second)) == 2 else second
    assert (2, 0) in members(late)
    assert late.round is not None
    assert {maker for maker, _ in members(late)} == {0, 1, 2}


def odd_out(batch: SampleBatch) -> SampleBatch:
    """Leaves out what the last worker made first, and all that the first one made then."""
    maker, number = int(batch["worker"][0]), int(batch["step"][0]) // 4
    return ABSORBED if (maker, number) in {(2, 0), (0, 1), (1, 1), (2, 2)} else batch  # type: ignore[return-value]


@pytest.mark.parametrize("place", ["par_for_each", "for_each"])
def test_items_left_out_on_the_way_take_no_place_in_a_list_of_another_round(start: Start, place: str) -> None:
    stream: Stream = ParallelRollouts(workers(3, items=4))
    stream = stream.par_for_each(odd_out).gather_sync() if place == "par_for_each" else stream.gather_sync()
    stream = stream if place == "par_for_each" else stream.for_each(odd_out)
    plan = start(ReportMetrics(stream.batch_rounds()))
    assert lists(plan) == [[(0, 0), (1, 0)], [(2, 1)], [(0, 2), (1, 2)], [(0, 3), (1, 3), (2, 3)]]


def test_a_list_is_made_before_the_next_round_is_asked_for() -> None:
    group = workers(2)
    plan = ReportMetrics(ParallelRollouts(group).gather_sync().batch_rounds()).start(LocalEngine(), FakeClock())
    for number in range(1, 4):
        assert isinstance(plan.pull(), Envelope)
        assert [worker.made for worker in group] == [number, number]


def test_each_branch_and_each_gather_has_rounds_of_its_own(start: Start) -> None:
    left, right = ParallelRollouts(workers(2, items=2)).split(2)
    others = ParallelRollouts([FakeWorker(number, items=2) for number in (7, 8, 9)]).gather_sync()
    mixed = Union(left, others).batch_rounds()
    plan = start(ReportMetrics(Union(mixed, right.batch_rounds())))
    found = lists(plan)
    assert sorted(found) == sorted(
        [[(0, n), (1, n)] for n in range(2)] * 2 + [[(7, n), (8, n), (9, n)] for n in range(2)]
    )


def test_a_merged_item_is_of_a_round_only_if_all_of_it_is() -> None:
    def item(gather: str, number: int, last: bool) -> Envelope:
        return Envelope(None, "w", number, round=RoundMark(gather, number, last))

    assert merge([item("g", 1, False), item("g", 1, True)], None, "m", 0).round == RoundMark("g", 1, True)
    assert merge([item("g", 1, False), item("g", 1, False)], None, "m", 0).round == RoundMark("g", 1, False)
    for other in (item("g", 2, True), item("h", 1, True), Envelope(None, "w", 0)):
        assert merge([item("g", 1, True), other], None, "m", 0).round is None
        assert merge([other, item("g", 1, True)], None, "m", 0).round is None
    assert item("g", 1, True).carrying(3).round == RoundMark("g", 1, True)


@pytest.mark.parametrize(
    ("compose", "what"),
    [
        (lambda: ParallelRollouts(workers(2)).gather_async().batch_rounds(), "gather_async.*gives items one by one"),
        (lambda: Replay(FakeMemory()).batch_rounds(), "'replay' gives items one by one"),
        (lambda: ParallelRollouts(workers(2)).gather_sync().batch(2).batch_rounds(), "makes other items"),
        (lambda: ParallelRollouts(workers(2)).gather_sync().concat(9).batch_rounds(), "makes other items"),
        (lambda: ParallelRollouts(workers(2)).gather_sync().batch(2).flatten().batch_rounds(), "makes other items"),
        (lambda: ParallelRollouts(workers(2)).batch_rounds(), "still are at their sources"),
    ],
)
def test_where_there_are_no_rounds_it_is_refused(compose: Callable[[], Stream], what: str) -> None:
    with pytest.raises(PlanError, match=rf"(?s){what}"):
        compose()


class Anew(Operator):
    """Makes items in envelopes of its own."""

    def __call__(self, item: SampleBatch) -> SampleBatch:
        raise NotImplementedError

    def process(self, envelope: Envelope) -> Envelope:
        return Envelope(envelope.payload, "anew", envelope.sequence)


def test_an_item_that_does_not_know_its_round_is_named() -> None:
    plan = ReportMetrics(ParallelRollouts(workers(2)).gather_sync().for_each(Anew()).batch_rounds())
    with pytest.raises(PlanError, match=r"(?s)belongs to no round.*'batch'.*anew#0.*envelope.carrying"):
        plan.pull()


def in_rounds(items: int = 4) -> ReportMetrics:
    return ReportMetrics(ParallelRollouts(workers(3, items=items)).gather_sync().batch_rounds())


def skipped_workers(plan: ReportMetrics, rounds_made: int) -> ReportMetrics:
    """Workers are saved by who owns them: they have made the items of so many rounds."""
    assert plan._context is not None
    for actor in plan._context.actors(plan.graph.nodes[0].group):  # type: ignore[attr-defined]
        actor.worker.made = rounds_made
    return plan


@pytest.mark.parametrize("cut", [1, 2, 4, 5])
def test_a_round_that_is_cut_in_the_middle_is_whole_after_a_resume(cut: int) -> None:
    plan = in_rounds().start(LocalEngine(), FakeClock())
    before = [members(item) for _ in range(cut) if isinstance(item := plan.step(), Envelope)]
    state = through_json(plan.state_dict())
    assert state["operators"]["batch"]["state"]["kept"]
    resumed = in_rounds().start(LocalEngine(), FakeClock())
    resumed.load_state_dict(state)
    skipped_workers(resumed, -(-cut // 3))
    assert before + lists(resumed) == [[(0, n), (1, n), (2, n)] for n in range(4)]
    assert before + lists(plan) == [[(0, n), (1, n), (2, n)] for n in range(4)]
