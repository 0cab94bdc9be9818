"""The component graph of APPO."""

from __future__ import annotations

import math
from typing import Any

from rlweave import ops
from rlweave.agents.impala_graph import OffPolicyRatios
from rlweave.agents.ppo_graph import PPOGraph
from rlweave.agents.recurrent_ppo_graph import RecurrentPPOGraph
from rlweave.components import VTrace
from rlweave.errors import BuildError
from rlweave.graph import api, graph_fn


class APPOGraph(PPOGraph):
    """PPO on trajectories of older policies, with a target policy between the one that acted and the one that learns.

    With mu the policy that acted, pi' the target policy and pi the one that is trained, V-trace corrects values and
    advantages for pi' / mu, and the clipped surrogate takes min(mu / pi', ratio_bound) * pi / mu as its ratio (IMPACT,
    Luo et al. 2020, https://arxiv.org/abs/1912.00167, equations 2 and 3; so does RLlib's APPO, with 2 as the bound).
    That is pi / max(pi', mu / ratio_bound): PPO's ratio, with another policy at the bottom. So nothing here but
    `_estimates` differs from PPO.

    RLlib computes V-trace anew for each minibatch, with values of the moment; here it is done once for each update,
    before its epochs, as PPO does with its advantages.

    Args:
        ratio_bound: Largest correction of the surrogate's ratio, at least 1.
        arguments: Those of `PPOGraph`; `advantages` is a `VTrace`.

    Raises:
        BuildError: `ratio_bound` is below 1.
    """

    def __init__(self, *, ratio_bound: float = 2.0, scope: str = "appo", **arguments: Any) -> None:
        super().__init__(scope=scope, **arguments)
        if not ratio_bound >= 1.0:
            raise BuildError("ratio_bound is out of range", where=scope, received=repr(ratio_bound), fix="at least 1")
        assert isinstance(self.advantages, VTrace)
        self.ratio_bound = ratio_bound
        self.target_policy = self.policy.copy(scope="target-policy", trainable=False)
        self.ratios = OffPolicyRatios()

    @api
    def sync_target(self) -> None:
        """Makes the target policy equal to the one that is trained."""
        self.target_policy.sync(self.policy)

    def _estimates(self, batch: Any, observations: Any, values: Any, next_values: Any) -> Any:
        target_log_probs, acted = self._target_log_probs(observations, batch), batch["log_probs"]
        steps = self._scale(batch["rewards"]), values, next_values, batch["terminated"], batch["truncated"]
        targets, advantages, ratios = self.advantages.estimate(target_log_probs, acted, *steps)
        self.ratios.report(ratios)
        return self._bottom(target_log_probs, acted), advantages, targets

    def _target_log_probs(self, observations: Any, batch: Any) -> Any:
        """Logarithms of pi'(a|s) of the taken actions, (T, B)."""
        return self.target_policy.log_prob_and_entropy(observations, batch["actions"])[0]

    @graph_fn(differentiable=False)
    def _bottom(self, target_log_probs: Any, acted: Any) -> Any:
        """The logarithm of what the surrogate's ratio divides by, max(pi', mu / ratio_bound), (T, B)."""
        return ops.maximum(target_log_probs, acted - math.log(self.ratio_bound))


class RecurrentAPPOGraph(APPOGraph, RecurrentPPOGraph):
    """APPO whose networks carry a state; the target policy runs from the observations that the worker had."""

    def _target_log_probs(self, observations: Any, batch: Any) -> Any:
        return self.target_policy.recurrent_log_prob_and_entropy(
            observations, batch["actions"], batch["initial_state"]["policy"], batch["episode_start"]
        )[0]
