"""A pure function as a program of `torch.export`: weights are buffers, the batch is open."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rlweave.backends.base import OpenArray
from rlweave.backends.torch_.ops.arrays import DTYPES

#: Rows of the examples that the program is traced with: 0 and 1 would be taken for constants.
_ROWS = 3


class _Function(torch.nn.Module):
    """The function as a module: its weights go where the module goes."""

    def __init__(self, function: Callable[..., Any], weights: Mapping[str, np.ndarray]) -> None:
        super().__init__()
        self._function = function
        # numbered, as two paths may be one name
        self._names = [re.sub(r"\W", "_", f"{name}_{number}") for number, name in enumerate(weights)]
        for name, value in zip(self._names, weights.values(), strict=True):
            self.register_buffer(name, torch.from_numpy(np.array(value)))

    def forward(self, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        found: dict[str, torch.Tensor] = self._function([getattr(self, name) for name in self._names], inputs)
        return found


def write(
    function: Callable[[Sequence[Any], Mapping[str, Any]], dict[str, Any]],
    weights: Mapping[str, np.ndarray],
    inputs: Mapping[str, OpenArray],
    file: str,
) -> dict[str, bytes]:
    """The files of the artefact, by name; see `rlweave.extensions.onnx_.export.write_model`."""
    examples = {
        name: torch.zeros([n if isinstance(n, int) else _ROWS for n in array.axes], dtype=DTYPES[array.dtype])
        for name, array in inputs.items()
    }
    batch = torch.export.Dim("batch", min=1)
    axes = {
        name: {axis: batch for axis, n in enumerate(array.axes) if not isinstance(n, int)}
        for name, array in inputs.items()
    }
    with torch.no_grad():
        program = torch.export.export(_Function(function, weights), (examples,), dynamic_shapes=(axes,), strict=False)
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    return {file: buffer.getvalue()}


def load(path: Path) -> Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]:
    """What runs a program, from arrays by name to arrays by name."""
    module = torch.export.load(path).module()

    def run(given: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        with torch.inference_mode():
            found = module({name: torch.from_numpy(np.array(x)) for name, x in given.items()})
        return {name: x.numpy() for name, x in found.items()}

    return run
