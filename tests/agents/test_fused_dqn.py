"""DQN with its environments and its memory in the graph."""

from __future__ import annotations

import numpy as np
import pytest

from rlweave.agents.fused_dqn import FusedDQN
from rlweave.agents.fused_replay import rounds
from rlweave.components import NStepAccumulator
from rlweave.components.memories.graph_n_step import NStepWindow
from rlweave.envs.in_graph import CartPole
from rlweave.errors import BuildError, ConfigError
from rlweave.spaces import BoolBox, Dict, FloatBox, IntBox
from rlweave.testing import ComponentTest
from tests.graph.toys import BACKENDS

N = 3
STEPS = Dict(
    observations=Dict(x=FloatBox(shape=(2,))),
    actions=IntBox(4),
    rewards=FloatBox(),
    terminated=BoolBox(),
    truncated=BoolBox(),
    next_observations=Dict(x=FloatBox(shape=(2,))),
).with_batch_rank(N)
SMALL = {
    "network": [{"type": "dense", "units": 8, "activation": "relu"}],
    "batch_size": 8,
    "samples_per_step": 4.0,
    "learning_starts": 20,
    "memory_capacity": 64,
    "target_update_interval": 16,
}


def made(backend="jax", **config):
    return FusedDQN(CartPole(4, 6), {**SMALL, **config}, backend=backend).build({"rng": "portable"})


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("n_step", [1, 3, 4])
def test_the_window_makes_the_transitions_of_the_accumulator(backend, n_step):
    window = ComponentTest(NStepWindow(n_step, 0.9, N), {"steps": STEPS}, backend=backend).executor
    accumulator, rng = NStepAccumulator(n_step, 0.9, N), np.random.default_rng(0)
    ours, theirs = [], []
    for step in range(40):
        steps = STEPS.sample(rng=rng)
        steps["terminated"] = rng.random(N) < 0.15
        steps["truncated"] = (rng.random(N) < 0.15) & ~steps["terminated"]
        if step >= 40 - n_step:  # what is left in the accumulator comes out
            steps["truncated"] = ~steps["terminated"]
        complete = window.push(steps)
        if step >= n_step - 1:
            ours += _rows(complete)
        theirs += _rows(accumulator.add(*(steps[key] for key in STEPS_ORDER)))
    theirs = theirs[: -N * (n_step - 1)] if n_step > 1 and len(theirs) > len(ours) else theirs
    assert len(ours) == (40 - n_step + 1) * N
    for row in ours:
        assert any(np.allclose(row, other, rtol=1e-5, atol=1e-6) for other in theirs)


STEPS_ORDER = ("observations", "actions", "rewards", "terminated", "truncated", "next_observations")


def _rows(records):
    parts = [
        records["observations"]["x"],
        records["actions"][:, None],
        records["rewards"][:, None],
        records["terminated"][:, None],
        records["discounts"][:, None],
        records["next_observations"]["x"],
    ]
    return list(np.concatenate([np.asarray(part, np.float64) for part in parts], axis=1))


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_two_iterations_are_one_and_one(backend):
    apart, together = (made(backend, target_update_interval=10_000) for _ in range(2))
    episodes = apart.train(1)[1] + apart.train(1)[1]
    metrics, others = together.train(2)
    assert others == episodes
    assert apart.env_steps == together.env_steps == (5 + 2) * 4 + 2 * apart.steps_per_iteration
    assert metrics["gradient_steps"] == 2 * apart.updates
    for path, value in apart.state_dict().items():
        np.testing.assert_allclose(together.state_dict()[path], value, rtol=1e-4, atol=1e-5, err_msg=path)


@pytest.mark.parametrize("other", ["jax", "tensorflow"])
def test_backends_agree(other):
    observations = []
    for backend in ("torch", other):
        agent = made(backend)
        agent.train(3)
        observations.append(agent.state_dict())
    for path, value in observations[0].items():
        np.testing.assert_allclose(observations[1][path], value, rtol=1e-3, atol=1e-4, err_msg=path)


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_steps_are_counted_and_the_target_follows(backend):
    agent = made(backend)
    start = agent.executor.get_weights()
    assert agent.steps_of_next_call() == 7 * 4 + agent.iterations_per_call * agent.steps_per_iteration
    before = agent.env_steps
    expected = agent.steps_of_next_call()
    agent.train()
    assert agent.env_steps - before == expected
    assert agent.steps_of_next_call() == 16
    weights = agent.executor.get_weights()
    for path, value in weights.items():
        if path.startswith("dqn/target-policy"):
            online = weights[path.replace("target-policy", "policy")]
            np.testing.assert_array_equal(value, online)
        if path.startswith("dqn/policy"):
            assert not np.array_equal(value, start[path]), f"{path} did not learn"
    assert weights["dqn/epsilon/env_steps"] == agent.env_steps
    assert weights["dqn/memory/filled"] == agent.env_steps - 2 * 4  # all but those of the first, unfilled window
    if backend == "jax":
        source = agent.executor.program("train", {"iterations": agent.iterations_per_call}).source
        assert source.count("to_host") == 0


def test_the_count_of_steps_stops_where_int32_ends():
    agent = made("torch")
    for before, after in ((2**31 - 9, 2**31 - 1), (2**31 - 1, 2**31 - 1), (2**31 - 10, 2**31 - 2)):
        agent.executor.set_weights({"dqn/epsilon/env_steps": np.int32(before)})
        agent.executor.collect(steps=2)
        assert agent.executor.get_weights()["dqn/epsilon/env_steps"] == after


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_one_step_transitions_need_no_window(backend):
    agent = made(backend, n_step=1)
    assert agent.steps_of_next_call() == 5 * 4 + agent.iterations_per_call * agent.steps_per_iteration
    agent.train()
    weights = agent.executor.get_weights()
    assert weights["dqn/memory/filled"] == agent.env_steps == weights["dqn/epsilon/env_steps"]


def test_rounds_are_whole():
    assert rounds(1.0) == (1, 1)
    assert rounds(0.1) == (10, 1)
    with pytest.raises(ConfigError, match="whole number of updates"):
        rounds(1.4)
    with pytest.raises(ConfigError, match="samples_per_step"):
        FusedDQN(CartPole(4), {"samples_per_step": 5.0, "batch_size": 8})


@pytest.mark.parametrize("arguments", [(0, 0.9, 2), (2, 0.9, 0), (1.5, 0.9, 2)])
def test_a_window_needs_steps_and_environments(arguments):
    with pytest.raises(BuildError, match="whole number above zero"):
        NStepWindow(*arguments)


def test_training_is_one_iteration_unless_more_are_asked_for():
    agents = [made("torch", n_step=1) for _ in range(2)]
    for agent in agents:
        agent.executor.collect(steps=8)
    agents[0].executor.train()
    agents[1].executor.train(iterations=1)
    one, other = (agent.executor.get_weights() for agent in agents)
    for path, value in one.items():
        np.testing.assert_array_equal(value, other[path], err_msg=path)
