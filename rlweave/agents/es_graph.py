"""The component graph of evolution strategies."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlweave import graph, ops
from rlweave.components import EvolutionStrategy, NoiseTable, Policy, Population
from rlweave.graph import Component, api, graph_fn


class ESGraph(Component):
    """The component graph of evolution strategies.

    Args:
        policy: The policy in the centre.
        noise: The shared noise.
        evolution: Perturbations, and what they are worth.
        optimizer: Moves the policy.
        weight_decay: Pull of the weights to 0, as the gradient of weight_decay / 2 * |weights|^2.
    """

    def __init__(
        self,
        policy: Policy,
        noise: NoiseTable,
        evolution: EvolutionStrategy,
        optimizer: Component,
        weight_decay: float,
        scope: str = "es",
    ) -> None:
        super().__init__(scope)
        self.policy, self.population = policy, Population(policy)
        self.noise, self.evolution, self.optimizer = noise, evolution, optimizer
        self.weight_decay = weight_decay

    @api(static=("explore",))
    def act(self, states: Any, explore: bool = True) -> Any:
        """Actions of the policy in the centre, and their log-probabilities, for observations (B, ...)."""
        return self.policy.act(states, explore=explore)

    @api
    def perturb(self, offsets: Any, signs: Any) -> None:
        """Puts each member of the population at the policy's weights + sign * sigma * noise at its offset."""
        variables = self.policy.variables()
        noise = self.noise.rows(offsets, length=_size(variables))
        self.population.assign(self._by_path(self.evolution.perturb(self._flat(variables), noise, signs), variables))

    @api
    def act_population(self, states: Any) -> Any:
        """The likeliest action of each member for its observation, (P, ...)."""
        actions, _ = self.population.act(states, explore=False)
        return actions

    @api
    def update(self, offsets: Any, returns: Any) -> None:
        """One step along the estimated gradient, from the returns (n, 2) of mirrored pairs with noise at `offsets`."""
        graph.metrics(self.optimizer.apply(self.gradients(offsets, returns), self.policy.variables()))

    @api
    def gradients(self, offsets: Any, returns: Any) -> Any:
        """The estimated gradient of what is minimized, by variable path."""
        variables = self.policy.variables()
        ascent = self.noise.combine(offsets, self.evolution.weights(returns), length=_size(variables))
        return self._by_path(self._descent(ascent, self._flat(variables)), variables)

    @api
    def apply(self, gradients: Any) -> None:
        """One optimizer step with given gradients, by variable path."""
        graph.metrics(self.optimizer.apply(gradients, self.policy.variables()))

    @graph_fn(differentiable=False)
    def _descent(self, ascent: Any, weights: Any) -> Any:
        return self.weight_decay * weights - ascent

    @graph_fn(differentiable=False)
    def _flat(self, variables: Any) -> Any:
        """All weights as one vector, in the order of their paths: the same in every process."""
        return ops.concat([ops.reshape(cell.value, (-1,)) for _, cell in sorted(variables.items())], axis=0)

    @graph_fn(differentiable=False)
    def _by_path(self, vectors: Any, variables: Any) -> Any:
        """Vectors (..., D) cut into arrays (..., *shape) by path."""
        parts, begin = {}, 0
        leading = tuple(vectors.shape[:-1])
        for path, cell in sorted(variables.items()):
            shape = tuple(cell.shape)
            size = int(np.prod(shape))
            parts[path] = ops.reshape(vectors[..., begin : begin + size], (*leading, *shape))
            begin += size
        return parts


def _size(variables: Any) -> int:
    """How many numbers the variables hold."""
    return sum(int(np.prod(variable.space.shape)) for variable in variables)
