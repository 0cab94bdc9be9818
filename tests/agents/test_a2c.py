"""A2C and A3C as agents: gradients against a float64 oracle, parts against the whole, recurrent networks, masks."""

import numpy as np
import pytest

from rlweave.agents.a2c import A2C, A3C
from rlweave.errors import ConfigError, ExecutionError
from rlweave.flow import AverageGradients, Gradients, SampleBatch
from rlweave.flow.gradients import parts_of
from rlweave.spaces import BoolBox, Dict, FloatBox, IntBox
from tests.agents import rollouts, test_recurrent_ppo
from tests.agents.rollouts import NESTED_ACTIONS, NESTED_OBSERVATIONS, SMALL, SMALL_CONV, rollout

LSTM = [{"type": "dense", "units": 6, "activation": "tanh"}, {"type": "lstm", "units": 4}]
CONFIG = {"network": SMALL, "rollout_steps": 6}


def make(backend, observations=None, actions=None, num_envs=4, kind=A2C, **settings):
    return kind(
        FloatBox(shape=(3,)) if observations is None else observations,
        IntBox(3) if actions is None else actions,
        {**CONFIG, **settings},
        num_envs=num_envs,
        backend=backend,
        seed=3,
    )


def forward(weights, part, observations):
    """Outputs of a network with one tanh layer, in float64."""
    layers = (f"actor-critic/{part}/network/dense", f"actor-critic/{part}/head")
    (kernel, bias), (last_kernel, last_bias) = (
        (weights[f"{layer}/kernel"], weights[f"{layer}/bias"]) for layer in layers
    )
    return np.tanh(observations @ kernel + bias) @ last_kernel + last_bias


def advantages_of(weights, batch, discount, lambda_, reward_scale):
    """Equation 16 of the paper on GAE, as its sum, step by step."""
    values = forward(weights, "value-function", batch["observations"])[..., 0]
    following = forward(weights, "value-function", batch["next_observations"])[..., 0]
    steps, envs = values.shape
    found = np.zeros((steps, envs))
    for b in range(envs):
        for t in range(steps):
            for k in range(t, steps):
                ahead = 0.0 if batch["terminated"][k, b] else following[k, b]
                delta = reward_scale * batch["rewards"][k, b] + discount * ahead - values[k, b]
                found[t, b] += (discount * lambda_) ** (k - t) * delta
                if batch["terminated"][k, b] or batch["truncated"][k, b]:
                    break
    return found, found + values


def loss_of(weights, batch, advantages, targets, c_value, c_entropy):
    """The loss over all steps of a rollout."""
    logits = forward(weights, "policy", batch["observations"])
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    taken = np.take_along_axis(log_p, batch["actions"][..., None], -1)[..., 0]
    entropy = -(np.exp(log_p) * log_p).sum(-1)
    values = forward(weights, "value-function", batch["observations"])[..., 0]
    metrics = {
        "policy_loss": -(taken * advantages).mean(),
        "value_loss": 0.5 * ((values - targets) ** 2).mean(),
        "entropy": entropy.mean(),
    }
    return metrics["policy_loss"] + c_value * metrics["value_loss"] - c_entropy * metrics["entropy"], metrics


@pytest.mark.parametrize(("backend", "lambda_"), [("torch", 1.0), ("torch", 0.9), ("jax", 0.9), ("tensorflow", 0.9)])
def test_gradients_are_those_of_the_loss_in_float64(backend, lambda_):
    agent = make(
        backend, gae_lambda=lambda_, discount=0.97, reward_scale=0.5, value_coefficient=0.7, entropy_coefficient=0.03
    )
    batch = rollout(agent)
    assert batch["terminated"].any()
    assert (batch["truncated"] & ~batch["terminated"]).any()
    found, metrics = agent.rollout_gradients(batch)
    exact = {path: np.asarray(value, np.float64) for path, value in agent.executor.get_weights().items()}
    constants = advantages_of(exact, batch, 0.97, lambda_, 0.5)
    for name, value in loss_of(exact, batch, *constants, 0.7, 0.03)[1].items():
        assert metrics[name] == pytest.approx(value, rel=1e-4), name
    assert found.keys() == {path for path in exact if "optimizer" not in path}
    for path, gradient in found.items():
        slopes = np.zeros(gradient.shape)
        for index in np.ndindex(gradient.shape):
            sides = []
            for step in (1e-5, -1e-5):
                moved = {**exact, path: exact[path].copy()}
                moved[path][index] += step
                sides.append(loss_of(moved, batch, *constants, 0.7, 0.03)[0])
            slopes[index] = (sides[0] - sides[1]) / 2e-5
        np.testing.assert_allclose(gradient, slopes, rtol=1e-3, atol=2e-6, err_msg=path)


#: Agents of all forms of networks: settings, and what makes a rollout.
KINDS = {
    "dense": ({}, rollout),
    "nested": ({"observations": NESTED_OBSERVATIONS, "actions": NESTED_ACTIONS, "image_network": SMALL_CONV}, rollout),
    "recurrent": ({"network": LSTM}, lambda agent: test_recurrent_ppo.rollout(agent)[0]),
}


@pytest.mark.parametrize(
    ("backend", "kind"),
    [
        ("torch", "dense"),
        ("torch", "nested"),
        ("torch", "recurrent"),
        ("jax", "dense"),
        pytest.param("jax", "recurrent", marks=pytest.mark.thorough),
        ("tensorflow", "dense"),
    ],
)
def test_an_update_is_one_step_with_the_gradients_of_the_whole_or_the_average_of_its_parts(backend, kind):
    settings, make_rollout = KINDS[kind]
    agent, twin = (make(backend, num_envs=5 if backend == "torch" else 4, **settings) for _ in range(2))
    batch = make_rollout(agent)
    rows = batch["rewards"].size
    whole, metrics = agent.rollout_gradients(batch)

    parts = parts_of(SampleBatch(batch, "trajectories", ("initial_state",) if agent.recurrent else ()), 12)
    assert [part.num_steps for part in parts] == ([12, 12, 6] if backend == "torch" else [12, 12])
    computed = [(part.num_steps, *agent.rollout_gradients(part.data)) for part in parts]
    average = AverageGradients()([Gradients(values, steps, found) for steps, values, found in computed])
    assert average.metrics == pytest.approx(metrics, rel=1e-4, abs=1e-5)
    for path, value in whole.items():
        np.testing.assert_allclose(average.values[path], value, atol=1e-5, rtol=1e-5, err_msg=path)

    before = agent.executor.get_weights()
    estimates = agent.postprocess(batch)
    errors = estimates["value_targets"] - estimates["values"]
    learning = {
        "gradient_norm": np.sqrt(sum(np.sum(np.square(value, dtype=np.float64)) for value in whole.values())),
        "learning_rate": agent.config.lr,
        "explained_variance": 1.0 - np.var(errors) / np.var(estimates["value_targets"]),
    }
    reported = agent.update(batch)
    counts = {"gradient_steps": 1, "trained_samples": rows}
    assert reported == pytest.approx({**metrics, **learning, **counts}, rel=1e-4, abs=1e-6)
    twin.apply_gradients(whole)
    for path, value in agent.executor.get_weights().items():
        np.testing.assert_allclose(twin.executor.get_weights()[path], value, atol=1e-6, err_msg=path)
        assert not value.size or not np.array_equal(value, before[path]), path


def test_gradients_of_a_rollout_are_those_of_its_post_processed_rows():
    agent = make("torch")
    batch = rollout(agent)
    expected = agent.compute_gradients(agent.postprocess(batch))
    for path, value in agent.rollout_gradients(batch)[0].items():
        np.testing.assert_allclose(value, expected[path], atol=1e-7, err_msg=path)


def test_gradients_change_nothing():
    agent = make("torch")
    batch = rollout(agent)
    before = {path: value.copy() for path, value in agent.state_dict().items()}
    agent.rollout_gradients(batch)
    for path, value in agent.state_dict().items():
        np.testing.assert_array_equal(value, before[path], err_msg=path)


@pytest.mark.parametrize("recurrent", [False, True])
def test_a_worker_with_the_learners_weights_has_the_learners_gradients(recurrent):
    """What a worker of A3C elsewhere needs: weights of both networks, and no optimizer; it may act on NumPy."""
    settings = {"network": LSTM if recurrent else SMALL, "kind": A3C}
    learner, worker = make("torch", **settings), make("torch", acting_backend="numpy", **settings)
    worker.seed = 99
    worker.build({"methods": worker.worker_methods, "static": {}})
    assert not any("optimizer" in path for path in worker.executor.get_weights())
    batch = test_recurrent_ppo.rollout(learner)[0] if recurrent else rollout(learner)
    learner.update(batch)
    assert {path.split("/")[1] for path in learner.get_weights()} == {"policy", "value-function"}
    worker.set_weights(learner.get_weights())
    expected, metrics = learner.rollout_gradients(batch)
    found, its = worker.rollout_gradients(batch)
    assert its == pytest.approx(metrics, rel=1e-6)
    assert found.keys() == expected.keys()
    for path, value in expected.items():
        np.testing.assert_allclose(found[path], value, atol=1e-7, err_msg=path)
    if not recurrent:  # what acts got them as well
        observations = batch["observations"][0]
        np.testing.assert_array_equal(
            worker.act(observations, explore=False)[0], learner.act(observations, explore=False)[0]
        )


def test_statistics_of_observations_are_the_learners_and_move_after_the_update():
    agent, plain = make("torch", normalize_observations=True), make("torch")
    batch = rollout(agent)
    gradients, expected = agent.rollout_gradients(batch)[0], plain.rollout_gradients(batch)[0]
    for path, value in expected.items():  # nothing is known yet: observations are as they are
        np.testing.assert_allclose(gradients[path], value, atol=1e-6, err_msg=path)
    agent.update(batch)
    weights = agent.get_weights()
    assert float(next(value for path, value in weights.items() if path.endswith("count"))) == 24
    mean = next(value for path, value in weights.items() if path.endswith("mean"))
    np.testing.assert_allclose(mean, batch["observations"].reshape(24, 3).mean(0), atol=1e-5)


@pytest.mark.parametrize("recurrent", [False, True])
def test_forbidden_actions_get_no_probability_and_no_gradient(recurrent):
    observations = Dict(seen=FloatBox(shape=(3,)), action_mask=BoolBox(shape=(3,)))
    agent = make("torch", observations, mask_leaf="action_mask", network=LSTM if recurrent else SMALL)
    sample = agent.observation_space.with_batch_rank().sample(4, rng=0)
    sample["action_mask"] = np.array([[True, False, False]] * 4)
    assert agent.get_actions(sample).tolist() == [0] * 4
    space = agent.observation_space.with_batch_rank().with_time_rank()
    steps = {name: space for name, space in agent.batch_space().items() if name != "initial_state"}
    batch = Dict(steps).sample((6, 4), rng=1)
    if recurrent:
        batch["initial_state"] = agent.initial_state(4)
    batch["observations"], batch["next_observations"] = (
        {**space.sample((6, 4), rng=seed), "action_mask": np.broadcast_to([True, False, True], (6, 4, 3)).copy()}
        for seed in (2, 3)
    )
    batch["actions"] = np.where(batch["actions"] == 1, 0, batch["actions"])
    bias = next(value for path, value in agent.rollout_gradients(batch)[0].items() if path.endswith("policy/head/bias"))
    assert bias[1] == 0.0
    assert bias[0] != 0.0


def test_observing_and_updating():
    agent, twin = make("torch", num_envs=1), make("torch", num_envs=1)
    with pytest.raises(ExecutionError, match=r"not enough to learn from yet[\s\S]*a2c.update"):
        agent.update()
    rng, state, rows = np.random.default_rng(0), np.zeros(3, np.float32), []
    for step in range(6):
        action, following = agent.get_actions(state, env_ids=[0]), rng.normal(size=3).astype(np.float32)
        agent.observe(state, action, 1.0, step == 3, False, following, env_id=0)
        rows.append((state, action, step == 3, following))
        state = following
    batch = {
        "observations": np.stack([row[0] for row in rows])[:, None],
        "actions": np.array([[row[1]] for row in rows], np.int32),
        "log_probs": np.zeros((6, 1), np.float32),  # of no use to the loss, and known to the agent that acted
        "rewards": np.ones((6, 1), np.float32),
        "terminated": np.array([[row[2]] for row in rows]),
        "truncated": np.zeros((6, 1), bool),
        "next_observations": np.stack([row[3] for row in rows])[:, None],
    }
    metrics, expected = agent.update(), twin.update(batch)
    assert metrics.pop("approx_kl") == pytest.approx(0.0, abs=1e-6)
    assert expected.pop("approx_kl") > 0.1
    assert metrics == pytest.approx(expected)


def test_a_training_that_diverges_is_noticed_where_gradients_are_computed():
    agent = make("torch", kind=A3C)
    batch = rollout(agent)
    batch["rewards"][:] = np.nan
    with pytest.raises(ExecutionError, match=r"training has diverged[\s\S]*a3c"):
        agent.rollout_gradients(batch)


def test_settings_that_cannot_be():
    with pytest.raises(ConfigError, match="normalize_observations"):
        make("torch", kind=A3C, normalize_observations=True)
    with pytest.raises(ConfigError, match="unknown setting 'epochs'"):
        make("torch", epochs=2)


def test_models_carry_the_name_of_their_agent(tmp_path):
    source, target = make("torch", kind=A3C), make("numpy", kind=A3C)
    source.update(rollouts.rollout(source))
    source.export_model(tmp_path / "model")
    target.import_model(tmp_path / "model")
    for path, value in source.executor.get_weights("actor-critic/policy").items():
        np.testing.assert_array_equal(target.get_weights()[path], value)
