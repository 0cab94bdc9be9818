"""What A2C, PPO, IMPALA and APPO share: a policy and a value function that learn from rollouts."""

from __future__ import annotations

from typing import Any, ClassVar

from rlweave.agents.actor_critic_graph import ActorCriticGraph
from rlweave.agents.agent import AgentConfig
from rlweave.agents.networks import IMAGE_NETWORK_HELP
from rlweave.agents.rollout_agent import RolloutAgent
from rlweave.components import Policy, RunningNormalization, ValueFunction
from rlweave.components.network import mlp
from rlweave.graph import Component, shared
from rlweave.settings.config import setting
from rlweave.settings.ranges import FINITE, NOT_NEGATIVE, POSITIVE
from rlweave.spaces import Dict, FloatBox


class ActorCriticConfig(AgentConfig):
    """Settings that all of them have, some with other defaults."""

    default_network: ClassVar[list[dict[str, Any]]] = mlp([64, 64], "tanh")
    network: list[dict[str, Any]] | None = setting(
        None,
        "layers of policy and value function; null: two dense tanh layers of 64, none behind the default image network",
    )
    image_network: list[dict[str, Any]] | None = setting(None, IMAGE_NETWORK_HELP)
    shared_network: bool | None = setting(
        False, "one encoder for policy and value function; null: where images are observed"
    )
    discount: float = setting(0.99, "discount of future rewards", ge=0, le=1)
    rollout_steps: int = setting(16, "steps of each environment between two updates", ge=1, unit="steps")
    initial_log_std: float = setting(
        0.0, "logarithm of the initial deviation of box actions, in units of half the box", within=FINITE
    )
    optimizer: dict[str, Any] = setting({"type": "adam"}, "optimizer spec, learning rate apart")
    lr: float | dict[str, Any] = setting(3e-4, "learning rate, or a schedule over optimizer steps", within=NOT_NEGATIVE)
    max_grad_norm: float | None = setting(
        0.5, "global norm that gradients are clipped to; null: not clipped", within=POSITIVE
    )
    value_coefficient: float = setting(0.5, "weight of the value loss", ge=0)
    entropy_coefficient: float = setting(0.01, "weight of the entropy bonus", ge=0)
    reward_scale: float = setting(1.0, "factor on rewards before returns are computed", gt=0)
    normalize_observations: bool = setting(False, "running normalization of float observations")


class ActorCriticAgent(RolloutAgent):
    """An agent with a policy and a value function, which learns from rollouts of its own policy, or of older ones.

    Args:
        observation_space: Space of one observation.
        action_space: Space of one action: discrete, multi-discrete, box and nests of them.
        config: Settings or their data.
        num_envs: Environments whose observed steps make one update without a batch.
        backend: As in `Agent`.
        seed: As in `Agent`.
    """

    #: Class of the root component.
    graph_class: ClassVar[type[ActorCriticGraph]] = ActorCriticGraph
    on_policy = True
    acting_prefixes: tuple[str, ...] = ("policy", "normalization")

    def complete_settings(self) -> None:
        super().complete_settings()
        if self.recurrent and "value-function" not in self.acting_prefixes:
            self.acting_prefixes = (*self.acting_prefixes, "value-function")  # its state is carried along

    def networks(self) -> dict[str, Any]:
        """Arguments of the root component that all have: networks, their optimizer, minibatches, normalization."""
        config = self.config
        encoder = self.encoder_arguments() | {"initializer": "orthogonal"}
        policy = Policy(
            action_space=self.action_space,
            initial_log_std=config.initial_log_std,
            mask_leaf=config.mask_leaf,
            **encoder,
        )
        if config.shared_network:
            encoder = {"network": shared(policy.network), "initializer": "orthogonal"}
        return {
            "policy": policy,
            "value_function": ValueFunction(**encoder),
            "optimizer": Component.from_spec(
                {"max_grad_norm": config.max_grad_norm, **config.optimizer, "learning_rate": config.lr}
            ),
            "normalization": RunningNormalization() if config.normalize_observations else None,
            "reward_scale": config.reward_scale,
            "minibatches": self.minibatch_class(),
        }

    def step_space(self) -> Dict:
        return Dict({**super().step_space(), "log_probs": FloatBox()})

    def row_space(self) -> Dict:
        return Dict(
            observations=self.observation_space,
            actions=self.own_action_space,
            log_probs=FloatBox(),
            values=FloatBox(),
            advantages=FloatBox(),
            value_targets=FloatBox(),
        )

    # -- acting --------------------------------------------------------------------------------------------------

    def choose_actions(
        self, observations: Any, carried: dict[str, Any], explore: bool, preprocess: bool
    ) -> tuple[Any, dict[str, Any], Any]:
        """Log-probabilities `log_probs` (B,) are stored with the step."""
        actions, log_probs, after = self.acting.act(
            observations, *carried.values(), explore=explore, preprocess=preprocess
        )
        return actions, {"log_probs": log_probs, **carried}, after
