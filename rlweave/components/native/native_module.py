"""What the wrappers of native modules have in common."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlweave.errors import BackendError, BuildError
from rlweave.graph import Component
from rlweave.graph.trace import current_session


class NativeModule(Component):
    """A module of one framework, whose parameters are variables of the graph.

    Args:
        parameters: Initial values by name: trainable variables.
        statistics: Initial values by name of what else the module holds: variables that are not trained.
        encodes_states: Whether it takes raw observations, so that policies use it as it is instead of putting it
            behind a StateEncoder.
        scope: Name within the owner.
    """

    #: The backend that the module is written for.
    framework = ""

    def __init__(
        self, parameters: dict[str, np.ndarray], statistics: dict[str, np.ndarray], encodes_states: bool, scope: str
    ) -> None:
        super().__init__(scope)
        self.initial_parameters, self.initial_statistics = parameters, statistics
        self.encodes_states = encodes_states

    def create_variables(self) -> None:
        """One variable per parameter and statistic, by its name in the module, with its present value."""
        session = current_session()
        assert session is not None
        if session.backend.name != self.framework:
            raise BackendError(
                f"a {type(self).__name__} runs on the {self.framework} backend only",
                where=self.path,
                received=f"backend={session.backend.name!r}",
                fix=f"build(..., backend={self.framework!r}), or write the layers as components",
            )
        self.parameters = self._variables(self.initial_parameters, trainable=True)
        self.statistics = self._variables(self.initial_statistics, trainable=False)

    def _variables(self, values: dict[str, np.ndarray], trainable: bool) -> dict[str, Any]:
        return {
            name: self.variable(name, value.shape, value, trainable=trainable, dtype=str(value.dtype))
            for name, value in values.items()
        }

    @staticmethod
    def _refuse(module: Any, wanted: str) -> None:
        raise BuildError("not a native module", received=repr(type(module)), fix=f"pass an instance of {wanted}")
