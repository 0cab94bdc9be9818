"""What an instance offers of the API methods that its class declares."""

import numpy as np
import pytest

from rlweave.errors import BuildError
from rlweave.graph import Component, api, build
from rlweave.spaces import FloatBox
from rlweave.testing import ComponentTest


class Scale(Component):
    """Has a method with an offset, or one without."""

    def __init__(self, with_offset):
        super().__init__("scale")
        self.with_offset = with_offset

    def offers(self, method):
        return (method == "shifted") == self.with_offset

    @api
    def call(self, x):
        return x * 2.0

    @api
    def shifted(self, x, offset):
        return x * 2.0 + offset


def test_a_build_leaves_out_what_is_not_offered():
    space = FloatBox(add_batch_rank=True)
    x = np.ones(2, np.float32)
    plain = build(Scale(False), {"x": space})  # no space for an offset that nobody passes
    np.testing.assert_array_equal(plain.call(x), [2.0, 2.0])
    assert {name for name, _ in plain.graphs} == {"call"}
    with pytest.raises(BuildError, match="no space for input 'offset'"):
        build(Scale(True), {"x": space})
    shifted = build(Scale(True), {"x": space, "offset": space})
    assert {name for name, _ in shifted.graphs} == {"shifted"}
    np.testing.assert_array_equal(shifted.shifted(x, x), [3.0, 3.0])


def test_a_component_test_does_not_miss_it():
    assert ComponentTest(Scale(False), {"x": FloatBox(add_batch_rank=True)}).missing == {}


def test_by_default_everything_is_offered():
    assert Component("any").offers("call")
