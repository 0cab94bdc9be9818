import json
from typing import Any

import numpy as np
import pytest

from rlweave.errors import SpaceError
from rlweave.flow import Batch, SampleBatch
from rlweave.flow.codec import decode, encode
from rlweave.flow.protocols import require, steps_of


def rows(start: int, stop: int) -> SampleBatch:
    steps = np.arange(start, stop)
    return SampleBatch({"observations": {"a": np.stack([steps, -steps], axis=1), "b": steps * 2}, "rewards": steps})


def trajectories(t: int, b: int, first: int = 0) -> SampleBatch:
    values = np.arange(first, first + t * b).reshape(t, b)
    return SampleBatch(
        {"rewards": values, "last": {"observations": values[-1] + 1}}, layout="trajectories", per_trajectory=["last"]
    )


def test_rows_are_counted_glued_and_cut() -> None:
    glued = SampleBatch.concat([rows(0, 3), rows(3, 7)])
    assert (glued.num_steps, len(glued)) == (7, 7)
    np.testing.assert_array_equal(glued["rewards"], np.arange(7))
    np.testing.assert_array_equal(glued["observations"]["a"][:, 1], -np.arange(7))
    part = glued.slice(2, 4)
    assert part.num_steps == 2
    np.testing.assert_array_equal(part["observations"]["b"], [4, 6])


def test_concat_then_slice_is_the_identity() -> None:
    first, second = rows(0, 3), rows(3, 7)
    glued = SampleBatch.concat([first, second])
    for part, original in ((glued.slice(0, 3), first), (glued.slice(3, 7), second)):
        np.testing.assert_array_equal(part["observations"]["a"], original["observations"]["a"])
        np.testing.assert_array_equal(part["rewards"], original["rewards"])


def test_trajectories_are_glued_side_by_side_and_counted_in_environment_steps() -> None:
    glued = SampleBatch.concat([trajectories(5, 2), trajectories(5, 3, first=100)])
    assert glued.leading == (5, 5)
    assert glued.num_steps == 25
    np.testing.assert_array_equal(glued["rewards"][:, 2:], np.arange(100, 115).reshape(5, 3))
    assert glued["last"]["observations"].shape == (5,)
    part = glued.slice(2, 5)
    assert part.num_steps == 15
    np.testing.assert_array_equal(part["last"]["observations"], [113, 114, 115])


def test_tuples_are_containers_too() -> None:
    def blackjack(n: int) -> SampleBatch:
        return SampleBatch({"observations": (np.arange(n), {"ace": np.ones((n, 2))}, ()), "rewards": np.zeros(n)})

    glued = SampleBatch.concat([blackjack(2), blackjack(3)])
    assert glued.num_steps == 5
    np.testing.assert_array_equal(glued["observations"][0], [0, 1, 0, 1, 2])
    assert glued["observations"][1]["ace"].shape == (5, 2)
    assert glued["observations"][2] == ()
    np.testing.assert_array_equal(glued.slice(3, 5)["observations"][0], [1, 2])
    assert "observations/1/ace: float64[5, 2]" in repr(glued)
    restored = decode(json_safe(encode(glued, "queue")))
    np.testing.assert_array_equal(restored["observations"][1]["ace"], glued["observations"][1]["ace"])
    assert restored["observations"][2] == ()
    with pytest.raises(
        SpaceError, match=r"leaf 'observations/0'(?s:.*)leaf 'rewards'|leaf 'rewards'(?s:.*)leaf 'observations/0'"
    ):
        SampleBatch({"observations": (np.zeros(2),), "rewards": np.zeros(3)})
    with pytest.raises(SpaceError, match="different keys"):
        SampleBatch.concat([SampleBatch({"a": (np.zeros(1),)}), SampleBatch({"a": (np.zeros(1), np.zeros(1))})])


def json_safe(state: Any) -> Any:
    """Lists in the place of tuples, as JSON gives them back; arrays stay."""
    if isinstance(state, dict):
        return {key: json_safe(value) for key, value in state.items()}
    if isinstance(state, list | tuple):
        return [json_safe(value) for value in state]
    return state


def test_a_single_batch_is_glued_without_a_copy() -> None:
    batch = rows(0, 3)
    assert SampleBatch.concat([batch]) is batch


def test_declared_environment_steps_add_up_and_cannot_be_cut() -> None:
    masked = SampleBatch({"rewards": np.zeros(8)}, env_steps=5)
    assert masked.num_steps == 5
    assert SampleBatch.concat([masked, SampleBatch({"rewards": np.zeros(3)})]).num_steps == 8
    with pytest.raises(SpaceError, match="cannot be sliced"):
        masked.slice(0, 2)


def test_a_copy_shares_no_array() -> None:
    batch = rows(0, 3)
    other = batch.copy()
    other["observations"]["a"][0] = 99
    assert batch["observations"]["a"][0, 0] == 0
    assert other.num_steps == 3


def test_bytes_and_membership() -> None:
    batch = SampleBatch({"a": np.zeros((4, 2), np.float32), "b": {"c": np.zeros(4, np.uint8)}})
    assert batch.nbytes == 4 * 2 * 4 + 4
    assert "a" in batch
    assert "c" not in batch
    assert "b/c: uint8[4]" in repr(batch)


def test_an_empty_batch_is_a_batch() -> None:
    empty = SampleBatch({"a": np.zeros((0, 2))})
    assert empty.num_steps == 0
    assert empty
    assert SampleBatch({}).num_steps == 0
    assert SampleBatch.concat([empty, SampleBatch({"a": np.ones((2, 2))})]).num_steps == 2


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SampleBatch({"a": np.zeros(3), "b": {"c": np.zeros(4)}}), r"leaf 'b/c'(?s:.*)leaf 'a' says \(3,\)"),
        (lambda: SampleBatch({"a": np.zeros(3)}, layout="trajectories"), "too few axes"),
        (lambda: SampleBatch({"a": np.zeros(())}), "too few axes"),
        (lambda: SampleBatch({"a": [1, 2]}), "not a NumPy array"),
        (lambda: SampleBatch({"a": np.zeros(3)}, layout="columns"), "unknown layout"),  # type: ignore[arg-type]
        (lambda: SampleBatch({"a": np.zeros(3)}, per_trajectory=["a"]), "per_trajectory"),
        (lambda: SampleBatch.concat([]), "no batches to concatenate"),
        (lambda: SampleBatch.concat([rows(0, 2), SampleBatch({"rewards": np.zeros(2)})]), "different keys"),
        (lambda: SampleBatch.concat([trajectories(5, 2), trajectories(4, 2)]), "different form"),
        (
            lambda: SampleBatch.concat([SampleBatch({"a": np.zeros((2, 3))}), SampleBatch({"a": np.zeros((2, 4))})]),
            r"leaf 'a'(?s:.*)\(2, 3\), \(2, 4\)",
        ),
        (
            lambda: SampleBatch(
                {"r": np.zeros((5, 2)), "last": np.zeros(3)}, layout="trajectories", per_trajectory=["last"]
            ),
            "leaf 'last'",
        ),
    ],
)
def test_wrong_batches_are_refused(make, message) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(SpaceError, match=message):
        make()


def test_key_order_does_not_matter_when_gluing() -> None:
    first = SampleBatch({"a": np.zeros(1), "b": np.ones(1)})
    second = SampleBatch({"b": np.ones(1), "a": np.zeros(1)})
    glued = SampleBatch.concat([first, second])
    np.testing.assert_array_equal(glued["a"], [0, 0])
    np.testing.assert_array_equal(glued["b"], [1, 1])


def test_it_survives_a_checkpoint() -> None:
    batch = trajectories(5, 2)
    state = encode((batch, [1, None, "x"], {"n": np.float32(2.0)}), "queue")
    restored, rest, numbers = decode(state)
    assert (restored.layout, restored.per_trajectory, restored.num_steps) == ("trajectories", {"last"}, 10)
    np.testing.assert_array_equal(restored["last"]["observations"], batch["last"]["observations"])
    assert (rest, numbers) == ([1, None, "x"], {"n": 2.0})
    json.dumps(encode([1, {"a": (2, 3)}], "queue"))


def test_it_is_a_batch_by_protocol_and_steps_are_counted() -> None:
    require(SampleBatch, Batch, "operator", "argument")
    assert steps_of(rows(0, 5)) == 5
    assert steps_of([1, 2]) == 2
    assert steps_of(3.0) == 0
