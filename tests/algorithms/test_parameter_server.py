"""Parameters in shards: together they are one optimizer, one is A3C; cut equals uncut; what is lost is counted."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest

from rlweave.agents.a2c import A3C
from rlweave.algorithms.config import resolve_config
from rlweave.algorithms.parameter_shard import ParameterShard, partition, shard_factories, whole_state
from rlweave.algorithms.registry import get_algorithm
from rlweave.errors import ConfigError, PlanError
from rlweave.flow import Gradients
from rlweave.flow.parameter_shards import InParts
from rlweave.runs.checkpoint import find_checkpoint
from rlweave.spaces import FloatBox, IntBox
from tests.algorithms.test_a2c import SETTINGS, make, trainers
from tests.algorithms.test_trainer import assert_same_state, cut, finish, state_of
from tests.processes import gone_within

__all__ = ["trainers"]  # a fixture

SHARDS = {"placement.name": "parameter_server", "placement.shards": 2}
COARSE = {"placement.name": "single_learner_coarse"}

# -- shards and their optimizers ------------------------------------------------------------------------------------

LINEAR = {"type": "linear", "start": 0.1, "end": 0.01, "steps": 4}
OPTIMIZERS = {
    "rmsprop": {"optimizer": {"type": "rmsprop", "centered": True, "momentum": 0.9}, "max_grad_norm": 0.5, "lr": 0.01},
    "adam": {"optimizer": {"type": "adam"}, "max_grad_norm": 0.5, "lr": LINEAR},
    "adamw": {"optimizer": {"type": "adamw", "weight_decay": 0.1}, "max_grad_norm": 100.0, "lr": 0.01},
    "sgd": {"optimizer": {"type": "sgd", "momentum": 0.9}, "max_grad_norm": None, "lr": LINEAR},
}


def agent_of(backend, **config):
    spaces = FloatBox(shape=(3,)), IntBox(2)
    return A3C(*spaces, {"network": [{"type": "dense", "units": 4}], **config}, backend=backend).build()


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("backend", ["torch", pytest.param("jax", marks=pytest.mark.thorough)])
def test_shards_together_are_one_optimizer_on_the_whole(backend, name):
    """To rounding: the norm is that of all gradients, schedules follow the number of updates. One shard: exactly."""
    agent = agent_of(backend, **OPTIMIZERS[name])
    factories = {number: shard_factories(agent, number) for number in (1, 2, 3)}
    shards = {number: [factory() for factory in own] for number, own in factories.items()}
    divided = {
        number: InParts([list(own.values) for own in factories[number]], agent.config.max_grad_norm)
        for number in factories
    }
    divided[1].max_norm = None
    rng = np.random.default_rng(0)
    for _ in range(5):
        values = {path: rng.normal(size=value.shape).astype(np.float32) for path, value in agent.get_weights().items()}
        agent.apply_gradients(values)
        for number, parts in divided.items():
            for shard, part in zip(shards[number], parts(Gradients(values, 8)).pieces, strict=True):
                shard.update(part)
    for number, own in shards.items():
        whole = whole_state(agent, [shard.state_dict() for shard in own])
        assert whole["counters"] == {"env_steps": 40}
        for path, value in agent.state_dict().items():
            if number == 1:
                np.testing.assert_array_equal(whole["variables"][path], value, err_msg=path)
            else:
                np.testing.assert_allclose(whole["variables"][path], value, rtol=2e-5, atol=1e-6, err_msg=path)


def test_each_variable_is_in_one_shard_and_shards_are_as_large_as_each_other():
    sizes = {"a": 4, "b": 400, "c": 160, "d": 160, "e": 100}
    parts = partition(sizes, 2)
    assert parts == [["a", "b"], ["c", "d", "e"]]
    assert partition(dict(reversed(sizes.items())), 2) == [["b", "a"], ["e", "d", "c"]]  # the order decides nothing
    agent = agent_of("torch")
    held = [set(factory.values) for factory in shard_factories(agent, 3)]
    assert set.union(*held) == set(agent.get_weights())
    assert sum(map(len, held)) == len(agent.get_weights())


# -- trainings ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sets", [{}, {"gather": "sync"}, pytest.param({"backend": "jax"}, marks=pytest.mark.thorough)])
def test_one_shard_is_a3c_bit_for_bit(trainers, sets):
    sets = {"steps": 320, "checkpoint_every": 0, **sets}
    alone, shard = trainers("a3c", **sets, **COARSE), trainers("a3c", **sets, **SHARDS | {"placement.shards": 1})
    assert finish(shard) == finish(alone)
    shard.model()  # which fetches
    np.testing.assert_equal(shard.agent.state_dict(), alone.agent.state_dict())
    assert shard.agent.counters() == alone.agent.counters()


@pytest.mark.parametrize("algorithm", ["a3c", "a2c"])
def test_several_shards_learn_what_one_learner_does(trainers, algorithm):
    """To rounding, so a few updates: A2C's are means over all workers, which it learns from together."""
    sets = {"steps": 96, "checkpoint_every": 0}
    alone, shards = trainers(algorithm, **sets, **COARSE), trainers(algorithm, **sets, **SHARDS)
    expected, row = finish(alone)[-1], finish(shards)[-1]
    for name in ("env_steps_sampled", "trained_samples", "gradient_steps", "updates", "train_lag/max"):
        assert row[name] == expected[name], name
    shards.model()
    for path, value in alone.agent.state_dict().items():
        np.testing.assert_allclose(shards.agent.state_dict()[path], value, rtol=1e-4, atol=1e-6, err_msg=path)


@pytest.mark.parametrize(
    ("algorithm", "sets"),
    [
        ("a3c", {}),
        ("a2c", {"microbatch_size": 8, "placement.on_error": "replace"}),
        pytest.param("a3c", {"agent__network": [{"type": "lstm", "units": 4}]}, marks=pytest.mark.thorough),
    ],
)
def test_a_cut_run_equals_an_uncut_one(trainers, tmp_path, algorithm, sets):
    sets = {**SHARDS, **sets}
    uncut = trainers(algorithm, tmp_path / "uncut", **sets)
    rows = finish(uncut)
    path = tmp_path / "cut"
    before = cut(make(algorithm, path, **sets), 400)
    resumed = trainers(algorithm, path, **sets)
    resumed.restore(find_checkpoint(path))
    assert 0 < resumed.env_steps < 600
    kept = [row for row in before if row["env_steps_sampled"] <= resumed.env_steps]
    assert [*kept, *finish(resumed)] == rows
    for trainer in (uncut, resumed):
        trainer.model()
    assert_same_state(state_of(uncut), state_of(resumed))


def test_what_shards_learned_is_an_agent_like_any_other(trainers):
    """Its state goes on in this process, and back into shards."""
    sets = {"steps": 160, "checkpoint_every": 0}
    shards, alone = trainers("a3c", **sets, **SHARDS), trainers("a3c", **sets)
    finish(shards)
    state = shards.state_dict()
    alone.load_agent(state)
    np.testing.assert_equal(alone.agent.state_dict(), shards.agent.state_dict())
    alone.agent.apply_gradients({path: np.ones_like(value) for path, value in alone.agent.get_weights().items()})
    shards.load_agent({"variables": alone.agent.state_dict(), "agent": alone.agent.counters()})
    shards.model()
    np.testing.assert_equal(alone.agent.state_dict(), shards.agent.state_dict())


def test_a_shard_that_fails_is_restarted_and_its_lost_updates_are_counted(trainers, monkeypatch):
    update, calls = ParameterShard.update, []

    def fail_once(self, gradients):
        calls.append(self)
        if len(calls) == 26:  # the second shard's 13th
            raise ZeroDivisionError("broke")
        return update(self, gradients)

    monkeypatch.setattr(ParameterShard, "update", fail_once)
    sets = {**SHARDS, "placement.on_error": "replace", "placement.shard_snapshots": 5, "checkpoint_every": 0}
    trainer = trainers("a3c", **sets)
    row = finish(trainer)[-1]
    assert (row["env_steps_sampled"], row["updates"]) == (608, 38)
    lost = {name: value for name, value in row.items() if name.split("/")[0] in ("lost_updates", "replacements")}
    assert lost == {"lost_updates/apply_gradients-1": 3, "replacements/apply_gradients-1": 1}  # of 13, back to 10
    first, second = (trainer.plan.ask_learner(shard, "state_dict") for shard in trainer.parts.remote.shards)
    steps = "actor-critic/optimizer/steps"
    assert (first["variables"][steps], second["variables"][steps]) == (38, 35)
    trainer.model()
    assert trainer.agent.state_dict()[steps] == 38


def test_a_shard_that_fails_ends_the_training_and_the_last_checkpoint_is_whole(trainers, monkeypatch, tmp_path):
    update, calls = ParameterShard.update, []

    def fail(self, gradients):
        calls.append(self)
        if len(calls) == 60:
            raise ZeroDivisionError("broke")
        return update(self, gradients)

    monkeypatch.setattr(ParameterShard, "update", fail)
    with pytest.raises(PlanError, match="operator 'apply_gradients-1' failed: ZeroDivisionError: broke"):
        finish(trainers("a3c", tmp_path / "run", **SHARDS))
    resumed = trainers("a3c", tmp_path / "run", **SHARDS)
    resumed.restore(find_checkpoint(tmp_path / "run"))
    assert resumed.env_steps == 400
    resumed.model()
    assert resumed.agent.state_dict()["actor-critic/optimizer/steps"] == 25
    finish(resumed)


@pytest.mark.parametrize(
    ("algorithm", "sets", "text", "where"),
    [
        ("ppo", SHARDS, "ppo has no parameter_server form: its update is not one optimizer step", "placement.name"),
        ("a3c", {**SHARDS, "placement.shards": 9}, "more shards than variables", "placement.shards"),
        ("a3c", {"placement.shards": 2}, "placement local has no shards of the parameters", "placement.shards"),
        ("a2c", {**SHARDS, "agent.normalize_observations": True}, "no observations to keep", "agent.normalize_obs"),
        ("a3c", {**SHARDS, "agent.device": {"policy": "cpu"}}, "could be on different devices", "agent.device"),
        ("a2c", {**SHARDS, "agent.replicas": 2}, "each worker computes gradients", "agent.replicas"),
        ("a3c", {**SHARDS, "placement.on_error": "shrink"}, "nobody else has the parameters", "placement.on_error"),
        ("a3c", {**SHARDS, "gather": "sync", "max_lag": 1}, "no weight lag to bound", "max_lag"),
    ],
)
def test_settings_that_have_no_meaning_are_refused(algorithm, sets, text, where):
    with pytest.raises(ConfigError, match=text) as caught:
        make(algorithm, **sets)
    assert caught.value.where.startswith(where)
    assert caught.value.received
    assert caught.value.fix


def test_the_partition_and_the_borders_are_explained():
    spec = get_algorithm("a3c")
    text = spec.explain(make_config(spec, **SHARDS, max_lag=3))
    shards = text[text.index("Shards of the parameters") :].splitlines()
    assert shards[3].split()[:2] == ["0", "224"]
    assert shards[4].split()[:2] == ["1", "204"]
    assert "policy/network/dense/kernel" in shards[3] + shards[4]
    borders = [line.split() for line in text[text.index("Borders") :].splitlines()]
    assert ["worker", "shard", "1", "gradients", "204", "async", "8", "3", "stop,", "after", "600", "s"] in borders


def make_config(spec, **sets):
    return resolve_config(spec.config_class, sets={**SETTINGS, **sets})


# -- processes ------------------------------------------------------------------------------------------------------

RAY = {"engine": "ray", "object_store_mb": 80, "worker_cpus": 0.25, **SHARDS}


def kill(trainer, number):
    """Kills the process of a shard; the processes of all."""
    pids = [trainer.plan.ask_learner(shard, "process") for shard in trainer.parts.remote.shards]
    os.kill(pids[number], signal.SIGKILL)
    return pids


@pytest.mark.slow
@pytest.mark.long(minutes=0.5)
def test_on_ray_a_killed_shard_is_restarted_and_counters_are_exact(trainers, ray_engine):
    sets = {**RAY, "placement.on_error": "replace", "max_lag": 2, "steps": 1_600, "checkpoint_every": 0}
    trainer = trainers("a3c", **sets)
    trainer.run_to(400)
    pids = kill(trainer, 1)
    row = finish(trainer)[-1]
    trainer.model()
    counters, steps = trainer.plan.counters, "actor-critic/optimizer/steps"
    assert counters.replacements == {"apply_gradients-1": 1}
    assert row["env_steps_sampled"] == 16 * (counters.updates + counters.drops.get("gather_async", 0))
    states = [trainer.plan.ask_learner(shard, "state_dict") for shard in trainer.parts.remote.shards]
    lost = counters.lost_updates["apply_gradients-1"]
    assert [int(state["variables"][steps]) for state in states] == [counters.updates, counters.updates - lost]
    assert set(trainer.plan.report().train_lag) <= {0, 1, 2}
    trainer.close()
    assert not gone_within(pids, 10.0)


@pytest.mark.thorough
def test_on_ray_a_killed_shard_ends_the_training_which_resumes_in_one_process(trainers, ray_engine, tmp_path):
    trainer = trainers("a3c", tmp_path / "run", **RAY, steps=4_000, checkpoint_every=160)
    trainer.run_to(400)
    trainer.save()
    kill(trainer, 0)
    with pytest.raises(PlanError, match="apply_gradients"):
        finish(trainer)
    trainer.close()
    resumed = trainers("a3c", tmp_path / "run", **RAY, steps=800, checkpoint_every=0)
    resumed.restore(find_checkpoint(tmp_path / "run"))
    assert finish(resumed)[-1]["env_steps_sampled"] >= 800
    alone = trainers("a3c", checkpoint_every=0)
    alone.load_agent(resumed.state_dict())
    np.testing.assert_equal(alone.agent.state_dict(), resumed.agent.state_dict())
