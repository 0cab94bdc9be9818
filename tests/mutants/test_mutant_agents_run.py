"""Every mutant of an agent acts and learns, and does so in another way than the right one."""

import gymnasium
import numpy as np
import pytest

from rlweave.agents.rollout_agent import RolloutAgent
from rlweave.spaces.gymnasium_spaces import from_gymnasium
from rlweave.tree import flatten_tree
from tests.mutants.registry import AGENTS

ENVIRONMENTS, EPISODE = 2, 9


def make(cls, mutant, env):
    arguments = {"num_envs": ENVIRONMENTS} if issubclass(cls, RolloutAgent) else {}
    spaces = from_gymnasium(env.observation_space), from_gymnasium(env.action_space)
    return cls(*spaces, mutant.settings, backend="torch", seed=0, **arguments).build()


def played(agent, envs, steps, seed):
    """Acts and learns; gives everything that was seen. Every other episode that is cut is called terminated."""
    seen = []
    observations = [env.reset(seed=seed + i)[0] for i, env in enumerate(envs)]
    agent.begin_episodes()
    for step in range(1, steps + 1):
        actions = agent.get_actions(np.stack(observations))
        seen.append(np.array(actions))
        if isinstance(envs[0].action_space, gymnasium.spaces.Box):  # one of the mutants leaves it
            actions = np.clip(actions, envs[0].action_space.low, envs[0].action_space.high)
        for i, env in enumerate(envs):
            following, reward, terminated, _, _ = env.step(actions[i])
            cut = step % EPISODE == 0
            terminated = bool(terminated or (cut and step % (2 * EPISODE) == 0))
            agent.observe(
                observations[i], actions[i], float(reward), terminated, cut and not terminated, following, env_id=i
            )
            observations[i] = env.reset()[0] if terminated or cut else following
        if agent.ready():
            agent.update()
            seen.append(weights_of(agent))
    before = weights_of(agent)
    seen.append(np.array(agent.get_actions(np.stack(observations), explore=False)))
    seen.append({path: weights_of(agent)[path] - value for path, value in before.items()})
    return seen


def weights_of(agent):
    state = agent.state_dict()
    return {
        path: np.array(v, np.float64) for path, v in state.items() if "random" not in path and "memory/" not in path
    }


def transcript(cls, mutant):
    """A short training, and how a copy goes on that was saved and loaded."""
    envs = [gymnasium.make(mutant.env, max_episode_steps=10 * EPISODE) for _ in range(ENVIRONMENTS)]
    agent = make(cls, mutant, envs[0])
    seen = played(agent, envs, 45, seed=1)
    seen += [agent.executor.state_dict()[path] for path in agent.executor.state_dict() if "sum-tree" in path]
    loaded = make(cls, mutant, envs[0])
    loaded.load_state_dict(agent.state_dict())
    loaded.load_counters(agent.counters())
    return seen + played(loaded, envs, 36, seed=2)


def equal(one, other):
    one, other = flatten_tree(one), flatten_tree(other)
    return list(one) == list(other) and all(np.array_equal(value, other[path]) for path, value in one.items())


@pytest.mark.parametrize("mutant", AGENTS, ids=lambda mutant: mutant.name)
@pytest.mark.slow
def test_a_mutant_learns_in_another_way_than_what_is_right(mutant):
    right = transcript(mutant.right, mutant)
    for path, value in flatten_tree(right).items():
        assert np.isfinite(value).all(), path
    assert equal(right, transcript(mutant.right, mutant)), "the right one repeats itself"
    assert not equal(right, transcript(mutant.wrong, mutant))


def test_each_mutant_of_an_agent_overrides_the_right_one_and_says_what_happened():
    assert len({mutant.name for mutant in AGENTS}) == len(AGENTS)
    for mutant in AGENTS:
        assert issubclass(mutant.wrong, mutant.right)
        assert mutant.what_happened != " ".join((mutant.right.__doc__ or "").split())
