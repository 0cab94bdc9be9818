"""A component that hands out fixed arrays as variables, so that any of them can be differentiated by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlweave.graph import Component, graph_fn


class StoredInputs(Component):
    """Variables with given values; the float ones can be trained."""

    def __init__(self, arrays: Mapping[str, np.ndarray], scope: str = "inputs") -> None:
        super().__init__(scope)
        self.arrays = dict(arrays)

    def create_variables(self) -> None:
        self.stored = {
            name: self.variable(name, array.shape, array, dtype=str(array.dtype)) for name, array in self.arrays.items()
        }

    @graph_fn
    def read(self) -> dict[str, Any]:
        return {name: variable.value for name, variable in self.stored.items()}
