"""Log-probabilities against numerical integration: those of the policy's own numbers, whatever the box."""

import itertools

import numpy as np
import pytest

from rlweave.components import Beta, Policy, SquashedNormal, mlp
from rlweave.components.action_boundary import own_space
from rlweave.spaces import BoolBox, Dict, FloatBox, IntBox, Tuple
from rlweave.testing import ComponentTest

OBSERVATIONS = FloatBox(shape=(3,), add_batch_rank=True)
BOXES = [(-1, 1), (100, 200), (-1e-6, 1e-6), (-3e38, 3e38), (-0.01, 0.03), (1e6, 3e6)]


def log_probs(space, actions, squash=False):
    """Of the policy's own actions, at one observation: (N,)."""
    policy = Policy(mlp([4]), space, squash=squash, initial_log_std=-0.7)
    spaces = {"observations": OBSERVATIONS, "actions": own_space(policy.action_space, policy.leaves).with_batch_rank()}
    test = ComponentTest(policy, spaces, "numpy")
    observations = np.repeat(test.sample("observations", 1, seed=3), len(next(iter(flat(actions)))), 0)
    return test.test("log_prob_and_entropy", observations, actions)[0].astype(np.float64)


def flat(actions):
    return actions.values() if isinstance(actions, dict) else [actions]


@pytest.mark.parametrize("squash", [False, True])
@pytest.mark.parametrize("box", [*BOXES, (0, np.inf), (100, np.inf), (-np.inf, -3), (-np.inf, np.inf)], ids=str)
def test_the_density_of_floats_integrates_to_one(box, squash):
    inside = squash and np.isfinite(box).all()
    edge, n = (1, 20_000) if inside else (8, 4_000)
    own = ((np.arange(n) + 0.5) / n * 2 - 1) * edge
    density = np.exp(log_probs(FloatBox(*box), own.astype(np.float32), squash))
    assert density.mean() * 2 * edge == pytest.approx(1, rel=2e-3)


def test_the_probabilities_of_all_that_can_be_counted_sum_to_one():
    space = Dict(a=IntBox([-10, 3], [-8, 6]), b=Tuple(IntBox(2, 4), BoolBox()))
    every = list(itertools.product(range(2), range(3), range(2), [False, True]))
    a0, a1, b0, b1 = (np.array(column) for column in zip(*every, strict=True))
    actions = {
        "a": np.stack([a0, a1], 1).astype(np.int32),
        "b": (b0.astype(np.int32), b1),
    }
    policy = Policy(mlp([4]), space)
    test = ComponentTest(
        policy,
        {"observations": OBSERVATIONS, "actions": own_space(policy.action_space, policy.leaves).with_batch_rank()},
        "numpy",
    )
    observations = np.repeat(test.sample("observations", 1, seed=3), len(every), 0)
    found = test.test("log_prob_and_entropy", observations, actions)[0]
    assert np.exp(found.astype(np.float64)).sum() == pytest.approx(1, rel=1e-5)


@pytest.mark.parametrize("box", BOXES, ids=str)
def test_distributions_over_boxes_of_any_scale(box):
    """Beta counts in units of [0, 1], the squashed normal distribution in those of [-1, 1]; samples fill the box."""
    n, (low, high) = 4_000, box
    at = (np.arange(n) + 0.5) / n
    values = (low * (1 - at) + high * at).astype(np.float32)
    number = FloatBox(add_batch_rank=True)
    for component, parameters, width in (
        (Beta(*box), {"a": 2.0, "b": 1.5}, 1),
        (SquashedNormal(*box), {"mean": 0.3, "log_std": -0.5}, 2),
    ):
        names = (*parameters, "values", *(f"other_{name}" for name in parameters))
        test = ComponentTest(component, dict.fromkeys(names, number), "numpy", rng="portable")
        rows = [np.full(n, parameter, np.float32) for parameter in parameters.values()]
        density = np.exp(test.test("log_prob", *rows, values).astype(np.float64))
        assert density.mean() * width == pytest.approx(1, rel=5e-3)
        drawn = test.test("sample", *rows)
        assert FloatBox(*box).with_batch_rank().contains(drawn)
        own = (drawn.astype(np.float64) - low) / (float(high) - low)
        assert own.min() < 0.1
        assert own.max() > 0.95
        assert own.mean() == pytest.approx((density * at).sum() / density.sum(), abs=0.03)
