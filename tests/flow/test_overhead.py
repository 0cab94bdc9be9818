"""The local engine's own cost per item and operator."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from rlweave.flow import (
    Episode,
    ParallelRollouts,
    Replay,
    ReportMetrics,
    SampleBatch,
    StoreToBuffer,
    Stream,
    TrainOneStep,
    Union,
)
from tests.flow.fakes import FakeLearner, FakeMemory, FakeWorker

BATCH = SampleBatch({"step": np.zeros(4)})
LIMIT = 20e-6
"""Seconds per operator and item; measured: 1 to 7 microseconds."""


class Free(FakeWorker):
    """A worker that costs nothing."""

    def sample(self) -> SampleBatch:
        return BATCH

    def episode_stats(self) -> Sequence[Episode]:
        return ()


class FreeMemory(FakeMemory):
    """A memory that costs nothing."""

    def sample(self) -> SampleBatch:
        return BATCH


def seconds_per_step(plan: ReportMetrics, steps: int = 1000) -> float:
    """The best of five runs: what the code costs when nothing else gets in its way."""
    times = []
    for _ in range(5):
        begin = time.perf_counter()
        for _ in range(steps):
            plan.step()
        times.append((time.perf_counter() - begin) / steps)
    return min(times)


def operator_chain(add: Callable[[Stream], Stream], length: int) -> ReportMetrics:
    stream: Stream = ParallelRollouts([Free()]).gather_sync()
    for _ in range(length):
        stream = add(stream)
    return ReportMetrics(stream)


@pytest.mark.parametrize(
    "add",
    [
        lambda stream: stream.for_each(lambda batch: batch),
        lambda stream: stream.filter(lambda batch: True),
        lambda stream: stream.concat(1),
        lambda stream: stream.batch(1).flatten(),
        lambda stream: stream.queue(2),
        lambda stream: Union(stream),
    ],
    ids=["for_each", "filter", "concat", "batch_flatten", "queue", "union"],
)
def test_an_operator_costs_less_than_20_microseconds_per_item(add: Callable[[Stream], Stream]) -> None:
    cost = seconds_per_step(operator_chain(add, 10)) - seconds_per_step(operator_chain(add, 0))
    assert cost / 10 < LIMIT


@pytest.mark.parametrize("gather", ["gather_sync", "gather_async"])
def test_a_gather_costs_less_than_20_microseconds_per_item_with_8_workers(gather: str) -> None:
    stream: Any = ParallelRollouts([Free(number) for number in range(8)])
    assert seconds_per_step(ReportMetrics(getattr(stream, gather)())) < 2 * LIMIT  # source and gather


def test_a_whole_dqn_plan_costs_less_than_20_microseconds_per_operator() -> None:
    group, learner, memory = [Free()], FakeLearner(), FreeMemory(batch_size=4)
    learner.keep = False
    store = ParallelRollouts(group).gather_async().for_each(StoreToBuffer(memory))
    train = Replay(memory).for_each(TrainOneStep(learner, group)).rate_limit(1.0, min_size=64)
    plan = ReportMetrics(Union(store, train), group)
    assert seconds_per_step(plan) < 4 * LIMIT  # an item goes through four operators at least
