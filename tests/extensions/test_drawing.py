"""Pictures of component graphs: what they show, and that nothing overlaps."""

import re
import xml.etree.ElementTree as ElementTree
from itertools import combinations
from pathlib import Path

import matplotlib
import pytest
from PIL import ImageFont

from rlweave import ops
from rlweave.agents.dqn import DQN
from rlweave.errors import ExecutionError
from rlweave.extensions.drawing import draw
from rlweave.extensions.drawing.dataflow import make_picture
from rlweave.graph import Component, api, build, graph_fn
from rlweave.spaces import FloatBox, IntBox
from tests.extensions.drawn_agents import OBSERVATIONS, Dense, build_dqn, build_ppo

SVG = "{http://www.w3.org/2000/svg}"
FONTS = Path(matplotlib.get_data_path()) / "fonts" / "ttf"


@pytest.fixture(scope="module")
def executors():
    return {"dqn": build_dqn(depth=4), "large dqn": build_dqn(depth=9), "ppo": build_ppo()}


PICTURES = [
    ("dqn", None),
    ("dqn", "act"),
    ("dqn", "update"),
    ("dqn", "sync_target"),
    ("large dqn", None),
    ("ppo", None),
    ("ppo", "update"),
]


@pytest.fixture(params=PICTURES, ids=str)
def drawn(request, executors):
    name, method = request.param
    return executors[name], ElementTree.fromstring(draw(executors[name], "svg", method)), method


# -- geometry ------------------------------------------------------------------------------------------------------


def rectangle(element):
    x, y, width, height = (float(element.get(name)) for name in ("x", "y", "width", "height"))
    return x, y, x + width, y + height


def rectangles(svg, *classes):
    return [(e, rectangle(e)) for e in svg.iter(f"{SVG}rect") if e.get("class") in classes]


def overlap(a, b, margin=0.0):
    return a[0] < b[2] - margin and b[0] < a[2] - margin and a[1] < b[3] - margin and b[1] < a[3] - margin


def inside(a, b):
    return a[0] >= b[0] and a[1] >= b[1] and a[2] <= b[2] and a[3] <= b[3]


def path_of(element):
    return element.get("data-path") or ""


def test_boxes_are_nested_as_the_components_are_and_apart_otherwise(drawn):
    _, svg, _ = drawn
    boxes = rectangles(svg, "component")
    assert len(boxes) >= 3
    for (a, box_a), (b, box_b) in combinations(boxes, 2):
        if path_of(b).startswith(path_of(a) + "/"):
            assert inside(box_b, box_a), (path_of(a), path_of(b))
        elif path_of(a).startswith(path_of(b) + "/"):
            assert inside(box_a, box_b), (path_of(a), path_of(b))
        else:
            assert not overlap(box_a, box_b), (path_of(a), path_of(b))


def test_methods_functions_and_labels_overlap_nothing(drawn):
    _, svg, _ = drawn
    small = rectangles(svg, "method", "function", "label")
    for (a, box_a), (b, box_b) in combinations(small, 2):
        assert not overlap(box_a, box_b), (ElementTree.tostring(a), ElementTree.tostring(b))
    for part, box in rectangles(svg, "component"):
        for other, small_box in small:
            assert inside(small_box, box) or not overlap(small_box, box), (path_of(part), ElementTree.tostring(other))


def measured(text):
    """The box of a text in DejaVu, the widest of the fonts that the pictures name."""
    mono, bold = "Mono" in text.get("font-family"), text.get("font-weight") == "bold"
    name = f"DejaVuSans{'Mono' if mono else ''}{'-Bold' if bold else ''}.ttf"
    size = float(text.get("font-size"))
    width = ImageFont.truetype(str(FONTS / name), 100).getlength(text.text) * size / 100
    x, y = float(text.get("x")), float(text.get("y"))
    left = x - width / 2 if text.get("text-anchor") == "middle" else x
    return left, y - 0.75 * size, left + width, y + 0.2 * size


def test_no_text_overlaps_another_one_or_leaves_its_box(drawn):
    _, svg, _ = drawn
    texts = [(text.text, measured(text)) for text in svg.iter(f"{SVG}text")]
    for (a, box_a), (b, box_b) in combinations(texts, 2):
        assert not overlap(box_a, box_b, 0.5), (a, b)
    boxes = [box for _, box in rectangles(svg, "component", "method", "function", "label")]
    for text, box in texts:
        for around in boxes:
            assert inside(box, around) or not overlap(box, around), text
    _, _, width, height = (float(number) for number in svg.get("viewBox").split())
    assert all(inside(box, (0, 0, width, height)) for _, box in texts)


def points_of(path):
    """Points along an SVG path of M, V, H and C commands with absolute coordinates."""
    points, x, y = [], 0.0, 0.0
    for command, numbers in re.findall(r"([MVHC])([^MVHC]*)", path):
        values = [float(number) for number in re.findall(r"-?[\d.]+", numbers)]
        if command == "M":
            x, y = values
        elif command == "V":
            points += [(x, y + (values[0] - y) * i / 16) for i in range(17)]
            y = values[0]
        elif command == "H":
            points += [(x + (values[0] - x) * i / 16, y) for i in range(17)]
            x = values[0]
        else:
            (ax, ay, bx, by, cx, cy) = values
            for t in (i / 24 for i in range(25)):
                u = 1 - t
                points.append(
                    tuple(
                        u**3 * p0 + 3 * u * u * t * p1 + 3 * u * t * t * p2 + t**3 * p3
                        for p0, p1, p2, p3 in ((x, ax, bx, cx), (y, ay, by, cy))
                    )
                )
            x, y = cx, cy
    return points


def test_arrows_run_through_no_box(drawn):
    _, svg, _ = drawn
    arrows = [points_of(e.get("d")) for e in svg.iter(f"{SVG}path") if e.get("class")]
    assert arrows
    for part, (left, top, right, bottom) in rectangles(svg, "component", "method", "function"):
        for points in arrows:
            within = [left + 1 < x < right - 1 and top + 1 < y < bottom - 1 for x, y in points]
            around = [left - 8 < x < right + 8 and top - 8 < y < bottom + 8 for x, y in points]
            assert not any(within) or all(around), path_of(part)


def test_labels_are_crossed_by_their_own_arrow_only(drawn):
    _, svg, _ = drawn
    arrows = [points_of(e.get("d")) for e in svg.iter(f"{SVG}path") if e.get("class")]
    for label, (left, top, right, bottom) in rectangles(svg, "label"):
        crossing = [any(left + 1 < x < right - 1 and top + 1 < y < bottom - 1 for x, y in points) for points in arrows]
        assert sum(crossing) <= 1, ElementTree.tostring(label)


def test_an_arrow_between_neighbours_of_one_layer_runs_below_them(executors):
    svg = ElementTree.fromstring(draw(executors["dqn"], "svg"))
    (sync,) = [
        points_of(e.get("d"))
        for e in svg.iter(f"{SVG}path")
        if e.get("class") == "state" and "H" in e.get("d")  # through its label
    ]
    boxes = {path_of(e): box for e, box in rectangles(svg, "component")}
    _, _, _, bottom = boxes["dqn/policy"]
    left, _, right, target_bottom = boxes["dqn/target-policy"]
    assert sync[0][1] == pytest.approx(bottom, abs=0.2)
    assert sync[-1][1] == pytest.approx(target_bottom, abs=8)
    assert left < sync[-1][0] < right
    assert max(y for _, y in sync) > max(bottom, target_bottom)


def test_a_method_has_the_same_colour_in_every_picture(executors):
    def colour(method):
        svg = ElementTree.fromstring(draw(executors["dqn"], "svg", method))
        texts = {text.text: text for text in svg.iter(f"{SVG}text")}
        return texts["update returns"].get("fill")

    assert colour("update") == colour(None)


# -- content -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["dqn", "ppo"])
def test_every_component_and_method_is_there(executors, name):
    executor = executors[name]
    svg, mermaid = draw(executor, "svg"), draw(executor, "mermaid")
    shown = {path_of(e) for e, _ in rectangles(ElementTree.fromstring(svg), "component")}
    assert shown == {component.path for component in executor.session.components}
    for component in executor.session.components:
        assert f">{component.scope}</text>" in svg
        assert f"<b>{component.scope}</b><br/>{type(component).__name__}" in mermaid
    assert "update(batch_size=32)" in svg or "update(batch, epochs=3)" in svg


def test_forty_components_fit_on_a_readable_page(executors):
    executor = executors["large dqn"]
    assert len(executor.session.components) >= 40
    svg = ElementTree.fromstring(draw(executor, "svg"))
    assert float(svg.get("width")) < 1300  # text of 10 pixels stays readable on a page of 900


def flows(executor, method=None):
    return {(flow.source, flow.target): flow for flow in make_picture(executor, method).flows}


def test_data_flows_carry_names_and_spaces(executors):
    found = flows(executors["dqn"])
    assert found["in:act", "dqn/normalizer"].labels == ["observations f32[B,4]"]
    assert found["dqn/memory#gather", "dqn/loss"].labels == ["actions i32[B]", "rewards f32[B]", "terminals bool[B]"]
    assert found["dqn/policy#combine", "dqn/loss"].labels == ["q_values f32[B,3]", "next_q f32[B,3]"]
    assert found["dqn/loss", "dqn/memory#priority"].labels == ["errors f32[B]"]
    assert found["dqn/exploration", "out:act"].labels == ["i32[B]"]
    assert found["in:update", "dqn/memory#masses"].labels == []  # no inputs, but it starts there
    assert found["dqn/normalizer", "dqn/policy/network/dense-0"].methods == ["act", "update"]


def test_gradients_updates_and_syncs_are_flows_of_their_own(executors):
    found = flows(executors["dqn"])
    gradient = found["dqn/loss", "dqn/optimizer"]
    assert (gradient.kind, gradient.labels) == ("gradient", ["16 gradients"])
    update = found["dqn/optimizer", "dqn/policy"]
    assert (update.kind, update.labels) == ("state", ["updates 16 variables"])
    sync = found["dqn/policy", "dqn/target-policy"]
    assert (sync.kind, sync.labels, sync.methods) == ("state", ["syncs 16 variables"], ["sync_target"])


def test_bodies_of_loops_are_looked_into(executors):
    found = flows(executors["ppo"], "update")
    assert found["in:update", "ppo/trunk/dense-0"].labels == ["observations f32[B,4]"]
    assert found["in:update", "ppo/loss"].labels == ["actions i32[B]", "returns f32[B]"]
    assert found["ppo/loss", "ppo/optimizer"].labels == ["8 gradients"]
    assert found["ppo/loss", "ppo#mean"].labels == ["losses f32[3]"]
    assert found["ppo/optimizer", "ppo/trunk"].labels == ["updates 4 variables"]


def test_places_and_kinds_of_variables(executors):
    parts = make_picture(executors["dqn"]).parts
    assert parts["dqn/memory/sum-tree"].place == parts["dqn/memory"].place == "host"
    assert parts["dqn/loss"].place == parts["dqn/policy"].place == "numpy"
    assert parts["dqn/policy"].kind == "trainable"
    assert parts["dqn/target-policy"].kind == "frozen"
    assert parts["dqn/normalizer"].kind == "state"
    assert parts["dqn/loss"].kind == ""
    assert parts["dqn/policy/network/dense-0"].variables == 2
    assert parts["dqn/policy/network/dense-0"].sizes == {"trainable": 4 * 64 + 64}


def test_devices_and_transfers_between_them_are_named():
    agent = DQN(FloatBox(shape=(4,)), IntBox(3), {"device": {"target-policy": "cpu:1"}}, backend="jax")
    picture = make_picture(agent.executor, "update")
    assert picture.parts["dqn/target-policy"].place == "cpu:1"
    assert picture.parts["dqn/policy"].place == "cpu:0"
    assert picture.parts["dqn/memory"].place == "host"
    labels = [label for flow in picture.flows if flow.source.startswith("dqn/target") for label in flow.labels]
    assert any("cpu:1 to cpu:0" in label for label in labels)
    assert "on cpu:1" in agent.executor.draw("svg", "update")
    assert "on cpu:1" in agent.executor.draw("mermaid", "update")


def test_components_that_are_shared_are_named(executors):
    parts = make_picture(executors["ppo"]).parts
    assert parts["ppo/policy"].uses == parts["ppo/value-function"].uses == ["ppo/trunk"]
    assert "uses trunk" in draw(executors["ppo"], "svg")


def test_one_method_shows_what_it_uses_only(executors):
    parts = make_picture(executors["dqn"], "act").parts
    assert "dqn/policy/network/dense-3" in parts
    assert not {"dqn/memory", "dqn/loss", "dqn/target-policy"} & set(parts)
    assert "target-policy" not in draw(executors["dqn"], "mermaid", "act")


def test_the_same_graph_gives_the_same_text(executors):
    again = build_dqn(depth=4)
    for form in ("svg", "mermaid"):
        assert draw(executors["dqn"], form) == draw(again, form) == again.draw(form)


def test_a_single_component_can_be_drawn():
    executor = build(Dense(2, scope="only"), {"inputs": OBSERVATIONS})
    svg = draw(executor, "svg")
    ElementTree.fromstring(svg)
    assert "call(inputs)" in svg
    assert flows(executor)["in:call", "only#call"].labels == ["f32[B,4]"]


def test_a_method_that_was_not_traced_is_shown_without_flows():
    class Sampler(Component):
        @api(static=("size",))
        def sample(self, size):
            return self._sample(size)

        @graph_fn
        def _sample(self, size):
            return ops.zeros((size,))

        @graph_fn
        def call(self, x):
            return x + 1.0

    executor = build(Sampler("sampler"), {"x": FloatBox(add_batch_rank=True)})
    assert "sample(…)" in draw(executor, "svg")
    with pytest.raises(ExecutionError, match="not been traced yet"):
        draw(executor, "svg", "sample")
    assert executor.sample(size=3).shape == (3,)
    assert "sample(size=3)" in draw(executor, "svg", "sample")


def test_texts_are_escaped():
    class Html(Component):
        @api
        def call(self, x, note="<b>&"):
            return self._call(x)

        @graph_fn
        def _call(self, x):
            return x

    executor = build(Html("html"), {"x": FloatBox(add_batch_rank=True)})
    ElementTree.fromstring(draw(executor, "svg"))


def test_errors_name_the_nearest_right_thing(executors):
    with pytest.raises(ExecutionError, match="svg"):
        draw(executors["dqn"], "sgv")
    with pytest.raises(ExecutionError, match="update"):
        draw(executors["dqn"], "svg", "updat")


# -- Mermaid -------------------------------------------------------------------------------------------------------

NODE = re.compile(r'(n\d+)(\["[^"]*"\]|\(\["[^"]*"\]\))')
SUBGRAPH = re.compile(r'subgraph (n\d+)\["[^"]*"\]')
LINK = re.compile(r'(n\d+) (?:(?:--|==|-\.) "[^"]*" )?(?:-->|==>|\.->|-\.->) (n\d+)')
STYLE = re.compile(r"(?:classDef \w+ [\w#:,. -]+|class ((?:n\d+,?)+) \w+)")


@pytest.mark.parametrize(("name", "method"), PICTURES)
def test_mermaid_is_well_formed(executors, name, method):
    first, *lines = draw(executors[name], "mermaid", method).splitlines()
    assert first == "flowchart TB"
    declared, used, depth = set(), set(), 0
    for line in map(str.strip, lines):
        if node := NODE.fullmatch(line):
            assert node[1] not in declared
            declared.add(node[1])
        elif subgraph := SUBGRAPH.fullmatch(line):
            declared.add(subgraph[1])
            depth += 1
        elif line == "end":
            depth -= 1
            assert depth >= 0
        elif link := LINK.fullmatch(line):
            used |= {link[1], link[2]}
        elif style := STYLE.fullmatch(line):
            used |= set((style[1] or "").split(",")) - {""}
        else:
            raise AssertionError(line)
    assert depth == 0
    assert used <= declared
