"""A rollout in the graph is what a loop outside of it would collect."""

from __future__ import annotations

import numpy as np
import pytest

from rlweave import graph
from rlweave.components import Policy, RunningNormalization
from rlweave.envs.in_graph import CartPole, EnvironmentStepper, GridWorld, Pendulum
from rlweave.errors import BuildError, EnvError
from rlweave.graph import Component, api, build
from rlweave.spaces import BoolBox, FloatBox
from tests.graph.toys import BACKENDS

every = pytest.mark.parametrize("backend", BACKENDS)
STEPS, N = 9, 3


class Root(Component):
    def __init__(self, environment, normalize=False):
        super().__init__("root")
        self.policy = Policy(
            [{"type": "dense", "units": 4}], environment.action_space, observation_space=environment.observation_space
        )
        self.normalization = RunningNormalization() if normalize else None
        self.stepper = EnvironmentStepper(environment, self.policy, STEPS, self.normalization)

    @api
    def rollout(self):
        return self.stepper.rollout()

    @api
    def step(self):
        return self.stepper.step()


@pytest.mark.parametrize("make", [lambda: CartPole(N, 5), lambda: Pendulum(N, 4), lambda: GridWorld(N, one_hot=True)])
@pytest.mark.parametrize(
    ("backend", "normalize"),
    [
        *((name, normalize) for normalize in (False, True) for name in BACKENDS if name != "jax"),
        # with little optimized, as in the fast tests, XLA computes a state twice and rounds it in two ways
        pytest.param("jax", True, marks=pytest.mark.slow),
        pytest.param("jax", False, marks=pytest.mark.thorough),
    ],
)
def test_a_rollout_equals_single_steps(backend, make, normalize):
    executor = build(Root(make(), normalize), {}, backend=backend, rng="portable")
    one_by_one = build(Root(make(), normalize), {}, backend=backend, rng="portable")
    batch = executor.rollout()
    steps = [one_by_one.step() for _ in range(STEPS)]
    for name, array in batch.items():
        assert array.shape[:2] == (STEPS, N)
        np.testing.assert_allclose(array, np.stack([step[name] for step in steps]), rtol=1e-5, atol=1e-6)
    ended = batch["terminated"] | batch["truncated"]
    goes_on = ~ended[:-1]
    np.testing.assert_array_equal(batch["observations"][1:][goes_on], batch["next_observations"][:-1][goes_on])
    assert ended.any()


class RecurrentRoot(Root):
    def __init__(self, environment, layer, normalize=False):
        Component.__init__(self, "root")
        self.policy = Policy(
            [{"type": "dense", "units": 4}, {"type": layer, "units": 3}, {"type": "dense", "units": 4}],
            environment.action_space,
            observation_space=environment.observation_space,
        )
        self.normalization = RunningNormalization() if normalize else None
        self.stepper = EnvironmentStepper(environment, self.policy, STEPS, self.normalization)
        self.recurrent_space = self.policy.recurrent_space

    @api
    def begin(self):
        return self.stepper.begin_episodes()

    @api
    def act(self, observations, recurrent_state, episode_start):
        return self.policy.act(observations, recurrent_state, episode_start, explore=False)

    @api
    def likelihood(self, observations, actions, recurrent_state, sequence_start):
        return self.policy.log_prob_and_entropy(observations, actions, recurrent_state, sequence_start)


def build_recurrent(environment, backend, layer, normalize=False):
    root = RecurrentRoot(environment, layer, normalize)
    observations, actions = (s.with_batch_rank() for s in (environment.observation_space, environment.action_space))
    spaces = {
        "act.observations": observations,
        "likelihood.observations": observations.with_time_rank(),
        "actions": actions.with_time_rank(),
        "recurrent_state": root.recurrent_space.with_batch_rank(),
        "episode_start": BoolBox(add_batch_rank=True),
        "sequence_start": BoolBox(add_batch_rank=True, add_time_rank=True),
    }
    return build(root, spaces, backend=backend, rng="portable")


def world():
    """Ends by holes and goals at any step, and by its time limit."""
    return GridWorld(N, "2x2", one_hot=True, max_episode_steps=4)


@pytest.mark.parametrize(
    ("backend", "layer"),
    [("numpy", "lstm"), ("numpy", "gru"), ("torch", "lstm"), ("jax", "gru"), ("tensorflow", "lstm")],
)
def test_a_rollout_carries_recurrent_state(backend, layer):
    """Rollouts equal single steps, and both equal the policy run over the sequence, with a reset where one ended."""
    executor, one_by_one = (build_recurrent(world(), backend, layer) for _ in range(2))
    batches = [executor.rollout() for _ in range(2)]
    steps = [one_by_one.step() for _ in range(2 * STEPS)]
    for name in steps[0]:
        together = np.concatenate([batch[name] for batch in batches])
        np.testing.assert_allclose(together, np.stack([step[name] for step in steps]), rtol=1e-5, atol=1e-6)
    start = np.concatenate([batch["episode_start"] for batch in batches])
    ended = np.concatenate([batch["terminated"] | batch["truncated"] for batch in batches])
    np.testing.assert_array_equal(start, np.concatenate([np.ones((1, N), bool), ended[:-1]]))
    assert (ended.any(1) & ~ended.all(1)).any(), "some end where others go on"
    observations = executor.root.recurrent_space.with_batch_rank().zeros(N)
    for batch in batches:
        for name, value in batch["initial_state"][0].items():
            np.testing.assert_allclose(value, observations[0][name], rtol=1e-4, atol=1e-6)
        log_probs, _ = executor.likelihood(
            batch["observations"], batch["actions"], observations, batch["episode_start"]
        )
        np.testing.assert_allclose(batch["log_probs"], log_probs, rtol=1e-4, atol=1e-5)
        for t in range(STEPS):
            _, _, observations = executor.act(batch["observations"][t], observations, batch["episode_start"][t])


def test_new_episodes_begin_without_the_old_state():
    executor = build_recurrent(CartPole(N, 50), "numpy", "gru", normalize=True)
    executor.rollout()
    assert not executor.step()["episode_start"].any()
    first = executor.begin()
    step = executor.step()
    np.testing.assert_array_equal(step["observations"], first)
    assert step["episode_start"].all()


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_portable_rollouts_agree_between_backends(backend):
    reference = build(Root(CartPole(N, 5)), {}, backend="numpy", rng="portable").rollout()
    other = build(Root(CartPole(N, 5)), {}, backend=backend, rng="portable").rollout()
    for name, array in reference.items():
        np.testing.assert_allclose(other[name], array, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("steps", [0, 1.5, True])
def test_a_rollout_needs_steps(steps):
    environment = CartPole(2)
    with pytest.raises(EnvError, match="a rollout needs a whole number of steps"):
        EnvironmentStepper(environment, Policy([], environment.action_space), steps)


class Ranks(Component):
    @api
    def ranks(self, x):
        return graph.time_rank(x)


def test_time_rank_declares_two_axes():
    executor = build(Ranks("root"), {"x": FloatBox(shape=(4, 3, 2))})
    (value,) = [g.outputs for g in executor.graphs.values()]
    assert (str(value.space.axes[0]), str(value.space.axes[1]), value.space.shape) == ("T=4", "B=3", (2,))
    x = np.arange(24.0, dtype=np.float32).reshape(4, 3, 2)
    np.testing.assert_array_equal(executor.ranks(x), x)


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (FloatBox(shape=(4,)), "time_rank of a value with too few axes"),
        (FloatBox(shape=(4,), add_batch_rank=True), "the first two axes are not time and batch"),
    ],
)
def test_time_rank_of_other_axes_is_refused(space, message):
    with pytest.raises(BuildError, match=message):
        build(Ranks("root"), {"x": space})
