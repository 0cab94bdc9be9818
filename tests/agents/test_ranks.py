"""Several ranks on parts of a batch learn as one agent on all of it, to rounding, and stay equal bit for bit."""

import numpy as np
import pytest

from rlweave import ops
from rlweave.agents.a2c import A2C, A3C
from rlweave.agents.appo import APPO
from rlweave.agents.dqn import DQN
from rlweave.agents.impala import IMPALA
from rlweave.agents.minibatches import RowMinibatches
from rlweave.agents.ppo import PPO
from rlweave.agents.pqn import PQN
from rlweave.agents.sac import SAC
from rlweave.agents.td3 import DDPG, TD3
from rlweave.errors import ConfigError
from rlweave.flow.collective import local_collectives, run_in_step
from rlweave.graph import graph_fn
from rlweave.spaces import FloatBox, IntBox
from rlweave.tree import tree_map
from tests.agents.rollouts import SMALL, rollout, transitions

OBSERVATIONS = FloatBox(shape=(3,))
UPDATES = 3


class InOrder(RowMinibatches):
    """Minibatches of neighbouring steps: minibatch k of each rank is its part of minibatch k of the whole."""

    @graph_fn(spaces="_shuffled_space")
    def shuffled(self, column):
        size = column.shape[0] // self.count
        return ops.astype(ops.reshape(ops.arange(self.count * size), (self.count, size)), "int32")


class PPOInOrder(PPO):
    minibatch_class = InOrder


class APPOInOrder(APPO):
    minibatch_class = InOrder


class PQNInOrder(PQN):
    minibatch_class = InOrder


ON_POLICY = {
    "a2c": (A2C, {}),
    "ppo": (PPOInOrder, {"epochs": 2, "minibatches": 3, "normalize_rewards": True, "value_clip": 0.1}),
    "impala": (IMPALA, {}),
    "appo": (APPOInOrder, {"epochs": 2, "minibatches": 3}),
    "pqn": (PQNInOrder, {"epochs": 2, "minibatches": 3}),
}
OFF_POLICY = {
    "dqn": (DQN, IntBox(3), {}),
    "recurrent": (DQN, IntBox(3), {"network": [{"type": "gru", "units": 4}], "burn_in": 1, "unroll": 4}),
    "ddpg": (DDPG, FloatBox(-1.0, 1.0, shape=(2,)), {}),
    "td3": (TD3, FloatBox(-1.0, 1.0, shape=(2,)), {"target_noise": 0.0}),
    # next to no noise, which each rank draws for itself, and no optimizer that makes much of it
    "sac": (
        SAC,
        FloatBox(-1.0, 1.0, shape=(2,)),
        {"temperature": 1e-6, "learn_temperature": False, "optimizer": {"type": "sgd"}, "lr": 0.3},
    ),
}


def make_on_policy(name, backend, envs):
    kind, settings = ON_POLICY[name]
    config = {"network": SMALL, "rollout_steps": 6, "max_grad_norm": 0.05, **settings}
    if "normalize_observations" in kind.config_class.model_fields:
        config["normalize_observations"] = True
    return kind(OBSERVATIONS, IntBox(3), config, num_envs=envs, backend=backend, seed=3)


def make_off_policy(name, backend, rows):
    kind, actions, settings = OFF_POLICY[name]
    config = {"network": SMALL, "batch_size": rows, "learning_starts": 1, "memory_capacity": 64, "max_grad_norm": 0.05}
    return kind(OBSERVATIONS, actions, {**config, **settings}, backend=backend, seed=3)


def parts_of(batch, sizes, axis):
    """A batch cut along an axis."""
    ends = np.cumsum(sizes)
    before = (slice(None),) * axis
    return [
        tree_map(lambda x, b=end - size, e=end: x[(*before, slice(b, e))].copy(), batch)
        for size, end in zip(sizes, ends, strict=True)
    ]


def quiet(agent):
    """SAC's agent with a deviation of exp(-20), as each rank draws its own noise; others stay."""
    if isinstance(agent, SAC):
        bias = agent.executor.get_weights()["sac/policy/head/bias"]
        agent.set_weights({"sac/policy/head/bias": np.where(np.arange(bias.size) < bias.size // 2, bias, -20.0)})
    return agent


def learn_in_ranks(make, parts, sizes):
    """The agents of ranks that learned from parts of a batch, and their metrics of the last update."""
    collectives = local_collectives(len(sizes))
    agents = []
    for size, collective in zip(sizes, collectives, strict=True):
        agent = make(size)
        agent.join(collective)
        agents.append(quiet(agent))
    for _ in range(UPDATES):
        calls = [lambda agent=agent, part=part: agent.learn(part) for agent, part in zip(agents, parts, strict=True)]
        metrics = run_in_step(calls, collectives)
    return agents, metrics


def check_equal(agents, whole, different=("carried", "memory", "_error")):
    """Variables of all ranks are equal, and those of one agent to rounding."""
    weights = [agent.executor.get_weights() for agent in agents]
    expected = whole.executor.get_weights()
    for own in weights:
        assert own.keys() == expected.keys()
    for path, value in expected.items():
        if not any(word in path for word in different):
            np.testing.assert_allclose(weights[0][path], value, rtol=2e-5, atol=2e-6, err_msg=path)
            for own in weights[1:]:
                np.testing.assert_array_equal(own[path], weights[0][path], err_msg=path)


@pytest.mark.parametrize(
    ("name", "backend", "sizes"),
    [
        ("a2c", "torch", (1, 3)),
        ("ppo", "torch", (2, 2)),
        ("ppo", "torch", (1, 2, 1)),
        ("impala", "torch", (1, 3)),
        ("appo", "torch", (1, 3)),
        ("pqn", "torch", (1, 3)),
        pytest.param("ppo", "jax", (2, 2), marks=pytest.mark.thorough),
        pytest.param("a2c", "tensorflow", (1, 3), marks=pytest.mark.thorough),
    ],
)
def test_ranks_learn_from_parts_of_a_rollout_as_one_agent_from_all_of_it(name, backend, sizes):
    whole = make_on_policy(name, backend, sum(sizes))
    batch = rollout(whole)
    start = whole.executor.get_weights()
    for _ in range(UPDATES):
        alone = whole.learn(batch)
    agents, metrics = learn_in_ranks(
        lambda size: make_on_policy(name, backend, size), parts_of(batch, sizes, axis=1), sizes
    )
    check_equal(agents, whole)
    trained = [path for path in start if "optimizer" not in path and "kernel" in path]
    assert all(np.abs(whole.executor.get_weights()[path] - start[path]).max() > 1e-5 for path in trained)
    # clipping is that of the averaged gradients, and means over rows add up
    shares = np.array(sizes) / sum(sizes)
    for own in metrics:
        assert own["gradient_norm"] == pytest.approx(alone["gradient_norm"], rel=1e-4)
    for metric in ("loss", "mean_q") if name == "pqn" else ("policy_loss", "value_loss", "entropy"):
        mean = sum(share * own[metric] for share, own in zip(shares, metrics, strict=True))
        assert mean == pytest.approx(alone[metric], rel=1e-4, abs=1e-6), metric
    assert sum(own["trained_samples"] for own in metrics) == alone["trained_samples"]


@pytest.mark.parametrize(
    ("name", "backend", "sizes"),
    [
        ("dqn", "torch", (4, 12)),
        ("recurrent", "torch", (4, 12)),
        ("ddpg", "torch", (4, 12)),
        ("td3", "torch", (4, 12)),
        ("sac", "torch", (8, 8)),
        pytest.param("dqn", "jax", (4, 12), marks=pytest.mark.slow),
    ],
)
def test_ranks_learn_from_parts_of_a_batch_of_transitions_as_one_agent_from_all_of_it(name, backend, sizes):
    whole = quiet(make_off_policy(name, backend, sum(sizes)))
    batch = transitions(whole, sum(sizes))
    for _ in range(UPDATES):
        alone = whole.learn(batch)
    agents, metrics = learn_in_ranks(
        lambda size: make_off_policy(name, backend, size), parts_of(batch, sizes, axis=0), sizes
    )
    check_equal(agents, whole)
    mean = sum(size * own["loss"] for size, own in zip(sizes, metrics, strict=True)) / sum(sizes)
    assert mean == pytest.approx(alone["loss"], rel=1e-4)


def test_an_update_from_the_memories_of_all_ranks_keeps_them_equal():
    """Each draws from a memory of its own, by priorities of its own."""
    collectives = local_collectives(2)
    agents = []
    for rank, collective in enumerate(collectives):
        agent = make_off_policy("dqn", "torch", 8)
        agent.join(collective)
        agent.reseed(rank)
        agent.insert(transitions(agent, 32, seed=rank))
        agent.count_steps(32)
        agents.append(agent)
    for _ in range(2):
        run_in_step([agent.update for agent in agents], collectives)
    first, second = (agent.executor.get_weights() for agent in agents)
    equal = {path: np.array_equal(first[path], second[path]) for path in first}
    assert all(equal[path] for path in first if "memory" not in path)
    assert not all(equal.values())


def test_recurrent_ppo_in_ranks_has_whole_sequences_in_its_minibatches():
    def make(envs):
        config = {"network": [{"type": "gru", "units": 4}], "rollout_steps": 5, "epochs": 2, "minibatches": 1}
        return PPO(OBSERVATIONS, IntBox(3), config, num_envs=envs, backend="torch", seed=3)

    sizes = (1, 3)
    whole = make(sum(sizes))
    batch = whole.batch_space().sample((5, sum(sizes)), rng=np.random.default_rng(0))
    batch |= {"rewards": np.tanh(batch["rewards"]), "log_probs": -1.0 - np.tanh(np.abs(batch["log_probs"]))}
    for _ in range(UPDATES):
        whole.learn(batch)
    state = batch.pop("initial_state")
    parts = [
        {**columns, "initial_state": rows}
        for columns, rows in zip(parts_of(batch, sizes, axis=1), parts_of(state, sizes, axis=0), strict=True)
    ]
    agents, _ = learn_in_ranks(make, parts, sizes)
    check_equal(agents, whole)


def test_ppo_sends_gradients_of_each_minibatch_and_moments_of_each_pass():
    (one,) = local_collectives(1)
    agent = make_on_policy("ppo", "torch", 2)
    agent.join(one)
    sent, reduce = [], one.all_reduce

    def noted(tree, weight=None):
        sent.append(sorted(tree) if isinstance(tree, dict) else [np.shape(leaf) for leaf in tree])
        return reduce(tree, weight)

    one.all_reduce = noted
    batch = rollout(agent)
    agent.learn(batch)
    of_gradients = [names for names in sent if "ppo/policy/head/kernel" in names]
    of_advantages = [shapes for shapes in sent if shapes == [(), (3,), (3,)]]
    assert (len(of_gradients), len(of_advantages)) == (6, 2)
    assert len(sent) == 10  # and the statistics of observations and rewards


@pytest.mark.parametrize("backend", ["torch", pytest.param("jax", marks=pytest.mark.thorough)])
def test_an_update_in_which_another_rank_is_lost_leaves_an_agent_that_can_go_on(backend):
    """SAC's ranks meet twice in an update: at the second time the critics have moved already."""
    collectives = local_collectives(2)
    agents = [make_off_policy("sac", backend, 8) for _ in collectives]
    for agent, collective in zip(agents, collectives, strict=True):
        agent.join(collective)
    batch = transitions(agents[0].build(), 8)
    met, reduce = [], collectives[1].all_reduce

    def once(tree, weight=None):
        met.append(1)
        if len(met) == 2:
            raise ZeroDivisionError("broke")
        return reduce(tree, weight)

    collectives[1].all_reduce = once
    with pytest.raises(ZeroDivisionError):
        run_in_step([lambda agent=agent: agent.learn(batch) for agent in agents], collectives)
    (agents[0].share.collective,) = local_collectives(1)
    before = agents[0].executor.get_weights()
    assert np.isfinite(agents[0].learn(batch)["loss"])
    after = agents[0].executor.get_weights()
    steps = "sac/{}-optimizer/steps"
    assert [after[steps.format(name)] for name in ("critics", "policy")] == [2, 1]
    assert not np.array_equal(before["sac/policy/head/kernel"], after["sac/policy/head/kernel"])


def test_only_the_graph_of_a_rank_has_places_where_ranks_meet():
    def lines(agent):
        return [line for line in agent.executor.code("update").splitlines() if "ranks" in line]

    assert not lines(make_on_policy("a2c", "torch", 2))
    ranked = make_on_policy("a2c", "torch", 2)
    ranked.join(local_collectives(1)[0])
    assert lines(ranked)


def test_agents_that_cannot_learn_in_ranks_say_why():
    (one,) = local_collectives(1)
    cases = [
        (A3C(OBSERVATIONS, IntBox(3), {"network": SMALL}, backend="torch"), "its update has no form for them"),
        (DQN(OBSERVATIONS, IntBox(3), {"network": SMALL, "replicas": 1}, backend="torch"), "replicas divide"),
        (A2C(OBSERVATIONS, IntBox(3), {"network": SMALL}, backend="torch").build(), "its graph is built"),
    ]
    for agent, why in cases:
        with pytest.raises(ConfigError, match=why) as caught:
            agent.join(one)
        assert caught.value.fix
    eager = make_on_policy("a2c", "torch", 1)
    eager.join(one)
    with pytest.raises(ConfigError, match="runs compiled"):
        eager.build({"mode": "eager"})
