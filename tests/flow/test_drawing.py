"""Pictures of plans: the same operators, edges and messages in Mermaid and SVG, coloured by where they run."""

import re
import xml.etree.ElementTree as ElementTree
from itertools import islice
from typing import Any

import pytest

from rlweave.errors import PlanError
from rlweave.flow import (
    FakeClock,
    LearnerActor,
    ParallelRollouts,
    Replay,
    ReportMetrics,
    StoreToBuffer,
    TrainOneStep,
    Union,
    UpdatePriorities,
    WorkerGroup,
)
from rlweave.flow.drawing import make_picture
from tests.flow.fakes import FakeLearner, FakeMemory, FakeWorker, SimulatedEngine, workers

SVG = "{http://www.w3.org/2000/svg}"


def keep(batch: Any) -> Any:
    return batch


def dqn() -> ReportMetrics:
    group, memory, learner = workers(3), FakeMemory(), FakeLearner()
    store = ParallelRollouts(group).par_for_each(keep).gather_async(2).for_each(StoreToBuffer(memory))
    train = Replay(memory).for_each(TrainOneStep(learner, group)).named("learn").for_each(UpdatePriorities(memory))
    told = train.rate_limit(8, min_size=64).notify(group, "greet", every=3).queue(4, "drop_oldest")
    return ReportMetrics(Union(store, told), group)


def test_a_picture_has_every_operator_every_edge_and_every_message() -> None:
    plan = dqn()
    picture = make_picture(plan.graph)
    assert [box.name for box in picture.boxes] == [node.name for node in plan.graph.nodes]
    streams = [(a.source, a.target) for a in picture.arrows if a.kind in ("stream", "parallel")]
    assert streams == [(port.node.name, node.name) for node in plan.graph.nodes for port in node.inputs]
    assert [(a.source, a.target, *a.labels) for a in picture.arrows if a.kind == "message"] == [
        ("learn", "parallel_rollouts", "weights"),
        ("update_priorities", "replay", "priorities"),
        ("notify", "parallel_rollouts", "greet"),
    ]
    assert [(a.source, a.target) for a in picture.arrows if a.kind == "stored"] == [("store_to_buffer", "replay")]
    assert [a.labels for a in picture.arrows if a.source == "queue"] == [["TrainStats", "4 drop_oldest"]]


def test_operators_are_coloured_by_where_they_run() -> None:
    group = WorkerGroup([FakeWorker] * 2)
    train = ParallelRollouts(group).par_for_each(keep).gather_sync()
    plan = ReportMetrics(train.for_each(TrainOneStep(LearnerActor(FakeLearner), group)), group)
    places = {box.name: box.place for box in make_picture(plan.graph).boxes}
    assert places == {
        "parallel_rollouts": "sources",
        "keep": "sources",
        "gather_sync": "driver",
        "train_one_step": "learner",
        "report_metrics": "driver",
    }
    drawn = {
        box.get("data-name"): (box.get("data-place"), box.get("fill"))
        for box in ElementTree.fromstring(plan.draw("svg")).iter(f"{SVG}rect")
        if box.get("class") == "operator"
    }
    assert {name: place for name, (place, _) in drawn.items()} == places
    assert len(set(drawn.values())) == 3
    assert "in the learner's actor" in plan.draw("svg").replace("&#x27;", "'")


def test_mermaid_has_the_same_graph() -> None:
    lines = dqn().draw().splitlines()
    assert lines[0] == "flowchart LR"
    assert '  n0[("parallel_rollouts<br/><small>3 actors</small>")]' in lines
    assert '  n0 == "SampleBatch<br/>1 block" ==> n1' in lines
    assert '  n9 -- "TrainStats<br/>4 drop_oldest" --> n10' in lines
    assert '  n5 -. "weights" .-> n0' in lines
    assert "  class n0,n1 sources" in lines
    assert any("weights=&#91;1, 1&#93;" in line for line in lines)
    assert sum(bool(re.search(r" (--|==|-\.) ", line)) for line in lines) == 11 + 4


def test_svg_stands_alone_and_nothing_overlaps() -> None:
    text = dqn().draw("svg")
    root = ElementTree.fromstring(text)
    assert "href" not in text
    boxes = [
        tuple(float(rect.get(key, 0)) for key in ("x", "y", "width", "height"))
        for rect in root.iter(f"{SVG}rect")
        if rect.get("class") == "operator"
    ]
    assert len(boxes) == 12
    for i, (x, y, width, height) in enumerate(boxes):
        assert x >= 0
        assert x + width <= float(root.get("width", 0))
        assert y + height <= float(root.get("height", 0))
        for other_x, other_y, other_width, other_height in boxes[:i]:
            apart = x >= other_x + other_width or other_x >= x + width
            assert apart or y >= other_y + other_height or other_y >= y + height
    kinds = [path.get("class") for path in root.iter(f"{SVG}path") if path.get("class")]
    assert sorted(kinds) == ["message"] * 3 + ["parallel"] * 2 + ["stored"] + ["stream"] * 9
    dashed = {
        path.get("class") for path in root.iter(f"{SVG}path") if path.get("class") and path.get("stroke-dasharray")
    }
    assert dashed == {"message", "stored"}


def test_the_same_plan_gives_the_same_picture() -> None:
    assert dqn().draw("svg") == dqn().draw("svg")


def test_what_a_message_reaches_outside_of_the_plan_is_drawn_too() -> None:
    class Log:
        def note(self, message: Any, version: int) -> None:
            raise NotImplementedError

    plan = ReportMetrics(ParallelRollouts(workers(1)).gather_sync().notify(Log(), "note"))
    assert [(box.name, box.place) for box in make_picture(plan.graph).boxes][-1] == ("Log", "elsewhere")
    assert 'data-name="Log"' in plan.draw("svg")


def test_names_that_mean_something_in_xml_or_mermaid_are_shown_as_they_are() -> None:
    plan = ReportMetrics(ParallelRollouts(workers(1)).gather_sync().named('a<b> & "c"'))
    texts = [element.text for element in ElementTree.fromstring(plan.draw("svg")).iter(f"{SVG}text")]
    assert 'a<b> & "c"' in texts
    assert "a<b> &amp; #quot;c#quot;" in plan.draw()


def test_an_unknown_form_names_the_nearest() -> None:
    with pytest.raises(PlanError, match=r"(?s)unknown form.*did you mean 'mermaid'"):
        dqn().draw("mermade")


def test_a_plan_that_runs_shows_items_rates_fill_and_lag() -> None:
    group, clock = workers(2, steps=4), FakeClock()
    train = ParallelRollouts(group).gather_async().queue(3).for_each(TrainOneStep(FakeLearner(), group))
    plan = ReportMetrics(train, group)
    assert "items" not in plan.draw()
    plan.start(SimulatedEngine(clock, lambda index: 0.5), clock)
    assert "items" not in plan.draw(), "nothing has happened so far"
    for _ in islice(plan.items(), 12):
        pass
    assert clock.now() == plan.seconds == pytest.approx(3.0)
    small = {box.name: " ".join(box.small) for box in make_picture(plan.graph, plan.seconds).boxes}
    assert small["train_one_step"].endswith("12 items (4/s)")
    assert small["queue"] == f"capacity=3, block {plan.report().operator_items['queue']} items (4/s), fill 0"
    lag = plan.report().gather_lag
    mean = sum(lag * count for lag, count in lag.items()) / sum(lag.values())
    assert f"lag {mean:.1f} (at most {max(lag)})" in small["gather_async"]
    assert "12 items" in plan.draw("svg")
