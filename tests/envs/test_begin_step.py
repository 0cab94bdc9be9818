"""A step is begun and finished: what steps elsewhere does so in between, and the results are those of `step`."""

import time
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rlweave.envs import make_env
from rlweave.errors import EnvError


def vector_of(mode):
    return lambda: SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * 2, autoreset_mode=mode)


KINDS = {
    "sync": {},
    "async": {"vectorization": "async"},
    "gymnasium async": {"vectorization": "async", "autoreset": "next_step"},
    "gymnasium sync": {"vectorization": "sync", "autoreset": "same_step"},
    "custom": {"env": vector_of(AutoresetMode.NEXT_STEP), "num_envs": None, "vectorization": "custom"},
    "atari": {"env": "ALE/Pong-v5", "training": True},
}


def made(kind):
    if kind == "atari":
        pytest.importorskip("ale_py")
    return make_env(**{"env": "CartPole-v1", "num_envs": 2, "seed": 3, **KINDS[kind]})


@pytest.mark.parametrize("kind", KINDS)
def test_the_two_halves_of_a_step_are_the_step(kind):
    with made(kind) as whole, made(kind) as parted:
        np.testing.assert_array_equal(whole.reset(), parted.reset())
        for _ in range(40):  # episodes of CartPole end
            expected = whole.step(whole.sample_actions())
            assert parted.begin_step(parted.sample_actions()) is None
            for value, other in zip(parted.finish_step()[:7], expected[:7], strict=True):
                np.testing.assert_array_equal(value, other)
        assert whole.tracker.steps == parted.tracker.steps


@pytest.mark.parametrize("kind", KINDS)
def test_steps_that_are_not_begun_or_not_finished_are_refused(kind):
    with made(kind) as env:
        with pytest.raises(EnvError, match="not reset yet"):
            env.begin_step(env.sample_actions())
        env.reset()
        with pytest.raises(EnvError, match="no step is under way"):
            env.finish_step()
        env.begin_step(env.sample_actions())
        for forbidden in (lambda: env.step(env.sample_actions()), env.reset, env.save_state):
            with pytest.raises(EnvError, match="a step is under way"):
                forbidden()
        env.finish_step()
        env.step(env.sample_actions())
        env.begin_step(env.sample_actions())
    with pytest.raises(EnvError, match="closed"):
        env.finish_step()


class Leaving(gymnasium.Env):
    """Leaves a file behind when it steps."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, path):
        self.path = Path(path)

    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.path.touch()
        return np.zeros(1, np.float32), 0.0, False, False, {}


def test_environments_in_processes_step_before_anybody_waits(tmp_path):
    path = tmp_path / "stepped"
    with make_env(Leaving, vectorization="async", env_kwargs={"path": str(path)}) as env:
        env.reset()
        env.begin_step(np.zeros(1, np.int32))
        deadline = time.monotonic() + 60
        while not path.exists():
            assert time.monotonic() < deadline
        env.finish_step()
