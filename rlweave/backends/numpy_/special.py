"""Special functions that NumPy lacks, in float64.

SciPy has them, but would be a dependency of 100 MB for two functions.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

Array = Any

_STEPS_PER_UNIT = 32
_ERF_LIMIT = 6  # erf(6) is 1 in float64
_ERF_ORDER = 9  # coefficients for float64
_ERF_ORDER_FLOAT32 = 5

# B_2k / (2k (2k - 1)) of Stirling's series.
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360)
_SHIFT = 8


@functools.cache
def _erf_table() -> Array:
    """Taylor coefficients of erf around the points k / 32 for 0 <= k <= 192: (order, point)."""
    points = np.arange(_ERF_LIMIT * _STEPS_PER_UNIT + 1) / _STEPS_PER_UNIT
    table = np.empty((len(points), _ERF_ORDER))
    table[:, 0] = [math.erf(point) for point in points]
    slope = 2 / math.sqrt(math.pi) * np.exp(-(points**2))
    # The n-th derivative of exp(-x^2) is (-1)^n H_n(x) exp(-x^2), H_n+1 = 2 x H_n - 2 n H_n-1.
    previous, hermite = np.zeros_like(points), np.ones_like(points)
    for n in range(_ERF_ORDER - 1):
        table[:, n + 1] = (-1) ** n * hermite * slope / math.factorial(n + 1)
        previous, hermite = hermite, 2 * points * hermite - 2 * n * previous
    return np.ascontiguousarray(table.T)


def error_function(x: Array) -> Array:
    """The error function, by Taylor expansion around the nearest of 193 tabulated points.

    The result is float64, exact for float64 arguments; for others it has the precision of float32.
    """
    order = _ERF_ORDER if getattr(x, "dtype", None) == np.float64 else _ERF_ORDER_FLOAT32
    x = np.asarray(x, np.float64)
    magnitude = np.minimum(np.abs(x), _ERF_LIMIT)
    nan = np.isnan(magnitude)
    nearest = np.where(nan, 0, np.rint(magnitude * _STEPS_PER_UNIT)).astype(np.int64)
    distance = magnitude - nearest / _STEPS_PER_UNIT
    table = _erf_table()
    result = table[order - 1][nearest]
    for n in range(order - 2, -1, -1):
        result = result * distance + table[n][nearest]
    return np.copysign(result, x)


def log_gamma(x: Array) -> Array:
    """Log |gamma(x)| in float64: Stirling's series above 8, reached by recurrence, and reflection below 1/2."""
    x = np.asarray(x, np.float64)
    with np.errstate(all="ignore"):
        reflected = x < 0.5
        z = np.where(reflected, 1 - x, x)
        small = z < _SHIFT
        product = np.ones_like(z)
        for i in range(_SHIFT):
            product = product * np.where(small, z + i, 1.0)
        w = np.where(small, z + _SHIFT, z)
        series = sum(c / w ** (2 * k + 1) for k, c in enumerate(_STIRLING))
        result = (w - 0.5) * np.log(w) - w + 0.5 * math.log(2 * math.pi) + series - np.log(product)
        result = np.where(np.isinf(z), np.inf, result)
        # x - floor(x) keeps the sine exact for large negative x; at the poles it is 0 and the logarithm infinite.
        sine = np.abs(np.sin(math.pi * (x - np.floor(x))))
        mirrored = math.log(math.pi) - np.log(sine) - result
        return np.where(reflected, np.where(np.isinf(x), np.inf, mirrored), result)
