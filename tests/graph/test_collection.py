"""The garbage collector rests while a graph is built, and only then."""

import gc

import pytest

from rlweave.graph import Component, api, build, graph_fn
from rlweave.graph.current import collection_paused
from rlweave.spaces import FloatBox


@pytest.fixture(autouse=True)
def collector_on():
    gc.enable()
    yield
    gc.enable()


def test_it_rests_inside_and_goes_on_after():
    with collection_paused():
        assert not gc.isenabled()
        with collection_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()  # the outer pause ends it
    assert gc.isenabled()


def test_it_goes_on_after_an_error():
    with pytest.raises(ZeroDivisionError), collection_paused():
        raise ZeroDivisionError
    assert gc.isenabled()


def test_it_stays_off_where_it_was_off():
    gc.disable()
    with collection_paused():
        pass
    assert not gc.isenabled()


def test_a_build_and_a_first_call_pause_it():
    seen = []

    class Root(Component):
        @api
        def call(self, x):
            seen.append(gc.isenabled())
            return self._same(x)

        @graph_fn
        def _same(self, x):
            return x * 1.0

    executor = build(Root("root"), {"x": FloatBox(add_batch_rank=True)})
    assert seen == [False]
    assert gc.isenabled()
    executor.call([1.0])
    assert gc.isenabled()
