"""A graph on the host and one GPU gives what it gives on the CPU. Needs a GPU; CI has none."""

import numpy as np
import pytest

from rlweave.agents.dqn import DQN
from rlweave.agents.ppo import PPO
from rlweave.spaces import Dict, FloatBox, IntBox
from tests.agents.rollouts import SMALL, SMALL_CONV, rollout, transitions

OBSERVATIONS = Dict(
    vector=FloatBox(shape=(3,)), image=IntBox(0, 256, shape=(8, 8, 1), dtype="uint8", layout="channels_last")
)
NAMES = {"torch": "cuda:0", "jax": "gpu:0"}


def gpu_of(backend):
    if backend == "torch":
        torch = pytest.importorskip("torch")
        found = torch.cuda.is_available()
    else:
        jax = pytest.importorskip("jax")
        found = any(device.platform == "gpu" for device in jax.devices())
    if not found:
        pytest.skip("there is no GPU")
    return NAMES[backend]


def devices_of(executor):
    found = set()
    for path, cell in executor.store.cells.items():
        executor.store.release()
        if path not in executor.store.host_paths and not path.startswith("random"):
            value = cell.value
            found |= {str(value.device)} if hasattr(value, "untyped_storage") else {d.platform for d in value.devices()}
    return found


@pytest.mark.parametrize("rng", ["fast", "portable"])
@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_dqn_with_its_memory_on_the_host(backend, rng):
    gpu = gpu_of(backend)
    config = {
        "network": SMALL,
        "image_network": SMALL_CONV,
        "memory_capacity": 64,
        "learning_starts": 8,
        "batch_size": 8,
    }
    losses = []
    for device in ("cpu", gpu):
        agent = DQN(OBSERVATIONS, IntBox(3), config, backend=backend, seed=1).build({"device": device, "rng": rng})
        agent.insert(transitions(agent, 32))
        agent.count_steps(1000)
        losses.append([agent.update()["loss"] for _ in range(8)])
        assert devices_of(agent.executor) == {device if backend == "torch" else device.partition(":")[0]}
        observations = OBSERVATIONS.with_batch_rank().sample(5, rng=0)
        assert agent.get_actions(observations).shape == (5,)
        agent.load_state_dict(agent.state_dict())
        assert devices_of(agent.executor) == {device if backend == "torch" else device.partition(":")[0]}
    if rng == "portable":
        np.testing.assert_allclose(losses[0], losses[1], rtol=2e-2)


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_ppo_update(backend):
    gpu = gpu_of(backend)
    config = {"network": SMALL, "image_network": SMALL_CONV, "rollout_steps": 8, "epochs": 2, "minibatches": 2}
    weights = []
    batch = None
    for device in ("cpu", gpu):
        agent = PPO(OBSERVATIONS, IntBox(3), config, num_envs=4, backend=backend, seed=1)
        agent.build({"device": device, "rng": "portable"})
        batch = rollout(agent) if batch is None else batch
        metrics = agent.update(batch)
        assert all(np.isfinite(value) for value in metrics.values())
        weights.append(agent.get_weights())
    for path, value in weights[0].items():
        np.testing.assert_allclose(weights[1][path], value, atol=2e-3, err_msg=path)
