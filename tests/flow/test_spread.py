"""Workers as one: calls that are split over them, and answers that are collected."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np
import pytest

from rlweave.errors import PlanError
from rlweave.flow import AsOne, FakeClock, ParallelRollouts, ReportMetrics, SampleBatch, WorkerGroup, spread
from tests.flow.fakes import FakeWorker, SimulatedEngine


class Member(FakeWorker):
    """A worker that notes how it was called, and answers with its rows."""

    scale = 1.0

    @spread("rows")
    def learn(self, batch: SampleBatch, weights: np.ndarray, name: str = "") -> dict[str, Any]:
        return {
            "loss": self.scale * float(np.mean(batch["x"])),
            "rows": batch["x"],
            "weighted": (weights * 2.0, None),
            "batch": batch,
        }

    @spread("rows")
    def back(self, batch: SampleBatch) -> tuple[SampleBatch, float]:
        return batch, float(np.mean(batch["x"]))

    @spread("rows")
    def told(self, rows: np.ndarray) -> str:
        return str(len(rows))

    @spread("rows")
    def silent(self, rows: np.ndarray) -> None:
        self.seen = len(rows)

    @spread("all")
    def take(self, scale: float) -> int:
        self.scale = scale
        return self.number

    def plain(self) -> None:
        """Not declared."""


def plan_of(count: int) -> tuple[ReportMetrics, list[Member]]:
    members = [Member(number) for number in range(count)]
    return ReportMetrics(ParallelRollouts(members).gather_sync(), members).start(), members


@pytest.mark.parametrize(("rows", "parts"), [(6, [2, 2, 2]), (5, [1, 2, 2]), (2, [None, 1, 1]), (1, [None, None, 1])])
def test_rows_are_cut_as_evenly_as_that_goes_and_answers_are_those_of_one_worker(
    rows: int, parts: Sequence[int | None]
) -> None:
    plan, members = plan_of(3)
    x = np.arange(rows, dtype=np.float32) ** 2
    batch = SampleBatch({"x": x, "nested": {"y": np.stack([x, -x], 1)}})
    found = AsOne(plan).learn(batch, x + 1.0, "name")
    expected = Member().learn(batch, x + 1.0, "name")
    assert found["loss"] == pytest.approx(expected["loss"], rel=1e-6)
    np.testing.assert_array_equal(found["rows"], x)
    np.testing.assert_array_equal(found["weighted"][0], expected["weighted"][0])
    assert found["weighted"][1] is None
    np.testing.assert_array_equal(found["batch"]["nested"]["y"], batch["nested"]["y"])
    assert AsOne(plan).silent(x) is None
    assert [getattr(member, "seen", None) for member in members] == parts


def test_trajectories_are_cut_between_environments() -> None:
    plan, _ = plan_of(2)
    data = {"x": np.arange(12.0).reshape(4, 3), "first": np.arange(3)}
    batch = SampleBatch(data, "trajectories", per_trajectory=["first"])
    found, mean = AsOne(plan).back(batch)
    np.testing.assert_array_equal(found["x"], data["x"])
    np.testing.assert_array_equal(found["first"], data["first"])
    assert mean == pytest.approx(5.5)


def test_all_get_the_same_and_the_first_one_answers() -> None:
    plan, members = plan_of(3)
    assert AsOne(plan).take(2.0) == 0
    assert AsOne(plan, [2, 1]).take(3.0) == 2
    assert [member.scale for member in members] == [2.0, 3.0, 3.0]
    # of some of them, rows are divided among these
    AsOne(plan, [0, 2]).silent(np.zeros(3))
    assert [getattr(member, "seen", None) for member in members] == [1, None, 2]


def test_a_lost_member_is_named_and_the_others_are_asked_without_it() -> None:
    group = WorkerGroup([lambda number=number: Member(number) for number in range(3)])
    for factory in group.factories:
        factory.makes = Member
    engine = SimulatedEngine(FakeClock())
    plan = ReportMetrics(ParallelRollouts(group).on_error("replace").gather_sync(), group)
    plan.start(engine, engine.clock)
    list(islice(plan.items(), 3))
    engine.crash(plan._context.actors(group)[1])  # type: ignore[union-attr]
    for call in (lambda: AsOne(plan).learn(SampleBatch({"x": np.ones(6)}), np.ones(6)), lambda: AsOne(plan).take(1.0)):
        with pytest.raises(PlanError, match="ActorLost") as error:
            call()
        assert "parallel_rollouts/1" in str(error.value)
    found = AsOne(plan, [0, 2]).learn(SampleBatch({"x": np.arange(6.0)}), np.ones(6))
    np.testing.assert_array_equal(found["rows"], np.arange(6.0))


def test_what_cannot_be_spread_says_why() -> None:
    plan, _ = plan_of(2)
    ones, cases = np.ones(3), AsOne(plan)
    for call, why in (
        (lambda: cases.plain(), "no such method"),
        (lambda: cases.silent(np.ones(0)), "arguments cannot be spread by rows"),
        (lambda: cases.silent(1.0), "arguments cannot be spread by rows"),
        (lambda: cases.learn(SampleBatch({"x": ones}), np.ones(2)), "arguments cannot be spread by rows"),
        (lambda: cases.told(ones), "answers cannot be put together"),
        (lambda: spread("columns"), "by rows, or to all"),  # type: ignore[arg-type]
        (lambda: AsOne(ReportMetrics(ParallelRollouts([Member()]).gather_sync())), "names no workers"),
    ):
        with pytest.raises(PlanError, match=why) as error:
            call()
        assert error.value.fix
