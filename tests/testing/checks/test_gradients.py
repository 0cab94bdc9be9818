"""What is to be learned gets a gradient, targets get none; each fault is named where it is, and right losses pass."""

import pytest

from rlweave import graph, ops
from rlweave.components import SGD, Dense
from rlweave.graph import Component, api, graph_fn
from rlweave.spaces import BoolBox, Dict, FloatBox, IntBox
from rlweave.testing import Cause, Descriptor, check

ROW = FloatBox(add_batch_rank=True)
FEATURES = FloatBox(shape=(3,), add_batch_rank=True)
TD = {"values": ROW, "rewards": ROW, "terminated": BoolBox(add_batch_rank=True), "next_values": ROW}
STEP = {"observations": FEATURES, "rewards": ROW, "next_observations": FEATURES}
SURROGATE = {"log_probs": ROW, "advantages": ROW}
POLICY_GRADIENT = {"log_probs": ROW, "rewards": ROW, "values": ROW}


def causes(report):
    return {finding.cause for finding in report}


def only(report, cause):
    (finding,) = [finding for finding in report if finding.cause is cause]
    return finding


# -- targets -------------------------------------------------------------------------------------------------------


class TDLoss(Component):
    @graph_fn
    def loss(self, values, rewards, terminated, next_values):
        return ops.mean(ops.square(values - self.detached(rewards + ops.where(terminated, 0.0, next_values))))

    def detached(self, x):
        return ops.stop_gradient(x)


class TDLossWithoutDetach(TDLoss):
    def detached(self, x):
        return x


class TDLossInParts(Component):
    @api
    def loss(self, values, rewards, terminated, next_values):
        return self._squares(values, self._sums(rewards, terminated, next_values))

    @graph_fn
    def _sums(self, rewards, terminated, next_values):
        return rewards + ops.where(terminated, 0.0, next_values)

    @graph_fn
    def _squares(self, values, sums):
        return ops.mean(ops.square(values - sums))


class TDLossOfDetachedValues(Component):
    """Rewards are data: what they multiply or add to needs no detaching."""

    @graph_fn
    def loss(self, values, rewards, terminated, next_values):
        return ops.mean(ops.square(values - rewards - ops.where(terminated, 0.0, ops.stop_gradient(next_values))))


class PolicyGradient(Component):
    @api
    def loss(self, log_probs, rewards, values):
        return self._loss(log_probs, self._advantages(rewards, values), values, rewards)

    @graph_fn(differentiable=False)
    def _advantages(self, rewards, values):
        return rewards - values

    @graph_fn
    def _loss(self, log_probs, advantages, values, rewards):
        return ops.mean(ops.square(rewards - values)) - ops.mean(log_probs * advantages)


class PolicyGradientThroughAdvantages(PolicyGradient):
    @graph_fn
    def _advantages(self, rewards, values):
        return rewards - values


class Reinforce(Component):
    @graph_fn
    def loss(self, log_probs, rewards):
        return -ops.mean(log_probs * rewards)


class Bootstrapped(Component):
    """A network, and a loss of it whose target is the network's own value of what follows."""

    def __init__(self):
        super().__init__("bootstrapped")
        self.network = Dense(1)

    @api
    def loss(self, observations, rewards, next_observations):
        following = self.detached(self.network.call(next_observations))
        return self._loss(self.network.call(observations), rewards, following)

    def detached(self, x):
        return graph.stop_gradient(x)

    @graph_fn
    def _loss(self, now, rewards, following):
        return ops.mean(ops.square(now - ops.expand_dims(rewards, -1) - 0.9 * following))


class BootstrappedWithoutDetach(Bootstrapped):
    def detached(self, x):
        return x


class WithTarget(Bootstrapped):
    """The same with a target network."""

    def __init__(self):
        super().__init__()
        self.target = self.make_target()

    def make_target(self):
        return self.network.copy(scope="target", trainable=False)

    @api
    def loss(self, observations, rewards, next_observations):
        return self._loss(self.network.call(observations), rewards, self.target.call(next_observations))


class WithTrainableTarget(WithTarget):
    def make_target(self):
        return self.network.copy(scope="target")


class PolicyLoss(Component):
    @graph_fn
    def loss(self, log_probs, advantages):
        return -ops.mean(log_probs * self.detached(advantages))

    def detached(self, x):
        return ops.stop_gradient(x)


class PolicyLossWithoutDetach(PolicyLoss):
    def detached(self, x):
        return x


class Dueling(Component):
    """Its advantages are those of all actions, and learned."""

    def __init__(self):
        super().__init__("dueling")
        self.value, self.advantage = Dense(1, scope="value"), Dense(2, scope="advantage")

    @api
    def loss(self, observations):
        return self._loss(self._combined(self.value.call(observations), self.advantage.call(observations)))

    @graph_fn
    def _combined(self, values, advantages):
        return values + advantages - ops.mean(advantages, -1, keepdims=True)

    @graph_fn
    def _loss(self, q_values):
        return ops.mean(ops.square(q_values[:, 0] - 1.0))


class WorldModel(Component):
    """Next observations are what it predicts, and no target that a network computes."""

    def __init__(self):
        super().__init__("world-model")
        self.network = Dense(3)

    @api
    def loss(self, observations, rewards, next_observations):
        return self._loss(self.network.call(observations), rewards, next_observations)

    @graph_fn
    def _loss(self, predictions, rewards, next_observations):
        return ops.mean(ops.square(predictions - next_observations)) + ops.mean(ops.square(predictions[:, 0] - rewards))


@pytest.mark.parametrize(
    ("component", "spaces", "place", "name"),
    [
        (TDLossWithoutDetach, TD, "tdloss-without-detach.loss, ", "'next_values'"),
        (TDLossInParts, TD, "tdloss-in-parts._squares, ", "'next_values'"),
        (PolicyLossWithoutDetach, SURROGATE, "policy-loss-without-detach.loss, ", "'advantages'"),
        (PolicyGradientThroughAdvantages, POLICY_GRADIENT, "._loss, ", "'advantages'"),
        (BootstrappedWithoutDetach, STEP, "bootstrapped._loss, ", "'next_observations'"),
        (WithTrainableTarget, STEP, "bootstrapped/target._call, ", "bootstrapped/target/kernel"),
    ],
)
def test_a_target_with_a_gradient_is_found_where_it_enters(component, spaces, place, name):
    report = check(component, spaces)
    assert causes(report) == {Cause.TARGET_HAS_GRADIENT}, str(report)
    finding = next(f for f in report if name in f.seen)
    assert place in finding.where
    assert ".py:" in finding.where


@pytest.mark.parametrize(
    ("component", "spaces"),
    [
        (TDLoss, TD),
        (TDLossOfDetachedValues, TD),
        (PolicyGradient, POLICY_GRADIENT),
        (PolicyLoss, SURROGATE),
        (Dueling, {"observations": FEATURES}),
        (Reinforce, {"log_probs": ROW, "rewards": ROW}),
        (Bootstrapped, STEP),
        (WithTarget, STEP),
        (WorldModel, STEP),
    ],
)
def test_right_losses_pass(component, spaces):
    assert check(component, spaces).ok, str(check(component, spaces))


def test_a_gradient_through_a_target_is_declared():
    def residual(component, *names):
        return Descriptor("residual", component, component, TD, with_gradient={"loss": names})

    assert check(residual(TDLossWithoutDetach, "next_values")).ok
    assert causes(check(residual(TDLoss, "next_values"))) == {Cause.UNNEEDED_DECLARATION}
    assert causes(check(residual(TDLossWithoutDetach, "values"))) == {
        Cause.UNNEEDED_DECLARATION,
        Cause.TARGET_HAS_GRADIENT,
    }


def test_constants_of_a_descriptor_get_no_gradient():
    class Products(Component):
        @graph_fn
        def call(self, x, y):
            return x * y

    spaces = {"x": ROW, "y": ROW}
    assert check(Products, spaces).ok
    constant = Descriptor("products", Products, Products, spaces, constants={"call": ("y",)})
    finding = only(check(constant), Cause.TARGET_HAS_GRADIENT)
    assert finding.where.startswith("products.call, checks/test_gradients.py:")
    assert "'y'" in finding.seen


# -- what learns ---------------------------------------------------------------------------------------------------


class TwoLayers(Component):
    def __init__(self):
        super().__init__("two-layers")
        self.first, self.second = Dense(4, "tanh", scope="first"), Dense(1, scope="second")

    @api
    def call(self, observations):
        return self.second.call(self.between(self.first.call(observations)))

    @graph_fn
    def between(self, features):
        return features


class Detached(TwoLayers):
    @graph_fn
    def between(self, features):
        return ops.stop_gradient(features)


class Rounded(TwoLayers):
    @graph_fn
    def between(self, features):
        return ops.round(features * 10.0) / 10.0


class Declared(TwoLayers):
    @graph_fn(differentiable=False)
    def between(self, features):
        return 2.0 * features


class ArgMax(Component):
    """The loss is of the best action, whose number has no derivative."""

    def create_variables(self, observations):
        self.kernel = self.variable("kernel", (3, 4), "lecun_normal")
        self.scale = self.variable("scale", (), 1.0)

    @graph_fn
    def loss(self, observations):
        best = ops.argmax(ops.matmul(observations, self.kernel.value), -1)
        return self.scale.value * ops.mean(ops.square(ops.astype(best, "float32") - 1.5))


class ReluThatSleeps(Component):
    """In the sampled inputs of the first batch few units are active."""

    def create_variables(self, observations):
        self.kernel = self.variable("kernel", (3, 6), "lecun_normal")

    @graph_fn
    def call(self, observations):
        return ops.maximum(ops.matmul(observations, self.kernel.value) - 1.5, 0.0)


@pytest.mark.parametrize(
    ("component", "place", "path"),
    [
        (Detached, "two-layers.between, checks/test_gradients.py:", "two-layers/first/kernel"),
        (Rounded, "two-layers.between, checks/test_gradients.py:", "two-layers/first/bias"),
        (Declared, "two-layers.between, checks/test_gradients.py:", "two-layers/first/kernel"),
        (ArgMax, "arg-max.loss, checks/test_gradients.py:", "arg-max/kernel"),
    ],
)
def test_a_variable_without_gradient_is_found_where_it_stops(component, place, path):
    report = check(component, {"observations": FEATURES})
    assert Cause.NOT_TRAINED in causes(report), str(report)
    finding = next(f for f in report if f.cause is Cause.NOT_TRAINED)
    assert finding.where.startswith(place)
    assert any(path in f.seen for f in report) or finding.where in {f.where for f in report}


@pytest.mark.parametrize("component", [TwoLayers, ReluThatSleeps])
def test_a_gradient_in_some_batch_is_enough(component):
    assert check(component, {"observations": FEATURES}).ok


BATCH = Dict(observations=FEATURES, rewards=ROW, next_observations=FEATURES)


class Learner(Component):
    """A root that learns from batches."""

    def __init__(self):
        super().__init__("learner")
        self.body, self.head = Dense(4, "tanh", scope="body"), Dense(1, scope="head")
        self.optimizer = SGD(0.1)

    @api
    def update(self, batch):
        loss = self._loss(
            self.value(batch["observations"]), self._targets(batch, self.value(batch["next_observations"]))
        )
        self.optimizer.step(loss, self.trained())
        return loss

    def value(self, observations):
        return self.head.call(self.body.call(observations))

    def trained(self):
        return self.body.variables() + self.head.variables()

    @graph_fn(differentiable=False)
    def _targets(self, batch, following):
        return ops.expand_dims(batch["rewards"], -1) + 0.9 * following

    @graph_fn
    def _loss(self, values, targets):
        return ops.mean(ops.square(values - targets))


class LearnerWithoutDetach(Learner):
    @graph_fn
    def _targets(self, batch, following):
        return ops.expand_dims(batch["rewards"], -1) + 0.9 * following


class ForgetsTheBody(Learner):
    def trained(self):
        return self.head.variables()


class CutsTheBody(Learner):
    def value(self, observations):
        return self.head.call(self._cut(self.body.call(observations)))

    @graph_fn
    def _cut(self, features):
        return ops.stop_gradient(features)


def learner(component):
    return Descriptor("learner", component, component, {"batch": BATCH}, backends=("torch", "jax"), reference="torch")


def test_a_root_that_learns_is_checked_where_it_differentiates():
    assert check(learner(Learner)).ok, str(check(learner(Learner)))
    finding = only(check(learner(LearnerWithoutDetach)), Cause.TARGET_HAS_GRADIENT)
    assert finding.where.startswith("learner._loss, checks/test_gradients.py:")
    finding = next(f for f in check(learner(ForgetsTheBody)) if f.cause is Cause.NOT_TRAINED)
    assert "learner/body/" in finding.seen
    assert "learner/body._call" in finding.where
    finding = next(f for f in check(learner(CutsTheBody)) if f.cause is Cause.NOT_TRAINED)
    assert finding.where.startswith("learner._cut, checks/test_gradients.py:")
    assert "learner/body/" in finding.seen


def test_integers_and_flags_need_no_gradient():
    class Embedding(Component):
        def create_variables(self, inputs):
            self.table = self.variable("table", (4, 2), "standard_normal")

        @graph_fn
        def call(self, inputs):
            return ops.take(self.table.value, inputs, axis=0)

    assert check(Embedding, {"inputs": IntBox(4, add_batch_rank=True)}).ok


class Affine(Component):
    def __init__(self):
        super().__init__("affine")
        self.layer = Dense(2)

    @api
    def call(self, inputs):
        return self.layer.call(inputs)


def test_a_weight_of_no_inputs_has_nothing_to_learn():
    report = check(Affine, {"inputs": FloatBox(shape=(0,), add_batch_rank=True)})
    assert report.ok, str(report)
