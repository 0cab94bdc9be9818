import itertools
from collections import defaultdict

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from rlweave.envs import MaskedRecall, make_env
from rlweave.errors import EnvError
from rlweave.spaces import BoolBox, Dict, IntBox

CUES, ALLOWED, LENGTH = 4, 3, 3


def play(env, seed, choose):
    """The observations of an episode, its return, and whether each step but the last went on."""
    observation, _ = env.reset(seed=seed)
    seen, total, ended = [observation], 0.0, False
    while not ended:
        observation, reward, ended, truncated, _ = env.step(choose(seen))
        assert not truncated
        seen.append(observation)
        total += reward
    return seen, total


def remembers(seen):
    """The optimal policy."""
    cues = seen[0]["left"], seen[0]["right"]
    return cues[seen[-1]["question"]] if seen[-1]["question"] < 2 else int(seen[-1]["action_mask"].argmax())


@pytest.mark.parametrize("seed", range(20))
def test_who_remembers_the_cues_and_reads_mask_and_question_gets_one(seed):
    seen, total = play(MaskedRecall(), seed, remembers)
    assert total == 1.0
    assert len(seen) == LENGTH + 1
    assert seen[0]["left"] != seen[0]["right"]
    assert all(observation["left"] == observation["right"] == CUES for observation in seen[1:])
    assert [observation["question"] == 2 for observation in seen[:-1]] == [True] * (LENGTH - 1) + [False]
    assert [int(observation["action_mask"].sum()) for observation in seen] == [ALLOWED] * (LENGTH + 1)
    assert seen[LENGTH - 1]["action_mask"][[seen[0]["left"], seen[0]["right"]]].all()


def test_an_action_that_is_not_allowed_ends_the_episode_without_a_reward():
    for seed in range(10):
        seen, total = play(MaskedRecall(), seed, lambda seen: int(seen[-1]["action_mask"].argmin()))
        assert (len(seen), total) == (2, 0.0)


def best_return(read):
    """The best mean return of a policy that knows of an episode only what `read` leaves of it, by enumeration.

    Args:
        read: From (left, right, question, mask at the last step) to what the last action may depend on.
    """
    pairs = list(itertools.permutations(range(CUES), 2))
    gained = defaultdict(lambda: np.zeros(CUES))
    for (left, right), question in itertools.product(pairs, range(2)):
        others = sorted(set(range(CUES)) - {left, right})
        masks = [frozenset({left, right, *more}) for more in itertools.combinations(others, ALLOWED - 2)]
        for mask in masks:
            share = 1 / (len(pairs) * 2 * len(masks))
            gained[read(left, right, question, mask)][(left, right)[question]] += share
    return sum(rewards.max() for rewards in gained.values())


BLIND = {
    "memory": (lambda left, right, question, mask: (question, mask), 1 / ALLOWED),
    "the question": (lambda left, right, question, mask: (left, right, mask), 1 / 2),
    "the left cue": (lambda left, right, question, mask: (right, question, mask), 1 / 2 + 1 / (2 * (ALLOWED - 1))),
    "the right cue": (lambda left, right, question, mask: (left, question, mask), 1 / 2 + 1 / (2 * (ALLOWED - 1))),
}


@pytest.mark.parametrize("without", BLIND)
def test_nobody_gets_one_who_does_without(without):
    read, formula = BLIND[without]
    assert best_return(read) == pytest.approx(formula)
    assert formula <= 0.75
    assert best_return(lambda *everything: everything) == pytest.approx(1.0)


def test_nobody_gets_one_who_does_not_know_the_mask():
    """Before the last step each action is forbidden as often as any other, whatever was seen before."""
    env, rng, lasted = MaskedRecall(), np.random.default_rng(0), []
    counts = np.zeros((CUES, CUES))
    for seed in range(2000):
        seen, _ = play(env, seed, lambda seen: int(rng.integers(CUES)))
        lasted.append(len(seen) > LENGTH)
        counts[seen[0]["left"]] += seen[0]["action_mask"]
    np.testing.assert_allclose(counts / counts.sum(axis=1, keepdims=True), 1 / CUES, atol=0.03)
    # the last step comes where all before were allowed
    assert np.mean(lasted) == pytest.approx((ALLOWED / CUES) ** (LENGTH - 1), abs=0.03)


def test_it_is_registered_and_fits_the_contract():
    check_env(gymnasium.make("rlweave/MaskedRecall-v0").unwrapped, skip_render_check=True)
    with make_env("rlweave/MaskedRecall-v0", 2, seed=0) as env:
        assert env.observation_space == Dict(
            action_mask=BoolBox(shape=(CUES,)), left=IntBox(CUES + 1), question=IntBox(3), right=IntBox(CUES + 1)
        )
        assert env.action_space == IntBox(CUES)
    env = MaskedRecall()
    env.reset(seed=0)
    assert "one asked for, step 0 of 3" in env.render()


@pytest.mark.parametrize("arguments", [{"length": 1}, {"allowed": 2}, {"cues": 2}, {"allowed": 5}])
def test_numbers_that_make_no_sense(arguments):
    with pytest.raises(EnvError, match="masked recall needs"):
        MaskedRecall(**arguments)
