import numpy as np
import pytest

from rlweave.components import LSTM
from rlweave.errors import BuildError
from rlweave.spaces import BoolBox, Dict, FloatBox
from rlweave.testing import ComponentTest
from tests.components.gradient_probes import BACKENDS


def spaces(features, units):
    return {
        "inputs": FloatBox(shape=(features,), add_batch_rank=True, add_time_rank=True),
        "state": Dict(hidden=FloatBox(shape=(units,)), cell=FloatBox(shape=(units,)), add_batch_rank=True),
        "episode_start": BoolBox(add_batch_rank=True, add_time_rank=True),
    }


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def loop(x, state, start, v):
    """A step at a time, gates i, g, f, o, forget bias + 1."""
    h, c = state["hidden"], state["cell"]
    outputs = []
    for x_t, start_t in zip(x, start, strict=True):
        h, c = np.where(start_t[:, None], 0, h), np.where(start_t[:, None], 0, c)
        i, g, f, o = np.split(x_t @ v["kernel"] + h @ v["recurrent_kernel"] + v["bias"], 4, axis=-1)
        c = sigmoid(f + 1) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        outputs.append(h)
    return np.stack(outputs), {"hidden": h, "cell": c}


@pytest.mark.parametrize("backend", BACKENDS)
def test_oracle(backend):
    test = ComponentTest(LSTM(1, kernel_initializer=0.5, recurrent_initializer=0.5), spaces(1, 1), backend)
    state, start = test.test("initial_state", batch_size=1), np.zeros((1, 1), bool)
    for x, h, c in ((1.0, 0.1742697, 0.2876491), (2.0, 0.5172249, 0.8510610)):
        outputs, state = test.test("call", np.full((1, 1, 1), x, np.float32), state, start)
        np.testing.assert_allclose([outputs.item(), state["hidden"].item(), state["cell"].item()], [h, h, c], rtol=1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_sequence_equals_a_loop_with_resets(backend):
    test = ComponentTest(LSTM(3), spaces(4, 3), backend)
    rng = np.random.default_rng(0)
    weights = {path: rng.normal(size=value.shape).astype(np.float32) for path, value in test.variables().items()}
    test.executor.set_weights({f"lstm/{path}": value for path, value in weights.items()})
    x, state = test.sample("inputs", (6, 2)), test.sample("state", 2)
    start = rng.random((6, 2)) < 0.4
    test.test("call", x, state, start, expected=loop(x, state, start, weights), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_two_halves_equal_the_whole(backend):
    test = ComponentTest(LSTM(3), spaces(2, 3), backend)
    x, start = test.sample("inputs", (6, 2)), np.zeros((6, 2), bool)
    start[3, 0] = True
    state = test.test("initial_state", batch_size=2)
    whole, last = test.test("call", x, state, start)
    first, middle = test.test("call", x[:3], state, start[:3])
    second, end = test.test("call", x[3:], middle, start[3:])
    np.testing.assert_allclose(np.concatenate([first, second]), whole, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(end["cell"], last["cell"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_nothing_of_an_old_episode_remains_after_a_start(backend):
    test = ComponentTest(LSTM(2), spaces(1, 2), backend)
    x, start = test.sample("inputs", (1, 1)), np.ones((1, 1), bool)
    poisoned = {"hidden": np.full((1, 2), np.nan, np.float32), "cell": np.full((1, 2), np.inf, np.float32)}
    zeros = test.test("initial_state", batch_size=1)
    test.test("call", x, poisoned, start, expected=test.test("call", x, zeros, start))


def test_it_wants_sequences():
    with pytest.raises(BuildError, match="time-major"):
        ComponentTest(LSTM(2), {**spaces(1, 2), "inputs": FloatBox(shape=(1,), add_batch_rank=True)})
