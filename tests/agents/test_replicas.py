"""An update on several devices of one process is that of one device, to rounding, metrics included."""

import numpy as np
import pytest

from rlweave.agents.a2c import A2C
from rlweave.agents.appo import APPO
from rlweave.agents.dqn import DQN
from rlweave.agents.impala import IMPALA
from rlweave.agents.ppo import PPO
from rlweave.agents.pqn import PQN
from rlweave.agents.sac import SAC
from rlweave.agents.td3 import DDPG, TD3
from rlweave.algorithms.registry import algorithm_names, get_algorithm
from rlweave.backends.torch_.runtime import TorchBackend
from rlweave.errors import BuildError
from rlweave.settings.config import describe_settings
from rlweave.spaces import BoolBox, Dict, FloatBox, IntBox
from tests.agents.rollouts import SMALL, transitions

OBSERVATIONS = FloatBox(shape=(3,))
BOX = FloatBox(-1.0, 1.0, shape=(2,))
NEST = Dict(arm=BOX, gain=FloatBox(-2.0, 1.0))
GRU = [{"type": "gru", "units": 4}]
LOOPED = {"epochs": 2, "minibatches": 2, "normalize_rewards": True, "value_clip": 0.1}
CASES = {
    "a2c": (A2C, IntBox(3), {}),
    "ppo": (PPO, IntBox(3), LOOPED),
    "impala": (IMPALA, IntBox(3), {}),
    "appo": (APPO, IntBox(3), LOOPED),
    "pqn": (PQN, Dict(arm=IntBox(3), hand=BoolBox()), {"epochs": 2, "minibatches": 2}),
    "dqn": (DQN, IntBox(3), {}),
    "sac": (SAC, NEST, {}),
    "ddpg": (DDPG, BOX, {}),
    "td3": (TD3, BOX, {}),
    "recurrent ppo": (PPO, IntBox(3), {**LOOPED, "network": GRU}),
    "recurrent impala": (IMPALA, IntBox(3), {"network": GRU}),
    "recurrent dqn": (DQN, IntBox(3), {"network": GRU, "burn_in": 2, "unroll": 4}),
}
IN_ROLLOUTS = (A2C, IMPALA, PPO, PQN)


@pytest.fixture(autouse=True)
def two_names(monkeypatch):
    """Two names for the CPU, which torch takes for two devices."""
    monkeypatch.setattr(TorchBackend, "device_names", lambda self: ["cpu", "cpu:1"])


def make(name, backend, **more):
    kind, actions, settings = CASES[name]
    if issubclass(kind, IN_ROLLOUTS):
        common = {"network": SMALL, "rollout_steps": 6}
        common |= {} if kind is PQN else {"normalize_observations": True}
        number = {"num_envs": 4}
    else:
        common = {"network": SMALL, "batch_size": 8, "learning_starts": 8, "memory_capacity": 64}
        number = {}
    config = {**common, "max_grad_norm": 0.05, "lr": 0.01, **settings, **more}
    return kind(OBSERVATIONS, actions, config, backend=backend, seed=3, **number)


def batch_for(name, backend):
    agent = make(name, backend)
    if not isinstance(agent, IN_ROLLOUTS):
        return transitions(agent, 8)
    batch = agent.batch_space().sample((6, 4), rng=np.random.default_rng(0))
    if isinstance(agent, PQN):
        return batch
    # by a policy that is nearly the one that learns: one of three actions
    log_probs = -np.log(3.0) + 0.1 * np.tanh(batch["log_probs"])
    return {**batch, "rewards": np.tanh(batch["rewards"]), "log_probs": log_probs.astype(np.float32)}


def check_equal(one, many, batch, updates=3):
    start = one.executor.get_weights()
    for _ in range(updates):
        expected, found = one.learn(batch), many.learn(batch)
        assert list(found) == list(expected)
        for metric, value in expected.items():
            assert found[metric] == pytest.approx(value, rel=2e-4, abs=2e-6), metric
    state, other = one.state_dict(), many.state_dict()
    assert list(other) == list(state)
    for path, value in state.items():
        np.testing.assert_allclose(other[path], value, rtol=2e-5, atol=2e-6, err_msg=path)
    kernels = [path for path in start if path.endswith("/kernel") and "optimizer" not in path]
    assert max(np.abs(state[path] - start[path]).max() for path in kernels) > 1e-3


@pytest.mark.parametrize(
    ("name", "backend"),
    [
        *((name, "torch") for name in CASES if name not in ("td3", "recurrent dqn")),
        ("dqn", "jax"),
        pytest.param("ppo", "jax", marks=pytest.mark.slow),
        *(pytest.param(name, "jax", marks=pytest.mark.thorough) for name in CASES if name not in ("dqn", "ppo")),
    ],
)
def test_replicas_learn_as_one_device(name, backend):
    replicas = ["cpu", "cpu:1"] if backend == "torch" else 2
    one, many = make(name, backend), make(name, backend, replicas=replicas)
    check_equal(one, many, batch_for(name, backend))


@pytest.mark.parametrize(
    ("backend", "place"),
    [
        *(("torch", place) for place in ("host", "graph")),
        *(pytest.param("jax", place, marks=pytest.mark.thorough) for place in ("host", "graph")),
    ],
)
def test_batches_from_a_memory_are_split(backend, place):
    replicas = ["cpu", "cpu:1"] if backend == "torch" else 2
    agents = [make("dqn", backend, memory_place=place, **more) for more in ({}, {"replicas": replicas})]
    records = transitions(agents[0], 32)
    for agent in agents:
        agent.insert(records)
        agent.count_steps(32)
    check_equal(*agents, None)


def test_what_cannot_be_split_says_why():
    cases = [
        ("td3", "torch", {}, "a gradient inside a loop"),
        ("recurrent dqn", "torch", {}, "something else with a batch than with its parts"),
        ("recurrent ppo", "torch", {"minibatches": 4}, "a batch cannot be divided"),
    ]
    for name, backend, settings, why in cases:
        with pytest.raises(BuildError, match=why) as error:
            make(name, backend, replicas=["cpu", "cpu:1"], **settings).build()
        assert error.value.fix
        assert error.value.received


def test_only_agents_that_learn_by_gradients_of_a_batch_have_the_setting():
    without = {
        name
        for name in algorithm_names()
        if "agent.replicas" not in {row.key for row in describe_settings(get_algorithm(name).config_class)}
    }
    assert without == {"a3c", "es", "maml", "multi-agent", "pbt"}
