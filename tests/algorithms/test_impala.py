"""IMPALA and APPO as trainings: lag and ratios, where parts live, exact resumption, settings that contradict."""

import itertools
import pickle

import gymnasium
import numpy as np
import pytest

from benchmarks import off_policy
from rlweave.algorithms.config import resolve_config
from rlweave.algorithms.impala import IMPALATrainConfig, impala
from rlweave.algorithms.learners import LearnerFactory
from rlweave.errors import ConfigError, PlanError
from rlweave.runs.checkpoint import find_checkpoint
from tests.algorithms.remote_envs import LastReward
from tests.algorithms.test_trainer import assert_same_state, cut, finish, make, state_of, trainers

__all__ = ["trainers"]  # a fixture

ELSEWHERE = {"placement": "single_learner_coarse"}


@pytest.mark.parametrize(("workers", "ahead"), [(1, 2), (1, 4), (2, 1), (2, 3)])
def test_v_trace_corrects_for_a_lag_that_is_known(trainers, workers, ahead):
    trainer = trainers("impala", backend="torch", placement__workers=workers, rollouts_ahead=ahead, steps=1_600)
    rows = finish(trainer)
    lags = trainer.plan.report().train_lag
    updates = trainer.plan.counters.updates
    assert updates == 1_600 // (8 * 2 // workers)
    # the first items of all were asked for with the same weights; from then on each is as old as all that are ahead
    largest = workers * ahead - 1
    assert largest >= 1
    assert lags == {**dict.fromkeys(range(largest), 1), largest: updates - largest}
    ratios = [row["train_one_step/off_policy"] for row in rows if "train_one_step/off_policy" in row]
    assert min(ratios) > 1e-6
    assert abs(rows[-1]["train_one_step/mean_ratio"] - 1.0) < 0.2


def test_on_the_newest_weights_there_is_nothing_to_correct(trainers):
    trainer = trainers("impala", backend="torch", agent__acting_backend=None)
    rows = finish(trainer)
    assert trainer.plan.report().train_lag.keys() == {0}
    assert max(row["train_one_step/off_policy"] for row in rows) < 1e-6


def test_weights_are_published_at_intervals(trainers):
    sets = {**ELSEWHERE, "evaluate_every": 0, "checkpoint_every": 0}  # checkpoints send weights, too
    trainer = trainers("impala", backend="torch", broadcast_interval=3, steps=1_600, **sets)
    finish(trainer)
    lags = trainer.plan.report().train_lag
    assert lags.keys() == {0, 1, 2}
    assert max(lags.values()) - min(lags.values()) <= 1


@pytest.mark.parametrize(
    ("algorithm", "sets"),
    [
        ("impala", {"placement.workers": 2, "rollouts_ahead": 3, "replay_proportion": 1.0, "replay_capacity": 10}),
        (
            "impala",
            {
                "placement.workers": 2,
                "broadcast_interval": 2,
                "learner": "actor",
                "rollouts_per_update": 2,
                **ELSEWHERE,
            },
        ),
        ("appo", {"rollouts_ahead": 2, "agent__target_update_interval": 2}),
        (
            "appo",
            {"placement.workers": 2, "learner": "actor", "learner_queue": 1, "replay_proportion": 1.0, **ELSEWHERE},
        ),
    ],
    ids=["impala-replay", "impala-learner-elsewhere", "appo", "appo-learner-elsewhere"],
)
def test_a_cut_run_equals_an_uncut_one(trainers, tmp_path, algorithm, sets):
    sets = {"backend": "torch", "agent__acting_backend": "numpy", **sets}
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
    counters, config = uncut.plan.counters, uncut.config
    passes = (1 + config.replay_proportion) * getattr(config.agent, "epochs", 1)
    assert counters.trained_samples == counters.updates * config.new_trajectories * 8 * passes


def test_a_learner_elsewhere_is_the_one_that_is_evaluated_and_saved(trainers, tmp_path):
    sets = {"backend": "torch", "agent__acting_backend": "numpy", **ELSEWHERE}
    here, elsewhere = (trainers("impala", tmp_path / learner, learner=learner, **sets) for learner in ("here", "actor"))
    assert finish(here) == finish(elsewhere)
    elsewhere.save()
    for path, value in here.agent.state_dict().items():
        if not path.startswith("acting:"):
            np.testing.assert_array_equal(value, elsewhere.agent.state_dict()[path], err_msg=path)


def test_a_process_that_did_not_register_the_environment_knows_it_with_the_learner():
    env_id = "rlweave-tests/OfTheScript-v0"
    gymnasium.register(env_id, LastReward)
    try:
        config = resolve_config(IMPALATrainConfig, sets={"env": env_id})
        shipped = pickle.dumps(LearnerFactory(config, impala.make_agent))
    finally:
        del gymnasium.registry[env_id]
    try:
        assert pickle.loads(shipped).config.env == env_id  # noqa: S301 - it was made here
        assert env_id in gymnasium.registry
    finally:
        gymnasium.registry.pop(env_id, None)


@pytest.mark.slow
def test_on_old_trajectories_a_run_without_v_trace_does_worse():
    """One seed; `benchmarks/off_policy.py` has all."""
    corrected, uncorrected = (off_policy.train(correction, 0, {}) for correction in off_policy.CORRECTIONS)
    assert corrected["result"] > uncorrected["result"]
    for row in (corrected, uncorrected):
        assert row["usual_lag"] == 40
        assert row["mean_distance_of_ratios_from_1"] > 0.1


@pytest.mark.slow
@pytest.mark.long(minutes=0.5)
def test_on_ray_with_the_learner_in_a_process_of_its_own(trainers, ray_engine, tmp_path):
    sets = {
        "backend": "torch",
        "agent__acting_backend": "numpy",
        "engine": "ray",
        "placement.workers": 2,
        "object_store_mb": 80,
    }
    sets |= {"learner": "actor", "learner_queue": 2, "steps": 1_000, "checkpoint_every": 400}
    path = tmp_path / "run"
    cut(make("impala", path, **sets), 600)
    resumed = trainers("impala", path, **sets)
    resumed.restore(find_checkpoint(path))
    before = resumed.plan.counters
    assert 400 <= before.env_steps_sampled <= 600
    updates = before.updates
    rows = finish(resumed)
    counters = resumed.plan.counters
    assert counters.updates > updates
    assert counters.trained_samples == 8 * counters.updates  # one rollout of 8 steps in 1 environment each
    report = resumed.plan.report()
    assert sum(report.train_lag.values()) == counters.updates
    assert 0 <= report.measures["queue/fill"] <= 2
    assert "train_one_step/off_policy" in rows[-1]
    assert not report.drops


class FailsOnce:
    """Makes learners, the first of which fails at its eighth update."""

    def __init__(self, factory):
        self.factory, self.calls = factory, itertools.count()

    def __call__(self):
        learner = self.factory()
        update = learner.update

        def failing(batch):
            if next(self.calls) == 7:
                raise ZeroDivisionError("broke down")
            return update(batch)

        learner.update = failing
        return learner


def failing_learner(trainers, **sets):
    sets = {"backend": "torch", "agent__acting_backend": "numpy", "learner": "actor", **ELSEWHERE, **sets}
    return trainers("appo", evaluate_every=0, learner_snapshots=3, steps=1_600, **sets)


def check_replaced(counters):
    assert counters.failures == counters.replacements == {"train_one_step": 1}
    assert counters.lost_updates.get("train_one_step", 0) <= 2 * 3
    assert counters.env_steps_sampled == 1_600


def test_a_learner_in_an_actor_that_fails_stops_the_training_or_is_replaced_as_the_settings_say(trainers):
    for how in ("stop", "replace"):
        trainer = failing_learner(trainers, **{"placement.on_error": how})
        trainer.parts.remote.actor.factory = FailsOnce(trainer.parts.remote.actor.factory)
        trainer.load_state_dict(trainer.state_dict())  # makes the learner anew
        if how == "stop":
            with pytest.raises(PlanError, match="'train_one_step' failed: ZeroDivisionError: broke down"):
                finish(trainer)
    finish(trainer)
    check_replaced(trainer.plan.counters)
    assert trainer.plan.counters.lost_items == {"train_one_step": 1}


@pytest.mark.slow
@pytest.mark.long(minutes=0.3)
def test_on_ray_a_learner_whose_process_is_killed_is_replaced(trainers, ray_engine):
    import ray

    trainer = failing_learner(trainers, engine="ray", object_store_mb=80, **{"placement.on_error": "replace"})
    trainer.run_to(400)
    (record,) = trainer.plan._context._learners.values()
    ray.kill(record.actor.handle, no_restart=True)
    finish(trainer)
    check_replaced(trainer.plan.counters)


@pytest.mark.parametrize(
    ("sets", "text"),
    [
        ({"placement.on_error": "shrink", "learner": "actor", "engine": "ray"}, "without the learner nothing goes on"),
        ({"broadcast_interval": 2}, "always have the newest weights"),
        ({"learner": "actor"}, "cannot act on the agent of a learner in an actor"),
        ({"learner_cpus": 1.0}, "holds no cores of its own"),
        ({"rollouts_ahead": 2, "gather": "sync"}, "items gathered in rounds are not requested ahead"),
        ({"replay_proportion": 0.3}, "batches of an update differ in size"),
        ({"replay_proportion": 1.0, "agent.normalize_observations": True}, "count again in the statistics"),
        ({"placement": "fused"}, "no fused form"),
    ],
)
def test_settings_that_contradict_are_refused(sets, text):
    with pytest.raises(ConfigError, match=text):
        make("impala", backend="torch", **sets)
