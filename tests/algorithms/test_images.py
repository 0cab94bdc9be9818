"""Trainings on images: which networks they get, and that Atari games are trained with nothing but their name."""

import numpy as np
import pytest

from rlweave.agents.a2c import A2C
from rlweave.agents.dqn import DQN
from rlweave.agents.ppo import PPO
from rlweave.algorithms.config import resolve_config
from rlweave.algorithms.registry import get_algorithm
from rlweave.components.network import nature_cnn
from rlweave.errors import ConfigError
from rlweave.spaces import Dict, FloatBox, IntBox

FRAMES = IntBox(0, 256, shape=(4, 84, 84), dtype="uint8", layout="frames_first")
SMALL = IntBox(0, 256, shape=(10, 5, 1), dtype="uint8", layout="channels_last")
UNKNOWN = IntBox(0, 256, shape=(210, 160, 3), dtype="uint8")
CONVOLUTIONS = [{"type": "conv2d", "filters": 4, "kernel_size": 8, "stride": 8, "activation": "relu"}]


@pytest.mark.parametrize("agent_class", [PPO, DQN, A2C])
def test_images_get_an_image_network(agent_class):
    config = agent_class(FRAMES, IntBox(6)).config
    assert config.image_network == nature_cnn()
    assert config.network == []
    assert agent_class(SMALL, IntBox(3)).config.image_network[0]["type"] == "conv2d"
    both = agent_class(Dict(image=FRAMES, speed=FloatBox()), IntBox(6)).config
    assert both.image_network == nature_cnn()
    assert len(both.network) == 2
    assert agent_class(FloatBox(shape=(3,)), IntBox(6)).config.image_network == []


@pytest.mark.parametrize("agent_class", [PPO, DQN, A2C])
def test_pixels_never_go_into_dense_layers_without_a_word(agent_class):
    with pytest.raises(ConfigError, match="image_layout=channels_last") as caught:
        agent_class(UNKNOWN, IntBox(6))
    assert "agent.image_network=[]" in caught.value.fix
    assert agent_class(UNKNOWN, IntBox(6), {"image_network": []}).config.image_network == []


def test_the_trunk_is_shared_on_images_unless_it_is_recurrent():
    assert PPO(FRAMES, IntBox(6)).config.shared_network
    assert not PPO(FloatBox(shape=(3,)), IntBox(6)).config.shared_network
    recurrent = {"network": [{"type": "lstm", "units": 4}]}
    assert not PPO(FRAMES, IntBox(6), {**recurrent, "minibatches": 1}).config.shared_network
    with pytest.raises(ConfigError, match="cannot share a recurrent network"):
        PPO(FRAMES, IntBox(6), {**recurrent, "shared_network": True})


def test_a_shared_trunk_is_one_set_of_weights_that_both_heads_move():
    agent = PPO(
        FloatBox(shape=(3,)),
        IntBox(2),
        {"shared_network": True, "network": [{"type": "dense", "units": 5}], "rollout_steps": 4, "minibatches": 1},
        num_envs=2,
        backend="torch",
    )
    rows = agent.rows_space().sample(8, rng=0)
    rows["advantages"] = np.zeros_like(rows["advantages"])  # so only the value moves anything
    gradients = agent.compute_gradients(rows)
    kernels = [path for path in gradients if path.endswith("kernel")]
    assert sorted(kernels) == [
        "ppo/policy/head/kernel",
        "ppo/policy/network/dense/kernel",
        "ppo/value-function/head/kernel",
    ]
    assert not gradients["ppo/policy/head/kernel"].any()
    assert gradients["ppo/policy/network/dense/kernel"].any()


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_values_of_next_observations_are_those_they_led_to(backend):
    pytest.importorskip(backend)
    space = IntBox(0, 256, shape=(8, 8, 1), dtype="uint8", layout="channels_last")
    settings = {"rollout_steps": 5, "minibatches": 1, "image_network": [{"type": "flatten"}], "gae_lambda": 0.0}
    agent = PPO(space, IntBox(2), {**settings, "network": [{"type": "dense", "units": 3}]}, num_envs=3, backend=backend)
    rng = np.random.default_rng(0)
    observations = rng.integers(0, 256, (6, 3, 8, 8, 1)).astype(np.uint8)
    batch = {
        "observations": observations[:5],
        "next_observations": observations[1:].copy(),
        "actions": np.zeros((5, 3), np.int32),
        "log_probs": np.full((5, 3), -0.7, np.float32),
        "rewards": np.zeros((5, 3), np.float32),
        "terminated": np.zeros((5, 3), np.bool_),
        "truncated": np.zeros((5, 3), np.bool_),
    }

    def targets_and_expected():
        rows = agent.postprocess(batch)
        following = agent.postprocess({**batch, "observations": batch["next_observations"]})["values"].reshape(5, 3)
        return rows["value_targets"].reshape(5, 3), 0.99 * following * ~batch["terminated"]

    np.testing.assert_allclose(*targets_and_expected(), rtol=1e-5)
    batch["terminated"][1, 0] = True  # and another episode begins
    batch["next_observations"][1, 0] = rng.integers(0, 256, (8, 8, 1))
    np.testing.assert_allclose(*targets_and_expected(), rtol=1e-5)
    batch["truncated"][2, 1] = True
    batch["next_observations"][2, 1] = rng.integers(0, 256, (8, 8, 1))
    np.testing.assert_allclose(*targets_and_expected(), rtol=1e-5)


def config_of(algorithm, **agent):
    spec = get_algorithm(algorithm)
    small = {"image_network": CONVOLUTIONS, "network": [{"type": "dense", "units": 16}], **agent}
    sets = {"env": "ALE/Pong-v5", "backend": "torch", "num_envs": 2, "steps": 64, "evaluate_every": 0}
    sets |= {f"agent.{key}": value for key, value in small.items()}
    return spec, resolve_config(spec.config_class, presets=spec.preset_of("ALE/Pong-v5"), sets=sets)


@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [
        ("ppo", {"rollout_steps": 16, "minibatches": 2, "epochs": 2}),
        ("dqn", {"learning_starts": 20, "memory_capacity": 50, "batch_size": 8}),
    ],
)
def test_pong_is_trained_with_its_name_alone(algorithm, settings):
    pytest.importorskip("ale_py")
    pytest.importorskip("torch")
    spec, config = config_of(algorithm, **settings)
    trainer = spec.make_trainer(config, None)
    try:
        before = trainer.agent.get_weights()
        *_, report = trainer.train()
        after = trainer.agent.get_weights()
        assert report["env_steps_sampled"] == 64
        assert report["gradient_steps"] > 0
        assert all(np.isfinite(value).all() for value in after.values())
        kernel = next(path for path in after if path.endswith("conv2d/kernel"))
        assert (before[kernel] != after[kernel]).any()
        assert trainer.agent.observation_space.layout == "frames_first"
    finally:
        trainer.close()


def test_published_settings_are_found_for_every_game():
    for algorithm, lr in (("ppo", {"type": "linear", "start": 2.5e-4, "end": 0.0}), ("dqn", 6.25e-5)):
        spec = get_algorithm(algorithm)
        preset = spec.preset_of("ALE/Breakout-v5")
        assert preset["agent"]["lr"] == lr
        resolve_config(spec.config_class, presets=preset, sets={"env": "ALE/Breakout-v5"})
        assert spec.preset_of("CartPole-v1") != preset
        assert spec.preset_of("Acrobot-v1") is None
