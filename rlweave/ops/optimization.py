"""Steps of optimizers over lists of arrays: one call for all parameters of a model.

Every operator returns new lists. With `donate=True` the backend may overwrite the arrays it is given (not the
gradients), which saves a copy; the results are then the same objects where the backend works in place. A caller that
does so must not use the old arrays afterwards. These operators are not to be differentiated.

The arrays of one list may differ in shape; the lists have equal lengths, entry i of each belongs to parameter i.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlweave.ops.dispatch import Array, implementation


def global_norm_clip(gradients: Sequence[Array], max_norm: float | Array) -> tuple[list[Array], Array]:
    """Scales gradients down together such that their common Euclidean norm is at most `max_norm`.

    Args:
        gradients: Floats.
        max_norm: A positive number, or a float array without axes.

    Returns:
        The gradients times min(1, max_norm / norm), and the norm before, without axes.
    """
    return implementation(gradients).global_norm_clip(gradients, max_norm)


def sgd_update(
    parameters: Sequence[Array],
    gradients: Sequence[Array],
    velocities: Sequence[Array],
    learning_rate: float | Array,
    momentum: float = 0.0,
    nesterov: bool = False,
    donate: bool = False,
) -> tuple[list[Array], list[Array]]:
    """A step of stochastic gradient descent: v' = momentum * v + g, p' = p - learning_rate * v'.

    Args:
        parameters: p, floats.
        gradients: g.
        velocities: v, 0 before the first step; an empty list where momentum is 0.
        learning_rate: A number, or a float array without axes.
        momentum: At least 0, below 1.
        nesterov: p' = p - learning_rate * (g + momentum * v') instead.
        donate: `parameters` and `velocities` may be overwritten.

    Returns:
        The new parameters and velocities.
    """
    return implementation(parameters).sgd_update(
        parameters, gradients, velocities, learning_rate, momentum, nesterov, donate
    )


def adam_update(
    parameters: Sequence[Array],
    gradients: Sequence[Array],
    means: Sequence[Array],
    variances: Sequence[Array],
    step: Array,
    learning_rate: float | Array,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    weight_decay: float = 0.0,
    donate: bool = False,
) -> tuple[list[Array], list[Array], list[Array]]:
    """A step of Adam (Kingma and Ba 2015, algorithm 1) or, with weight decay, of AdamW (Loshchilov and Hutter 2019).

    m' = beta1 m + (1 - beta1) g, v' = beta2 v + (1 - beta2) g^2, and with the corrected
    mhat = m' / (1 - beta1^step), vhat = v' / (1 - beta2^step):
    p' = p - learning_rate * (mhat / (sqrt(vhat) + epsilon) + weight_decay * p).

    Args:
        parameters: p, floats.
        gradients: g.
        means: m, 0 before the first step.
        variances: v, 0 before the first step.
        step: The number of this step, 1 for the first: an integer array without axes.
        learning_rate: A number, or a float array without axes.
        beta1: At least 0, below 1.
        beta2: At least 0, below 1.
        epsilon: Added outside of the root.
        weight_decay: Decoupled from the gradient.
        donate: `parameters`, `means` and `variances` may be overwritten.

    Returns:
        The new parameters, means and variances.
    """
    return implementation(parameters).adam_update(
        parameters, gradients, means, variances, step, learning_rate, beta1, beta2, epsilon, weight_decay, donate
    )


def rmsprop_update(
    parameters: Sequence[Array],
    gradients: Sequence[Array],
    squares: Sequence[Array],
    velocities: Sequence[Array],
    means: Sequence[Array],
    learning_rate: float | Array,
    decay: float = 0.99,
    epsilon: float = 1e-8,
    momentum: float = 0.0,
    donate: bool = False,
) -> tuple[list[Array], list[Array], list[Array], list[Array]]:
    """A step of RMSProp (Hinton 2012), plain or centered (Graves 2013), with or without momentum.

    s' = decay s + (1 - decay) g^2, a' = decay a + (1 - decay) g (centered), u = g / (sqrt(s' - a'^2) + epsilon),
    v' = momentum v + u, p' = p - learning_rate * v'. Without means a' is 0; without momentum v' is u.

    Args:
        parameters: p, floats.
        gradients: g.
        squares: s, 0 before the first step.
        velocities: v, 0 before the first step; an empty list where momentum is 0.
        means: a, 0 before the first step; an empty list for the plain form.
        learning_rate: A number, or a float array without axes.
        decay: At least 0, below 1.
        epsilon: Added outside of the root.
        momentum: At least 0, below 1.
        donate: All lists but the gradients may be overwritten.

    Returns:
        The new parameters, squares, velocities and means.
    """
    return implementation(parameters).rmsprop_update(
        parameters, gradients, squares, velocities, means, learning_rate, decay, epsilon, momentum, donate
    )
