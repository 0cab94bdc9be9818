"""DQN with recurrent networks: sequences with stored states and burn-in, against loops; padding; its API."""

import numpy as np
import pytest

from rlweave.agents.dqn import DQN
from rlweave.agents.fused_dqn import FusedDQN
from rlweave.envs.in_graph import CartPole
from rlweave.errors import ConfigError, ExecutionError
from rlweave.spaces import FloatBox, IntBox
from rlweave.tree import tree_map
from tests.agents.rollouts import NESTED_OBSERVATIONS, SMALL_CONV

LEARNING = ["torch", "jax", "tensorflow"]
LSTM = [{"type": "dense", "units": 6, "activation": "tanh"}, {"type": "lstm", "units": 4}]
GRU = [{"type": "gru", "units": 4}]
CONFIG = {
    "network": LSTM,
    "burn_in": 2,
    "unroll": 4,
    "n_step": 2,
    "batch_size": 8,
    "learning_starts": 8,
    "memory_capacity": 64,
    "target_update_interval": 1000,
}


def make(backend, observations=None, actions=None, **settings):
    return DQN(
        FloatBox(shape=(3,)) if observations is None else observations,
        IntBox(3) if actions is None else actions,
        {**CONFIG, **settings},
        backend=backend,
        seed=3,
    )


def records(agent, rows, seed=0):
    """Sequences with ends and starts that belong together."""
    rng = np.random.default_rng(seed)
    found = agent.record_space().with_batch_rank().sample(rows, rng=rng)
    for name in ("terminated", "truncated"):
        found[name] = rng.random(found[name].shape) < 0.2
    ended = found["terminated"] | found["truncated"]
    found["episode_start"] = np.concatenate([rng.random((rows, 1)) < 0.5, ended[:, :-1]], 1)
    found["mask"][:] = True
    return found


def q_step_by_step(agent, weights, found):
    """Q of the observations and of what each step led to, (N, T, A): the acting graph, one step at a time."""
    agent.executor.set_weights(weights)
    state = found["initial_state"]
    steps, never = found["rewards"].shape[1], np.zeros(len(found["rewards"]), bool)
    now, after = [], []
    for t in range(steps):
        q, state = agent.executor.q_values(found["observations"][:, t], state, found["episode_start"][:, t])
        now.append(q)
        after.append(agent.executor.q_values(found["next_observations"][:, t], state, never)[0])
    return np.stack(now, 1), np.stack(after, 1)


def loss_by_loop(agent, found, target_weights):
    """R2D2's loss as a double loop over sequences and steps; burn-in is what precedes the trained steps."""
    config, own = agent.config, agent.executor.get_weights("dqn/policy")
    q, online_next = q_step_by_step(agent, own, found)
    _, target_next = q_step_by_step(agent, target_weights, found)
    agent.executor.set_weights(own)
    total, length = [], found["rewards"].shape[1]
    for b in range(len(q)):
        for t in range(config.burn_in, length):
            target, discount = 0.0, 1.0
            for k in range(t, min(t + config.n_step, length)):
                target, discount = target + discount * found["rewards"][b, k], discount * config.discount
                if found["terminated"][b, k] or found["truncated"][b, k]:
                    break
            if not found["terminated"][b, k]:
                target += discount * target_next[b, k, online_next[b, k].argmax()]
            size = abs(target - q[b, t, found["actions"][b, t]])
            total.append(size**2 / 2 if size < 1 else size - 0.5)
    return np.mean(total)


@pytest.mark.parametrize("backend", LEARNING)
@pytest.mark.parametrize(("burn_in", "network"), [(2, LSTM), (0, GRU)])
def test_the_loss_is_that_of_a_loop_over_steps(backend, burn_in, network):
    agent = make(backend, burn_in=burn_in, network=network, dueling=False)
    found = records(agent, 3)
    # other weights in the target network, so that the two cannot be confused
    target = {
        path.replace("dqn/policy", "dqn/target-policy"): value * 0.5 + 0.1
        for path, value in agent.executor.get_weights("dqn/policy").items()
    }
    agent.executor.set_weights(target)
    as_policy = {path.replace("target-policy", "policy"): value for path, value in target.items()}
    expected = loss_by_loop(agent, found, as_policy)
    np.testing.assert_allclose(agent.update(found)["loss"], expected, rtol=1e-4)


@pytest.mark.parametrize("backend", LEARNING)
def test_padded_episodes_have_the_gradient_of_the_unpadded_ones(backend):
    """Episodes of length 3 and 5, padded to 5 (with rubbish)."""
    whole = make(backend, burn_in=0, unroll=5, batch_size=5, n_step=3)
    short = make(backend, burn_in=0, unroll=3, batch_size=3, n_step=3)
    found = records(whole, 2)
    for name in ("terminated", "truncated", "episode_start"):
        found[name][:] = False
    found["terminated"][0, 2] = found["truncated"][1, 4] = True
    found["mask"][0, 3:] = False
    found["rewards"][0, 3:] = 1e3
    both = whole.compute_gradients(found)
    rows = [tree_map(lambda x: x[:1, :3], {k: v for k, v in found.items() if k != "initial_state"})]
    rows[0]["initial_state"] = tree_map(lambda x: x[:1], found["initial_state"])
    rows.append(tree_map(lambda x: x[1:], found))
    first, second = short.compute_gradients(rows[0]), whole.compute_gradients(rows[1])
    assert max(np.abs(value).max() for value in both.values()) > 0.01
    for path, value in both.items():  # means over 3, 5 and 8 steps
        np.testing.assert_allclose(value, (3 * first[path] + 5 * second[path]) / 8, rtol=1e-3, atol=1e-6, err_msg=path)


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_burn_in_is_without_a_gradient_but_not_without_effect(backend):
    agent, later = make(backend, dueling=False), make(backend, burn_in=0, dueling=False)
    later.set_weights(agent.get_weights())
    later.executor.sync_target()
    found = records(agent, 2)
    # the same without burn-in, from the state that it leads to
    state = found["initial_state"]
    for t in range(2):
        _, state = agent.executor.q_values(found["observations"][:, t], state, found["episode_start"][:, t])
    rest = {k: tree_map(lambda x: x[:, 2:], v) for k, v in found.items() if k != "initial_state"}
    expected = later.compute_gradients({**rest, "initial_state": state})
    for path, value in agent.compute_gradients(found).items():
        np.testing.assert_allclose(value, expected[path], rtol=1e-3, atol=1e-6, err_msg=path)
    poisoned = tree_map(np.zeros_like, found["initial_state"])
    found["episode_start"][:, :3] = False
    changed = agent.compute_gradients({**found, "initial_state": poisoned})
    assert any(not np.allclose(changed[path], value) for path, value in agent.compute_gradients(found).items())


@pytest.mark.parametrize("backend", ["torch", pytest.param("jax", marks=pytest.mark.thorough), "tensorflow"])
@pytest.mark.parametrize("place", ["host", "graph"])
def test_any_observation_space_from_the_memory(backend, place):
    agent = make(backend, NESTED_OBSERVATIONS, IntBox(high=[3, 3]), image_network=SMALL_CONV, memory_place=place)
    agent.insert(records(agent, 5))
    agent.count_steps(20)
    before = agent.get_weights()
    assert np.isfinite(agent.update()["loss"])
    moved = [path for path, value in agent.get_weights().items() if not np.array_equal(value, before[path])]
    assert len(moved) == len(before), sorted(set(before) - set(moved))


def test_sequences_get_the_priority_of_their_errors():
    agent = make("torch", priority_eta=0.25, dueling=False, batch_size=4, huber_delta=None, n_step=1)
    found = records(agent, 1)
    agent.insert(found)
    agent.count_steps(20)
    own = agent.executor.get_weights("dqn/policy")
    q, after = q_step_by_step(agent, own, found)
    chosen = np.take_along_axis(q, found["actions"][..., None], -1)[..., 0]
    targets = found["rewards"] + 0.99 * np.where(found["terminated"], 0.0, after.max(-1))
    errors = np.abs(targets - chosen)[0, 2:]
    agent.update()
    state = agent.executor.state_dict()
    (tree,) = [value for path, value in state.items() if path.endswith("sum-tree")]
    expected = (0.25 * errors.max() + 0.75 * errors.mean() + 1e-6) ** 0.6
    np.testing.assert_allclose(tree[1], expected, rtol=1e-4)


@pytest.mark.parametrize("acting", [None, "numpy"])
def test_observed_steps_become_the_sequences_that_were_played(acting):
    agent = make("torch", acting_backend=acting, epsilon=0.5)
    rng = np.random.default_rng(0)
    stored = []
    agent.insert = lambda rows: stored.append(rows)
    state, played = {name: rng.normal(size=3).astype(np.float32) for name in "ab"}, {name: [] for name in "ab"}
    begins = dict.fromkeys("ab", True)
    for step in range(13):
        for name in "ab":
            action = agent.get_actions(state[name], env_ids=[name])
            ended, following = (name == "b" and step % 5 == 4), rng.normal(size=3).astype(np.float32)
            played[name].append((state[name], action, begins[name]))
            agent.observe(state[name], action, 1.0, False, ended, following if ended else None, env_id=name)
            begins[name] = ended
            state[name] = rng.normal(size=3).astype(np.float32) if ended else following
    assert [len(rows["rewards"]) for rows in stored] == [1] * 6  # 4, 8 and 12 steps of two environments
    for rows in stored:
        real = rows["mask"][0]
        name = "a" if any(np.array_equal(rows["observations"][0, -1], s) for s, _, _ in played["a"]) else "b"
        last = next(t for t, (s, _, _) in enumerate(played[name]) if np.array_equal(s, rows["observations"][0, -1]))
        for position in np.flatnonzero(real):
            s, action, began = played[name][last - 5 + position]
            np.testing.assert_array_equal(rows["observations"][0, position], s)
            assert rows["actions"][0, position] == action
            assert rows["episode_start"][0, position] == began
        # the stored state is the one that acting began this sequence with
        state_now = tree_map(np.array, rows["initial_state"])
        if real.all() and not rows["episode_start"][0, 0]:
            carried = agent.initial_state(1)
            for s, _, began in played[name][: last - 5]:
                _, _, carried = agent.act(s[None], carried, np.array([began]), explore=False)
            np.testing.assert_allclose(state_now[0]["hidden"], carried[0]["hidden"], rtol=1e-4, atol=1e-6)
            np.testing.assert_allclose(state_now[0]["cell"], carried[0]["cell"], rtol=1e-4, atol=1e-6)


def test_settings_that_do_not_fit_are_explained():
    with pytest.raises(ConfigError, match="choose a multiple of 4"):
        make("numpy", batch_size=10)
    with pytest.raises(ConfigError, match="share more than a sequence has"):
        make("numpy", overlap=4)
    with pytest.raises(ConfigError, match="fused agents with replay take no recurrent networks"):
        FusedDQN(CartPole(2), {"network": GRU, "unroll": 16})
    make("numpy", batch_size=10, network=[{"type": "dense", "units": 2}])  # of no concern without
    agent = make("numpy")
    with pytest.raises(ExecutionError, match="whose action this agent did not choose"):
        agent.observe(np.zeros(3, np.float32), 0, 0.0, False, False, np.zeros(3, np.float32))


def test_a_step_that_is_refused_may_be_observed_again():
    agent = make("torch")
    state = np.zeros(3, np.float32)
    action = agent.get_actions(state)
    with pytest.raises(ExecutionError, match="without its last observation"):
        agent.observe(state, action, 1.0, True, False)
    agent.observe(state, action, 1.0, True, False, state)
    assert agent.env_steps == 1


@pytest.mark.parametrize("backend", ["numpy", "torch", "jax"])
def test_a_state_of_another_number_of_rows_is_refused(backend):
    agent = make(backend)
    observations, start = np.zeros((2, 3), np.float32), np.zeros(2, bool)
    for rows in (1, 3):
        with pytest.raises(ExecutionError, match="batch size"):
            agent.act(observations, agent.initial_state(rows), start)
    none = agent.get_actions(np.zeros((0, 3), np.float32), env_ids=[])
    assert none.shape == (0,)
