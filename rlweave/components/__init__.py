"""The parts that algorithms are composed of."""

from rlweave.components.losses import DQNLoss, PPOLoss
from rlweave.components.optimizers import SGD, Adam, AdamW, Optimizer, RMSProp

__all__ = ["SGD", "Adam", "AdamW", "DQNLoss", "Optimizer", "PPOLoss", "RMSProp"]
