"""Placement `single_learner_fine`: the training of `local`, bit for bit, with the environments in workers."""

import os
import signal
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from rlweave.algorithms.config import resolve_config
from rlweave.algorithms.placement import worker_failure
from rlweave.algorithms.registry import get_algorithm
from rlweave.errors import ConfigError
from rlweave.runs.checkpoint import find_checkpoint
from tests.algorithms.test_inference_server import serve_of
from tests.algorithms.test_trainer import assert_same_state, cut, finish, make, recurrent, state_of, trainers
from tests.processes import gone_within

__all__ = ["trainers"]  # a fixture
COMMON = {"backend": "torch", "agent__acting_backend": "numpy", "num_envs": 4}
FINE = {"placement.name": "single_learner_fine", "placement.workers": 2}
#: Masks and observations of several leaves, and a policy with a memory.
MASKED = {"env": "rlweave/MaskedRecall-v0", "agent__network": [{"type": "gru", "units": 4}]}


def of_training(rows):
    """Rows without what only a server reports; NaN is equal to NaN."""
    return repr([{name: value for name, value in row.items() if not name.startswith("serve/")} for row in rows])


@pytest.mark.parametrize(
    ("algorithm", "sets"),
    [
        ("ppo", {}),
        ("ppo", recurrent("ppo")),
        ("ppo", MASKED),
        ("dqn", {}),
        pytest.param("dqn", recurrent("dqn"), marks=pytest.mark.thorough),
        pytest.param("sac", {}, marks=pytest.mark.thorough),
    ],
    ids=["ppo", "recurrent", "masked", "dqn", "recurrent-dqn", "sac"],
)
def test_with_whole_batches_it_is_the_training_of_one_process(trainers, algorithm, sets):
    sets = {**COMMON, **sets, "steps": 300, "return_window": 1000}  # of all episodes, in whichever order
    local = trainers(algorithm, **sets)
    rows = finish(local)
    fine = trainers(algorithm, **sets, **FINE)
    assert of_training(finish(fine)) == of_training(rows)
    for path, value in local.agent.state_dict().items():
        np.testing.assert_array_equal(fine.agent.state_dict()[path], value, err_msg=path)
    assert fine.agent.env_steps == fine.plan.counters.env_steps_sampled == local.agent.env_steps


@pytest.mark.parametrize(
    ("algorithm", "sets"),
    [
        pytest.param("ppo", {"placement.server.batch_size": 1}, marks=pytest.mark.thorough),
        ("ppo", {**recurrent("ppo"), "placement.server.batch_size": 2}),
        ("dqn", {"placement.server.batch_size": 2}),
        pytest.param("dqn", {"placement.workers": 1}, marks=pytest.mark.thorough),
        pytest.param("impala", {"placement.server.batch_size": 2}, marks=pytest.mark.thorough),
    ],
    ids=["ppo", "recurrent", "dqn", "one-worker", "impala"],
)
def test_a_cut_run_equals_an_uncut_one(trainers, tmp_path, algorithm, sets):
    sets = {**COMMON, **FINE, "placement.workers": 4, **sets}
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


def test_where_environments_cannot_be_saved_all_begin_new_episodes(trainers, tmp_path):
    sets = {**COMMON, **FINE, "save_env_state": False}
    path = tmp_path / "cut"
    cut(make("ppo", path, **sets), 400)
    resumed = trainers("ppo", path, **sets)
    resumed.restore(find_checkpoint(path))
    at = resumed.env_steps
    assert "save_env_state is false" in resumed.notes[-1]
    rows = finish(resumed)
    assert rows[-1]["env_steps_sampled"] == resumed.agent.env_steps > at


@pytest.mark.parametrize(
    ("algorithm", "sets", "where", "text"),
    [
        ("ppo", {"alternating_sampling": True}, "alternating_sampling", "while others step"),
        ("impala", {"rollouts_ahead": 2}, "rollouts_ahead", "collects nothing ahead"),
        ("impala", {"max_lag": 2}, "max_lag", "newest weights"),
        ("impala", {"broadcast_interval": 2}, "broadcast_interval", "always have the newest weights"),
        ("impala", {"learner": "actor"}, "learner", "cannot act on the agent of a learner in an actor"),
        ("ppo", {"placement.server.batch_size": 5}, "placement.server.batch_size", "never be whole"),
        ("ppo", {"placement.name": "local", "placement.server.batch_size": 2}, "placement.server", "has no server"),
    ],
)
def test_settings_of_other_placements_are_refused(algorithm, sets, where, text):
    with pytest.raises(ConfigError, match=text) as caught:
        make(algorithm, **{**COMMON, **FINE, **sets})
    assert caught.value.where == where
    assert caught.value.received
    assert caught.value.fix


def test_the_plan_shows_server_borders_and_batches():
    spec = get_algorithm("ppo")
    sets = {"env": "CartPole-v1", "backend": "torch", "num_envs": 4, **FINE, "placement.server.wait": 0.5}
    config = resolve_config(spec.config_class, sets={**sets, "engine": "ray", "placement.on_error": "replace"})
    text = spec.explain(config)
    lines = {" ".join(line.split()) for line in text.splitlines()}
    assert "serve Offer SampleBatch , list driver batch_size=4, wait=0.5 s, in rounds" in lines
    assert "reply parallel_rollouts act 1 block" in lines
    assert not any("parallel_rollouts weights" in line for line in lines)
    assert any(line.startswith("environments worker 2 host seed, environment replace, after 600 s") for line in lines)
    assert any(line.startswith("policy driver 1 ") for line in lines)
    assert f"worker driver Offer >= {2 * (4 * 4 + 8)} async 1 each 0 replace, after 600 s" in lines
    assert f"driver worker actions {2 * 4} reply 1 each 0 replace, after 600 s" in lines
    assert "single_learner_fine" not in spec.compose(config).draw("mermaid")
    assert "act" in spec.compose(config).draw("mermaid")


class Mortal:
    """Makes a worker that fails at some item, and cannot be made again."""

    def __init__(self, factory, at):
        self.factory, self.makes, self.at = factory, factory.makes, at
        self.items = 0

    def __call__(self):
        if self.items:
            raise ConnectionError("no machine is left")
        worker = self.factory()
        sample = worker.sample

        def mortal():
            self.items += 1
            if self.items == self.at:
                raise ConnectionError("the machine is gone")
            return sample()

        worker.sample = mortal
        return worker


@pytest.mark.parametrize("algorithm", ["ppo", "dqn"])
def test_a_training_goes_on_without_a_worker_that_is_given_up(trainers, monkeypatch, algorithm):
    rule = worker_failure(SimpleNamespace(engine="ray", on_error="shrink", worker_timeout=60.0))
    monkeypatch.setattr("rlweave.algorithms.placement.worker_failure", lambda config: rule)
    sets = {**COMMON, **FINE, "placement.workers": 4, "steps": 400}
    trainer = trainers(algorithm, **sets)
    group = trainer.parts.workers
    group.factories[1] = Mortal(group.factories[1], at=30)
    trainer.load_state_dict(trainer.state_dict())
    rows = finish(trainer)
    assert rows[-1]["env_steps_sampled"] >= 400
    assert rows[-1]["failures/parallel_rollouts"] == 1
    assert rows[-1]["updates"] > rows[len(rows) // 2]["updates"] > 0
    assert 3.0 < rows[-1]["serve/batch"] < 4.0
    slots = serve_of(trainer.plan)
    collected = sum(slot._steps for slot in slots._slots) + sum(item.payload.num_steps for *_, item in slots._round)
    assert trainer.agent.env_steps == trainer.env_steps + collected


class Tells:
    """Makes a worker that tells about its process."""

    def __init__(self, factory):
        self.factory, self.makes = factory, factory.makes

    def __call__(self):
        worker = self.factory()
        worker.pid = os.getpid
        worker.frameworks = lambda: [name for name in ("torch", "jax", "tensorflow") if name in sys.modules]
        return worker


def telling(trainer):
    """Has the workers of the next plan tell about themselves; begins that plan."""
    group = trainer.parts.workers
    group.factories = [Tells(factory) for factory in group.factories]
    trainer.load_state_dict(trainer.state_dict())
    return trainer


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["replace", "shrink"])
def test_on_ray_workers_import_no_framework_and_one_that_is_killed_is_rows_less(trainers, ray_engine, rule):
    sets = {**COMMON, **FINE, **recurrent("ppo"), "steps": 1200, "worker_cpus": 0.5, "object_store_mb": 80}
    local = trainers("ppo", **{**sets, "placement.name": "local", "placement.workers": 1})
    trainer = telling(trainers("ppo", **sets, engine="ray", **{"placement.on_error": rule}))
    assert trainer.plan.ask_workers("frameworks") == [[], []]
    pids = trainer.plan.ask_workers("pid")
    expected, rows = local.train(), trainer.train()
    for _ in range(4):  # without a fault, it is the training of one process, here as well
        row, other = next(rows), next(expected)
        assert row["train_one_step/policy_loss"] == other["train_one_step/policy_loss"]
    os.kill(pids[1], signal.SIGKILL)
    last = list(rows)[-1]
    assert last["env_steps_sampled"] == trainer.agent.env_steps == trainer.plan.counters.env_steps_sampled
    assert last["failures/parallel_rollouts"] == last["lost_items/parallel_rollouts"] == 1
    assert trainer.plan.counters.replacements == ({"parallel_rollouts": 1} if rule == "replace" else {})
    trainer.close()
    assert not gone_within(pids, 10.0)
