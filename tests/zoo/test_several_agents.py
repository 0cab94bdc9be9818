"""Recurrent and masked policies with several agents, which come late, skip steps and end early."""

import inspect
import itertools
from operator import itemgetter

import numpy as np
import pytest

from rlweave.agents.dqn import DQN
from rlweave.agents.policy_agents import PolicyAgents
from rlweave.agents.ppo import PPO
from rlweave.algorithms.config import resolve_config
from rlweave.algorithms.registry import get_algorithm
from rlweave.envs.multi_agent import MultiAgentEnv
from rlweave.extras.multi_agent import MultiAgentTrainer
from rlweave.extras.multi_agent_worker import MultiAgentWorker, PackSequences, whole_columns
from rlweave.flow import Envelope, SampleBatch
from rlweave.runs.checkpoint import find_checkpoint
from rlweave.runs.run_directory import RunDirectory
from rlweave.tree import tree_leaves, tree_map
from tests.algorithms.test_trainer import assert_same_state, cut, finish, state_of
from tests.zoo.recall_together import RecallTogether

NETWORK = [{"type": "gru", "units": 4}]
COMMON = {"network": NETWORK, "mask_leaf": "action_mask", "acting_backend": "numpy"}
PPO_SETTINGS = {**COMMON, "rollout_steps": 8, "epochs": 1, "minibatches": 1}
DQN_SETTINGS = {
    **COMMON, "learning_starts": 20, "memory_capacity": 200, "batch_size": 8, "samples_per_step": 2.0, "unroll": 4,
    "burn_in": 2, "n_step": 1, "target_update_interval": 50,
}  # fmt: skip
SETTINGS = {
    "env": "tests.zoo.recall_together:RecallTogether",
    "backend": "torch",
    "num_envs": 2,
    "placement": {"workers": 2},
    "steps": 400,
    "steps_per_item": 3,
    "report_every": 50,
    "evaluate_every": 200,
    "evaluation_episodes": 3,
    "checkpoint_every": 100,
    "tensorboard": False,
    "policies": {
        "pair": {"algorithm": "ppo", "agent": PPO_SETTINGS},
        "one": {"algorithm": "dqn", "agent": DQN_SETTINGS},
    },
    "mapping": {"*": "pair", "calm": "one"},
}


def by_policy(agents):
    return {"pair": ["quick", "slow"], "one": ["calm"]}


def make_worker(seed=0):
    """A worker on two copies, with agents that have not learned yet."""
    env = MultiAgentEnv([RecallTogether] * 2, by_policy, seed=seed)
    group = env.groups["pair"]
    spaces = group.observation_space, group.action_space
    agents = {
        "pair": PPO(*spaces, PPO_SETTINGS, num_envs=4, backend="torch", seed=0),
        "one": DQN(*spaces, {**DQN_SETTINGS, "epsilon": 0.0}, backend="torch", seed=0),
    }
    return MultiAgentWorker(PolicyAgents(agents), env, steps=10)


def test_a_training_goes_on_exactly_where_it_was_cut(tmp_path):
    spec = get_algorithm("multi-agent")
    config = resolve_config(spec.config_class, file=SETTINGS)
    made = []

    def make(name):
        path = tmp_path / name
        run = RunDirectory(path) if path.exists() else RunDirectory.create(spec.name, config.to_data(), path=path)
        made.append(MultiAgentTrainer(config, run))
        return made[-1]

    try:
        uncut = make("uncut")
        rows = finish(uncut)
        seen = {name: value for row in rows for name, value in row.items()}
        assert seen["train_pair/entropy"] > 0
        assert seen["train_one/loss"] > 0
        before = cut(make("cut"), 250)
        resumed = make("cut")
        resumed.restore(find_checkpoint(tmp_path / "cut"))
        assert 0 < resumed.env_steps < 400
        kept = [row for row in before if row["env_steps_sampled"] <= resumed.env_steps]
        assert [*kept, *finish(resumed)] == rows
        assert_same_state(state_of(uncut), state_of(resumed))
    finally:
        for trainer in made:
            trainer.close()


def test_ppo_learns_from_the_states_that_it_acted_from():
    """From the state before each column, through its steps and starts, come all the states of acting."""
    worker, packer, items, rollouts = make_worker(), PackSequences(8, 4), [], []
    agent = worker.agents["pair"]
    for number in range(12):
        items.append(worker.sample()["pair"])
        out = packer.process(Envelope(items[-1], source="worker", sequence=number))
        rollouts += [out.payload] if isinstance(out, Envelope) else []
    assert len(rollouts) >= 2
    rows = SampleBatch.concat(items)
    columns = iter(whole_columns(rows["slot"], rows["begins"], 8)[0])
    for rollout in rollouts:
        acted = tree_map(itemgetter(np.stack([next(columns) for _ in range(4)], axis=1)), rows.data)
        assert_equal(rollout["observations"], acted["observations"])
        state = rollout["initial_state"]
        assert 4 < rollout["episode_start"].sum() < 32
        for t in range(8):
            assert_equal(state, tree_map(itemgetter(t), acted["recurrent_state"]), rows=~rollout["episode_start"][t])
            observations, start = tree_map(itemgetter(t), (rollout["observations"], rollout["episode_start"]))
            _, _, state = agent.act(observations, state, start, explore=False)
    assert np.isfinite(list(agent.learn(rollouts[0].data).values())).all()


def assert_equal(first, second, rows=slice(None)):
    """Checks that rows of two nested batches are equal."""
    for one, other in zip(tree_leaves(first), tree_leaves(second), strict=True):
        np.testing.assert_allclose(one[rows], other[rows], atol=1e-6)


def test_sequences_of_dqn_go_on_from_each_other():
    worker = make_worker()
    agent, group = worker.agents["one"], worker.env.groups["one"]
    records = {row: [] for row in range(group.rows)}
    worker.begin_episodes()
    for row, window in enumerate(worker.collectors["one"]._windows):
        window.add = overheard(window.add, records[row])
    for _ in range(8):
        worker.sample()
    for own in records.values():
        assert len(own) > 3
        for first, second in itertools.pairwise(own):
            state = first["initial_state"]
            for t in range(4):  # the next sequence begins so many steps later, at what is its burn-in
                if not first["mask"][0, t]:
                    continue
                observations = tree_map(itemgetter((slice(None), t)), first["observations"])
                _, _, state = agent.act(observations, state, first["episode_start"][:, t], explore=False)
            assert_equal(state, second["initial_state"])


def overheard(add, records):
    """`add` of an accumulator, of which complete records are noted."""

    def added(*step, **memory):
        complete = add(*step, **memory)
        if len(complete["rewards"]):
            records.append(complete)
        return complete

    return added


def test_rows_that_do_not_act_keep_their_state_in_evaluations():
    agent = make_worker().agents["pair"]
    observations = agent.observation_space.with_batch_rank().sample(3, rng=np.random.default_rng(0))
    observations["action_mask"][:] = True
    start, acting = np.zeros(3, np.bool_), np.array([True, False, True])
    some, none = agent.greedy_player(), agent.greedy_player()
    for play in (some, none):
        play(observations, ~start, ~start)
    some(observations, start, acting)
    # row 1 goes on as if the second step had not been
    states = [inspect.getclosurevars(play).nonlocals["state"] for play in (some, none)]
    for one, other in zip(*map(tree_leaves, states), strict=True):
        assert (one == other).all(axis=-1).tolist() == [False, True, False]


@pytest.mark.parametrize("seed", range(20))
def test_columns_are_consecutive_steps_of_one_row(seed):
    rng = np.random.default_rng(seed)
    steps, count = 3, 40
    slots, begins = rng.integers(0, 4, count), rng.random(count) < 0.15
    complete, rest = whole_columns(slots, begins, steps)
    expected, left = [], []
    for slot in range(4):
        piece = []
        for index in np.flatnonzero(slots == slot):
            piece = [] if begins[index] or len(piece) == steps else piece
            piece.append(int(index))
            if len(piece) == steps:
                expected.append(piece)
        left += piece if len(piece) < steps else []
    assert [column.tolist() for column in complete] == sorted(expected, key=lambda column: column[-1])
    assert sorted(rest.tolist()) == sorted(left)
