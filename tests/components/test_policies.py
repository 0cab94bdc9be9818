import numpy as np
import pytest

from rlweave import ops
from rlweave.backends import is_installed
from rlweave.components import ObservationEncoder, Policy, ValueFunction, mlp
from rlweave.errors import BuildError, SpaceError, SpecError
from rlweave.graph import Component, api, build, from_spec, gradients, graph_fn, shared, to_spec
from rlweave.spaces import BoolBox, Dict, FloatBox, IntBox, Tuple
from rlweave.testing import ComponentTest
from tests.components.gradient_probes import BACKENDS, DIFFERENTIABLE

VECTORS = FloatBox(shape=(4,), add_batch_rank=True)
OBSERVATIONS = Dict(
    codes=IntBox(high=[2, 3]),
    flags=BoolBox(shape=(2,)),
    inner=Tuple(FloatBox(shape=(2, 2)), Dict()),
    none=FloatBox(shape=(0,)),
)
ACTIONS = Dict(move=IntBox(high=[2, 3]), arm=Tuple(FloatBox(-1, 1, shape=(2,)), Dict(), FloatBox()), on=BoolBox())


def policy_test(policy, observations=VECTORS, actions=None, backend="numpy", **options):
    actions = policy.action_space if actions is None else actions
    return ComponentTest(
        policy, {"observations": observations, "actions": actions.with_batch_rank()}, backend, **options
    )


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("log_std", ["variable", "head"])
def test_any_observation_and_any_action(backend, log_std):
    policy = Policy(mlp([8]), ACTIONS, log_std=log_std, initial_log_std=-0.5)
    test = policy_test(policy, OBSERVATIONS.with_batch_rank(), backend=backend)
    observations = test.sample("observations", 3)
    actions, log_prob, _ = test.test("act", observations, explore=True)
    flat = ACTIONS.flatten_value(actions)
    assert {path: (x.dtype.name, x.shape) for path, x in flat.items()} == {
        path: (leaf.dtype, (3, *leaf.shape)) for path, leaf in ACTIONS.flatten().items()
    }
    again, entropy = test.test("log_prob_and_entropy", observations, actions)
    np.testing.assert_allclose(log_prob, again, rtol=1e-4, atol=1e-4)
    assert log_prob.shape == entropy.shape == (3,)
    best, _, _ = test.test("act", observations, explore=False)
    test.test("mode", observations, expected=best)
    parameters = test.test("parameters", observations)
    assert parameters["move"].shape == (3, 2, 3)
    assert np.all(parameters["move"][:, 0, 2] < -1e8)
    assert parameters["arm"][0]["mean"].shape == parameters["arm"][0]["log_std"].shape == (3, 2)
    assert parameters["arm"][2]["mean"].shape == parameters["on"].shape == (3,)
    if log_std == "variable":
        np.testing.assert_allclose(parameters["arm"][0]["log_std"], -0.5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_discrete_policy_equals_numpy(backend):
    test = policy_test(Policy(mlp([8, 8]), IntBox(3)), backend=backend)
    v, x = test.variables(), test.sample("observations", 5)
    h = np.tanh(np.tanh(x @ v["network/dense-0/kernel"]) @ v["network/dense-1/kernel"])
    logits = h @ v["head/kernel"]
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    test.test("parameters", x, expected=logits, rtol=1e-4, atol=1e-5)
    best = logits.argmax(-1).astype(np.int32)
    test.test("act", x, explore=False, expected=(best, log_probs.max(-1), ()), rtol=1e-4, atol=1e-5)
    test.test("mode", x, expected=best)
    entropy = -(np.exp(log_probs) * log_probs).sum(-1)
    test.test("log_prob_and_entropy", x, best, expected=(log_probs.max(-1), entropy), rtol=1e-4)


def test_acting_on_a_vector_is_four_nodes():
    """Two hidden layers, the head, the distribution: nothing for the encoder, nothing for nesting."""
    test = policy_test(Policy(mlp([8, 8]), IntBox(3)))
    nodes = {name: len(graph.nodes) for (name, _), graph in test.executor.graphs.items()}
    assert (nodes["act"], nodes["mode"], nodes["features"]) == (4, 4, 2)


@pytest.mark.parametrize("squash", [False, True])
def test_actions_are_clipped_for_the_environment_only(squash):
    space = FloatBox([-0.1, -np.inf, 3], [0.1, np.inf, 3])
    policy = Policy(mlp([4]), space, initial_log_std=1.0, squash=squash)
    test = policy_test(policy, actions=FloatBox(shape=(3,)))
    actions, _, _ = test.test("act", test.sample("observations", 200))
    outside = (np.abs(actions[:, 0]) > 1).mean()
    assert outside == 0 if squash else outside > 0.5
    sent = test.test("env_actions", actions)
    assert space.with_batch_rank().contains(sent)
    np.testing.assert_array_equal(sent[:, 1], actions[:, 1])


def test_orthogonal_initialization():
    v = policy_test(Policy(mlp([16, 16]), FloatBox(shape=(2,)), initializer="orthogonal")).variables()
    for name, gain in (("network/dense-0", np.sqrt(2)), ("network/dense-1", np.sqrt(2)), ("head", 0.01)):
        kernel = v[f"{name}/kernel"]
        gram = kernel.T @ kernel if kernel.shape[0] >= kernel.shape[1] else kernel @ kernel.T
        np.testing.assert_allclose(gram, gain**2 * np.eye(len(gram)), atol=1e-5)
    assert v["log_std"].shape == (2,)
    value = ComponentTest(ValueFunction(mlp([16]), initializer="orthogonal"), {"observations": VECTORS}).variables()
    assert np.linalg.norm(value["head/kernel"]) == pytest.approx(1)
    # layers made from specs before the policy saw them
    spec = {"type": "policy", "network": mlp([16]), "action_space": IntBox(2).to_json(), "initializer": "orthogonal"}
    kernel = policy_test(from_spec(spec)).variables()["network/dense/kernel"]
    np.testing.assert_allclose(kernel @ kernel.T, 2 * np.eye(4), atol=1e-5)


class ActorCritic(Component):
    """Policy and value function on one trunk."""

    def __init__(self, trunk, action_space):
        super().__init__("root")
        self.trunk = trunk
        self.policy = Policy(shared(trunk), action_space)
        self.value_function = ValueFunction(shared(trunk))

    @graph_fn
    def _policy_loss(self, log_prob, entropy):
        return -ops.mean(log_prob) - 0.1 * ops.mean(entropy)

    @graph_fn
    def _value_loss(self, values):
        return ops.mean(ops.square(values - 1.0))

    @api
    def outputs(self, observations):
        return self.policy.parameters(observations), self.value_function.call(observations)

    @api
    def gradients(self, observations, actions):
        policy_loss = self._policy_loss(*self.policy.log_prob_and_entropy(observations, actions))
        value_loss = self._value_loss(self.value_function.call(observations))
        return (
            gradients(policy_loss, self.policy.variables()),
            gradients(value_loss, self.value_function.variables()),
        )

    @api
    def joint_gradients(self, observations, actions):
        """One pass through the trunk for both heads."""
        features, _ = self.policy.features(observations)
        parameters = self.policy.parameters_of(features, observations)
        log_prob, entropy = self.policy.distribution.log_prob_and_entropy(parameters, actions)
        loss = self._policy_loss(log_prob, entropy) + self._value_loss(self.value_function.of_features(features))
        return gradients(loss, self.policy.variables() + self.value_function.variables())


@pytest.mark.parametrize("backend", DIFFERENTIABLE)
def test_a_shared_trunk_has_one_set_of_variables_and_the_sum_of_the_gradients(backend):
    root = ActorCritic(ObservationEncoder(mlp([8]), scope="trunk"), IntBox(3))
    executor = build(root, {"observations": VECTORS, "actions": IntBox(3, add_batch_rank=True)}, backend=backend)
    assert [path.removeprefix("root/") for path in executor.get_weights()] == [
        "trunk/dense/kernel", "trunk/dense/bias", "policy/head/kernel", "policy/head/bias",
        "value-function/head/kernel", "value-function/head/bias",
    ]  # fmt: skip
    observations, actions = VECTORS.sample(5, rng=0), np.array([0, 1, 2, 0, 1], np.int32)
    of_policy, of_value = executor.gradients(observations, actions)
    both = executor.joint_gradients(observations, actions)
    assert set(of_policy) & set(of_value) == {"root/trunk/dense/kernel", "root/trunk/dense/bias"}
    for path, gradient in both.items():
        expected = of_policy.get(path, 0) + of_value.get(path, 0)
        np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-6, err_msg=path)


class Learner(Component):
    def __init__(self, policy):
        super().__init__("root")
        self.policy = policy

    @graph_fn
    def _loss(self, log_prob, entropy):
        return -ops.mean(log_prob) - ops.mean(entropy)

    @api
    def gradients(self, observations, actions):
        return gradients(self._loss(*self.policy.log_prob_and_entropy(observations, actions)), self.policy.variables())


@pytest.mark.parametrize("backend", DIFFERENTIABLE)
@pytest.mark.parametrize("log_std", ["variable", "head"])
@pytest.mark.parametrize("squash", [False, True])
def test_every_variable_gets_a_finite_gradient(backend, log_std, squash):
    policy = Policy(mlp([8]), ACTIONS, log_std=log_std, squash=squash)
    observations, actions = OBSERVATIONS.with_batch_rank(), ACTIONS.with_batch_rank()
    executor = build(Learner(policy), {"observations": observations, "actions": actions}, backend=backend)
    found = executor.gradients(observations.sample(8, rng=0), actions.sample(8, rng=1))
    assert len(found) == (12 if log_std == "variable" else 10)
    for path, gradient in found.items():
        assert np.isfinite(gradient).all(), path
        assert np.abs(gradient).max() > 1e-6, path


def test_the_same_seed_gives_the_same_policy_on_every_backend():
    x = VECTORS.sample(3, rng=0)
    results = [
        policy_test(Policy(mlp([8]), ACTIONS), backend=backend, seed=5).test("mode", x)
        for backend in filter(is_installed, BACKENDS)
    ]
    for other in results[1:]:
        for path, value in ACTIONS.flatten_value(other).items():
            np.testing.assert_allclose(value, ACTIONS.flatten_value(results[0])[path], rtol=1e-4, atol=1e-5)


def test_portable_sampling_agrees_on_every_backend():
    x = VECTORS.sample(6, rng=0)
    results = [
        policy_test(Policy(mlp([8]), ACTIONS), backend=backend, seed=5, rng="portable").test("act", x)[0]
        for backend in filter(is_installed, BACKENDS)
    ]
    for other in results[1:]:
        for path, value in ACTIONS.flatten_value(other).items():
            np.testing.assert_allclose(value, ACTIONS.flatten_value(results[0])[path], rtol=1e-3, atol=1e-4)


def test_a_copy_starts_with_the_same_weights():
    class Twins(Component):
        def __init__(self):
            super().__init__("root")
            self.policy = Policy(mlp([8]), IntBox(3))
            self.target = self.policy.copy(scope="target", trainable=False)

        @api
        def both(self, observations):
            return self.policy.parameters(observations), self.target.parameters(observations)

    executor = build(Twins(), {"observations": VECTORS})
    first, second = executor.both(VECTORS.sample(2, rng=0))
    np.testing.assert_array_equal(first, second)
    assert len(executor.get_weights("root/target")) == 4


@pytest.mark.parametrize(
    ("make", "error", "hint"),
    [
        (lambda: Policy(mlp([4]), Dict()), SpaceError, "without actions"),
        (lambda: Policy(mlp([4]), IntBox(2), log_std="free"), SpecError, "'variable' or 'head'"),
        (lambda: Policy(mlp([4]), IntBox(2), initializer="ortho"), SpecError, "orthogonal"),
        (
            lambda: Policy(ObservationEncoder(), IntBox(2), observation_space=VECTORS),
            SpecError,
            "encoder's own constructor",
        ),
    ],
)
def test_wrong_options_are_explained(make, error, hint):
    with pytest.raises(error, match=hint):
        make()


def test_two_observation_spaces_for_one_policy_are_refused():
    class Root(Component):
        def __init__(self):
            super().__init__("root")
            self.policy = Policy(mlp([4]), IntBox(2))

        @api
        def call(self, a, b):
            return self.policy.mode(a), self.policy.mode(b)

    with pytest.raises(BuildError, match="different spaces"):
        build(Root(), {"a": VECTORS, "b": FloatBox(shape=(5,), add_batch_rank=True)})


def test_specs_round_trip():
    made = Policy(mlp([8], "relu"), ACTIONS, observation_space=OBSERVATIONS, squash=True)
    spec = to_spec(made)
    assert to_spec(from_spec(spec)) == spec


@pytest.mark.parametrize("backend", BACKENDS)
def test_zero_size_leaves(backend):
    actions = Dict(a=FloatBox(0, 1, shape=(0,)), b=IntBox(2, shape=(0,)), c=BoolBox(shape=(0,)), d=IntBox(1))
    observations = Dict(x=FloatBox(shape=(0,)), y=Dict(), add_batch_rank=True)
    for options in ({"initializer": "orthogonal"}, {"log_std": "head", "squash": True}):
        test = policy_test(Policy(mlp([4]), actions, **options), observations, backend=backend)
        chosen, log_prob, _ = test.test("act", observations.sample(3, rng=0))
        assert actions.with_batch_rank().contains(chosen)
        np.testing.assert_allclose(log_prob, np.zeros(3), atol=1e-6)


def test_acting_draws_unless_it_is_told_not_to():
    test = policy_test(Policy(mlp([4]), IntBox(3)))
    alike = np.zeros((500, *VECTORS.shape), np.float32)
    assert len(np.unique(test.test("act", alike)[0])) == 3
    assert len(np.unique(test.test("act", alike, explore=False)[0])) == 1
