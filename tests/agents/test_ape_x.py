"""Ape-X: TD errors and updates against plain NumPy, the target network by trained samples, an epsilon per worker."""

import numpy as np
import pytest

from rlweave.agents.ape_x import ApeX
from rlweave.errors import ConfigError, ExecutionError, SpaceError
from rlweave.spaces import FloatBox, IntBox

BACKENDS = ("torch", "jax", "tensorflow")
SETTINGS = {
    "network": [{"type": "dense", "units": 8, "activation": "tanh"}],
    "optimizer": {"type": "sgd"},
    "lr": 0.1,
    "max_grad_norm": None,
    "n_step": 2,
    "discount": 0.9,
}


def agent(backend="torch", **settings):
    return ApeX(FloatBox(shape=(3,)), IntBox(4), {**SETTINGS, **settings}, backend=backend, seed=3).build()


def records(rows=6, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "observations": rng.normal(size=(rows, 3)).astype(np.float32),
        "actions": rng.integers(0, 4, rows).astype(np.int32),
        "rewards": rng.normal(size=rows).astype(np.float32),
        "terminated": rng.random(rows) < 0.3,
        "discounts": np.full(rows, 0.81, np.float32),
        "next_observations": rng.normal(size=(rows, 3)).astype(np.float32),
    }


def expected_errors(values, next_values, target_values, batch):
    """One transition after the other."""
    errors = []
    for i in range(len(batch["rewards"])):
        chosen = values[i, batch["actions"][i]]
        bootstrap = 0.0 if batch["terminated"][i] else target_values[i, next_values[i].argmax()]
        errors.append(abs(batch["rewards"][i] + batch["discounts"][i] * bootstrap - chosen))
    return np.array(errors)


@pytest.mark.parametrize("acting", [None, "numpy"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_priorities_are_td_errors_by_the_weights_acted_on(backend, acting):
    learner, batch = agent(backend, acting_backend=acting), records()
    learner.learn_weighted(batch, np.ones(6, np.float32))  # now the target network is another one
    values = learner.executor.q_values(batch["observations"])[0]
    following = learner.executor.q_values(batch["next_observations"])[0]
    np.testing.assert_allclose(
        learner.priorities(batch), expected_errors(values, following, following, batch), rtol=1e-4, atol=1e-5
    )
    # and so they are of an agent that only acts, on NumPy alone
    worker = ApeX(FloatBox(shape=(3,)), IntBox(4), SETTINGS, backend="numpy", seed=9)
    worker.build({"methods": worker.acting_methods, "static": {}})
    worker.set_weights(learner.get_weights())
    np.testing.assert_allclose(worker.priorities(batch), learner.priorities(batch), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_update_weighs_transitions_and_finds_their_errors(backend):
    learner, batch = agent(backend, target_update_samples=1_000), records()
    weights = np.array([1.0, 0.5, 0.0, 0.25, 1.0, 0.1], np.float32)
    values = learner.executor.q_values(batch["observations"])[0]
    following = learner.executor.q_values(batch["next_observations"])[0]
    metrics, errors = learner.learn_weighted(batch, weights)
    expected = expected_errors(values, following, following, batch)  # the target network begins as a copy
    np.testing.assert_allclose(errors, expected, rtol=1e-4, atol=1e-5)
    huber = np.where(expected <= 1, 0.5 * expected**2, expected - 0.5)
    np.testing.assert_allclose(metrics["loss"], np.mean(weights * huber), rtol=1e-4)
    # a second update's targets come from the network as it was, chosen by the one as it is
    values, online = (learner.executor.q_values(batch[key])[0] for key in ("observations", "next_observations"))
    assert not np.allclose(online, following)
    np.testing.assert_allclose(
        learner.learn_weighted(batch, weights)[1],
        expected_errors(values, online, following, batch),
        rtol=1e-4,
        atol=1e-5,
    )


def test_a_transition_of_weight_0_teaches_nothing():
    one, other = agent(), agent()
    batch = records()
    changed = {**batch, "rewards": batch["rewards"] + np.array([0, 0, 5, 0, 0, 0], np.float32)}
    weights = np.array([1, 1, 0, 1, 1, 1], np.float32)
    one.learn_weighted(batch, weights)
    other.learn_weighted(changed, weights)
    for path, value in one.get_weights().items():
        np.testing.assert_array_equal(value, other.get_weights()[path])


def target_is_online(learner):
    weights = learner.executor.get_weights()
    online = {path: value for path, value in weights.items() if "/policy/" in path}
    assert online
    return all(
        np.array_equal(value, weights[path.replace("/policy/", "/target-policy/")]) for path, value in online.items()
    )


def test_the_target_network_is_copied_by_trained_samples_whatever_the_environment_steps():
    learner = agent(target_update_samples=16)
    learner.count_steps(10_000)
    copied = []
    for _ in range(9):
        learner.update(records())
        copied.append(target_is_online(learner))
    # 6, 12, 18, ..., 54 samples: 16, 32 and 48 are crossed at 18, 36 and 48
    assert copied == [False, False, True, False, False, True, False, True, False]
    again = agent(target_update_samples=16)
    again.load_state_dict(learner.state_dict())
    again.load_counters(learner.counters())
    assert (again.trained_samples, again.env_steps) == (54, 10_000)
    again.update(records())
    again.update(records())
    assert target_is_online(again), "64 are crossed at 66"


def test_eight_environments_have_eight_epsilons_and_evaluation_is_greedy():
    explorer = agent()
    ladder = explorer.epsilons(0, 8, 8)
    np.testing.assert_allclose(ladder, [0.4 ** (1 + i) for i in range(8)], rtol=1e-6)
    assert len(set(ladder.tolist())) == 8
    np.testing.assert_array_equal(explorer.epsilons(4, 2, 8), ladder[4:6])
    observations = np.tile(np.array([[0.3, -0.2, 0.9]], np.float32), (8, 1))
    best = explorer.executor.q_values(observations)[0].argmax(-1)
    acted = np.stack([explorer.act_with(observations, ladder) for _ in range(2_000)])
    others = (acted != best).mean(0)
    np.testing.assert_allclose(others, 0.75 * ladder, atol=0.03)  # a random action is the best one in 1 of 4
    assert others[0] > others[1] > others[2]
    for _ in range(50):
        np.testing.assert_array_equal(explorer.get_actions(observations, explore=False), best)


def test_what_needs_a_memory_is_refused():
    learner = agent()
    with pytest.raises(ExecutionError, match="the memory of Ape-X is in shards"):
        learner.update()
    with pytest.raises(ExecutionError, match="the memory of Ape-X is in shards"):
        learner.observe(np.zeros(3, np.float32), 0, 1.0, False, False, np.zeros(3, np.float32))
    assert not learner.ready()
    with pytest.raises(ConfigError, match="takes no recurrent networks"):
        agent(network=[{"type": "lstm", "units": 4}])
    with pytest.raises(ConfigError, match="unknown setting 'epsilon'"):
        agent(epsilon=0.1)


def test_what_it_shares_with_dqn_names_ape_x_in_errors():
    with pytest.raises(SpaceError, match=r"actions that can be counted\n *where: *ape-x"):
        ApeX(FloatBox(shape=(3,)), FloatBox(-1, 1, shape=(1,)), SETTINGS, backend="numpy")
