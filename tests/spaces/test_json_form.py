"""JSON forms; that round trips are exact for any space is a law in test_space.py."""

import json

import numpy as np
import pytest

from rlweave.errors import SpaceError
from rlweave.spaces import BATCH, Dict, Dim, FloatBox, IntBox, Space, TextBox, Tuple


def test_the_form_is_readable():
    assert FloatBox(-1, [1, np.inf], add_batch_rank=True, add_time_rank=8).to_json() == {
        "type": "FloatBox",
        "shape": [2],
        "dtype": "float32",
        "batch": "B",
        "time": "T=8",
        "low": -1.0,
        "high": [1.0, "inf"],
    }


@pytest.mark.parametrize(
    "space",
    [
        FloatBox(0.1, 0.3),  # no short decimal is a float32
        FloatBox(-np.inf, 1e300, dtype="float64"),
        FloatBox(shape=(BATCH, 3, Dim(("T", "B"), 2, 1))),
        FloatBox(add_batch_rank=Dim(("T", "B")), add_time_rank=Dim(("T",), offset=1)),
        IntBox(dtype="int64"),
        IntBox(-(2**63), [2**63, 5], dtype="int64"),
        IntBox(0, 256, shape=(4, 4, 3), dtype="uint8", layout="channels_first"),
        TextBox(),
        Dict(a=Dict(), b=Tuple()),
    ],
    ids=repr,
)
def test_round_trip(space):
    assert Space.from_json(json.loads(json.dumps(space.to_json(), allow_nan=False))) == space


def test_what_a_person_writes():
    assert Space.from_json({"type": "IntBox", "high": 5, "batch": True}) == IntBox(5, add_batch_rank=True)
    assert Space.from_json({"type": "FloatBox", "shape": [4], "time": 8}) == FloatBox(shape=(4,), add_time_rank=8)
    assert Space.from_json({"type": "FloatBox", "low": [0, "-inf"]}) == FloatBox([0, -np.inf])


def test_the_order_of_keys_does_not_matter():
    space = Dict(a=IntBox(2), b=FloatBox())
    form = space.to_json()
    form["spaces"] = dict(reversed(form["spaces"].items()))
    assert Space.from_json(form) == space


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ({"type": "FloatBoks"}, "did you mean 'FloatBox'"),
        ({"type": "FloatBox", "shpe": [3]}, "did you mean 'shape'"),
        ({"shape": [3]}, "object with a type"),
        ([1], "object with a type"),
        ({"type": "Dict"}, "malformed"),
        ({"type": "Dict", "spaces": [1]}, "malformed"),
        ({"type": "Tuple", "spaces": [1]}, "object with a type"),
        ({"type": "FloatBox", "low": "much"}, "malformed"),
        ({"type": "FloatBox", "batch": "X"}, "symbol 'X'"),
        ({"type": "BoolBox", "dtype": "int32"}, "BoolBox cannot have this dtype"),
        ({"type": "FloatBox", "shape": 3.5}, "malformed"),
    ],
)
def test_errors_teach(form, message):
    with pytest.raises(SpaceError, match=message):
        Space.from_json(form)


def test_from_json_of_a_class_gives_that_class():
    with pytest.raises(SpaceError, match="Expected a FloatBox"):
        FloatBox.from_json(IntBox(2).to_json())
