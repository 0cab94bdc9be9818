"""Every agent gives actions of every space: inside, over the whole range, of the right dtype; in loops of one's own."""

import operator

import numpy as np
import pytest

from rlweave import ops
from rlweave.agents.a2c import A2C, A3C
from rlweave.agents.ape_x import ApeX
from rlweave.agents.appo import APPO
from rlweave.agents.dqn import DQN
from rlweave.agents.fused_dqn import FusedDQN
from rlweave.agents.fused_ppo import FusedPPO
from rlweave.agents.impala import IMPALA
from rlweave.agents.ppo import PPO
from rlweave.agents.pqn import PQN
from rlweave.components.action_boundary import to_environment
from rlweave.envs.in_graph import GraphEnvironment
from rlweave.extras.es_agent import ES
from rlweave.extras.maml_agent import MAML
from rlweave.spaces import FloatBox, IntBox
from rlweave.spaces.gymnasium_spaces import from_gymnasium, value_from_gymnasium, value_to_gymnasium
from rlweave.tree import flatten_tree, tree_map
from tests.envs.acting import COUNTABLE, EVERYTHING, SPACES, check_covered

OBSERVATIONS = FloatBox(-1, 1, shape=(2,))
FEED_FORWARD, RECURRENT = [{"type": "dense", "units": 4}], [{"type": "gru", "units": 4}]
ROWS = 1000


def make(kind, backend="numpy", network=FEED_FORWARD, space=None):
    """An agent of which only acting is built, and Gymnasium's space of its actions."""
    whole = SPACES[COUNTABLE if issubclass(kind, (DQN, PQN)) else EVERYTHING] if space is None else space
    settings = {DQN: {"epsilon": 1.0}, ApeX: {"epsilon_base": 1.0}, PPO: {"minibatches": 1}, APPO: {"minibatches": 1}}
    settings[PQN] = {"epsilon": 1.0, "minibatches": 1}
    settings = {"network": network, **settings.get(kind, {})}
    agent = kind(OBSERVATIONS, from_gymnasium(whole), settings, backend=backend, seed=0)
    # the others of evolution strategies write
    agent.build({"methods": ("act",) if kind is ES else agent.acting_methods, "static": {}})
    return agent, whole


def environments_actions(agent, whole, **options):
    """Actions of 1,000 environments at once, as Gymnasium has them."""
    observations = OBSERVATIONS.sample(ROWS, rng=np.random.default_rng(0))
    actions = agent.get_actions(observations, env_ids=range(ROWS), **options)
    assert agent.action_space.with_batch_rank().why_not(actions) is None
    return [value_to_gymnasium(whole, tree_map(operator.itemgetter(row), actions)) for row in range(ROWS)]


@pytest.mark.parametrize(
    ("kind", "backend", "network"),
    [
        *((kind, "numpy", FEED_FORWARD) for kind in (PPO, A2C, A3C, IMPALA, APPO, DQN, PQN, ApeX, ES)),
        *((kind, "onnx", FEED_FORWARD) for kind in (PPO, DQN, ES)),
        *((kind, backend, RECURRENT) for kind in (PPO, DQN) for backend in ("numpy", "onnx")),
        pytest.param(MAML, "torch", FEED_FORWARD, marks=pytest.mark.slow),  # it adapts where it acts
    ],
)
def test_actions_cover_every_space(kind, backend, network):
    agent, whole = make(kind, backend, network)
    check_covered(whole, environments_actions(agent, whole))
    greedy = environments_actions(agent, whole, explore=False)
    assert all(whole.contains(action) for action in greedy)


@pytest.mark.parametrize("name", sorted(SPACES[EVERYTHING].spaces))
def test_actions_cover_spaces_that_are_no_containers(name):
    space = SPACES[EVERYTHING][name]
    agent, _ = make(PPO, space=space)
    check_covered(space, environments_actions(agent, space))
    if name in SPACES[COUNTABLE].spaces:
        agent, _ = make(DQN, space=space)
        check_covered(space, environments_actions(agent, space))


class Overheard:
    """An executor; keeps the actions of what is learned from, or stored to be."""

    def __init__(self, executor, actions):
        self._heard, self._actions = executor, actions

    def __getattr__(self, name):
        return getattr(self._heard, name)

    def update(self, *batch, **options):
        self._actions += [item["actions"] for item in batch]
        return self._heard.update(*batch, **options)

    def insert(self, records):
        self._actions.append(records["actions"])
        self._heard.insert(records)


@pytest.mark.parametrize("network", [FEED_FORWARD, RECURRENT], ids=["feed-forward", "recurrent"])
@pytest.mark.parametrize("kind", [PPO, DQN])
def test_a_loop_of_ones_own_learns_from_the_actions_that_it_hands_on(kind, network):
    whole = SPACES[COUNTABLE if kind is DQN else EVERYTHING]
    settings = {
        PPO: {"rollout_steps": 4, "minibatches": 1, "epochs": 1},
        DQN: {"learning_starts": 4, "batch_size": 4, "memory_capacity": 32, "unroll": 2, "burn_in": 1, "n_step": 1},
    }
    agent = kind(OBSERVATIONS, from_gymnasium(whole), {"network": network, **settings[kind]}, backend="torch", seed=0)
    rng, learned_from = np.random.default_rng(0), []
    agent._executor = Overheard(agent.executor, learned_from)
    observations, taken = OBSERVATIONS.sample(9, rng=rng), []
    for t in range(8):
        action = agent.get_actions(observations[t])
        taken.append(action)
        # what the environment was given comes back
        again = value_from_gymnasium(whole, value_to_gymnasium(whole, action))
        agent.observe(observations[t], again, 1.0, False, False, observations[t + 1])
        if t % 4 == 3:
            assert np.isfinite(list(agent.update().values())).all()
    for path, box in agent.own_action_space.flatten().items():
        # PPO's are (T, 1, ...), DQN's (1, ...), or of recurrent networks (1, T, ...)
        parts = [flatten_tree(own)[path].reshape(-1, *box.shape) for own in learned_from]
        assert all(part.dtype == box.dtype for part in parts)
        own = np.concatenate(parts)
        assert box.with_batch_rank().contains(own)
        if network is FEED_FORWARD or kind is PPO:
            wanted = np.stack([flatten_tree(action)[path] for action in taken])
            leaf = next(leaf for leaf in agent._boundary.leaves if leaf.path == path)
            np.testing.assert_array_equal(to_environment(own, leaf).astype(wanted.dtype), wanted, err_msg=path)


class Keeper(GraphEnvironment):
    """Keeps the action that each environment was given last."""

    observation_space = OBSERVATIONS

    def __init__(self, whole, num_envs, scope="environment"):
        super().__init__(num_envs, None, scope)
        self.whole, self.action_space = whole, from_gymnasium(whole)

    def state_variables(self):
        leaves = self.action_space.flatten().items()
        return {path: (leaf.shape, "float32", 0.0) for path, leaf in leaves} | {"seen": ((2,), "float32", 0.0)}

    def initial(self):
        shapes = {name: shape for name, (shape, _, _) in self.state_variables().items()}
        return {name: ops.zeros((self.num_envs, *shape)) for name, shape in shapes.items()}

    def transition(self, state, actions):
        flat = flatten_tree(actions)
        taken = {path: ops.astype(flat[path], "float32") for path in self.action_space.flatten()}
        new = {**taken, "seen": ops.random.uniform((self.num_envs, 2))}
        return new, ops.ones((self.num_envs,)), ops.zeros((self.num_envs,), dtype="bool")

    def observe(self, state):
        return state["seen"]


@pytest.mark.parametrize("kind", [FusedPPO, FusedDQN])
def test_actions_inside_of_the_graph_cover_every_space(kind):
    whole = SPACES[COUNTABLE if kind is FusedDQN else EVERYTHING]
    settings = {
        FusedPPO: {"rollout_steps": 1, "minibatches": 1, "epochs": 1},
        FusedDQN: {"learning_starts": 1, "batch_size": 1000, "memory_capacity": 2000, "n_step": 1, "epsilon": 1.0},
    }
    if kind is FusedDQN:
        settings[kind] |= {"samples_per_step": 1.0, "target_update_interval": 1000}
    agent = kind(Keeper(whole, ROWS), {"network": FEED_FORWARD, **settings[kind]}, backend="torch", seed=0)
    metrics, _ = agent.train(1)
    assert np.isfinite(list(metrics.values())).all()
    state = {path.rpartition("environment/")[2]: value for path, value in agent.executor.state_dict().items()}
    space = agent.action_space
    kept = {path: state[path].astype(leaf.dtype) for path, leaf in space.flatten().items()}
    actions = [
        value_to_gymnasium(whole, space.unflatten({path: value[row] for path, value in kept.items()}))
        for row in range(ROWS)
    ]
    check_covered(whole, actions)


def test_dtypes_that_a_space_declares_are_kept():
    for space in (
        IntBox(-10, 11, dtype="int64"),
        FloatBox(0.1, 0.3, dtype="float64"),
        FloatBox(-8, 8, dtype="float16"),
    ):
        agent = PPO(OBSERVATIONS, space, {"network": FEED_FORWARD}, backend="numpy")
        agent.build({"methods": agent.acting_methods, "static": {}})
        action = agent.get_actions(np.zeros((100, 2), np.float32))
        assert space.with_batch_rank().why_not(action) is None
        assert agent.own_actions(action).dtype == ("int32" if isinstance(space, IntBox) else "float32")
