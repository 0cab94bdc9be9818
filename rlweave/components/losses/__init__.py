"""Losses of algorithms, as components."""

from rlweave.components.losses.dqn import DQNLoss
from rlweave.components.losses.impala import IMPALALoss
from rlweave.components.losses.ppo import PPOLoss
from rlweave.components.losses.sequence_dqn import SequenceDQNLoss

__all__ = ["DQNLoss", "IMPALALoss", "PPOLoss", "SequenceDQNLoss"]
