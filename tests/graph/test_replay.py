"""An API method that is called again with equal spaces is copied: the graph is the same as if it were traced."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from rlweave import graph, ops
from rlweave.graph import Component, api, build, graph_fn
from rlweave.graph.trace import Trace
from rlweave.spaces import FloatBox
from tests.graph.toys import BACKENDS

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

X = FloatBox(shape=(2,), add_batch_rank=True)


class Layer(Component):
    """y = w x, and how often its API method was run by a tracer."""

    runs = 0

    def create_variables(self, x):
        self.w = self.variable("w", (2,), initializer=np.array([1.0, 3.0], np.float32))

    @api
    def scale(self, x, factor=1.0):
        type(self).runs += 1
        return self._scale(x, factor)

    @graph_fn
    def _scale(self, x, factor):
        return x * self.w.value * factor

    @api
    def report(self, x):
        graph.metric("mean", self._mean(x))
        return x

    @graph_fn
    def _mean(self, x):
        return ops.mean(x)


class Root(Component):
    def __init__(self):
        super().__init__("root")
        self.layer = Layer("layer")

    @api
    def twice(self, x):
        return self.layer.scale(self.layer.scale(x))

    @api
    def pair(self, x, y):
        return {"x": self.layer.scale(x), "y": self.layer.scale(y)}, self.layer.scale(x, 2.0)

    @api
    def reports(self, x):
        return self.layer.report(self.layer.report(x))


@pytest.fixture
def without_replay(monkeypatch):
    return lambda: monkeypatch.setattr(Trace, "replays", False)


@pytest.mark.parametrize("backend", BACKENDS)
def test_equal_calls_are_traced_once(backend):
    Layer.runs = 0
    executor = build(Root(), {"x": X, "y": X}, backend=backend, methods=("twice", "pair"))
    assert Layer.runs == 2  # once with each factor
    x, y = np.array([[1.0, 2.0]], np.float32), np.array([[5.0, 7.0]], np.float32)
    np.testing.assert_array_equal(executor.twice(x), [[1.0, 18.0]])
    both, double = executor.pair(x, y)
    np.testing.assert_array_equal(both["x"], [[1.0, 6.0]])
    np.testing.assert_array_equal(both["y"], [[5.0, 21.0]])
    np.testing.assert_array_equal(double, [[2.0, 12.0]])


def test_calls_with_effects_on_the_graph_are_traced_again():
    executor = build(Root(), {"x": X, "y": X}, methods=("reports",))
    _, metrics = executor.reports(np.ones((1, 2), np.float32), with_metrics=True)
    assert sorted(metrics) == ["mean", "mean-2"]


def test_one_value_for_two_arguments_is_no_pattern_for_two_values():
    class Difference(Component):
        @api
        def both(self, x, y):
            return self.inner(x, x), self.inner(x, y)

        @api
        def inner(self, a, b):
            return self._minus(a, b)

        @graph_fn
        def _minus(self, a, b):
            return a - b

    executor = build(Difference("root"), {"x": X, "y": X}, methods=("both",))
    x, y = np.full((1, 2), 3.0, np.float32), np.full((1, 2), 1.0, np.float32)
    same, different = executor.both(x, y)
    np.testing.assert_array_equal(same, 0.0 * x)
    np.testing.assert_array_equal(different, 2.0 * y)


def test_a_graph_is_the_same_as_without_replay(without_replay):
    from graph_build import make_root

    def sources():
        root, inputs = make_root()
        executor = build(root, inputs, backend="torch", static={"update": {"batch_size": 32}})
        return {name: executor.program(name, dict(static)).source for name, static in described(executor)}

    def described(executor):
        return [(graph.name, graph.static) for graph in executor.graphs.values()]

    replayed = sources()
    without_replay()
    assert replayed == sources()
    assert len(replayed) == 9
