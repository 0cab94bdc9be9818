"""Sound networks."""

from __future__ import annotations

import math
from typing import Any

from rlweave import ops
from rlweave.components import Dense
from rlweave.graph import Component, api, graph_fn
from rlweave.spaces import BoolBox, FloatBox, IntBox
from rlweave.testing.descriptors import Descriptor

FEATURES = FloatBox(shape=(4,), add_batch_rank=True)
SEQUENCE = FloatBox(shape=(3,), add_batch_rank=True, add_time_rank=True)
STARTS = BoolBox(add_batch_rank=True, add_time_rank=True)


class BatchAttention(Component):
    """Agents of one team, a row each, look at each other (softmax attention over the batch)."""

    def __init__(self, units: int = 3) -> None:
        super().__init__("batch-attention")
        self.units = units
        self.queries, self.values = Dense(units, scope="queries"), Dense(units, scope="values")
        self.keys = Dense(units, use_bias=False, scope="keys")  # a bias would move all scores of a row alike

    @api
    def call(self, observations: Any) -> Any:
        keys, values = self.keys.call(observations), self.values.call(observations)
        return self._attend(self.queries.call(observations), keys, values)

    @graph_fn(mixes_batch=True)
    def _attend(self, queries: Any, keys: Any, values: Any) -> Any:
        scores = ops.matmul(queries, ops.permute_dims(keys, (1, 0))) / math.sqrt(self.units)
        return ops.matmul(ops.softmax(scores), values)


class LayerNorm(Component):
    """Each row by its own mean and deviation, with a learned gain and shift."""

    def __init__(self, epsilon: float = 1e-5) -> None:
        super().__init__("layer-norm")
        self.epsilon = epsilon

    def create_variables(self, inputs: Any) -> None:
        self.gain = self.variable("gain", inputs.shape, 1.0)
        self.shift = self.variable("shift", inputs.shape, 0.0)

    @graph_fn
    def call(self, inputs: Any) -> Any:
        centered = inputs - ops.mean(inputs, -1, keepdims=True)
        deviation = ops.sqrt(ops.mean(ops.square(centered), -1, keepdims=True) + self.epsilon)
        return centered / deviation * self.gain.value + self.shift.value


class HandmadeGRU(Component):
    """A gated recurrent unit over sequences; a new episode begins with a state of zeros."""

    def __init__(self, units: int = 3) -> None:
        super().__init__("gru")
        self.units = units

    def create_variables(self, inputs: Any) -> None:
        self.kernel = self.variable("kernel", (inputs.shape[-1], 3 * self.units), "lecun_normal")
        self.recurrent_kernel = self.variable("recurrent_kernel", (self.units, 3 * self.units), "orthogonal")
        self.bias = self.variable("bias", (3 * self.units,), 0.1)

    @graph_fn(returns=2)
    def call(self, inputs: Any, state: Any, episode_start: Any) -> Any:
        n, recurrent_kernel = self.units, self.recurrent_kernel.value

        def step(before: Any, at: Any) -> Any:
            x, start = at
            before = ops.where(ops.expand_dims(start, -1), 0.0, before)
            u = ops.matmul(before, recurrent_kernel)
            reset, update = ops.sigmoid(x[:, :n] + u[:, :n]), ops.sigmoid(x[:, n : 2 * n] + u[:, n : 2 * n])
            candidate = ops.tanh(x[:, 2 * n :] + reset * u[:, 2 * n :])
            after = (1.0 - update) * candidate + update * before
            return after, after

        projected = ops.matmul(inputs, self.kernel.value) + self.bias.value
        last, outputs = ops.scan(step, state, (projected, episode_start))
        return outputs, last


class Smoothing(Component):
    """Observations of a trajectory, smoothed forwards and backwards, for models that are fitted afterwards."""

    def __init__(self, share: float = 0.4) -> None:
        super().__init__("smoothing")
        self.share = share

    @graph_fn(looks_ahead=True)
    def call(self, observations: Any) -> Any:
        def step(before: Any, x: Any) -> Any:
            after = before + self.share * (x - before)
            return after, after

        _, forwards = ops.scan(step, observations[0], observations)
        _, backwards = ops.scan(step, observations[-1], observations, reverse=True)
        return 0.5 * (forwards + backwards)


class Dropout(Component):
    """Leaves units out at random while it trains, and scales the others up."""

    def __init__(self, rate: float = 0.25) -> None:
        super().__init__("dropout")
        self.rate = rate

    @api(static=("training",))
    def call(self, inputs: Any, training: bool = False) -> Any:
        return self._dropped(inputs) if training else inputs

    @graph_fn
    def _dropped(self, inputs: Any) -> Any:
        kept = ops.random.uniform(inputs.shape) >= self.rate
        return ops.where(kept, inputs / (1.0 - self.rate), 0.0)


class MixtureDensityHead(Component):
    """A mixture of three normal distributions over a number, given an observation."""

    def __init__(self, count: int = 3) -> None:
        super().__init__("mixture")
        self.shares, self.means = Dense(count, scope="shares"), Dense(count, scope="means")
        self.widths = Dense(count, scope="widths")

    @api
    def sample(self, observations: Any) -> Any:
        means, widths = self.means.call(observations), self.widths.call(observations)
        return self._sample(self.shares.call(observations), means, widths)

    @api
    def log_prob(self, observations: Any, actions: Any) -> Any:
        means, widths = self.means.call(observations), self.widths.call(observations)
        return self._log_prob(self.shares.call(observations), means, widths, actions)

    @graph_fn
    def _sample(self, logits: Any, means: Any, widths: Any) -> Any:
        chosen = ops.random.categorical(logits)
        mean, deviation = ops.take_last(means, chosen), self._deviation(ops.take_last(widths, chosen))
        return mean + deviation * ops.random.normal(mean.shape)

    @graph_fn
    def _log_prob(self, logits: Any, means: Any, widths: Any, actions: Any) -> Any:
        deviations = self._deviation(widths)
        distances = (ops.expand_dims(actions, -1) - means) / deviations
        densities = -0.5 * ops.square(distances) - ops.log(deviations) - 0.5 * math.log(2.0 * math.pi)
        return ops.logsumexp(ops.log_softmax(logits) + densities, -1)

    def _deviation(self, widths: Any) -> Any:
        return ops.softplus(widths) + 0.1


class FrameDifference(Component):
    """What has changed since the frame before; nothing at the first frame of an episode."""

    def __init__(self) -> None:
        super().__init__("frame-difference")

    @graph_fn(returns=2)
    def call(self, observations: Any, state: Any, episode_start: Any) -> Any:
        before = ops.where(ops.expand_dims(episode_start, -1), observations, state)
        return observations - before, observations


class Embedding(Component):
    """A learned vector for each of ten items."""

    def __init__(self, count: int = 10, units: int = 4) -> None:
        super().__init__("embedding")
        self.count, self.units = count, units

    def create_variables(self, items: Any) -> None:
        self.table = self.variable("table", (self.count, self.units), "standard_normal")

    @graph_fn
    def call(self, items: Any) -> Any:
        return ops.take(self.table.value, items)


class DiscreteEncoder(Component):
    """Draws a one-hot code of an observation; gradients pass as through its probabilities (straight-through)."""

    def __init__(self, categories: int = 4) -> None:
        super().__init__("discrete-encoder")
        self.categories = categories
        self.head = Dense(categories)

    @api
    def encode(self, observations: Any) -> Any:
        return self._draw(self.head.call(observations))

    @graph_fn
    def _draw(self, logits: Any) -> Any:
        probabilities = ops.softmax(logits)
        code = ops.one_hot(ops.random.categorical(logits), self.categories)
        return code + probabilities - ops.stop_gradient(probabilities)


NETWORKS = (
    Descriptor("batch-attention", BatchAttention, BatchAttention, {"observations": FEATURES}),
    Descriptor("layer-norm", LayerNorm, LayerNorm, {"inputs": FEATURES}),
    Descriptor(
        "handmade-gru",
        HandmadeGRU,
        HandmadeGRU,
        {"inputs": SEQUENCE, "state": FloatBox(shape=(3,), add_batch_rank=True), "episode_start": STARTS},
    ),
    Descriptor("smoothing", Smoothing, Smoothing, {"observations": SEQUENCE}),
    Descriptor("dropout", Dropout, Dropout, {"inputs": FEATURES}, static={"call": {"training": True}}),
    Descriptor("dropout-off", Dropout, Dropout, {"inputs": FEATURES}, static={"call": {"training": False}}),
    Descriptor(
        "mixture-density",
        MixtureDensityHead,
        MixtureDensityHead,
        {"observations": FEATURES, "actions": FloatBox(add_batch_rank=True)},
    ),
    Descriptor(
        "frame-difference",
        FrameDifference,
        FrameDifference,
        {"observations": FEATURES, "state": FEATURES, "episode_start": BoolBox(add_batch_rank=True)},
    ),
    Descriptor("embedding", Embedding, Embedding, {"items": IntBox(10, add_batch_rank=True)}),
    Descriptor(
        "discrete-encoder",
        DiscreteEncoder,
        DiscreteEncoder,
        {"observations": FEATURES},
        gradients=(),  # of a sample; what passes is that of its probabilities
    ),
)
