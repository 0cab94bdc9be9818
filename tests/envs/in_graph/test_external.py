"""Vector environments behind host nodes: the transitions of a loop outside, on every backend."""

import gymnasium
import numpy as np
import pytest

from rlweave.components import Policy
from rlweave.envs import make_env
from rlweave.envs.in_graph import EnvironmentStepper, ExternalEnvironment
from rlweave.errors import BuildError, EnvError
from rlweave.graph import Component, api, build
from rlweave.graph import scan as graph_scan
from rlweave.spaces import BoolBox, FloatBox
from tests.graph.toys import BACKENDS

STEPS, N = 6, 3
every = pytest.mark.parametrize("backend", [*BACKENDS, "tensorflow"])


class Root(Component):
    def __init__(self, environment, network=(("dense", 4),)):
        super().__init__("root")
        layers = [{"type": kind, "units": units} for kind, units in network]
        self.policy = Policy(layers, environment.action_space, observation_space=environment.observation_space)
        self.stepper = EnvironmentStepper(environment, self.policy, STEPS)

    @api
    def rollout(self):
        return self.stepper.rollout()

    @api
    def begin(self):
        return self.stepper.begin_episodes()


def cart_poles():
    # short episodes, so that some end within a rollout
    return make_env("CartPole-v1", N, env_kwargs={"max_episode_steps": 4}, seed=0)


@every
def test_a_rollout_is_what_a_loop_outside_collects(backend):
    with cart_poles() as env, cart_poles() as other:
        executor = build(Root(ExternalEnvironment(env)), {}, backend=backend, rng="portable")
        observations = other.reset()
        lengths, returns = np.zeros(N, int), np.zeros(N)
        for _ in range(2):  # the second goes on where the first stopped
            batch = executor.rollout()
            assert batch["rewards"].shape == (STEPS, N)
            for t in range(STEPS):
                np.testing.assert_array_equal(batch["observations"][t], observations)
                result = other.step(batch["actions"][t])
                lengths, returns = lengths + 1, returns + result.rewards
                np.testing.assert_array_equal(batch["next_observations"][t], result.next_observations)
                np.testing.assert_array_equal(batch["terminated"][t], result.terminated)
                np.testing.assert_array_equal(batch["truncated"][t], result.truncated)
                np.testing.assert_array_equal(batch["episode_steps"][t], lengths)
                np.testing.assert_array_equal(batch["episode_returns"][t], returns)
                lengths, returns = (np.where(result.episode_start, 0, x) for x in (lengths, returns))
                observations = result.observations
            assert batch["truncated"].any()
        np.testing.assert_array_equal(executor.begin(), env.observations)


@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_recurrent_state_goes_along(backend):
    with cart_poles() as env:
        root = Root(ExternalEnvironment(env), (("gru", 3),))
        executor = build(root, {}, backend=backend, rng="portable")
        batch = executor.rollout()
    ended = batch["terminated"] | batch["truncated"]
    assert batch["episode_start"][0].all()
    np.testing.assert_array_equal(batch["episode_start"][1:], ended[:-1])
    observations = FloatBox(shape=(4,), add_batch_rank=True, add_time_rank=True)
    spaces = {
        "observations": observations,
        "recurrent_state": root.policy.recurrent_space.with_batch_rank(),
        "episode_start": BoolBox(add_batch_rank=True, add_time_rank=True),
        "actions": root.policy.action_space.with_batch_rank().with_time_rank(),
    }
    policy = Policy(
        [{"type": "gru", "units": 3}], root.policy.action_space, observation_space=observations.strip_ranks()
    )
    alone = build(policy, spaces, backend=backend, methods=["log_prob_and_entropy"])
    weights = executor.get_weights("root/policy")
    alone.set_weights({path.removeprefix("root/"): value for path, value in weights.items()})
    log_probs, _ = alone.log_prob_and_entropy(
        batch["observations"], batch["actions"], batch["initial_state"], batch["episode_start"]
    )
    np.testing.assert_allclose(log_probs, batch["log_probs"], rtol=1e-4, atol=1e-5)


def test_only_vector_environments_of_this_library_are_taken():
    for env in (gymnasium.make("CartPole-v1"), gymnasium.make_vec("CartPole-v1", 2)):
        with pytest.raises(EnvError, match="make_env"):
            ExternalEnvironment(env)


def test_a_loop_of_the_graph_cannot_call_it():
    class Looping(Component):
        def __init__(self, environment):
            super().__init__("looping")
            self.environment = environment

        @api
        def run(self):
            return graph_scan(lambda carry, _: (carry, self.environment.observations()), (), length=3)[1]

    with cart_poles() as env, pytest.raises(BuildError, match="a host node inside scan"):
        build(Looping(ExternalEnvironment(env)), {})


def test_rows_that_are_no_transitions_are_refused():
    # Gymnasium's own vectorized CartPole spends a step on each reset
    with make_env("CartPole-v1", 2, "vector_entry_point", seed=0) as env:
        root = Root(ExternalEnvironment(env))
        root.stepper.steps = 200  # some episode ends
        executor = build(root, {}, methods=["rollout"])
        with pytest.raises(EnvError, match="no transition"):
            executor.rollout()
