"""What SAC, TD3 and DDPG share: settings, and the networks of policy and critics."""

from __future__ import annotations

from typing import Any, ClassVar

from rlweave.agents.agent import ReplicatedConfig
from rlweave.agents.networks import IMAGE_NETWORK_HELP
from rlweave.agents.replay_agent import OwnMemoryConfig, ReplayAgent
from rlweave.components import mlp
from rlweave.components.action_leaves import FLOATS
from rlweave.components.action_masks import check_mask_leaf
from rlweave.settings.config import setting
from rlweave.settings.ranges import NOT_NEGATIVE, POSITIVE


class ContinuousConfig(OwnMemoryConfig, ReplicatedConfig):
    """Settings that SAC, TD3 and DDPG share."""

    default_network: ClassVar[list[dict[str, Any]]] = mlp([256, 256], "relu")
    network: list[dict[str, Any]] | None = setting(
        None, "dense layers of the policy, and of each critic; null: two relu layers of 256"
    )
    image_network: list[dict[str, Any]] | None = setting(None, IMAGE_NETWORK_HELP)
    n_step: int = setting(1, "rewards in an n-step return before it bootstraps", ge=1, unit="steps")
    prioritized: bool = setting(False, "prioritized replay: transitions are drawn by their TD error")
    batch_size: int = setting(256, "transitions in an update", ge=1, unit="transitions")
    learning_starts: int = setting(100, "environment steps before the first update", ge=1, unit="environment steps")
    samples_per_step: float = setting(
        256.0, "transitions trained on for each environment step", gt=0, unit="transitions per environment step"
    )
    max_grad_norm: float | None = setting(
        None, "global norm that gradients are clipped to; null: not clipped", within=POSITIVE
    )
    lr: float | dict[str, Any] = setting(
        3e-4, "learning rate of policy and critics, or a schedule over optimizer steps", within=NOT_NEGATIVE
    )
    tau: float = setting(0.005, "share by which target networks move towards the networks at an update", gt=0, le=1)


class ContinuousAgent(ReplayAgent):
    """An agent for floating-point actions of any shape and bounds, and nests of them.

    Args:
        observation_space: Space of one observation.
        action_space: Space of one action, floats only.
        config: Settings or their data.
        backend: As in `Agent`.
        seed: As in `Agent`.
    """

    action_kinds = FLOATS
    no_recurrent_networks: ClassVar[tuple[str, str] | None] = (
        "policy and critics of SAC, TD3 and DDPG carry no state from step to step",
        "use dense layers, or an algorithm that takes recurrent networks for any action, such as PPO",
    )

    def graph_arguments(self) -> dict[str, Any]:
        # refused: there is no choice among floats
        check_mask_leaf(self.config.mask_leaf, self._boundary.leaves, self.observation_space, self.name)
        return super().graph_arguments()

    def choose_actions(
        self, observations: Any, carried: dict[str, Any], explore: bool, preprocess: bool
    ) -> tuple[Any, dict[str, Any], Any]:
        if not explore:  # noise that drifts stays where it is
            return self.acting.act_greedily(observations), {}, carried.get("recurrent_state", ())
        actions, after = self.acting.act(observations, *carried.values())
        return actions, {}, after
