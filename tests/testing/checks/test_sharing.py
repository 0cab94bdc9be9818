"""Results that change later, and arguments that are kept."""

import numpy as np
import pytest

from rlweave.graph import Component, graph_fn
from rlweave.spaces import FloatBox
from rlweave.testing import Cause, Descriptor, check

ROWS = {"inputs": FloatBox(shape=(3,), add_batch_rank=True)}


class OnHost(Component):
    def __init__(self):
        super().__init__("on-host", device="host")
        self.buffers = {}

    @graph_fn(host=True, differentiable=False)
    def call(self, inputs):
        return self.made(inputs)

    def made(self, inputs):
        return inputs * np.float32(2.0)


class InOneBuffer(OnHost):
    def made(self, inputs):
        buffer = self.buffers.setdefault(inputs.shape, np.empty_like(inputs))
        return np.multiply(inputs, np.float32(2.0), out=buffer)


class Delay(Component):
    """Gives what was remembered."""

    def __init__(self):
        super().__init__("delay", device="host")
        self.kept = {}

    def create_variables(self, inputs):
        self.last = self.variable("last", (4, *inputs.shape), 0.0, trainable=False)

    @graph_fn(host=True, differentiable=False, spaces="nothing")
    def remember(self, inputs):
        self.last.assign(inputs)

    @graph_fn(host=True, differentiable=False)
    def recall(self):
        return self.recalled() + np.float32(1.0)

    def recalled(self):
        return np.asarray(self.last.value)

    def nothing(self, inputs):
        return None


class DelayOfTheArrayItself(Delay):
    @graph_fn(host=True, differentiable=False, spaces="nothing")
    def remember(self, inputs):
        self.kept["last"] = inputs

    def recalled(self):
        return self.kept.get("last", np.zeros((4, 3), np.float32))


def delay(component):
    spaces = {"inputs": FloatBox(shape=(3,), add_batch_rank=4)}
    return Descriptor(component.__name__, component, component, spaces, calls=("remember", "recall"), batch_sizes=(4,))


@pytest.mark.parametrize("target", [(OnHost, ROWS), (delay(Delay), None)])
def test_what_is_copied_passes(target):
    report = check(*target)
    assert report.ok, str(report)


def test_a_result_that_the_next_call_overwrites_is_found():
    report = check(InOneBuffer, ROWS)
    (finding,) = report
    assert finding.cause is Cause.SHARED_MEMORY
    assert finding.where.startswith("on-host.call, checks/test_sharing.py:")


def test_an_argument_that_is_kept_is_found():
    report = check(delay(DelayOfTheArrayItself))
    (finding,) = (f for f in report if f.cause is Cause.SHARED_MEMORY)
    assert finding.where.startswith("delay.recall, ")
    assert "got other numbers after each call" in finding.seen
