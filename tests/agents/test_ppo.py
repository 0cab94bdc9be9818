"""PPO as an agent: spaces, the law of its ratio, its API, errors."""

import numpy as np
import pytest

from rlweave.agents.a2c import A2C, A3C
from rlweave.agents.appo import APPO
from rlweave.agents.impala import IMPALA
from rlweave.agents.ppo import PPO
from rlweave.errors import CheckpointError, ConfigError, ExecutionError
from rlweave.spaces import FloatBox, IntBox
from tests.agents.rollouts import NESTED_ACTIONS, NESTED_OBSERVATIONS, SMALL, SMALL_CONV, rollout, row

LEARNING = ["torch", "jax", "tensorflow"]
CONFIG = {"network": SMALL, "rollout_steps": 6, "epochs": 2, "minibatches": 2}


def make(backend, observations=None, actions=None, num_envs=4, **settings):
    return PPO(
        FloatBox(shape=(3,)) if observations is None else observations,
        IntBox(3) if actions is None else actions,
        {**CONFIG, **settings},
        num_envs=num_envs,
        backend=backend,
        seed=3,
    )


@pytest.mark.early_on_tensorflow
@pytest.mark.parametrize("backend", LEARNING)
@pytest.mark.parametrize("acting", [None, "numpy"])
def test_the_ratio_is_one_at_the_first_minibatch_of_every_update(backend, acting):
    agent = make(backend, normalize_observations=True, epochs=1, minibatches=1, acting_backend=acting, lr=1e-2)
    for seed in range(4):
        metrics = agent.update(rollout(agent, seed))
        assert abs(metrics["approx_kl"]) < 1e-6
        assert metrics["clip_fraction"] == 0.0
    count = next(v for k, v in agent.executor.get_weights().items() if "normalization" in k and "count" in k)
    assert np.sum(count) > 0, "statistics are updated by the learner"


@pytest.mark.parametrize("backend", LEARNING)
def test_nested_observations_and_actions_with_images(backend):
    agent = make(backend, NESTED_OBSERVATIONS, NESTED_ACTIONS, image_network=SMALL_CONV)
    before = agent.get_weights()
    batch = rollout(agent)
    metrics = agent.update(batch)
    assert all(np.isfinite(value) for value in metrics.values())
    after = agent.get_weights()
    moved = [path for path in before if not np.array_equal(before[path], after[path])]
    assert len(moved) == len(before), sorted(set(before) - set(moved))
    for key in ("steer", "gear", "switches", "lamp"):
        assert agent.get_actions(row(batch["observations"], 0))[key].dtype == NESTED_ACTIONS[key].dtype


@pytest.mark.parametrize("backend", ["numpy", *LEARNING])
def test_actions_lie_in_the_action_space(backend):
    agent = make(backend, NESTED_OBSERVATIONS, NESTED_ACTIONS, image_network=SMALL_CONV)
    observations = NESTED_OBSERVATIONS.with_batch_rank().sample(64, rng=0)
    for explore in (True, False):
        actions = agent.get_actions(observations, explore=explore)
        assert agent.action_space.with_batch_rank().why_not(actions) is None
    greedy = [agent.get_actions(observations, explore=False) for _ in range(2)]
    for key in greedy[0]:
        np.testing.assert_array_equal(greedy[0][key], greedy[1][key])


def test_greedy_actions_agree_between_backends_and_travel_as_weights():
    agents = [
        make(backend, NESTED_OBSERVATIONS, NESTED_ACTIONS, image_network=SMALL_CONV) for backend in ["numpy", *LEARNING]
    ]
    observations = NESTED_OBSERVATIONS.with_batch_rank().sample(16, rng=1)
    agents[2].update(rollout(agents[2]))
    for agent in agents[:2]:
        agent.set_weights(agents[2].get_weights())
    expected = agents[2].get_actions(observations, explore=False)
    for agent in agents[:2]:
        for key, value in agent.get_actions(observations, explore=False).items():
            np.testing.assert_allclose(value, expected[key], atol=1e-5)


@pytest.mark.parametrize("backend", LEARNING)
def test_observing_single_steps_gives_the_batch_that_was_played(backend):
    agent, twin = (make(backend, num_envs=2, epochs=1, minibatches=1) for _ in range(2))
    rng = np.random.default_rng(0)
    observations = {name: rng.normal(size=3).astype(np.float32) for name in "ab"}
    played = {name: [] for name in "ab"}
    for step in range(7):
        for name in "ab":
            action = agent.get_actions(observations[name], env_ids=[name])
            reward, ended = float(rng.normal()), step == 3
            following = rng.normal(size=3).astype(np.float32)
            # the observation after is left out where the episode goes on
            agent.observe(observations[name], action, reward, ended, False, following if ended else None, env_id=name)
            played[name].append((observations[name], action, reward, following))
            observations[name] = rng.normal(size=3).astype(np.float32) if ended else following
        assert agent.ready() == (step == 6)
    trajectories = agent.observed()
    for column, name in enumerate("ab"):
        for t in range(6):
            state, action, reward, following = played[name][t]
            np.testing.assert_array_equal(trajectories["observations"][t, column], state)
            np.testing.assert_array_equal(trajectories["next_observations"][t, column], following)
            assert trajectories["actions"][t, column] == action
            assert trajectories["rewards"][t, column] == np.float32(reward)
    first, second = agent.update(trajectories), twin.update(trajectories)
    assert first == pytest.approx(second, rel=1e-4, abs=1e-6)


def test_updating_without_enough_says_so():
    agent = make("torch")
    with pytest.raises(ExecutionError, match="not enough to learn from"):
        agent.update()
    with pytest.raises(ExecutionError, match="whose action this agent did not choose"):
        agent.observe(np.zeros(3, np.float32), 0, 0.0, False, False)
    action = agent.get_actions(np.zeros(3, np.float32))
    with pytest.raises(ExecutionError, match="ended without its last observation"):
        agent.observe(np.zeros(3, np.float32), action, 0.0, False, True)


@pytest.mark.parametrize("backend", LEARNING)
def test_gradients_computed_and_applied_are_one_step_of_the_optimizer(backend):
    agent = make(backend, epochs=1, minibatches=1, normalize_advantages=False)
    twin = make(backend, epochs=1, minibatches=1, normalize_advantages=False)
    batch = rollout(agent)
    agent.update(batch)
    gradients = twin.compute_gradients(twin.postprocess(batch))
    assert all(np.abs(value).max() > 0 for value in gradients.values())
    twin.apply_gradients(gradients)
    for path, value in agent.get_weights().items():
        np.testing.assert_allclose(twin.get_weights()[path], value, atol=1e-5, err_msg=path)


def test_gradients_agree_between_backends():
    agents = [
        make(backend, NESTED_OBSERVATIONS, NESTED_ACTIONS, image_network=SMALL_CONV) for backend in ("torch", "jax")
    ]
    rows = agents[0].postprocess(rollout(agents[0]))
    first, second = (agent.compute_gradients(rows) for agent in agents)
    for path, value in first.items():
        np.testing.assert_allclose(second[path], value, atol=2e-5, rtol=1e-3, err_msg=path)


def test_box_actions_are_scaled_and_clipped_for_the_environment_and_kept_for_learning():
    agent = make("torch", actions=FloatBox(-0.01, 0.01, shape=(20,)), num_envs=1)
    state = np.ones(3, np.float32)
    action = agent.get_actions(state)
    assert agent.action_space.contains(action)
    agent.observe(state, action, 1.0, False, False, state)
    stored = agent._columns[0]._open["actions"][0, 0]
    assert np.abs(stored).max() > 1  # a standard deviation is half the width of the box
    np.testing.assert_allclose(action, 0.01 * np.clip(stored, -1, 1), rtol=1e-6)


def test_a_minibatch_of_one_row_cannot_be_normalized():
    with pytest.raises(ConfigError, match="minibatch of one row"):
        make("jax", rollout_steps=4, num_envs=1, minibatches=4)
    make("jax", rollout_steps=4, num_envs=1, minibatches=4, normalize_advantages=False)
    with pytest.raises(ConfigError, match="choose a divisor of 24"):
        make("jax", minibatches=5)


def test_models_travel_between_backends_as_data(tmp_path):
    source, target = make("jax"), make("torch")
    source.update(rollout(source))
    source.export_model(tmp_path / "model")
    target.import_model(tmp_path / "model")
    for path, value in source.get_weights().items():
        np.testing.assert_array_equal(target.get_weights()[path], value)
    with pytest.raises(CheckpointError, match="another observation_space"):
        make("torch", observations=FloatBox(shape=(4,))).import_model(tmp_path / "model")
    with pytest.raises(CheckpointError, match="mean something else"):
        make("torch", network=[{"type": "dense", "units": 9}]).import_model(tmp_path / "model")
    (tmp_path / "model" / "weights.safetensors").write_bytes(b"\x08\x00\x00\x00\x00\x00\x00\x00garbage!")
    with pytest.raises(CheckpointError, match="cannot read the model"):
        target.import_model(tmp_path / "model")


def test_a_configuration_of_another_agent_or_with_a_wrong_key_is_refused():
    with pytest.raises(ConfigError, match="did you mean 'epochs'"):
        make("jax", epoch=3)


def test_only_actions_of_the_agent_itself_are_learned_from_once():
    agent = make("numpy", num_envs=1)
    state = np.zeros(3, np.float32)
    action = agent.get_actions(state)
    agent.get_actions(state + 5.0, explore=False)  # a greedy look in between changes nothing
    with pytest.raises(ExecutionError, match="another action was observed"):
        agent.observe(state, (action + 1) % 3, 1.0, False, False, state)
    agent.observe(state, action, 1.0, False, False, state)
    with pytest.raises(ExecutionError, match="did not choose"):
        agent.observe(state, action, 1.0, False, False, state)
    for env_ids in (["a"], ["a", "a"], ["a", "b", "c"]):
        with pytest.raises(ExecutionError, match="one distinct name per row"):
            agent.get_actions(np.zeros((2, 3), np.float32), env_ids=env_ids)


@pytest.mark.parametrize("backend", LEARNING)
def test_a_training_that_diverges_is_noticed(backend):
    agent = make(backend)
    batch = rollout(agent)
    batch["rewards"][:] = np.nan
    with pytest.raises(ExecutionError, match="training has diverged"):
        agent.update(batch)


@pytest.mark.parametrize("backend", ["numpy", *LEARNING])
def test_a_single_action_to_choose_from(backend):
    agent = make(backend, actions=IntBox(1))
    assert agent.get_actions(np.zeros((4, 3), np.float32)).tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("kind", [PPO, A2C, A3C, APPO, IMPALA])
def test_agents_that_share_its_code_are_named_in_its_errors(kind):
    settings = {"network": [], "rollout_steps": 4, **({"minibatches": 1} if kind in (PPO, APPO) else {})}
    agent = kind(FloatBox(shape=(3,)), IntBox(3), settings, backend="numpy")
    state = np.zeros(3, np.float32)
    action = int(agent.get_actions(state))
    with pytest.raises(ExecutionError, match=f"fix: +{agent.name} learns from its own actions only"):
        agent.observe(state, (action + 1) % 3, 0.0, False, False, state)


@pytest.mark.parametrize(
    ("num_envs", "rollout_steps", "network", "expected"),
    [(8, 128, SMALL, 16), (1, 2048, SMALL, 32), (1, 50, SMALL, 1), (3, 50, SMALL, 2), (1, 131, SMALL, 1),
     (8, 16, [{"type": "gru", "units": 4}], 4), (3, 16, [{"type": "gru", "units": 4}], 3)],
)  # fmt: skip
def test_minibatches_that_nobody_chose_have_about_64_rows(num_envs, rollout_steps, network, expected):
    config = {"network": network, "rollout_steps": rollout_steps}
    agent = PPO(FloatBox(shape=(3,)), IntBox(2), config, num_envs=num_envs, backend="numpy")
    assert agent.config.minibatches == expected


def test_rewards_are_normalized_by_the_returns_of_all_rollouts():
    agent = make("torch", normalize_rewards=True, discount=0.9)
    returns, seen = np.zeros(4), []
    for seed in range(2):
        batch = rollout(agent, seed)
        agent.update(batch)
        for t in range(6):
            returns = 0.9 * returns + batch["rewards"][t]
            seen.append(returns.copy())
            returns = returns * ~(batch["terminated"][t] | batch["truncated"][t])
        weights = agent.executor.get_weights()
        (variance,) = (value for path, value in weights.items() if path.endswith("returns/variance"))
        (count,) = (value for path, value in weights.items() if path.endswith("returns/count"))
        assert count == 24 * (seed + 1)
        assert variance == pytest.approx(np.var(seen), rel=1e-4)
