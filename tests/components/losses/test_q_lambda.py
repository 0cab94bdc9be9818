"""Q(lambda) against a loop in float64."""

import numpy as np
import pytest

from rlweave.components import QLambdaLoss
from rlweave.errors import ConfigError
from rlweave.graph import Component, api, gradients
from rlweave.spaces import BoolBox, Dict, FloatBox, IntBox
from rlweave.testing import ComponentTest
from tests.components.gradient_probes import BACKENDS, DIFFERENTIABLE

STEPS, ROWS = 7, 4
G = 0.9
ACTIONS = Dict(pair=IntBox(3, shape=(2,)), switch=BoolBox())
Q_VALUES = Dict(pair=FloatBox(shape=(2, 3)), switch=FloatBox(shape=(2,)))
TARGETS = Dict(pair=FloatBox(shape=(2,)), switch=FloatBox())


def timed(space):
    return space.with_batch_rank().with_time_rank()


def component(backend, lambda_, q_values, actions, targets):
    spaces = {"q_values": q_values, "q_next": q_values, "actions": actions, "targets": targets, "rewards": FloatBox()}
    spaces |= {"terminated": BoolBox(), "truncated": BoolBox()}
    return ComponentTest(QLambdaLoss(G, lambda_), {name: timed(space) for name, space in spaces.items()}, backend)


def oracle(q_next, rewards, terminated, truncated, lambda_):
    """Backwards, a row and a column at a time; q_next (T, B, A)."""
    targets = np.zeros(rewards.shape)
    for b in range(rewards.shape[1]):
        following = None
        for t in reversed(range(rewards.shape[0])):
            best = float(q_next[t, b].max())
            if terminated[t, b]:
                after = 0.0
            elif truncated[t, b] or following is None:
                after = best
            else:
                after = lambda_ * following + (1.0 - lambda_) * best
            targets[t, b] = following = float(rewards[t, b]) + G * after
    return targets


def sampled(test):
    x = {name: test.sample(name, (STEPS, ROWS)) for name in test.input_spaces}
    ends = np.random.default_rng(1).random((2, STEPS, ROWS)) < 0.2
    x["terminated"], x["truncated"] = ends
    x["terminated"][2, 0] = x["truncated"][2, 0] = True  # what is both has ended
    x["truncated"][-1, 1] = True
    return x


@pytest.mark.parametrize(
    ("backend", "lambda_"), [("numpy", 0.0), ("numpy", 1.0), *((backend, 0.7) for backend in BACKENDS)]
)
def test_targets_are_those_of_a_loop(backend, lambda_):
    test = component(backend, lambda_, FloatBox(shape=(3,)), IntBox(3), FloatBox())
    x = sampled(test)
    steps = x["rewards"], x["terminated"], x["truncated"]
    found = test.test("targets", x["q_next"], *steps)
    np.testing.assert_allclose(found, oracle(x["q_next"], *steps, lambda_), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_each_component_of_an_action_has_targets_of_its_own(backend):
    test = component(backend, 0.7, Q_VALUES, ACTIONS, TARGETS)
    x = sampled(test)
    steps = x["rewards"], x["terminated"], x["truncated"]
    found = test.test("targets", x["q_next"], *steps)
    for k in range(2):
        expected = oracle(x["q_next"]["pair"][:, :, k], *steps, 0.7)
        np.testing.assert_allclose(found["pair"][:, :, k], expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found["switch"], oracle(x["q_next"]["switch"], *steps, 0.7), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_loss_is_half_the_mean_squared_error_of_all_components(backend):
    test = component(backend, 0.7, Q_VALUES, ACTIONS, TARGETS)
    x = sampled(test)
    errors, chosen = [], []
    for t, b in np.ndindex(STEPS, ROWS):
        for k in range(2):
            chosen.append(x["q_values"]["pair"][t, b, k, x["actions"]["pair"][t, b, k]])
            errors.append(x["targets"]["pair"][t, b, k] - chosen[-1])
        chosen.append(x["q_values"]["switch"][t, b, int(x["actions"]["switch"][t, b])])
        errors.append(x["targets"]["switch"][t, b] - chosen[-1])
    loss, mean_q = test.test("loss", x["q_values"], x["actions"], x["targets"])
    np.testing.assert_allclose(loss, 0.5 * np.mean(np.square(errors)), rtol=1e-5)
    np.testing.assert_allclose(mean_q, np.mean(chosen), rtol=1e-4, atol=1e-6)


class OwnTargets(Component):
    """One table gives the Q-values of the observations, and those of what each step led to."""

    def __init__(self):
        super().__init__("own-targets")
        self.loss = QLambdaLoss(G, 0.7)

    @api
    def gradients_of(self, q_values, actions, rewards, terminated, truncated):
        targets = self.loss.targets(q_values, rewards, terminated, truncated)
        return gradients(self.loss.loss(q_values, actions, targets)[0], q_values)


@pytest.mark.parametrize("backend", DIFFERENTIABLE)
def test_gradients_do_not_flow_through_targets(backend):
    spaces = {"q_values": FloatBox(shape=(3,)), "actions": IntBox(3), "rewards": FloatBox()}
    spaces |= {"terminated": BoolBox(), "truncated": BoolBox()}
    test = ComponentTest(OwnTargets(), {name: timed(space) for name, space in spaces.items()}, backend)
    x = sampled(test)
    steps = x["rewards"], x["terminated"], x["truncated"]
    found = test.test("gradients_of", x["q_values"], x["actions"], *steps)
    expected = np.zeros_like(x["q_values"])
    targets = oracle(x["q_values"], *steps, 0.7)
    for t, b in np.ndindex(STEPS, ROWS):
        action = x["actions"][t, b]
        expected[t, b, action] = (x["q_values"][t, b, action] - targets[t, b]) / (STEPS * ROWS)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("wrong", [{"discount": 1.1}, {"lambda_": -0.1}])
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        QLambdaLoss(**wrong)
