"""Law 19 of the IR: portable random numbers are equal on all backends, eager and compiled, and in bodies."""

import numpy as np
import pytest

from rlweave import graph, ops
from rlweave.graph import Component, api, graph_fn
from rlweave.spaces import BoolBox, FloatBox
from tests.graph.toys import BACKENDS, SCALAR, built, close, rows


class _Drawing(Component):
    @api
    def kinds(self, logits):
        return self._kinds(logits)

    @graph_fn
    def _kinds(self, logits):
        return {
            "uniform": ops.random.uniform((3, 2)),
            "normal": ops.random.normal((5,)),
            "randint": ops.random.randint((4,), 0, 10),
            "bernoulli": ops.random.bernoulli(ops.sigmoid(logits)),
            "categorical": ops.random.categorical(logits),
            "permutation": ops.random.permutation(7),
            "gumbel": ops.random.gumbel((2,)),
        }

    @api
    def scanned(self):
        return graph.scan(lambda carry, _: (carry, self._uniform()), (), None, 5)[1]

    @api
    def nested(self):
        def outer(carry, _):
            ys = graph.scan(lambda c, __: (c, self._uniform()), (), None, 2)[1]
            return carry, (ys, self._uniform())

        return graph.scan(outer, (), None, 3)[1]

    @api
    def chosen(self, flag):
        first = graph.cond(flag, lambda: self._sum(self._uniform(), self._uniform()), self._uniform)
        return first, self._uniform()

    @api
    def until(self):
        """Draws until a number is above .8; the number of draws is a random one."""
        count, _ = graph.while_(
            lambda carry: carry[1] < 0.8, lambda carry: (carry[0] + 1, self._first(self._uniform())), (0, 0.0)
        )
        return count, self._uniform()

    @graph_fn
    def _uniform(self):
        return ops.random.uniform((2,))

    @graph_fn
    def _sum(self, a, b):
        return a + b

    @graph_fn
    def _first(self, a):
        return a[0]


_METHODS = ("kinds", "scanned", "nested", "chosen", "until")


def _draws(backend, mode="compiled", seed=3):
    executor = built(
        _Drawing("drawing"), {"logits": rows(4), "flag": BoolBox()}, backend, seed=seed, rng="portable", mode=mode
    )
    logits = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    found = []
    for _ in range(2):
        found += [executor.kinds(logits), executor.scanned(), executor.nested()]
        found += [executor.chosen(True), executor.chosen(False), executor.until()]
    return found, executor.state_dict()["random"]


def _flat(structure):
    if isinstance(structure, dict):
        return [leaf for key in sorted(structure) for leaf in _flat(structure[key])]
    if isinstance(structure, tuple | list):
        return [leaf for item in structure for leaf in _flat(item)]
    return [structure]


@pytest.mark.parametrize("mode", ["compiled", "eager"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_law_19_portable_numbers_agree_on_all_backends_eager_and_compiled_and_in_bodies(backend, mode):
    reference, state = _draws("numpy")
    draws, other_state = _draws(backend, mode)
    for expected, found in zip(_flat(reference), _flat(draws), strict=True):
        assert found.dtype == expected.dtype
        if expected.dtype.kind in "ib":
            assert np.array_equal(found, expected)
        else:
            close(found, expected, rtol=1e-5, atol=1e-6)
    assert np.array_equal(state, other_state)


@pytest.mark.parametrize("backend", BACKENDS)
def test_law_19_host_and_device_draws_are_the_same_on_every_backend(backend):
    class Root(Component):
        @api
        def draw(self):
            return self._host(), self._chip(), self._host()

        @graph_fn(host=True)
        def _host(self):
            return ops.random.uniform((3,))

        @graph_fn
        def _chip(self):
            return ops.random.uniform((3,))

    expected = built(Root("root"), {}, "numpy", rng="portable").draw()
    for one, other in zip(expected, built(Root("root"), {}, backend, rng="portable").draw(), strict=True):
        close(one, other)


@pytest.mark.parametrize("rng", ["fast", "portable"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_random_state_is_saved_and_restored(backend, rng):
    class Root(Component):
        @graph_fn
        def draw(self, x):
            return x + ops.random.normal((4,))

    one, two = (built(Root("root"), {"x": SCALAR}, backend, rng=rng, seed=seed) for seed in (1, 2))
    one.draw(0.0)
    assert not np.allclose(one.draw(0.0), two.draw(0.0))
    two.load_state_dict(one.state_dict())
    for _ in range(2):
        close(one.draw(0.0), two.draw(0.0))
    assert not np.allclose(one.draw(0.0), one.draw(0.0))


@pytest.mark.parametrize("rng", ["fast", "portable"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_uniform_numbers_look_uniform(backend, rng):
    class Root(Component):
        @graph_fn
        def draw(self):
            return ops.random.uniform((2000,))

    draw = built(Root("root"), {}, backend, rng=rng).draw()
    assert 0 <= draw.min() < 0.01
    assert 0.99 < draw.max() < 1
    assert abs(draw.mean() - 0.5) < 0.03


def test_spaces_of_draws_follow_the_batch():
    class Root(Component):
        @graph_fn
        def act(self, logits):
            return ops.random.categorical(logits)

    executor = built(Root("root"), {"logits": FloatBox(shape=(3,), add_batch_rank=True, add_time_rank=True)})
    assert (
        executor.graphs[("act", ())].outputs.space.axes == executor.graphs[("act", ())].inputs["logits"].space.axes[:2]
    )
