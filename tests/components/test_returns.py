"""Returns: oracles, a float64 loop on random flags, the split law and the faults of episode ends, on all backends."""

import numpy as np
import pytest

from rlweave.components.losses.ppo import normalized
from rlweave.components.returns import (
    GeneralizedAdvantageEstimation,
    discounted_returns,
    generalized_advantages,
    n_step_returns,
    next_state_values,
    td_errors,
)
from rlweave.errors import ConfigError
from rlweave.graph import Component, build, graph_fn
from rlweave.spaces import BoolBox, FloatBox
from rlweave.testing import ComponentTest

BACKENDS = ("numpy", "torch", "jax", "tensorflow")
FLOAT = FloatBox(add_batch_rank=True, add_time_rank=True)
FLAG = BoolBox(add_batch_rank=True, add_time_rank=True)
SPACES = {"rewards": FLOAT, "values": FLOAT, "next_values": FLOAT, "terminated": FLAG, "truncated": FLAG}


class Estimators(Component):
    """All functions of the module as graph functions."""

    def __init__(self, discount, lambda_, n):
        super().__init__("estimators")
        self.discount, self.lambda_, self.n = discount, lambda_, n

    @graph_fn(returns=4)
    def estimate(self, rewards, values, next_values, terminated, truncated):
        advantages, _ = generalized_advantages(
            rewards, values, next_values, terminated, truncated, self.discount, self.lambda_
        )
        flags = (terminated, truncated, self.discount)
        return (
            td_errors(rewards, values, next_values, terminated, self.discount),
            advantages,
            discounted_returns(rewards, next_values, *flags),
            n_step_returns(rewards, next_values, *flags, self.n),
        )


def brute_force(data, discount, lambda_, n):
    """The same four results by loops in float64, straight from the definitions."""
    rewards, values, next_values = (np.asarray(data[k], np.float64) for k in ("rewards", "values", "next_values"))
    terminated, ended = data["terminated"], data["terminated"] | data["truncated"]
    T, B = rewards.shape
    td, gae, total, n_step = (np.zeros((T, B)) for _ in range(4))
    for b in range(B):
        for t in range(T):
            boot = 0.0 if terminated[t, b] else next_values[t, b]
            td[t, b] = rewards[t, b] + discount * boot - values[t, b]
        for t in range(T):
            factor = 1.0
            for k in range(t, T):
                gae[t, b] += factor * td[k, b]
                factor *= discount * lambda_
                if ended[k, b]:
                    break
            for result, limit in ((total, T), (n_step, n)):
                factor = 1.0
                for k in range(t, min(t + limit, T)):
                    result[t, b] += factor * rewards[k, b]
                    factor *= discount
                    if ended[k, b] or k == min(t + limit, T) - 1:
                        result[t, b] += 0.0 if terminated[k, b] else factor * next_values[k, b]
                        break
    return td, gae, total, n_step


def random_data(rng, T, B, chance=0.2):
    """Random trajectories; some steps are both terminated and truncated."""
    return {
        "rewards": rng.normal(size=(T, B)).astype(np.float32),
        "values": rng.normal(size=(T, B)).astype(np.float32),
        "next_values": rng.normal(size=(T, B)).astype(np.float32),
        "terminated": rng.random((T, B)) < chance,
        "truncated": rng.random((T, B)) < chance,
    }


def column(*numbers, kind=np.float32):
    return np.array(numbers, kind)[:, None]


def trajectory(rewards, values, last_value, terminated=(), truncated=()):
    """One trajectory (T, 1) whose next values are the values one step later."""
    T = len(rewards)
    return {
        "rewards": column(*rewards),
        "values": column(*values),
        "next_values": column(*values[1:], last_value),
        "terminated": column(*(t in terminated for t in range(T)), kind=bool),
        "truncated": column(*(t in truncated for t in range(T)), kind=bool),
    }


@pytest.fixture(scope="module", params=BACKENDS)
def backend(request):
    return request.param


def gae_of(backend, data, discount=0.99, lambda_=0.95):
    test = ComponentTest(GeneralizedAdvantageEstimation(discount, lambda_), SPACES, backend=backend)
    return test.test("estimate", **data)


def test_gae_has_the_known_numbers(backend):
    advantages, targets = gae_of(backend, trajectory([0.1, 0.2, 0.3], [1, 2, 3], 3), 0.99, 0.5)
    np.testing.assert_allclose(advantages[:, 0], [1.7253068, 1.30365, 0.27], rtol=1e-5)
    np.testing.assert_allclose(targets[:, 0], [2.7253068, 3.30365, 3.27], rtol=1e-5)


def test_lambda_zero_gives_the_td_errors(backend):
    data = trajectory([0, 0, 0, 0], [1, 2, 3, 4], 4)
    np.testing.assert_allclose(gae_of(backend, data, 0.99, 0.0)[0][:, 0], [0.98, 0.97, 0.96, -0.04], atol=1e-6)
    data = trajectory([0, 0, 0, 0], [1, 2, 3, 4], 4, terminated=(3,))
    np.testing.assert_allclose(gae_of(backend, data, 0.99, 0.0)[0][:, 0], [0.98, 0.97, 0.96, -4.0], atol=1e-6)


def test_every_estimator_equals_a_loop_on_random_flags(backend):
    rng = np.random.default_rng(1)
    executor = build(Estimators(0.97, 0.9, 3), SPACES, backend=backend)
    for T, B in ((1, 1), (2, 3), (9, 4), (33, 2)):
        data = random_data(rng, T, B)
        results = executor.estimate(**data)
        for result, expected in zip(results, brute_force(data, 0.97, 0.9, 3), strict=True):
            assert result.dtype == np.float32
            np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


def test_split_law(backend):
    # Trajectories glued along time (their ends flagged) give the results of each one alone, glued together.
    rng = np.random.default_rng(2)
    executor = build(Estimators(0.97, 0.9, 3), SPACES, backend=backend)
    lengths = (1, 7, 4, 11)
    parts = [random_data(rng, length, 3) for length in lengths]
    for part in parts:
        part["terminated"][-1] = rng.random(3) < 0.5
        part["truncated"][-1] = ~part["terminated"][-1] | (rng.random(3) < 0.5)
    glued = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    alone = [executor.estimate(**part) for part in parts]
    for i, whole in enumerate(executor.estimate(**glued)):
        np.testing.assert_allclose(whole, np.concatenate([result[i] for result in alone]), rtol=1e-5, atol=1e-6)


def test_n_step_oracle():
    zeros, no = np.zeros((5, 1), np.float32), np.zeros((5, 1), bool)
    rewards = column(1, 2, 3, 4, 5)
    np.testing.assert_allclose(
        n_step_returns(rewards, zeros, no, no, 0.9, 3)[:, 0], [5.23, 7.94, 10.65, 8.5, 5.0], rtol=1e-6
    )
    # bootstrap factors are g^(steps used)
    ones = np.ones((5, 1), np.float32)
    difference = n_step_returns(rewards, ones, no, no, 0.9, 3) - n_step_returns(rewards, zeros, no, no, 0.9, 3)
    np.testing.assert_allclose(difference[:, 0], [0.9**3, 0.9**3, 0.9**3, 0.9**2, 0.9], rtol=1e-5)


def test_lambda_one_gives_the_discounted_returns_minus_the_values():
    data = random_data(np.random.default_rng(3), 20, 4)
    data["next_values"][:-1] = np.where(data["truncated"][:-1], data["next_values"][:-1], data["values"][1:])
    advantages, _ = generalized_advantages(**data, discount=0.95, lambda_=1.0)
    returns = discounted_returns(data["rewards"], data["next_values"], data["terminated"], data["truncated"], 0.95)
    np.testing.assert_allclose(advantages, returns - data["values"], rtol=1e-4, atol=1e-5)


def test_constant_reward_truncated_every_five_steps(backend):
    # Fault 1: at a truncated step the error uses g V(final observation), and the recursion is cut there.
    T, g, lam = 10, 0.99, 0.9
    data = trajectory([1] * T, [10] * T, 10, truncated=(4, 9))
    delta = 1 + g * 10 - 10
    expected = [delta * sum((g * lam) ** k for k in range(5 - t % 5)) for t in range(T)]
    np.testing.assert_allclose(gae_of(backend, data, g, lam)[0][:, 0], expected, rtol=1e-5)
    data = trajectory([1] * T, [10] * T, 10, terminated=(4, 9))
    np.testing.assert_allclose(gae_of(backend, data, g, lam)[0][[4, 9], 0], [-9, -9], rtol=1e-6)


def test_terminated_wins_over_truncated(backend):
    # Fault 2, with a next value that must not be looked at.
    data = trajectory([1.0, 1.0], [2.0, 2.0], np.nan, terminated=(1,), truncated=(1,))
    np.testing.assert_allclose(gae_of(backend, data, 0.5, 0.5)[0][:, 0], [0.0 - 0.25, -1.0], rtol=1e-6)


def test_inputs_are_left_alone():
    # Fault 3: nothing is added to the stored rewards.
    data = random_data(np.random.default_rng(4), 6, 2)
    before = {key: value.copy() for key, value in data.items()}
    generalized_advantages(**data, discount=0.9, lambda_=0.9)
    n_step_returns(data["rewards"], data["next_values"], data["terminated"], data["truncated"], 0.9, 3)
    for key, value in data.items():
        np.testing.assert_array_equal(value, before[key])


def test_bootstrap_is_from_the_observation_after_the_action():
    # Fault 4: V(s) is the step index; the episode 0, 1, 2 is truncated after its third step, in state 3.
    values, truncated = column(0, 1, 2, 0, 1), column(False, False, True, False, False, kind=bool)
    final_values = column(np.nan, np.nan, 3, np.nan, np.nan)
    following = next_state_values(values, np.array([2.0], np.float32), truncated, final_values)
    np.testing.assert_array_equal(following[:, 0], [1, 2, 3, 1, 2])
    zeros = np.zeros_like(values)
    errors = td_errors(zeros, values, following, np.zeros_like(truncated), 1.0)
    np.testing.assert_array_equal(errors[:, 0], [1, 1, 1, 1, 1])


def test_episode_in_two_fragments():
    # Fault 10: the reward of the last step counts, and the fragment's end invents no end of the episode.
    first = trajectory([0, 0], [0.5, 0.5], 0.5)
    second = trajectory([0, 1], [0.5, 0.5], 0.0, terminated=(1,))
    one, _ = generalized_advantages(**first, discount=1.0, lambda_=1.0)
    two, _ = generalized_advantages(**second, discount=1.0, lambda_=1.0)
    np.testing.assert_allclose(one[:, 0], [0.0, 0.0])
    np.testing.assert_allclose(two[:, 0], [0.5, 0.5])


def test_normalized_advantages():
    # Fault 16.
    rng = np.random.default_rng(5)
    x = rng.normal(3.0, 5.0, (20, 4)).astype(np.float32)
    y = normalized(x)
    assert abs(y.mean()) < 1e-6
    assert abs(y.std() - 1.0) < 1e-5
    np.testing.assert_array_equal(normalized(np.full((8,), 2.5, np.float32)), np.zeros(8))
    np.testing.assert_array_equal(normalized(np.array([2.5], np.float32)), [0.0])  # PPO refuses minibatches of one


def test_out_of_range_settings_are_refused():
    with pytest.raises(ConfigError, match="discount is out of range"):
        GeneralizedAdvantageEstimation(discount=1.5)
    with pytest.raises(ConfigError, match="lambda_ is out of range"):
        GeneralizedAdvantageEstimation(lambda_=-0.1)
