"""Agents of toy components, as large as real ones, for the tests of pictures."""

import numpy as np

from rlweave import graph, ops
from rlweave.graph import Component, api, build, graph_fn, shared
from rlweave.spaces import BoolBox, Dict, FloatBox, IntBox


class Dense(Component):
    def __init__(self, units, scope="dense"):
        super().__init__(scope)
        self.units = units

    def create_variables(self, inputs):
        self.kernel = self.variable("kernel", (inputs.shape[-1], self.units), "lecun_normal")
        self.bias = self.variable("bias", (self.units,), 0.0)

    @graph_fn
    def call(self, inputs):
        return ops.tanh(ops.matmul(inputs, self.kernel.value) + self.bias.value)


class Network(Component):
    def __init__(self, layers, scope="network"):
        super().__init__(scope)
        self.layers = layers

    @api
    def call(self, inputs):
        for layer in self.layers:
            inputs = layer.call(inputs)
        return inputs


class DuelingPolicy(Component):
    def __init__(self, depth, actions, scope="policy"):
        super().__init__(scope)
        self.network = Network([Dense(64) for _ in range(depth)])
        self.value = Network([Dense(32), Dense(1)], scope="value-head")
        self.advantage = Network([Dense(32), Dense(actions)], scope="advantage-head")

    @api
    def q_values(self, observations):
        features = self.network.call(observations)
        return self._combine(self.value.call(features), self.advantage.call(features))

    @graph_fn
    def _combine(self, value, advantages):
        return value + advantages - ops.mean(advantages, axis=-1, keepdims=True)


class Normalizer(Component):
    def __init__(self, scope="normalizer"):
        super().__init__(scope)

    def create_variables(self, observations):
        self.mean = self.variable("mean", observations.shape, 0.0, trainable=False)
        self.count = self.variable("count", (), 0.0, trainable=False)

    @graph_fn
    def call(self, observations):
        return observations - self.mean.value

    @graph_fn
    def learn(self, observations):
        self.mean.assign(self.mean.value + ops.mean(observations, axis=0) * 0.01)
        self.count.assign(self.count.value + 1.0)


class SumTree(Component):
    def create_variables(self):
        self.nodes = self.variable("nodes", (2048,), 0.0, trainable=False)

    @graph_fn(host=True)
    def set(self, indices, values):
        self.nodes.assign_at(indices, values)

    @graph_fn(host=True)
    def find(self, masses):
        return (masses * np.float32(1000)).astype(np.int32)


class Memory(Component):
    def __init__(self, scope="memory"):
        super().__init__(scope)
        self.priorities = SumTree("sum-tree")

    def create_variables(self, records):
        self.fields = {
            name: self.variable(name, (1024, *leaf.shape), 0.0, trainable=False, dtype=leaf.dtype)
            for name, leaf in records.items()
        }
        self.cursor = self.variable("cursor", (), 0, dtype="int32")

    @api
    def insert(self, records):
        slots, ones = self._store(records)
        self.priorities.set(slots, ones)

    @graph_fn(host=True)
    def _store(self, records):
        n = records["rewards"].shape[0]
        slots = np.arange(n, dtype=np.int32)
        for name, value in records.items():
            self.fields[name].assign_at(slots, value)
        self.cursor.assign(self.cursor.value + n)
        return slots, np.ones((n,), np.float32)

    @api(static=("batch_size",))
    def sample(self, batch_size):
        indices = self.priorities.find(self._masses(batch_size))
        return self._gather(indices), indices, self._weights(indices)

    @graph_fn(host=True, spaces="_mass_spaces")
    def _masses(self, batch_size):
        return ops.random.uniform((batch_size,))

    def _mass_spaces(self, batch_size):
        return FloatBox(add_batch_rank=batch_size)

    @graph_fn(host=True)
    def _gather(self, indices):
        return {name: field.value[indices] for name, field in self.fields.items()}

    @graph_fn(host=True)
    def _weights(self, indices):
        return np.ones(indices.shape, np.float32)

    @api
    def update_priorities(self, indices, errors):
        self.priorities.set(indices, self._priority(errors))

    @graph_fn(host=True)
    def _priority(self, errors):
        return np.abs(errors)


class TdLoss(Component):
    @graph_fn
    def td_loss(self, q_values, actions, rewards, terminals, target_q, next_q, weights):
        chosen = ops.sum(q_values * ops.one_hot(actions, q_values.shape[-1]), axis=-1)
        best = ops.one_hot(ops.argmax(next_q, axis=-1), q_values.shape[-1])
        future = ops.where(terminals, 0.0, ops.sum(target_q * best, axis=-1))
        error = ops.stop_gradient(rewards + 0.99 * future) - chosen
        return ops.mean(weights * error * error), error


class Sgd(Component):
    def __init__(self, scope="optimizer"):
        super().__init__(scope)

    def create_variables(self):
        self.steps = self.variable("steps", (), 0, dtype="int32")

    @api
    def step(self, loss, variables):
        self._apply(graph.gradients(loss, variables), variables)

    @graph_fn(differentiable=False)
    def _apply(self, gradients, variables):
        self.steps.assign(self.steps.value + 1)
        for path, variable in variables.items():
            variable.assign(variable.value - 0.01 * gradients[path])


class Exploration(Component):
    @graph_fn
    def choose(self, q_values):
        return ops.argmax(q_values, axis=-1)


class Dqn(Component):
    def __init__(self, depth=4, actions=3, scope="dqn"):
        super().__init__(scope)
        self.normalizer = Normalizer()
        self.policy = DuelingPolicy(depth, actions)
        self.target_policy = self.policy.copy(scope="target-policy", trainable=False)
        self.exploration = Exploration("exploration")
        self.memory = Memory()
        self.loss = TdLoss("loss")
        self.optimizer = Sgd()

    @api
    def act(self, observations):
        return self.exploration.choose(self.policy.q_values(self.normalizer.call(observations)))

    @api
    def observe(self, records):
        self.memory.insert(records)

    @api(static=("batch_size",))
    def update(self, batch_size=32):
        batch, indices, weights = self.memory.sample(batch_size)
        self.normalizer.learn(batch["observations"])
        observations = self.normalizer.call(batch["observations"])
        next_observations = self.normalizer.call(batch["next_observations"])
        loss, errors = self.loss.td_loss(
            self.policy.q_values(observations),
            batch["actions"],
            batch["rewards"],
            batch["terminals"],
            self.target_policy.q_values(next_observations),
            self.policy.q_values(next_observations),
            weights,
        )
        self.optimizer.step(loss, self.policy.variables())
        self.memory.update_priorities(indices, errors)
        return loss

    @api
    def sync_target(self):
        self.target_policy.sync(self.policy)


class PolicyHead(Component):
    def __init__(self, trunk, actions, scope="policy"):
        super().__init__(scope)
        self.trunk = shared(trunk)
        self.head = Dense(actions, scope="logits")

    @api
    def logits(self, observations):
        return self.head.call(self.trunk.call(observations))


class PpoLoss(Component):
    @graph_fn
    def call(self, logits, actions, values, returns):
        likelihood = ops.sum(ops.log_softmax(logits) * ops.one_hot(actions, logits.shape[-1]), axis=-1)
        baseline = ops.squeeze(values, axis=-1)
        return ops.mean((baseline - returns) ** 2 - likelihood * ops.stop_gradient(returns - baseline))


class Ppo(Component):
    """Epochs in a scan, with the optimizer inside."""

    def __init__(self, scope="ppo"):
        super().__init__(scope)
        self.trunk = Network([Dense(64), Dense(64)], scope="trunk")
        self.policy = PolicyHead(self.trunk, 3)
        self.value_function = PolicyHead(self.trunk, 1, scope="value-function")
        self.loss = PpoLoss("loss")
        self.optimizer = Sgd()

    @api
    def act(self, observations):
        return self._choose(self.policy.logits(observations)), self.value_function.logits(observations)

    @graph_fn
    def _choose(self, logits):
        return ops.argmax(logits, axis=-1)

    @api(static=("epochs",))
    def update(self, batch, epochs=3):
        def epoch(carry, _):
            loss = self.loss.call(
                self.policy.logits(batch["observations"]),
                batch["actions"],
                self.value_function.logits(batch["observations"]),
                batch["returns"],
            )
            self.optimizer.step(loss, self.variables())
            return carry, loss

        _, losses = graph.scan(epoch, (), None, epochs)
        return self._mean(losses)

    @graph_fn
    def _mean(self, losses):
        return ops.mean(losses)


OBSERVATIONS = FloatBox(shape=(4,), add_batch_rank=True)


def build_dqn(backend="numpy", **options):
    records = Dict(
        observations=OBSERVATIONS,
        actions=IntBox(3, add_batch_rank=True),
        rewards=FloatBox(add_batch_rank=True),
        terminals=BoolBox(add_batch_rank=True),
        next_observations=OBSERVATIONS,
    )
    return build(Dqn(**options), {"observations": OBSERVATIONS, "records": records}, backend=backend)


def build_ppo(backend="numpy"):
    batch = Dict(
        observations=OBSERVATIONS, actions=IntBox(3, add_batch_rank=True), returns=FloatBox(add_batch_rank=True)
    )
    return build(Ppo(), {"observations": OBSERVATIONS, "batch": batch}, backend=backend)
