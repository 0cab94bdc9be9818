"""Trainings with text: the settings reach every environment, those of evaluations included."""

import gymnasium
import numpy as np
import pytest

from rlweave.algorithms.registry import get_algorithm
from tests.envs.test_hashed_text import Instructions

SETTINGS = {
    "ppo": {"rollout_steps": 8, "minibatches": 1, "network": [], "normalize_observations": True},
    "dqn": {"network": [], "learning_starts": 16, "batch_size": 16, "memory_capacity": 64},
}


@pytest.fixture
def env_id():
    gymnasium.register("tests/Instructions-v0", entry_point=Instructions)
    yield "tests/Instructions-v0"
    del gymnasium.registry["tests/Instructions-v0"]


@pytest.mark.parametrize("name", ["ppo", "dqn"])
def test_training_and_evaluation_hash_text_alike(name, env_id):
    spec = get_algorithm(name)
    config = spec.config_class.from_data(
        {"env": env_id, "num_envs": 2, "steps": 64, "text_tokens": 5, "text_buckets": 77, "backend": "torch",
         "evaluate_every": 32, "evaluation_episodes": 4, "agent": SETTINGS[name]}
    )  # fmt: skip
    trainer = spec.make_trainer(config, None)
    try:
        reports = list(trainer.train())
        assert np.isfinite(reports[-1]["evaluation_return"])
        order = trainer.agent.observation_space["order"]
        assert (order.shape, order.num_categories, order.layout) == ((5,), 77, "tokens")
        assert len(trainer.evaluate(3, seed=5).returns) == 3
    finally:
        trainer.close()
