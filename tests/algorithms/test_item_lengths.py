"""Off policy, an item ends at an update or where the training pauses: where it ends changes nothing that is learned."""

import numpy as np
import pytest

from rlweave.algorithms.config import resolve_config
from rlweave.algorithms.registry import get_algorithm

DENSE = [{"type": "dense", "units": 8, "activation": "tanh"}]
SETTINGS = {
    "steps": 130,
    "backend": "torch",
    "seed": 3,
    "report_every": 40,
    "evaluate_every": 0,
    "checkpoint_every": 0,
    "tensorboard": False,
    "agent.network": DENSE,
    "agent.memory_capacity": 100,
    "agent.learning_starts": 30,
    "agent.batch_size": 8,
    "agent.samples_per_step": 1.0,
}
DQN = {"env": "CartPole-v1", "agent.n_step": 2, "agent.target_update_interval": 37}
SAC = {"env": "Pendulum-v1", "env_options.max_episode_steps": 40}
LSTM = {"agent.network": [{"type": "lstm", "units": 4}], "agent.burn_in": 0}
CASES = {
    "one environment": ("dqn", {}),
    "three environments": ("dqn", {"num_envs": 3}),
    "a ratio that is rounded": ("dqn", {"num_envs": 2, "agent.batch_size": 7, "agent.samples_per_step": 0.7}),
    "another": ("sac", {"agent.batch_size": 100, "agent.samples_per_step": 6, "agent.learning_starts": 60}),
    "several updates at once": ("dqn", {"agent.samples_per_step": 20, "agent.learning_starts": 1}),
    "the first transition comes late": ("dqn", {"agent.n_step": 25, "agent.learning_starts": 2}),
    "the first sequence comes late": ("dqn", {**LSTM, "agent.unroll": 16, "agent.batch_size": 16,
                                              "agent.samples_per_step": 4, "agent.learning_starts": 1}),
    "sequences of three environments": ("dqn", {**LSTM, "agent.unroll": 5, "agent.batch_size": 10, "num_envs": 3}),
    "a memory smaller than an item": ("dqn", {"agent.memory_capacity": 31, "agent.samples_per_step": 0.2}),
    "without priorities": ("dqn", {"agent.prioritized": False, "agent.samples_per_step": 1.1}),
    "drawn ahead": ("dqn", {"agent.prefetch": 2, "agent.samples_per_step": 2.3}),
    "two workers": ("dqn", {"num_envs": 2, "placement.workers": 2}),
    "two workers of two environments": ("sac", {"num_envs": 4, "placement.workers": 2, "agent.samples_per_step": 3.3}),
    "by turns": ("dqn", {"num_envs": 2, "alternating_sampling": True}),
}  # fmt: skip


def trained(algorithm, **sets):
    """The agent after a training, its rows without measured times, and how many steps each item had."""
    spec = get_algorithm(algorithm)
    own = DQN if algorithm == "dqn" else SAC
    trainer = spec.make_trainer(resolve_config(spec.config_class, sets={**SETTINGS, **own, **sets}), None)
    lengths = []
    for worker in trainer.parts.workers:
        sample = worker.sample
        worker.sample = lambda sample=sample: lengths.append((item := sample()).num_steps) or item
    try:
        rows = [{name: row[name] for name in row if "second" not in name} for row in trainer.train()]
        return trainer.agent.state_dict(), rows, lengths
    finally:
        trainer.close()


@pytest.mark.parametrize("case", CASES)
def test_where_items_end_changes_nothing(case):
    algorithm, sets = CASES[case]
    arrays, rows, lengths = trained(algorithm, **sets)
    assert rows[-1]["gradient_steps"] > 1
    single_arrays, single_rows, _ = trained(algorithm, **sets, steps_per_item=1)
    np.testing.assert_equal(arrays, single_arrays)
    np.testing.assert_equal(rows, single_rows)
    often = {"checkpoint_every": 7, "report_every": 11, "evaluate_every": 23, "evaluation_episodes": 1}
    asked_arrays, asked_rows, _ = trained(algorithm, **sets, **often)
    np.testing.assert_equal(arrays, asked_arrays)
    assert rows[-1]["gradient_steps"] == asked_rows[-1]["gradient_steps"]
    if case == "one environment":
        assert len(lengths) < 40
