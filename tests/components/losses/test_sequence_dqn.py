"""Deep Q-learning over sequences, against a loop in float64."""

import numpy as np
import pytest

from rlweave.components import SequenceDQNLoss
from rlweave.errors import BuildError, ConfigError
from rlweave.spaces import BoolBox, Dict, FloatBox, IntBox
from rlweave.testing import ComponentTest, check
from rlweave.testing.component_descriptors import DESCRIPTORS
from tests.components.gradient_probes import BACKENDS

STEPS, ROWS, ACTIONS = 7, 4, 3
G = 0.9


def timed(space):
    return space.with_batch_rank().with_time_rank()


def spaces(double=True, mask=True):
    q = timed(FloatBox(shape=(ACTIONS,)))
    given = {
        "q_values": q,
        "actions": timed(IntBox(ACTIONS)),
        "rewards": timed(FloatBox()),
        "terminated": timed(BoolBox()),
        "truncated": timed(BoolBox()),
        "target_q_next": q,
        "online_q_next": q,
        "weights": FloatBox(0.1, 1.0, add_batch_rank=True),
        "mask": timed(BoolBox()),
    }
    return {name: s for name, s in given.items() if (double or name != "online_q_next") and (mask or name != "mask")}


def sample(test, seed=0):
    return {name: test.sample(name, ROWS if name == "weights" else (STEPS, ROWS), seed) for name in test.input_spaces}


def oracle(x, n, double, delta, eta):
    """Step by step, sequence by sequence."""
    losses, priorities, count = 0.0, [], 0
    steps, rows = x["rewards"].shape
    mask = x.get("mask", np.ones((steps, rows), bool))
    for b in range(rows):
        errors = []
        for t in range(steps):
            if not mask[t, b]:
                continue
            target, discount, k = 0.0, 1.0, t
            while True:
                target += discount * float(x["rewards"][k, b])
                discount *= G
                goes_on = not (x["terminated"][k, b] or x["truncated"][k, b])
                if k - t + 1 == n or not goes_on or k + 1 == steps or not mask[k + 1, b]:
                    break
                k += 1
            if not x["terminated"][k, b]:
                chooser = x["online_q_next"] if double else x["target_q_next"]
                target += discount * float(x["target_q_next"][k, b, np.argmax(chooser[k, b])])
            error = target - float(x["q_values"][t, b, x["actions"][t, b]])
            size = abs(error)
            loss = 0.5 * error**2 if delta is None or size <= delta else delta * (size - 0.5 * delta)
            losses += loss * float(x["weights"][b])
            count += 1
            errors.append(size)
        priorities.append(eta * max(errors, default=0.0) + (1 - eta) * (np.mean(errors) if errors else 0.0))
    return np.float32(losses / max(count, 1)), np.array(priorities, np.float32)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("n", "double", "mask", "delta"),
    [(1, True, True, 1.0), (3, True, True, None), (3, False, False, 1.0), (9, True, True, 1.0)],
)
def test_it_equals_a_loop(backend, n, double, mask, delta):
    loss = SequenceDQNLoss(G, n, double, delta, priority_eta=0.7)
    test = ComponentTest(loss, spaces(double, mask), backend)
    for seed in range(3):
        x = sample(test, seed)
        rng = np.random.default_rng(seed)
        for name in ("terminated", "truncated"):
            x[name] = rng.random((STEPS, ROWS)) < 0.2
        test.test("sequence_loss", **x, expected=oracle(x, n, double, delta, 0.7), rtol=1e-4, atol=1e-5)


def test_without_ends_and_padding_it_is_the_loss_of_one_step():
    test = ComponentTest(SequenceDQNLoss(G), spaces(mask=False))
    x = sample(test)
    x["terminated"][:], x["truncated"][:], x["weights"][:] = False, False, 1.0
    value, _ = test.test("sequence_loss", **x)
    next_values = np.take_along_axis(x["target_q_next"], x["online_q_next"].argmax(-1)[..., None], -1)[..., 0]
    error = x["rewards"] + G * next_values - np.take_along_axis(x["q_values"], x["actions"][..., None], -1)[..., 0]
    size = np.abs(error)
    np.testing.assert_allclose(value, np.where(size < 1, error**2 / 2, size - 0.5).mean(), rtol=1e-5)


def test_padding_counts_nowhere():
    test = ComponentTest(SequenceDQNLoss(G, 3), spaces())
    x = sample(test)
    x["terminated"][:], x["truncated"][:] = False, False
    x["mask"][:] = np.arange(STEPS)[:, None] < np.array([7, 5, 3, 1])
    expected = test.test("sequence_loss", **x)
    for name in ("rewards", "q_values", "target_q_next", "online_q_next"):
        x[name] = np.where(x["mask"].reshape(STEPS, ROWS, *(1,) * (x[name].ndim - 2)), x[name], 1e6).astype(np.float32)
    test.test("sequence_loss", **x, expected=expected)
    x["mask"][:] = False
    value, priorities = test.test("sequence_loss", **x)
    assert value == 0.0
    np.testing.assert_array_equal(priorities, 0.0)


def test_components_of_an_action_have_targets_each():
    q = timed(Dict(a=FloatBox(shape=(2, 3)), b=FloatBox(shape=(2,))))
    given = {**spaces(), "q_values": q, "target_q_next": q, "online_q_next": q}
    given["actions"] = timed(Dict(a=IntBox(3, shape=(2,)), b=BoolBox()))
    test = ComponentTest(SequenceDQNLoss(G, 2, priority_eta=1.0, huber_delta=None), given)
    x = sample(test)
    single = ComponentTest(SequenceDQNLoss(G, 2, priority_eta=1.0, huber_delta=None), spaces())
    values = []
    for choose in (lambda v: v["a"][:, :, 0], lambda v: v["a"][:, :, 1], lambda v: _three(v["b"])):
        names = ("q_values", "target_q_next", "online_q_next", "actions")
        one = {**x, **{name: choose(x[name]) for name in names}}
        one["actions"] = one["actions"].astype(np.int32)
        values.append(single.test("sequence_loss", **one)[0])
    np.testing.assert_allclose(test.test("sequence_loss", **x)[0], np.mean(values), rtol=1e-5)


def _three(leaf):
    """Q-values of two categories with a third that is never the largest; actions as they are."""
    return np.concatenate([leaf, np.full((*leaf.shape[:-1], 1), -1e9, np.float32)], -1) if leaf.ndim == 3 else leaf


def test_wrong_settings_are_explained():
    with pytest.raises(ConfigError, match="priority_eta is out of range"):
        SequenceDQNLoss(priority_eta=1.1)
    with pytest.raises(BuildError, match="double Q-learning needs online_q_next"):
        ComponentTest(SequenceDQNLoss(), spaces(double=False))


def test_its_targets_look_ahead_and_say_so():
    report = check(DESCRIPTORS["sequence-dqn-loss"])
    assert report.ok, str(report)
