import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlweave.errors import SpaceError
from rlweave.spaces import BATCH, TIME, Dim, fixed_batch, fixed_size, fixed_time
from tests.spaces.strategies import quick

dims = st.builds(
    Dim,
    st.lists(st.sampled_from(["T", "B", "T=8", "B=64", "B=2"]), max_size=3).map(tuple),
    st.integers(1, 9),
    st.integers(0, 9),
)


@pytest.mark.parametrize(
    ("dim", "text", "length"),
    [
        (BATCH, "B", 5),
        (TIME, "T", 3),
        (Dim(("B", "T")), "T*B", 15),
        (Dim(("T",), offset=1), "T+1", 4),
        (Dim(("T",), offset=-1), "T-1", 2),
        (Dim(("B",), 4), "4*B", 20),
        (Dim(("T", "B"), 2, 7), "2*T*B+7", 37),
        (fixed_batch(64), "B=64", 64),
        (fixed_time(8), "T=8", 8),
        (Dim(("T", "B=64")), "T*B=64", 192),
        (Dim((), 3, 2), "5", 5),
        (Dim(("B", "B")), "B*B", 25),
    ],
)
def test_text_and_length(dim, text, length):
    assert str(dim) == text
    assert dim.evaluate({"T": 3, "B": 5}) == length
    assert Dim.parse(text) == dim


@quick
@given(dims)
def test_parse_inverts_str(dim):
    assert Dim.parse(str(dim)) == dim
    assert hash(Dim.parse(str(dim))) == hash(dim)


def test_order_of_symbols_does_not_matter():
    assert Dim(("B", "T")) == Dim(("T", "B"))
    assert Dim(("B=64", "T", "B")).symbols == ("T", "B", "B=64")


def test_constants_are_equal_however_they_are_written():
    assert Dim((), 3, 2) == Dim((), 5) == Dim(offset=4)
    assert Dim(offset=4).constant == 5
    assert BATCH.constant is None


def test_a_fixed_symbol_can_be_overridden_by_its_own_name_only():
    assert fixed_batch(64).evaluate({"B=64": 7}) == 7
    assert fixed_batch(64).evaluate({"B": 7}) == 64


def test_kinds():
    assert TIME.is_time
    assert Dim(("T",), 2, 1).is_time
    assert not Dim(("T", "B")).is_time
    assert Dim(("T", "B")).is_batch
    assert fixed_batch(3).is_batch
    assert not Dim(offset=3).is_time
    assert not TIME.is_batch
    assert fixed_size("T=8") == 8
    assert fixed_size("B") is None


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Dim(("X",)), "symbol 'X'"),
        (lambda: Dim(("B=0",)), "symbol 'B=0'"),
        (lambda: Dim("TB"), "Dim\\(\\('TB',\\)\\)"),
        (lambda: Dim(("B",), 0), "at least 1"),
        (lambda: Dim(("B",), 2.5), "factor=2.5"),
        (lambda: Dim(offset=-2), "negative length"),
        (lambda: fixed_batch(0), "at least 1"),
        (lambda: fixed_time(2.5), "2.5"),
        (lambda: Dim.parse("T+"), "'T\\+'"),
        (lambda: Dim.parse("2*3*T"), "2\\*3\\*T"),
        (lambda: Dim.parse(""), "no axis length"),
        (lambda: BATCH.evaluate({"T": 3}), "entry for 'B'"),
        (lambda: Dim(("T",), offset=-3).evaluate({"T": 2}), "negative length -1"),
    ],
)
def test_errors_teach(make, message):
    with pytest.raises(SpaceError, match=message):
        make()
