"""Copies of environments with several agents: who acts, what is a transition, whose reward is whose; fault 42."""

import gymnasium
import numpy as np
import pytest

from rlweave.envs.multi_agent import AgentEpisode, MultiAgentEnv
from rlweave.envs.multi_cartpole import MultiCartPole
from rlweave.envs.parallel_api import make_parallel_env, resolve_parallel
from rlweave.envs.seeding import sub_env_seeds
from rlweave.errors import ConfigError, EnvError, install_command
from tests.envs.parallel_fakes import Scripted, apart, together


def play(agents, episodes, steps, grouping=apart):
    """Plays scripts with actions that count up; the transitions of each agent, the episodes, and the copy itself.

    A transition is (observation, action, reward, terminated, truncated, next observation).
    """
    copies = []

    def factory():
        copies.append(Scripted(agents, episodes))
        return copies[-1]

    env = MultiAgentEnv([factory], grouping, seed=0)
    env.reset()
    acted, transitions, finished = {}, {agent: [] for agent in agents}, []
    for number in range(steps):
        for group in env.groups.values():
            for row, agent in enumerate(group.agents):
                if group.acting[row]:
                    acted[agent] = (float(group.observations[row, 0]), number % 5)
        result = env.step({name: np.full(group.rows, number % 5) for name, group in env.groups.items()})
        for name, step in result.groups.items():
            for row in step.complete.nonzero()[0]:
                agent = env.groups[name].agents[row]
                after = float(step.next_observations[row, 0])
                flags = bool(step.terminated[row]), bool(step.truncated[row])
                transitions[agent].append((*acted.pop(agent), float(step.rewards[row]), *flags, after))
        finished += result.episodes
    return transitions, finished, copies[0]


def test_each_agent_has_its_own_steps_and_end():
    episode = [
        {"a": 10, "b": 20},
        {"a": (11, 1.0, ""), "b": (21, 2.0, "T")},
        {"a": (12, 3.0, "")},
        {"a": (13, 4.0, "C")},
    ]
    transitions, finished, copy = play(["a", "b"], [episode], 4)
    assert transitions["a"] == [
        (10.0, 0, 1.0, False, False, 11.0),
        (11.0, 1, 3.0, False, False, 12.0),
        (12.0, 2, 4.0, False, True, 13.0),
        (10.0, 3, 1.0, False, False, 11.0),  # of the next episode, not from 13
    ]
    assert transitions["b"] == [(20.0, 0, 2.0, True, False, 21.0), (20.0, 3, 2.0, True, False, 21.0)]
    assert copy.given == [{"a": 0, "b": 0}, {"a": 1}, {"a": 2}, {"a": 3, "b": 3}]
    assert finished == [AgentEpisode(0, "a", 8.0, 3, False), AgentEpisode(0, "b", 2.0, 1, True)]


def test_an_agent_that_comes_late_begins_where_it_comes():
    episode = [
        {"a": 10},
        {"a": (11, 1.0, "")},
        {"a": (12, 1.0, ""), "b": (20, 0.0, "")},
        {"a": (13, 1.0, "T"), "b": (21, 5.0, "T")},
    ]
    transitions, finished, copy = play(["a", "b"], [episode], 3)
    assert transitions["b"] == [(20.0, 2, 5.0, True, False, 21.0)]
    assert copy.given == [{"a": 0}, {"a": 1}, {"a": 2, "b": 2}]
    assert finished[1] == AgentEpisode(0, "b", 5.0, 1, True)


def test_an_agent_that_skips_steps_gets_all_rewards_until_it_is_asked_again():
    episode = [
        {"a": 10, "b": 20},
        {"a": (11, 1.0, ""), "b": (None, 2.0, "")},
        {"a": (None, 4.0, ""), "b": (21, 8.0, "")},
        {"a": (12, 16.0, "T"), "b": (22, 32.0, "T")},
    ]
    transitions, _, copy = play(["a", "b"], [episode], 3)
    assert copy.given == [{"a": 0, "b": 0}, {"a": 1}, {"b": 2}]
    assert transitions["a"] == [(10.0, 0, 1.0, False, False, 11.0), (11.0, 1, 20.0, True, False, 12.0)]
    assert transitions["b"] == [(20.0, 0, 10.0, False, False, 21.0), (21.0, 2, 32.0, True, False, 22.0)]


def test_a_final_reward_reaches_who_did_not_act_in_the_last_step():
    """The winning move of one is the loss of the other, who moved before."""
    episode = [
        {"a": 10, "b": None},
        {"a": (None, 0.0, ""), "b": (20, 0.0, "")},
        {"a": (None, -1.0, "T"), "b": (None, 1.0, "T")},
    ]
    transitions, finished, _ = play(["a", "b"], [episode], 2)
    # without a last observation, it is the one acted on: of a terminal state nobody asks
    assert transitions == {"a": [(10.0, 0, -1.0, True, False, 10.0)], "b": [(20.0, 1, 1.0, True, False, 20.0)]}
    assert [(episode.agent, episode.episode_return) for episode in finished] == [("a", -1.0), ("b", 1.0)]


def test_an_agent_that_never_acts_has_a_return_and_no_transitions():
    episode = [
        {"a": 10, "b": None},
        {"a": (11, 1.0, ""), "b": (None, 7.0, "")},
        {"a": (12, 1.0, "T"), "b": (None, 0.5, "T")},
    ]
    transitions, finished, copy = play(["a", "b", "never-there"], [episode], 4)
    assert transitions["b"] == transitions["never-there"] == []
    assert all("b" not in given for given in copy.given)
    assert finished == [AgentEpisode(0, "a", 2.0, 2, True), AgentEpisode(0, "b", 7.5, 0, True)] * 2


def test_an_agent_that_is_done_at_its_first_step_keeps_its_reward():
    episode = [{"a": 10, "b": 20}, {"a": (11, 0.0, ""), "b": (21, -3.0, "T")}, {"a": (12, 0.0, "T")}]
    transitions, finished, _ = play(["a", "b"], [episode], 2)
    assert transitions["b"] == [(20.0, 0, -3.0, True, False, 21.0)]
    assert finished[1] == AgentEpisode(0, "b", -3.0, 1, True)


def test_who_was_not_told_of_the_end_is_cut_off():
    episode = [
        {"a": 10, "b": 20},
        {"a": (11, 1.0, ""), "b": (None, 1.0, "")},
        {"a": (12, 1.0, ""), "b": (None, 2.0, "")},
    ]
    transitions, finished, _ = play(["a", "b"], [episode], 2)
    assert transitions["a"][-1] == (11.0, 1, 1.0, False, True, 12.0)
    assert transitions["b"] == [(20.0, 0, 3.0, False, True, 20.0)]
    assert [episode.terminated for episode in finished] == [False, False]


def test_a_reward_after_the_end_is_in_the_return_only():
    episode = [
        {"a": 10, "b": 20},
        {"a": (11, 1.0, "T"), "b": (21, 1.0, "")},
        {"a": (None, 9.0, ""), "b": (22, 1.0, "T")},
    ]
    transitions, finished, _ = play(["a", "b"], [episode], 2)
    assert transitions["a"] == [(10.0, 0, 1.0, True, False, 11.0)]
    assert finished[0] == AgentEpisode(0, "a", 10.0, 1, True)


@pytest.mark.parametrize("grouping", [apart, together])
def test_random_scripts_agree_with_a_look_at_each_agent_alone(grouping):
    random = np.random.default_rng(0)
    agents = ["a", "b", "c"]
    for _ in range(60):
        episodes = [_random_episode(random, agents) for _ in range(3)]
        steps = sum(len(episode) - 1 for episode in episodes)
        transitions, finished, _ = play(agents, episodes, steps, grouping)
        expected, returns = _looked_at_alone(agents, episodes)
        assert transitions == expected
        got = [(e.agent, e.episode_return, e.length) for e in finished]
        assert got == returns


def _random_episode(random, agents):
    """Agents come late, skip steps, and end early; whoever is left at the last step may be told or not."""
    observation = iter(range(100, 1000))
    there = {agent for agent in agents if random.random() < 0.7} or {"a"}
    episode = [{agent: next(observation) if random.random() < 0.8 else None for agent in sorted(there)}]
    gone = set()
    for _ in range(random.integers(1, 8)):
        step = {}
        for agent in agents:
            if agent in gone or (agent not in there and random.random() < 0.5):
                continue
            there.add(agent)
            flags = str(random.choice(["", "", "", "T", "C", "TC"]))
            seen = next(observation) if random.random() < 0.6 else None
            step[agent] = (seen, float(random.integers(-3, 4)), flags)
            if flags:
                gone.add(agent)
        episode.append(step)
        if there <= gone:
            break
    return episode


def _looked_at_alone(agents, episodes):
    transitions, returns, number = {agent: [] for agent in agents}, [], 0
    for first, *steps in episodes:
        ended_at = len(steps)
        for agent in agents:
            decided, gained, total, acted, seen_at_all = None, 0.0, 0.0, 0, agent in first
            asked = first.get(agent)
            for index, step in enumerate(steps):
                if asked is not None:
                    decided, gained, asked, acted = (float(asked), (number + index) % 5), 0.0, None, acted + 1
                observation, reward, flags = step.get(agent, (None, 0.0, ""))
                seen_at_all |= agent in step
                gained, total = gained + reward, total + reward
                last = index == ended_at - 1
                if decided and (flags or last or observation is not None):
                    cut = "C" in flags or (last and not flags)
                    after = decided[0] if observation is None else float(observation)
                    transitions[agent].append((*decided, gained, "T" in flags, cut, after))
                    decided = None
                if not flags and not last:
                    asked = observation
            if seen_at_all:
                returns.append((agent, total, acted))
        number += ended_at
    return transitions, returns


def test_rows_that_do_not_act_hold_the_observation_of_one_that_does():
    episode = [{"a": 10, "b": None, "c": 30}, {"a": (11, 0.0, "T"), "b": (20, 0.0, ""), "c": (31, 0.0, "")}, {}]
    env = MultiAgentEnv([lambda: Scripted(["a", "b", "c"], [episode])], together, seed=0)
    env.reset()
    group = env.groups["all"]
    np.testing.assert_array_equal(group.acting, [True, False, True])
    np.testing.assert_array_equal(group.observations_to_act_on()[:, 0], [10, 10, 30])
    env.step({"all": np.zeros(3, np.int64)})
    np.testing.assert_array_equal(group.acting, [False, True, True])
    np.testing.assert_array_equal(group.episode_start, [False, True, False])
    np.testing.assert_array_equal(group.observations_to_act_on()[:, 0], [20, 20, 31])


def test_copies_end_on_their_own_and_count_joint_steps():
    lengths = iter([1, 3])

    def factory():
        steps = next(lengths)
        return Scripted(
            ["a"], [[{"a": 0}, *({"a": (i + 1, 1.0, "T" if i == steps - 1 else "")} for i in range(steps))]]
        )

    env = MultiAgentEnv([factory] * 2, apart, seed=0)
    env.reset()
    finished = [env.step({"a": np.zeros(2, np.int64)}).episodes for _ in range(3)]
    assert [[(e.env, e.length) for e in episodes] for episodes in finished] == [[(0, 1)], [(0, 1)], [(0, 1), (1, 3)]]
    assert env.joint_steps == 6


def test_seeds_are_those_of_the_run_and_worker_once():
    copies = []

    def factory():
        copies.append(Scripted(["a"], [[{"a": 0}, {"a": (1, 0.0, "T")}]]))
        return copies[-1]

    env = MultiAgentEnv([factory] * 2, apart, seed=5, worker=3)
    env.reset()
    env.step({"a": np.zeros(2, np.int64)})
    env.reset()
    env.reset(seed=6)
    first, second = sub_env_seeds(5, 3, 2), sub_env_seeds(6, 3, 2)
    assert [copy.seeds for copy in copies] == [[first[i], None, None, second[i]] for i in range(2)]


# -- failures ------------------------------------------------------------------------------------------------------


class Failing(Scripted):
    """Fails at its third step in the way that is asked for."""

    def __init__(self, how):
        episode = [{"a": 0, "b": 1}, *[{"a": (1, 0.0, ""), "b": (2, 0.0, "")}] * 9]
        super().__init__(["a", "b"], [episode])
        self.how = how

    def step(self, actions):
        result = super().step(actions)
        if len(self.given) < 3:
            return result
        observations, rewards, terminated, truncated, infos = result
        if self.how == "raise":
            raise ZeroDivisionError("the ball is gone")
        if self.how == "nan":
            observations["b"] = np.float32([np.nan])
        if self.how == "infinite reward":
            rewards["b"] = float("inf")
        if self.how == "shape":
            observations["b"] = np.zeros(2, np.float32)
        if self.how == "stranger":
            self.agents.append("c")
        if self.how == "form":
            return observations, rewards, terminated, infos
        return observations, rewards, terminated, truncated, infos


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("raise", "the ball is gone"),
        ("nan", "the observation of agent 'b' holds NaN or infinity"),
        ("infinite reward", "the reward of agent 'b' is inf"),
        ("shape", "agent 'b'"),
        ("stranger", "agent 'c' is none of the possible agents"),
        ("form", "step() must return five mappings by agent"),
    ],
)
def test_a_failure_says_which_copy_and_step_and_closes_all(how, said):
    copies = []

    def factory():
        copies.append(Failing(how if len(copies) == 1 else "never"))
        return copies[-1]

    env = MultiAgentEnv([factory] * 3, together, seed=0)
    env.reset()
    actions = {"all": np.full(6, 2)}
    env.step(actions)
    env.step(actions)
    with pytest.raises(EnvError) as caught:
        env.step(actions)
    assert said in str(caught.value)
    assert caught.value.where == "environment 1, step 3 of its episode"
    if how == "raise":
        assert "ZeroDivisionError" in str(caught.value)
        assert "parallel_fakes" not in str(caught.value.fix)
        assert "'a': np.int64(2)" in caught.value.received
    assert all(copy.closed for copy in copies)
    with pytest.raises(EnvError, match="closed"):
        env.step(actions)


def test_what_is_not_finite_may_be_meant():
    env = MultiAgentEnv([lambda: Failing("nan")], together, seed=0, check_finite=False)
    env.reset()
    for _ in range(3):
        result = env.step({"all": np.zeros(2, np.int64)})
    assert np.isnan(result.groups["all"].next_observations[1, 0])


def test_construction_and_reset_say_which_copy():
    def broken():
        raise OSError("no screen")

    with pytest.raises(EnvError, match="no screen") as caught:
        MultiAgentEnv([lambda: Scripted(["a"], []), broken], apart)
    assert caught.value.where == "environment 1, construction"
    with pytest.raises(EnvError, match="other agents than the first copy"):
        MultiAgentEnv([lambda: Scripted(["a"], []), lambda: Scripted(["b"], [])], apart)
    with pytest.raises(EnvError, match="names them all"):
        MultiAgentEnv([lambda: object()], apart)
    env = MultiAgentEnv([lambda: Scripted(["a"], [[{}]])], apart, seed=0)
    with pytest.raises(EnvError, match="begins without any agent") as caught:
        env.reset()
    assert caught.value.where == "environment 0, reset"


def test_wrong_calls_step_nothing():
    env = MultiAgentEnv([lambda: Scripted(["a"], [[{"a": 0}, {"a": (1, 0.0, "")}]])], apart, seed=0)
    with pytest.raises(EnvError, match="not reset yet"):
        env.step({"a": np.zeros(1, np.int64)})
    env.reset()
    with pytest.raises(EnvError, match="got no actions"):
        env.step({})
    with pytest.raises(EnvError):
        env.step({"a": np.zeros(3, np.int64)})
    assert env.joint_steps == 0
    env.step({"a": np.zeros(1, np.int64)})
    env.close()
    env.close()
    with pytest.raises(EnvError, match="closed"):
        env.reset()


def test_groups_have_every_agent_once_and_one_kind_of_agents():
    def scripted():
        return Scripted(["a", "b"], [])

    for grouped in ({"x": ["a"]}, {"x": ["a", "b"], "y": ["b"]}):
        with pytest.raises(ConfigError, match="every agent belongs to one group"):
            MultiAgentEnv([scripted], lambda agents, grouped=grouped: grouped)

    class Uneven(Scripted):
        def action_space(self, agent):
            return {"a": super().action_space(agent), "b": super().observation_space(agent)}[agent]

    with pytest.raises(ConfigError, match="different action spaces") as caught:
        MultiAgentEnv([lambda: Uneven(["a", "b"], [])], together)
    assert caught.value.where == "policy 'all'"
    assert MultiAgentEnv([lambda: Uneven(["a", "b"], [])], apart).agents == ("a", "b")


# -- names ---------------------------------------------------------------------------------------------------------


def test_environments_are_found_by_name():
    assert resolve_parallel("rlweave/MultiCartPole-v0") is MultiCartPole
    assert resolve_parallel("tests.envs.parallel_fakes:Scripted") is Scripted
    assert make_parallel_env("rlweave/MultiCartPole-v0", {"num_agents": 3}).max_num_agents == 3
    for name, said in {
        "rlweave/MultiCartpole-v0": "did you mean 'rlweave/MultiCartPole-v0'",
        "tests.envs.parallel_fakes": "'parallel_env'",
        "tests.envs.parallel_fakes:Scriped": "did you mean 'Scripted'",
        "pettingzoo.no_such_game_v0": install_command("multiagent"),
        "no_such_module": "correct the name",
    }.items():
        with pytest.raises(EnvError) as caught:
            resolve_parallel(name)
        assert said in str(caught.value)


def test_simple_spread_of_mpe2_plays_in_several_copies():
    pytest.importorskip("mpe2")
    factory = resolve_parallel("mpe2.simple_spread_v3")
    env = MultiAgentEnv([lambda: factory(max_cycles=5)] * 2, together, seed=0)
    env.reset()
    random = np.random.default_rng(0)
    truncated, finished = [], []
    for _ in range(10):
        result = env.step({"all": random.integers(0, 5, 6)})
        assert result.groups["all"].complete.all()
        assert np.isfinite(result.groups["all"].rewards).all()
        truncated.append(bool(result.groups["all"].truncated.all()))
        finished += result.episodes
    assert truncated == [False, False, False, False, True] * 2
    assert [(e.env, e.agent, e.length) for e in finished] == [
        (c, f"agent_{i}", 5) for c in (0, 1) for i in range(3)
    ] * 2
    env.close()


class Telling(Scripted):
    """Returns other values than those that are written down, in the second step, and never empties `agents`."""

    def __init__(self, space=None, keeps_agents=False, **values):
        quiet = {"a": (1, 1.0, ""), "b": (1, 1.0, "")}
        super().__init__("ab", [[{"a": 0, "b": 0}, quiet, {"a": (1, 1.0, "T"), "b": (1, 1.0, "C")}]])
        self.space, self.keeps_agents, self.values = space, keeps_agents, values

    def observation_space(self, agent):
        return super().observation_space(agent) if self.space is None else self.space

    def _seen(self, observations):
        return observations if self.space is None else {a: np.int64([seen[0]]) for a, seen in observations.items()}

    def reset(self, **options):
        observations, infos = super().reset(**options)
        return self._seen(observations), infos

    def step(self, actions):
        last = len(self._steps) == 1
        observations, rewards, terminated, truncated, infos = super().step(actions)
        observations = self._seen(observations)
        if last:
            if self.keeps_agents:
                self.agents = ["a", "b"]
            for found, name in ((observations, "b"), (rewards, "reward"), (terminated, "terminated")):
                if name in self.values:
                    found["b"] = self.values[name]
        return observations, rewards, terminated, truncated, infos


def test_an_episode_is_over_when_all_agents_have_ended_whatever_is_named():
    with MultiAgentEnv([lambda: Telling(keeps_agents=True)] * 2, together, seed=0) as env:
        env.reset()
        ended = [len(env.step({"all": np.zeros(4, np.int32)}).episodes) for _ in range(6)]
        assert ended == [0, 4, 0, 4, 0, 4]
        assert env.groups["all"].acting.all()


def test_an_episode_in_which_nobody_is_asked_any_more_is_an_error():
    silent = [{"a": 0, "b": 0}, *[{"a": (None, 0.0, "")}] * 12_000]
    with MultiAgentEnv([lambda: Scripted("ab", [silent])], together, seed=0) as env:
        env.reset()
        for _ in range(9_999):
            env.step({"all": np.zeros(2, np.int32)})
        with pytest.raises(EnvError, match=r"nobody has had an observation.*10,000 steps(?s:.*)step 10000"):
            env.step({"all": np.zeros(2, np.int32)})


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"reward": 1e39}, "the reward of agent 'b' is 1e+39, beyond 3.4e+38"),
        ({"reward": None}, "agent 'b': the reward must be one number"),
        ({"terminated": "False"}, "agent 'b': terminated must be True or False"),
        ({"space": gymnasium.spaces.Box(0, 10, (1,), np.int32), "b": np.int32([11])}, "agent 'b': the environment"),
        ({"space": gymnasium.spaces.Box(0, 255, (1,), np.uint8), "b": np.int64([300])}, "300 at [0]"),
    ],
    ids=repr,
)
def test_what_an_agent_gets_is_checked(values, said):
    env = MultiAgentEnv([Telling, lambda: Telling(**values)], together, seed=0) if "space" not in values else None
    if env is None:
        env = MultiAgentEnv([lambda: Telling(values["space"]), lambda: Telling(**values)], together, seed=0)
    env.reset()
    env.step({"all": np.zeros(4, np.int32)})
    with pytest.raises(EnvError) as caught:
        env.step({"all": np.zeros(4, np.int32)})
    for part in (said, "environment 1, step 2"):
        assert part in str(caught.value)


def test_rewards_and_flags_with_one_meaning_are_taken():
    values = {"reward": np.array([2.0]), "terminated": np.bool_(True)}
    with MultiAgentEnv([lambda: Telling(**values)], together, seed=0) as env:
        env.reset()
        env.step({"all": np.zeros(2, np.int32)})
        step = env.step({"all": np.zeros(2, np.int32)})
    assert [(part.agent, part.episode_return, part.terminated) for part in step.episodes] == [
        ("a", 2.0, True),
        ("b", 3.0, True),
    ]


def test_copies_are_objects_of_their_own():
    one = Scripted("ab", [[{"a": 0, "b": 0}]])
    with pytest.raises(EnvError, match="two sub-environments are one object"):
        MultiAgentEnv([lambda: one] * 2, together)
    with MultiAgentEnv([lambda: one], together), pytest.raises(EnvError, match="this copy is in use already"):
        MultiAgentEnv([lambda: one], together)
