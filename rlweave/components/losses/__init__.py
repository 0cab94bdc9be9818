"""Losses of algorithms, as components."""

from rlweave.components.losses.dqn import DQNLoss
from rlweave.components.losses.ppo import PPOLoss

__all__ = ["DQNLoss", "PPOLoss"]
