"""IMPALA (Espeholt et al. 2018, arXiv:1802.01561): an actor-critic that learns from steps of older policies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from rlweave.agents.agent import AgentConfig, Batch, Metrics
from rlweave.agents.impala_graph import IMPALAGraph, RecurrentIMPALAGraph
from rlweave.agents.networks import IMAGE_NETWORK_HELP
from rlweave.agents.ppo import PPO
from rlweave.components import IMPALALoss, VTrace
from rlweave.components.network import mlp
from rlweave.settings.config import setting
from rlweave.settings.ranges import FINITE, NOT_NEGATIVE, POSITIVE
from rlweave.spaces import Space

Correction = Literal["vtrace", "none"]


class IMPALAConfig(AgentConfig):
    """Settings of IMPALA."""

    default_network: ClassVar[list[dict[str, Any]]] = mlp([64, 64], "tanh")
    network: list[dict[str, Any]] | None = setting(
        None,
        "layers of policy and value function; null: two dense tanh layers of 64, none behind the default image network",
    )
    image_network: list[dict[str, Any]] | None = setting(None, IMAGE_NETWORK_HELP)
    shared_network: bool = setting(False, "one trunk for policy and value function")
    discount: float = setting(0.99, "discount of future rewards", ge=0, le=1)
    rollout_steps: int = setting(20, "length of a trajectory", ge=1, unit="steps")
    off_policy_correction: Correction = setting(
        "vtrace", "how steps of older policies are weighted: vtrace; or none, as if they were the present policy's own"
    )
    rho_clip: float = setting(1.0, "largest weight of a TD error in V-trace", gt=0)
    c_clip: float = setting(1.0, "largest weight of a trace in V-trace, at most rho_clip", gt=0)
    policy_rho_clip: float = setting(1.0, "largest weight of an advantage", gt=0)
    trace_decay: float = setting(1.0, "lambda: decay of traces, as in TD(lambda)", ge=0, le=1)
    initial_log_std: float = setting(
        0.0, "logarithm of the initial deviation of box actions, in units of half the box", within=FINITE
    )
    optimizer: dict[str, Any] = setting({"type": "adam"}, "optimizer spec, learning rate apart; the paper's is rmsprop")
    lr: float | dict[str, Any] = setting(6e-4, "learning rate, or a schedule over optimizer steps", within=NOT_NEGATIVE)
    max_grad_norm: float | None = setting(
        40.0, "global norm that gradients are clipped to; null: not clipped", within=POSITIVE
    )
    value_coefficient: float = setting(0.5, "weight of the value loss", ge=0)
    entropy_coefficient: float = setting(0.01, "weight of the entropy bonus", ge=0)
    normalize_observations: bool = setting(False, "running normalization of float observations")
    reward_scale: float = setting(1.0, "factor on rewards before returns are computed", gt=0)


class IMPALA(PPO):
    """IMPALA for discrete, multi-discrete, box and nested action spaces.

    It acts and observes as PPO does; an update is one optimizer step on whole trajectories, of any number.

    Args:
        observation_space: Space of one observation.
        action_space: Space of one action.
        config: `IMPALAConfig` or its data.
        num_envs: Environments whose observed steps make one update without a batch.
        backend: As in `Agent`.
        seed: As in `Agent`.
    """

    name: ClassVar[str] = "impala"
    config_class = IMPALAConfig  # type: ignore[assignment]
    config: IMPALAConfig

    def __init__(
        self,
        observation_space: Space,
        action_space: Space,
        config: IMPALAConfig | Mapping[str, Any] | None = None,
        *,
        num_envs: int = 1,
        backend: str = "jax",
        seed: int = 0,
    ) -> None:
        super().__init__(observation_space, action_space, config, num_envs=num_envs, backend=backend, seed=seed)  # type: ignore[arg-type]

    def _check_minibatches(self) -> None:
        """There are none."""

    def make_root(self) -> IMPALAGraph:
        return (RecurrentIMPALAGraph if self.recurrent else IMPALAGraph)(**self.graph_arguments())

    def graph_arguments(self) -> dict[str, Any]:
        config = self.config
        return {
            **self.network_arguments(),
            "vtrace": VTrace(
                config.discount, config.rho_clip, config.c_clip, config.policy_rho_clip, config.trace_decay
            ),
            "corrected": config.off_policy_correction == "vtrace",
            "loss": IMPALALoss(config.value_coefficient, config.entropy_coefficient),
        }

    @property
    def _trajectories_per_batch(self) -> int | bool:
        return True

    def update(self, batch: Batch | None = None) -> Metrics:
        """Learns from trajectories: one optimizer step.

        Args:
            batch: Dict of arrays (T, B, ...) as `batch_space` says, of any number B of trajectories; None takes what
                was observed.

        Raises:
            ExecutionError: Without a batch, when fewer than `rollout_steps` steps of `num_envs` environments were
                observed; or a metric is not finite.
        """
        batch = self._given_or_observed(batch)
        _, metrics = self.executor.update(batch, with_metrics=True)
        self._copy_to_actor()
        return {**self._checked(metrics), "gradient_steps": 1, "trained_samples": int(batch["rewards"].size)}
