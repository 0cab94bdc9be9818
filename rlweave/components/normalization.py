"""Running normalization of observations."""

from __future__ import annotations

import math
from typing import Any

from rlweave import ops
from rlweave.graph import Component, api, graph_fn, register
from rlweave.settings.ranges import POSITIVE


@register("running_normalization")
class RunningNormalization(Component):
    """Brings observations to mean 0 and deviation 1, by statistics of all observations it was updated with.

    Raw observations travel; `call` stands in front of the network, wherever that runs. Only the learner calls
    `update`, after its update of the weights: so a policy's statistics do not change between acting and learning
    (PPO's ratio is exactly 1 at the first minibatch), and they ship with its weights, as variables that cannot be
    trained. Evaluations do not call `update`.

    Batches are merged by the parallel formula (Chan et al. 1979), each feature apart, in float32 with the rounding
    errors of count, mean and variance carried along, so that many small merges do not add up to a large error.

    Float leaves of a nested space are normalized; others (integers, bools, bytes) pass through as they are.

    Args:
        clip: Normalized observations are clipped to [-clip, clip]; None does not clip.
        epsilon: Added to the variance. A constant feature becomes 0.
        scope: Name within the owner.

    Raises:
        ConfigError: A setting is out of range.
    """

    #: Where moments become those of all ranks of a training, see `Ranks`; None: there is one.
    ranks: Any = None

    def __init__(self, clip: float | None = 10.0, epsilon: float = 1e-8, scope: str = "normalization") -> None:
        super().__init__(scope)
        POSITIVE.check("clip", clip, scope, optional=True)
        POSITIVE.check("epsilon", epsilon, scope)
        self.clip, self.epsilon = clip, epsilon

    def create_variables(self, inputs: Any) -> None:
        self.count = self._sum("count", ())
        statistics = {}
        for key, leaf in inputs.flatten().items():
            if leaf.dtype.startswith("float"):
                prefix = f"{key}/" if key else ""
                statistics[key] = {
                    "mean": self._sum(f"{prefix}mean", leaf.shape),
                    "variance": self._sum(f"{prefix}variance", leaf.shape),
                }
        self.statistics = statistics

    def _sum(self, name: str, shape: Any) -> dict[str, Any]:
        """A number that many small ones are added to, and the rounding error that this has left so far."""
        return {
            "value": self.variable(name, shape, 0.0, trainable=False),
            "error": self.variable(f"{name}_error", shape, 0.0, trainable=False),
        }

    @graph_fn(split=True, with_key=True)
    def call(self, key: str, inputs: Any) -> Any:
        """Normalizes by the present statistics, which it leaves as they are.

        Args:
            key: Path of the leaf (filled in).
            inputs: Observations of any leading ranks, nested.

        Returns:
            (x - mean) / sqrt(variance + epsilon), clipped; of the same nesting. Before the first update: x, clipped.
        """
        if key not in self.statistics:
            return inputs
        mean, variance = (self.statistics[key][name]["value"].value for name in ("mean", "variance"))
        known = self.count["value"].value > 0
        deviation = ops.sqrt(ops.where(known, variance + self.epsilon, 1.0))
        scaled = (ops.astype(inputs, "float32") - mean) / deviation
        return scaled if self.clip is None else ops.clip(scaled, -self.clip, self.clip)

    @graph_fn(split=True, with_key=True)
    def scale(self, key: str, inputs: Any) -> Any:
        """As `call`, without the shift: x / sqrt(variance + epsilon), clipped."""
        if key not in self.statistics:
            return inputs
        known = self.count["value"].value > 0
        variance = self.statistics[key]["variance"]["value"].value
        scaled = ops.astype(inputs, "float32") / ops.sqrt(ops.where(known, variance + self.epsilon, 1.0))
        return scaled if self.clip is None else ops.clip(scaled, -self.clip, self.clip)

    @api
    def merge(self, inputs: Any, mask: Any = None) -> None:
        """As `update`, with the observations of all ranks of a training: their statistics stay equal."""
        if self.ranks is None:
            self.update(inputs, mask)
        else:
            self._take_in(*self.ranks.moments(*self._moments(inputs, mask)))

    @graph_fn(flatten=True, differentiable=False)
    def update(self, inputs: Any, mask: Any = None) -> None:
        """Merges observations into the statistics.

        Args:
            inputs: Raw observations of any leading ranks, nested.
            mask: Bool, of the leading ranks: rows that are False (padding) do not count. None: all count.
        """
        weights = None if mask is None else ops.reshape(ops.astype(mask[""], "float32"), (-1,))
        number: Any = 0.0
        share: Any = 0.0
        for key in self.statistics:
            x, rows = self._rows(inputs, key)
            if rows == 0:
                return
            if key == next(iter(self.statistics)):
                number = float(rows) if weights is None else ops.sum(weights)
                share = self._share_of(number)
            shift, spread = self._differences(key, x, weights, number)
            self._add_moments(key, shift, spread, share)
        _add(self.count, number)

    @graph_fn(flatten=True, differentiable=False, mixes_batch=True, returns=3)
    def _moments(self, inputs: Any, mask: Any) -> Any:
        """How many rows there are; mean and mean square of their differences from the present mean, by leaf."""
        weights = None if mask is None else ops.reshape(ops.astype(mask[""], "float32"), (-1,))
        number: Any = 0.0
        shifts, spreads = {}, {}
        for key in self.statistics:
            x, rows = self._rows(inputs, key)
            number = ops.asarray(float(rows), "float32") if weights is None else ops.sum(weights)
            shifts[f"leaf {key}"], spreads[f"leaf {key}"] = self._differences(key, x, weights, number)
        return number, shifts, spreads

    @graph_fn(differentiable=False)
    def _take_in(self, number: Any, shifts: Any, spreads: Any) -> None:
        share = self._share_of(number)
        for key in self.statistics:
            self._add_moments(key, shifts[f"leaf {key}"], spreads[f"leaf {key}"], share)
        _add(self.count, number)

    def _rows(self, inputs: Any, key: str) -> tuple[Any, int]:
        """A leaf of observations as rows, and how many they are."""
        x = ops.astype(inputs[key], "float32")
        features = self.statistics[key]["mean"]["value"].shape
        rows = math.prod(x.shape[: len(x.shape) - len(features)])
        return ops.reshape(x, (rows, *features)), rows

    def _share_of(self, number: Any) -> Any:
        """The share that so many new rows have in all."""
        return number / ops.maximum(self.count["value"].value + number, 1.0)

    def _differences(self, key: str, x: Any, weights: Any, number: Any) -> tuple[Any, Any]:
        """Mean, and mean squared distance from it, of the differences of rows from the present mean."""
        mean = self.statistics[key]["mean"]
        if weights is not None:
            # rows that do not count may hold anything, NaN included
            x = ops.where(_per_row(weights, x) > 0, x, 0.0)
        # differences from the present mean are small numbers, of which a mean loses fewer digits
        x = x - mean["value"].value - mean["error"].value
        shift = _row_mean(x, weights, number)
        return shift, _row_mean(ops.square(x - shift), weights, number)

    def _add_moments(self, key: str, shift: Any, spread: Any, share: Any) -> None:
        mean, variance = self.statistics[key]["mean"], self.statistics[key]["variance"]
        _add(mean, shift * share)
        before = variance["value"].value
        _add(variance, (spread - before + ops.square(shift) * (1.0 - share)) * share)


def _row_mean(x: Any, weights: Any, number: Any) -> Any:
    if weights is None:
        return ops.mean(x, 0)
    return ops.sum(x * _per_row(weights, x), 0) / ops.maximum(number, 1.0)


def _per_row(weights: Any, x: Any) -> Any:
    return ops.reshape(weights, (-1,) + (1,) * (len(x.shape) - 1))


def _add(total: dict[str, Any], x: Any) -> None:
    """Compensated summation (Kahan 1965): what `value` cannot hold of x goes into `error`, and in again next time."""
    before = total["value"].value
    x = x + total["error"].value
    after = before + x
    total["value"].assign(after)
    total["error"].assign(x - (after - before))
