"""Steps of optimizers. XLA fuses each parameter's step into one loop, and reuses donated memory by itself."""
# ruff: noqa: D103 (documented once, in rlweave.ops)

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

Array = Any


def _zip(*lists: Sequence[Array]) -> Any:
    return zip(*lists, strict=True)


def _bias_correction(beta: float, step: Array) -> Array:
    # 1 - beta**step loses half of the digits of float32 in the first steps
    return 1.0 if beta == 0.0 else -jnp.expm1(jnp.asarray(step, jnp.float32) * math.log(beta))


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
    if not momentum:
        return [p - learning_rate * g for p, g in _zip(parameters, gradients)], []
    new_velocities = [momentum * v + g for v, g in _zip(velocities, gradients)]
    moves = [g + momentum * v for g, v in _zip(gradients, new_velocities)] if nesterov else new_velocities
    return [p - learning_rate * move for p, move in _zip(parameters, moves)], new_velocities


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
    correction1, correction2 = _bias_correction(beta1, step), _bias_correction(beta2, step)
    new_means = [beta1 * m + (1.0 - beta1) * g for m, g in _zip(means, gradients)]
    new_variances = [beta2 * v + (1.0 - beta2) * jnp.square(g) for v, g in _zip(variances, gradients)]
    new_parameters = []
    for p, m, v in _zip(parameters, new_means, new_variances):
        move = (m / correction1) / (jnp.sqrt(v / correction2) + epsilon)
        if weight_decay:
            move = move + weight_decay * p
        new_parameters.append(p - learning_rate * move)
    return new_parameters, new_means, new_variances


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
    new_squares = [decay * s + (1.0 - decay) * jnp.square(g) for s, g in _zip(squares, gradients)]
    new_means = [decay * a + (1.0 - decay) * g for a, g in _zip(means, gradients)] if len(means) else []
    seconds = [s - jnp.square(a) for s, a in _zip(new_squares, new_means)] if new_means else new_squares
    # rounding may push a second moment of nearly constant gradients below 0
    moves = [g / (jnp.sqrt(jnp.maximum(s, 0.0)) + epsilon) for g, s in _zip(gradients, seconds)]
    new_velocities = [momentum * v + u for v, u in _zip(velocities, moves)] if momentum else []
    moves = new_velocities or moves
    return [p - learning_rate * u for p, u in _zip(parameters, moves)], new_squares, new_velocities, new_means
