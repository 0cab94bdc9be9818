"""MAML: meta-gradients against finite differences in float64, laws of adaptation, errors."""

import numpy as np
import pytest

from rlweave.errors import ConfigError, ExecutionError
from rlweave.extras.maml_agent import MAML
from rlweave.spaces import FloatBox

BACKENDS = ["torch", "jax"]
SHOTS, TASKS, INNER_LR = 6, 3, 0.3
TINY = [{"type": "dense", "units": 3, "activation": "tanh"}]


def make(backend, problem, **settings):
    config = {"problem": problem, "network": TINY, "shots": SHOTS, "inner_lr": INNER_LR, "clip": 10.0, **settings}
    agent = MAML(FloatBox(shape=(1,)), FloatBox(shape=(1,)), config, tasks=TASKS, backend=backend, seed=2)
    rng = np.random.default_rng(5)
    agent.set_weights({path: _drawn(rng, value.shape) for path, value in sorted(agent.get_weights().items())})
    return agent


def _drawn(rng, shape):
    return rng.normal(scale=0.7, size=shape).astype(np.float32)


def regression_batch(seed=0, tasks=TASKS):
    rng = np.random.default_rng(seed)
    rows = [{name: _drawn(rng, (SHOTS, tasks, 1)) for name in ("observations", "targets")} for _ in range(2)]
    return {"support": rows[0], "query": rows[1]}


def reinforcement_batch(seed=0, tasks=TASKS):
    """Actions and their log-probabilities by any policy that acted: ratios are not 1."""
    rng = np.random.default_rng(seed)
    rows = [
        {
            "observations": _drawn(rng, (SHOTS, tasks, 1)),
            "actions": _drawn(rng, (SHOTS, tasks, 1)),
            "log_probs": _drawn(rng, (SHOTS, tasks)) - 1.0,
            "advantages": _drawn(rng, (SHOTS, tasks)),
        }
        for _ in range(2)
    ]
    return {"support": rows[0], "query": rows[1]}


BATCHES = {"regression": regression_batch, "reinforcement": reinforcement_batch}


# -- the oracle: the same net written in NumPy, float64, and derivatives by central differences -------------------


class Oracle:
    """Losses as functions of one vector of weights, by path in the order of their names."""

    def __init__(self, problem, weights, first_order=False, steps=1):
        self.problem, self.first_order, self.steps = problem, first_order, steps
        self.shapes = {path: value.shape for path, value in sorted(weights.items())}
        self.start = np.concatenate([np.ravel(weights[path]) for path in self.shapes]).astype(np.float64)

    def named(self, vector):
        parts, begin = {}, 0
        for path, shape in self.shapes.items():
            size = int(np.prod(shape))
            parts[path.rsplit("policy/", 1)[1]] = vector[begin : begin + size].reshape(shape)
            begin += size
        return parts

    def loss(self, vector, rows):
        weights = {name.replace("network/", ""): value for name, value in self.named(vector).items()}
        hidden = np.tanh(rows["observations"] @ weights["dense/kernel"] + weights["dense/bias"])
        mean = hidden @ weights["head/kernel"] + weights["head/bias"]
        if self.problem == "regression":
            return np.mean((mean - rows["targets"]) ** 2)
        log_std = weights["log_std"]
        z = (rows["actions"] - mean) / np.exp(log_std)
        log_probs = np.sum(-0.5 * z**2 - log_std - 0.5 * np.log(2 * np.pi), axis=-1)
        return -np.mean(np.exp(log_probs - rows["log_probs"]) * rows["advantages"])

    def adapted(self, vector, support):
        for _ in range(self.steps):
            vector = vector - INNER_LR * slopes(lambda v: self.loss(v, support), vector, 1e-5)
        return vector

    def meta_loss(self, vector, batch):
        losses = []
        for task in range(TASKS):
            support, query = (
                {k: v[:, task].astype(np.float64) for k, v in batch[part].items()} for part in ("support", "query")
            )
            losses.append(self.loss(self.adapted(vector, support), query))
        return np.mean(losses)

    def meta_gradient(self, batch):
        if not self.first_order:
            return slopes(lambda v: self.meta_loss(v, batch), self.start, 1e-4)
        total = np.zeros_like(self.start)
        for task in range(TASKS):
            support, query = (
                {k: v[:, task].astype(np.float64) for k, v in batch[part].items()} for part in ("support", "query")
            )
            total += slopes(lambda v, query=query: self.loss(v, query), self.adapted(self.start, support), 1e-5)
        return total / TASKS


def slopes(function, vector, step):
    """Central differences."""
    found = np.empty_like(vector)
    for index in range(len(vector)):
        shift = np.zeros_like(vector)
        shift[index] = step
        found[index] = (function(vector + shift) - function(vector - shift)) / (2 * step)
    return found


@pytest.mark.parametrize("problem", sorted(BATCHES))
@pytest.mark.parametrize(
    ("backend", "settings"),
    [("jax", {}), ("torch", {}), ("torch", {"first_order": True}), ("torch", {"inner_steps": 2})],
)
def test_the_meta_gradient_is_that_of_finite_differences(problem, backend, settings):
    agent, batch = make(backend, problem, **settings), BATCHES[problem]()
    oracle = Oracle(problem, agent.get_weights(), settings.get("first_order", False), settings.get("inner_steps", 1))
    gradients = agent.compute_gradients(batch)
    found = np.concatenate([np.ravel(gradients[path]) for path in oracle.shapes])
    expected = oracle.meta_gradient(batch)
    assert np.abs(expected).max() > 0.01
    np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-4 * np.abs(expected).max())
    np.testing.assert_allclose(np.mean(agent.losses(batch)[1]), oracle.meta_loss(oracle.start, batch), rtol=1e-4)


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_update_reports_how_far_the_policy_is_from_the_one_that_acted(backend):
    agent, batch = make(backend, "reinforcement"), reinforcement_batch()
    for task in range(TASKS):
        actions, stored, _ = agent.act(batch["support"]["observations"][:, task])
        batch["support"]["actions"][:, task], batch["support"]["log_probs"][:, task] = actions, stored["log_probs"]
    before = agent.state_dict()
    assert abs(agent.update(batch)["approx_kl"]) < 1e-6
    agent.load_state_dict(before)
    batch["support"]["log_probs"] -= 0.1
    assert agent.update(batch)["approx_kl"] == pytest.approx(np.exp(0.1) - 1.1, rel=1e-2)


def test_second_derivatives_make_a_difference():
    """Or the test above would not tell the two apart."""
    for problem, batch in BATCHES.items():
        weights = make("torch", problem).get_weights()
        exact, first_order = (Oracle(problem, weights, only).meta_gradient(batch()) for only in (False, True))
        assert np.abs(exact - first_order).max() > 0.05 * np.abs(exact).max()


@pytest.mark.parametrize("problem", sorted(BATCHES))
def test_updates_agree_between_backends(problem):
    agents = [make(backend, problem, lr=1e-2, epochs=2) for backend in BACKENDS]
    for seed in range(3):
        metrics = [agent.update(BATCHES[problem](seed)) for agent in agents]
        for name, value in metrics[0].items():
            assert value == pytest.approx(metrics[1][name], rel=1e-3, abs=1e-5), name
    weights = [agent.get_weights() for agent in agents]
    for path, value in weights[0].items():
        np.testing.assert_allclose(value, weights[1][path], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("backend", BACKENDS)
def test_adapted_policies_act_with_the_weights_of_the_inner_step(backend):
    agent, batch = make(backend, "regression"), regression_batch()
    oracle = Oracle("regression", agent.get_weights())
    agent.adapt(batch["support"])
    observations = batch["query"]["observations"][0]
    actions, _, _ = agent.act_adapted(observations, explore=False)
    untouched = agent.get_weights()
    for task in range(TASKS):
        rows = {name: value[:, task].astype(np.float64) for name, value in batch["support"].items()}
        adapted = oracle.adapted(oracle.start, rows)
        error = oracle.loss(
            adapted, {"observations": observations[task : task + 1], "targets": actions[task : task + 1]}
        )
        assert error < 1e-8
        before = agent.get_actions(observations[task : task + 1], explore=False)
        assert not np.allclose(before, actions[task : task + 1], atol=1e-3)
    for path, value in agent.get_weights().items():
        np.testing.assert_array_equal(value, untouched[path])


def test_gradients_from_outside_move_the_weights_as_an_update_does():
    batch = regression_batch()
    one, other = make("torch", "regression"), make("torch", "regression")
    one.update(batch)
    other.apply_gradients(other.compute_gradients(batch))
    for path, value in one.get_weights().items():
        np.testing.assert_allclose(value, other.get_weights()[path], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"backend": "tensorflow"}, "adaptation takes gradients"),
        ({"backend": "torch", "config": {"acting_backend": "numpy"}}, "adaptation takes gradients"),
        ({"backend": "torch", "config": {"network": [{"type": "lstm", "units": 4}]}}, "cannot be adapted"),
        ({"backend": "torch", "config": {"shots": 1}}, "shots"),
    ],
)
def test_what_cannot_be_is_refused(arguments, message):
    with pytest.raises(ConfigError, match=message):
        MAML(FloatBox(shape=(1,)), FloatBox(shape=(1,)), **arguments)


def test_single_steps_are_refused_with_a_way_out():
    agent = make("torch", "regression")
    with pytest.raises(ExecutionError, match="batches of tasks"):
        agent.observe(np.zeros(1), np.zeros(1), 0.0, False, False)
    with pytest.raises(ExecutionError, match="pass them to update"):
        agent.update()
