"""Inputs and variables without effect are found; what has one, or is declared to have none, is not."""

import numpy as np
import pytest

from rlweave import ops
from rlweave.graph import Component, api, graph_fn
from rlweave.spaces import BoolBox, Dict, FloatBox, IntBox
from rlweave.testing import Cause, Descriptor, check

ROWS = FloatBox(shape=(3,), add_batch_rank=True)
NESTED = {"observations": Dict(x=FloatBox(shape=(2,)), flag=BoolBox(), kind=IntBox(3)).with_batch_rank()}


class ReadsAll(Component):
    @graph_fn
    def call(self, observations):
        flag = ops.astype(observations["flag"], "float32")
        return ops.sum(observations["x"], -1) * (1.0 + flag) + ops.astype(observations["kind"], "float32")


class SkipsOneLeaf(Component):
    @api
    def call(self, observations):
        return self._sum(observations)

    @graph_fn
    def _sum(self, observations):
        return ops.sum(observations["x"], -1) + ops.astype(observations["kind"], "float32")


class SkipsLast(Component):
    @graph_fn
    def call(self, inputs):
        return ops.sum(inputs[..., :-1], -1)


class SkipsWeights(Component):
    @api
    def call(self, inputs, weights):
        return self._mean(inputs)

    @graph_fn
    def _mean(self, inputs):
        return ops.mean(inputs, -1)


class CancelsWeights(Component):
    @graph_fn
    def call(self, inputs, weights):
        return (inputs + weights) - weights


class InterfaceArgument(Component):
    """The mode of a distribution does not depend on its deviation."""

    @graph_fn
    def mode(self, inputs, weights):
        return inputs

    @graph_fn
    def scaled(self, inputs, weights):
        return inputs * weights


class DeadUnits(Component):
    """A feature that matters only where a unit is active, and behind a last layer that begins with zeros."""

    def create_variables(self, inputs):
        self.kernel = self.variable("kernel", (3, 2), 0.0)

    @graph_fn
    def call(self, inputs):
        return ops.matmul(ops.maximum(inputs - 0.5, 0.0), self.kernel.value)


class OnlyAtTheEnd(Component):
    """`rewards` matter in terminal rows only, `discounts` in the others."""

    @graph_fn
    def call(self, rewards, discounts, terminated):
        return ops.where(terminated, rewards, discounts)


WEIGHTED = {"inputs": ROWS, "weights": ROWS}
FLOAT = FloatBox(add_batch_rank=True)
ENDS = {"rewards": FLOAT, "discounts": FLOAT, "terminated": BoolBox(add_batch_rank=True)}


@pytest.mark.parametrize(
    ("component", "spaces", "place", "name"),
    [
        (SkipsOneLeaf, NESTED, "skips-one-leaf._sum, ", "'observations/flag'"),
        (SkipsLast, {"inputs": ROWS}, "skips-last.call, ", "feature 2 of 'inputs'"),
        (SkipsWeights, WEIGHTED, "skips-weights.call, ", "'weights'"),
        (CancelsWeights, WEIGHTED, "cancels-weights.call, ", "'weights'"),
    ],
)
def test_an_input_without_effect_is_found(component, spaces, place, name):
    (finding,) = check(component, spaces)
    assert finding.cause is Cause.UNUSED_INPUT
    assert finding.where.startswith(place + "checks/test_inputs.py:")
    assert name in finding.seen


@pytest.mark.parametrize(
    ("component", "spaces"),
    [(ReadsAll, NESTED), (InterfaceArgument, WEIGHTED), (DeadUnits, {"inputs": ROWS}), (OnlyAtTheEnd, ENDS)],
)
def test_an_input_that_matters_somewhere_is_none(component, spaces):
    assert check(component, spaces).ok


def test_an_input_is_declared_unused_where_an_interface_asks_for_it():
    def declared(component, *unused):
        return Descriptor("declared", component, component, WEIGHTED, unused={"call": unused})

    assert check(declared(SkipsWeights, "weights")).ok
    (finding,) = check(declared(SkipsWeights, "weights", "inputs"))
    assert finding.cause is Cause.UNNEEDED_DECLARATION
    assert "'inputs'" in finding.seen


class Layer(Component):
    def create_variables(self, inputs):
        self.kernel = self.variable("kernel", (3, 2), "lecun_normal")
        self.bias = self.variable("bias", (2,), 0.0)
        self.calls = self.variable("calls", (), 0, trainable=False, dtype="int32")

    @graph_fn
    def call(self, inputs):
        self.calls.assign(self.calls.value + 1)
        return self.body(inputs)

    def body(self, inputs):
        return ops.tanh(ops.matmul(inputs, self.kernel.value) + self.bias.value)


class ForgetsTheBias(Layer):
    def body(self, inputs):
        return ops.tanh(ops.matmul(inputs, self.kernel.value))


class CancelsTheBias(Layer):
    def body(self, inputs):
        outputs = ops.matmul(inputs, self.kernel.value) + self.bias.value
        return ops.tanh(outputs - self.bias.value)


class KeepsMeanForNothing(Component):
    def create_variables(self, inputs):
        self.mean = self.variable("mean", inputs.shape, 0.0, trainable=False)

    @api
    def call(self, inputs):
        self._update(inputs)
        return self._double(inputs)

    @graph_fn(mixes_batch=True)
    def _update(self, inputs):
        self.mean.assign(0.9 * self.mean.value + 0.1 * ops.mean(inputs, 0))

    @graph_fn
    def _double(self, inputs):
        return 2.0 * inputs


class KeptForTheNextCall(Component):
    """What is written counts in the next call only."""

    def create_variables(self, inputs):
        self.last = self.variable("last", (), 0.0, trainable=False)

    @graph_fn(mixes_batch=True)
    def call(self, inputs):
        before = self.last.value
        self.last.assign(ops.mean(inputs))
        return inputs + before


@pytest.mark.parametrize(
    ("component", "place", "path"),
    [
        (ForgetsTheBias, "forgets-the-bias/bias, ", "forgets-the-bias/bias"),
        (CancelsTheBias, "cancels-the-bias.call, ", "cancels-the-bias/bias"),
        (KeepsMeanForNothing, "keeps-mean-for-nothing._update, ", "keeps-mean-for-nothing/mean"),
    ],
)
def test_a_variable_without_effect_is_found(component, place, path):
    found = {finding.cause: finding for finding in check(component, {"inputs": ROWS})}
    finding = found[Cause.UNUSED_VARIABLE]
    assert finding.where.startswith(place + "checks/test_inputs.py:")
    assert path in finding.seen


@pytest.mark.parametrize("component", [Layer, KeptForTheNextCall])
def test_a_variable_that_matters_now_or_later_is_none(component):
    assert check(component, {"inputs": ROWS}).ok


def test_a_variable_of_a_method_that_is_not_called_is_none():
    class TwoHeads(Layer):
        def body(self, inputs):
            return ops.matmul(inputs, self.kernel.value)

        @graph_fn
        def other(self, others):
            return others + self.bias.value

    spaces = {"inputs": ROWS, "others": FloatBox(shape=(2,), add_batch_rank=True)}
    left_out = Descriptor("left-out", TwoHeads, TwoHeads, spaces, calls=("call",))
    assert check(left_out).ok
    assert check(TwoHeads, spaces).ok
    assert np.size(left_out.sample(TwoHeads(), "call", 2)["inputs"]) == 6


class Doubles(Component):
    @graph_fn
    def call(self, inputs):
        return inputs * 2.0


@pytest.mark.parametrize(("low", "high"), [(2, 2), ([0, 1, 5], [9, 1, 5]), (np.zeros(3), [0, 0, 1])], ids=str)
def test_a_feature_with_one_value_only_is_none_without_effect(low, high):
    report = check(Doubles, {"inputs": FloatBox(low, high, shape=(3,), add_batch_rank=True)})
    assert report.ok, str(report)
