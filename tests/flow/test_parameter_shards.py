"""Gradients in parts through plans: what each shard gets, versions, lags, and what is lost with shards and workers."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Any, ClassVar

import numpy as np
import pytest

from rlweave.errors import PlanError
from rlweave.flow import (
    ComputeGradients,
    FakeClock,
    Gradients,
    ItemReference,
    LearnerActor,
    ParallelRollouts,
    ReportMetrics,
    SampleBatch,
    WorkerGroup,
)
from rlweave.flow.envelope import Pieces, described, piece_of
from rlweave.flow.parameter_shards import CALLS_AHEAD, ApplyAtShard, InParts
from tests.flow.conftest import Start
from tests.flow.fake_cluster import SimulatedCluster
from tests.flow.fakes import FakeWorker, SimulatedEngine
from tests.flow.test_checkpoint import through_json

PARTITION = [["a"], ["b", "c"]]


class Computing(FakeWorker):
    """Its gradients are its number and its step; keeps the weights of each shard that it was sent."""

    def __init__(self, number: int, items: int | None = None) -> None:
        super().__init__(number, items=items)
        self.weights: dict[str, int] = {}
        self.seen: list[tuple[int, ...]] = []

    def set_weights(self, weights: Any, version: int) -> None:
        self.weights.update(weights)

    def compute_gradients(self, batch: SampleBatch) -> Gradients:
        self.seen.append(tuple(self.weights.values()))
        values = {path: np.array([float(self.number), float(batch["step"][0])]) for path in "abc"}
        return Gradients(values, batch.num_steps, {"loss": float(batch["step"][0])})


class FakeShard:
    """Counts its updates, and keeps what it was given; its weights are that count."""

    made: ClassVar[list[FakeShard]] = []

    def __init__(self, name: str) -> None:
        self.name, self.updates = name, 0
        self.given: list[Gradients] = []
        self.made.append(self)

    def update(self, gradients: Gradients) -> dict[str, Any]:
        self.updates += 1
        self.given.append(gradients)
        return gradients.metrics

    def get_weights(self) -> dict[str, int]:
        return {self.name: self.updates}

    def state_dict(self) -> dict[str, int]:
        return {"updates": self.updates}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.updates = state["updates"]


def shards(save_every: int = 10) -> list[LearnerActor]:
    FakeShard.made = []
    return [LearnerActor(partial(FakeShard, name), save_every=save_every) for name in ("first", "second")]


def server(
    workers: Any,
    learners: list[LearnerActor],
    by_reference: bool = True,
    max_lag: int | None = None,
    rule: Any = "stop",
    **on_error: Any,
) -> ReportMetrics:
    computed = ParallelRollouts(workers).on_error("replace" if isinstance(workers, WorkerGroup) else "stop")
    parts = computed.par_for_each(ComputeGradients()).par_for_each(InParts(PARTITION))
    stream = parts.gather_async(max_lag=max_lag, by_reference=by_reference)
    for number, shard in enumerate(learners):
        stream = stream.for_each(ApplyAtShard(shard, number, workers)).on_error(rule, **on_error)
    return ReportMetrics(stream, workers)


def computing(n: int, items: int | None = None) -> list[Computing]:
    return [Computing(number, items) for number in range(n)]


def test_every_shard_gets_its_part_of_all_gradients_in_one_order(start: Start) -> None:
    group = computing(2)
    plan = start(server(group, shards()))
    items = list(islice(plan.items(), 6))
    plan.drain()
    first, second = FakeShard.made
    assert [set(given.values) for given in first.given] == [{"a"}] * 6
    assert [set(given.values) for given in second.given] == [{"b", "c"}] * 6
    order = [[0.0, 0.0], [1.0, 0.0], [0.0, 4.0], [1.0, 4.0], [0.0, 8.0], [1.0, 8.0]]
    assert [given.values["a"].tolist() for given in first.given] == order
    assert [given.values["c"].tolist() for given in second.given] == order
    assert all(isinstance(item.payload, ItemReference) for item in items)
    report = plan.report()
    assert (report.updates, report.gradient_steps, report.trained_samples) == (6, 6, 24)
    assert report.metrics == {"apply_gradients/loss": 4.0}, "of the first shard: the metrics are those of the whole"
    assert report.train_lags == {"apply_gradients": {0: 1, 1: 5}, "apply_gradients-2": {0: 1, 1: 5}}


def test_workers_get_weights_of_all_shards_of_one_version(start: Start) -> None:
    group = computing(2)
    plan = start(server(group, shards()))
    items = list(islice(plan.items(), 8))
    assert all(len(set(weights)) == 1 for worker in group for weights in worker.seen)
    assert [item.versions for item in items] == [(0, 0), (0, 0), *((n, n) for n in range(1, 7))]


def test_workers_do_not_wait_for_a_shard_and_few_enough_updates_are_under_way_to_it() -> None:
    """Twelve workers take a second, an update five: it is the shard that is waited for, with so many calls ahead."""
    clock = FakeClock()
    engine = SimulatedEngine(clock, lambda index: 1.0 if index < 12 else 5.0)
    plan = server(computing(12), shards()).start(engine, clock)
    operator: Any = next(node for node in plan.graph.nodes if node.name == "apply_gradients")
    most = 0
    for _ in islice(plan.items(), 20):
        most = max(most, len(operator._at_actor.under_way))
    assert most == CALLS_AHEAD
    assert clock.now() <= 1.0 + 5.0 * (20 - CALLS_AHEAD) + 1e-6


def test_the_end_comes_when_all_updates_have_arrived() -> None:
    clock = FakeClock()
    engine = SimulatedEngine(clock, lambda index: 1.0 if index < 2 else 3.0)
    plan = server(computing(2, items=3), shards()).start(engine, clock)
    assert len(list(plan.items())) == 6
    assert clock.now() >= 1.0 + 6 * 3.0
    assert plan.report().metrics == {"apply_gradients/loss": 4.0}


def test_the_norm_is_that_of_all_parts_together() -> None:
    values = {"a": np.array([3.0], np.float32), "b": np.array([0.0], np.float32), "c": np.array([4.0], np.float32)}
    for most, scale in ((None, 1.0), (10.0, 1.0), (2.5, 0.5)):
        parts = InParts(PARTITION, most)(Gradients(values, 7, {"loss": 1.0}))
        assert (parts.num_steps, len(parts.pieces)) == (7, 2)
        first, second = parts.pieces
        np.testing.assert_allclose(first.values["a"], 3.0 * scale)
        np.testing.assert_allclose(second.values["c"], 4.0 * scale)
        assert second.values["c"].dtype == np.float32
        assert (first.num_steps, second.num_steps) == (7, 7)
        assert (first.metrics, second.metrics) == ({"loss": 1.0}, {})
    assert values["a"] == 3.0


def test_a_reference_gives_its_pieces_one_by_one() -> None:
    item = Pieces(["x", "y"], 3)
    assert described(item) == (3, True, 2)
    for held in (item, ItemReference.to(item)):
        assert [piece_of(held, number) for number in (0, 1)] == ["x", "y"]


@pytest.mark.parametrize("by_reference", [True, False])
def test_what_was_dropped_as_too_old_reaches_no_shard(by_reference: bool) -> None:
    clock = FakeClock()
    engine = SimulatedEngine(clock, lambda index: (1.0, 4.5, 0.0, 0.0)[index])
    plan = server(computing(2), shards(), by_reference, max_lag=2).start(engine, clock)
    for _ in islice(plan.items(), 20):
        pass
    report = plan.report()
    assert report.drops == {"gather_async": 4}
    assert [shard.updates for shard in FakeShard.made] == [20, 20]
    assert all(max(lags) <= 2 for lags in report.train_lags.values())


# -- failures -------------------------------------------------------------------------------------------------------


def on_cluster(rule: str, **more: Any) -> tuple[ReportMetrics, SimulatedCluster]:
    clock = FakeClock()
    cluster = SimulatedCluster(clock, lambda actor, method: {"next_apart": 1.0, "update": 0.25}.get(method, 0.0))
    group = WorkerGroup([partial(Computing, number) for number in range(2)])
    return server(group, shards(save_every=4), rule=rule, **more).start(cluster, clock), cluster


def until(plan: ReportMetrics, updates: int) -> Iterator[Any]:
    for item in plan.items():
        yield item
        if plan.counters.updates >= updates:
            return


def test_a_shard_that_dies_ends_the_plan_and_is_named() -> None:
    plan, cluster = on_cluster("stop")
    list(until(plan, 6))
    cluster.crash(FakeShard.made[1])
    with pytest.raises(PlanError, match="apply_gradients-2"):
        list(until(plan, 40))


def test_a_shard_that_dies_is_restarted_from_a_snapshot_and_the_others_go_on() -> None:
    plan, cluster = on_cluster("replace")
    list(until(plan, 7))
    plan.drain()
    cluster.crash(FakeShard.made[1])
    items = list(until(plan, 20))
    plan.drain()
    first, second, *_, again = FakeShard.made
    counters = plan.counters
    (lost,) = counters.lost_updates.values()
    assert counters.replacements == counters.failures == {"apply_gradients-2": 1}
    assert second.updates == 7
    assert first.updates == counters.updates == 20
    assert again.updates == 20 - lost, "exactly what was counted as lost is missing"
    assert lost == 4, "the snapshot is that after update 4, and the eighth was sent to the dead one"
    assert items[-1].versions[0] + 1 == items[-1].versions[1], "its restart is a version: items say what they mix"


def test_gradients_that_are_lost_with_their_worker_are_counted_and_shards_go_on() -> None:
    plan, _ = on_cluster("stop")
    list(until(plan, 5))
    plan.drain()
    gather: Any = next(node for node in plan.graph.nodes if node.name == "gather_async")
    updates = [shard.updates for shard in FakeShard.made]
    for payload in gather._requested[0].payloads:
        payload.gone = True
    list(until(plan, 12))
    plan.drain()
    assert plan.counters.lost_items == {"apply_gradients": 1, "apply_gradients-2": 1}
    assert [shard.updates - before for shard, before in zip(FakeShard.made, updates, strict=True)] == [6, 6]


def test_a_shard_that_hangs_is_an_error() -> None:
    clock = FakeClock()
    engine = SimulatedEngine(clock, lambda index: 1.0 if index < 2 else 1e9)
    plan = server(computing(2), shards(), timeout=20.0).start(engine, clock)
    with pytest.raises(PlanError, match="the shard did not answer for 20 seconds"):
        list(plan.items())
    assert clock.now() <= 25.0


class Diverging(FakeShard):
    """Its loss is no number at its third update."""

    def update(self, gradients: Gradients) -> dict[str, Any]:
        super().update(gradients)
        return {"loss": float("nan") if self.updates == 3 else 1.0}


def test_metrics_that_are_not_finite_stop_the_plan(start: Start) -> None:
    plan = start(server(computing(1), [LearnerActor(partial(Diverging, "first"))]))
    with pytest.raises(PlanError, match="diverged"):
        list(islice(plan.items(), 12))


# -- checkpoints ----------------------------------------------------------------------------------------------------


def test_pieces_that_have_arrived_are_part_of_a_checkpoint() -> None:
    def begin() -> ReportMetrics:
        clock = FakeClock()
        return server(computing(3), shards()).start(SimulatedEngine(clock), clock)

    plan = begin()
    list(islice(plan.items(), 4))
    state = through_json(plan.state_dict())
    assert [shard.updates for shard in FakeShard.made] == [4, 4], "all updates have arrived"
    resumed = begin()
    for shard in FakeShard.made:
        shard.updates = 4
    resumed.load_state_dict(state)
    list(islice(resumed.items(), 3))
    resumed.drain()
    assert [shard.updates for shard in FakeShard.made] == [7, 7]
    given = [gradients.values["c"].tolist() for gradients in FakeShard.made[1].given]
    assert given[:2] == [[1.0, 4.0], [2.0, 4.0]], "they had been computed before"
