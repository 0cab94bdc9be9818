"""The squashed normal distribution: numerical integration, the edges of float32, and its bounds."""

import numpy as np
import pytest
from scipy import stats

from rlweave.components import SquashedNormal
from rlweave.errors import SpecError
from rlweave.spaces import FloatBox
from rlweave.testing import ComponentTest
from tests.components.gradient_probes import BACKENDS, DIFFERENTIABLE, input_gradients

LOW, HIGH = -1.0, 3.0


def squashed(backend, **options):
    box = FloatBox(add_batch_rank=True)
    names = ("mean", "log_std", "values", "other_mean", "other_log_std")
    return ComponentTest(SquashedNormal(LOW, HIGH), dict.fromkeys(names, box), backend, **options)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_density_is_that_of_the_transformed_variable(backend):
    # by the change of variables in float64, in units of [-1, 1]
    y = np.linspace(-0.98, 0.98, 401)
    mean, std = 0.4, 0.7
    expected = stats.norm.logpdf(np.arctanh(y), mean, std) - np.log1p(-(y**2))
    size = np.ones(401, np.float32)
    values = (LOW + (HIGH - LOW) * (y + 1) / 2).astype(np.float32)
    log_prob = squashed(backend).test("log_prob", mean * size, np.log(std) * size, values)
    np.testing.assert_allclose(log_prob, expected, rtol=1e-3, atol=1e-3)
    assert np.trapezoid(np.exp(log_prob), y) == pytest.approx(1, abs=0.01)
    # E[-log p] over the same grid is the entropy
    entropy = squashed(backend).test("entropy", mean * size[:1], np.log(std) * size[:1])
    fine = np.tanh(np.linspace(-8, 8, 20001))[1:-1]
    fine = fine[np.abs(fine) < 1]
    density = stats.norm.pdf(np.arctanh(fine), mean, std) / (1 - fine**2)
    assert entropy[0] == pytest.approx(-np.trapezoid(density * np.log(np.maximum(density, 1e-300)), fine), abs=2e-3)


@pytest.mark.parametrize("backend", BACKENDS)
def test_entropy_of_narrow_and_wide_distributions(backend):
    # E[log slope] on a fine grid in float64; the density of u beyond 12 standard deviations is nothing
    cases = [(m, s) for m in (0.0, 0.5, -3.0, 40.0) for s in (-4.0, -1.0, -0.01, 0.01, 1.0, 2.0, 3.0, 4.0)]
    expected = []
    for mean, log_std in cases:
        u = mean + np.exp(log_std) * np.linspace(-12, 12, 200_001)
        slope = 2 * (np.log(2) - u - np.logaddexp(0, -2 * u))
        density = stats.norm.pdf(u, mean, np.exp(log_std))
        expected.append(stats.norm.entropy(mean, np.exp(log_std)) + np.trapezoid(density * slope, u))
    means, log_stds = (np.array(x, np.float32) for x in zip(*cases, strict=True))
    found = squashed(backend).test("entropy", means, log_stds)
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=5e-4)


@pytest.mark.parametrize("backend", BACKENDS)
def test_samples_lie_in_the_box_and_know_their_log_prob(backend):
    rng = np.random.default_rng(0)
    mean = rng.normal(size=2000).astype(np.float32)
    log_std = rng.uniform(-1.5, 0.3, 2000).astype(np.float32)
    test = squashed(backend, rng="portable")
    actions, log_prob = test.test("sample_and_log_prob", mean, log_std)
    assert ((actions >= LOW) & (actions <= HIGH)).all()
    inside = np.abs((actions - 1) / 2) < 0.99  # nearer to a bound the action has lost digits of the number before tanh
    again = test.test("log_prob", mean, log_std, actions)
    np.testing.assert_allclose(again[inside], log_prob[inside], rtol=2e-3, atol=2e-3)
    u = np.arctanh(np.clip((actions.astype(np.float64) - 1) / 2, -1 + 1e-7, 1 - 1e-7))
    assert stats.kstest(((u - mean) / np.exp(log_std))[inside], "norm").statistic < 0.05
    test.test("mode", mean, log_std, expected=1 + 2 * np.tanh(mean))


@pytest.mark.parametrize("backend", DIFFERENTIABLE)
def test_saturation_is_finite(backend):
    # Fault 13: tanh(10) is 1 in float32; actions at the bounds come from elsewhere and are clipped.
    inputs = {"mean": [[10.0, -1000.0, 0.0, 0.0]], "log_std": [[-5.0, 0.0, 1000.0, -1000.0]]}
    for call in (
        lambda c, x: c.sample_and_log_prob(x["mean"], x["log_std"])[1],
        lambda c, x: c.log_prob(x["mean"], x["log_std"], np.array([[HIGH, LOW, HIGH + 1, LOW - 1]], np.float32)),
        lambda c, x: c.entropy(x["mean"], x["log_std"]),
        lambda c, x: c.sample(x["mean"], x["log_std"]),
    ):
        total, found = input_gradients(SquashedNormal(LOW, HIGH), call, inputs, backend)
        assert np.isfinite(total)
        assert all(np.isfinite(gradient).all() for gradient in found.values())


@pytest.mark.parametrize("backend", BACKENDS)
def test_kl_is_that_of_the_numbers_before_tanh(backend):
    p, q = (0.3, 0.5), (-0.2, 0.9)
    expected = np.log(q[1] / p[1]) + (p[1] ** 2 + (p[0] - q[0]) ** 2) / (2 * q[1] ** 2) - 0.5
    arrays = [np.array([x], np.float32) for x in (p[0], np.log(p[1]), q[0], np.log(q[1]))]
    squashed(backend).test("kl", *arrays, expected=np.array([expected]), rtol=1e-5)


@pytest.mark.parametrize("bounds", [(1.0, 1.0), (2.0, 1.0), (0.0, float("inf"))])
def test_a_box_without_bounds_is_refused(bounds):
    with pytest.raises(SpecError, match="needs a bounded box"):
        SquashedNormal(*bounds)
