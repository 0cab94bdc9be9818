"""Eager and compiled, torch and JAX: the same numbers for what one of them once did differently."""

import numpy as np
import pytest

from rlweave import graph, ops
from rlweave.errors import BuildError, ExecutionError
from rlweave.graph import Component, api, build, graph_fn
from rlweave.spaces import Dict, FloatBox, IntBox

X = {"x": FloatBox(shape=(3,), add_batch_rank=True)}
ROWS = np.arange(6, dtype=np.float32).reshape(2, 3) / 4


class Part(Component):
    def __init__(self, start, scope="part"):
        super().__init__(scope)
        self.start = start

    def create_variables(self):
        self.v = self.variable("v", (), self.start)

    @graph_fn
    def loss(self, x):
        return ops.mean(self.v.value * x**2)


class Root(Component):
    def __init__(self):
        super().__init__("root")
        self.parts = [Part(1.0), Part(2.0)]
        self.by_name = {"third": Part(3.0, "third")}
        self.frozen = Part(3.0).copy("frozen", trainable=False)

    def create_variables(self):
        self.calls = self.variable("calls", (), 0, dtype="int32")

    @graph_fn
    def _total(self, x):
        self.calls.assign(self.calls.value + 1)
        return ops.sum(x**2)

    @api
    def by_input(self, x):
        return graph.gradients(self._total(x), x)

    @api
    def counted_twice(self, x):
        return graph.gradients(self._total(x) + self._total(x), x)

    @api
    def per_row(self, x):
        part = self.parts[0]
        return graph.vmap(lambda row: graph.gradients(part.loss(row), part.variables()))(x)

    @api
    def by_frozen(self, x):
        return graph.gradients(self.frozen.loss(x), self.frozen.variables(trainable=None))

    @api
    def substituted(self, x):
        zeros = {}
        for part in (*self.parts, *self.by_name.values()):
            zeros.update({path: value * 0.0 for path, value in part.variables().read().items()})
        view = graph.substitute(self, zeros)
        return view.parts[0].loss(x), view.parts[1].loss(x), view.by_name["third"].loss(x)


@pytest.mark.parametrize("mode", ["compiled", "eager"])
@pytest.mark.parametrize("backend", ["torch", "jax", "tensorflow"])
def test_gradients_and_substitution(backend, mode):
    executor = build(Root(), X, backend=backend, mode=mode)
    np.testing.assert_allclose(executor.by_input(ROWS), 2 * ROWS)
    np.testing.assert_allclose(executor.counted_twice(ROWS), 4 * ROWS)
    assert executor.get_weights()["root/calls"] == 3
    np.testing.assert_allclose(executor.per_row(ROWS)["root/part-0/v"], np.mean(ROWS**2, axis=1), rtol=1e-6)
    np.testing.assert_allclose(executor.by_frozen(ROWS)["root/frozen/v"], np.mean(ROWS**2), rtol=1e-6)
    assert [float(value) for value in executor.substituted(ROWS)] == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("mode", ["compiled", "eager"])
def test_static_arguments_of_equal_value_and_other_type_are_other_variants(mode):
    class Typed(Component):
        @api(static=("n",))
        def go(self, x, n):
            return self._go(x, n)

        @graph_fn
        def _go(self, x, n):
            return x * (3.0 if isinstance(n, bool) else 2.0 if isinstance(n, float) else 1.0)

    executor = build(Typed(), X, backend="numpy", mode=mode)
    for n, factor in ((1, 1.0), (1.0, 2.0), (True, 3.0)):
        np.testing.assert_allclose(executor.go(ROWS, n=n), factor * ROWS)


@pytest.mark.parametrize("backend", ["numpy", "torch", "jax", "tensorflow"])
def test_private_attributes_are_part_of_what_is_cached(backend):
    class Switch(Component):
        def __init__(self):
            super().__init__("switch")
            self._on = False

        def create_variables(self):
            self.v = self.variable("v", (), 0.0)

        @graph_fn
        def call(self, x):
            if self._on:
                self.v.assign(ops.sum(x))
            return x

    component = Switch()
    build(component, X, backend=backend).call(ROWS)
    component._on = True
    executor = build(component, X, backend=backend)
    executor.call(ROWS)
    assert executor.get_weights()["switch/v"] == ROWS.sum()


@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_changing_an_argument_or_a_value_in_place_is_refused(backend):
    class Argument(Component):
        @graph_fn
        def call(self, x):
            y = x
            y += 1.0
            return y

    class Value(Component):
        def create_variables(self):
            self.v = self.variable("v", (), 1.0)

        @graph_fn
        def call(self, x):
            y = self.v.value
            y *= 2.0
            return x * y

    for component in (Argument(), Value()):
        with pytest.raises(BuildError, match="in place|read-only"):
            build(component, X, backend=backend)


@pytest.mark.parametrize("mode", ["compiled", "eager"])
@pytest.mark.parametrize("backend", ["numpy", "torch", "jax", "tensorflow"])
def test_arguments_of_different_batch_sizes_are_refused(backend, mode):
    class Pair(Component):
        @graph_fn
        def call(self, pair):
            return pair["a"] - pair["b"]

    space = Dict(a=FloatBox(), b=FloatBox()).with_batch_rank()
    executor = build(Pair(), {"pair": space}, backend=backend, mode=mode)
    with pytest.raises(ExecutionError, match="differ in their batch size"):
        executor.call({"a": np.zeros(4, np.float32), "b": np.zeros(1, np.float32)})


def test_numbers_that_do_not_fit_are_refused():
    class Same(Component):
        @graph_fn
        def call(self, x):
            return x + 1

    executor = build(Same(), {"x": IntBox(add_batch_rank=True)}, backend="jax")
    with pytest.raises(ExecutionError, match="does not fit into int32"):
        executor.call(np.array([2**40]))
    with pytest.raises(BuildError, match="the jax backend computes in 32 bits"):
        build(Same(), {"x": IntBox(dtype="int64")}, backend="jax")
    assert build(Same(), {"x": IntBox(dtype="int64")}, backend="torch").call(2**40) == 2**40 + 1


@pytest.mark.parametrize("mode", ["compiled", "eager"])
@pytest.mark.parametrize("backend", ["numpy", "torch", "jax", "tensorflow"])
def test_a_scan_over_nothing(backend, mode):
    class Empty(Component):
        @api
        def call(self, x):
            return graph.scan(lambda carry, row: (carry + row, carry), 1.0, x)

    executor = build(Empty(), {"x": FloatBox(add_time_rank=True)}, backend=backend, mode=mode)
    last, rows = executor.call(np.zeros(0, np.float32))
    assert last == 1.0
    assert rows.shape == (0,)


def test_arrays_with_negative_strides():
    class Same(Component):
        @graph_fn
        def call(self, x):
            return x + 1.0

    executor = build(Same(), X, backend="torch")
    np.testing.assert_array_equal(executor.call(ROWS[:, ::-1]), ROWS[:, ::-1] + 1.0)
