"""A2C and A3C as trainings: micro-batches change nothing, lags are exact, counters count, cut equals uncut."""

from __future__ import annotations

import numpy as np
import pytest

from rlweave.algorithms.config import resolve_config
from rlweave.algorithms.registry import get_algorithm
from rlweave.errors import ConfigError
from rlweave.flow import WorkerGroup
from rlweave.runs.checkpoint import find_checkpoint
from rlweave.runs.run_directory import RunDirectory
from tests.algorithms.test_trainer import assert_same_state, cut, finish, state_of

SETTINGS = {
    "env": "CartPole-v1",
    "backend": "torch",
    "num_envs": 4,
    "placement.workers": 2,
    "steps": 600,
    "report_every": 50,
    "evaluate_every": 0,
    "checkpoint_every": 200,
    "tensorboard": False,
    "agent.network": [{"type": "dense", "units": 8, "activation": "tanh"}],
    "agent.rollout_steps": 8,
    "agent.acting_backend": "numpy",
    "agent.lr": {"type": "linear", "start": 1e-2, "end": 0.0},
}


def make(algorithm, run=None, **sets):
    """A trainer of a small agent."""
    spec = get_algorithm(algorithm)
    config = resolve_config(spec.config_class, sets={**SETTINGS, **{k.replace("__", "."): v for k, v in sets.items()}})
    if run is not None:
        run = RunDirectory(run) if run.exists() else RunDirectory.create(algorithm, config.to_data(), path=run)
    return spec.make_trainer(config, run)


@pytest.fixture
def trainers():
    """Makes trainers and closes them at the end."""
    made = []

    def make_and_remember(*args, **sets):
        made.append(make(*args, **sets))
        return made[-1]

    yield make_and_remember
    for trainer in made:
        trainer.close()


@pytest.mark.parametrize("size", [8, 16, 24])
def test_micro_batches_change_nothing_but_the_memory_that_is_needed(trainers, size):
    # workers act on NumPy with weights equal to 1e-7 or so: few updates, or one action would differ and all after it
    whole, parts = (trainers("a2c", steps=96, placement__workers=1, **more) for more in ({}, {"microbatch_size": size}))
    rows = [finish(trainer)[-1] for trainer in (whole, parts)]
    assert [row["gradient_steps"] for row in rows] == [3, 3]
    assert [row["trained_samples"] for row in rows] == [96, 96]
    for path, value in whole.agent.get_weights().items():
        np.testing.assert_allclose(parts.agent.get_weights()[path], value, atol=1e-5, err_msg=path)
    for name in ("policy_loss", "value_loss", "entropy"):
        assert rows[1][f"apply_gradients/{name}"] == pytest.approx(rows[0][f"train_one_step/{name}"], abs=1e-4)
    assert f"microbatch_size={size}" in parts.plan.explain()


@pytest.mark.parametrize(
    ("placement", "workers", "lags"),
    [
        ("local", 1, {0: 10}),
        ("local", 2, {0: 1, 1: 9}),
        ("single_learner_coarse", 2, {0: 1, 1: 9}),
        ("single_learner_coarse", 4, {0: 1, 1: 1, 2: 1, 3: 7}),
    ],
)
def test_gradients_are_n_minus_1_updates_old_in_turns(trainers, placement, workers, lags):
    """Exact numbers, also at the very start: worker i computes its first gradients before any update."""
    steps = 10 * 8 * (4 // workers)
    trainer = trainers("a3c", steps=steps, placement__workers=workers, placement=placement, checkpoint_every=0)
    row = finish(trainer)[-1]
    report = trainer.plan.report()
    assert report.train_lag == report.gather_lag == lags
    assert row["env_steps_sampled"] == row["trained_samples"] == steps
    ahead = 8 * 4 // workers * (workers - 1)  # an agent that all share acts ahead of what was delivered
    assert trainer.agent.env_steps == steps + (ahead if placement == "local" else 0)
    assert row["gradient_steps"] == report.updates == 10
    assert isinstance(trainer.parts.workers, WorkerGroup) == (placement != "local")


def test_workers_of_their_own_compute_with_the_weights_they_were_sent(trainers):
    """A stale worker's gradient is that of the weights of n - 1 updates ago, not of the learner's present ones."""
    trainer = trainers("a3c", placement__workers=2, placement="single_learner_coarse", steps=160)
    learner, weights, kept = trainer.agent, [], []
    apply = learner.apply_gradients

    def note(gradients):
        weights.append({path: value.copy() for path, value in learner.get_weights().items()})
        kept.append({path: value.copy() for path, value in gradients.items()})
        apply(gradients)

    learner.apply_gradients = note
    taken = []
    group = trainer.plan._context.actors(trainer.parts.workers)
    for actor in group:
        compute = actor.worker.compute_gradients

        def and_keep(batch, compute=compute):
            taken.append({name: np.copy(value) for name, value in batch.data.items()})
            return compute(batch)

        actor.worker.compute_gradients = and_keep
    finish(trainer)
    # one worker after the other is asked ahead: batch i becomes gradient i
    for i in range(1, len(kept)):
        learner.set_weights(weights[i - 1])
        expected, _ = learner.rollout_gradients(taken[i])
        for path, value in kept[i].items():
            np.testing.assert_allclose(value, expected[path], atol=1e-6, err_msg=f"gradient {i}, {path}")
        learner.set_weights(weights[i])
        present, _ = learner.rollout_gradients(taken[i])
        assert any(np.abs(value - present[path]).max() > 1e-5 for path, value in kept[i].items())


def test_rounds_of_gradients_are_averaged_and_have_no_lag(trainers):
    """Then A3C is A2C whose workers compute: the same updates of the same rollouts."""
    sets = {"steps": 128, "checkpoint_every": 0, "placement": "single_learner_coarse"}
    rounds, whole = trainers("a3c", gather="sync", **sets), trainers("a2c", **sets)
    rows = [finish(trainer)[-1] for trainer in (rounds, whole)]
    assert rounds.plan.report().train_lag == {0: 4}
    assert [row["gradient_steps"] for row in rows] == [4, 4]
    assert [row["trained_samples"] for row in rows] == [128, 128]
    theirs = whole.agent.get_weights()
    for path, value in rounds.agent.get_weights().items():
        if "policy" in path:  # A2C's workers need no more
            np.testing.assert_allclose(value, theirs[path], atol=1e-5, err_msg=path)


@pytest.mark.parametrize(
    ("algorithm", "sets"),
    [
        ("a2c", {}),
        ("a2c", {"microbatch_size": 8}),
        ("a2c", {"placement": "single_learner_coarse", "gather": "async", "agent__normalize_observations": True}),
        ("a3c", {}),
        ("a3c", {"placement": "single_learner_coarse"}),
        ("a3c", {"gather": "sync"}),
        ("a3c", {"agent__network": [{"type": "lstm", "units": 4}], "placement": "single_learner_coarse"}),
    ],
)
def test_a_cut_run_equals_an_uncut_one(trainers, tmp_path, algorithm, sets):
    uncut = trainers(algorithm, tmp_path / "uncut", **sets)
    rows = finish(uncut)
    path = tmp_path / "cut"
    before = cut(make(algorithm, path, **sets), 400)
    resumed = trainers(algorithm, path, **sets)
    resumed.restore(find_checkpoint(path))
    assert 0 < resumed.env_steps < 600
    kept = [row for row in before if row["env_steps_sampled"] <= resumed.env_steps]
    assert [*kept, *finish(resumed)] == rows
    assert_same_state(state_of(uncut), state_of(resumed))


@pytest.mark.slow
def test_a_cut_run_equals_an_uncut_one_on_jax(trainers, tmp_path):
    test_a_cut_run_equals_an_uncut_one(trainers, tmp_path, "a3c", {"backend": "jax"})


@pytest.mark.parametrize(
    ("algorithm", "sets", "text"),
    [
        ("a2c", {"microbatch_size": 12}, "choose a multiple of 8"),
        ("a2c", {"microbatch_size": 8, "agent.normalize_observations": True}, "no observations to keep statistics of"),
        ("a2c", {"microbatch_size": 0}, "microbatch_size"),
        ("a3c", {"placement": "fused", "placement.workers": 1}, "no fused form"),
        ("a3c", {"agent.normalize_observations": True}, "unknown setting 'agent.normalize_observations'"),
        ("a3c", {"gather": "sync", "max_lag": 1}, "max_lag"),
    ],
)
def test_settings_that_contradict_are_refused(algorithm, sets, text):
    with pytest.raises(ConfigError, match=text):
        make(algorithm, **sets)


def test_the_plans_are_drawn_with_their_types(trainers):
    for algorithm, sets, operators in (
        ("a2c", {}, ["concat_batches", "train_one_step"]),
        ("a2c", {"microbatch_size": 8}, ["compute_gradients", "apply_gradients"]),
        ("a3c", {}, ["compute_gradients", "gather_async", "apply_gradients"]),
        ("a3c", {"gather": "sync"}, ["compute_gradients", "gather_sync", "average_gradients", "apply_gradients"]),
    ):
        text = trainers(algorithm, **sets).plan.explain()
        positions = [text.index(name) for name in operators]
        assert positions == sorted(positions)
        assert "Gradients" in text or not sets


@pytest.mark.slow
@pytest.mark.long(minutes=0.5)
def test_a3c_on_ray_computes_gradients_in_its_workers(trainers, ray_engine):
    """Lags are measured there, and bounded where asked; acting on NumPy, gradients on the backend that learns."""
    sets = {"engine": "ray", "object_store_mb": 80, "max_lag": 1, "steps": 1_000, "checkpoint_every": 0}
    trainer = trainers("a3c", **sets)
    rows = finish(trainer)
    report = trainer.plan.report()
    assert set(report.train_lag) <= {0, 1}
    assert sum(report.train_lag.values()) == report.updates == trainer.plan.counters.gradient_steps
    dropped = trainer.plan.counters.drops.get("gather_async", 0)
    assert rows[-1]["env_steps_sampled"] == 16 * (report.updates + dropped)
    assert rows[-1]["trained_samples"] == 16 * report.updates == trainer.agent.env_steps
