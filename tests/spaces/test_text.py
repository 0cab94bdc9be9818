import numpy as np
import pytest

from rlweave.errors import SpaceError
from rlweave.spaces import TextBox


def test_samples():
    box = TextBox(3, min_length=1, charset="ab", shape=(2,), add_batch_rank=True)
    samples = box.sample(50, rng=0)
    assert (samples.shape, samples.dtype) == ((50, 2), object)
    assert {len(text) for text in samples.flat} == {1, 2, 3}
    assert set("".join(samples.flat)) == {"a", "b"}
    assert box.contains(samples)


def test_a_str_is_a_single_text():
    assert TextBox().contains("any text, ä too")
    assert TextBox().contains(np.array("text", object))
    assert TextBox().why_not(np.array("text")) == "needs dtype object, got <U4"
    assert TextBox(add_batch_rank=True).why_not("text") == "needs axes (B,), got shape ()"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("abcd", "holds 4 characters, outside 1..3"),
        ("", "holds 0 characters, outside 1..3"),
        ("axb", "holds characters that are not in the charset: ['x']"),
        (np.array(3, object), "holds a int, not a str"),
        (3, "needs a NumPy array, got int"),
    ],
)
def test_why_not(value, reason):
    assert TextBox(3, min_length=1, charset="abc").why_not(value) == reason


def test_position_of_a_wrong_text():
    assert TextBox(1, add_batch_rank=True).why_not(np.array(["a", "bc"], object)) == (
        "holds 2 characters at index (1,), outside 0..1"
    )


def test_zeros_are_empty_texts():
    assert TextBox(add_batch_rank=True).zeros(2).tolist() == ["", ""]
    assert TextBox(5, charset="").sample().item() == ""


def test_charsets_are_sets():
    assert TextBox(3, charset="ba") == TextBox(3, charset="aab")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TextBox(3, min_length=4), "cross"),
        (lambda: TextBox(-1), "cross"),
        (lambda: TextBox(3, 1, charset=""), "empty text only"),
        (lambda: TextBox().flat_dim, "no numeric features"),
    ],
)
def test_errors_teach(make, message):
    with pytest.raises(SpaceError, match=message):
        make()
