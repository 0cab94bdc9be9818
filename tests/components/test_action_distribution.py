import itertools

import numpy as np
import pytest

from rlweave.components import Joint
from rlweave.errors import SpaceError
from rlweave.graph import from_spec, to_spec
from rlweave.spaces import BoolBox, Dict, FloatBox, IntBox, TextBox, Tuple
from rlweave.testing import ComponentTest
from tests.components.gradient_probes import BACKENDS, DIFFERENTIABLE, input_gradients

INF = float("inf")


def parameter_space(space):
    """Spaces of the parameters that a policy hands to `Joint`."""

    def of(leaf):
        if isinstance(leaf, IntBox):
            sizes = leaf.last - leaf.low + 1
            return FloatBox(shape=(*leaf.shape, int(sizes.max())))
        if isinstance(leaf, BoolBox):
            return FloatBox(shape=leaf.shape)
        return Dict(mean=FloatBox(shape=leaf.shape), log_std=FloatBox(shape=leaf.shape))

    return space.map(of).with_batch_rank()


def joint(space, backend="numpy", squash=False, **options):
    parameters = parameter_space(space)
    spaces = {"parameters": parameters, "others": parameters, "actions": space.map(_index).with_batch_rank()}
    return ComponentTest(Joint(space, squash), spaces, backend, **options)


def _index(leaf):
    return IntBox(high=leaf.last - leaf.low + 1, shape=leaf.shape) if isinstance(leaf, IntBox) else leaf


NESTED = Dict(
    move=IntBox(3),
    arm=Tuple(FloatBox(-1, 1, shape=(2,)), BoolBox(shape=(2,))),
    mode=IntBox(2, shape=(2, 2)),
    on=BoolBox(),
)


@pytest.mark.parametrize("backend", BACKENDS)
def test_log_prob_and_entropy_are_sums_over_leaves_and_components(backend):
    test = joint(NESTED, backend)
    p, actions = test.sample("parameters", 4, seed=1), test.sample("actions", 4, seed=2)

    def log_softmax(x):
        return x - np.log(np.exp(x).sum(-1, keepdims=True))

    def bernoulli(x, a):
        return np.where(a, -np.log1p(np.exp(-x)), -np.log1p(np.exp(x)))

    def entropy_of(log_p):
        return -(np.exp(log_p) * log_p).sum(-1)

    def binary_entropy(x):
        q = 1 / (1 + np.exp(-x))
        return -(q * np.log(q) + (1 - q) * np.log(1 - q))

    normal = p["arm"][0]
    z = (actions["arm"][0] - normal["mean"]) / np.exp(normal["log_std"])
    density = -0.5 * z * z - normal["log_std"] - 0.5 * np.log(2 * np.pi)
    move, mode = log_softmax(p["move"]), log_softmax(p["mode"])
    log_prob = (
        move[np.arange(4), actions["move"]]
        + np.take_along_axis(mode, actions["mode"][..., None], -1)[..., 0].sum((1, 2))
        + density.sum(1)
        + bernoulli(p["arm"][1], actions["arm"][1]).sum(1)
        + bernoulli(p["on"], actions["on"])
    )
    entropy = (
        entropy_of(move)
        + entropy_of(mode).sum((1, 2))
        + (normal["log_std"] + 0.5 * np.log(2 * np.pi * np.e)).sum(1)
        + binary_entropy(p["arm"][1]).sum(1)
        + binary_entropy(p["on"])
    )
    test.test("log_prob", p, actions, expected=log_prob, rtol=1e-4)
    test.test("entropy", p, expected=entropy, rtol=1e-4)
    test.test("log_prob_and_entropy", p, actions, expected=(log_prob, entropy), rtol=1e-4)
    test.test("kl", p, p, expected=np.zeros(4), atol=1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("squash", [False, True])
def test_a_sample_has_the_log_prob_that_it_came_with(backend, squash):
    # one draw for all: close to its bounds, where some draws lie, an action no longer says what it was drawn from
    test = joint(NESTED, backend, squash, rng="portable")
    p = test.sample("parameters", 6, seed=1)
    actions, log_prob = test.test("sample_and_log_prob", p)
    test.test("log_prob", p, actions, expected=log_prob, rtol=1e-3, atol=1e-3)
    mode, log_prob = test.test("mode_and_log_prob", p)
    test.test("log_prob", p, mode, expected=log_prob, rtol=1e-3, atol=1e-3)
    test.test("mode", p, expected=mode)
    assert {path: (x.dtype.name, x.shape) for path, x in NESTED.flatten_value(actions).items()} == {
        path: (leaf.dtype, (6, *leaf.shape)) for path, leaf in NESTED.flatten().items()
    }


@pytest.mark.parametrize("backend", BACKENDS)
def test_different_numbers_of_categories(backend):
    """Probabilities of all existing joint actions sum to 1, and no other is drawn."""
    space = IntBox(high=[2, 3])
    logits = np.random.default_rng(0).normal(size=(1, 2, 3)).astype(np.float32)
    logits[0, 0, 2] = -1e9  # as a policy hands them over
    test = joint(space, backend, rng="portable")
    every = np.array(list(itertools.product(range(2), range(3))), np.int32)
    log_probs = test.test("log_prob", np.repeat(logits, 6, 0), every)
    np.testing.assert_allclose(np.exp(log_probs).sum(), 1, rtol=1e-5)
    draws = test.test("sample", np.repeat(logits, 5000, 0))
    frequencies = [np.mean(np.all(draws == action, axis=1)) for action in every]
    np.testing.assert_allclose(frequencies, np.exp(log_probs), atol=0.025)


@pytest.mark.parametrize("backend", BACKENDS)
def test_environment_actions_and_back(backend):
    space = Dict(
        bounded=FloatBox([-1, 2, -INF, 100, 3], [1, 2, 3, INF, 7]),
        free=FloatBox(shape=(2,)),
        start=IntBox(-1, 2),
        many=IntBox([5, 0], [7, 3]),
        plain=IntBox(3),
        flag=BoolBox(),
        none=FloatBox(0, 1, shape=(0,)),
    )
    actions = {
        "bounded": np.array([[-7, 9, -1e6, -4, -0.5], [0.5, 0, 8, 1, 2]], np.float32),
        "free": np.array([[1e9, -1e9]] * 2, np.float32),
        "start": np.array([0, 2], np.int32),
        "many": np.array([[0, 2], [1, 0]], np.int32),
        "plain": np.array([2, 0], np.int32),
        "flag": np.array([True, False]),
        "none": np.zeros((2, 0), np.float32),
    }
    expected = {
        **actions,
        "bounded": np.array([[-1, 2, -1e6, 100, 4], [0.5, 2, 3, 101, 7]]),
        "start": np.array([-1, 1]),
        "many": np.array([[5, 2], [6, 0]]),
    }
    test = joint(space, backend)
    result = test.test("env_actions", actions, expected=expected)
    assert space.with_batch_rank().contains(result)
    # what was clipped comes back as the bound, what has but one value as 0
    own = {**actions, "bounded": np.array([[-1, 0, -1e6, 0, -0.5], [0.5, 0, 3, 1, 1]])}
    test.test("own_actions", result, expected=own)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_policys_numbers_cover_boxes_of_any_scale(backend):
    low = [-1e-6, 1e6, -3e38, 100, -0.01, 5, -3.4e38, 0.1]
    high = [1e-6, 3e6, 3e38, 200, 0.01, 5, 1e38, 0.3]
    space = FloatBox(low, high)
    own = np.linspace(-1.5, 1.5, 301, dtype=np.float32)[:, None].repeat(len(low), 1)
    actions = joint(space, backend).test("env_actions", own)
    assert space.with_batch_rank().contains(actions)
    np.testing.assert_allclose(actions.min(0), space.low, rtol=1e-6)
    np.testing.assert_allclose(actions.max(0), space.high, rtol=1e-6)
    half = space.high.astype(np.float64) / 2 - space.low.astype(np.float64) / 2
    steps = np.diff(actions.astype(np.float64), axis=0)[60:240] / np.where(half > 0, half, 1)
    # even steps, as far as float32 tells such numbers apart
    np.testing.assert_allclose(steps[:, half > 0], 0.01, rtol=0.02, atol=2e-5)


# -- squashed normal -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", DIFFERENTIABLE)
def test_a_saturated_sample_has_a_finite_log_prob(backend):
    """At u = 10 tanh(u) is 1.0 in float32; the density is taken at u: log N(u) - 2 (log 2 - u - softplus(-2u))."""
    inputs = {"mean": [[10.0]], "log_std": [[-20.0]]}
    total, found = input_gradients(
        Joint(FloatBox(-1, 1, shape=(1,)), squash=True), lambda c, x: c.sample_and_log_prob(x)[1], inputs, backend
    )
    slope = 2 * (np.log(2) - 10 - np.log1p(np.exp(-20.0)))
    assert np.isfinite(total)
    assert total + slope > 20 - 0.5 * 36 - 0.92  # a normal density at -20 with a draw within 6 standard deviations
    assert all(np.isfinite(gradient).all() for gradient in found.values())


@pytest.mark.parametrize("backend", BACKENDS)
def test_squashed_actions_at_the_bounds_are_clipped(backend):
    test = joint(FloatBox(-2, 4, shape=(1,)), backend, squash=True)
    p = {"mean": np.zeros((3, 1), np.float32), "log_std": np.zeros((3, 1), np.float32)}
    log_prob = test.test("log_prob", p, np.array([[-1], [1], [99]], np.float32))
    assert np.isfinite(log_prob).all()
    np.testing.assert_allclose(log_prob, log_prob[0], rtol=1e-3)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_squashed_density_integrates_to_one_before_scaling(backend):
    test = joint(FloatBox(3, 7, shape=(1,)), backend, squash=True)
    y = (np.arange(4000) + 0.5) / 2000 - 1
    p = {"mean": np.full((4000, 1), 0.3, np.float32), "log_std": np.full((4000, 1), -0.5, np.float32)}
    density = np.exp(test.test("log_prob", p, y[:, None].astype(np.float32)).astype(np.float64))
    assert density.mean() * 2 == pytest.approx(1, rel=1e-3)
    entropy = -(density * np.log(np.maximum(density, 1e-30))).mean() * 2
    assert test.test("entropy", p)[0] == pytest.approx(entropy, abs=2e-3)


@pytest.mark.parametrize("backend", BACKENDS)
def test_only_dimensions_with_two_bounds_are_squashed(backend):
    space = FloatBox([-1, -INF, 0, 2], [1, INF, INF, 2])
    test = joint(space, backend, squash=True)
    p = {"mean": np.full((1, 4), 5, np.float32), "log_std": np.zeros((1, 4), np.float32)}
    test.test("mode", p, expected=np.array([[np.tanh(5.0), 5, 5, np.tanh(5.0)]]))
    actions = np.array([[0.5, 7, 6, 0.5]], np.float32)

    def normal(u):
        return -0.5 * (u - 5) ** 2 - 0.5 * np.log(2 * np.pi)

    # a dimension with low == high is a constant to the environment; the policy has a number for it nevertheless
    squashed = normal(np.arctanh(0.5)) - np.log(1 - 0.25)
    expected = 2 * squashed + normal(7) + normal(6)
    test.test("log_prob", p, actions, expected=np.array([expected]), rtol=1e-4)
    entropy = test.test("entropy", p)
    assert np.isfinite(entropy).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_squashed_samples_lie_in_the_box(backend):
    space = FloatBox([-1, 0, 2], [1, 0.5, 2])
    test = joint(space, backend, squash=True, rng="portable")
    p = {"mean": np.zeros((500, 3), np.float32), "log_std": np.ones((500, 3), np.float32)}
    draws = test.test("sample", p)
    assert np.abs(draws).max() <= 1
    assert np.abs(draws).max(0).min() > 0.95
    assert space.with_batch_rank().contains(test.test("env_actions", draws))


@pytest.mark.parametrize(
    ("space", "hint"),
    [
        (Dict(), "without actions"),
        (IntBox(), "range"),
        (IntBox(0, 10**6), "at most"),
        (TextBox(3), "no policy"),
        (Dict(a=IntBox(2), b=IntBox()), "action 'b'"),
    ],
    ids=str,
)
def test_impossible_action_spaces_are_explained(space, hint):
    with pytest.raises(SpaceError, match=hint):
        Joint(space)


def test_specs_round_trip():
    made = Joint(NESTED, squash=True)
    assert from_spec(to_spec(made)).leaves == made.leaves
