import numpy as np
import pytest

from rlweave.components import GRU, LSTM
from rlweave.errors import BuildError, SpecError
from rlweave.graph import Component
from rlweave.spaces import BoolBox, Dict, FloatBox
from rlweave.testing import ComponentTest
from tests.components.gradient_probes import BACKENDS

LAYERS = [LSTM, GRU]
every = pytest.mark.parametrize("layer", LAYERS)
on_every_backend = pytest.mark.parametrize("backend", BACKENDS)


def spaces(layer, features, units, steps=True):
    parts = {name: FloatBox(shape=(units,)) for name in layer.state_names}
    inputs = FloatBox(shape=(features,), add_batch_rank=True, add_time_rank=steps)
    return {
        "inputs": inputs,
        "next_inputs": inputs,
        "state": Dict(parts).with_batch_rank(),
        "episode_start": BoolBox(add_batch_rank=True, add_time_rank=steps),
    }


def make(layer, backend, features, units, steps=True, rng=None):
    """A built layer whose weights are all drawn at random, biases too."""
    given = spaces(layer, features, units, steps)
    if not steps:
        del given["next_inputs"]
    test = ComponentTest(layer(units), given, backend)
    rng = np.random.default_rng(7)
    weights = {path: rng.normal(size=v.shape).astype(np.float32) * 0.7 for path, v in sorted(test.variables().items())}
    test.executor.set_weights({f"{test.component.path}/{path}": value for path, value in weights.items()})
    return test, weights


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def step_of(layer, v):
    """One step written out: gates i, g, f, o with forget bias + 1; gates r, z, n with the reset after the product."""

    def lstm(x, s):
        i, g, f, o = np.split(x @ v["kernel"] + s["hidden"] @ v["recurrent_kernel"] + v["bias"], 4, axis=-1)
        cell = sigmoid(f + 1) * s["cell"] + sigmoid(i) * np.tanh(g)
        return {"hidden": sigmoid(o) * np.tanh(cell), "cell": cell}

    def gru(x, s):
        a_r, a_z, a_n = np.split(x @ v["kernel"] + v["bias"], 3, axis=-1)
        u_r, u_z, u_n = np.split(s["hidden"] @ v["recurrent_kernel"], 3, axis=-1)
        r, z = sigmoid(a_r + u_r), sigmoid(a_z + u_z)
        return {"hidden": (1 - z) * np.tanh(a_n + r * (u_n + v["candidate_bias"])) + z * s["hidden"]}

    return lstm if layer is LSTM else gru


def restarted(state, start):
    return {name: np.where(start[:, None], 0, value) for name, value in state.items()}


def loop(layer, x, state, start, v, following=None):
    """A step at a time; and from each step one more with `following`, as `look_ahead` does."""
    step, outputs, ahead = step_of(layer, v), [], []
    for t in range(len(x)):
        state = step(x[t], restarted(state, start[t]))
        outputs.append(state["hidden"])
        if following is not None:
            ahead.append(step(following[t], state)["hidden"])
    return (np.stack(outputs), state) if following is None else (np.stack(outputs), np.stack(ahead), state)


def data(test, steps=6, rows=3, seed=0):
    rng = np.random.default_rng(seed)
    return (
        test.sample("inputs", (steps, rows), seed),
        test.sample("state", rows, seed + 1),
        rng.random((steps, rows)) < 0.3,
    )


@on_every_backend
def test_oracle(backend):
    given = spaces(LSTM, 1, 1)
    test = ComponentTest(LSTM(1, kernel_initializer=0.5, recurrent_initializer=0.5), given, backend)
    state, start = test.test("initial_state", batch_size=1), np.zeros((1, 1), bool)
    for x, h, c in ((1.0, 0.1742697, 0.2876491), (2.0, 0.5172249, 0.8510610)):
        outputs, state = test.test("call", np.full((1, 1, 1), x, np.float32), state, start)
        np.testing.assert_allclose([outputs.item(), state["hidden"].item(), state["cell"].item()], [h, h, c], rtol=1e-5)


@every
def test_weights_of_torch_give_what_torch_gives(layer):
    import torch

    torch.manual_seed(0)
    module = (torch.nn.LSTM if layer is LSTM else torch.nn.GRU)(4, 3)
    test, _ = make(layer, "numpy", 4, 3)
    ih, hh, b_ih, b_hh = (getattr(module, f"{name}_l0").detach().numpy() for name in WEIGHTS_OF_TORCH)
    if layer is LSTM:  # torch has i, f, g, o, and its whole forget bias in the weights
        blocks = np.split(np.arange(12), 4)
        order = np.concatenate([blocks[i] for i in (0, 2, 1, 3)])
        bias = (b_ih + b_hh)[order] - np.repeat([0.0, 0.0, 1.0, 0.0], 3)
        weights = {"kernel": ih[order].T, "recurrent_kernel": hh[order].T, "bias": bias}
    else:  # the biases of r and z are added to each other, that of n's recurrent part is not
        bias = b_ih + np.concatenate([b_hh[:6], np.zeros(3)])
        weights = {"kernel": ih.T, "recurrent_kernel": hh.T, "bias": bias, "candidate_bias": b_hh[6:]}
    path = test.component.path
    test.executor.set_weights({f"{path}/{name}": np.ascontiguousarray(w, np.float32) for name, w in weights.items()})
    x, state, _ = data(test)
    given = tuple(torch.from_numpy(state[name][None]) for name in layer.state_names)
    outputs, last = module(torch.from_numpy(x), given if layer is LSTM else given[0])
    last = dict(zip(layer.state_names, last if layer is LSTM else (last,), strict=True))
    expected = {name: value.detach().numpy()[0] for name, value in last.items()}
    never = np.zeros(x.shape[:2], bool)
    test.test("call", x, state, never, expected=(outputs.detach().numpy(), expected), rtol=1e-4, atol=1e-6)


WEIGHTS_OF_TORCH = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


@every
@on_every_backend
def test_a_sequence_equals_a_loop_with_resets(layer, backend):
    test, weights = make(layer, backend, 4, 3)
    x, state, start = data(test)
    test.test("call", x, state, start, expected=loop(layer, x, state, start, weights), rtol=1e-4, atol=1e-5)


@every
@on_every_backend
def test_single_steps_equal_the_sequence(layer, backend):
    whole, _ = make(layer, backend, 2, 3)
    single, _ = make(layer, backend, 2, 3, steps=False)
    x, state, start = data(whole)
    outputs, last = whole.test("call", x, state, start)
    for t in range(len(x)):
        hidden, state = single.test("call", x[t], state, start[t], expected=None)
        np.testing.assert_allclose(hidden, outputs[t], rtol=1e-4, atol=1e-6)
    for name in layer.state_names:
        np.testing.assert_allclose(state[name], last[name], rtol=1e-4, atol=1e-6)


@every
@on_every_backend
def test_a_look_ahead_takes_one_more_step_from_each(layer, backend):
    test, weights = make(layer, backend, 4, 3)
    x, state, start = data(test)
    following = test.sample("next_inputs", x.shape[:2], seed=9)
    expected = loop(layer, x, state, start, weights, following)
    test.test("look_ahead", x, following, state, start, expected=expected, rtol=1e-4, atol=1e-5)


@every
def test_two_halves_equal_the_whole(layer):
    test, _ = make(layer, "jax", 2, 3)
    x, state, start = data(test)
    whole, last = test.test("call", x, state, start)
    first, middle = test.test("call", x[:3], state, start[:3])
    second, end = test.test("call", x[3:], middle, start[3:])
    np.testing.assert_allclose(np.concatenate([first, second]), whole, rtol=1e-5, atol=1e-6)
    for name in layer.state_names:
        np.testing.assert_allclose(end[name], last[name], rtol=1e-5, atol=1e-6)


@every
@on_every_backend
def test_a_reset_of_one_environment_leaves_the_others_alone(layer, backend):
    test, _ = make(layer, backend, 2, 3)
    x, state, _ = data(test)
    never, once = np.zeros((6, 3), bool), np.zeros((6, 3), bool)
    once[3, 1] = True
    (going_on, end), (reset, other_end) = (test.test("call", x, state, start) for start in (never, once))
    np.testing.assert_array_equal(reset[:, [0, 2]], going_on[:, [0, 2]])
    np.testing.assert_array_equal(reset[:3], going_on[:3])
    assert np.all(np.abs(reset[3, 1] - going_on[3, 1]) > 1e-4)
    for name in layer.state_names:
        np.testing.assert_array_equal(end[name][[0, 2]], other_end[name][[0, 2]])
    # from there on the environment is as one that begins
    alone, _ = test.test("call", x[3:, [1]], test.test("initial_state", batch_size=1), never[3:, [1]])
    np.testing.assert_allclose(reset[3:, [1]], alone, rtol=1e-5, atol=1e-6)


@every
@on_every_backend
def test_nothing_of_an_old_episode_remains_after_a_start(layer, backend):
    test, _ = make(layer, backend, 1, 2)
    x, start = test.sample("inputs", (1, 1)), np.ones((1, 1), bool)
    poisoned = {name: np.full((1, 2), np.nan, np.float32) for name in layer.state_names}
    zeros = test.test("initial_state", batch_size=1)
    test.test("call", x, poisoned, start, expected=test.test("call", x, zeros, start))


@every
def test_spaces_that_do_not_fit_are_explained(layer):
    given = {**spaces(layer, 1, 2), "inputs": FloatBox(shape=(1,), add_batch_rank=True)}
    with pytest.raises(BuildError, match="time-major"):
        ComponentTest(layer(2), given)
    with pytest.raises(BuildError, match="time-major"):
        ComponentTest(layer(2), {**given, "inputs": FloatBox(shape=(1, 1), add_batch_rank=True, add_time_rank=True)})
    with pytest.raises(SpecError, match="whole number of units"):
        layer(0)


def test_they_can_be_written_as_specs():
    for name, layer in (("lstm", LSTM), ("gru", GRU)):
        made = Component.from_spec({"type": name, "units": 3})
        assert isinstance(made, layer)
        assert sorted(made.recurrent_space) == sorted(layer.state_names)
