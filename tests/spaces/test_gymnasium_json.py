import json

import numpy as np
import pytest
from gymnasium import spaces as gym

from rlweave.errors import SpaceError
from rlweave.spaces.gymnasium_json import gymnasium_from_json, gymnasium_to_json
from rlweave.spaces.gymnasium_spaces import Tokens

SPACES = [
    gym.Box(-1, 1, (2, 3), np.float32),
    gym.Box(np.array([-np.inf, 0.1], np.float64), np.array([np.inf, 1 / 3], np.float64), dtype=np.float64),
    gym.Box(0, 255, (4, 4, 1), np.uint8),
    gym.Box(-(2**62) - 1, 2**62 + 1, (), np.int64),
    gym.Box(0, 1, (0, 2), np.float32),
    gym.Box(0, 1, (2,), np.bool_),
    gym.Discrete(5),
    gym.Discrete(3, start=-7),
    gym.MultiDiscrete([[2, 3], [4, 5]], start=[[1, 0], [-1, 2]]),
    gym.MultiBinary((2, 2)),
    gym.MultiBinary(3),
    gym.Text(7, min_length=2, charset="abc"),
    Tokens(4, 100),
    gym.Dict({"b": gym.Discrete(2), "a": gym.Tuple([gym.Box(0, 1, (1,), np.float16), gym.Dict({})])}),
]


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_a_space_comes_back_from_strict_json(space):
    text = json.dumps(gymnasium_to_json(space), allow_nan=False)
    back = gymnasium_from_json(json.loads(text))
    assert back == space
    assert type(back) is type(space)
    if isinstance(space, gym.Box):
        assert back.low.dtype == space.low.dtype
        np.testing.assert_array_equal(back.low, space.low)
        np.testing.assert_array_equal(back.high, space.high)
    if isinstance(space, gym.Dict):
        assert list(back.spaces) == list(space.spaces)


def test_what_is_no_space():
    with pytest.raises(SpaceError, match="unknown type"):
        gymnasium_from_json({"type": "Boks"})
    with pytest.raises(SpaceError, match="malformed"):
        gymnasium_from_json({"type": "Discrete", "n": "x", "start": 0})
    with pytest.raises(SpaceError, match="no JSON form"):
        gymnasium_to_json(gym.Sequence(gym.Discrete(2)))
