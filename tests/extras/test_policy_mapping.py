"""Which policy plays whom."""

import pytest

from rlweave.errors import ConfigError
from rlweave.extras.policy_mapping import PolicyMapping


def test_the_last_pattern_that_fits_counts():
    mapping = PolicyMapping({"*": "one", "cart_*": "rest", "cart_0": "one"}, ["one", "rest"])
    assert mapping(["cart_0", "cart_1", "walker", "cart_2"]) == {
        "one": ["cart_0", "walker"],
        "rest": ["cart_1", "cart_2"],
    }


def test_a_function_does_as_well():
    mapping = PolicyMapping(lambda agent: "even" if int(agent[-1]) % 2 == 0 else "odd", ["even", "odd"])
    assert mapping(["a0", "a1", "a2"]) == {"even": ["a0", "a2"], "odd": ["a1"]}


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ({"a": "one"}, "no policy plays agent 'b'"),
        ({"*": "oen"}, "did you mean 'one'"),
        (lambda agent: "none", "does not exist"),
        ({"*": "one"}, "policy 'two' plays no agent"),
    ],
)
def test_what_does_not_fit_is_explained(rule, said):
    with pytest.raises(ConfigError) as caught:
        PolicyMapping(rule, ["one", "two"])(["a", "b"])
    assert said in str(caught.value)
    assert caught.value.where == "mapping"
