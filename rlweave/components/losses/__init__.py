"""Losses of algorithms, as components."""

from rlweave.components.losses.actor_critic import ActorCriticLoss
from rlweave.components.losses.critic import CriticLoss, SoftPolicyLoss
from rlweave.components.losses.dqn import DQNLoss
from rlweave.components.losses.ppo import PPOLoss
from rlweave.components.losses.q_lambda import QLambdaLoss
from rlweave.components.losses.sequence_dqn import SequenceDQNLoss

__all__ = [
    "ActorCriticLoss",
    "CriticLoss",
    "DQNLoss",
    "PPOLoss",
    "QLambdaLoss",
    "SequenceDQNLoss",
    "SoftPolicyLoss",
]
