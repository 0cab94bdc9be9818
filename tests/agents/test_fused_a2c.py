"""A2C with its environments in the graph."""

from __future__ import annotations

import numpy as np
import pytest

from rlweave.agents.fused_a2c import FusedA2C
from rlweave.envs.in_graph import CartPole

SMALL = {"rollout_steps": 8, "network": [{"type": "dense", "units": 8}]}


def made(backend, **config):
    return FusedA2C(CartPole(4, 5), {**SMALL, **config}, backend=backend, seed=0).build({"rng": "portable"})


@pytest.mark.parametrize("backend", ["torch", pytest.param("jax", marks=pytest.mark.thorough)])
@pytest.mark.parametrize("normalize", [False, True])
def test_an_iteration_is_a_rollout_and_an_update_on_it(backend, normalize):
    """The same numbers as the two calls that placement local makes."""
    fused = made(backend, normalize_observations=normalize)
    apart = made(backend, normalize_observations=normalize)
    before = fused.state_dict()
    metrics, episodes = fused.train(2)
    for _ in range(2):
        batch = apart.executor.rollout()
        apart.executor.update({name: array for name, array in batch.items() if not name.startswith("episode_")})
    for path, value in fused.state_dict().items():
        np.testing.assert_allclose(apart.state_dict()[path], value, rtol=1e-4, atol=1e-5, err_msg=path)
    moved = [path for path, value in fused.state_dict().items() if not np.array_equal(before[path], value)]
    assert any("kernel" in path for path in moved)
    assert len(episodes) >= 12  # 64 steps, at most 5 in an episode
    assert metrics["gradient_steps"] == 2
    assert metrics["trained_samples"] == fused.env_steps == 64
