"""Split, union and queue; and that the end of a finite stream flushes everything that buffers."""

from typing import Any

import numpy as np
import pytest

from rlweave.flow import (
    ABSORBED,
    END,
    NOT_READY,
    Envelope,
    FakeClock,
    ParallelRollouts,
    Replay,
    ReportMetrics,
    SampleBatch,
    StoreToBuffer,
    Union,
)
from tests.flow.conftest import Start
from tests.flow.fakes import FakeMemory, FakeWorker, SimulatedEngine, workers


def one(items: int | None = None, steps: int = 1, number: int = 0) -> Any:
    """A stream of one worker; its items are numbered by their first step."""
    return ParallelRollouts([FakeWorker(number, steps, items)]).gather_sync()


def number_of(batch: SampleBatch) -> int:
    return int(batch["step"][0])


def source_of(item: Any) -> int:
    return int(item.payload["worker"][0])


# -- flushing -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("items", [0, 1, 6, 7])
def test_batch_flushes_at_the_end(start: Start, items: int) -> None:
    plan = start(ReportMetrics(one(items).for_each(number_of).batch(3)))
    lists = [item.payload for item in plan.items()]
    assert [number for part in lists for number in part] == list(range(items))
    assert [len(part) for part in lists[:-1]] == [3] * len(lists[:-1])


@pytest.mark.parametrize("items", [0, 1, 6, 7])
def test_concat_flushes_at_the_end(start: Start, items: int) -> None:
    plan = start(ReportMetrics(one(items, steps=4).concat(min_steps=10)))
    parts = [item.payload for item in plan.items()]
    assert [step for part in parts for step in part["step"]] == list(range(4 * items))
    assert all(part.num_steps == 12 for part in parts[:-1])


def test_buffers_behind_buffers_flush_too() -> None:
    stream = one(11).batch(2).batch(3).queue(2).flatten().flatten().concat(4).batch(2)
    parts = [batch for item in ReportMetrics(stream).items() for batch in item.payload]
    assert [int(step) for batch in parts for step in batch["step"]] == list(range(11))


def test_a_merged_item_knows_its_parts_and_is_as_old_as_the_oldest() -> None:
    plan = ReportMetrics(ParallelRollouts(workers(2)).gather_sync().concat(8).batch(2))
    item = plan.pull()
    assert isinstance(item, Envelope)
    assert item.origins == tuple((f"parallel_rollouts/{worker}", number) for number in (0, 1) for worker in (0, 1))
    assert (item.source, item.sequence, item.weight_version) == ("batch", 0, 0)


def test_filter_and_absorbing_functions() -> None:
    plan = ReportMetrics(one(6).for_each(number_of).filter(lambda number: number % 2 == 1))
    assert [plan.step() for _ in range(1)] == [ABSORBED]
    assert [item.payload for item in plan.items()] == [1, 3, 5]
    plan = ReportMetrics(one(4).for_each(lambda batch: ABSORBED if number_of(batch) < 3 else number_of(batch)))
    assert [item.payload for item in plan.items()] == [3]


def test_flatten_keeps_the_origin_of_a_list() -> None:
    plan = ReportMetrics(one(2).for_each(lambda batch: list(range(number_of(batch) * 2))).flatten())
    assert plan.step() is ABSORBED, "an empty list gives nothing"
    assert [(item.payload, item.sequence) for item in plan.items()] == [(0, 1), (1, 1)]


# -- split --------------------------------------------------------------------------------------------------------


def test_every_branch_gets_every_item_in_order() -> None:
    left, right = one(5).split(2, capacity=2)
    union = Union(
        left.for_each(lambda batch: ("left", number_of(batch))), right.for_each(lambda b: ("right", number_of(b)))
    )
    items = [item.payload for item in ReportMetrics(union).items()]
    assert [n for side, n in items if side == "left"] == list(range(5))
    assert [n for side, n in items if side == "right"] == list(range(5))


@pytest.mark.parametrize("capacity", [1, 3])
def test_branches_are_apart_by_no_more_than_the_capacity(capacity: int) -> None:
    left, right = one().split(2, capacity=capacity)
    taken = {"left": 0, "right": 0}
    worst = 0

    def take(side: str) -> Any:
        def count(batch: SampleBatch) -> SampleBatch:
            nonlocal worst
            taken[side] += 1
            worst = max(worst, abs(taken["left"] - taken["right"]))
            return batch

        return count

    plan = ReportMetrics(Union(left.for_each(take("left")), right.for_each(take("right")), weights=[50, 1]))
    for _ in range(200):
        assert isinstance(plan.pull(), Envelope)
    assert worst == capacity
    assert abs(taken["left"] - taken["right"]) <= capacity


def test_a_branch_that_is_never_pulled_blocks_the_other_one() -> None:
    memory = FakeMemory()
    left, right = one().split(2, capacity=2)
    gated = right.for_each(StoreToBuffer(memory))
    # nothing trains here, so owed samples pile up and the limiter holds back storing
    plan = ReportMetrics(
        Union(left, gated, Replay(memory).rate_limit(8.0).filter(lambda item: False), weights=[99, 1, 1])
    )
    plan.graph.nodes[3].gates.append(lambda: False)
    items = 0
    while plan.step() is not NOT_READY:
        items += 1
    assert items == 2
    with pytest.raises(Exception, match=r"(?s)stalled.*split: output 1 holds 2 items that nobody took"):
        plan.wait()


def test_branches_do_not_see_each_others_mutations() -> None:
    left, right = one(3).split(2)

    def spoil(batch: SampleBatch) -> SampleBatch:
        batch["step"][:] = -1
        return batch

    seen: list[int] = []

    def look(batch: SampleBatch) -> SampleBatch:
        seen.append(number_of(batch))
        return batch

    for _ in ReportMetrics(Union(left.for_each(spoil), right.for_each(look))).items():
        pass
    assert seen == [0, 1, 2]


def test_nested_containers_are_copied_for_each_branch_too() -> None:
    left, right = one(1).for_each(lambda batch: {"a": [batch]}).split(2)
    union = Union(left.for_each(lambda item: item["a"].append(1)), right.for_each(lambda item: len(item["a"])))
    assert [item.payload for item in ReportMetrics(union).items()] == [None, 1]


def test_split_on_a_parallel_stream_gathers_synchronously() -> None:
    left, right = ParallelRollouts(workers(2, items=2)).split()
    plan = ReportMetrics(Union(left, right))
    assert [node.name for node in plan.graph.nodes[:3]] == ["parallel_rollouts", "gather_sync", "split"]
    assert len(list(plan.items())) == 8


# -- union --------------------------------------------------------------------------------------------------------


def three(items: int | None = None) -> list[Any]:
    return [one(items, number=number) for number in range(3)]


def test_round_robin_takes_turns_by_weight() -> None:
    plan = ReportMetrics(Union(*three(), weights=[1, 2, 3]))
    order = [source_of(next(plan.items())) for _ in range(12)]
    assert order == [0, 1, 1, 2, 2, 2] * 2


@pytest.mark.parametrize("mode", ["round_robin", "async"])
def test_what_a_branch_absorbs_is_a_movement_and_the_next_one_has_its_turn(mode: Any) -> None:
    slow = one().for_each(number_of).batch(3)
    plan = ReportMetrics(Union(slow, one().for_each(number_of), mode=mode))
    assert [plan.pull().payload for _ in range(4)] == [0, 1, [0, 1, 2], 2]  # type: ignore[union-attr]


def test_a_branch_that_is_not_ready_is_passed_over() -> None:
    memory = FakeMemory(batch_size=4)
    store = one().for_each(StoreToBuffer(memory))
    plan = ReportMetrics(Union(store, Replay(memory, min_size=5)))
    sources = [plan.pull().source for _ in range(9)]  # type: ignore[union-attr]
    assert sources == ["parallel_rollouts/0"] * 5 + ["replay", "parallel_rollouts/0", "replay", "parallel_rollouts/0"]


def test_branches_end_one_by_one_and_the_union_with_the_last() -> None:
    streams = [one(1, number=0), one(3, number=1), one(0, number=2)]
    plan = ReportMetrics(Union(*streams))
    assert [source_of(item) for item in plan.items()] == [0, 1, 1, 1]
    assert plan.step() is END


def test_output_shows_one_branch_and_works_on_all() -> None:
    worked: list[int] = []

    def note(batch: SampleBatch) -> SampleBatch:
        worked.append(int(batch["worker"][0]))
        return batch

    plan = ReportMetrics(Union(*[stream.for_each(note) for stream in three(2)], output=1))
    assert plan.step() is ABSORBED
    assert [source_of(item) for item in plan.items()] == [1, 1]
    assert sorted(worked) == [0, 0, 1, 1, 2, 2]


# -- queue --------------------------------------------------------------------------------------------------------


def queued(policy: Any, capacity: int = 2) -> tuple[ReportMetrics, Any]:
    """A queue whose consumer gets one turn in four."""
    queue = one(number=0).queue(capacity, policy)
    plan = ReportMetrics(Union(one(number=1), queue, weights=[3, 1]))
    return plan, queue.port.node


def numbers(plan: ReportMetrics, n: int) -> list[int]:
    items = [plan.pull() for _ in range(n)]
    return [number_of(item.payload) for item in items if isinstance(item, Envelope) and source_of(item) == 0]


def test_a_full_queue_blocks_its_source_and_drops_nothing() -> None:
    plan, queue = queued("block")
    assert numbers(plan, 40) == list(range(10))
    assert len(queue) <= 2
    assert plan.counters.drops == {}


def test_drop_oldest_keeps_the_newest_and_counts() -> None:
    plan, queue = queued("drop_oldest")
    # a step fills first; the consumer's turns are steps 4, 8, ...: it finds the two newest items, 2 and 3 in step 4
    assert numbers(plan, 16) == [2, 6, 10, 14]
    assert plan.counters.drops == {"queue": 16 - 4 - len(queue)}


def test_drop_newest_keeps_the_oldest_and_counts() -> None:
    plan, queue = queued("drop_newest")
    # after items 0 and 1 it is full; a place becomes free in step 4 and is taken in step 5 by item 4
    assert numbers(plan, 16) == [0, 1, 4, 8]
    assert plan.counters.drops == {"queue": 16 - 4 - len(queue)}
    assert plan.report().measures == {"queue/fill": len(queue)}


def test_every_edge_is_bounded() -> None:
    for policy in ("block", "drop_oldest", "drop_newest"):
        plan, queue = queued(policy, capacity=3)
        for _ in range(100):
            plan.step()
            assert len(queue) <= 3


def test_an_empty_queue_with_a_slow_source_is_not_ready(start: Start) -> None:
    clock = FakeClock()
    plan = ReportMetrics(one(3).queue(2)).start(SimulatedEngine(clock, lambda index: 2.0), clock)
    assert plan.step() is NOT_READY
    assert [number_of(item.payload) for item in plan.items()] == [0, 1, 2]
    assert clock.now() >= 6.0
    again = start(ReportMetrics(one(3).queue(2)))
    assert len(list(again.items())) == 3


def test_arrays_reach_the_end_unchanged() -> None:
    left, right = one(2, steps=3).split(2)
    plan = ReportMetrics(Union(left.queue(2), right.batch(2).flatten()))
    seen = [item.payload["step"] for item in plan.items()]
    np.testing.assert_array_equal(np.sort(np.concatenate(seen)), [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5])
