"""Fault 21: nested, empty and zero-size spaces work in every agent."""

import numpy as np
import pytest

from rlweave.agents import DQN, PPO
from rlweave.errors import ExecutionError
from rlweave.spaces import BoolBox, Dict, FloatBox, IntBox, Tuple
from rlweave.tree import tree_leaves as leaves

#: Every kind of leaf and container at once; empty ones among them.
STRANGE = Dict(
    cards=Tuple(IntBox(32), IntBox(11), IntBox(2)),  # Blackjack
    empty=Dict(),
    nothing=Tuple(),
    order=IntBox(50, shape=(4,), layout="tokens"),
    outer=Dict(inner=Dict(speed=FloatBox(shape=(2,))), flag=BoolBox(shape=(2, 2))),
    zero=FloatBox(shape=(0,)),
)
OBSERVATIONS = {
    "text": STRANGE["order"],
    "blackjack": STRANGE["cards"],
    "strange": STRANGE,
    "nothing but a zero": Dict(zero=FloatBox(shape=(0,))),
}
ACTIONS = {
    PPO: Dict(
        empty=Dict(), gear=IntBox(3), nothing=Tuple(), wheel=FloatBox(-1, 1, shape=(2,)), zero=FloatBox(shape=(0,))
    ),
    DQN: IntBox(3),
}
FEED_FORWARD = [{"type": "dense", "units": 4}]
RECURRENT = [{"type": "lstm", "units": 4}]
SETTINGS = {
    PPO: {"rollout_steps": 6, "minibatches": 1, "epochs": 1, "normalize_observations": True},
    DQN: {"learning_starts": 4, "batch_size": 4, "memory_capacity": 32, "unroll": 2, "burn_in": 1, "n_step": 1},
}


def cells():
    for observations in OBSERVATIONS:
        for backend in ("torch", "jax"):
            name = f"{observations}-{{}}-{backend}"
            yield pytest.param(observations, FEED_FORWARD, backend, id=name.format("feed-forward"))
            if backend == "torch" or observations == "strange":  # which has all the others in it; JAX compiles for long
                yield pytest.param(
                    observations, RECURRENT, backend, id=name.format("recurrent"), marks=pytest.mark.slow
                )


@pytest.mark.parametrize(("observations", "network", "backend"), list(cells()))
@pytest.mark.parametrize("kind", [PPO, DQN])
def test_acting_observing_and_learning(kind, observations, network, backend):
    space, rng = OBSERVATIONS[observations], np.random.default_rng(0)
    agent = kind(space, ACTIONS[kind], {**SETTINGS[kind], "network": network}, backend=backend, seed=0)
    state = space.sample(rng=rng)
    for step in range(12):
        action = agent.get_actions(state, env_ids=[0])
        next_observation, ended = space.sample(rng=rng), step % 5 == 4
        agent.observe(state, action, 1.0, ended, False, next_observation, env_id=0)
        state = space.sample(rng=rng) if ended else next_observation
        if step % 6 == 5:
            metrics = agent.update()
            assert all(np.isfinite(value) for value in metrics.values())
    greedy = agent.get_actions(state, explore=False)
    assert ACTIONS[kind].why_not(greedy) is None


def test_steps_that_were_on_their_way_are_forgotten_with_a_load_and_with_new_episodes():
    config = {"network": [{"type": "dense", "units": 4}], "learning_starts": 2, "batch_size": 2, "memory_capacity": 50}
    rng = np.random.default_rng(0)
    agents = []
    for abandoned in (False, True):
        agent = DQN(FloatBox(shape=(3,)), IntBox(2), {**config, "n_step": 2}, backend="torch", seed=2)
        rng = np.random.default_rng(0)
        for _ in range(4):
            agent.observe(rng.normal(size=3), 0, 1.0, False, False, rng.normal(size=3))
        state, counters = agent.state_dict(), agent.counters()
        if abandoned:
            agent.observe(np.full(3, 7.0), 1, 100.0, False, False)
        agent.load_state_dict(state)
        agent.load_counters(counters)
        if abandoned:
            agent.observe(np.full(3, 7.0), 1, 100.0, False, False)
            agent.begin_episodes()
            agent.load_counters(counters)
        for _ in range(3):
            agent.observe(rng.normal(size=3), 0, 1.0, False, False, rng.normal(size=3))
        agents.append(agent)
    assert agents[0].counters() == agents[1].counters()
    for (name, one), other in zip(agents[0].state_dict().items(), agents[1].state_dict().values(), strict=True):
        np.testing.assert_array_equal(one, other, err_msg=name)


@pytest.mark.parametrize("config", [{"network": [{"type": "lstm", "units": 3}]}, {"network": []}], ids=["lstm", "none"])
def test_acting_without_a_state_begins_episodes(config):
    agent = DQN(FloatBox(shape=(3,)), IntBox(2), config, backend="torch", seed=2)
    observations = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    actions, _, after = agent.act(observations, explore=False)
    first = agent.act(observations, agent.initial_state(4), np.ones(4, np.bool_), explore=False)
    np.testing.assert_array_equal(actions, first[0])
    assert all(np.array_equal(*pair) for pair in zip(leaves(after), leaves(first[2]), strict=True))
    given = agent.act(observations, after, np.zeros(4, np.bool_), explore=False)[2]
    assert all(
        np.array_equal(*pair)
        for pair in zip(leaves(agent.act(observations, after, explore=False)[2]), leaves(given), strict=True)
    )


def test_rewards_and_ends_are_one_number_and_one_bool():
    agent = DQN(FloatBox(shape=(3,)), IntBox(2), {"network": []}, backend="torch")
    zeros = np.zeros(3)
    agent.observe(zeros, 0, np.array([1.0]), np.array([False]), np.bool_(True), zeros)
    assert agent.inserted == 1
    for reward, terminated, words in (
        ([1.0, 2.0], False, "one number"),
        ("1", False, "one number"),
        (np.nan, False, "not finite"),
        (1.0, [True, False], "one bool each"),
        (1.0, 0.5, "one bool each"),
    ):
        with pytest.raises(ExecutionError, match=words):
            agent.observe(zeros, 0, reward, terminated, False, zeros)
    assert agent.inserted == 1
