"""V-trace: the oracle, a float64 loop on random flags, the split law and its limits, on all backends."""

import numpy as np
import pytest

from rlweave.components import VTrace
from rlweave.components.returns import discounted_returns
from rlweave.errors import BuildError, ConfigError
from rlweave.spaces import BoolBox, FloatBox
from rlweave.testing import ComponentTest

FLOAT = FloatBox(add_batch_rank=True, add_time_rank=True)
FLAG = BoolBox(add_batch_rank=True, add_time_rank=True)
NAMES = ("target_log_probs", "behaviour_log_probs", "rewards", "values", "next_values")
SPACES = {**dict.fromkeys(NAMES, FLOAT), "terminated": FLAG, "truncated": FLAG}


@pytest.fixture(scope="module", params=("numpy", "torch", "jax", "tensorflow"))
def backend(request):
    return request.param


def estimate(backend, data, **options):
    return ComponentTest(VTrace(**options), SPACES, backend=backend).test("estimate", **data)


def random_data(rng, T, B, chance=0.2):
    data = {name: rng.normal(size=(T, B)).astype(np.float32) for name in NAMES}
    data["target_log_probs"] = np.log(rng.uniform(0.05, 1, (T, B))).astype(np.float32)
    data["behaviour_log_probs"] = np.log(rng.uniform(0.05, 1, (T, B))).astype(np.float32)
    return {**data, "terminated": rng.random((T, B)) < chance, "truncated": rng.random((T, B)) < chance}


def brute_force(data, discount, rho_clip, c_clip, policy_rho_clip, lambda_):
    """Equation 1 of the paper by its sum over s and product over i, one element at a time, in float64."""
    x = {name: np.asarray(data[name], np.float64) for name in NAMES}
    terminated, ended = data["terminated"], data["terminated"] | data["truncated"]
    ratios = np.exp(x["target_log_probs"] - x["behaviour_log_probs"])
    T, B = ratios.shape
    rho = np.minimum(ratios, np.inf if rho_clip is None else rho_clip)
    targets, advantages = np.zeros((T, B)), np.zeros((T, B))
    for b in range(B):
        for s in range(T):
            targets[s, b], trace = x["values"][s, b], 1.0
            for t in range(s, T):
                after = 0.0 if terminated[t, b] else x["next_values"][t, b]
                targets[s, b] += trace * rho[t, b] * (x["rewards"][t, b] + discount * after - x["values"][t, b])
                if ended[t, b]:
                    break
                trace *= discount * lambda_ * min(c_clip, ratios[t, b])
        for s in range(T):
            after = targets[s + 1, b] if s + 1 < T and not ended[s, b] else x["next_values"][s, b]
            after = 0.0 if terminated[s, b] else after
            weight = ratios[s, b] if policy_rho_clip is None else min(policy_rho_clip, ratios[s, b])
            advantages[s, b] = weight * (x["rewards"][s, b] + discount * after - x["values"][s, b])
    return targets, advantages, ratios


def test_the_known_numbers(backend):
    def log_softmax(logits):
        return logits - np.log(np.exp(logits).sum(-1, keepdims=True))

    target = log_softmax(np.array([[[0, 1], [1, 0]], [[0.5, 0.5], [0, 2]], [[2, 0], [0, 0]]], np.float64))
    behaviour = log_softmax(np.array([[[0, 0], [0, 0]], [[0, 1], [1, 1]], [[0, 0], [0, 1]]], np.float64))
    actions = np.array([[1, 1], [0, 1], [0, 1]])[..., None]
    values = np.array([[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]], np.float32)
    data = {
        "target_log_probs": np.take_along_axis(target, actions, -1)[..., 0].astype(np.float32),
        "behaviour_log_probs": np.take_along_axis(behaviour, actions, -1)[..., 0].astype(np.float32),
        "rewards": np.array([[1, 0], [0.5, -1], [0, 2]], np.float32),
        "values": values,
        "next_values": np.concatenate([values[1:], np.array([[0.7, 0.8]], np.float32)]),
        "terminated": np.array([[False, False], [False, True], [False, False]]),  # the discount of 0
        "truncated": np.zeros((3, 2), bool),
    }
    targets, advantages, ratios = estimate(backend, data, discount=0.9)
    np.testing.assert_allclose(ratios, [[1.4621172, 0.5378828], [1.8591409, 1.7615942], [1.7615942, 0.6839397]], 1e-5)
    np.testing.assert_allclose(targets, [[1.9603, -0.3916711], [1.067, -1.0], [0.63, 2.0499522]], 1e-5)
    np.testing.assert_allclose(advantages, [[1.8603, -0.5916711], [0.767, -1.4], [0.13, 1.4499522]], 1e-5)


@pytest.mark.parametrize("clips", [(1.0, 1.0, 1.0, 1.0), (None, 2.0, None, 0.7), (3.0, 0.5, 2.0, 1.0)])
def test_equals_the_sum_of_the_paper_on_random_flags(backend, clips):
    options = dict(zip(("rho_clip", "c_clip", "policy_rho_clip", "lambda_"), clips, strict=True))
    rng = np.random.default_rng(1)
    test = ComponentTest(VTrace(0.93, **options), SPACES, backend=backend)
    for T, B in ((1, 1), (2, 3), (17, 4)):
        data = random_data(rng, T, B)
        for found, expected in zip(test.test("estimate", **data), brute_force(data, 0.93, *clips), strict=True):
            assert found.dtype == np.float32
            np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-5)


def test_split_law(backend):
    rng = np.random.default_rng(2)
    test = ComponentTest(VTrace(0.95, rho_clip=2.0), SPACES, backend=backend)
    parts = [random_data(rng, length, 3) for length in (1, 7, 4, 11)]
    for part in parts:
        part["terminated"][-1] = rng.random(3) < 0.5
        part["truncated"][-1] = ~part["terminated"][-1] | (rng.random(3) < 0.5)
    glued = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    alone = [test.test("estimate", **part) for part in parts]
    for i, whole in enumerate(test.test("estimate", **glued)):
        np.testing.assert_allclose(whole, np.concatenate([result[i] for result in alone]), rtol=1e-5, atol=1e-6)


def test_on_policy_it_is_the_discounted_return(backend):
    # Remark 1: with mu = pi the targets are the n-step returns; a truncated row's next value counts as it stands.
    data = random_data(np.random.default_rng(3), 12, 3)
    data["behaviour_log_probs"] = data["target_log_probs"]
    data["next_values"][:-1] = np.where(data["truncated"][:-1], data["next_values"][:-1], data["values"][1:])
    targets, _, ratios = estimate(backend, data, discount=0.9)
    np.testing.assert_array_equal(ratios, 1)
    expected = discounted_returns(data["rewards"], data["next_values"], data["terminated"], data["truncated"], 0.9)
    np.testing.assert_allclose(targets, expected, rtol=1e-4, atol=1e-5)


def test_a_terminal_next_value_is_not_looked_at(backend):
    data = {name: np.zeros((2, 1), np.float32) for name in NAMES}
    data |= {"terminated": np.array([[False], [True]]), "truncated": np.zeros((2, 1), bool)}
    data["rewards"][:] = 1.0
    data["next_values"][1] = np.nan
    targets, advantages, _ = estimate(backend, data, discount=0.5)
    np.testing.assert_allclose(targets, [[1.5], [1.0]])
    np.testing.assert_allclose(advantages, [[1.5], [1.0]])


def test_a_ratio_beyond_all_bounds_stays_finite(backend):
    data = random_data(np.random.default_rng(4), 5, 2, chance=0.5)
    data["target_log_probs"][:], data["behaviour_log_probs"][:] = 0.0, -1e9  # as a masked action has it
    for found in estimate(backend, data, discount=0.9, rho_clip=None, policy_rho_clip=None):
        assert np.isfinite(found).all()


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"discount": 1.1}, "discount is out of range"),
        ({"lambda_": -0.1}, "lambda_ is out of range"),
        ({"c_clip": 0.0}, "c_clip is out of range"),
        ({"rho_clip": 1.0, "c_clip": 2.0}, "contracts only with c_clip <= rho_clip"),
    ],
)
def test_numbers_out_of_range_are_refused(options, what):
    with pytest.raises((BuildError, ConfigError), match=what):
        VTrace(**options)
