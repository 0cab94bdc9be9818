"""A pure function as an ONNX model of its own: weights are constants, the batch is open."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlweave.backends.base import OpenArray
from rlweave.extensions.onnx_.model import Model
from rlweave.extensions.onnx_.ops.control import as_symbols
from rlweave.extensions.onnx_.run import example_input
from rlweave.extensions.onnx_.session import make_session
from rlweave.extensions.onnx_.symbol import Symbol

#: Of pure functions: from weights in order, and arrays by name, to arrays by name.
FlatFunction = Callable[[Sequence[Any], Mapping[str, Any]], dict[str, Any]]


def write_model(function: FlatFunction, weights: Mapping[str, np.ndarray], inputs: Mapping[str, OpenArray]) -> bytes:
    """Writes a function as a serialized model.

    Args:
        function: The function, generated for this backend.
        weights: By name, in the order in which the function takes them.
        inputs: What is known of each array that comes in.
    """
    model = Model()
    kept = [model.named_constant(name, value) for name, value in weights.items()]
    given = {name: example_input(model, array, name) for name, array in inputs.items()}
    found = dict(function(kept, given))
    outputs = []
    for name, value in found.items():
        symbol: Symbol = as_symbols(model, value)[0]
        model.alias(symbol.name, name)
        outputs.append((name, symbol.dtype, ["batch" if n is None else n for n in symbol.static_shape]))
    content, _ = model.finished(outputs, keep_inputs=True)
    return content


def write(
    function: FlatFunction, weights: Mapping[str, np.ndarray], inputs: Mapping[str, OpenArray], file: str
) -> dict[str, bytes]:
    """The files of the artefact, by name; see `write_model`."""
    return {file: write_model(function, weights, inputs)}


def load(path: Path) -> Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]:
    """What runs a model, from arrays by name to arrays by name."""
    session = make_session(path.read_bytes())
    names = [output.name for output in session.get_outputs()]
    return lambda given: dict(zip(names, session.run(names, dict(given)), strict=True))
