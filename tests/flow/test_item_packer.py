"""Small items as bytes: what comes out is the reader's own, and what bytes cannot hold is left to Ray."""

import pickle
from collections import namedtuple

import numpy as np
import pytest

pytest.importorskip("ray")

from rlweave.flow import SampleBatch
from rlweave.flow.ray_host import SMALL_BYTES, ItemPacker

Pair = namedtuple("Pair", "first second")


def items_of(*payloads):
    return [(payload, 3, 7, ()) for payload in payloads]


def read_only(values):
    array = np.array(values)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6.0).reshape(2, 3),
        read_only([1, 2, 3]),
        np.arange(12).reshape(3, 4)[:, ::2],
        np.asfortranarray(np.arange(6).reshape(2, 3)),
        np.frombuffer(b"abcdefgh", np.uint8),
        np.broadcast_to(np.float32(3.0), (2, 2)),
        np.array(5),
        np.array([], np.int64),
        np.array(["a", None], object),
    ],
    ids=["plain", "read-only", "strided", "fortran", "of bytes", "broadcast", "scalar", "empty", "objects"],
)
def test_arrays_come_out_equal_and_writable_and_go_in_unchanged(array):
    writable, before = array.flags.writeable, array.copy()
    payload = {"a": array, "inner": Pair([array], SampleBatch({"x": array.reshape(-1)}))}
    data = ItemPacker().packed(items_of(payload))
    assert type(data) is bytes
    assert payload["a"] is array
    assert array.flags.writeable == writable
    ((found, steps, version, episodes),) = pickle.loads(data)  # noqa: S301
    assert (steps, version, episodes) == (3, 7, ())
    assert type(found["inner"]) is Pair
    for own in (found["a"], found["inner"].first[0], found["inner"].second["x"].reshape(array.shape)):
        assert own.dtype == array.dtype
        np.testing.assert_array_equal(own, before)
        assert own.flags.writeable
    found["a"][...] = np.zeros((), array.dtype)
    np.testing.assert_array_equal(array, before)


def test_large_items_are_left_to_ray_from_then_on():
    packer = ItemPacker()
    small, large = items_of(np.zeros(10)), items_of(np.zeros(SMALL_BYTES))
    assert type(packer.packed(small)) is bytes
    assert packer.packed(large) is large
    assert packer.packed(small) is small


class Unpicklable:
    def __reduce__(self):
        raise TypeError("stays here")


def test_what_bytes_cannot_hold_is_left_to_ray():
    packer = ItemPacker()
    items = items_of({"a": np.zeros(3), "b": Unpicklable()})
    assert packer.packed(items) is items
    assert packer.packed(items_of(1)) == items_of(1)


def test_references_are_left_to_ray_which_counts_them(ray_engine):
    reference = ray_engine.put(np.zeros(3))
    items = items_of({"a": reference})
    assert ItemPacker().packed(items) is items


class Worker:
    """Gives one and the same read-only array, small at first and then large."""

    def __init__(self, sizes):
        self.sizes, self.made = sizes, 0

    def next_items(self):
        array = read_only(np.full(self.sizes[self.made], self.made))
        self.made += 1
        return items_of({"a": array})


def test_items_are_the_drivers_own_whichever_way_they_come(ray_engine):
    sizes = [3, 30, SMALL_BYTES, 3]
    (actor,) = ray_engine.create_actors([lambda: Worker(sizes)])
    try:
        for number, size in enumerate(sizes):
            ((payload, *rest),) = ray_engine.call(actor, "next_items").result()
            assert rest == [3, 7, ()]
            np.testing.assert_array_equal(payload["a"], np.full(size, number))
            assert payload["a"].flags.writeable
        with pytest.raises(IndexError):
            ray_engine.call(actor, "next_items").result()
    finally:
        ray_engine.kill([actor])
