from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from rlweave.envs import CueRecall, make_env
from rlweave.errors import EnvError
from rlweave.spaces import FloatBox, IntBox


@pytest.mark.parametrize("right", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_only_the_last_action_counts_and_only_the_first_observation_tells(seed: int, right: bool) -> None:
    env = CueRecall()
    first, _ = env.reset(seed=seed)
    cue = int(first.argmax())
    assert first.tolist() == [float(cue == 0), float(cue == 1)]
    for step in range(1, 11):
        action = cue if right == (step == 10) else 1 - cue
        observation, reward, terminated, truncated, _ = env.step(action)
        assert not observation.any()
        assert (terminated, truncated) == (step == 10, False)
        assert reward == (1.0 if right and step == 10 else 0.0)


def test_cues_are_drawn_evenly_and_lengths_within_their_range() -> None:
    env = CueRecall(length=2, max_length=4, cues=3)
    env.reset(seed=0)
    cues, lengths = [], []
    for _ in range(300):
        observation, _ = env.reset()
        cues.append(int(observation.argmax()))
        lengths.append(next(step for step in range(1, 9) if env.step(0)[2]))
    assert np.bincount(cues).min() > 70
    assert sorted(set(lengths)) == [2, 3, 4]


def test_noise_says_nothing_of_the_cue() -> None:
    env = CueRecall(noise=0.5)
    rows: dict[int, list[np.ndarray]] = {0: [], 1: []}
    env.reset(seed=0)
    for _ in range(200):
        first, _ = env.reset()
        rows[int(first.argmax())] += [env.step(0)[0] for _ in range(9)]
    for noise in map(np.stack, rows.values()):
        assert 0.4 < np.abs(noise).max() <= 0.5
        np.testing.assert_allclose(noise.mean(0), 0.0, atol=0.05)


def test_it_is_registered_and_fits_the_contract() -> None:
    check_env(gymnasium.make("rlweave/CueRecall-v0").unwrapped, skip_render_check=True)
    env = make_env("rlweave/CueRecall-v0", 2, env_kwargs={"length": 3, "max_length": 5}, seed=0)
    assert env.observation_space == FloatBox(0.0, 1.0, shape=(2,))
    assert env.action_space == IntBox(2)
    env.reset()
    ended = np.stack([(lambda result: result.terminated)(env.step(np.zeros(2, np.int32))) for _ in range(60)])
    assert (ended[:, 0] != ended[:, 1]).any(), "episodes of different lengths do not end together"
    env.close()
    assert CueRecall().render().startswith("cue ")


@pytest.mark.parametrize("arguments", [{"length": 0}, {"cues": 1}, {"noise": -0.1}, {"length": 5, "max_length": 4}])
def test_numbers_that_make_no_sense(arguments: dict[str, float]) -> None:
    with pytest.raises(EnvError, match="cue recall needs"):
        CueRecall(**arguments)
