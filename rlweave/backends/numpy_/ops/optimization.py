"""Steps of optimizers."""
# ruff: noqa: D103 (documented once, in rlweave.ops)

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlweave.backends import optimizer_steps

Array = Any


def _arrays(lists: tuple[list[Any], ...]) -> Any:
    # arithmetic of arrays without axes gives NumPy scalars
    return tuple([np.asarray(x) for x in one] for one in lists)


def global_norm_clip(gradients: Sequence[Array], max_norm: float | Array) -> tuple[list[Array], Array]:
    norm = np.sqrt(sum((np.sum(np.square(g)) for g in gradients), np.float32(0.0)))
    scale = np.minimum(max_norm / np.maximum(norm, np.finfo(np.float32).tiny), 1.0).astype(norm.dtype)
    return [np.asarray(g * scale) for g in gradients], np.asarray(norm)


def sgd_update(
    parameters: Sequence[Array],
    gradients: Sequence[Array],
    velocities: Sequence[Array],
    learning_rate: float | Array,
    momentum: float = 0.0,
    nesterov: bool = False,
    donate: bool = False,
) -> tuple[list[Array], list[Array]]:
    result = optimizer_steps.sgd(parameters, gradients, velocities, learning_rate, momentum, nesterov)
    return _arrays(result)


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
    corrections = (1.0 - beta1 ** float(step), 1.0 - beta2 ** float(step))
    result = optimizer_steps.adam(
        np,
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
    return _arrays(result)


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
    result = optimizer_steps.rmsprop(
        np, parameters, gradients, squares, velocities, means, learning_rate, decay, epsilon, momentum
    )
    return _arrays(result)
