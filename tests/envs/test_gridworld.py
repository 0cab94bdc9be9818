from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from rlweave.envs import GridWorld, make_env
from rlweave.errors import EnvError
from rlweave.spaces import FloatBox, IntBox

UP, RIGHT, DOWN, LEFT = range(4)


def walk(world: str | tuple[str, ...], start: int, *actions: int) -> list[tuple[int, float, bool]]:
    env = GridWorld(world)
    env.reset(options={"index": start})
    return [(index, reward, ended) for index, reward, ended, _, _ in map(env.step, actions)]


@pytest.mark.parametrize(
    ("start", "action", "expected"),
    [
        (0, DOWN, (1, -0.1, False)),
        (1, RIGHT, (3, 1.0, True)),
        (0, RIGHT, (2, -5.0, True)),
        (0, LEFT, (0, -0.1, False)),
        (1, UP, (0, -0.1, False)),
    ],
)
def test_the_2x2_world(start: int, action: int, expected: tuple[int, float, bool]) -> None:
    assert walk("2x2", start, action) == [expected]


def test_optimal_values_of_the_2x2_world() -> None:
    """Value iteration on the environment itself gives the published optimal Q, discount .98."""
    q = np.zeros((4, 4))
    for _ in range(100):
        for state in (0, 1):
            for action in range(4):
                ((following, reward, ended),) = walk("2x2", state, action)
                q[state, action] = reward + (0.0 if ended else 0.98 * q[following].max())
    assert q[0] == pytest.approx([0.7624, -5, 0.88, 0.7624])
    assert q[1] == pytest.approx([0.7624, 1, 0.88, 0.88])


def test_an_index_counts_down_the_columns() -> None:
    path = walk("4x4", 0, DOWN, DOWN, RIGHT, DOWN, RIGHT, RIGHT)
    assert [index for index, _, _ in path] == [1, 2, 6, 7, 11, 15]
    assert path[-1] == (15, 1.0, True)


def test_the_chain_fire_walls_and_borders() -> None:
    assert walk("chain", 5, RIGHT, RIGHT, RIGHT, RIGHT, RIGHT) == [
        (6, -0.1, False),
        (7, -0.1, False),
        (8, -3.0, False),
        (9, -0.1, False),
        (10, 1.0, True),
    ]
    assert walk("chain", 5, *[LEFT] * 5)[-1] == (0, 1.0, True)
    assert walk("chain", 5, UP, DOWN) == [(5, -0.1, False)] * 2
    assert walk(("SWG",), 0, RIGHT) == [(0, -0.1, False)]


def test_one_hot_observations_and_spaces() -> None:
    with make_env("rlweave/GridWorld-v0", 2, env_kwargs={"world": "2x2", "one_hot": True}) as env:
        assert env.observation_space == FloatBox(0, 1, shape=(4,))
        assert env.reset().tolist() == [[1, 0, 0, 0]] * 2
        assert env.step(np.array([DOWN, LEFT])).observations.tolist() == [[0, 1, 0, 0], [1, 0, 0, 0]]
    with make_env("rlweave/GridWorld-v0", env_kwargs={"world": "2x2"}) as env:
        assert env.observation_space == env.action_space == IntBox(4)


def test_an_endless_walk_is_truncated() -> None:
    with make_env("rlweave/GridWorld-v0", env_kwargs={"world": "2x2"}) as env:
        env.reset()
        results = [env.step(np.array([LEFT])) for _ in range(100)]
        assert [result.truncated.any() for result in results] == [False] * 99 + [True]
        assert not any(result.terminated.any() for result in results)


def test_render() -> None:
    env = GridWorld("2x2")
    env.reset()
    assert env.render() == "XH\n G"


@pytest.mark.parametrize("world", ["3x3", ("S ", "G"), ("SS",), ("  ",), ("SQ",), ()])
def test_bad_maps_are_refused(world: str | tuple[str, ...]) -> None:
    with pytest.raises(EnvError, match="map"):
        GridWorld(world)


def test_it_is_a_good_gymnasium_environment() -> None:
    env = gymnasium.make("rlweave/GridWorld-v0", render_mode="ansi")
    check_env(env.unwrapped, skip_render_check=True)
