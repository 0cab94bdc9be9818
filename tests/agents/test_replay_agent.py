"""What agents with a replay memory share: which methods there are, and where priorities go."""

import numpy as np
import pytest

from rlweave.agents.appo import APPO
from rlweave.agents.dqn import DQN
from rlweave.agents.fused_dqn import FusedDQN
from rlweave.agents.replay_agent import ReplayGraph
from rlweave.components import ReplayMemory
from rlweave.envs.in_graph import CartPole
from rlweave.spaces import FloatBox, IntBox
from tests.agents.rollouts import SMALL, transitions

METHODS = ("insert", "update", "update_from", "draw_batch", "update_drawn")


class Graph(ReplayGraph):
    def learn(self, records, weights):
        return records, weights


@pytest.mark.parametrize(
    ("memory", "prefetch", "offered"),
    [
        (True, False, {"insert", "update", "update_from"}),
        (True, True, set(METHODS)),
        (False, False, {"update_from"}),
        (False, True, {"update_from"}),
    ],
)
def test_methods(memory, prefetch, offered):
    graph = Graph(ReplayMemory(4) if memory else None, prefetch, "graph")
    assert {name for name in METHODS if graph.offers(name)} == offered


def prioritized(**settings):
    config = {"network": SMALL, "memory_capacity": 32, "learning_starts": 8, "batch_size": 8, "prioritized": True}
    agent = DQN(FloatBox(shape=(3,)), IntBox(3), {**config, "n_step": 1, **settings}, backend="torch", seed=3)
    agent.executor.insert(transitions(agent, 16))
    return agent


def priorities(agent):
    """Of the 16 records, as the sum tree has them."""
    (nodes,) = (value for path, value in agent.executor.state_dict().items() if "sum-tree" in path)
    return np.array(nodes)[len(nodes) // 2 :][:16]


def test_an_update_gives_the_records_that_it_drew_their_priorities():
    agent = prioritized()
    before = priorities(agent)
    agent.executor.update(batch_size=8)
    changed = priorities(agent) != before
    assert 1 <= changed.sum() <= 8
    agent.executor.update_from(transitions(agent, 8))
    np.testing.assert_array_equal(priorities(agent) != before, changed)


def test_a_batch_that_was_drawn_before_gives_priorities_to_its_records():
    agent = prioritized(prefetch=1)
    before = priorities(agent)
    records, indices, weights = agent.executor.draw_batch(batch_size=8)
    np.testing.assert_array_equal(priorities(agent), before)
    agent.executor.update_drawn(records, indices, weights)
    assert set(np.flatnonzero(priorities(agent) != before)) == set(np.asarray(indices))


@pytest.mark.parametrize("kind", ["dqn", "appo"])
def test_target_networks_are_not_trainable(kind):
    if kind == "dqn":
        agent = DQN(FloatBox(shape=(3,)), IntBox(3), {"network": SMALL}, backend="numpy")
    else:
        settings = {"network": SMALL, "rollout_steps": 4, "minibatches": 1}
        agent = APPO(FloatBox(shape=(3,)), IntBox(3), settings, num_envs=4, backend="numpy")
    cells = agent.executor.store.cells
    targets = [cell for path, cell in cells.items() if path.startswith(f"{kind}/target-policy/")]
    assert targets
    assert not any(cell.trainable for cell in targets)
    assert all(cell.trainable for path, cell in cells.items() if path.startswith(f"{kind}/policy/"))


def test_only_the_network_of_a_fused_agent_is_trainable():
    settings = {"network": SMALL, "batch_size": 8, "learning_starts": 20, "memory_capacity": 64}
    agent = FusedDQN(CartPole(4, 6), settings, backend="torch").build({"rng": "portable"})
    cells = agent.executor.store.cells
    root = agent.executor.root.path
    trained = {path for path, cell in cells.items() if cell.trainable}
    assert trained == {path for path in cells if path.startswith(f"{root}/policy/")}
    assert f"{root}/epsilon/env_steps" in cells
