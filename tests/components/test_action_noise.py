"""Noise of deterministic policies: its size in units of the box, its limit, and the bounds."""

import numpy as np
import pytest

from rlweave.components import GaussianNoise, NoisyAction, OrnsteinUhlenbeckNoise
from rlweave.components.action_noise import make_noise
from rlweave.errors import ConfigError, SpaceError, SpecError
from rlweave.spaces import BoolBox, Dict, FloatBox, IntBox
from rlweave.testing import ComponentTest
from tests.components.gradient_probes import BACKENDS

SPACE = Dict(free=FloatBox(), wide=FloatBox(low=-100.0, high=[100.0, 300.0], shape=(2,)))
OWN = Dict(free=FloatBox(), wide=FloatBox(low=-1.0, high=1.0, shape=(2,))).with_batch_rank()
ROWS = 4000


def zeros():
    return {"free": np.zeros(ROWS, np.float32), "wide": np.zeros((ROWS, 2), np.float32)}


@pytest.mark.parametrize("backend", BACKENDS)
def test_deviation_and_limit(backend):
    free = ComponentTest(GaussianNoise(SPACE, 0.2), {"actions": OWN}, backend).test("call", zeros())[0]
    for noise in (free["free"], free["wide"][:, 0], free["wide"][:, 1]):
        assert noise.std() == pytest.approx(0.2, rel=0.05)
        assert abs(noise.mean()) < 0.02
    limited = ComponentTest(GaussianNoise(SPACE, 0.2, 0.3), {"actions": OWN}, backend).test("call", zeros())[0]
    assert (limited["free"].min(), limited["free"].max()) == (pytest.approx(-0.3), pytest.approx(0.3))
    # the variance of a standard normal number that is clipped to [-1.5, 1.5] is 0.7784
    assert limited["free"].std() == pytest.approx(0.2 * np.sqrt(0.7784), rel=0.05)
    assert abs(limited["free"].mean()) < 0.02
    # clipped after the noise, where there are bounds
    ends = {name: np.ones_like(values) for name, values in zeros().items()}
    at_the_end = ComponentTest(GaussianNoise(SPACE, 0.2), {"actions": OWN}, backend).test("call", ends)[0]
    assert at_the_end["wide"].max() == 1
    assert at_the_end["free"].max() > 1.3


@pytest.mark.parametrize("backend", BACKENDS)
def test_ornstein_uhlenbeck_noise_has_the_moments_of_the_process(backend):
    deviation, rate, steps = 0.2, 0.3, 12
    noise = OrnsteinUhlenbeckNoise(SPACE, deviation, rate)
    spaces = {"actions": OWN, "state": noise.recurrent_space.with_batch_rank()}
    test = ComponentTest(noise, {**spaces, "episode_start": BoolBox(add_batch_rank=True)}, backend)
    begun = np.zeros(ROWS, np.bool_)
    state = {name: values + 7.0 for name, values in zeros().items()}  # of an episode before
    course = []
    for step in range(steps):
        actions, state = test.test("call", zeros(), state, begun if step else ~begun)
        np.testing.assert_allclose(actions["free"], state["free"], rtol=1e-6)
        course.append(np.column_stack([state["free"], state["wide"]]))
    course = np.array(course)  # (T, rows, components)
    for step in range(steps):
        variance = deviation**2 * (1 - np.exp(-2 * rate * (step + 1)))
        np.testing.assert_allclose(course[step].var(axis=0), variance, rtol=0.1)
        np.testing.assert_allclose(course[step].mean(axis=0), 0, atol=5 * np.sqrt(variance / ROWS))
        if step >= 3:  # covariance of two noises: what is left of the earlier one
            earlier = course[step - 3]
            expected = np.exp(-3 * rate) * earlier.var(axis=0)
            np.testing.assert_allclose((course[step] * earlier).mean(axis=0), expected, atol=0.003)
    np.testing.assert_allclose(np.corrcoef(course[-1].T), np.eye(3), atol=0.07)  # components are independent
    # an episode that begins leaves the others alone
    start = np.arange(ROWS) < ROWS // 2
    _, after = test.test("call", zeros(), {name: np.full_like(v, 9.0) for name, v in zeros().items()}, start)
    innovation = deviation * np.sqrt(1 - np.exp(-2 * rate))
    assert after["free"][start].mean() == pytest.approx(0, abs=5 * innovation / np.sqrt(ROWS / 2))
    assert after["free"][~start].mean() == pytest.approx(9 * np.exp(-rate), abs=5 * innovation / np.sqrt(ROWS / 2))


@pytest.mark.parametrize("backend", BACKENDS)
def test_ornstein_uhlenbeck_noise_stays_within_the_box_and_is_kept_beyond(backend):
    noise = OrnsteinUhlenbeckNoise(SPACE, 0.1, 0.1)
    spaces = {"actions": OWN, "state": noise.recurrent_space.with_batch_rank()}
    test = ComponentTest(noise, {**spaces, "episode_start": BoolBox(add_batch_rank=True)}, backend)
    far = {name: np.full_like(values, 5.0) for name, values in zeros().items()}
    actions, state = test.test("call", zeros(), far, np.zeros(ROWS, np.bool_))
    assert (actions["wide"] == 1).all()
    assert state["wide"].mean() == pytest.approx(5 * np.exp(-0.1), abs=0.01)
    assert actions["free"].mean() == pytest.approx(5 * np.exp(-0.1), abs=0.01)


@pytest.mark.parametrize("backend", BACKENDS)
def test_actions_of_the_environment(backend):
    parameters = Dict(free=Dict(mean=FloatBox()), wide=Dict(mean=FloatBox(shape=(2,)))).with_batch_rank()
    test = ComponentTest(NoisyAction(SPACE), {"parameters": parameters, "actions": OWN}, backend)
    given = {"free": {"mean": np.array([3.0], np.float32)}, "wide": {"mean": np.array([[0.0, 20.0]], np.float32)}}
    mode = test.test("mode", given)
    np.testing.assert_allclose(mode["wide"], [[0, 1]])
    found = test.test("env_actions", mode)
    np.testing.assert_allclose(found["wide"], [[0, 300]])
    np.testing.assert_allclose(found["free"], [3])


def test_what_is_refused():
    with pytest.raises(SpaceError, match="floats only"):
        GaussianNoise(IntBox(3))
    with pytest.raises(ConfigError, match="deviation"):
        GaussianNoise(SPACE, -0.1)
    with pytest.raises(ConfigError, match="rate"):
        OrnsteinUhlenbeckNoise(SPACE, rate=0.0)


@pytest.mark.parametrize("spec", [{"type": "dense", "units": 3}, {"deviation": 0.2}], ids=["a layer", "no type"])
def test_a_spec_of_something_else_names_the_kinds_of_noise(spec):
    with pytest.raises(SpecError, match=r"\['gaussian_noise', 'ornstein_uhlenbeck_noise'\]"):
        make_noise(spec, FloatBox(-1.0, 1.0))
