"""Probability distributions: pure functions of arrays, and stateless components over them.

The functions are for graph functions (they use `ops`); the components make each distribution usable and testable
alone. All of them work on any leading axes.
"""

from __future__ import annotations

import math
from typing import Any

from rlweave import ops
from rlweave.errors import SpecError
from rlweave.graph import Component, graph_fn, register

MASKED = -1e9
"""The logit of a masked category; lower ones (-inf among them) count as this one.

Its probability is exactly 0 in float32, it is never drawn, its log-probability is about -1e9 (finite, so that ratios
become 0 and not NaN), and no gradient reaches it. Where *all* categories of a row are masked they are equally likely:
the graph stays finite, and callers that mask actions check that one is left (agents do, and name the environment).
"""

LOG_STD_RANGE = (-20.0, 4.0)
"""Logarithms of standard deviations are clamped to this range; outside of it they get no gradient."""

_HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)


def check_box(low: float, high: float, where: str) -> None:
    """Checks the bounds of a distribution over a box.

    Raises:
        SpecError: They are not finite, or cross.
    """
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise SpecError(
            "this distribution needs a bounded box",
            where=where,
            received=f"low={low!r}, high={high!r}",
            fix="finite numbers, low below high; or the component 'normal', which has no bounds",
        )


# -- categorical -------------------------------------------------------------------------------------------------


def categorical_log_probs(logits: Any) -> Any:
    """Log-probabilities of all categories, (..., N) to (..., N); -inf counts as `MASKED`."""
    return ops.log_softmax(ops.maximum(logits, MASKED))


def categorical_log_prob(logits: Any, values: Any) -> Any:
    """Log-probability of indices: (..., N) and (...) to (...)."""
    return ops.take_last(categorical_log_probs(logits), values)


def categorical_entropy(logits: Any) -> Any:
    """Entropy in nats: (..., N) to (...). Masked categories add nothing, to the gradient neither."""
    log_probs = categorical_log_probs(logits)
    return -ops.sum(ops.exp(log_probs) * log_probs, axis=-1)


def categorical_kl(logits: Any, others: Any) -> Any:
    """KL(p || q) of two categorical distributions: (..., N) twice to (...)."""
    log_probs = categorical_log_probs(logits)
    return ops.sum(ops.exp(log_probs) * (log_probs - categorical_log_probs(others)), axis=-1)


# -- bernoulli ---------------------------------------------------------------------------------------------------


def bernoulli_log_prob(logits: Any, values: Any) -> Any:
    """Log-probability of booleans under p = sigmoid(logits), elementwise."""
    return -ops.softplus(ops.where(values, -logits, logits))


def bernoulli_entropy(logits: Any) -> Any:
    """Entropy in nats, elementwise."""
    return ops.softplus(logits) - logits * ops.sigmoid(logits)


def bernoulli_kl(logits: Any, others: Any) -> Any:
    """KL(p || q), elementwise."""
    return ops.sigmoid(logits) * (logits - others) - ops.softplus(logits) + ops.softplus(others)


# -- normal ------------------------------------------------------------------------------------------------------


def clamped_log_std(log_std: Any) -> Any:
    """The logarithm of a standard deviation within `LOG_STD_RANGE`."""
    return ops.clip(log_std, LOG_STD_RANGE[0], LOG_STD_RANGE[1])


def normal_log_prob(mean: Any, log_std: Any, values: Any) -> Any:
    """Log-density, elementwise."""
    log_std = clamped_log_std(log_std)
    z = (values - mean) * ops.exp(-log_std)
    return -0.5 * z * z - log_std - _HALF_LOG_2PI


def normal_sample(mean: Any, log_std: Any, noise: Any = None) -> Any:
    """A sample with a gradient to mean and log_std (reparameterized), of the shape of the mean.

    Args:
        mean: The mean.
        log_std: Logarithm of the standard deviation.
        noise: Standard normal numbers of the same shape; None: drawn here.
    """
    return mean + ops.exp(clamped_log_std(log_std)) * (ops.random.normal(mean.shape) if noise is None else noise)


def normal_entropy(mean: Any, log_std: Any) -> Any:
    """Entropy in nats, elementwise, of the shape of the mean."""
    return ops.broadcast_to(clamped_log_std(log_std) + (0.5 + _HALF_LOG_2PI), mean.shape)


def normal_kl(mean: Any, log_std: Any, other_mean: Any, other_log_std: Any) -> Any:
    """KL(p || q), elementwise."""
    log_std, other_log_std = clamped_log_std(log_std), clamped_log_std(other_log_std)
    ratio = ops.exp(log_std - other_log_std)
    z = (mean - other_mean) * ops.exp(-other_log_std)
    return other_log_std - log_std + 0.5 * (ratio * ratio + z * z - 1.0)


# -- components --------------------------------------------------------------------------------------------------


@register("categorical")
class Categorical(Component):
    """A distribution over N categories, given by unnormalized log-probabilities.

    Logits of -inf mask a category; see `MASKED` for what that means, and for rows where all are masked.

    Args:
        scope: Name within the owner.
    """

    def __init__(self, scope: str = "categorical") -> None:
        super().__init__(scope)

    @graph_fn
    def sample(self, logits: Any) -> Any:
        """Draws an index: (..., N) to int32 (...)."""
        return ops.random.categorical(ops.maximum(logits, MASKED))

    @graph_fn
    def mode(self, logits: Any) -> Any:
        """The likeliest index, the first of equals: (..., N) to int32 (...)."""
        return ops.argmax(logits, axis=-1)

    @graph_fn
    def log_prob(self, logits: Any, values: Any) -> Any:
        """Log-probability of indices: (..., N), int (...) to (...)."""
        return categorical_log_prob(logits, values)

    @graph_fn
    def entropy(self, logits: Any) -> Any:
        """Entropy in nats: (..., N) to (...)."""
        return categorical_entropy(logits)

    @graph_fn
    def kl(self, logits: Any, others: Any) -> Any:
        """KL(logits || others): (..., N), (..., N) to (...)."""
        return categorical_kl(logits, others)

    @graph_fn
    def mask(self, logits: Any, allowed: Any) -> Any:
        """Logits with those categories masked that are not allowed: (..., N), bool (..., N) to (..., N)."""
        return ops.where(allowed, logits, MASKED)


@register("bernoulli")
class Bernoulli(Component):
    """Independent booleans; p(True) = sigmoid(logit). All results are elementwise, of the shape of the logits.

    Args:
        scope: Name within the owner.
    """

    def __init__(self, scope: str = "bernoulli") -> None:
        super().__init__(scope)

    @graph_fn
    def sample(self, logits: Any) -> Any:
        """Draws bool (...)."""
        return ops.random.bernoulli(ops.sigmoid(logits))

    @graph_fn
    def mode(self, logits: Any) -> Any:
        """The likelier value; False at p = 0.5."""
        return logits > 0

    @graph_fn
    def log_prob(self, logits: Any, values: Any) -> Any:
        """Log-probability of booleans (...)."""
        return bernoulli_log_prob(logits, values)

    @graph_fn
    def entropy(self, logits: Any) -> Any:
        """Entropy in nats."""
        return bernoulli_entropy(logits)

    @graph_fn
    def kl(self, logits: Any, others: Any) -> Any:
        """KL(logits || others)."""
        return bernoulli_kl(logits, others)


@register("normal")
class Normal(Component):
    """Independent normal distributions; `log_std` is clamped to `LOG_STD_RANGE`.

    All results are elementwise, of the shape of the mean; `log_std` broadcasts to it.

    Args:
        scope: Name within the owner.
    """

    def __init__(self, scope: str = "normal") -> None:
        super().__init__(scope)

    @graph_fn
    def sample(self, mean: Any, log_std: Any) -> Any:
        """Draws (...); gradients reach mean and log_std."""
        return normal_sample(mean, log_std)

    @graph_fn
    def mode(self, mean: Any, log_std: Any) -> Any:
        """The mean."""
        return mean

    @graph_fn
    def log_prob(self, mean: Any, log_std: Any, values: Any) -> Any:
        """Log-density of values (...)."""
        return normal_log_prob(mean, log_std, values)

    @graph_fn
    def entropy(self, mean: Any, log_std: Any) -> Any:
        """Entropy in nats."""
        return normal_entropy(mean, log_std)

    @graph_fn
    def kl(self, mean: Any, log_std: Any, other_mean: Any, other_log_std: Any) -> Any:
        """KL(first || other)."""
        return normal_kl(mean, log_std, other_mean, other_log_std)
