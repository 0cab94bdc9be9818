"""The Beta distribution against SciPy and against numerical integration."""

import numpy as np
import pytest
from scipy import special, stats

from rlweave.components import Beta
from rlweave.components.beta import EDGE, digamma, log_beta
from rlweave.errors import SpecError
from rlweave.spaces import FloatBox
from rlweave.testing import ComponentTest
from tests.components.gradient_probes import BACKENDS, DIFFERENTIABLE, input_gradients

A = np.array([[0.01, 0.5, 1.0, 2.0, 7.3, 30.0, 300.0, 900.0, 0.3, 5.0]], np.float32)
B = np.array([[0.02, 0.5, 1.0, 5.0, 1.2, 40.0, 20.0, 800.0, 900.0, 11.9]], np.float32)


def beta(backend, low=0.0, high=1.0, **options):
    box = FloatBox(shape=(A.shape[1],), add_batch_rank=True)
    names = ("a", "b", "values", "other_a", "other_b")
    return ComponentTest(Beta(low, high), dict.fromkeys(names, box), backend, **options)


@pytest.mark.parametrize("backend", BACKENDS)
def test_closed_forms(backend):
    test = beta(backend)
    a, b = A.astype(np.float64), B.astype(np.float64)
    values = np.array([[0.3, 0.9, 0.2, 0.01, 0.99, 0.4, 0.93, 0.53, 0.001, 0.5]], np.float32)
    expected = stats.beta.logpdf(values.astype(np.float64), a, b)
    found = test.test("log_prob", A, B, values, expected=expected, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(found[:, :7], expected[:, :7], rtol=2e-5, atol=1e-4)
    test.test("entropy", A, B, expected=stats.beta.entropy(a, b), rtol=1e-4, atol=1e-3)
    other_a, other_b = A[:, ::-1].copy(), B[:, ::-1].copy()
    c, d = other_a.astype(np.float64), other_b.astype(np.float64)
    kl = special.betaln(c, d) - special.betaln(a, b) + (a - c) * special.digamma(a) + (b - d) * special.digamma(b)
    kl += (c - a + d - b) * special.digamma(a + b)
    test.test("kl", A, B, other_a, other_b, expected=kl, rtol=2e-4, atol=2e-3)
    test.test("mean", A, B, expected=a / (a + b))


def test_special_functions_in_float64():
    # what the series leave out: of digamma 1 / (240 x^8) from 6, of log B three times 1 / (1680 x^7) from 12
    x = np.array([1e-3, 0.1, 0.5, 1.0, 2.0, 6.0, 6.5, 12.0, 100.0])
    np.testing.assert_allclose(digamma(x), special.digamma(x), rtol=0, atol=3e-9)
    a = np.array([0.2, 1.0, 11.0, 12.1, 12.1, 13.0, 500.0])
    b = np.array([0.3, 4.0, 700.0, 12.1, 900.0, 14.0, 600.0])
    np.testing.assert_allclose(log_beta(a, b), special.betaln(a, b), rtol=0, atol=1e-10)
    np.testing.assert_allclose(log_beta(b, a), special.betaln(a, b), rtol=0, atol=1e-10)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_mode_is_where_the_density_is_highest(backend):
    grid = np.linspace(1e-4, 1 - 1e-4, 9999)
    found = beta(backend).test("mode", A, B)[0]
    for i in (3, 4, 5, 9):  # those with one mode inside
        assert found[i] == pytest.approx(grid[np.argmax(stats.beta.logpdf(grid, A[0, i], B[0, i]))], abs=2e-4)
    np.testing.assert_allclose(found[:3], (A / (A + B))[0, :3], rtol=1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_samples_follow_the_distribution(backend):
    n = 4000
    draws = beta(backend, rng="portable").test("sample", np.tile(A, (n, 1)), np.tile(B, (n, 1)))
    assert draws.shape == (n, A.shape[1])
    assert ((draws >= EDGE) & (draws <= 1 - EDGE)).all()
    low, high = 2 * EDGE, 1 - 2 * EDGE  # what lies beyond was moved to the edge
    for i in range(1, A.shape[1]):
        a, b = float(A[0, i]), float(B[0, i])
        inside = draws[(draws[:, i] > low) & (draws[:, i] < high), i]
        cdf = stats.beta(a, b).cdf
        mass = cdf(high) - cdf(low)
        assert len(inside) / n == pytest.approx(mass, abs=0.03)
        # a Kolmogorov-Smirnov distance of 0.031 is the 0.1 % quantile for 4,000 draws, one of 0.034 for 3,300
        assert stats.kstest(inside, lambda x, c=cdf, m=mass: (c(x) - c(low)) / m).statistic < 0.035
    # concentrations near 0: almost all mass at the two ends
    assert np.mean(draws[:, 0] > 0.5) == pytest.approx(1 / 3, abs=0.03)


@pytest.mark.parametrize("backend", BACKENDS)
def test_over_a_box(backend):
    unit, box = beta(backend, rng="portable"), beta(backend, -1.0, 3.0, rng="portable")
    values = np.linspace(0.05, 0.95, A.shape[1], dtype=np.float32)[None]
    np.testing.assert_allclose(
        box.test("log_prob", A, B, 4 * values - 1), unit.test("log_prob", A, B, values), rtol=1e-3, atol=1e-3
    )
    np.testing.assert_allclose(box.test("sample", A, B), 4 * unit.test("sample", A, B) - 1, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(box.test("mode", A, B), 4 * unit.test("mode", A, B) - 1, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("backend", DIFFERENTIABLE)
def test_gradients(backend):
    a, b, x = A[:, :7], B[:, :7], np.array([[0.3, 0.9, 0.2, 0.01, 0.99, 0.4, 0.93]], np.float32)
    _, found = input_gradients(
        Beta(), lambda c, v: c.log_prob(v["a"], v["b"], v["x"]), {"a": a, "b": b, "x": x}, backend
    )
    wide_a, wide_b, wide_x = (array.astype(np.float64) for array in (a, b, x))
    total = special.digamma(wide_a + wide_b)
    np.testing.assert_allclose(found["a"], np.log(wide_x) - special.digamma(wide_a) + total, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(found["b"], np.log1p(-wide_x) - special.digamma(wide_b) + total, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(found["x"], (wide_a - 1) / wide_x - (wide_b - 1) / (1 - wide_x), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("backend", DIFFERENTIABLE)
def test_the_edges_are_finite(backend):
    inputs = {"a": [[1e9, 1e-9, 0.0, 2.0]], "b": [[1e9, 3.0, 1e9, 2.0]], "x": [[0.5, 0.0, 1.0, 1.0]]}
    for call in (
        lambda c, v: c.log_prob(v["a"], v["b"], v["x"]),
        lambda c, v: c.entropy(v["a"], v["b"]),
        lambda c, v: c.kl(v["a"], v["b"], v["b"], v["a"]),
        lambda c, v: c.sample(v["a"], v["b"]),
        lambda c, v: c.mode(v["a"], v["b"]),
    ):
        total, found = input_gradients(Beta(), call, inputs, backend)
        assert np.isfinite(total)
        assert all(np.isfinite(gradient).all() for gradient in found.values())


@pytest.mark.parametrize("backend", DIFFERENTIABLE)
def test_samples_have_no_gradient(backend):
    # that of the accepted proposal would be biased: whether it is accepted depends on the concentrations, too
    inputs = {"a": [[2.0, 0.5]], "b": [[3.0, 0.5]]}
    _, found = input_gradients(Beta(), lambda c, v: c.sample(v["a"], v["b"]), inputs, backend)
    assert not any(gradient.any() for gradient in found.values())


@pytest.mark.parametrize("bounds", [(1.0, 1.0), (2.0, 1.0), (float("-inf"), 1.0)])
def test_a_box_without_bounds_is_refused(bounds):
    with pytest.raises(SpecError, match="needs a bounded box"):
        Beta(*bounds)
