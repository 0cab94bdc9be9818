"""IMPALA as an agent: one whole update against float64 NumPy loops, its correction, recurrent networks, any space."""

import numpy as np
import pytest

from rlweave.agents.impala import IMPALA
from rlweave.errors import BuildError, ConfigError, ExecutionError
from rlweave.spaces import FloatBox, IntBox
from tests.agents.rollouts import NESTED_ACTIONS, NESTED_OBSERVATIONS, SMALL, SMALL_CONV, rollout
from tests.agents.test_recurrent_ppo import rollout as recurrent_rollout

LEARNING = ["torch", "jax", "tensorflow"]
CONFIG = {
    "network": SMALL,
    "rollout_steps": 6,
    "discount": 0.9,
    "trace_decay": 0.8,
    "value_coefficient": 0.7,
    "entropy_coefficient": 0.05,
    "optimizer": {"type": "sgd"},
    "lr": 0.1,
    "max_grad_norm": None,
}


def make(backend, observations=None, actions=None, num_envs=4, **settings):
    return IMPALA(
        FloatBox(shape=(3,)) if observations is None else observations,
        IntBox(3) if actions is None else actions,
        {**CONFIG, **settings},
        num_envs=num_envs,
        backend=backend,
        seed=3,
    )


def off_policy(agent, seed=0):
    """A rollout whose actions were taken with other probabilities than the agent's."""
    batch = rollout(agent, seed)
    batch["log_probs"] = np.log(np.random.default_rng(seed).uniform(0.1, 0.9, batch["log_probs"].shape))
    batch["log_probs"] = batch["log_probs"].astype(np.float32)
    return batch


class Oracle:
    """IMPALA's update in float64, one element at a time, with networks of one hidden layer."""

    def __init__(self, weights):
        self.weights = {path.split("/", 1)[1]: np.array(value, np.float64) for path, value in weights.items()}

    def _layers(self, prefix, weights):
        mine = {path: value for path, value in weights.items() if path.startswith(prefix)}
        kernels = [value for path, value in sorted(mine.items(), key=self._depth) if value.ndim == 2]
        biases = [value for path, value in sorted(mine.items(), key=self._depth) if value.ndim == 1]
        return kernels, biases

    @staticmethod
    def _depth(item):
        return "head" in item[0] or "distribution" in item[0], item[0]

    def _forward(self, prefix, observations, weights):
        (first, last), (first_bias, last_bias) = self._layers(prefix, weights)
        return np.tanh(observations @ first + first_bias) @ last + last_bias

    def predictions(self, batch, weights=None):
        """log pi(a|s), entropies, V(s), V(s') as (T, B)."""
        weights = self.weights if weights is None else weights
        observations, next_observations = (
            np.asarray(batch[name], np.float64) for name in ("observations", "next_observations")
        )
        logits = self._forward("policy", observations, weights)
        log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        entropies = -(np.exp(log_probs) * log_probs).sum(-1)
        taken = np.take_along_axis(log_probs, np.asarray(batch["actions"])[..., None], -1)[..., 0]
        values = self._forward("value-function", observations, weights)[..., 0]
        return taken, entropies, values, self._forward("value-function", next_observations, weights)[..., 0]

    def corrected(self, batch, corrected=True):
        """Targets and advantages by the recursion of the paper (remark 1), from the last step back."""
        log_probs, _, values, next_values = self.predictions(batch)
        ratios = np.exp(log_probs - np.asarray(batch["log_probs"], np.float64)) if corrected else np.ones_like(values)
        T, B = values.shape
        targets, advantages = np.zeros((T, B)), np.zeros((T, B))
        for b in range(B):
            carried = 0.0  # vs_{t+1} - V(s_{t+1})
            for t in reversed(range(T)):
                ended = batch["terminated"][t, b] or batch["truncated"][t, b]
                after = 0.0 if batch["terminated"][t, b] else next_values[t, b]
                rho = min(1.0, ratios[t, b])
                if ended or t == T - 1:
                    carried = 0.0
                following = after if ended or t == T - 1 else targets[t + 1, b]
                delta = rho * (batch["rewards"][t, b] + 0.9 * after - values[t, b])
                targets[t, b] = values[t, b] + delta + 0.9 * 0.8 * rho * carried
                advantages[t, b] = rho * (batch["rewards"][t, b] + 0.9 * following - values[t, b])
                carried = targets[t, b] - values[t, b]
        return targets, advantages

    def loss(self, batch, targets, advantages, weights=None):
        log_probs, entropies, values, _ = self.predictions(batch, weights)
        policy, value = -np.mean(log_probs * advantages), 0.5 * np.mean((values - targets) ** 2)
        return policy + 0.7 * value - 0.05 * np.mean(entropies), policy, value

    def gradient(self, path, batch, targets, advantages):
        """By finite differences, targets held fixed."""
        found = np.zeros_like(self.weights[path])
        for index in np.ndindex(found.shape):
            sides = []
            for step in (1e-5, -1e-5):
                moved = {name: value.copy() for name, value in self.weights.items()}
                moved[path][index] += step
                sides.append(self.loss(batch, targets, advantages, moved)[0])
            found[index] = (sides[0] - sides[1]) / 2e-5
        return found


@pytest.mark.early_on_tensorflow
@pytest.mark.parametrize("backend", LEARNING)
@pytest.mark.parametrize("correction", ["vtrace", "none"])
def test_an_update_is_that_of_the_paper(backend, correction):
    agent = make(backend, off_policy_correction=correction)
    batch = off_policy(agent)
    before = agent.executor.get_weights()
    trained = [path for path in before if "policy" in path or "value-function" in path]
    oracle = Oracle({path: before[path] for path in trained})
    targets, advantages = oracle.corrected(batch, correction == "vtrace")
    _, policy_loss, value_loss = oracle.loss(batch, targets, advantages)
    rows = agent.postprocess(batch)
    np.testing.assert_allclose(rows["value_targets"].reshape(6, 4), targets, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(rows["advantages"].reshape(6, 4), advantages, rtol=1e-4, atol=1e-5)
    by_rows = agent.compute_gradients(rows)
    metrics = agent.update(batch)
    assert metrics["policy_loss"] == pytest.approx(policy_loss, rel=1e-4)
    assert metrics["value_loss"] == pytest.approx(value_loss, rel=1e-4)
    ratios = np.exp(oracle.predictions(batch)[0] - batch["log_probs"])
    assert metrics["mean_ratio"] == pytest.approx(ratios.mean(), rel=1e-4)
    assert metrics["off_policy"] == pytest.approx(np.abs(ratios - 1).mean(), rel=1e-4)
    assert metrics["off_policy"] > 0.1
    after = agent.executor.get_weights()
    for path in trained:
        gradient = oracle.gradient(path.split("/", 1)[1], batch, targets, advantages)
        np.testing.assert_allclose(after[path] - before[path], -0.1 * gradient, atol=2e-5, err_msg=path)
        np.testing.assert_allclose(by_rows[path], gradient, atol=2e-4, err_msg=path)


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_the_correction_matters_only_off_policy(backend):
    corrected, uncorrected = make(backend), make(backend, off_policy_correction="none")
    own, foreign = rollout(corrected), off_policy(corrected)
    for batch, equal in ((own, True), (foreign, False)):
        first, second = (agent.postprocess(batch)["advantages"] for agent in (corrected, uncorrected))
        assert np.allclose(first, second, atol=1e-5) == equal
    assert corrected.update(own)["off_policy"] < 1e-6


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_any_number_of_trajectories_makes_a_batch(backend):
    agent = make(backend)
    for number in (4, 1, 7):
        agent.num_envs = number
        assert agent.update(rollout(agent))["trained_samples"] == 6 * number


@pytest.mark.parametrize(
    ("backend", "layer"),
    [("torch", "lstm"), ("jax", "gru"), pytest.param("tensorflow", "lstm", marks=pytest.mark.slow)],
)
def test_recurrent_networks_run_from_the_state_that_the_worker_had(backend, layer):
    agent = make(backend, network=[{"type": layer, "units": 4}], normalize_observations=True)
    batch, state = recurrent_rollout(agent)
    following, _ = recurrent_rollout(agent, 1, state)
    assert agent.update(batch)["off_policy"] < 1e-6  # equal weights from equal observations: equal probabilities
    metrics = agent.update(following)
    assert metrics["off_policy"] > 1e-4  # made by the weights before the update
    assert all(np.isfinite(value) for value in metrics.values())


def test_nested_spaces_with_images():
    agent = make("jax", NESTED_OBSERVATIONS, NESTED_ACTIONS, image_network=SMALL_CONV)
    before = agent.get_weights()
    metrics = agent.update(rollout(agent))
    assert metrics["off_policy"] < 1e-5
    assert [path for path, value in agent.get_weights().items() if np.array_equal(before[path], value)] == []


def test_what_cannot_be_says_so():
    with pytest.raises(ConfigError, match="did you mean 'rho_clip'"):
        make("jax", rho_clp=1.0)
    with pytest.raises(BuildError, match="contracts only with c_clip <= rho_clip"):
        make("torch", c_clip=2.0).build()
    with pytest.raises(ExecutionError, match="not enough to learn from"):
        make("torch").update()


def test_the_fit_that_is_reported_is_that_of_the_values_to_their_targets():
    agent = make("torch")
    batch = off_policy(agent)
    rows = agent.postprocess(batch)
    targets, errors = rows["value_targets"], rows["value_targets"] - rows["values"]
    expected = 1.0 - np.var(errors) / np.var(targets)
    assert agent.update(batch)["explained_variance"] == pytest.approx(expected, rel=1e-3)
