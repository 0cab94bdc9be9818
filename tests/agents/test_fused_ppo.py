"""PPO with its environments in the graph."""

from __future__ import annotations

import numpy as np
import pytest

from rlweave.agents.fused_ppo import FusedPPO
from rlweave.envs.in_graph import CartPole, Catch, GridWorld, Pendulum
from tests.host_calls import HOST_CALLS, tensorflow_operations

LEARNING_BACKENDS = ("torch", "jax", "tensorflow")
SMALL = {"rollout_steps": 8, "epochs": 2, "minibatches": 2, "network": [{"type": "dense", "units": 8}]}


def made(backend="jax", environment=None, seed=0, **config):
    agent = FusedPPO(environment or CartPole(4, 5), {**SMALL, **config}, backend=backend, seed=seed)
    return agent.build({"rng": "portable"})


@pytest.mark.parametrize("backend", LEARNING_BACKENDS)
def test_two_iterations_are_one_and_one(backend):
    one_by_one, together = made(backend), made(backend)
    first, second = one_by_one.train()[1], one_by_one.train()[1]
    metrics, episodes = together.train(2)
    assert [length for _, length in episodes] == [length for _, length in first + second]
    assert len(episodes) >= 12  # 64 steps, at most 5 in an episode
    for path, value in one_by_one.state_dict().items():
        np.testing.assert_allclose(together.state_dict()[path], value, rtol=1e-4, atol=1e-5, err_msg=path)
    assert metrics["gradient_steps"] == 8
    assert metrics["trained_samples"] == 2 * 2 * 32
    assert together.env_steps == one_by_one.env_steps == 64


@pytest.mark.parametrize("other", ["jax", "tensorflow"])
@pytest.mark.parametrize("normalize", [False, True])
def test_backends_agree(normalize, other):
    observations = []
    for backend in ("torch", other):
        agent = made(backend, Pendulum(4, 5), normalize_observations=normalize)
        agent.train()
        observations.append(agent.state_dict())
    for path, value in observations[0].items():
        np.testing.assert_allclose(observations[1][path], value, rtol=1e-3, atol=1e-4, err_msg=path)


@pytest.mark.parametrize("backend", LEARNING_BACKENDS)
def test_an_iteration_is_a_rollout_and_an_update_on_it(backend):
    """The same numbers as the two calls that the other placement makes."""
    fused, apart = made(backend), made(backend)
    fused.train()
    batch = apart.executor.rollout()
    apart.executor.update({name: array for name, array in batch.items() if not name.startswith("episode_")})
    for path, value in fused.state_dict().items():
        np.testing.assert_allclose(apart.state_dict()[path], value, rtol=1e-4, atol=1e-5, err_msg=path)


@pytest.mark.parametrize("backend", ["torch", pytest.param("jax", marks=pytest.mark.thorough)])
def test_recurrent_networks(backend):
    """Two iterations in one call are two calls, the state of the first carried on; the ratio is 1 where it has to."""
    settings = {"network": [{"type": "dense", "units": 8}, {"type": "lstm", "units": 4}], "epochs": 1, "minibatches": 1}
    one_by_one, together = made(backend, **settings), made(backend, **settings)
    for _ in range(2):
        metrics, _ = one_by_one.train()
        assert abs(metrics["approx_kl"]) < 1e-6
        assert metrics["clip_fraction"] == 0.0
    _, episodes = together.train(2)
    assert len(episodes) >= 12
    for path, value in one_by_one.state_dict().items():
        np.testing.assert_allclose(together.state_dict()[path], value, rtol=1e-3, atol=1e-5, err_msg=path)


def test_one_program_without_the_host():
    """On JAX an iteration is one compiled program: no host node, no callback in it."""
    import jax

    agent = made()
    program = agent.executor.program("train", {"iterations": 1})
    assert list(program.runs) == ["run"]
    seen = []

    def run(*arguments):
        specs = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), arguments)
        seen.append(str(jax.make_jaxpr(program.runs["run"])(*specs)))
        return program.runs["run"](*arguments)

    program.entry.__globals__["run"] = run
    agent.train()
    (text,) = seen
    assert text.count("scan[") >= 4  # steps of the rollout, epochs, minibatches, iterations
    assert "callback" not in text


@pytest.mark.parametrize("backend", ["tensorflow"])
def test_one_concrete_function_without_the_host(backend):
    """On TensorFlow it is one concrete function, traced once, whose graphs call no Python."""
    agent = made(backend)
    for _ in range(3):
        agent.train()
    program = agent.executor.program("train", {"iterations": 1})
    assert [run.traces for run in program.runs.values()] == [1]
    operations = tensorflow_operations(program)
    assert {"StatelessWhile", "While"} & operations
    assert not HOST_CALLS & operations


def test_the_actor_has_the_newest_weights_when_it_is_asked():
    agent = made(acting_backend="numpy")
    observations = agent.environment.observation_space.with_batch_rank().sample(6, rng=0)
    agent.train()
    _, extra, _ = agent.act(observations, explore=False)
    own = agent.executor.act(observations, explore=False, preprocess=True)[1]
    np.testing.assert_allclose(extra["log_probs"], own, rtol=1e-4, atol=1e-5)
    agent.train()
    assert not np.array_equal(agent.act(observations, explore=False)[1]["log_probs"], extra["log_probs"])


@pytest.mark.parametrize("environment", [Catch(4, 3, 3), GridWorld(4, "2x2")])
def test_other_observations(environment):
    convolution = [{"type": "conv2d", "filters": 2, "kernel_size": 2, "stride": 1}]
    image = {"image_network": convolution} if isinstance(environment, Catch) else {}
    metrics, episodes = made("jax", environment, **image).train()
    assert np.isfinite(list(metrics.values())).all()
    assert episodes


def test_the_environment_of_the_caller_is_left_alone():
    environment = CartPole(4, 5)
    first, second = made(environment=environment), made(environment=environment)
    first.train()
    second.train()
    for path, value in first.state_dict().items():
        np.testing.assert_array_equal(second.state_dict()[path], value)
