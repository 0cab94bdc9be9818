"""PQN as an agent: its update, targets, epsilon, spaces, recurrent networks; also with environments in the graph."""

import numpy as np
import pytest

from rlweave.agents.fused_pqn import FusedPQN
from rlweave.agents.pqn import PQN, PQNConfig
from rlweave.envs.in_graph import CartPole
from rlweave.errors import ConfigError, SpaceError
from rlweave.spaces import BoolBox, Dict, FloatBox, IntBox, Tuple
from tests.agents.rollouts import NESTED_OBSERVATIONS, SMALL, SMALL_CONV, rollout

THOROUGH_JAX = pytest.param("jax", marks=pytest.mark.thorough)
NORMALIZED = [{"type": "dense", "units": 8}, {"type": "layer_norm"}, {"type": "activation", "activation": "relu"}]
CONFIG = {"network": NORMALIZED, "rollout_steps": 6, "epochs": 2, "minibatches": 3}
RECURRENT = [{"type": "gru", "units": 4}]
SCHEDULE = {"type": "linear", "start": 1.0, "end": 0.1, "steps": 90}


def make(backend, observations=None, actions=None, num_envs=4, **settings):
    spaces = observations or FloatBox(shape=(3,)), actions or IntBox(3)
    return PQN(*spaces, {**CONFIG, **settings}, num_envs=num_envs, backend=backend, seed=3)


def fused(backend, **settings):
    config = {**CONFIG, "minibatches": 2, "epsilon": SCHEDULE, **settings}
    return FusedPQN(CartPole(4, 5), config, backend=backend, seed=0)


def test_layers_are_normalized_by_default():
    types = [layer["type"] for layer in PQN(FloatBox(shape=(3,)), IntBox(3), backend="numpy").config.network]
    assert types == ["dense", "layer_norm", "activation"] * 2
    assert PQNConfig().optimizer == {"type": "adam"}


def test_the_default_layers_of_images_are_normalized_too():
    image = IntBox(0, 256, shape=(12, 12, 3), dtype="uint8", layout="channels_last")
    agent = PQN(image, IntBox(2), backend="numpy")
    types = [layer["type"] for layer in agent.config.image_network]
    normalized = ["layer_norm", "activation"]
    assert types == ["conv2d", *normalized, "conv2d", *normalized, "flatten", "dense", *normalized]
    actions, *_ = agent.build().act(np.zeros((2, 12, 12, 3), np.uint8))
    assert actions.shape == (2,)


@pytest.mark.parametrize("backend", ["torch", THOROUGH_JAX])
@pytest.mark.parametrize("network", [NORMALIZED, RECURRENT])
def test_an_update_of_one_minibatch_is_a_step_down_the_gradient(backend, network):
    settings = {"network": network, "epochs": 1, "minibatches": 1, "optimizer": {"type": "sgd"}, "max_grad_norm": None}
    agent = make(backend, lr=0.1, q_lambda=0.7, discount=0.9, **settings)
    batch = rollout(agent) if network is NORMALIZED else recurrent_rollout(agent)
    before = agent.executor.get_weights("pqn/policy")
    gradients = agent.compute_gradients(agent.postprocess(batch))
    metrics = agent.learn(batch)
    assert metrics["gradient_steps"] == 1
    assert metrics["trained_samples"] == 24
    for path, value in agent.executor.get_weights("pqn/policy").items():
        np.testing.assert_allclose(value, before[path] - 0.1 * gradients[path], rtol=1e-4, atol=1e-6, err_msg=path)
    assert any(np.abs(value).max() > 1e-3 for value in gradients.values())


def recurrent_rollout(agent):
    """A rollout (T, B, ...) whose episodes begin at its first step, and after steps that end one."""
    rng, steps = np.random.default_rng(0), agent.config.rollout_steps
    memory, start = agent.initial_state(agent.num_envs), np.ones(agent.num_envs, bool)
    rows, initial = [], memory
    for _ in range(steps):
        observations, following = rng.normal(size=(2, agent.num_envs, 3)).astype(np.float32)
        actions, _, memory = agent.act(observations, memory, start)
        ends = rng.random((2, agent.num_envs)) < 0.2
        row = {"observations": observations, "next_observations": following, "actions": actions}
        rewards = rng.normal(size=agent.num_envs).astype(np.float32)
        rows.append({**row, "rewards": rewards, "terminated": ends[0], "truncated": ends[1], "episode_start": start})
        start = ends[0] | ends[1]
    return {**{name: np.stack([row[name] for row in rows]) for name in rows[0]}, "initial_state": initial}


@pytest.mark.parametrize("backend", ["numpy", "torch", THOROUGH_JAX])
def test_targets_bootstrap_from_the_final_observation_where_an_episode_is_cut(backend):
    agent = make(backend, q_lambda=0.7, discount=0.9, minibatches=1)
    batch = rollout(agent)
    ends = np.zeros((6, 4), bool), np.zeros((6, 4), bool)
    ends[0][2, 0] = ends[1][3, 1] = True
    batch["terminated"], batch["truncated"] = ends
    following = batch["next_observations"].reshape(24, 3)
    best = agent.acting.q_values(following)[0].max(-1).reshape(6, 4)
    targets = agent.postprocess(batch)["targets"].reshape(6, 4)
    np.testing.assert_allclose(targets[2, 0], batch["rewards"][2, 0], rtol=1e-5)
    np.testing.assert_allclose(targets[3, 1], batch["rewards"][3, 1] + 0.9 * best[3, 1], rtol=1e-5)
    np.testing.assert_allclose(targets[5], batch["rewards"][5] + 0.9 * best[5], rtol=1e-5)
    traced = batch["rewards"][1] + 0.9 * (0.7 * targets[2] + 0.3 * best[1])
    np.testing.assert_allclose(targets[1], traced, rtol=1e-5)


@pytest.mark.parametrize(
    "actions", [IntBox([0, -1], [2, 2]), Dict(arm=Tuple(IntBox(3), BoolBox()), go=IntBox(2, 6))], ids=str
)
def test_any_observations_and_actions_that_can_be_counted(actions):
    agent = make("torch", NESTED_OBSERVATIONS, actions, image_network=SMALL_CONV, network=SMALL)
    batch = NESTED_OBSERVATIONS.with_batch_rank().sample(4, rng=0)
    for step in range(6):
        taken = agent.get_actions(batch, env_ids=range(4))
        assert agent.action_space.with_batch_rank().why_not(taken) is None
        rows = [agent.observation_space.sample(rng=step * 4 + row) for row in range(5)]
        for row in range(4):
            action = actions.unflatten({path: leaf[row] for path, leaf in actions.flatten_value(taken).items()})
            agent.observe(rows[row], action, 1.0, False, False, rows[row + 1], env_id=row)
    assert np.isfinite(agent.update()["loss"])


def test_actions_without_q_values_are_refused():
    with pytest.raises(SpaceError, match="such as PPO"):
        make("torch", actions=FloatBox(shape=(2,)))


def test_minibatches_have_to_divide_the_rollout():
    with pytest.raises(ConfigError, match="cannot be cut into equal minibatches"):
        make("torch", minibatches=5)
    with pytest.raises(ConfigError, match="whole sequences"):
        make("torch", minibatches=3, network=RECURRENT)


def test_epsilon_follows_the_steps_and_greedy_looks_do_not_explore():
    agent = make("numpy", epsilon=SCHEDULE, minibatches=1).build({"methods": ("act", "act_greedily"), "static": {}})
    observations = np.zeros((400, 3), np.float32)
    shares = []
    for steps in (0, 50, 100):
        agent.env_steps = steps
        chosen, _, _ = agent.act(observations)
        best, _, _ = agent.act(observations, explore=False)
        assert len(np.unique(best)) == 1
        shares.append(np.mean(chosen != best[0]))
    assert agent.epsilon == pytest.approx(0.1)
    np.testing.assert_allclose(shares, np.array([1.0, 0.5, 0.1]) * 2 / 3, atol=0.1)


# -- with environments in the graph ----------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["torch", THOROUGH_JAX])
@pytest.mark.parametrize("network", [NORMALIZED, RECURRENT])
def test_an_iteration_is_a_rollout_and_an_update_on_it(backend, network):
    """The same numbers as the calls that placement local makes; the schedule of epsilon goes on from call to call."""
    together, apart = (fused(backend, network=network).build({"rng": "portable"}) for _ in range(2))
    metrics, episodes = together.train(2)
    for _ in range(2):
        batch = apart.executor.rollout()
        apart.executor.update({name: x for name, x in batch.items() if name in apart.batch_space()})
    for path, value in together.state_dict().items():
        np.testing.assert_allclose(apart.state_dict()[path], value, rtol=1e-4, atol=1e-5, err_msg=path)
    assert together.state_dict()["pqn/acting/epsilon/env_steps"] == together.env_steps == 48
    assert metrics["gradient_steps"] == 2 * 2 * 2
    assert metrics["trained_samples"] == 2 * 48
    assert len(episodes) >= 8  # 48 steps, at most 5 in an episode


def test_rollouts_in_the_graph_are_the_same_on_numpy_which_has_no_gradients():
    seen = []
    for backend in ("numpy", "torch"):
        agent = fused(backend).build({"rng": "portable", "methods": ("rollout",), "static": {}})
        seen.append([agent.executor.rollout() for _ in range(2)])
    for one, other in zip(*seen, strict=True):
        assert one.keys() == other.keys()
        assert "log_probs" not in one
        for name, array in one.items():
            np.testing.assert_allclose(other[name], array, rtol=1e-5, atol=1e-6, err_msg=name)
