"""Steps of optimizers. XLA fuses each parameter's step into one loop, and reuses donated memory by itself."""
# ruff: noqa: D103 (documented once, in rlweave.ops)

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from rlweave.backends import optimizer_steps

Array = Any

sgd_update, adam_update, rmsprop_update = optimizer_steps.operators(
    jnp, functools.partial(optimizer_steps.bias_correction, jnp)
)


def global_norm_clip(gradients: Sequence[Array], max_norm: float | Array) -> tuple[list[Array], Array]:
    norm = jnp.sqrt(sum((jnp.sum(jnp.square(g)) for g in gradients), jnp.zeros((), jnp.float32)))
    scale = jnp.minimum(max_norm / norm, 1.0)  # 1 where the norm is 0
    return [g * scale for g in gradients], norm
