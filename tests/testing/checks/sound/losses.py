"""Sound losses."""

from __future__ import annotations

from typing import Any

from rlweave import graph, ops
from rlweave.components import Dense
from rlweave.graph import Component, api, graph_fn
from rlweave.spaces import BoolBox, FloatBox, IntBox
from rlweave.testing.descriptors import Descriptor

NUMBERS = FloatBox(add_batch_rank=True)
FEATURES = FloatBox(shape=(4,), add_batch_rank=True)
STEPS = FloatBox(add_batch_rank=True, add_time_rank=True)


class NormalizedAdvantageLoss(Component):
    """Policy gradient; advantages of the batch have mean 0 and deviation 1, and are 0 where all are equal."""

    def __init__(self) -> None:
        super().__init__("normalized-advantages")

    @api
    def loss(self, log_probs: Any, advantages: Any) -> Any:
        return self._loss(log_probs, self._normalized(advantages))

    @graph_fn(mixes_batch=True, differentiable=False)
    def _normalized(self, advantages: Any) -> Any:
        centered = advantages - ops.mean(advantages)
        deviation = ops.std(advantages)
        return ops.where(deviation > 1e-6 * ops.max(ops.abs(advantages)), centered / (deviation + 1e-8), 0.0)

    @graph_fn
    def _loss(self, log_probs: Any, advantages: Any) -> Any:
        return -ops.mean(log_probs * advantages)


class MaskedValueLoss(Component):
    """Mean squared error over the steps that are no padding, whatever stands in the padding."""

    def __init__(self) -> None:
        super().__init__("masked-loss")

    @graph_fn
    def loss(self, values: Any, returns: Any, mask: Any) -> Any:
        errors = ops.where(mask, values, 0.0) - ops.where(mask, ops.stop_gradient(returns), 0.0)
        return ops.sum(ops.square(errors)) / ops.maximum(ops.sum(ops.astype(mask, "float32")), 1.0)


class QuantileLoss(Component):
    """Quantile regression of QR-DQN (Dabney et al. 2018, arXiv:1710.10044): each quantile against each target."""

    def __init__(self, count: int = 5) -> None:
        super().__init__("quantile-loss")
        self.count = count

    @graph_fn
    def loss(self, quantiles: Any, target_quantiles: Any) -> Any:
        errors = ops.expand_dims(ops.stop_gradient(target_quantiles), -2) - ops.expand_dims(quantiles, -1)
        levels = ops.expand_dims((ops.astype(ops.arange(self.count), "float32") + 0.5) / self.count, -1)
        slopes = ops.abs(levels - ops.astype(ops.stop_gradient(errors) < 0.0, "float32"))
        per_pair = slopes * ops.huber_loss(errors, ops.zeros_like(errors))
        return ops.mean(ops.sum(ops.mean(per_pair, -1), -1))


class ContrastiveLoss(Component):
    """Tells the next observation of each row from those of the others (InfoNCE, arXiv:1807.03748)."""

    def __init__(self) -> None:
        super().__init__("contrastive")
        self.encoder = Dense(3, "tanh")

    @api
    def loss(self, observations: Any, next_observations: Any) -> Any:
        return self._loss(self.encoder.call(observations), self.encoder.call(next_observations))

    @graph_fn(mixes_batch=True)
    def _loss(self, anchors: Any, others: Any) -> Any:
        scores = ops.matmul(anchors, ops.permute_dims(others, (1, 0)))
        return -ops.mean(ops.take_last(ops.log_softmax(scores), ops.arange(scores.shape[0])))


class CategoricalLoss(Component):
    """C51 (Bellemare et al. 2017, arXiv:1707.06887): cross entropy against the projected target distribution."""

    def __init__(self, count: int = 5, low: float = -2.0, high: float = 2.0, discount: float = 0.9) -> None:
        super().__init__("categorical-loss")
        self.count, self.low, self.high, self.discount = count, low, high, discount

    @api
    def target_probabilities(self, rewards: Any, terminated: Any, target_logits: Any) -> Any:
        return self._projected(rewards, terminated, target_logits)

    @api
    def loss(self, logits: Any, rewards: Any, terminated: Any, target_logits: Any) -> Any:
        return self._loss(logits, self._projected(rewards, terminated, target_logits))

    @graph_fn(differentiable=False)
    def _projected(self, rewards: Any, terminated: Any, target_logits: Any) -> Any:
        width = (self.high - self.low) / (self.count - 1)
        atoms = ops.linspace(self.low, self.high, self.count)
        following = ops.where(ops.expand_dims(terminated, -1), 0.0, self.discount * atoms)
        places = (ops.clip(ops.expand_dims(rewards, -1) + following, self.low, self.high) - self.low) / width
        distances = ops.abs(ops.expand_dims(places, -1) - ops.astype(ops.arange(self.count), "float32"))
        return ops.einsum("bj,bji->bi", ops.softmax(target_logits), ops.clip(1.0 - distances, 0.0, 1.0))

    @graph_fn
    def _loss(self, logits: Any, probabilities: Any) -> Any:
        return -ops.mean(ops.sum(probabilities * ops.log_softmax(logits), -1))


class ImportanceWeights(Component):
    """(N P)^-beta of what was drawn by priority, over the largest of the batch."""

    def __init__(self, alpha: float = 0.6, beta: float = 0.4) -> None:
        super().__init__("importance-weights")
        self.alpha, self.beta = alpha, beta

    @graph_fn(mixes_batch=True, differentiable=False)
    def call(self, priorities: Any) -> Any:
        chances = ops.pow(priorities, self.alpha)
        return ops.pow(ops.min(chances) / chances, self.beta)


class PolyakQLearning(Component):
    """Q-learning against a target network that follows slowly."""

    def __init__(self, tau: float = 0.1, discount: float = 0.9) -> None:
        super().__init__("polyak")
        self.tau, self.discount = tau, discount
        self.network = Dense(3, scope="network")
        self.target_network = self.network.copy(scope="target-network", trainable=False)

    @api
    def loss(self, observations: Any, actions: Any, rewards: Any, terminated: Any, next_observations: Any) -> Any:
        following = graph.stop_gradient(self.target_network.call(next_observations))
        return self._loss(self.network.call(observations), actions, rewards, terminated, following)

    @api
    def follow(self) -> None:
        self.target_network.sync(self.network, self.tau)

    @graph_fn
    def _loss(self, q_values: Any, actions: Any, rewards: Any, terminated: Any, target_q_next: Any) -> Any:
        target = rewards + self.discount * ops.where(terminated, 0.0, ops.max(target_q_next, -1))
        return ops.mean(ops.square(ops.take_last(q_values, actions) - ops.stop_gradient(target)))


LOSSES = (
    Descriptor(
        "normalized-advantages",
        NormalizedAdvantageLoss,
        NormalizedAdvantageLoss,
        {"log_probs": FloatBox(-4.0, 0.0, add_batch_rank=True), "advantages": NUMBERS},
        constants={"loss": ("advantages",)},
    ),
    Descriptor(
        "masked-loss",
        MaskedValueLoss,
        MaskedValueLoss,
        {"values": STEPS, "returns": STEPS, "mask": BoolBox(add_batch_rank=True, add_time_rank=True)},
        constants={"loss": ("returns",)},
    ),
    Descriptor(
        "quantile-loss",
        QuantileLoss,
        QuantileLoss,
        {name: FloatBox(shape=(5,), add_batch_rank=True) for name in ("quantiles", "target_quantiles")},
        constants={"loss": ("target_quantiles",)},
    ),
    Descriptor(
        "contrastive", ContrastiveLoss, ContrastiveLoss, {"observations": FEATURES, "next_observations": FEATURES}
    ),
    Descriptor(
        "categorical-loss",
        CategoricalLoss,
        CategoricalLoss,
        {
            **{name: FloatBox(shape=(5,), add_batch_rank=True) for name in ("logits", "target_logits")},
            "rewards": NUMBERS,
            "terminated": BoolBox(add_batch_rank=True),
        },
        constants={"loss": ("rewards", "target_logits")},
    ),
    Descriptor(
        "importance-weights",
        ImportanceWeights,
        ImportanceWeights,
        {"priorities": FloatBox(0.01, 10.0, add_batch_rank=True)},
    ),
    Descriptor(
        "polyak",
        PolyakQLearning,
        PolyakQLearning,
        {
            "observations": FEATURES,
            "actions": IntBox(3, add_batch_rank=True),
            "rewards": NUMBERS,
            "terminated": BoolBox(add_batch_rank=True),
            "next_observations": FEATURES,
        },
        constants={"loss": ("rewards", "next_observations")},
    ),
)
