"""Rollout storage: what was added, where episodes start, and the right value to bootstrap every step from."""

import numpy as np
import pytest

from rlweave import ops
from rlweave.components.memories import RolloutStorage
from rlweave.components.returns import td_errors
from rlweave.errors import ConfigError, ExecutionError
from rlweave.graph import Component, build, graph_fn
from rlweave.spaces import Dict, FloatBox, IntBox, Tuple

SPACE = Dict(observations=FloatBox(shape=(2,)), actions=IntBox(3), values=FloatBox())


class Counter:
    """B environments whose observation is (env, step in the episode), with episodes of given lengths.

    Env b ends after lengths[b] steps: even ones are terminated, odd ones truncated.
    """

    def __init__(self, lengths):
        self.lengths, self.time = np.array(lengths), np.zeros(len(lengths), int)

    def observation(self):
        return np.stack([np.arange(len(self.time)), self.time], axis=1).astype(np.float32)

    def step(self):
        observations = self.observation()
        self.time += 1
        ended, odd = self.time == self.lengths, np.arange(len(self.time)) % 2 == 1
        following = self.observation()
        self.time[ended] = 0
        fields = {"observations": observations, "actions": np.zeros(len(odd), np.int32), "values": observations[:, 1]}
        return fields, observations[:, 1] * 10, ended & ~odd, ended & odd, following


def test_the_value_of_a_state_is_its_step():
    # Faults 4 and 6: V(s) = step index, so with g = 1 and r = 0 every error but that of a terminated step is 1.
    storage, env = RolloutStorage(7, 4, SPACE), Counter([3, 3, 100, 5])
    for _ in range(3):
        while not storage.full:
            fields, _, *rest = env.step()
            storage.add(fields, np.zeros(4), *rest)
        rollout = storage.get()
        data = rollout.data
        rows = rollout.bootstrap_observations.shape[0]
        assert rows in (4, 8)
        following = rollout.next_values(data["values"], rollout.bootstrap_observations[:, 1])
        errors = td_errors(data["rewards"], data["values"], following, data["terminated"], 1.0)
        np.testing.assert_array_equal(errors[~data["terminated"]], 1.0)
        np.testing.assert_array_equal(errors[data["terminated"]], -2.0)
        np.testing.assert_array_equal(data["episode_start"], data["values"] == 0)
        assert data["valid"].all()
        # only truncations before the last step keep their final observation
        needed = data["truncated"][:-1].sum()
        assert len(rollout.final_steps) == len(rollout.final_envs) == needed
        finals = rollout.bootstrap_observations[4 : 4 + needed]
        np.testing.assert_array_equal(finals[:, 0], rollout.final_envs)
        np.testing.assert_array_equal(finals[:, 1], np.array([3, 3, 100, 5])[rollout.final_envs])


def test_data_is_what_was_added():
    rng = np.random.default_rng(0)
    space = Dict(observations=Dict(a=FloatBox(shape=(3,)), b=Tuple(IntBox(9))), actions=IntBox(3), log_probs=FloatBox())
    storage = RolloutStorage(5, 2, space)
    batch = space.with_batch_rank()
    steps = [(batch.sample(2, rng=rng), rng.normal(size=2), rng.random(2) < 0.3, rng.random(2) < 0.3) for _ in range(5)]
    for t, (fields, *rest) in enumerate(steps):
        assert len(storage) == t
        assert not storage.full
        storage.add(fields, *rest, batch.sample(2, rng=rng)["observations"])
    rollout = storage.get()
    assert storage.data_space().contains(rollout.data)
    assert space["observations"].with_batch_rank().contains(rollout.bootstrap_observations)
    for t, (fields, rewards, terminated, truncated) in enumerate(steps):
        for path, value in space.flatten_value(fields).items():
            kept = {key: rollout.data[key] for key in space}
            np.testing.assert_array_equal(space.flatten_value(kept)[path][t], value)
        np.testing.assert_array_equal(rollout.data["rewards"][t], rewards.astype(np.float32))
        np.testing.assert_array_equal(rollout.data["terminated"][t], terminated)
        np.testing.assert_array_equal(rollout.data["truncated"][t], truncated)
    np.testing.assert_array_equal(rollout.data["episode_start"][0], True)
    ended = rollout.data["terminated"] | rollout.data["truncated"]
    np.testing.assert_array_equal(rollout.data["episode_start"][1:], ended[:-1])


def test_first_observations_are_the_environments():
    # Fault 11: never zeros after a reset; and a second rollout goes on where the first one stopped.
    storage, env = RolloutStorage(4, 2, SPACE), Counter([3, 100])
    firsts = []
    for _ in range(2):
        while not storage.full:
            storage.add(*env.step())
        firsts.append(storage.get().data)
    np.testing.assert_array_equal(firsts[0]["observations"][:, 0, 1], [0, 1, 2, 0])
    np.testing.assert_array_equal(firsts[1]["observations"][:, 0, 1], [1, 2, 0, 1])
    np.testing.assert_array_equal(firsts[1]["episode_start"][:, 0], [False, False, True, False])
    np.testing.assert_array_equal(firsts[1]["observations"][:, 0, 0], 0)
    np.testing.assert_array_equal(firsts[1]["observations"][:, 1, 0], 1)


def test_rows_that_are_no_transitions():
    # NEXT_STEP autoreset: the row after an end is marked, and the episode starts behind it.
    storage = RolloutStorage(4, 1, SPACE)
    yes, no = np.array([True]), np.array([False])
    fields = {"observations": np.zeros((1, 2), np.float32), "actions": np.zeros(1, np.int32), "values": np.zeros(1)}
    storage.add(fields, no, no, yes, np.ones((1, 2)), yes)
    storage.add(fields, no, yes, yes, np.ones((1, 2)), no)
    storage.add(fields, no, no, no, np.ones((1, 2)), yes)
    storage.add(fields, no, no, no, np.ones((1, 2)), yes)
    rollout = storage.get()
    np.testing.assert_array_equal(rollout.data["valid"][:, 0], [True, False, True, True])
    np.testing.assert_array_equal(rollout.data["truncated"][:, 0], [True, False, False, False])
    np.testing.assert_array_equal(rollout.data["terminated"][:, 0], False)
    np.testing.assert_array_equal(rollout.data["episode_start"][:, 0], [True, True, True, False])
    np.testing.assert_array_equal(rollout.final_steps, [0])


class Summer(Component):
    """Takes long enough that a reader in the background would see what comes later."""

    @graph_fn
    def total(self, observations):
        result = ops.sum(observations)
        for _ in range(20):
            result = result + 0.0 * ops.sum(ops.sin(observations))
        return result


@pytest.mark.parametrize("backend", ["numpy", "torch", "jax", "tensorflow"])
def test_arrays_handed_out_are_never_refilled(backend):
    # JAX reads NumPy inputs in place and later; the next rollout must not change what is still being read.
    space = Dict(observations=FloatBox(shape=(64,)))
    tb = {"observations": FloatBox(shape=(64,), add_batch_rank=True, add_time_rank=True)}
    executor = build(Summer("summer"), tb, backend=backend)
    storage, results = RolloutStorage(20, 16, space), []
    for value in range(30):
        observations = np.full((16, 64), value, np.float32)
        flags = np.zeros(16, bool)
        while not storage.full:
            storage.add({"observations": observations}, flags, flags, flags, observations)
        results.append(executor.total(storage.get().data["observations"], as_numpy=False))
        observations[:] = -1.0
    np.testing.assert_allclose([float(x) for x in results], [20 * 16 * 64 * v for v in range(30)], rtol=1e-5)


def test_reset_starts_episodes_anew():
    storage, env = RolloutStorage(3, 2, SPACE), Counter([100, 100])
    storage.add(*env.step())
    storage.reset()
    assert len(storage) == 0
    env = Counter([100, 100])
    while not storage.full:
        storage.add(*env.step())
    np.testing.assert_array_equal(storage.get().data["episode_start"], [[True] * 2, [False] * 2, [False] * 2])


def test_mistakes_are_explained():
    storage, env = RolloutStorage(2, 1, SPACE), Counter([9])
    with pytest.raises(ExecutionError, match="0 of 2 steps"):
        storage.get()
    fields, *rest = env.step()
    with pytest.raises(ExecutionError, match="add 'actions'"):
        storage.add({"observations": fields["observations"], "values": fields["values"]}, *rest)
    with pytest.raises(ExecutionError, match="did you mean 'values'"):
        storage.add({**fields, "value": fields["values"]}, *rest)
    storage.add(fields, *rest)
    storage.add(fields, *rest)
    with pytest.raises(ExecutionError, match="complete rollout"):
        storage.add(fields, *rest)
    with pytest.raises(ConfigError, match="needs 'observations'"):
        RolloutStorage(2, 1, Dict(values=FloatBox()))
    with pytest.raises(ConfigError, match="take out"):
        RolloutStorage(2, 1, Dict(observations=FloatBox(), rewards=FloatBox()))
    with pytest.raises(ConfigError, match="1 step or more"):
        RolloutStorage(0, 1, SPACE)
