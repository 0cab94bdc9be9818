"""APPO: PPO on trajectories of older policies, with V-trace and a target policy (IMPACT, arXiv:1912.00167)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

from rlweave import ops
from rlweave.agents.actor_critic_graph import ActorCriticGraph
from rlweave.agents.impala import Correction, OffPolicyRatios
from rlweave.agents.ppo import PPO, PPOConfig, PPOGraph
from rlweave.components import VTrace
from rlweave.errors import BuildError
from rlweave.graph import api, graph_fn
from rlweave.settings.config import setting


class APPOConfig(PPOConfig):
    """Settings of APPO: those of PPO, and how steps of older policies are corrected for."""

    gae_lambda: float = setting(
        0.95, "lambda: decay of V-trace's traces; without a correction, of generalized advantages", ge=0, le=1
    )
    rollout_steps: int = setting(64, "length of a trajectory", ge=1, unit="steps")
    epochs: int = setting(2, "passes over the trajectories in an update", ge=1)
    off_policy_correction: Correction = setting(
        "vtrace",
        "vtrace, and a target policy; or none: PPO, as if the steps were the present policy's own",
    )
    rho_clip: float = setting(1.0, "largest weight of a TD error in V-trace", gt=0)
    c_clip: float = setting(1.0, "largest weight of a trace in V-trace, at most rho_clip", gt=0)
    policy_rho_clip: float = setting(1.0, "largest weight of an advantage in V-trace", gt=0)
    ratio_bound: float = setting(2.0, "largest correction of the surrogate's ratio by the target policy", ge=1)
    target_update_interval: int = setting(
        1, "interval between two copies of the policy to the target policy", ge=1, unit="updates"
    )


class APPOGraph(PPOGraph):
    """PPO on trajectories of older policies, with a target policy between the one that acted and the one that learns.

    With mu the policy that acted, pi' the target policy and pi the one that is trained, V-trace corrects values and
    advantages for pi' / mu, and the clipped surrogate takes min(mu / pi', ratio_bound) * pi / mu as its ratio (IMPACT,
    Luo et al. 2020, https://arxiv.org/abs/1912.00167, equations 2 and 3; so does RLlib's APPO, with 2 as the bound).
    That is pi / max(pi', mu / ratio_bound): PPO's ratio, with another policy at the bottom. So nothing here but
    `_estimates` differs from PPO.

    RLlib computes V-trace anew for each minibatch, with values of the moment; here it is done once for each update,
    before its epochs, as PPO does with its advantages. A target policy with a memory runs from the states that the
    worker had.

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
        target_log_probs, _ = self._policy_on(self.target_policy, observations, batch)
        acted, steps = (
            batch["log_probs"],
            (self._rewards(batch), values, next_values, batch["terminated"], batch["truncated"]),
        )
        targets, advantages, ratios = self.advantages.estimate(target_log_probs, acted, *steps)
        self.ratios.report(ratios)
        return self._bottom(target_log_probs, acted), advantages, targets

    @graph_fn(differentiable=False)
    def _bottom(self, target_log_probs: Any, acted: Any) -> Any:
        """The logarithm of what the surrogate's ratio divides by, max(pi', mu / ratio_bound), (T, B)."""
        return ops.maximum(target_log_probs, acted - math.log(self.ratio_bound))


class APPO(PPO):
    """APPO for discrete, multi-discrete, box and nested action spaces.

    Args:
        observation_space: Space of one observation.
        action_space: Space of one action.
        config: `APPOConfig` or its data.
        num_envs: Trajectories that make one update.
        backend: As in `Agent`.
        seed: As in `Agent`.
    """

    name: ClassVar[str] = "appo"
    config_class = APPOConfig
    config: APPOConfig

    _updates = 0

    def make_root(self) -> ActorCriticGraph:
        if self.config.off_policy_correction == "none":
            return PPOGraph(**self.graph_arguments())
        return APPOGraph(**self.graph_arguments())

    def graph_arguments(self) -> dict[str, Any]:
        config, arguments = self.config, super().graph_arguments()
        if config.off_policy_correction == "none":
            return arguments
        vtrace = VTrace(config.discount, config.rho_clip, config.c_clip, config.policy_rho_clip, config.gae_lambda)
        return {**arguments, "advantages": vtrace, "ratio_bound": config.ratio_bound}

    def _after_update(self) -> None:
        """The target policy follows, if it is time."""
        self._updates += 1
        if self.config.off_policy_correction != "none" and self._updates % self.config.target_update_interval == 0:
            self.executor.sync_target()

    def _after_import(self) -> None:
        if self.config.off_policy_correction != "none":
            self.executor.sync_target()
        super()._after_import()

    def counters(self) -> dict[str, int]:
        return {**super().counters(), "updates": self._updates}

    def load_counters(self, counters: Mapping[str, int]) -> None:
        super().load_counters(counters)
        self._updates = int(counters["updates"])
