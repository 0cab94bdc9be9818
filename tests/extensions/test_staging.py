"""Staged arguments: on their device before the call, nobody else's memory, and not copied again."""

import numpy as np
import pytest

from rlweave import ops
from rlweave.errors import ExecutionError
from rlweave.graph import Component, api, graph_fn
from rlweave.spaces import Dict, FloatBox, Tuple
from tests.graph.toys import BACKENDS, Cell, built, close, rows

every = pytest.mark.parametrize("backend", BACKENDS)
SPACES = {"batch": Dict(x=rows(3), more=Tuple(rows(), FloatBox())), "scale": FloatBox(), "x": rows(3)}


class Root(Component):
    def __init__(self):
        super().__init__("root")
        self.total, self.far = Cell(0.0, scope="total"), Cell(1.0, scope="far")

    @api
    def update(self, batch, scale):
        self.total.add(self._sum(batch, scale))
        return self.total.read()

    @api(static=("power",))
    def static(self, x, power=1):
        return self._power(x, power)

    @api
    def note(self, x):
        return self._note(x)

    @api
    def there(self, x):
        return self.far.times(x)

    @graph_fn
    def _sum(self, batch, scale):
        return scale * (ops.sum(batch["x"]) + ops.sum(batch["more"][0]) + batch["more"][1])

    @graph_fn
    def _power(self, x, power):
        return x**power

    @graph_fn(host=True)
    def _note(self, x):
        assert isinstance(x, np.ndarray)
        return x + 1.0


def batch(i):
    return {"x": np.full((4, 3), i, np.float32), "more": (np.full(4, i, np.float32), np.float32(i))}


@every
def test_buffers_are_refilled_right_after_staging(backend):
    executor = built(Root(), SPACES, backend, methods=["update"])
    staged, buffer = [], batch(0)
    for i in range(100):
        buffer["x"][:], buffer["more"][0][:] = i, i
        now = {"x": buffer["x"], "more": (buffer["more"][0], np.float32(i))}
        staged.append(executor.stage("update", now, scale=1.0))
        buffer["x"][:], buffer["more"][0][:] = -1.0, -1.0
    for arguments in staged:
        result = executor.update(*arguments)
    close(result, 17 * sum(range(100)))


@every
def test_staged_arguments_are_used_as_they_are(backend, monkeypatch):
    executor = built(Root(), SPACES, backend, methods=["update"])
    kind = executor.program("update").entry.__globals__.get("array_type", np.ndarray)
    (staged, scale) = arguments = executor.stage("update", batch(2), 2.0)
    leaves = [staged["x"], *staged["more"], scale]
    assert all(type(leaf) in (kind, np.ndarray) for leaf in leaves)
    if backend != "numpy":
        assert not any(isinstance(leaf, np.ndarray) for leaf in leaves)
    close(executor.update(*arguments), 2.0 * 17 * 2)
    close(executor.update(*arguments), 2.0 * 17 * 4)  # a second call may use them too


def test_staged_arguments_are_on_the_device_that_uses_them():
    executor = built(Root(), SPACES, "jax", device={"far": "cpu:2", "total": "cpu:1"})
    (x,) = executor.stage("there", np.ones((2, 3), np.float32))
    assert {d.id for d in x.devices()} == {2}
    close(executor.there(x), np.ones((2, 3)))
    (x,) = executor.stage("note", np.ones((2, 3), np.float32))
    assert isinstance(x, np.ndarray)
    (x,) = executor.stage("static", np.ones((2, 3), np.float32))
    close(executor.static(x, power=2), np.ones((2, 3)))
    nested, scale = executor.stage("update", batch(1), 1.0)
    assert {d.id for d in (*nested["x"].devices(), *scale.devices())} == {0}
    close(executor.update(nested, scale), 17.0)


def test_a_staged_jax_array_is_not_copied_by_the_call():
    executor = built(Root(), SPACES, "jax", methods=["there"])
    (x,) = executor.stage("there", np.ones((2, 3), np.float32))
    seen = []
    run = executor.program("there").runs["run"]
    executor.program("there").entry.__globals__["run"] = lambda *given: (seen.append(given[-1]), run(*given))[1]
    executor.there(x)
    assert seen[0] is x


@every
def test_wrong_arguments(backend):
    executor = built(Root(), SPACES, backend, methods=["update", "static"])
    with pytest.raises(ExecutionError, match="no API method 'updat'"):
        executor.stage("updat", batch(0), 1.0)
    with pytest.raises(ExecutionError, match="wrong arguments to stage"):
        executor.stage("update", batch(0))
    with pytest.raises(ExecutionError, match="wrong arguments to stage"):
        executor.stage("static", np.ones((2, 3), np.float32), power=2)
    with pytest.raises(ExecutionError, match="wrong shape"):
        executor.stage("update", {**batch(0), "x": np.ones((4, 2), np.float32)}, 1.0)
