"""Steps of optimizers. XLA fuses each parameter's step into one loop, and reuses donated memory by itself."""
# ruff: noqa: D103 (documented once, in rlweave.ops)

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from rlweave.backends import optimizer_steps

Array = Any


def global_norm_clip(gradients: Sequence[Array], max_norm: float | Array) -> tuple[list[Array], Array]:
    norm = jnp.sqrt(sum((jnp.sum(jnp.square(g)) for g in gradients), jnp.zeros((), jnp.float32)))
    scale = jnp.minimum(max_norm / norm, 1.0)  # 1 where the norm is 0
    return [g * scale for g in gradients], norm


def sgd_update(
    parameters: Sequence[Array],
    gradients: Sequence[Array],
    velocities: Sequence[Array],
    learning_rate: float | Array,
    momentum: float = 0.0,
    nesterov: bool = False,
    donate: bool = False,
) -> tuple[list[Array], list[Array]]:
    return optimizer_steps.sgd(parameters, gradients, velocities, learning_rate, momentum, nesterov)


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
    corrections = (
        optimizer_steps.bias_correction(jnp, beta1, step),
        optimizer_steps.bias_correction(jnp, beta2, step),
    )
    return optimizer_steps.adam(
        jnp,
        parameters,
        gradients,
        means,
        variances,
        corrections,
        learning_rate,
        beta1,
        beta2,
        epsilon,
        weight_decay,
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
    return optimizer_steps.rmsprop(
        jnp, parameters, gradients, squares, velocities, means, learning_rate, decay, epsilon, momentum
    )
