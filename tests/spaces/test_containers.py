import copy
import pickle

import numpy as np
import pytest

from rlweave.errors import SpaceError
from rlweave.spaces import BoolBox, Dict, FloatBox, IntBox, Tuple

ORACLE = Dict(
    a=Tuple(IntBox(4), IntBox(2), FloatBox(shape=(4, 2))),
    b=FloatBox(shape=(2, 2)),
    c=FloatBox(shape=(4,)),
    add_batch_rank=True,
    add_time_rank=True,
)


def test_shapes_of_the_oracle():
    shapes = ORACLE.unflatten({path: leaf.shape for path, leaf in ORACLE.flatten().items()})
    assert tuple(shapes.values()) == (((), (), (4, 2)), (2, 2), (4,))
    assert ORACLE.has_batch_rank
    assert ORACLE.has_time_rank
    sample = ORACLE.sample((5, 3), rng=0)
    assert [x.shape for x in sample["a"]] == [(5, 3), (5, 3), (5, 3, 4, 2)]
    assert sample["b"].shape == (5, 3, 2, 2)
    assert ORACLE.contains(sample)
    assert ORACLE.flat_dim == 1 + 1 + 8 + 4 + 4


def test_keys_have_one_order():
    one, two = Dict(b=IntBox(2), a=IntBox(3)), Dict({"a": IntBox(3), "b": IntBox(2)})
    assert one == two
    assert hash(one) == hash(two)
    assert list(one) == list(one.keys()) == list(one.flatten()) == ["a", "b"]
    assert list(one.sample()) == ["a", "b"]
    assert repr(one) == repr(two) == "Dict(a=IntBox(() int32 in [0, 3)), b=IntBox(() int32 in [0, 2)))"


def test_values_are_matched_by_name():
    space = Dict(a=IntBox(3), b=FloatBox())
    assert space.contains({"b": np.float32(0), "a": np.int32(0)})
    assert space.unflatten({"b": 2, "a": 1}) == {"a": 1, "b": 2}
    assert list(space.unflatten({"b": 2, "a": 1})) == ["a", "b"]
    assert space.flatten_value({"b": 2, "a": 1}) == {"a": 1, "b": 2}


def test_paths():
    space = Dict(x=Dict(y=Tuple(IntBox(2), Dict(z=IntBox(3)))), a=IntBox(4))
    assert list(space.flatten()) == ["a", "x/y/0", "x/y/1/z"]
    assert list(Tuple(Dict(x=IntBox(2)), IntBox(3)).flatten()) == ["0/x", "1"]
    assert list(IntBox(2).flatten()) == [""]
    assert IntBox(2).unflatten({"": 7}) == 7
    assert IntBox(2).flatten_value(7) == {"": 7}


def test_more_than_ten_entries_stay_in_order():
    space = Tuple(*[IntBox(i + 1) for i in range(12)])
    assert [leaf.num_categories for leaf in space.flatten().values()] == list(range(1, 13))
    assert space.unflatten({str(i): i for i in reversed(range(12))}) == tuple(range(12))


def test_empty_containers_keep_their_place():
    space = Dict(a=Dict(), b=Tuple(), c=Tuple(Dict({}), IntBox(2)))
    assert list(space.flatten()) == ["c/1"]
    assert space.unflatten({"c/1": 5}) == {"a": {}, "b": (), "c": ({}, 5)}
    assert space.flatten_value({"a": {}, "b": (), "c": ({}, 5)}) == {"c/1": 5}
    assert space.contains(space.sample())
    for empty, value in [(Dict(), {}), (Tuple(), ())]:
        assert empty.flatten() == {}
        assert empty.sample(3) == empty.zeros() == empty.unflatten({}) == value
        assert empty.contains(value)
        assert empty.flat_dim == 0
        assert not empty.has_batch_rank
        assert empty.with_batch_rank().with_time_rank() == empty
        assert len(empty) == 0
    assert Dict() != Tuple()


def test_access():
    space = Dict({"a b": IntBox(2), "t": Tuple(IntBox(3), BoolBox())})
    assert space["a b"] == IntBox(2)
    assert space["t"][-1] == BoolBox()
    assert "t" in space
    assert "x" not in space
    assert (len(space), len(space["t"])) == (2, 2)
    assert list(space["t"]) == [IntBox(3), BoolBox()] == list(space["t"].values())
    assert list(space.items()) == list(zip(space.keys(), space.values(), strict=True))
    assert list(space["t"].items()) == [(0, IntBox(3)), (1, BoolBox())]
    assert repr(space).startswith("Dict({'a b': ")
    with pytest.raises(SpaceError, match="did you mean 'a b'"):
        space["a_b"]
    with pytest.raises(SpaceError, match="0 to 1"):
        space["t"][2]
    for empty, key in [(Dict(), "a"), (Tuple(), 0)]:
        with pytest.raises(SpaceError, match="it is empty"):
            empty[key]
    with pytest.raises(SpaceError, match="'x'"):
        space["t"]["x"]


def test_names_like_the_rank_arguments_go_through_a_mapping():
    assert list(Dict({"add_batch_rank": IntBox(2)})) == ["add_batch_rank"]


def test_ranks_push_down_to_the_leaves():
    space = Dict(a=Tuple(IntBox(2), add_time_rank=3), b=FloatBox(add_batch_rank=True))
    assert not space.has_batch_rank
    assert not space.has_time_rank
    assert Dict({"x": space}, add_batch_rank=8).has_batch_rank
    assert Dict(x=space)["x"] == space  # False leaves the ranks alone
    assert space.with_batch_rank(False)["b"] == FloatBox()
    assert space.strip_ranks() == Dict(a=Tuple(IntBox(2)), b=FloatBox())


def test_map():
    space = Dict(a=Tuple(IntBox(2)), b=FloatBox(shape=(3,)))
    doubled = space.map(lambda leaf: Tuple(leaf, leaf))
    assert list(doubled.flatten()) == ["a/0/0", "a/0/1", "b/0", "b/1"]
    assert space.map(lambda leaf: leaf) == space
    with pytest.raises(SpaceError, match="no space"):
        space.map(lambda leaf: leaf.shape)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Dict({"a/b": IntBox(2)}), "'a_b'"),
        (lambda: Dict({"": IntBox(2)}), "not empty"),
        (lambda: Dict({1: IntBox(2)}), "name 1"),
        (lambda: Dict(a=3), "entry 'a' of a Dict is no space"),
        (lambda: Dict(a={"b": IntBox(2)}), "of type dict"),
        (lambda: Dict({"a": IntBox(2)}, a=IntBox(2)), "twice"),
        (lambda: Dict([IntBox(2)]), "from a mapping"),
        (lambda: Tuple([IntBox(2)]), r"Tuple\(\*spaces\)"),
        (lambda: Tuple(IntBox(2), None), "entry 1 of a Tuple"),
    ],
)
def test_errors_teach(make, message):
    with pytest.raises(SpaceError, match=message):
        make()


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"a": (np.int32(0), np.int32(2)), "b": np.float32(0)}, "a/1: holds 2, outside [0, 2)"),
        ({"a": (np.int32(0),), "b": np.float32(0)}, "a: needs 2 entries, got 1"),
        ({"a": np.int32([0, 0]), "b": np.float32(0)}, "a: needs a tuple, got ndarray"),
        ({"a": (np.int32(0), np.int32(0))}, "lacks ['b']"),
        ({"a": (np.int32(0), np.int32(0)), "B": 0}, "lacks ['b']; has unknown ['B']"),
        ((1, 2), "needs a dict, got tuple"),
        ({"a": (np.int32(0), np.int32(0)), "b": np.float32(np.nan)}, "b: holds nan"),
        ({"a": (np.int32(0), np.int32(0)), "b": 0.0}, "b: needs a NumPy array, got float"),
    ],
)
def test_why_not_names_the_leaf(value, reason):
    assert Dict(a=Tuple(IntBox(2), IntBox(2)), b=FloatBox()).why_not(value) == reason


def test_ranks_have_to_agree_between_leaves():
    space = Dict(a=FloatBox(add_batch_rank=True), b=IntBox(2, add_batch_rank=True, add_time_rank=True))
    a, b = np.zeros(3, np.float32), np.zeros((2, 3), np.int32)
    assert space.contains({"a": a, "b": b})
    reason = space.why_not({"a": a[:2], "b": b})
    assert reason == "b: needs axes (T, B), got shape (2, 3): B is 3, not 2, as B is 2 in 'a'"


def test_flat_mappings_have_to_match():
    space = Dict(alpha=IntBox(2), beta=IntBox(2))
    with pytest.raises(SpaceError, match=r"Missing: \['beta'\].*Unknown: \['betta'\]") as caught:
        space.unflatten({"alpha": 1, "betta": 2})
    assert "did you mean 'beta'?" in str(caught.value)
    with pytest.raises(SpaceError, match="lacks"):
        space.flatten_value({"alpha": 1})
    with pytest.raises(SpaceError, match="x: Tuple"):
        Dict(x=Tuple(IntBox(2))).flatten_value({"x": (1, 2)})


def test_immutable_and_copyable():
    space = Dict(a=Tuple(IntBox(2)), b=FloatBox())
    with pytest.raises(SpaceError, match="cannot be changed"):
        space.a = 1
    assert copy.deepcopy(space) is space
    hash(space)
    assert pickle.loads(pickle.dumps(space)) == space  # noqa: S301
    flat = space.flatten()
    flat.clear()
    assert len(space.flatten()) == 2
