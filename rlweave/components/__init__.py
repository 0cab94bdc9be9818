"""The parts that algorithms are composed of."""

from rlweave.components.losses import DQNLoss, PPOLoss
from rlweave.components.memories import PrioritizedReplay, ReplayMemory
from rlweave.components.optimizers import SGD, Adam, AdamW, Optimizer, RMSProp
from rlweave.components.returns import GeneralizedAdvantageEstimation

__all__ = [
    "SGD",
    "Adam",
    "AdamW",
    "DQNLoss",
    "GeneralizedAdvantageEstimation",
    "Optimizer",
    "PPOLoss",
    "PrioritizedReplay",
    "RMSProp",
    "ReplayMemory",
]
