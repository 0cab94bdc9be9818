"""Special functions in float64 against the standard library."""

from __future__ import annotations

import math

import numpy as np

from rlweave.backends.numpy_.special import error_function, log_gamma


def test_error_function() -> None:
    x = np.concatenate([np.linspace(-7, 7, 20_001), [1e-300, 1e-9, -1e-9, np.inf, -np.inf]])
    np.testing.assert_allclose(error_function(x), [math.erf(value) for value in x], rtol=1e-14, atol=0)
    assert np.isnan(error_function(np.float64("nan")))
    narrow = x.astype(np.float32)
    np.testing.assert_allclose(error_function(narrow), [math.erf(value) for value in narrow], rtol=1e-8, atol=0)


def test_log_gamma() -> None:
    x = np.concatenate([np.linspace(-9.97, 60, 4_003), [1e-300, 1e-9, 1e6, 1e30]])
    np.testing.assert_allclose(log_gamma(x), [math.lgamma(value) for value in x], rtol=1e-11, atol=1e-12)
    np.testing.assert_array_equal(log_gamma(np.array([0.0, -1.0, np.inf, -np.inf])), [np.inf] * 4)
    assert np.isnan(log_gamma(np.float64("nan")))
