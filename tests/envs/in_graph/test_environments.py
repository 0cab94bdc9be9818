"""Environments in ops do what their Gymnasium counterparts do, from the same observations and with the same actions."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from rlweave.envs import catch, cue_recall, gridworld
from rlweave.envs.in_graph import CartPole, Catch, CueRecall, GridWorld, Pendulum
from rlweave.errors import EnvError
from rlweave.graph import build
from tests.graph.toys import BACKENDS

every = pytest.mark.parametrize("backend", BACKENDS)
N = 7


def built(env, backend, **options):
    return build(env, {"actions": env.action_space.with_batch_rank(env.num_envs)}, backend=backend, **options)


def set_cart_pole(env, state):
    env.unwrapped.state = tuple(float(x) for x in state)


def set_pendulum(env, state):
    env.unwrapped.state = np.asarray(state, np.float64)


@every
@pytest.mark.parametrize(
    ("component", "name", "set_state", "steps"),
    [(CartPole(N), "CartPole-v1", set_cart_pole, 80), (Pendulum(N), "Pendulum-v1", set_pendulum, 40)],
)
def test_steps_equal_gymnasium_from_the_same_state(backend, component, name, set_state, steps):
    executor = built(component, backend)
    rng = np.random.default_rng(1)
    envs = [gymnasium.make(name).unwrapped for _ in range(N)]
    for env in envs:
        env.reset(seed=0)
    endings = 0
    for _ in range(steps):
        state = executor.get_weights()["environment/physics"]
        observations = executor.observations()
        actions = component.action_space.sample(N, rng=rng)
        result = executor.step(actions)
        for i, env in enumerate(envs):
            set_state(env, state[i])
            if name == "CartPole-v1":
                env.steps_beyond_terminated = None
            after, reward, terminated, _, _ = env.step(actions[i])
            np.testing.assert_allclose(result["next_observations"][i], after, rtol=2e-5, atol=2e-5)
            np.testing.assert_allclose(result["rewards"][i], reward, rtol=2e-5, atol=2e-5)
            assert result["terminated"][i] == terminated
            if not terminated:
                np.testing.assert_array_equal(executor.observations()[i], result["next_observations"][i])
            endings += terminated
        assert observations.shape == result["next_observations"].shape
    assert endings > 5 or name == "Pendulum-v1"


@every
@pytest.mark.parametrize("world", ["2x2", "4x4", "chain"])
@pytest.mark.parametrize("one_hot", [False, True])
def test_grid_world_equals_the_gymnasium_one(backend, world, one_hot):
    executor = built(GridWorld(N, world, one_hot), backend)
    envs = [gridworld.GridWorld(world, one_hot) for _ in range(N)]
    expected = [env.reset()[0] for env in envs]
    rng = np.random.default_rng(2)
    for _ in range(30):
        np.testing.assert_array_equal(executor.observations(), expected)
        actions = rng.integers(4, size=N).astype(np.int32)
        result = executor.step(actions)
        for i, env in enumerate(envs):
            after, reward, terminated, _, _ = env.step(actions[i])
            np.testing.assert_array_equal(result["next_observations"][i], after)
            assert result["rewards"][i] == np.float32(reward)
            assert result["terminated"][i] == terminated
            expected[i] = env.reset()[0] if terminated else after


@every
def test_catch_equals_the_gymnasium_one(backend):
    executor = built(Catch(N, rows=5, columns=4), backend)
    envs = [catch.Catch(5, 4) for _ in range(N)]
    rng = np.random.default_rng(3)
    for step in range(20):
        if step % 4 == 0:  # an episode takes rows - 1 steps
            columns = executor.get_weights()["environment/ball_column"]
            for env, column in zip(envs, columns, strict=True):
                env.reset(seed=0)
                env._ball_column = int(column)
        np.testing.assert_array_equal(executor.observations(), [env._draw() for env in envs])
        actions = rng.integers(3, size=N).astype(np.int32)
        result = executor.step(actions)
        for i, env in enumerate(envs):
            after, reward, terminated, _, _ = env.step(actions[i])
            np.testing.assert_array_equal(result["next_observations"][i], after)
            assert (result["rewards"][i], result["terminated"][i]) == (reward, terminated)


@every
def test_cue_recall_equals_the_gymnasium_one(backend):
    executor = built(CueRecall(N, length=2, max_length=4, cues=3), backend)
    envs = [cue_recall.CueRecall(2, 4, 3) for _ in range(N)]
    rng = np.random.default_rng(4)
    begun, rewards, lengths = np.ones(N, bool), 0.0, set()
    for _ in range(25):
        drawn = {name: executor.get_weights()[f"environment/{name}"] for name in ("cue", "steps_left")}
        for i in np.flatnonzero(begun):  # a new episode: the same cue and length
            envs[i].reset(seed=0)
            envs[i]._cue, envs[i]._length = int(drawn["cue"][i]), int(drawn["steps_left"][i])
            lengths.add(int(drawn["steps_left"][i]))
        np.testing.assert_array_equal(executor.observations(), [env._observation() for env in envs])
        actions = rng.integers(3, size=N).astype(np.int32)
        result = executor.step(actions)
        for i, env in enumerate(envs):
            after, reward, terminated, _, _ = env.step(actions[i])
            np.testing.assert_array_equal(result["next_observations"][i], after)
            assert (result["rewards"][i], result["terminated"][i]) == (reward, terminated)
        rewards, begun = rewards + result["rewards"].sum(), result["terminated"]
    assert rewards > 5
    assert lengths == {2, 3, 4}


@every
def test_episodes_are_cut_counted_and_begun_anew(backend):
    executor = built(Pendulum(2, max_episode_steps=3), backend)
    total = 0.0
    for step in range(1, 8):
        before = executor.observations()
        result = executor.step(np.ones((2, 1), np.float32))
        in_episode = (step - 1) % 3 + 1
        total = result["rewards"] + (0.0 if in_episode == 1 else total)
        np.testing.assert_array_equal(result["truncated"], in_episode == 3)
        np.testing.assert_array_equal(result["episode_steps"], in_episode)
        np.testing.assert_allclose(result["episode_returns"], total, rtol=1e-6)
        assert not result["terminated"].any()
        moved_on = np.array_equal(executor.observations(), result["next_observations"])
        assert moved_on == (in_episode < 3)  # the final observation is handed out, and never acted on
        assert not np.array_equal(before, result["next_observations"])


@every
def test_the_state_at_the_limit_is_terminal_and_not_cut(backend):
    executor = built(CartPole(1, max_episode_steps=1), backend)
    executor.set_weights({"environment/physics": np.array([[2.4, 5.0, 0.0, 0.0]], np.float32)})
    result = executor.step(np.ones(1, np.int32))
    assert (result["terminated"][0], result["truncated"][0]) == (True, False)


@every
def test_reset_begins_everywhere_and_seeds_differ(backend):
    executor, other = built(CartPole(4), backend, seed=1), built(CartPole(4), backend, seed=2)
    assert not np.array_equal(executor.observations(), other.observations())
    assert len(np.unique(executor.observations())) == 16
    before = executor.observations()
    executor.step(np.zeros(4, np.int32))
    after = executor.reset()
    assert not np.array_equal(before, after)
    assert np.abs(after).max() <= 0.05
    np.testing.assert_array_equal(executor.get_weights()["environment/episode_steps"], 0)


@pytest.mark.parametrize("arguments", [{"num_envs": 0}, {"num_envs": 2.0}, {"num_envs": 2, "max_episode_steps": 0}])
def test_numbers_that_make_no_sense_are_named(arguments):
    with pytest.raises(EnvError, match="must be a whole number above zero"):
        CartPole(**arguments)


@pytest.mark.parametrize("arguments", [{"length": 0}, {"cues": 1}, {"length": 3, "max_length": 2}])
def test_cues_that_cannot_be_recalled(arguments):
    with pytest.raises(EnvError, match="cue recall needs"):
        CueRecall(2, **arguments)


def test_an_unknown_map_is_named():
    with pytest.raises(EnvError, match="unknown grid world map"):
        GridWorld(2, "2x3")
