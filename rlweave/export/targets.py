"""Targets of an export: how each artefact is written, and how it runs without rlweave."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rlweave.export.pure import PureMethod

#: A loaded artefact: maps arrays by name to arrays by name.
Runner = Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]


@dataclass(frozen=True)
class Target:
    """One kind of artefact.

    Attributes:
        name: As the command line has it.
        backend: The backend whose operators write it.
        file: The file that is loaded.
        runs_on: The packages that load and run it.
        module: Of the backend: `write(function, weights, inputs, file)` gives the content of each file by name, and
            `load(path)` a `Runner`.
    """

    name: str
    backend: str
    file: str
    runs_on: str
    module: str

    def write(self, method: PureMethod) -> dict[str, bytes]:
        """The files of the artefact, by name."""
        files: dict[str, bytes] = importlib.import_module(self.module).write(
            method.call_flat, method.weights, method.flat_inputs(), self.file
        )
        return files

    def load(self, directory: Path) -> Runner:
        """The written artefact, loaded as elsewhere."""
        runner: Runner = importlib.import_module(self.module).load(directory / self.file)
        return runner


TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        Target("onnx", "onnx", "policy.onnx", "onnxruntime", "rlweave.extensions.onnx_.export"),
        Target("torch", "torch", "policy.pt2", "torch.export.load", "rlweave.backends.torch_.export"),
        Target("jax", "jax", "policy.stablehlo", "jax.export.deserialize", "rlweave.backends.jax_.export"),
        Target("numpy", "onnx", "policy.py", "numpy", "rlweave.extensions.onnx_.numpy_source"),
    )
}
