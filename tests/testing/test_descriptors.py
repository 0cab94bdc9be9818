"""Descriptors: sampled inputs, the methods of a round, and which classes need one."""

import sys
import types
from abc import abstractmethod

import numpy as np
import pytest

from rlweave.errors import SpecError
from rlweave.graph import Component, api, graph_fn
from rlweave.spaces import BoolBox, Dict, FloatBox, IntBox, Tuple
from rlweave.testing import Descriptor, Registry, components_of
from rlweave.testing.descriptors import TIME_STEPS, sample


class Doubler(Component):
    @graph_fn
    def call(self, inputs):
        return inputs * 2

    @graph_fn
    def shifted(self, inputs, shift=1.0):
        return inputs + shift

    @api(static=("times",))
    def repeated(self, inputs, times):
        for _ in range(times):
            inputs = self.call(inputs)
        return inputs


ROWS = FloatBox(shape=(2,), add_batch_rank=True)


def test_samples_have_the_ranks_of_each_leaf():
    space = Dict(
        sequence=FloatBox(shape=(2,), add_batch_rank=True, add_time_rank=True),
        rows=Tuple(IntBox(3, add_batch_rank=True), BoolBox(add_batch_rank=4)),
        scalar=FloatBox(),
    )
    value = sample(space, 5, np.random.default_rng(0))
    assert value["sequence"].shape == (TIME_STEPS, 5, 2)
    assert value["rows"][0].shape == (5,)
    assert value["rows"][1].shape == (4,)
    assert value["scalar"].shape == ()
    assert value["scalar"].dtype == np.float32
    assert set(np.unique(value["rows"][0])) <= {0, 1, 2}


def test_a_round_has_the_methods_whose_inputs_are_known():
    root = Doubler("doubler")
    assert Descriptor("a", Doubler, lambda: root, {"inputs": ROWS}).methods(root) == ("call", "shifted")
    with_static = Descriptor("b", Doubler, lambda: root, {"inputs": ROWS}, static={"repeated": {"times": 2}})
    assert with_static.methods(root) == ("call", "shifted", "repeated")
    ordered = Descriptor("c", Doubler, lambda: root, {"inputs": ROWS}, calls=("shifted", "call", "shifted"))
    assert ordered.methods(root) == ("shifted", "call", "shifted")
    with pytest.raises(SpecError, match="shifted"):
        Descriptor("d", Doubler, lambda: root, calls=("shiftet",)).methods(root)


def test_inputs_may_be_given_for_one_method_only():
    root = Doubler("doubler")
    descriptor = Descriptor("a", Doubler, lambda: root, {"inputs": ROWS, "shifted.shift": FloatBox()})
    assert list(descriptor.inputs(root, "call")) == ["inputs"]
    assert list(descriptor.inputs(root, "shifted")) == ["inputs", "shift"]


def test_sampling_is_seeded_and_can_be_corrected():
    root = Doubler("doubler")
    descriptor = Descriptor("a", Doubler, lambda: root, {"inputs": ROWS})
    first, again = (descriptor.sample(root, "call", 3)["inputs"] for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, descriptor.sample(root, "call", 3, seed=1)["inputs"])
    zeroed = Descriptor(
        "b", Doubler, lambda: root, {"inputs": ROWS}, adapt=lambda method, given: {"inputs": 0 * given["inputs"]}
    )
    assert not zeroed.sample(root, "call", 3)["inputs"].any()


def test_a_registry_knows_what_it_does_not_cover():
    registry = Registry()
    registry.add(Descriptor("doubler", Doubler, Doubler))
    assert len(registry) == 1
    assert registry["doubler"].component is Doubler
    assert registry.uncovered([Doubler, Component]) == [Component]
    with pytest.raises(SpecError, match="two descriptors of one name"):
        registry.add(Descriptor("doubler", Doubler, Doubler))
    with pytest.raises(SpecError, match="doubler"):
        registry["dubler"]


def test_components_of_a_package_are_its_own_public_and_complete_ones(monkeypatch):
    package = types.ModuleType("some_components")
    package.__path__ = []

    class Visible(Component):
        @graph_fn
        def call(self, x):
            return x

    class Abstract(Component):
        @graph_fn
        def call(self, x):
            return self.inner(x)

        @abstractmethod
        def inner(self, x): ...

    class Base(Component):
        """Without an API method."""

    class _Hidden(Visible):
        pass

    for cls in (Visible, Abstract, Base, _Hidden):
        cls.__module__ = "some_components"
        setattr(package, cls.__name__, cls)
    package.Doubler = Doubler  # imported from elsewhere
    monkeypatch.setitem(sys.modules, "some_components", package)
    assert components_of("some_components") == [Visible]


def test_the_library_has_components():
    names = {cls.__name__ for cls in components_of("rlweave.components")}
    assert {"Dense", "Policy", "PrioritizedReplay", "Adam", "DQNLoss", "LSTM"} <= names
    assert not {"Optimizer", "NativeModule"} & names
