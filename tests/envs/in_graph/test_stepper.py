"""A rollout in the graph is what a loop outside of it would collect."""

from __future__ import annotations

import numpy as np
import pytest

from rlweave import graph
from rlweave.components import Policy, RunningNormalization
from rlweave.envs.in_graph import CartPole, EnvironmentStepper, GridWorld, Pendulum
from rlweave.errors import BuildError, EnvError
from rlweave.graph import Component, api, build
from rlweave.spaces import FloatBox
from tests.graph.toys import BACKENDS

every = pytest.mark.parametrize("backend", BACKENDS)
STEPS, N = 9, 3


class Root(Component):
    def __init__(self, environment, normalize=False):
        super().__init__("root")
        self.policy = Policy(
            [{"type": "dense", "units": 4}], environment.action_space, state_space=environment.observation_space
        )
        self.normalization = RunningNormalization() if normalize else None
        self.stepper = EnvironmentStepper(environment, self.policy, STEPS, self.normalization)

    @api
    def rollout(self):
        return self.stepper.rollout()

    @api
    def step(self):
        return self.stepper.step()


@every
@pytest.mark.parametrize("make", [lambda: CartPole(N, 5), lambda: Pendulum(N, 4), lambda: GridWorld(N, one_hot=True)])
@pytest.mark.parametrize("normalize", [False, True])
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
    np.testing.assert_array_equal(batch["states"][1:][goes_on], batch["next_states"][:-1][goes_on])
    assert ended.any()


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
