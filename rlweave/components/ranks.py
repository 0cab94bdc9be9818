"""Ranks: the places in a graph where numbers of several learners become one."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlweave.graph import Component, graph_fn, shared
from rlweave.graph.current import current_trace
from rlweave.tree import tree_map


class Share:
    """The part that one rank of a data-parallel training has in an update.

    Args:
        collective: Of its rank, see `rlweave.flow.Collective`.

    Attributes:
        rows: The rows that the rank learns from in this update: its weight in means over ranks.
    """

    def __init__(self, collective: Any) -> None:
        self.collective, self.rows = collective, 1.0


class Ranks(Component):
    """Where numbers of all ranks become one, on the host: gradients, and statistics of what is learned from.

    All ranks run the same graph, each on its own rows. Components that compute over rows have an attribute `ranks`,
    None where there is one rank, and say themselves what of theirs is to be over all: optimizers their gradients,
    normalizations their moments. So with several ranks the graph has one more node at each of these places, and with
    one rank it has none.

    Args:
        share: The part of this rank.
        scope: Name within the owner.
    """

    def __init__(self, share: Share, scope: str = "ranks") -> None:
        super().__init__(scope)
        self._share = share

    def connect(self, root: Component) -> None:
        """Has all components below a root that compute over rows do so over those of all ranks."""
        over_rows: list[Any] = [component for component in root.tree() if hasattr(type(component), "ranks")]
        root.ranks = self
        for component in over_rows:
            if component is not root:
                component.ranks = shared(self)

    @graph_fn(host=True, differentiable=False, returns=1)
    def mean(self, values: Any) -> Any:
        """The mean over ranks of nested means over rows: each counts by its number of rows."""
        if current_trace() is not None:  # it is only tried
            return tree_map(np.copy, values)
        return self._share.collective.all_reduce(values, self._share.rows)

    @graph_fn(host=True, differentiable=False, returns=3)
    def moments(self, number: Any, center: Any, spread: Any) -> Any:
        """Moments of the rows of all ranks, in float64, of those of each.

        Args:
            number: How many rows, a scalar.
            center: Their mean, nested.
            spread: Their mean squared distance from it, nested alike.

        Returns:
            The same of all rows.
        """
        if current_trace() is not None:
            return np.copy(number), tree_map(np.copy, center), tree_map(np.copy, spread)
        rows = float(number)

        def summed(x: Any) -> Any:  # where there are no rows, a mean of them is no number
            return rows * np.asarray(x, np.float64) if rows else np.zeros(np.shape(x))

        squares = tree_map(lambda m, s: summed(s) + summed(np.square(m, dtype=np.float64)), center, spread)
        own = (np.float64(rows), tree_map(summed, center), squares)
        total, sums, squares = self._share.collective.all_reduce(own)
        count = max(float(total), 1.0)

        def variance(x: Any, square: Any) -> Any:
            return np.maximum(square / count - np.square(x / count), 0.0).astype(np.float32)

        means = tree_map(lambda x: (x / count).astype(np.float32), sums)
        return total.astype(np.float32), means, tree_map(variance, sums, squares)
