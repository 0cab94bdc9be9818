"""The phases of a build in words: what is complete when, by whom, and what each method became."""

import numpy as np
import pytest

from rlweave import ops
from rlweave.graph import Component, api, build, graph_fn
from rlweave.spaces import FloatBox


class Table(Component):
    """Complete once `put` is known."""

    def create_variables(self, rows):
        self.held = self.variable("held", (8, *rows.shape), 0.0, trainable=False)

    @graph_fn
    def put(self, rows):
        self.held.assign_at(ops.arange(rows.shape[0]), rows)

    @graph_fn(returns=1)
    def get(self):
        return ops.sum(self.held.value, axis=0)


class Line(Component):
    def create_variables(self, inputs):
        self.weight = self.variable("weight", inputs.shape, 1.0)

    @graph_fn
    def call(self, inputs):
        return inputs * self.weight.value


class Root(Component):
    def __init__(self):
        super().__init__("root")
        self.table, self.line = Table("table"), Line("line")

    @api
    def total(self):
        return self.line.call(self.table.get())

    @api
    def put(self, rows):
        self.table.put(rows)

    @api(static=("factor",))
    def scaled(self, rows, factor=2):
        return self._scaled(rows, factor)

    @graph_fn
    def _scaled(self, rows, factor):
        return rows * factor + ops.random.uniform((1,))


@pytest.mark.parametrize("backend", ["numpy", "torch", "jax", "tensorflow"])
@pytest.mark.parametrize("mode", ["compiled", "eager"])
def test_the_phases(backend, mode):
    executor = build(Root(), {"rows": FloatBox(shape=(3,), add_batch_rank=True)}, backend=backend, mode=mode)
    lines = executor.explain().splitlines()
    assert lines[0] == f"Root 'root' on {backend}"
    expected = [
        "1. Composition: 3 components",
        "   root: Root",
        "     table: Table  needs rows",
        "     line: Line  needs inputs",
        "   before: root is complete",
        "   round 1: root/table is complete: rows FloatBox((B, 3) float32) from root/table.put, called from root.put",
        "              creates held (8, 3) float32, not trained",
        "   round 1: put is known",
        "   round 1: scaled is known",
        "   round 1: total has to wait",
        "   round 2: root/line is complete: inputs FloatBox((3,) float32) from root/line.call, called from root.total",
        "              creates weight (3,) float32",
        "   round 2: total is known",
        "   total",
        "     gives FloatBox((3,) float32)",
        "     2 nodes: 2 graph function calls",
        "     reads 2 variables (27 numbers)",
        "   put",
        "     takes rows: FloatBox((B, 3) float32)",
        "     gives nothing",
        "     writes 1 variable (24 numbers)",
        "   scaled(factor=2)",
        "     reads random state",
    ]
    position = 0
    for line in expected:  # in this order
        assert line in lines[position:], (line, lines)
        position = lines.index(line, position) + 1
    assert lines[-1].startswith("4. Time: ")
    assert np.isfinite(executor.total()).all()


def test_a_variant_that_was_traced_later_is_there():
    executor = build(Root(), {"rows": FloatBox(shape=(3,), add_batch_rank=True)})
    assert "scaled(factor=5)" not in executor.explain()
    executor.scaled(np.ones((2, 3), np.float32), factor=5)
    assert "scaled(factor=5)" in executor.explain()
