"""The Beta distribution of bounded actions: pure functions of arrays, and a component over them."""

from __future__ import annotations

import math
from typing import Any

from rlweave import ops
from rlweave.components.distributions import check_box
from rlweave.graph import Component, graph_fn, register

CONCENTRATION_RANGE = (1e-3, 1e3)
"""Concentrations are clamped to this range; outside of it they get no gradient.

Densities are differences of terms as large as the concentrations: beyond, float32 has not three decimals left.
"""

EDGE = 1e-6
"""Samples, and values whose density is asked for, stay this far from 0 and 1, where densities are 0 or infinite."""

_ROUNDS = 6
"""Proposals for one gamma variate. Each is refused with p < 0.05, so that all are in one of 6e7 draws."""

_SHIFT = 6
"""How far the recurrences move an argument up before the asymptotic series."""

_STIRLING_FROM = 12.0
"""Where both concentrations are larger, log B comes from Stirling's series; lgamma would lose all its digits."""


def _stirling_rest(x: Any) -> Any:
    """lgamma(x) - ((x - 1/2) log x - x + log(2 pi) / 2), for x >= 6 (Abramowitz & Stegun 6.1.41)."""
    inverse = 1.0 / x
    square = inverse * inverse
    return inverse * (1.0 / 12.0 - square * (1.0 / 360.0 - square * (1.0 / 1260.0)))


def log_beta(a: Any, b: Any) -> Any:
    """Logarithm of B(a, b): lgamma(a) + lgamma(b) - lgamma(a + b) for positive numbers, elementwise."""
    large = ops.minimum(a, b) > _STIRLING_FROM
    # each branch sees harmless numbers where the other one holds, so that no gradient becomes NaN
    small_a, small_b = ops.where(large, 1.0, a), ops.where(large, 1.0, b)
    by_lgamma = ops.lgamma(small_a) + ops.lgamma(small_b) - ops.lgamma(small_a + small_b)
    large_a, large_b = ops.where(large, a, _STIRLING_FROM), ops.where(large, b, _STIRLING_FROM)
    total = large_a + large_b
    by_stirling = (
        -(large_a - 0.5) * ops.log1p(large_b / large_a)
        - large_b * ops.log1p(large_a / large_b)
        - 0.5 * ops.log(large_b)
        + 0.5 * math.log(2.0 * math.pi)
        + _stirling_rest(large_a)
        + _stirling_rest(large_b)
        - _stirling_rest(total)
    )
    return ops.where(large, by_stirling, by_lgamma)


def digamma(x: Any) -> Any:
    """The derivative of lgamma for positive numbers, elementwise.

    The recurrence psi(x) = psi(x + 1) - 1 / x brings x above 6, where the asymptotic series is exact to float32
    (Abramowitz & Stegun 6.3.5 and 6.3.18).
    """
    result = ops.zeros_like(x)
    for _ in range(_SHIFT):
        result = result - 1.0 / x
        x = x + 1.0
    inverse = 1.0 / x
    square = inverse * inverse
    series = square * (1.0 / 12.0 - square * (1.0 / 120.0 - square * (1.0 / 252.0)))
    return result + ops.log(x) - 0.5 * inverse - series


def clamped_concentration(concentration: Any) -> Any:
    """A concentration within `CONCENTRATION_RANGE`."""
    return ops.clip(concentration, CONCENTRATION_RANGE[0], CONCENTRATION_RANGE[1])


def beta_log_prob(a: Any, b: Any, values: Any) -> Any:
    """Log-density of values in [0, 1], elementwise; those within `EDGE` of an end count as that far from it."""
    a, b = clamped_concentration(a), clamped_concentration(b)
    values = ops.clip(values, EDGE, 1.0 - EDGE)
    return (a - 1.0) * ops.log(values) + (b - 1.0) * ops.log1p(-values) - log_beta(a, b)


def beta_entropy(a: Any, b: Any) -> Any:
    """Differential entropy in nats, elementwise."""
    a, b = clamped_concentration(a), clamped_concentration(b)
    spread = (a - 1.0) * digamma(a) + (b - 1.0) * digamma(b) - (a + b - 2.0) * digamma(a + b)
    return log_beta(a, b) - spread


def beta_kl(a: Any, b: Any, other_a: Any, other_b: Any) -> Any:
    """KL(p || q), elementwise."""
    a, b = clamped_concentration(a), clamped_concentration(b)
    other_a, other_b = clamped_concentration(other_a), clamped_concentration(other_b)
    da, db = a - other_a, b - other_b
    return log_beta(other_a, other_b) - log_beta(a, b) + da * digamma(a) + db * digamma(b) - (da + db) * digamma(a + b)


def log_gamma_sample(concentration: Any) -> Any:
    """The log of a draw from Gamma(concentration, 1); its gradient would be the accepted proposal's, a biased one.

    Marsaglia & Tsang, "A simple method for generating gamma variables" (ACM TOMS 26, 2000): a fixed number of proposals
    for concentration + 1, of which the first accepted one counts, times U^(1 / concentration). In logarithms, as
    draws of small concentrations underflow.
    """
    d = concentration + (1.0 - 1.0 / 3.0)
    shape = tuple(concentration.shape)
    x = ops.random.normal((_ROUNDS, *shape))
    cube_root = 1.0 + x / ops.sqrt(9.0 * d)
    positive = cube_root > 0.0
    v = ops.where(positive, cube_root, 1.0) ** 3
    log_v = ops.log(v)
    log_uniform = _log_uniform((_ROUNDS, *shape))
    accepted = ops.logical_and(positive, log_uniform < 0.5 * x * x + d - d * v + d * log_v)
    first = ops.argmax(ops.astype(accepted, "int32"), axis=0)
    chosen = ops.sum(ops.one_hot(first, _ROUNDS) * ops.permute_dims(log_v, (*range(1, len(shape) + 1), 0)), axis=-1)
    return ops.log(d) + chosen + _log_uniform(shape) / concentration


def _log_uniform(shape: tuple[int, ...]) -> Any:
    """The log of numbers from (0, 1]."""
    return ops.log(1.0 - ops.random.uniform(shape))


def beta_sample(a: Any, b: Any) -> Any:
    """A draw from [EDGE, 1 - EDGE], of the shape of a; see `log_gamma_sample` on gradients."""
    a, b = clamped_concentration(a), clamped_concentration(b)
    # X / (X + Y) for two gamma variates; in logarithms, as both may underflow
    draw = ops.sigmoid(log_gamma_sample(a) - log_gamma_sample(ops.broadcast_to(b, a.shape)))
    return ops.clip(draw, EDGE, 1.0 - EDGE)


@register("beta")
class Beta(Component):
    """Independent Beta distributions over a box: policies of bounded actions that put no mass outside.

    Chou, Maturana & Scherer, "Improving stochastic policy gradients in continuous control ... using the Beta
    distribution" (ICML 2017). The density is that of the action y = low + (high - low) x, in units of [0, 1]: the width
    of the box does not count, as with `SquashedNormal`. All results are elementwise, of the shape of `a`; both
    concentrations are clamped to `CONCENTRATION_RANGE`. A network that ends in 1 + softplus(output) gives
    distributions with one mode.

    Samples have no gradient: this is a distribution for likelihood ratios (PPO, V-trace).

    Args:
        low: The box's lower bound.
        high: Its upper bound.
        scope: Name within the owner.

    Raises:
        SpecError: Bounds that are not finite, or cross.
    """

    def __init__(self, low: float = 0.0, high: float = 1.0, scope: str = "beta") -> None:
        super().__init__(scope)
        check_box(low, high, scope)
        self.low, self.high = float(low), float(high)

    @graph_fn(differentiable=False)
    def sample(self, a: Any, b: Any) -> Any:
        """Draws actions (...) within the box, without gradient."""
        return self._in_box(beta_sample(a, b))

    @graph_fn
    def mode(self, a: Any, b: Any) -> Any:
        """The likeliest action where both concentrations exceed 1; elsewhere (no single mode inside) the mean."""
        a, b = clamped_concentration(a), clamped_concentration(b)
        peaked = ops.logical_and(a > 1.0, b > 1.0)
        mode = (a - 1.0) / ops.where(peaked, a + b - 2.0, 1.0)
        return self._in_box(ops.where(peaked, mode, a / (a + b)))

    @graph_fn
    def mean(self, a: Any, b: Any) -> Any:
        """The mean action."""
        a, b = clamped_concentration(a), clamped_concentration(b)
        return self._in_box(a / (a + b))

    @graph_fn
    def log_prob(self, a: Any, b: Any, values: Any) -> Any:
        """Log-density of actions (...); those at a bound count as `EDGE` of the width away from it."""
        # halved, as the width of a box may be more than float32 holds
        fraction = (0.5 * values - 0.5 * self.low) / (0.5 * self.high - 0.5 * self.low)
        return beta_log_prob(a, b, fraction)

    @graph_fn
    def entropy(self, a: Any, b: Any) -> Any:
        """Entropy in nats, in units of [0, 1]."""
        return beta_entropy(a, b)

    @graph_fn
    def kl(self, a: Any, b: Any, other_a: Any, other_b: Any) -> Any:
        """KL(first || other)."""
        return beta_kl(a, b, other_a, other_b)

    def _in_box(self, fraction: Any) -> Any:
        """Numbers of [0, 1] in the box, clipped where rounding steps over a bound."""
        return ops.clip(self.low * (1.0 - fraction) + self.high * fraction, self.low, self.high)
