"""What the wrappers of native modules have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlweave import ops
from rlweave.errors import BackendError, BuildError
from rlweave.graph import Component, graph_fn
from rlweave.graph.current import current_session
from rlweave.spaces import Space

LAYOUTS = ("channels_last", "channels_first")


class NativeModule(Component):
    """A module of one framework, whose parameters are variables of the graph.

    The module always sees one batch axis: time and batch, or no rank at all, become one axis before it and what they
    were after it. Agents pass (T, B, ...) and (B, ...) to the same network.

    Args:
        parameters: Initial values by name: trainable variables.
        statistics: Initial values by name of what else the module holds: variables that are not trained.
        encodes_observations: Whether it takes raw observations, so that policies use it as it is instead of putting it
            behind an ObservationEncoder.
        image_layout: Layout of images that the module takes; they come as (height, width, channels) and are handed to
            it as that ("channels_last"), or as (channels, height, width) ("channels_first").
        training: How layers behave that know two ways (dropout, batch normalization). False: as in evaluation, by the
            statistics that the module came with. True: batch normalization by the batch at hand in every call, which
            also moves its statistics; dropout is refused, since it draws numbers that no build knows of. None: there
            are no such layers.
        differing: Names of layers that know two ways.
        drawing: Names of layers that draw random numbers in training.
        scope: Name within the owner.

    Raises:
        BuildError: An unknown layout, layers that know two ways without `training`, or dropout with `training=True`.
    """

    #: The backend that the module is written for.
    framework = ""

    def __init__(
        self,
        parameters: dict[str, np.ndarray],
        statistics: dict[str, np.ndarray],
        encodes_observations: bool,
        image_layout: str,
        training: bool | None,
        differing: Sequence[str],
        drawing: Sequence[str],
        scope: str,
    ) -> None:
        super().__init__(scope)
        if image_layout not in LAYOUTS:
            raise BuildError("unknown layout of images", received=repr(image_layout), fix=f"choose one of {LAYOUTS}")
        if training is None and differing:
            raise BuildError(
                f"a {type(self).__name__} does not say how layers behave that differ in training and evaluation",
                where=self.path,
                received=", ".join(differing),
                fix="training=False (as in evaluation, by the statistics that the module has), or training=True (batch "
                "normalization by the batch at hand)",
            )
        if training and drawing:
            raise BuildError(
                "dropout draws random numbers that no build knows of",
                where=self.path,
                received=", ".join(drawing),
                fix="leave these layers out, or training=False",
            )
        self.initial_parameters, self.initial_statistics = parameters, statistics
        self.encodes_observations, self.image_layout, self.training = encodes_observations, image_layout, bool(training)
        object.__setattr__(self, "mixes_batch", self.training)  # rows meet in the statistics of a batch

    def create_variables(self, inputs: Space) -> None:
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
        self.feature_ranks = {path: len(leaf.shape) for path, leaf in inputs.flatten().items()}

    @graph_fn
    def call(self, inputs: Any) -> Any:
        """Applies the module: what it takes, and what it gives, nested arrays of any feature shapes."""
        folded, leading = _folded(inputs, self.feature_ranks, self.image_layout, "")
        return _unfolded(self._outputs(folded), leading)

    @abstractmethod
    def _outputs(self, inputs: Any) -> Any:
        """What the module makes of inputs with one batch axis."""

    def _variables(self, values: dict[str, np.ndarray], trainable: bool) -> dict[str, Any]:
        return {
            name: self.variable(name, value.shape, value, trainable=trainable, dtype=str(value.dtype))
            for name, value in values.items()
        }

    def _values(self) -> dict[str, Any]:
        """Arrays of all parameters and statistics by name."""
        return {name: cell.value for name, cell in (*self.parameters.items(), *self.statistics.items())}

    @staticmethod
    def _refuse(module: Any, wanted: str) -> None:
        raise BuildError("not a native module", received=repr(type(module)), fix=f"pass an instance of {wanted}")


def _folded(x: Any, feature_ranks: dict[str, int], layout: str, path: str) -> tuple[Any, tuple[Any, ...]]:
    """Inputs with one batch axis, images in the layout of the module; and the leading axes that they had."""
    if isinstance(x, dict | list | tuple):
        items = x.items() if isinstance(x, dict) else enumerate(x)
        folded = {
            key: _folded(item, feature_ranks, layout, f"{path}/{key}" if path else str(key)) for key, item in items
        }
        leading = next(iter(folded.values()))[1]
        found = {key: item for key, (item, _) in folded.items()}
        return (found if isinstance(x, dict) else type(x)(found.values())), leading
    ranks = x.ndim - feature_ranks[path]
    leading = tuple(x.shape[:ranks])
    if ranks != 1:
        x = ops.fold_ranks(x, ranks)
    return (ops.permute_dims(x, (0, 3, 1, 2)) if layout == "channels_first" and x.ndim == 4 else x), leading


def _unfolded(x: Any, leading: tuple[Any, ...]) -> Any:
    if isinstance(x, dict):
        return {key: _unfolded(item, leading) for key, item in x.items()}
    if isinstance(x, list | tuple):
        return tuple([_unfolded(item, leading) for item in x])
    return x if len(leading) == 1 else ops.unfold_ranks(x, leading)
