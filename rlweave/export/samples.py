"""Observations from all of a space, including its bounds."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlweave.spaces import BoolBox, Box, FloatBox, IntBox, Space

#: Floats beyond this count as unbounded: products of such numbers exceed single precision.
_LARGEST = 1e6
_UNBOUNDED_EDGE = 10.0


def sample_observations(space: Space, rows: int, rng: np.random.Generator, mask_leaf: str | None) -> dict[str, Any]:
    """Observations by leaf, (B, ...): a third of them has leaves at their bounds, the others are random.

    Args:
        space: Of one observation.
        rows: B.
        rng: Draws them.
        mask_leaf: The leaf with the mask of allowed actions: at least one is allowed.
    """
    flat = {}
    for path, leaf in space.flatten().items():
        values = np.asarray(leaf.sample(rows, rng=rng))
        if isinstance(leaf, FloatBox):
            usual = np.clip(rng.normal(size=values.shape), leaf.low, leaf.high)
            values = np.where(np.abs(values) > _LARGEST, usual, values).astype(leaf.dtype)
        edges = [np.broadcast_to(edge, leaf.feature_shape) for edge in _edges(leaf)]
        for row in np.flatnonzero(rng.random(rows) < 1 / 3):
            values[row] = edges[rng.integers(len(edges))]
        if path == mask_leaf:
            values[np.arange(rows), rng.integers(values.shape[-1], size=rows)] = 1
        flat[path] = values
    return flat


def _edges(leaf: Box) -> list[Any]:
    """The lowest and the highest values of a leaf, and zero where it is among them."""
    if isinstance(leaf, BoolBox):
        return [False, True]
    if isinstance(leaf, IntBox):
        bounded = leaf.bounded
        return [
            np.where(bounded, leaf.low, np.clip(-100, leaf.low, leaf.last)),
            np.where(bounded, leaf.last, np.clip(100, leaf.low, leaf.last)),
        ]
    assert isinstance(leaf, FloatBox)
    low = np.where(leaf.low < -_LARGEST, np.minimum(-_UNBOUNDED_EDGE, leaf.high), leaf.low)
    high = np.where(leaf.high > _LARGEST, np.maximum(_UNBOUNDED_EDGE, leaf.low), leaf.high)
    return [low, high, np.clip(0.0, low, high)]
