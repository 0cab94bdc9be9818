"""Several learners as a placement: equal ranks, exact resumption, ranks that are lost, settings that contradict."""

import os
import signal

import numpy as np
import pytest

from rlweave import graph
from rlweave.agents.a2c import A2C, A2CGraph
from rlweave.algorithms.config import resolve_config
from rlweave.algorithms.multi_learner import rank_config
from rlweave.algorithms.multi_learner_rank import Rank
from rlweave.algorithms.registry import get_algorithm
from rlweave.errors import ConfigError, PlanError
from rlweave.flow import LostRankError
from rlweave.runs.checkpoint import find_checkpoint
from tests.algorithms.test_trainer import (
    NETWORK,
    SETTINGS,
    assert_same_state,
    cut,
    finish,
    make,
    recurrent,
    state_of,
    trainers,
)
from tests.processes import gone_within

__all__ = ["trainers"]  # a fixture

SETS = {"backend": "torch", "placement.name": "multi_learner", "placement.learners": 2}
SETTINGS.setdefault(
    "a2c", {"num_envs": 4, "steps": 400, "agent.rollout_steps": 8, "agent.normalize_observations": True}
)


def ranks_of(trainer):
    """What each rank has learned, and all else of its state."""
    asked = trainer.plan.ask_workers
    return asked("learned_state"), asked("state_dict", [(True, True)] * 2)


def check_ranks(trainer):
    """All ranks have learned the same, which the agent here evaluates; their random numbers are their own."""
    (first, second), states = ranks_of(trainer)
    trainer.model()  # which fetches
    for path, value in first.items():
        np.testing.assert_array_equal(second[path], value, err_msg=path)
        np.testing.assert_array_equal(trainer.agent.state_dict()[path], value, err_msg=path)
    own = [state["own"] for state in states]
    assert any(path.startswith("random") and not np.array_equal(x, own[1][path]) for path, x in own[0].items())


@pytest.mark.parametrize(
    ("algorithm", "sets"),
    [
        ("ppo", {"placement.workers": 2, "num_envs": 8, "agent__normalize_rewards": True}),
        ("dqn", {"agent__acting_backend": "numpy"}),
        pytest.param("dqn", recurrent("dqn"), marks=pytest.mark.thorough),
        pytest.param("impala", {"rollouts_ahead": 2}, marks=pytest.mark.slow),
        pytest.param("sac", {}, marks=pytest.mark.slow),
        pytest.param("appo", {}, marks=pytest.mark.slow),
        pytest.param("ppo", {"backend": "jax"}, marks=pytest.mark.thorough),
        pytest.param("dqn", {"backend": "tensorflow"}, marks=pytest.mark.thorough),
    ],
)
def test_a_cut_run_equals_an_uncut_one_and_ranks_stay_equal(trainers, tmp_path, algorithm, sets):
    sets = {**SETS, "steps": 400, "checkpoint_every": 120, "evaluate_every": 0, **sets}
    uncut = trainers(algorithm, tmp_path / "uncut", **sets)
    rows = finish(uncut)
    check_ranks(uncut)
    path = tmp_path / "cut"
    before = cut(make(algorithm, path, **sets), 250)
    resumed = trainers(algorithm, path, **sets)
    resumed.restore(find_checkpoint(path))
    kept = [row for row in before if row["env_steps_sampled"] <= resumed.env_steps]
    assert kept
    assert [*kept, *finish(resumed)] == rows
    check_ranks(resumed)
    assert_same_state(state_of(uncut), state_of(resumed))
    for mine, its in zip(ranks_of(uncut)[1], ranks_of(resumed)[1], strict=True):
        for name in ("own", "memory", "counters", "episodes"):
            np.testing.assert_equal(mine[name], its[name])


def test_reports_are_of_all_ranks_and_count_what_they_did(trainers):
    trainer = trainers("a2c", evaluate_every=0, checkpoint_every=0, **SETS)
    (*_, last) = finish(trainer)
    assert (last["env_steps_sampled"], last["trained_samples"]) == (416, 416)
    assert (last["updates"], last["gradient_steps"]) == (13, 13)
    assert last["train_one_step/ranks"] == 2
    assert last["episodes_finished"] > 0
    assert last["train_one_step/gradient_norm"] > 0
    trainer.model()
    assert trainer.agent.env_steps == 416


def test_schedules_and_updates_are_those_of_one_learner(trainers):
    """A memory of each rank fills half as fast, and is drawn from by half a batch."""
    sets = {"steps": 240, "evaluate_every": 0, "checkpoint_every": 0, "backend": "torch"}
    ranked, alone = trainers("dqn", **{**sets, **SETS}), trainers("dqn", **sets)
    last, expected = finish(ranked)[-1], finish(alone)[-1]
    assert abs(last["updates"] - expected["updates"]) <= 1
    assert abs(last["trained_samples"] - expected["trained_samples"]) <= 16
    assert ranked.agent.config.lr == alone.agent.config.lr


def failing(monkeypatch, at, method="_round"):
    """Has rank 1 fail in one of its calls of a method, by default in one of its rounds."""
    calls = []
    original = getattr(Rank, method)

    def run(self):
        if self.number == 1:
            calls.append(1)
            if len(calls) == at:
                raise ZeroDivisionError("broke")
        return original(self)

    monkeypatch.setattr(Rank, method, run)


def test_a_rank_that_fails_ends_the_training_and_is_named(trainers, monkeypatch):
    failing(monkeypatch, at=3)
    trainer = trainers("a2c", evaluate_every=0, checkpoint_every=0, **SETS)
    with pytest.raises(PlanError) as caught:
        finish(trainer)
    error = caught.value
    causes = []
    while error is not None:
        causes.append(error)
        error = error.__cause__
    assert any(isinstance(cause, ZeroDivisionError) for cause in causes) or any(
        isinstance(cause, LostRankError) and "rank 1: ZeroDivisionError: broke" in cause.received for cause in causes
    )
    assert trainer.plan.counters.updates == 2


class OwnWay(A2CGraph):
    """Takes its gradients itself."""

    def _step(self, rows):
        gradients = graph.gradients(self._loss(rows), self.trained())
        self.optimizer.apply(gradients, self.trained())


def test_an_agent_that_moves_weights_past_the_ranks_is_found_after_the_first_update(trainers, monkeypatch):
    monkeypatch.setattr(A2C, "graph_class", OwnWay)
    trainer = trainers("a2c", evaluate_every=0, checkpoint_every=0, **SETS)
    with pytest.raises(PlanError, match="different weights after an update"):
        finish(trainer)


@pytest.mark.parametrize(("at", "method"), [(3, "_round"), (1, "_check_equal")])
def test_the_others_go_on_without_a_rank_that_fails_where_the_group_is_to_shrink(
    trainers, monkeypatch, tmp_path, at, method
):
    failing(monkeypatch, at, method)
    sets = {**SETS, "num_envs": 6, "placement.learners": 3, "placement.on_error": "shrink", "evaluate_every": 0}
    trainer = trainers("a2c", tmp_path / "run", checkpoint_every=0, **sets)
    rows = finish(trainer)
    assert rows[-1]["train_one_step/ranks"] < 3
    assert rows[-1]["failures/parallel_rollouts"] == 1
    assert trainer.plan.counters.env_steps_sampled >= 400
    learned = [own for own in trainer.plan.ask_workers("learned_state") if own]
    trainer.model()
    assert trainer.agent.env_steps == trainer.plan.counters.env_steps_sampled  # not the steps of the one that was lost
    for path, value in learned[0].items():
        np.testing.assert_array_equal(learned[2][path], value, err_msg=path)
        np.testing.assert_array_equal(trainer.agent.state_dict()[path], value, err_msg=path)


@pytest.mark.parametrize(
    ("algorithm", "sets", "what", "where"),
    [
        ("a3c", {}, "a3c has no multi_learner form", "placement.name"),
        ("ape-x", {}, "ape-x has no multi_learner form", "placement.name"),
        ("a2c", {"num_envs": 3}, "environments cannot be divided evenly", "num_envs"),
        ("dqn", {"agent.batch_size": 15}, "transitions cannot be divided evenly", "agent.batch_size"),
        ("a2c", {"microbatch_size": 16}, "micro-batches give gradients", "microbatch_size"),
        ("impala", {"learner": "actor", "engine": "ray"}, "each learner is in the process of its rank", "learner"),
        ("a2c", {"agent.acting_backend": "auto"}, "measured in the driver", "agent.acting_backend"),
        ("dqn", {"agent.priority_beta": {"type": "linear", "start": 0.4, "end": 1.0, "steps": 9}}, "memory of its own",
         "agent.priority_beta"),
        ("a2c", {"placement.name": "local"}, "placement local has one learner", "placement.learners"),
        ("a2c", {"placement.on_error": "replace"}, "a rank cannot be restarted", "placement.on_error"),
    ],
)  # fmt: skip
def test_settings_that_have_no_meaning_are_refused_before_anything_is_made(algorithm, sets, what, where):
    spec = get_algorithm(algorithm)
    config = resolve_config(spec.config_class, sets={"env": "CartPole-v1", "num_envs": 4, **SETS, **sets})
    with pytest.raises(ConfigError, match=what) as caught:
        spec.compose(config)
    assert caught.value.where == where
    assert caught.value.fix


def test_a_rank_has_a_share_of_all_that_is_learned_from():
    def share(algorithm, **sets):
        config_class = get_algorithm(algorithm).config_class
        return rank_config(resolve_config(config_class, sets={"env": "CartPole-v1", **SETS, **sets}))

    ppo = share("ppo", **{"num_envs": 16, "placement.workers": 2, "agent.rollout_steps": 64})
    assert (ppo.num_envs, ppo.placement.workers, ppo.placement.name, ppo.engine) == (8, 2, "local", "local")
    assert ppo.agent.minibatches == 16  # of 64 rows: 32 of each rank
    dqn = share("dqn", **{"num_envs": 2, "agent.batch_size": 64, "agent.memory_capacity": 999})
    assert (dqn.num_envs, dqn.agent.batch_size, dqn.agent.memory_capacity) == (1, 32, 500)


RAY = {
    **SETS,
    "engine": "ray",
    "num_envs": 4,
    "object_store_mb": 80,
    "agent.network": NETWORK,
    "evaluate_every": 0,
    "worker_cpus": 0.25,
}


@pytest.mark.slow
@pytest.mark.long(minutes=0.4)
def test_on_ray_ranks_are_processes_that_learn_as_threads_do_and_a_killed_one_is_named(trainers, ray_engine):
    sets = {**RAY, "steps": 4_000, "checkpoint_every": 0}
    local, ranked = trainers("a2c", **{**sets, "engine": "local"}), trainers("a2c", **sets)
    local.run_to(200)
    ranked.run_to(200)
    check_ranks(ranked)
    # gloo adds two ranks up as this process does
    for path, value in local.plan.ask_workers("learned_state")[0].items():
        np.testing.assert_allclose(ranked.agent.state_dict()[path], value, rtol=1e-5, atol=1e-6, err_msg=path)
    pids = kill_one(ranked)
    # whichever is first: that its process is lost, or that another rank misses it
    with pytest.raises(PlanError, match="parallel_rollouts/1|rank 1 did not take part"):
        finish(ranked)
    ranked.close()
    assert not gone_within(pids, 10.0)


@pytest.mark.thorough
def test_on_ray_a_run_resumes_and_the_group_shrinks_where_a_rank_is_killed(trainers, ray_engine, tmp_path):
    uncut = trainers("a2c", tmp_path / "uncut", checkpoint_every=200, **RAY)
    finish(uncut)
    cut(make("a2c", tmp_path / "run", checkpoint_every=200, **RAY), 300)
    resumed = trainers("a2c", tmp_path / "run", checkpoint_every=200, **RAY)
    resumed.restore(find_checkpoint(tmp_path / "run"))
    finish(resumed)
    check_ranks(resumed)
    for path, value in uncut.plan.ask_workers("learned_state")[0].items():
        np.testing.assert_array_equal(resumed.agent.state_dict()[path], value, err_msg=path)
    for trainer in (uncut, resumed):
        trainer.close()
    shrink = {"placement.on_error": "shrink", "placement.rank_timeout": 60}
    shrinks = trainers("a2c", steps=2_000, checkpoint_every=0, **RAY, **shrink)
    shrinks.run_to(100)
    kill_one(shrinks, 0)
    shrinks.model()  # of another rank than the first, which is not missed yet
    assert finish(shrinks)[-1]["train_one_step/ranks"] < 2
    assert shrinks.env_steps >= 2_000


def kill_one(trainer, rank=1):
    """Kills the process of a rank; the processes of all."""
    pids = trainer.plan.ask_workers("process")
    os.kill(pids[rank], signal.SIGKILL)
    return pids
