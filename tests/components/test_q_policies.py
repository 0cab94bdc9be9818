import numpy as np
import pytest

from rlweave import ops
from rlweave.components import DuelingPolicy, QPolicy, mlp
from rlweave.errors import SpaceError, SpecError
from rlweave.graph import Component, api, build, from_spec, gradients, graph_fn, to_spec
from rlweave.spaces import BoolBox, Dict, FloatBox, IntBox, Tuple
from rlweave.testing import ComponentTest
from tests.components.gradient_probes import BACKENDS, DIFFERENTIABLE

OBSERVATIONS = FloatBox(shape=(4,), add_batch_rank=True)
ACTIONS = Dict(a=IntBox(high=[2, 3]), b=Tuple(IntBox(-1, 2), Dict()), c=BoolBox(shape=(2,)), d=IntBox(2, shape=(2, 2)))


def policy_test(policy, backend="numpy", **options):
    return ComponentTest(
        policy, {"observations": OBSERVATIONS, "actions": ACTIONS.with_batch_rank()}, backend, **options
    )


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("cls", [QPolicy, DuelingPolicy])
def test_any_discrete_action(backend, cls):
    test = policy_test(cls(mlp([8]), ACTIONS), backend)
    observations = test.sample("observations", 5)
    q = test.test("q_values", observations)
    shapes = {path: x.shape for path, x in ACTIONS.flatten_value(q).items()}
    assert shapes == {"a": (5, 2, 3), "b/0": (5, 3), "c": (5, 2, 2), "d": (5, 2, 2, 2)}
    assert np.all(q["a"][:, 0, 2] == np.float32(-1e9))
    assert np.all(np.abs(q["a"][:, 0, :2]) < 100)
    greedy = test.test("greedy", observations)
    assert greedy["c"].dtype == bool
    assert greedy["a"].dtype == np.int32
    expected = {path: x.argmax(-1) for path, x in ACTIONS.flatten_value(q).items()}
    for path, best in ACTIONS.flatten_value(greedy).items():
        np.testing.assert_array_equal(best, expected[path])
    sent = test.test("env_actions", greedy)
    np.testing.assert_array_equal(sent["b"][0], greedy["b"][0] - 1)
    assert ACTIONS.with_batch_rank().contains(sent)


@pytest.mark.parametrize("backend", BACKENDS)
def test_q_values_equal_numpy(backend):
    test = ComponentTest(QPolicy(mlp([8], "relu"), IntBox(3)), {"observations": OBSERVATIONS}, backend)
    v, x = test.variables(), test.sample("observations", 5)
    q = np.maximum(x @ v["network/dense/kernel"], 0) @ v["head/kernel"]
    test.test("q_values", x, expected=q, rtol=1e-4, atol=1e-5)
    test.test("greedy", x, expected=q.argmax(-1))
    nodes = {name: len(graph.nodes) for (name, _), graph in test.executor.graphs.items()}
    assert nodes == {"features": 1, "q_values": 2, "greedy": 3}


@pytest.mark.parametrize("backend", BACKENDS)
def test_dueling_oracle(backend):
    """V = 2, A = [1, 3, -1] gives Q = [2, 4, 0]."""
    test = ComponentTest(DuelingPolicy(None, IntBox(3)), {"observations": OBSERVATIONS}, backend)
    weights = {path: np.zeros_like(value) for path, value in test.executor.get_weights().items()}
    weights["policy/value-head/bias"][:] = 2
    weights["policy/head/bias"][:] = [1, 3, -1]
    test.executor.set_weights(weights)
    test.test("q_values", np.ones((2, 4), np.float32), expected=np.array([[2, 4, 0]] * 2, np.float32))


@pytest.mark.parametrize("backend", BACKENDS)
def test_dueling_means_are_per_component_and_skip_what_does_not_exist(backend):
    test = ComponentTest(DuelingPolicy(None, IntBox(high=[2, 3])), {"observations": OBSERVATIONS}, backend)
    weights = {path: np.zeros_like(value) for path, value in test.executor.get_weights().items()}
    weights["policy/value-head/bias"][:] = 10
    weights["policy/head/bias"][:] = [1, 3, 500, 1, 2, 6]
    test.executor.set_weights(weights)
    expected = np.array([[[9, 11, -1e9], [8, 9, 13]]], np.float32)
    test.test("q_values", np.ones((1, 4), np.float32), expected=expected)
    assert test.test("greedy", np.ones((1, 4), np.float32)).tolist() == [[1, 2]]


def test_dueling_streams_have_networks_of_their_own():
    policy = DuelingPolicy(mlp([8]), IntBox(3), value_network=mlp([5]), advantage_network=mlp([6]))
    v = ComponentTest(policy, {"observations": OBSERVATIONS}).variables()
    kernels = {path.removesuffix("/kernel"): value.shape for path, value in v.items() if path.endswith("kernel")}
    assert kernels == {
        "network/dense": (4, 8), "value-network/dense": (8, 5), "value-head": (5, 1),
        "advantage-network/dense": (8, 6), "head": (6, 3),
    }  # fmt: skip


class Learner(Component):
    def __init__(self, policy):
        super().__init__("root")
        self.policy = policy

    @graph_fn(flatten=True)
    def _loss(self, q_values):
        total = 0.0
        for q in q_values.values():
            total = total + ops.mean(ops.square(ops.max(q, axis=-1)))
        return total

    @api
    def gradients(self, observations):
        return gradients(self._loss(self.policy.q_values(observations)), self.policy.variables())


def cells_of_gradients():
    for cls in (QPolicy, DuelingPolicy):
        for backend in DIFFERENTIABLE:
            # with little optimized, as in the fast tests, XLA may compute values twice, rounded in two ways; then none
            # equals their maximum, which is what the gradient of a maximum looks for
            marks = [pytest.mark.slow] if (cls, backend) == (DuelingPolicy, "jax") else []
            yield pytest.param(backend, cls, marks=marks)


@pytest.mark.parametrize(("backend", "cls"), list(cells_of_gradients()))
def test_every_variable_gets_a_finite_gradient(backend, cls):
    executor = build(Learner(cls(mlp([8]), ACTIONS)), {"observations": OBSERVATIONS}, backend=backend)
    for path, gradient in executor.gradients(OBSERVATIONS.sample(32, rng=0)).items():
        assert np.isfinite(gradient).all(), path
        assert np.abs(gradient).max() > 0, path


@pytest.mark.parametrize("cls", [QPolicy, DuelingPolicy])
def test_actions_that_cannot_be_counted_are_refused(cls):
    with pytest.raises(SpaceError, match="counted"):
        cls(mlp([4]), Dict(a=IntBox(3), b=FloatBox()))


def test_specs_round_trip():
    spec = to_spec(DuelingPolicy(mlp([8]), ACTIONS, value_network=mlp([4])))
    assert to_spec(from_spec(spec)) == spec


@pytest.mark.parametrize("cls", [QPolicy, DuelingPolicy])
def test_what_cannot_be_a_mask_is_refused(cls):
    space = Dict(x=FloatBox(shape=(3,)), allowed=BoolBox(shape=(3,)))
    assert cls(mlp([4]), IntBox(3), observation_space=space, mask_leaf="allowed").mask_leaf == "allowed"
    with pytest.raises(SpecError, match="did you mean 'allowed'"):
        cls(mlp([4]), IntBox(3), observation_space=space, mask_leaf="alowed")
    with pytest.raises(SpecError, match="for each action"):
        cls(mlp([4]), IntBox(4), observation_space=space, mask_leaf="allowed")
