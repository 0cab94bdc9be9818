"""A worker that plays several policies: every transition once, of the right agent, and none of agents that are gone."""

import numpy as np
import pytest

from rlweave.agents.dqn import DQN
from rlweave.agents.policy_agents import PolicyAgents
from rlweave.agents.ppo import PPO
from rlweave.agents.replay_agent import STEP_KEYS
from rlweave.components import NStepAccumulator
from rlweave.envs.multi_agent import MultiAgentEnv
from rlweave.extras.multi_agent_worker import MultiAgentWorker
from rlweave.flow import Episode
from tests.envs.parallel_fakes import Scripted, apart, together
from tests.envs.test_multi_agent import _random_episode

AGENTS = ["a", "b", "c"]
N_STEP, DISCOUNT = 3, 0.9


def chosen(observations):
    """The action of every policy here: it says what was observed."""
    return observations[:, 0].astype(np.int32) % 5


class FakePPO(PPO):
    def __init__(self):
        self.env_steps, self.weights, self.asked = 0, None, []

    recurrent = False

    def act(self, observations, recurrent_state, episode_start):
        self.asked.append(observations.copy())
        return chosen(observations), {"log_probs": -observations[:, 0]}, ()

    def env_actions(self, actions):
        return actions

    def set_weights(self, weights):
        self.weights = weights

    def reseed(self, seed):
        self.seed = seed


class FakeDQN(DQN):
    __init__, recurrent = FakePPO.__init__, False
    env_actions, set_weights, reseed = FakePPO.env_actions, FakePPO.set_weights, FakePPO.reseed

    def act(self, observations, recurrent_state, episode_start):
        return chosen(observations), {}, ()

    def make_accumulator(self, num_envs):
        return NStepAccumulator(N_STEP, DISCOUNT, num_envs)


def transitions_of(episodes, steps, grouping):
    """Transitions by agent, with the same actions, straight from the environment."""
    env = MultiAgentEnv([lambda: Scripted(AGENTS, episodes)], grouping, seed=0)
    env.reset()
    held, found = {}, {agent: [] for agent in AGENTS}
    for _ in range(steps):
        actions = {name: chosen(group.observations) for name, group in env.groups.items()}
        for group in env.groups.values():
            held |= {group.agents[row]: group.observations[row].copy() for row in group.acting.nonzero()[0]}
        for name, step in env.step(actions).groups.items():
            for row in step.complete.nonzero()[0]:
                state = held.pop(env.groups[name].agents[row])
                flags = step.terminated[row], step.truncated[row]
                found[env.groups[name].agents[row]].append(
                    (state, chosen(state[None])[0], step.rewards[row], *flags, step.next_observations[row])
                )
    return found


def worker_on(episodes, agents, grouping, steps, number=0):
    env = MultiAgentEnv([lambda: Scripted(AGENTS, episodes)], grouping, seed=0)
    return MultiAgentWorker(PolicyAgents(agents), env, steps, number)


@pytest.mark.parametrize("grouping", [apart, together])
def test_steps_of_random_episodes_reach_ppo_once_and_in_the_order_of_each_agent(grouping):
    random = np.random.default_rng(1)
    for _ in range(20):
        episodes = [_random_episode(random, AGENTS) for _ in range(3)]
        steps = sum(len(episode) - 1 for episode in episodes)
        expected = transitions_of(episodes, steps, grouping)
        names = list(grouping(AGENTS))
        worker = worker_on(episodes, {name: FakePPO() for name in names}, grouping, steps)
        item = worker.sample()
        assert item.joint_steps == steps
        assert item.num_steps == sum(map(len, expected.values())) == worker.agents.env_steps
        for name, members in grouping(AGENTS).items():
            batch = item[name]
            for slot, agent in enumerate(members):
                rows = batch["slot"] == slot if batch.data else np.zeros(0, bool)
                assert rows.sum() == len(expected[agent])
                if not rows.sum():
                    continue
                for key, values in zip(STEP_KEYS, zip(*expected[agent], strict=True), strict=True):
                    np.testing.assert_array_equal(batch[key][rows], np.array(values), err_msg=key)
                np.testing.assert_array_equal(batch["log_probs"][rows], -batch["observations"][rows][:, 0])
                assert batch["begins"][rows].tolist() == [True] + [False] * (len(expected[agent]) - 1)


@pytest.mark.parametrize("grouping", [apart, together])
def test_dqn_gets_the_windows_of_each_agent_alone(grouping):
    random = np.random.default_rng(2)
    for _ in range(20):
        episodes = [_random_episode(random, AGENTS) for _ in range(3)]
        steps = sum(len(episode) - 1 for episode in episodes)
        raw = transitions_of(episodes, steps, grouping)
        names = list(grouping(AGENTS))
        item = worker_on(episodes, {name: FakeDQN() for name in names}, grouping, steps).sample()
        for name, members in grouping(AGENTS).items():
            expected = []
            for agent in members:
                windows = NStepAccumulator(N_STEP, DISCOUNT, 1)
                for step in raw[agent]:
                    rows = windows.add(*(np.asarray(part)[None] for part in step))
                    expected += [_row(rows, index) for index in range(len(rows["rewards"]))]
            assert item[name].num_steps == sum(len(raw[agent]) for agent in members)
            batch = item[name].data
            got = [_row(batch, index) for index in range(len(batch["rewards"]))] if batch else []
            assert sorted(got) == sorted(expected)


def _row(batch, index):
    return tuple(float(np.ravel(batch[key][index])[0]) for key in sorted(batch))


EPISODE = [
    {"a": 10, "b": 20},
    {"a": (11, 1.0, ""), "b": (21, 2.0, "T")},
    {"a": (12, 3.0, "")},
    {"a": (13, 4.0, "C"), "c": (30, 0.5, "T")},
]


def test_a_policy_is_asked_only_where_somebody_acts_and_in_batches_of_one_size():
    agents = {name: FakePPO() for name in AGENTS}
    worker_on([EPISODE], agents, apart, 3).sample()
    assert [len(agents[name].asked) for name in AGENTS] == [3, 1, 0]
    shared = FakePPO()
    worker_on([EPISODE], {"all": shared}, together, 3).sample()
    # rows of those who do not act hold what somebody else is asked about
    assert [observations[:, 0].tolist() for observations in shared.asked] == [[10, 20, 10], [11, 11, 11], [12, 12, 12]]


def test_items_follow_each_other_and_a_new_start_does_not_follow():
    worker = worker_on([EPISODE], {"all": FakePPO()}, together, 2, number=2)
    first, second = worker.sample()["all"], worker.sample()["all"]
    assert first["slot"].tolist() == [6, 7, 6]  # three rows for each worker
    assert first["begins"].tolist() == [True, True, False]
    assert second["begins"].tolist() == [False] * 3
    worker.start(seed=1)
    assert worker.sample()["all"]["begins"].tolist() == [True, True, False]


def test_a_new_start_drops_windows_and_what_is_waited_for():
    worker = worker_on([[{"a": 10}, *[{"a": (11, 1.0, "")}] * 9]], {name: FakeDQN() for name in AGENTS}, apart, 1)
    for _ in range(2):
        assert worker.sample()["a"].data == {}  # windows of three steps
    worker.start()
    for _ in range(2):
        assert worker.sample()["a"].data == {}
    batch = worker.sample()["a"]
    assert batch["discounts"].tolist() == pytest.approx([DISCOUNT**3])
    assert batch.num_steps == 1


def test_weights_reach_their_policy_and_steps_are_counted_for_all_workers():
    agents = {name: FakePPO() for name in AGENTS}
    worker = worker_on([EPISODE], agents, apart, 3)
    worker.workers = 2
    worker.set_weights({"policy": "b", "weights": {"w": 1}, "env_steps": 40}, 7)
    worker.set_weights(None, 8)
    assert [agents[name].weights for name in AGENTS] == [None, {"w": 1}, None]
    worker.sample()
    assert [agents[name].env_steps for name in AGENTS] == [6, 42, 0]


def test_parts_in_episodes_are_told_once_with_the_policy():
    worker = worker_on([EPISODE], {"all": FakePPO()}, together, 3)
    worker.sample()
    assert worker.episode_stats() == [Episode(8.0, 3, "all"), Episode(2.0, 1, "all"), Episode(0.5, 0, "all")]
    assert worker.episode_stats() == []


def test_exploration_of_agents_of_its_own_begins_anew_with_each_start():
    agents = {name: FakePPO() for name in AGENTS}
    worker = worker_on([EPISODE], agents, apart, 1)
    worker.start(seed=3)
    assert not hasattr(agents["a"], "seed")  # those of the learner are not touched
    worker.shares_weights = False
    worker.start(seed=3)
    seeds = [agents[name].seed for name in AGENTS]
    assert len(set(seeds)) == 3
    worker.replacing(1)
    replaced = {agents[name].seed for name in AGENTS}
    assert not set(seeds) & replaced
    worker.env.worker += 1
    worker.replacing(1)
    assert not replaced & {agents[name].seed for name in AGENTS}, "who replaces another worker draws other numbers"
