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


#: Arrays up to so many elements are summed as one: each sum is a loop of its own, which takes longer to compile.
_SMALL = 4096


def global_norm_clip(gradients: Sequence[Array], max_norm: float | Array) -> tuple[list[Array], Array]:
    small = [g.reshape(-1) for g in gradients if g.size <= _SMALL]
    summed = [*([jnp.concatenate(small)] if small else []), *(g for g in gradients if g.size > _SMALL)]
    norm = jnp.sqrt(sum((jnp.sum(jnp.square(g)) for g in summed), jnp.zeros((), jnp.float32)))
    scale = jnp.minimum(max_norm / norm, 1.0)  # 1 where the norm is 0
    return [g * scale for g in gradients], norm
