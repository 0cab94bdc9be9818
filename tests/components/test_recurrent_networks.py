"""Networks, policies and value functions with recurrent layers: sequences equal single steps, on any observation."""

import numpy as np
import pytest

from rlweave import graph
from rlweave.components import Network, ObservationEncoder, Policy, PPOLoss, QPolicy, ValueFunction
from rlweave.errors import BuildError, SpecError
from rlweave.graph import Component, api, build
from rlweave.spaces import BoolBox, Dict, FloatBox, IntBox
from rlweave.testing import ComponentTest
from rlweave.tree import tree_map
from tests.agents.rollouts import NESTED_OBSERVATIONS, SMALL_CONV, row
from tests.components.gradient_probes import BACKENDS, DIFFERENTIABLE

LAYERS = [
    {"type": "dense", "units": 5, "activation": "tanh"},
    {"type": "lstm", "units": 3},
    {"type": "network", "layers": [{"type": "gru", "units": 4}]},
    {"type": "dense", "units": 2},
]
STEPS, ROWS = 5, 3
on_every_backend = pytest.mark.parametrize("backend", BACKENDS)


class Both(Component):
    """The same trunk over sequences and in single steps, in one graph."""

    def __init__(self, trunk):
        super().__init__("both")
        self.trunk = trunk
        self.recurrent_space = trunk.recurrent_space

    @api
    def sequence(self, observations, state, episode_start):
        return self.trunk.call(observations, state, episode_start)

    @api
    def step(self, observations, state, episode_start):
        return self.trunk.call(observations, state, episode_start)

    @api
    def ahead(self, observations, next_observations, state, episode_start):
        return self.trunk.look_ahead(observations, next_observations, state, episode_start)

    @api(static=("batch_size",))
    def initial_state(self, batch_size):
        return self.trunk.initial_state(batch_size)


def built(trunk, space, backend):
    sequences = space.with_batch_rank().with_time_rank()
    root = Both(trunk)
    return build(
        root,
        {
            "observations": sequences,
            "next_observations": sequences,
            "step.observations": space.with_batch_rank(),
            "state": root.recurrent_space.with_batch_rank(),
            "episode_start": BoolBox(add_batch_rank=True, add_time_rank=True),
            "step.episode_start": BoolBox(add_batch_rank=True),
        },
        backend=backend,
        seed=1,
    )


def close(first, second):
    for a, b in zip(leaves(first), leaves(second), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def leaves(structure):
    if isinstance(structure, dict):
        return [leaf for key in sorted(structure) for leaf in leaves(structure[key])]
    if isinstance(structure, tuple):
        return [leaf for item in structure for leaf in leaves(item)]
    return [structure]


@on_every_backend
@pytest.mark.parametrize(
    ("make", "space"),
    [
        (lambda: Network(LAYERS), FloatBox(shape=(2,))),
        (lambda: ObservationEncoder(LAYERS, SMALL_CONV, NESTED_OBSERVATIONS), NESTED_OBSERVATIONS),
    ],
)
def test_sequences_equal_single_steps_and_a_look_ahead_a_step_more(backend, make, space):
    executor = built(make(), space, backend)
    sequences = space.with_batch_rank().with_time_rank()
    observations, next_observations = (sequences.sample((STEPS, ROWS), rng=seed) for seed in (0, 1))
    start = np.random.default_rng(2).random((STEPS, ROWS)) < 0.3
    begin = executor.initial_state(batch_size=ROWS)
    assert [leaf.shape for leaf in leaves(begin)] == [(ROWS, 3), (ROWS, 3), (ROWS, 4)]
    outputs, last = executor.sequence(observations, begin, start)
    ahead_outputs, following, ahead_last = executor.ahead(observations, next_observations, begin, start)
    state = begin
    for t in range(STEPS):
        output, state = executor.step(row(observations, t), state, start[t])
        close(output, outputs[t])
        # one more step, which does not go on
        more, _ = executor.step(row(next_observations, t), state, np.zeros(ROWS, bool))
        close(more, following[t])
    close(state, last)
    close((ahead_outputs, ahead_last), (outputs, last))


def test_a_recurrent_network_refuses_to_lose_its_state():
    inputs = FloatBox(shape=(2,), add_batch_rank=True)
    network = Network([{"type": "gru", "units": 3}])
    with pytest.raises(BuildError, match="called without a state"):
        build(network, {"inputs": inputs}, methods=["call"])
    feedforward = Network([{"type": "dense", "units": 3}])
    assert not feedforward.is_recurrent
    assert [name for name in ("call", "look_ahead", "initial_state") if feedforward.offers(name)] == ["call"]
    assert build(feedforward, {"inputs": inputs}).call(np.zeros((1, 2), np.float32))[1] == ()
    with pytest.raises(SpecError, match="image network cannot be recurrent"):
        ObservationEncoder([], [{"type": "flatten"}, {"type": "lstm", "units": 2}])


@pytest.mark.parametrize("layer", ["lstm", "gru"])
def test_policies_know_whether_they_carry_a_state(layer):
    for make in (
        lambda network: Policy(network, IntBox(2)),
        lambda network: QPolicy(network, IntBox(2)),
        ValueFunction,
    ):
        recurrent, plain = make([{"type": layer, "units": 3}]), make([{"type": "dense", "units": 3}])
        assert recurrent.is_recurrent
        assert not plain.is_recurrent
        assert recurrent.offers("initial_state")
        assert not plain.offers("initial_state")
    assert QPolicy([{"type": layer, "units": 3}], IntBox(2)).offers("greedy_of")
    # a feed-forward one is built with observations alone
    test = ComponentTest(
        ValueFunction([{"type": "dense", "units": 3}]), {"observations": FloatBox((2,)).with_batch_rank()}
    )
    assert "call" not in test.missing


def test_kernels_of_gates_do_not_take_the_gain_of_hidden_layers():
    policy = Policy([{"type": "dense", "units": 4}, {"type": "lstm", "units": 3}], IntBox(2), initializer="orthogonal")
    dense, lstm = policy.network.layers
    assert dense.kernel_initializer is not None
    assert lstm.kernel_initializer is None


class Learner(Component):
    """The gradient of PPO's loss by a recurrent policy, with and without a mask."""

    def __init__(self):
        super().__init__("learner")
        self.policy = Policy([{"type": "gru", "units": 3}], IntBox(2))
        self.value_function = ValueFunction([{"type": "lstm", "units": 3}])
        self.loss = PPOLoss(entropy_coefficient=0.1, normalize_advantages=False)
        self.recurrent_space = Dict(
            policy=self.policy.recurrent_space, value_function=self.value_function.recurrent_space
        )

    @api
    def masked(self, batch, state, mask):
        return graph.gradients(self._loss(batch, state, mask), self._variables())

    @api
    def unmasked(self, batch, state):
        return graph.gradients(self._loss(batch, state, None), self._variables())

    def _variables(self):
        return self.policy.variables() + self.value_function.variables()

    def _loss(self, batch, state, mask):
        observations, start = batch["observations"], batch["episode_start"]
        log_probs, entropies = self.policy.log_prob_and_entropy(observations, batch["actions"], state["policy"], start)
        values = self.value_function.call(observations, state["value_function"], start)
        old, advantages, returns = batch["log_probs"], batch["advantages"], batch["returns"]
        return self.loss.loss(log_probs, old, advantages, values, returns, entropies, mask=mask)[0]


@pytest.mark.parametrize("backend", DIFFERENTIABLE)
def test_padded_episodes_have_the_gradient_of_the_unpadded_ones(backend):
    """Episodes of length 3 and 5 padded to 5: the gradient is that of both alone, weighted by their lengths."""
    root = Learner()
    fields = {name: FloatBox() for name in ("log_probs", "advantages", "returns")}
    batch_space = (
        Dict(observations=FloatBox(shape=(2,)), actions=IntBox(2), episode_start=BoolBox(), **fields)
        .with_batch_rank()
        .with_time_rank()
    )
    spaces = {
        "batch": batch_space,
        "state": root.recurrent_space.with_batch_rank(),
        "mask": BoolBox(add_batch_rank=True, add_time_rank=True),
    }
    executor = build(root, spaces, backend=backend, seed=2)
    batch, state = batch_space.sample((5, 2), rng=0), spaces["state"].sample(2, rng=1)
    batch["episode_start"][:] = False
    batch["log_probs"] = -np.abs(batch["log_probs"])
    mask = np.arange(5)[:, None] < np.array([3, 5])
    batch["returns"][3:, 0], batch["log_probs"][3:, 0] = 1e4, -500.0  # rubbish, with an infinite ratio
    both = executor.masked(batch, state, mask)
    short = executor.unmasked(tree_map(lambda x: x[:3, :1], batch), tree_map(lambda x: x[:1], state))
    long = executor.unmasked(tree_map(lambda x: x[:, 1:], batch), tree_map(lambda x: x[1:], state))
    assert max(np.abs(value).max() for value in both.values()) > 0.01
    for path, value in both.items():
        expected = (3 * short[path] + 5 * long[path]) / 8
        np.testing.assert_allclose(value, expected, rtol=1e-3, atol=1e-6, err_msg=path)
