"""Random numbers of acting graphs: drawn by NumPy before the model runs, and fed to it.

ONNX has random operators, but no state of them that could be saved. So the model says how many numbers of which kind it
needs, in which order, and the random state in the executor's store gives them, the same ones that the NumPy backend
draws. The portable generator would be some hundred nodes for each draw, which ONNX Runtime takes seconds to prepare.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from rlweave.backends.numpy_.random import FastRandom
from rlweave.extensions.onnx_.model import Model
from rlweave.extensions.onnx_.symbol import EXAMPLES, Size, Symbol
from rlweave.extensions.onnx_.symbolic import at, no_form

#: From (source of random numbers, shape) to numbers.
Draw = Callable[[Any, tuple[int, ...]], np.ndarray]


class Draws:
    """What stands in the random state's cell while a model is written: a list of draws.

    Args:
        model: The model.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self._draws: list[tuple[str, Draw, tuple[Any, ...]]] = []

    def add(self, draw: Draw, shape: Sequence[Any]) -> Symbol:
        """Numbers as an input of the model."""
        if self.model.in_subgraph:
            raise no_form("a random draw inside of a loop or a branch")
        shape = tuple(shape)
        source = FastRandom(SimpleNamespace(value=np.random.Generator(np.random.PCG64(0))))
        examples = [np.asarray(draw(source, at(shape, i))) for i in range(EXAMPLES)]
        axes = [None if isinstance(n, Size) else int(n) for n in shape]
        name = self.model.input("draw", examples[0].dtype, axes)
        self._draws.append((name, draw, shape))
        for n in shape:
            if isinstance(n, Size):
                n.at({"B": 1, "T": 1})  # an error if it cannot be known before the model runs
        return Symbol(self.model, name, examples)

    def take(self, source: Any, sizes: dict[str, int]) -> dict[str, np.ndarray]:
        """The numbers of one run, by input; all are drawn, in program order, whether or not the model uses them."""
        return {
            name: draw(source, tuple([n.at(sizes) if isinstance(n, Size) else int(n) for n in shape]))
            for name, draw, shape in self._draws
        }
