"""Alternating sampling: two halves of the environments by turns, with the numbers of a plain loop over the halves."""

import copy

import numpy as np
import pytest

from rlweave.algorithms.config import resolve_config
from rlweave.algorithms.registry import get_algorithm
from rlweave.algorithms.rollout_workers import TrajectoryWorker, TransitionWorker
from rlweave.components import NStepAccumulator
from rlweave.errors import ConfigError
from rlweave.runs.checkpoint import find_checkpoint
from tests.algorithms.test_rollout_workers import Agent, CountingEnv, RecurrentAgent
from tests.algorithms.test_trainer import (
    NETWORK,
    assert_same_state,
    cut,
    finish,
    make,
    recurrent,
    state_of,
    trainers,
)

__all__ = ["trainers"]  # a fixture


class LoggedEnv(CountingEnv):
    """Writes down what is done with it."""

    def __init__(self, name, log, lengths, skip=False):
        super().__init__(lengths, skip)
        self.name, self.log = name, log

    def begin_step(self, actions):
        self.log.append(f"begin {self.name}")
        super().begin_step(actions)

    def finish_step(self):
        self.log.append(f"finish {self.name}")
        return super().finish_step()


def with_halves(make, *envs):
    first, second = (make(env) for env in envs)
    first.alternate_with(second)
    return first


@pytest.mark.parametrize("agent", [Agent, RecurrentAgent])
@pytest.mark.parametrize("skip", [False, True])
def test_a_rollout_has_the_columns_of_both_halves_in_order(agent, skip):
    envs = [[2, 3], [100, 1]]
    worker = with_halves(lambda env: TrajectoryWorker(agent(), env, 4), *(CountingEnv(own, skip) for own in envs))
    alone = [TrajectoryWorker(agent(), CountingEnv(own, skip), 4) for own in envs]
    for _ in range(5):
        batch, parts = worker.sample(), [one.sample() for one in alone]
        assert batch.num_steps == 16
        kept = copy.deepcopy(batch.data)
        worker.sample()  # which leaves the arrays of the first alone
        np.testing.assert_equal(batch.data, kept)
        [one.sample() for one in alone]
        for name, value in batch.data.items():
            axis = 0 if name in batch.per_trajectory else 1
            leaves = [part[name] if axis else part[name]["count"] for part in parts]
            np.testing.assert_array_equal(value if axis else value["count"], np.concatenate(leaves, axis))
    ended = [episode.length for one in alone for episode in one.episode_stats()]
    assert [episode.length for episode in worker.episode_stats()] == ended
    worker.close()
    assert all(half.env.closed for half in worker.halves)


def test_one_half_steps_while_the_other_acts_and_none_between_two_items():
    log = []

    class LoggedAgent(Agent):
        def act(self, observations, *memory):
            log.append("act")
            return super().act(observations, *memory)

    agent = LoggedAgent()
    worker = with_halves(
        lambda env: TrajectoryWorker(agent, env, 2), LoggedEnv("a", log, [5]), LoggedEnv("b", log, [5])
    )
    worker.sample()
    turns = "act, begin a, act, begin b, finish a, act, begin a, finish b, act, begin b, finish a, finish b"
    assert ", ".join(log) == turns
    worker.sample()
    assert ", ".join(log) == f"{turns}, {turns}"


def test_an_item_of_transitions_has_those_of_both_halves_and_counts_steps_without_any():
    agent = Agent()
    agent.pairs = False
    worker = with_halves(
        lambda env: TransitionWorker(agent, env, 1, lambda: NStepAccumulator(3, 0.5, 2)),
        CountingEnv([2, 2]),
        CountingEnv([50, 50]),
    )
    items = [worker.sample() for _ in range(4)]
    assert [len(item.data.get("rewards", ())) for item in items] == [0, 4, 2, 6]
    assert [item.num_steps for item in items] == [4, 4, 4, 4]
    assert agent.steps == 16


@pytest.mark.parametrize("network", [NETWORK, [{"type": "lstm", "units": 4}]], ids=["feed-forward", "recurrent"])
def test_rollouts_are_those_of_a_loop_over_the_halves(trainers, network):
    """Actions are drawn for the first half, then for the second, at each step; each has environments of its own."""
    sets = {"num_envs": 4, "agent__network": network, "agent__normalize_observations": False}
    trainer, other = (trainers("ppo", backend="torch", alternating_sampling=True, **sets) for _ in range(2))
    (worker,) = trainer.parts.workers
    agent, envs = other.agent, [half.env for half in other.parts.workers[0].halves]
    observations = [env.observations for env in envs]
    assert (observations[0] != observations[1]).any()
    starts = [np.ones(2, bool)] * 2
    states = [agent.initial_state(2) for _ in envs]
    for _ in range(3):
        batch = worker.sample()
        for t in range(16):
            for half, env in enumerate(envs):
                columns = slice(2 * half, 2 * half + 2)
                actions, extra, states[half] = agent.act(observations[half], states[half], starts[half])
                result = env.step(agent.env_actions(actions))
                expected = {
                    "observations": observations[half],
                    "actions": actions,
                    "log_probs": extra["log_probs"],
                    "rewards": result.rewards,
                    "terminated": result.terminated,
                    "next_observations": result.next_observations,
                }
                for name, value in expected.items():
                    np.testing.assert_array_equal(batch[name][t, columns], value)
                observations[half], starts[half] = result.observations, result.episode_start


@pytest.mark.parametrize(
    ("algorithm", "sets"),
    [
        ("ppo", {}),
        ("ppo", {"placement": "environments_apart"}),
        ("ppo", {"placement": "single_learner_coarse", "placement.workers": 2}),
        ("ppo", recurrent("ppo")),
        ("dqn", {}),
        ("dqn", {"placement": "single_learner_coarse", "placement.workers": 2, "gather": "async"}),
        ("dqn", recurrent("dqn")),
        ("impala", {"placement.workers": 2}),
        ("ape-x", {}),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(map(str, value.values())) or "local",
)
def test_a_cut_run_equals_an_uncut_one(trainers, tmp_path, algorithm, sets):
    sets = {"backend": "torch", "agent__acting_backend": "numpy", "num_envs": 4, "alternating_sampling": True, **sets}
    uncut = trainers(algorithm, tmp_path / "uncut", **sets)
    rows = finish(uncut)
    path = tmp_path / "cut"
    before = cut(make(algorithm, path, **sets), 400)
    resumed = trainers(algorithm, path, **sets)
    resumed.restore(find_checkpoint(path))
    kept = [row for row in before if row["env_steps_sampled"] <= resumed.env_steps]
    assert kept
    assert [*kept, *finish(resumed)] == rows
    assert_same_state(state_of(uncut), state_of(resumed))


def test_every_environment_of_ape_x_explores_by_an_epsilon_of_its_own(trainers):
    halves, whole = (
        trainers("ape-x", backend="torch", num_envs=8, placement__workers=2, alternating_sampling=alternating)
        for alternating in (True, False)
    )
    epsilons = [half.epsilons for worker in halves.parts.workers for half in worker.halves]
    expected = [worker.epsilons for worker in whole.parts.workers]
    np.testing.assert_array_equal(np.concatenate(epsilons), np.concatenate(expected))


@pytest.mark.slow
def test_workers_on_ray_alternate(trainers, ray_engine):
    sets = {
        "backend": "torch",
        "agent__acting_backend": "numpy",
        "num_envs": 8,
        "placement.workers": 2,
        "object_store_mb": 80,
    }
    rows = [
        finish(trainers("ppo", alternating_sampling=True, **sets, **where))
        for where in ({"engine": "ray"}, {"placement": "single_learner_coarse"})
    ]
    assert rows[0][-1]["train_one_step/policy_loss"] == rows[1][-1]["train_one_step/policy_loss"]


def test_pong_is_trained_in_halves(trainers):
    pytest.importorskip("ale_py")
    image = [{"type": "conv2d", "filters": 4, "kernel_size": 8, "stride": 8, "activation": "relu"}]
    sets = {"env": "ALE/Pong-v5", "num_envs": 4, "steps": 128, "evaluate_every": 0, "agent__image_network": image}
    trainer = trainers("ppo", backend="torch", alternating_sampling=True, agent__normalize_observations=False, **sets)
    rows = finish(trainer)
    assert rows[-1]["env_steps_sampled"] == 128
    assert rows[-1]["gradient_steps"] > 0
    assert np.isfinite(rows[-1]["train_one_step/policy_loss"])


@pytest.mark.parametrize(
    ("algorithm", "sets", "text"),
    [
        ("ppo", {"num_envs": 6, "placement.workers": 2}, "no two equal halves"),
        ("ppo", {"placement": "fused"}, "do not step by turns"),
        ("es", {}, "do not step their environments by turns"),
        ("multi-agent", {"env": "rlweave/MultiCartPole-v0"}, "for trainings of one policy"),
    ],
)
def test_where_nothing_alternates_the_setting_is_refused(algorithm, sets, text):
    spec = get_algorithm(algorithm)
    common = {"env": "CartPole-v1", "backend": "torch", "num_envs": 4, "alternating_sampling": True}
    config = resolve_config(spec.config_class, sets={**common, **sets})
    with pytest.raises(ConfigError, match=text) as caught:
        spec.make_trainer(config, None)
    assert caught.value.fix
    assert caught.value.received
