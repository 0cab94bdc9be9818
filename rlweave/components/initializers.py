"""Initial values of kernels as plain data, so that they fit into a spec."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rlweave.errors import SpecError, nearest
from rlweave.graph.variable import INITIALIZERS, Initializer
from rlweave.settings.ranges import FINITE, is_number

InitializerSpec = str | float | int | Mapping[str, Any] | np.ndarray | Callable[..., np.ndarray] | None
"""A name (`"he_normal"`), a number, `{"type": name, "gain": factor}`, an array, or a function of (rng, shape)."""

_HALF_RECTIFIED = frozenset({"relu", "leaky_relu", "elu", "gelu", "silu"})


def make_initializer(spec: InitializerSpec, activation: str | None = None) -> Initializer:
    """The initializer that a spec describes.

    Args:
        spec: A name, a number, an array, a function of (NumPy generator, shape), or `{"type": name, "gain": factor}`:
            the named initializer times a factor. None chooses by the activation: variance 2 / fan_in in front of
            an activation that cuts half of its inputs off (He et al. 2015), 1 / fan_in in front of others.
        activation: Name of the activation that follows.

    Raises:
        SpecError: An unknown name or key.

    >>> make_initializer(None, "relu")
    'he_normal'
    """
    if spec is None:
        return "he_normal" if activation in _HALF_RECTIFIED else "lecun_normal"
    if isinstance(spec, str):
        return _checked_name(spec)
    if not isinstance(spec, Mapping):
        if is_number(spec):
            FINITE.check("initial value", spec)
        return spec
    unknown = [key for key in spec if key not in ("type", "gain")]
    if unknown:
        raise SpecError(
            f"unknown key {unknown[0]!r} of an initializer",
            received=repr(dict(spec)),
            fix=nearest(str(unknown[0]), ["type", "gain"]),
        )
    if "type" not in spec:
        raise SpecError(
            "an initializer's spec needs a type", received=repr(dict(spec)), fix='{"type": "orthogonal", "gain": 1.0}'
        )
    draw, gain = INITIALIZERS[_checked_name(spec["type"])], float(spec.get("gain", 1.0))
    FINITE.check("gain", gain)

    def initialize(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        return gain * draw(rng, shape)

    return initialize


def orthogonal_spec(gain: float = math.sqrt(2.0)) -> dict[str, Any]:
    """Spec of an orthogonal kernel (Saxe et al. 2013) times a gain.

    PPO's published runs take sqrt(2) for hidden layers, 0.01 for the policy's head and 1 for the value's.
    """
    return {"type": "orthogonal", "gain": gain}


def _checked_name(name: Any) -> str:
    if name not in INITIALIZERS:
        raise SpecError("unknown initializer", received=repr(name), fix=nearest(str(name), INITIALIZERS))
    return str(name)
