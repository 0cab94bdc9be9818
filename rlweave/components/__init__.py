"""The parts that algorithms are composed of."""

from rlweave.components.action_distribution import Joint
from rlweave.components.action_noise import GaussianNoise, OrnsteinUhlenbeckNoise
from rlweave.components.beta import Beta
from rlweave.components.convolution import Conv2D
from rlweave.components.critics import Critics, StackedDense
from rlweave.components.deterministic_policy import DeterministicPolicy, NoisyAction
from rlweave.components.distributions import Bernoulli, Categorical, Normal
from rlweave.components.encoders import ObservationEncoder
from rlweave.components.exploration import EpsilonGreedy, ape_x_epsilons
from rlweave.components.layers import Activation, Concat, Dense, Flatten, LayerNorm
from rlweave.components.losses import (
    ActorCriticLoss,
    CriticLoss,
    DQNLoss,
    PPOLoss,
    QLambdaLoss,
    SequenceDQNLoss,
    SoftPolicyLoss,
)
from rlweave.components.memories import (
    FIFOQueue,
    GraphPrioritizedReplay,
    GraphReplay,
    NStepAccumulator,
    PrioritizedReplay,
    ReplayMemory,
    RingBuffer,
)
from rlweave.components.native import FlaxModule, KerasModule, TorchModule
from rlweave.components.network import Network, mlp, nature_cnn
from rlweave.components.normalization import RunningNormalization
from rlweave.components.optimizers import SGD, Adam, AdamW, Optimizer, RMSProp
from rlweave.components.policies import Policy
from rlweave.components.q_policies import DuelingPolicy, QPolicy
from rlweave.components.recurrent import GRU, LSTM, RecurrentLayer
from rlweave.components.returns import GeneralizedAdvantageEstimation
from rlweave.components.reward_normalization import RewardNormalization
from rlweave.components.squashed_normal import SquashedNormal
from rlweave.components.temperature import Temperature
from rlweave.components.text import HashText, TokenEmbedding, hash_text
from rlweave.components.value_functions import ValueFunction
from rlweave.components.vtrace import VTrace

__all__ = [
    "GRU",
    "LSTM",
    "SGD",
    "Activation",
    "ActorCriticLoss",
    "Adam",
    "AdamW",
    "Bernoulli",
    "Beta",
    "Categorical",
    "Concat",
    "Conv2D",
    "CriticLoss",
    "Critics",
    "DQNLoss",
    "Dense",
    "DeterministicPolicy",
    "DuelingPolicy",
    "EpsilonGreedy",
    "FIFOQueue",
    "Flatten",
    "FlaxModule",
    "GaussianNoise",
    "GeneralizedAdvantageEstimation",
    "GraphPrioritizedReplay",
    "GraphReplay",
    "HashText",
    "Joint",
    "KerasModule",
    "LayerNorm",
    "NStepAccumulator",
    "Network",
    "NoisyAction",
    "Normal",
    "ObservationEncoder",
    "Optimizer",
    "OrnsteinUhlenbeckNoise",
    "PPOLoss",
    "Policy",
    "PrioritizedReplay",
    "QLambdaLoss",
    "QPolicy",
    "RMSProp",
    "RecurrentLayer",
    "ReplayMemory",
    "RewardNormalization",
    "RingBuffer",
    "RunningNormalization",
    "SequenceDQNLoss",
    "SoftPolicyLoss",
    "SquashedNormal",
    "StackedDense",
    "Temperature",
    "TokenEmbedding",
    "TorchModule",
    "VTrace",
    "ValueFunction",
    "ape_x_epsilons",
    "hash_text",
    "mlp",
    "nature_cnn",
]
