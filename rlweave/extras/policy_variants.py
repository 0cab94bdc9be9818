"""One policy with many sets of weights, which all act at once."""

from __future__ import annotations

from typing import Any

from rlweave import graph
from rlweave.graph import Component, api, graph_fn, register, shared


@register("policy_variants")
class PolicyVariants(Component):
    """Variants of one policy, each with weights of its own: perturbed by evolution strategies, or adapted to tasks.

    Variants act together: one call of the policy, mapped over substituted weights (`graph.vmap` over
    `graph.substitute`). Their weights are variables that are not trained.

    Args:
        policy: A `Policy` that is owned elsewhere; its variables stay as they are.
        scope: Name within the owner.
    """

    def __init__(self, policy: Any, scope: str = "variants") -> None:
        super().__init__(scope)
        self.policy = shared(policy)

    def create_variables(self, weights: Any) -> None:
        """A variable (P, *shape) for each of the policy's, named by its path."""
        self.variants = {
            path: self.variable(path, leaf.concrete_shape({}), 0.0, trainable=False) for path, leaf in weights.items()
        }

    @graph_fn(differentiable=False)
    def assign(self, weights: Any) -> None:
        """Gives all variants their weights.

        Args:
            weights: By path of the policy's variables, (P, *shape) each, P fixed.
        """
        for path, variant in self.variants.items():
            variant.assign(weights[path])

    @api
    def parameters(self, observations: Any) -> Any:
        """Parameters of each variant's action distribution.

        Args:
            observations: An observation for each variant, nested (P, *shape).

        Returns:
            Nested (P, ...), see `Policy.parameters`.
        """

        def one(weights: Any, state: Any) -> Any:
            return graph.substitute(self.policy, weights).parameters(state)

        return graph.vmap(one)(graph.batch_rank(self._weights()), observations)

    @api(static=("explore",))
    def act(self, observations: Any, explore: bool = True) -> Any:
        """Each variant chooses an action.

        Args:
            observations: An observation for each variant, nested (P, *shape).
            explore: Static. True draws from the distributions, False takes their modes.

        Returns:
            Nested actions (P, *shape), and their log-probability (P,).
        """
        parameters = self.parameters(observations)
        distribution = self.policy.distribution
        if explore:
            return distribution.sample_and_log_prob(parameters)
        return distribution.mode_and_log_prob(parameters)

    @graph_fn
    def _weights(self) -> Any:
        return {path: variant.value for path, variant in self.variants.items()}
