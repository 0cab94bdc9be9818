"""APPO as an agent: the surrogate's ratio, V-trace by the target policy, when that follows, PPO as its limit."""

import numpy as np
import pytest

from rlweave.agents.appo import APPO
from rlweave.agents.ppo import PPO
from rlweave.components.vtrace import vtrace
from rlweave.errors import ConfigError
from rlweave.spaces import FloatBox, IntBox
from tests.agents.rollouts import SMALL, rollout
from tests.agents.test_impala import off_policy
from tests.agents.test_recurrent_ppo import rollout as recurrent_rollout

LEARNING = ["torch", "jax", "tensorflow"]
CONFIG = {"network": SMALL, "rollout_steps": 6, "epochs": 2, "minibatches": 2, "lr": 1e-2}


def make(backend, kind=APPO, **settings):
    return kind(FloatBox(shape=(3,)), IntBox(3), {**CONFIG, **settings}, num_envs=4, backend=backend, seed=3)


def test_the_surrogates_ratio_is_that_of_impact():
    """min(mu / pi', bound) * pi / mu, as the paper writes it, is pi / max(pi', mu / bound)."""
    agent = make("torch", ratio_bound=1.5)
    batch = off_policy(agent)
    mu = np.exp(batch["log_probs"].astype(np.float64))
    agent.update(batch)  # now the policy is not the target policy's twin of the beginning, but its twin again
    rows = agent.postprocess(batch)
    log_target, _, _ = target_predictions(agent, batch)
    target = np.exp(log_target.astype(np.float64))
    pi = np.full_like(mu, 0.4)
    written = np.minimum(mu / target, 1.5) * pi / mu
    np.testing.assert_allclose(pi / np.exp(rows["log_probs"].reshape(6, 4)), written, rtol=1e-5)
    assert np.any(mu / target > 1.5)
    assert np.any(mu / target < 1.5)


def target_predictions(agent, batch):
    """log pi'(a|s), V(s), V(s'), (T, B), by a PPO that has the target policy's weights."""
    twin = make(agent.backend, PPO)
    weights = agent.executor.get_weights()
    mine = {}
    for path in twin.executor.get_weights():
        inner = path.split("/", 1)[1]
        source = f"target-policy/{inner.split('/', 1)[1]}" if inner.startswith("policy/") else inner
        if f"appo/{source}" in weights:
            mine[path] = weights[f"appo/{source}"]
    twin.set_weights(mine)
    flat = {name: value.reshape(24, *value.shape[2:]) for name, value in batch.items()}
    logits = {}
    for name in ("observations", "next_observations"):
        logits[name] = twin.executor.postprocess({**batch, "observations": batch[name]})["values"].reshape(6, 4)
    policy = {path: value for path, value in mine.items() if "/policy/" in path}
    kernels = [value for path, value in sorted(policy.items(), key=lambda i: ("head" in i[0], i[0])) if value.ndim == 2]
    biases = [value for path, value in sorted(policy.items(), key=lambda i: ("head" in i[0], i[0])) if value.ndim == 1]
    out = np.tanh(flat["observations"] @ kernels[0] + biases[0]) @ kernels[1] + biases[1]
    log_probs = out - np.log(np.exp(out).sum(-1, keepdims=True))
    taken = np.take_along_axis(log_probs, flat["actions"][:, None], -1)[:, 0]
    return taken.reshape(6, 4), logits["observations"], logits["next_observations"]


@pytest.mark.parametrize("backend", LEARNING)
def test_values_and_advantages_are_those_of_vtrace_by_the_target_policy(backend):
    agent = make(backend, target_update_interval=100)
    for seed in range(2):  # the policy moves, the target policy stays
        agent.update(off_policy(agent, seed))
    batch = off_policy(agent, 5)
    log_probs, values, next_values = target_predictions(agent, batch)
    expected = vtrace(
        *(np.asarray(x, np.float32) for x in (log_probs, batch["log_probs"], batch["rewards"], values, next_values)),
        batch["terminated"],
        batch["truncated"],
        0.99,
        lambda_=0.95,
    )
    rows = agent.postprocess(batch)
    np.testing.assert_allclose(rows["value_targets"].reshape(6, 4), expected.value_targets, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(rows["advantages"].reshape(6, 4), expected.advantages, rtol=1e-4, atol=1e-5)


def policies(agent):
    """Weights of the policy and of the target policy, without their prefixes."""
    weights = agent.executor.get_weights()
    return [
        {p.removeprefix(prefix): v for p, v in weights.items() if p.startswith(prefix)}
        for prefix in ("appo/policy/", "appo/target-policy/")
    ]


@pytest.mark.parametrize("backend", ["torch"])
def test_the_target_policy_follows_at_its_interval_also_after_a_restart(backend):
    agent = make(backend, target_update_interval=3)
    equal = []
    for update in range(6):
        agent.update(rollout(agent, update))
        policy, target = policies(agent)
        assert policy.keys() == target.keys()
        equal.append(all(np.array_equal(policy[path], target[path]) for path in policy))
        if update == 3:
            other = make(backend, target_update_interval=3)
            other.load_state_dict(agent.state_dict())
            other.load_counters(agent.counters())
            agent = other
    assert equal == [False, False, True, False, False, True]


def test_the_target_policy_follows_steps_with_gradients_too():
    agent = make("torch", target_update_interval=2)
    gradients = agent.compute_gradients(agent.postprocess(off_policy(agent)))
    same = []
    for _ in range(4):
        agent.apply_gradients(gradients)
        policy, target = policies(agent)
        assert policy.keys() == target.keys() != set()
        same.append(all(np.array_equal(policy[path], target[path]) for path in policy))
    assert same == [False, True, False, True]


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_the_ratio_is_one_at_the_first_minibatch_on_policy(backend):
    agent = make(backend, epochs=1, minibatches=1)
    for seed in range(3):
        metrics = agent.update(rollout(agent, seed))
        assert abs(metrics["approx_kl"]) < 1e-6
        assert metrics["off_policy"] < 1e-6


@pytest.mark.parametrize("backend", ["torch"])
def test_without_a_correction_it_is_ppo(backend):
    agent, ppo = make(backend, off_policy_correction="none"), make(backend, PPO)
    batch = off_policy(make("numpy"))  # a rollout of either would draw from its random state
    metrics = agent.update(batch)
    assert metrics == ppo.update(batch)
    for path, value in ppo.get_weights().items():
        np.testing.assert_array_equal(agent.get_weights()[path], value, err_msg=path)


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_recurrent_networks(backend):
    agent = make(backend, network=[{"type": "lstm", "units": 4}])
    batch, state = recurrent_rollout(agent)
    following, _ = recurrent_rollout(agent, 1, state)
    assert agent.update(batch)["off_policy"] < 1e-6
    metrics = agent.update(following)
    assert metrics["off_policy"] > 1e-4
    assert all(np.isfinite(value) for value in metrics.values())


def test_a_bound_below_one_is_refused():
    with pytest.raises(ConfigError, match="ratio_bound"):
        make("torch", ratio_bound=0.5)
