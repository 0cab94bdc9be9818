"""The codec of checkpoints: what comes back is what went in, and what is declared is kept."""

import copy
import json
from collections import deque
from typing import Any

import numpy as np
import pytest

from rlweave.errors import CheckpointError
from rlweave.flow import ABSORBED, END, Counters, Envelope, Every, Gradients, ItemReference, SampleBatch, TrainStats
from rlweave.flow.codec import decode, encode, load_state, state_of
from rlweave.flow.counters import LagHistogram
from rlweave.flow.envelope import AbsorbedAt, RoundMark
from rlweave.flow.protocols import Episode

VALUES: list[Any] = [
    None,
    [1, 2.5, "x", True],
    (1, (2, [3])),
    deque([1, 2, 3], maxlen=5),
    {"a": {"__kind__": "tuple", "state": [1]}},
    ABSORBED,
    END,
    AbsorbedAt(2),
    Episode(1.5, 3, "left", (("score", 2.0),)),
    Envelope([1], "source/0", 7, 3, (("source/0", 7),), 1, RoundMark("gather_sync", 2, True), (1, 2)),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_what_comes_back_is_what_went_in(value: Any) -> None:
    found = decode(json.loads(json.dumps(encode(value, "queue"))))
    assert found == value
    assert type(found) is type(value)
    assert not isinstance(value, deque) or found.maxlen == value.maxlen


def test_items_come_back_with_their_arrays() -> None:
    batch = SampleBatch({"rewards": np.arange(3.0)}, env_steps=7)
    items = [batch, ItemReference.to(batch), TrainStats({"loss": np.float32(0.5)}, 4, priorities=(np.arange(2), [1.0]))]
    found, reference, stats = decode(encode(items, "queue"))
    assert found.num_steps == reference.fetch().num_steps == 7
    assert np.array_equal(found["rewards"], batch["rewards"])
    assert stats.metrics == {"loss": 0.5}
    assert stats.priorities[1] == [1.0]
    gradients = decode(encode(Gradients({"w": np.ones(2)}, 3, {"loss": 1.0}), "queue"))
    assert gradients.num_steps == 3


class Owner:
    def __init__(self) -> None:
        self._kept, self.total = [Envelope(1, "a", 0)], np.zeros(2)
        self.every, self.lags = [Every(3), Every(5)], LagHistogram()


def test_declared_attributes_are_kept_and_objects_with_a_state_keep_theirs() -> None:
    names, owner, other = ("_kept", "total", "every", "lags"), Owner(), Owner()
    owner._kept.append(Envelope(2, "b", 1))
    owner.every[1](11)
    owner.lags.add(4)
    state = state_of(owner, names, "mine")
    owner.total += 1.0  # in place, after the state was taken
    assert sorted(state) == ["every", "kept", "lags", "total"]
    every = other.every
    load_state(other, names, state)
    assert other._kept == owner._kept
    assert other.every is every
    assert [each(12) for each in other.every] == [4, 0]
    assert other.lags.counts == {4: 1}
    assert other.total.tolist() == [0.0, 0.0]


class Nested:
    """An object whose state has an array of its own in it, which it changes in place."""

    def __init__(self) -> None:
        self.held = {"deep": [np.zeros(2)]}

    def state_dict(self) -> dict[str, Any]:
        return self.held

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.held = state


def test_a_state_is_a_snapshot_however_deep_its_arrays_are() -> None:
    array = np.zeros(2)
    kept = {"list": [array], "tuple": (array,), "deque": deque([array]), "item": SampleBatch({"rewards": array})}
    owner = type("Deep", (), {"kept": kept, "nested": Nested(), "several": [Nested()]})()
    names = ("kept", "nested", "several")
    state = state_of(owner, names, "mine")
    frozen = copy.deepcopy(state)

    def change_in_place() -> None:
        for changed in (array, owner.nested.held["deep"][0], owner.several[0].held["deep"][0]):
            changed += 1.0
        owner.kept["list"].append(1)

    change_in_place()
    np.testing.assert_equal(state, frozen)
    load_state(owner, names, state)
    array = owner.kept["list"][0]
    assert array.tolist() == owner.nested.held["deep"][0].tolist() == [0.0, 0.0]
    change_in_place()
    owner.kept["item"]["rewards"][:] = 5.0
    np.testing.assert_equal(state, frozen)


def test_a_state_that_came_read_only_can_be_changed_in_place() -> None:
    array = np.zeros(2)
    array.flags.writeable = False
    decode({"deep": [array]})["deep"][0] += 1.0


def test_large_arrays_that_nobody_writes_to_need_not_be_copied() -> None:
    array = np.zeros(2)
    assert encode([array], "mine", copy=False)[0] is array
    assert decode([array], copy=False)[0] is array


def test_what_cannot_be_saved_is_named() -> None:
    with pytest.raises(CheckpointError, match=r"(?s)'queue'.*received: Counters"):
        encode([Counters()], "queue")
