"""A pure function as serialized StableHLO (`jax.export`): weights are constants, the batch is open."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np

from rlweave.backends.base import OpenArray

#: What it runs on.
PLATFORMS = ("cpu", "cuda", "tpu")


def write(
    function: Callable[[Sequence[Any], Mapping[str, Any]], dict[str, Any]],
    weights: Mapping[str, np.ndarray],
    inputs: Mapping[str, OpenArray],
    file: str,
) -> dict[str, bytes]:
    """The files of the artefact, by name; see `rlweave.extensions.onnx_.export.write_model`."""
    kept = [jnp.asarray(value) for value in weights.values()]
    (batch,) = jax.export.symbolic_shape("batch")
    arguments = {
        name: jax.ShapeDtypeStruct([n if isinstance(n, int) else batch for n in array.axes], np.dtype(array.dtype))
        for name, array in inputs.items()
    }
    exported = jax.export.export(jax.jit(lambda given: function(kept, given)), platforms=PLATFORMS)(arguments)
    return {file: bytes(exported.serialize())}


def load(path: Path) -> Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]:
    """What runs a program, from arrays by name to arrays by name."""
    exported = jax.export.deserialize(bytearray(path.read_bytes()))
    call = jax.jit(exported.call)  # compiled once for each number of rows
    return lambda given: {name: np.asarray(x) for name, x in call(dict(given)).items()}
