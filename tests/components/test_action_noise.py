"""Noise of deterministic policies: its size in units of the box, its limit, and the bounds."""

import numpy as np
import pytest

from rlweave.components import GaussianNoise, NoisyAction
from rlweave.errors import ConfigError, SpaceError
from rlweave.spaces import Dict, FloatBox, IntBox
from rlweave.testing import ComponentTest
from tests.components.gradient_probes import BACKENDS

SPACE = Dict(free=FloatBox(), wide=FloatBox(low=-100.0, high=[100.0, 300.0], shape=(2,)))
OWN = Dict(free=FloatBox(), wide=FloatBox(low=-1.0, high=1.0, shape=(2,))).with_batch_rank()
ROWS = 4000


def zeros():
    return {"free": np.zeros(ROWS, np.float32), "wide": np.zeros((ROWS, 2), np.float32)}


@pytest.mark.parametrize("backend", BACKENDS)
def test_deviation_and_limit(backend):
    free = ComponentTest(GaussianNoise(SPACE, 0.2), {"actions": OWN}, backend).test("call", zeros())
    for noise in (free["free"], free["wide"][:, 0], free["wide"][:, 1]):
        assert noise.std() == pytest.approx(0.2, rel=0.05)
        assert abs(noise.mean()) < 0.02
    limited = ComponentTest(GaussianNoise(SPACE, 0.2, 0.3), {"actions": OWN}, backend).test("call", zeros())
    assert np.abs(limited["free"]).max() == pytest.approx(0.3)
    # clipped after the noise, where there are bounds
    ends = {name: np.ones_like(values) for name, values in zeros().items()}
    at_the_end = ComponentTest(GaussianNoise(SPACE, 0.2), {"actions": OWN}, backend).test("call", ends)
    assert at_the_end["wide"].max() == 1
    assert at_the_end["free"].max() > 1.3


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
