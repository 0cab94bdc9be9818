import numpy as np
import pytest

from rlweave.components import ObservationEncoder, Policy, ValueFunction, mlp
from rlweave.graph import from_spec, shared, to_spec
from rlweave.spaces import Dict, FloatBox, IntBox
from rlweave.testing import ComponentTest
from tests.components.gradient_probes import BACKENDS


@pytest.mark.parametrize("backend", BACKENDS)
def test_values_have_no_feature_axis(backend):
    space = FloatBox(shape=(3,), add_batch_rank=True)
    test = ComponentTest(ValueFunction(mlp([8])), {"observations": space}, backend)
    v, x = test.variables(), test.sample("observations", 5)
    expected = (np.tanh(x @ v["network/dense/kernel"]) @ v["head/kernel"])[:, 0]
    test.test("call", x, expected=expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_nested_sequences(backend):
    space = Dict(a=IntBox(3), b=FloatBox(shape=(2, 2)), add_batch_rank=True, add_time_rank=True)
    test = ComponentTest(ValueFunction(mlp([8])), {"observations": space}, backend)
    x = test.sample("observations", (4, 3))
    values = test.test("call", x)
    assert values.shape == (4, 3)
    assert len(np.unique(values)) == 12


def test_specs_round_trip():
    spec = to_spec(ValueFunction(mlp([8]), observation_space=Dict(a=IntBox(3)), initializer="orthogonal"))
    assert to_spec(from_spec(spec)) == spec


def test_it_knows_whose_encoder_it_shares():
    policy, other = (Policy(ObservationEncoder(mlp([4])), IntBox(2)) for _ in range(2))
    value = ValueFunction(shared(policy.network))
    assert value.shares_encoder_of(policy)
    assert not value.shares_encoder_of(other)
    assert not value.shares_encoder_of(value.head)  # which has none
