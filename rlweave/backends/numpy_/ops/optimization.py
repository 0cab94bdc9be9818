"""Steps of optimizers."""
# ruff: noqa: D103 (documented once, in rlweave.ops)

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlweave.backends import optimizer_steps

Array = Any


def _arrays(results: Sequence[Any]) -> list[Array]:
    # arithmetic of arrays without axes gives NumPy scalars
    return [np.asarray(x) for x in results]


def _correction(beta: float, step: Array) -> float:
    return 1.0 - beta ** float(step)


sgd_update, adam_update, rmsprop_update = optimizer_steps.operators(np, _correction, made=_arrays)


def global_norm_clip(gradients: Sequence[Array], max_norm: float | Array) -> tuple[list[Array], Array]:
    norm = np.sqrt(sum((np.sum(np.square(g)) for g in gradients), np.float32(0.0)))
    scale = np.minimum(max_norm / np.maximum(norm, np.finfo(np.float32).tiny), 1.0).astype(norm.dtype)
    return [np.asarray(g * scale) for g in gradients], np.asarray(norm)
