"""Models: what acts and nothing else, and what an agent takes of them."""

import json
import os

import numpy as np
import pytest
from safetensors.numpy import load_file

from rlweave.agents import A3C, DQN, PPO
from rlweave.agents.policy_agents import PolicyAgents
from rlweave.errors import CheckpointError
from rlweave.extras.es_agent import ES
from rlweave.spaces import Dict, FloatBox, IntBox

OBSERVATIONS = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)


def make(kind=DQN, backend="torch", seed=0, observations=None, actions=None, **config):
    if kind is DQN:
        config = {"memory_capacity": 2_000, "learning_starts": 1, "batch_size": 8, **config}
    return kind(observations or FloatBox(shape=(4,)), actions or IntBox(2), config, backend=backend, seed=seed)


def observe(agent, steps=40):
    for row in OBSERVATIONS[:steps]:
        agent.observe(row, agent.get_actions(row), 1.0, False, False, row)


def test_a_model_is_what_acts_and_nothing_else(tmp_path):
    agent = make()
    observe(agent)
    agent.update()
    path = agent.export_model(tmp_path / "model")
    assert sorted(file.name for file in path.iterdir()) == ["model.json", "weights.safetensors"]
    weights = load_file(path / "weights.safetensors")
    assert set(weights) == {name.removeprefix("dqn/") for name in agent.get_weights()}
    assert all(name.startswith("policy/") for name in weights)
    umask = os.umask(0)
    os.umask(umask)
    assert {file.stat().st_mode & 0o777 for file in path.iterdir()} == {0o666 & ~umask}
    described = json.loads((path / "model.json").read_text(), parse_constant=lambda name: pytest.fail(name))
    assert described["agent"] == "dqn"
    assert described["settings"]["memory_capacity"] == 2_000
    assert described["observation_space"] == agent.observation_space.to_json()


def test_importing_changes_what_acts_and_nothing_else(tmp_path):
    source, target = make(seed=1), make(memory_capacity=77)
    observe(source)
    source.update()
    observe(target, 9)
    target.update()
    before, counters = target.state_dict(), target.counters()
    target.import_model(source.export_model(tmp_path / "model"))
    after = target.state_dict()
    changed = {path.split("/")[1] for path in before if not np.array_equal(before[path], after[path])}
    assert changed == {"policy", "target-policy"}
    assert target.counters() == counters
    np.testing.assert_array_equal(
        target.get_actions(OBSERVATIONS, explore=False), source.get_actions(OBSERVATIONS, explore=False)
    )
    for path, value in target.executor.get_weights("dqn/target-policy").items():
        np.testing.assert_array_equal(value, after[path.replace("target-policy", "policy")])


def dense(units=64, activation="tanh"):
    return [{"type": "dense", "units": units, "activation": activation}]


@pytest.mark.parametrize(
    ("kind", "its", "mine", "named"),
    [
        (PPO, {"network": dense()}, {"network": dense(activation="relu")}, "activation: tanh, .* relu"),
        (PPO, {"normalize_observations": True}, {}, "normalization: running_normalization, .* nothing"),
        (PPO, {}, {"normalize_observations": True}, "normalization: nothing, .* running_normalization"),
        (PPO, {"network": dense(32)}, {"network": dense(64)}, "units: 32, .* 64"),
        (DQN, {"dueling": True}, {"dueling": False}, "policy: dueling"),
        (
            PPO,
            {"network": [{"type": "gru", "units": 8}], "minibatches": 1},
            {"network": [{"type": "lstm", "units": 8}], "minibatches": 1},
            "policy/network/lstm: nothing",
        ),
    ],
)
def test_settings_that_change_what_weights_mean_are_compared(kind, its, mine, named, tmp_path):
    path = make(kind, "numpy", **its).export_model(tmp_path / "model")
    target = make(kind, "numpy", **mine)
    before = target.get_weights()
    with pytest.raises(CheckpointError, match=rf"mean something else[\s\S]*({named})[\s\S]*check_settings=False"):
        target.import_model(path)
    for name, value in target.get_weights().items():
        np.testing.assert_array_equal(value, before[name])


def test_weights_of_the_same_shapes_are_taken_on_purpose(tmp_path):
    source, target = make(PPO, "numpy", network=dense()), make(PPO, "numpy", network=dense(activation="relu"), seed=1)
    target.import_model(source.export_model(tmp_path / "model"), check_settings=False)
    for name, value in source.get_weights().items():
        np.testing.assert_array_equal(target.get_weights()[name], value)
    with pytest.raises(CheckpointError, match="does not fit"):
        make(PPO, "numpy", network=dense(9)).import_model(tmp_path / "model", check_settings=False)


@pytest.mark.parametrize(
    ("kind", "mine"),
    [
        (PPO, {"lr": 0.5, "epochs": 2, "clip": 0.3, "discount": 0.5, "optimizer": {"type": "sgd"}}),
        (DQN, {"memory_capacity": 50, "n_step": 1, "double": False, "prioritized": False, "batch_size": 4}),
        (A3C, {"rollout_steps": 3, "entropy_coefficient": 0.5}),
        (ES, {"sigma": 0.5, "pairs": 3, "noise_size": 100_000}),
    ],
)
def test_settings_of_learning_are_no_obstacle(kind, mine, tmp_path):
    source, target = make(kind, "numpy" if kind is ES else "torch", seed=1), make(kind, "numpy", **mine)
    target.import_model(source.export_model(tmp_path / "model"))
    np.testing.assert_array_equal(
        target.get_actions(OBSERVATIONS, explore=False), source.get_actions(OBSERVATIONS, explore=False)
    )


def test_a_model_of_another_agent_or_of_other_spaces_is_refused(tmp_path):
    path = make(PPO, "numpy").export_model(tmp_path / "model")
    for target, named in (
        (make(DQN, "numpy"), "another agent"),
        (make(PPO, "numpy", actions=IntBox(3)), "another action_space"),
        (make(PPO, "numpy", observations=FloatBox(-1, 1, shape=(4,))), "another observation_space"),
        (make(PPO, "numpy", observations=Dict(a=FloatBox(shape=(4,)))), "another observation_space"),
    ):
        with pytest.raises(CheckpointError, match=named):
            target.import_model(path)


def test_a_model_is_replaced_wholly_and_nothing_else_is(tmp_path):
    first, second = make(PPO, "numpy"), make(PPO, "numpy", seed=1)
    path = first.export_model(tmp_path / "model")
    second.export_model(path)
    assert [file.name for file in tmp_path.iterdir()] == ["model"]
    first.import_model(path)
    for name, value in second.get_weights().items():
        np.testing.assert_array_equal(first.get_weights()[name], value)
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(CheckpointError, match="something else"):
        first.export_model(tmp_path)
    assert (tmp_path / "mine.txt").read_text() == "mine"


def test_several_policies_are_one_model(tmp_path):
    def agents(seed, **more):
        return PolicyAgents({"a": make(PPO, "numpy", seed=seed), "a/b": make(DQN, "numpy", seed=seed), **more})

    source, target = agents(1), agents(2)
    path = source.export_model(tmp_path / "model")
    target.import_model(path)
    for policy, agent in source.items():
        for name, value in agent.get_weights().items():
            np.testing.assert_array_equal(target[policy].get_weights()[name], value)
    with pytest.raises(CheckpointError, match="other policies"):
        agents(3, c=make(PPO, "numpy")).import_model(path)


def test_what_cannot_be_read_is_named(tmp_path):
    agent = make(PPO, "numpy")
    path = agent.export_model(tmp_path / "model")
    written = (path / "model.json").read_text()
    for text, named in (
        (written[:-9], "cannot read the model"),
        (written.replace('"version": 2', '"version": 9'), "9"),
    ):
        (path / "model.json").write_text(text)
        with pytest.raises(CheckpointError, match=named):
            agent.import_model(path)
    with pytest.raises(CheckpointError, match="cannot read the model"):
        agent.import_model(tmp_path / "nowhere")
