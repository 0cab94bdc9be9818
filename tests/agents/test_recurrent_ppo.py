"""PPO with recurrent networks: the law of its ratio, values after truncation, state by environment."""

import numpy as np
import pytest

from rlweave.agents.minibatches import SequenceMinibatches
from rlweave.agents.ppo import PPO
from rlweave.errors import ConfigError, ExecutionError
from rlweave.spaces import FloatBox, IntBox
from rlweave.tree import leaves_of, tree_map
from tests.agents.rollouts import NESTED_ACTIONS, NESTED_OBSERVATIONS, SMALL_CONV, row, stacked

LEARNING = ["torch", "jax", "tensorflow"]
LSTM = [{"type": "dense", "units": 6, "activation": "tanh"}, {"type": "lstm", "units": 4}]
GRU = [{"type": "gru", "units": 4}, {"type": "dense", "units": 5}]
CONFIG = {"network": LSTM, "rollout_steps": 6, "epochs": 2, "minibatches": 2}


def make(backend, observations=None, actions=None, num_envs=4, **settings):
    return PPO(
        FloatBox(shape=(3,)) if observations is None else observations,
        IntBox(3) if actions is None else actions,
        {**CONFIG, **settings},
        num_envs=num_envs,
        backend=backend,
        seed=3,
    )


def rollout(agent, seed=0, state=None):
    """A batch (T, B, ...) with actions of the agent, episodes that end at different times, and the state after it."""
    rng = np.random.default_rng(seed)
    steps, envs = agent.config.rollout_steps, agent.num_envs
    space = agent.observation_space.with_batch_rank().with_time_rank()
    observations, next_observations = space.sample((steps, envs), rng=rng), space.sample((steps, envs), rng=rng)
    terminated, truncated = rng.random((steps, envs)) < 0.2, rng.random((steps, envs)) < 0.2
    start = np.concatenate([rng.random((1, envs)) < 0.5, (terminated | truncated)[:-1]])
    initial = agent.initial_state(envs) if state is None else state
    state, actions, log_probs = initial, [], []
    for t in range(steps):
        chosen, extra, state = agent.act(row(observations, t), state, start[t])
        actions.append(chosen)
        log_probs.append(extra["log_probs"])
    batch = {
        "observations": observations,
        "next_observations": next_observations,
        "actions": stacked(actions),
        "log_probs": np.stack(log_probs),
        "rewards": rng.normal(size=(steps, envs)).astype(np.float32),
        "terminated": terminated,
        "truncated": truncated,
        "episode_start": start,
        "initial_state": initial,
    }
    return batch, state


@pytest.mark.parametrize(
    ("backend", "acting", "network"),
    [
        ("torch", None, LSTM),
        ("torch", "numpy", GRU),
        ("jax", None, GRU),
        ("jax", "numpy", LSTM),
        ("tensorflow", "numpy", LSTM),
    ],
)
def test_the_ratio_is_one_at_the_first_minibatch_of_every_update(backend, acting, network):
    agent = make(
        backend, network=network, acting_backend=acting, epochs=1, minibatches=1, normalize_observations=True, lr=1e-2
    )
    state = None
    for seed in range(3):
        batch, state = rollout(agent, seed, state)  # goes on from the state that the last one ended with
        before = agent.get_weights()
        metrics = agent.update(batch)
        assert abs(metrics["approx_kl"]) < 1e-6
        assert metrics["clip_fraction"] == 0.0
        moved = [path for path, value in agent.get_weights().items() if not np.array_equal(value, before[path])]
        assert any("recurrent_kernel" in path for path in moved)


@pytest.mark.parametrize("backend", ["torch", "tensorflow", pytest.param("jax", marks=pytest.mark.thorough)])
def test_the_ratio_is_one_in_every_minibatch_where_nothing_is_learned(backend):
    """The sequences of a minibatch come with their own initial observations."""
    agent = make(backend, epochs=2, minibatches=2, lr=1e-12)
    _, state = rollout(agent)
    metrics = agent.update(rollout(agent, 1, state)[0])
    assert abs(metrics["approx_kl"]) < 1e-6
    assert metrics["clip_fraction"] == 0.0


@pytest.mark.parametrize("backend", ["numpy", *LEARNING])
def test_values_bootstrap_by_the_state_of_the_episode_that_ended(backend):
    agent = make(backend, gae_lambda=0.0, discount=0.5, network=GRU)
    batch, _ = rollout(agent)
    rows = agent.postprocess(batch)
    assert batch["truncated"][:-1].any()
    values, after = values_step_by_step(agent, batch)
    goes_on = ~batch["terminated"]
    expected = batch["rewards"] + 0.5 * np.where(goes_on, after, 0.0) - values
    np.testing.assert_allclose(rows["values"], values, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(rows["advantages"], expected, rtol=1e-4, atol=1e-5)


def values_step_by_step(agent, batch):
    """V of each state, and V of what each step led to by the state right after that step: a loop in NumPy."""
    weights = agent.executor.get_weights("ppo/value-function")
    v = {path.rpartition("value-function/")[2]: value for path, value in weights.items()}

    def gru(x, h):
        a, u = x @ v["network/gru/kernel"] + v["network/gru/bias"], h @ v["network/gru/recurrent_kernel"]
        r, z = (1 / (1 + np.exp(-(a[:, k : k + 4] + u[:, k : k + 4]))) for k in (0, 4))
        n = np.tanh(a[:, 8:] + r * (u[:, 8:] + v["network/gru/candidate_bias"]))
        return (1 - z) * n + z * h

    def value(h):
        return (h @ v["network/dense/kernel"] + v["network/dense/bias"]) @ v["head/kernel"][:, 0] + v["head/bias"]

    h = batch["initial_state"]["value_function"][0]["hidden"]
    values, after = [], []
    for t in range(len(batch["rewards"])):
        h = gru(batch["observations"][t], np.where(batch["episode_start"][t][:, None], 0, h))
        values.append(value(h))
        after.append(value(gru(batch["next_observations"][t], h)))
    return np.stack(values), np.stack(after)


@pytest.mark.parametrize("backend", ["torch", pytest.param("jax", marks=pytest.mark.thorough), "tensorflow"])
def test_any_observation_and_action_space(backend):
    agent = make(backend, NESTED_OBSERVATIONS, NESTED_ACTIONS, image_network=SMALL_CONV)
    before = agent.get_weights()
    batch, _ = rollout(agent)
    metrics = agent.update(batch)
    assert all(np.isfinite(value) for value in metrics.values())
    still = [path for path, value in agent.get_weights().items() if np.array_equal(value, before[path])]
    assert not still


def test_backends_agree():
    agents = [
        make(backend, NESTED_OBSERVATIONS, NESTED_ACTIONS, image_network=SMALL_CONV) for backend in ("torch", "jax")
    ]
    columns = agents[0].postprocess(rollout(agents[0])[0])
    first, second = (agent.compute_gradients(columns) for agent in agents)
    for path, value in first.items():
        np.testing.assert_allclose(second[path], value, atol=2e-5, rtol=1e-3, err_msg=path)


def test_minibatches_are_whole_sequences(monkeypatch):
    agent = make("torch", epochs=1)
    seen = []
    take = SequenceMinibatches.take

    def spy(root, rows, indices):
        chosen = take(root, rows, indices)
        seen.append({name: str(chosen[name].space.axes[:2]) for name in ("log_probs", "observations")})
        return chosen

    monkeypatch.setattr(SequenceMinibatches, "take", spy)
    agent.update(rollout(agent)[0])
    assert seen
    assert "T=6" in seen[-1]["log_probs"]
    assert "B=2" in seen[-1]["log_probs"]
    with pytest.raises(ConfigError, match="choose a divisor of 4"):
        make("torch", minibatches=3)
    make("torch", minibatches=4)


@pytest.mark.parametrize("acting", [None, "numpy"])
def test_states_are_kept_by_environment_and_start_anew_with_episodes(acting):
    agent, twin = make("torch", num_envs=2, acting_backend=acting), make("torch", num_envs=2, acting_backend=acting)
    rng = np.random.default_rng(0)
    observations = rng.normal(size=(6, 2, 3)).astype(np.float32)
    ends = {2: "a", 4: "b"}
    state, start = twin.initial_state(2), np.ones(2, bool)
    for t in range(5):
        before, began = state, start
        agent.get_actions(observations[t], env_ids=["a", "b"])
        _, _, state = twin.act(observations[t], state, start)
        start = np.zeros(2, bool)
        for column, name in enumerate("ab"):
            chosen, stored, _ = agent._acted[name]
            equal(stored["recurrent_state"], tree_map(lambda x, c=column: x[c], before), skip=began[column])
            assert stored["episode_start"] == began[column]
            ended = ends.get(t) == name
            # a greedy look at the same environment in between disturbs nothing
            agent.get_actions(observations[t, column] + 1.0, env_ids=[name], explore=False)
            agent.observe(observations[t, column], chosen, 0.0, False, ended, observations[t + 1, column], env_id=name)
            start[column] = ended


def equal(first, second, skip=False):
    for a, b in zip(flat(first), flat(second), strict=True):
        np.testing.assert_allclose(a, np.zeros_like(b) if skip else b, rtol=1e-5, atol=1e-6)


def flat(structure):
    if isinstance(structure, dict):
        return [leaf for key in sorted(structure) for leaf in flat(structure[key])]
    return [leaf for item in structure for leaf in flat(item)] if isinstance(structure, tuple) else [structure]


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_observing_single_steps_gives_the_batch_that_was_played(backend):
    agent = make(backend, num_envs=2, epochs=1, minibatches=1)
    rng = np.random.default_rng(0)
    observations = {name: rng.normal(size=3).astype(np.float32) for name in "ab"}
    for step in range(6):
        for name in "ab":
            action = agent.get_actions(observations[name], env_ids=[name])
            ended, following = step == 3 and name == "b", rng.normal(size=3).astype(np.float32)
            agent.observe(observations[name], action, 1.0, False, ended, following, env_id=name)
            observations[name] = rng.normal(size=3).astype(np.float32) if ended else following
    batch = agent.observed()
    np.testing.assert_array_equal(batch["episode_start"][:, 0], [True, *[False] * 5])
    np.testing.assert_array_equal(batch["episode_start"][:, 1], [True, False, False, False, True, False])
    agent = make(backend, num_envs=2, epochs=1, minibatches=1)
    metrics = agent.update(batch)
    assert abs(metrics["approx_kl"]) < 1e-6, "observations and probabilities belong together"
    assert metrics["clip_fraction"] == 0.0


def test_names_and_feedforward_agents():
    agent = make("numpy", num_envs=2)
    for env_ids in (["a"], ["a", "a"]):
        with pytest.raises(ExecutionError, match="one distinct name per row"):
            agent.get_actions(np.zeros((2, 3), np.float32), env_ids=env_ids)
    plain = make("numpy", network=[{"type": "dense", "units": 3}])
    assert not plain.recurrent
    assert "episode_start" not in plain.input_spaces()
    assert plain.initial_state(2) == ()


def test_weights_for_workers_elsewhere_hold_the_value_function_whose_state_they_carry():
    agent, worker = make("torch"), make("torch")
    agent.update(rollout(agent)[0])
    worker.set_weights(agent.get_weights())
    observations = np.ones((4, 3), np.float32)
    start = agent.initial_state(4), np.ones(4, bool)
    expected, found = (a.act(observations, *start, explore=False)[2] for a in (agent, worker))
    for network in ("policy", "value_function"):
        np.testing.assert_array_equal(*(next(leaves_of(after[network], np.ndarray)) for after in (expected, found)))
