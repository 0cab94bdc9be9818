"""What holds of every operator and every edge: found by reflection, so what is added later is asked as well."""

import ast
import importlib
import pkgutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rlweave.algorithms
import rlweave.extras
import rlweave.flow
from rlweave.flow import (
    ABSORBED,
    Envelope,
    FakeClock,
    Operator,
    ParallelRollouts,
    Prefetch,
    Replay,
    ReportMetrics,
    SampleBatch,
    Stream,
    TrainOneStep,
    Union,
)
from rlweave.flow.branching import Queue, Split
from rlweave.flow.gather import Gather
from rlweave.flow.gather_modes import GatherAsync, GatherSync
from rlweave.flow.training import LearnerOperator
from rlweave.flow.transforms import BatchItems, BatchRounds, ConcatBatches, Flatten
from tests.flow.conftest import Start
from tests.flow.fakes import FakeLearner, FakeMemory, FakeWorker, SimulatedEngine, workers
from tests.flow.test_checkpoint import PLANS, World


def classes_below(base: type) -> Iterator[type]:
    """All classes of rlweave that inherit from a class."""
    for package in (rlweave.flow, rlweave.algorithms, rlweave.extras):
        for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            if not module.name.endswith(("ray_engine", "tune")):
                importlib.import_module(module.name)
    waiting = [base]
    while waiting:
        for found in waiting.pop().__subclasses__():
            waiting.append(found)
            if found.__module__.startswith("rlweave."):
                yield found


def number_of(batch: SampleBatch) -> int:
    return int(batch["step"][0]) + 1000 * int(batch["worker"][0])


def numbers_in(payload: Any) -> list[int]:
    """The steps in whatever an operator made of batches."""
    if isinstance(payload, SampleBatch):
        return [int(step) + 1000 * int(worker) for step, worker in zip(payload["step"], payload["worker"], strict=True)]
    if isinstance(payload, list | tuple):
        return [number for part in payload for number in numbers_in(part)]
    return [payload]


# -- the end of a finite stream -----------------------------------------------------------------------------------


def finite() -> Stream:
    """Three workers with 5, 1 and 3 batches of two steps."""
    return ParallelRollouts([FakeWorker(n, steps=2, items=items) for n, items in enumerate((5, 1, 3))])


EVERY_STEP = sorted(step + 1000 * worker for worker, items in enumerate((5, 1, 3)) for step in range(2 * items))

FLUSHING: dict[type, Callable[[], Stream]] = {
    # operators that override flush()
    BatchItems: lambda: finite().gather_sync().batch(4),
    ConcatBatches: lambda: finite().gather_async().concat(min_steps=7),
    Prefetch: lambda: finite().gather_sync().for_each(Prefetch(4, stage=lambda batch: batch)),
    # operators that take items by themselves and hold some
    GatherSync: lambda: ParallelRollouts(
        [FakeWorker(n, steps=2, items=items) for n, items in enumerate((5, 1, 3))], mode="sync"
    ),
    GatherAsync: lambda: ParallelRollouts(
        [FakeWorker(n, steps=2, items=items) for n, items in enumerate((5, 1, 3))], fragments=3
    ).gather_async(num_async=2),
    BatchRounds: lambda: (
        finite().gather_sync().filter(lambda batch: batch["worker"][0] != 9).queue(1).batch_rounds().queue(2)
    ),
    Queue: lambda: finite().gather_sync().batch(4).queue(3),
    Split: lambda: Union(*finite().split(2, capacity=2), output=0),
    Flatten: lambda: finite().gather_sync().batch(4).queue(1).flatten(),
}

FLUSHED_ELSEWHERE = {
    "PackSequences": "../extras/test_trajectory_packing.py::test_what_is_no_whole_sequence_ends_with_the_stream",
    "PackTrajectories": "../extras/test_trajectory_packing.py::test_items_without_steps_and_the_end_of_a_stream",
}
"""Operators of algorithms, which take items of their own, and the test that lets a stream of them end."""


def function_of(test: str) -> str:
    """The source of a test that is named as file::function."""
    file, name = test.split("::")
    functions = ast.parse((Path(__file__).parent / file).read_text()).body
    (found,) = [node for node in functions if isinstance(node, ast.FunctionDef) and node.name == name]
    return ast.unparse(found)


def test_everything_that_keeps_items_back_has_a_case() -> None:
    flushing = {found for found in classes_below(Operator) if "flush" in vars(found)}
    made_of_them = {found for found in classes_below(Operator) if any(base in FLUSHING for base in found.__mro__)}
    abstract = {found for found in flushing if any(issubclass(case, found) and case is not found for case in FLUSHING)}
    missing = flushing - set(FLUSHING) - abstract
    assert {found.__name__ for found in missing} == set(FLUSHED_ELSEWHERE), f"give {missing} a case in FLUSHING"
    for test in FLUSHED_ELSEWHERE.values():
        assert "flush" in function_of(test)
    assert made_of_them >= {BatchItems, ConcatBatches, Prefetch}


@pytest.mark.parametrize("kind", FLUSHING, ids=lambda kind: kind.__name__)
def test_the_end_of_a_finite_stream_flushes_it(start: Start, kind: type) -> None:
    plan = start(ReportMetrics(FLUSHING[kind]()))
    held = [type(node) for node in plan.graph.nodes]
    assert kind in held
    got = [number for item in plan.items() for number in numbers_in(item.payload)]
    assert sorted(got) == EVERY_STEP
    assert plan.ended
    assert plan.counters.drops == {}


@pytest.mark.parametrize("kind", [Prefetch, ConcatBatches])
def test_what_flows_out_at_the_end_of_a_memory_is_trained_on(start: Start, kind: type) -> None:
    memory, learner = FakeMemory(batch_size=4), FakeLearner()
    store = finite().gather_sync().for_each(rlweave.flow.StoreToBuffer(memory))
    kept = Prefetch(3, stage=lambda batch: batch) if kind is Prefetch else ConcatBatches(min_steps=12)
    train = Replay(memory).for_each(kept).for_each(TrainOneStep(learner)).rate_limit(2.0, min_size=2)
    for _ in start(ReportMetrics(Union(store, train))).items():
        pass
    assert sum(batch.num_steps for batch in learner.batches) == memory.sampled == 2 * (18 - 2)


class Tripping(Operator):
    """Gives batches that cannot be glued at one place."""

    def __call__(self, batch: SampleBatch) -> SampleBatch:
        return SampleBatch({"other": batch["step"]}) if number_of(batch) == 4 else batch


def test_what_cannot_be_merged_is_skipped_once_and_does_not_come_again(start: Start) -> None:
    stream = ParallelRollouts([FakeWorker(steps=2, items=8)]).gather_sync().for_each(Tripping())
    plan = start(ReportMetrics(stream.concat(min_steps=4).on_error("skip")))
    got = [number for item in plan.items() for number in numbers_in(item.payload)]
    assert got == [0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 15], "4 to 7 were to be one item"
    assert plan.counters.failures == {"concat_batches": 1}


# -- every edge ---------------------------------------------------------------------------------------------------


def held(node: Operator) -> int:
    """Items on the edge into a gather, or out of any other node."""
    if isinstance(node, Gather):
        fragments = node.source.fragments
        return len(node._requested) * fragments + len(node._arrived) + len(getattr(node, "_round", ()))
    if isinstance(node, Split):
        return max(map(len, node._waiting))
    if isinstance(node, Queue):
        return len(node)
    if isinstance(node, LearnerOperator) and node._at_actor is not None:
        return len(node._at_actor.finished) + (node._at_actor.working is not None)
    return 0


def allowed(node: Operator) -> int:
    return node.in_flight if isinstance(node, Gather) else max([port.capacity for port in node.outputs], default=1)


def busy() -> tuple[Stream, Any]:
    group, memory, learner = workers(3), FakeMemory(), FakeLearner()
    source = ParallelRollouts(group, fragments=2).par_for_each(lambda batch: batch).gather_async(num_async=2)
    left, right = source.split(2, capacity=3)
    store = left.for_each(rlweave.flow.StoreToBuffer(memory))
    lists = right.batch(3).queue(2, "drop_oldest").flatten().queue(1, "drop_newest").notify(group, "greet")
    train = Replay(memory).for_each(Prefetch(2, lambda batch: batch)).for_each(TrainOneStep(learner, group))
    other = ParallelRollouts(workers(2, steps=2)).gather_sync().concat(6).queue(4)
    return Union(store, lists, train.rate_limit(2.0, min_size=8), other, weights=[1, 1, 2, 1]), group


@pytest.mark.parametrize("engine", ["local", "simulated"])
def test_no_edge_ever_holds_more_than_it_says(engine: str) -> None:
    stream, group = busy()
    plan = ReportMetrics(stream, group)
    clock = FakeClock()
    if engine == "simulated":
        plan.start(SimulatedEngine(clock, lambda index: (0.1, 1.0, 7.0, 0.5, 2.0)[index]), clock)
    worst: dict[str, int] = {}
    moved = 0
    while moved < 600:
        item = plan.step()
        moved += isinstance(item, Envelope) or item is ABSORBED
        for node in plan.graph.nodes:
            worst[node.name] = max(worst.get(node.name, 0), held(node))
            assert held(node) <= allowed(node), node.name
        if not (isinstance(item, Envelope) or item is ABSORBED):
            plan.wait()
    assert worst["gather_async"] >= 8
    assert worst["split"] >= 2
    assert max(worst[name] for name in worst if name.startswith("queue")) >= 1


# -- checkpoints --------------------------------------------------------------------------------------------------

CUT_ELSEWHERE: dict[str, str] = {
    "Serve": "../algorithms/test_inference_server.py::test_cut_and_resumed_equals_uncut",
    "Prefetch": "test_prefetch.py::test_a_checkpoint_keeps_what_is_under_way",
    "MixInReplay": "test_mix_in_replay.py::test_a_checkpoint_holds_the_buffer_and_the_draws",
    "PackTrajectories": "../extras/test_trajectory_packing.py::test_its_state_goes_into_a_checkpoint",
    "ShardSource": "test_parallel_replay.py::test_cut_and_resumed_equals_uncut",
}
"""Classes with a state of their own that no plan of `test_checkpoint.py` has, and the test that cuts them."""


def test_whatever_has_a_state_is_cut_and_resumed_in_a_test() -> None:
    with_state = {found for found in classes_below(Operator) if {"state", "state_dict"} & vars(found).keys()}
    plans = [make(World()) for make in PLANS.values()]
    nodes = [node for plan in plans for node in plan.graph.nodes]
    made_of = {kind for node in nodes for kind in type(node).__mro__}
    missing = {kind.__name__ for kind in with_state - made_of}
    assert missing <= set(CUT_ELSEWHERE), f"put {missing - set(CUT_ELSEWHERE)} into a plan of test_checkpoint.py"
    for name in missing:
        assert "load_state_dict" in function_of(CUT_ELSEWHERE[name])
