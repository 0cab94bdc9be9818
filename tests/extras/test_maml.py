"""MAML as a training: tasks before and after adaptation, evaluation on new tasks, exact resume, Ray."""

import numpy as np
import pytest

from rlweave.algorithms.config import resolve_config
from rlweave.errors import ConfigError
from rlweave.extras.maml import MAMLTrainConfig, maml
from rlweave.runs.checkpoint import find_checkpoint
from rlweave.runs.run_directory import RunDirectory
from tests.algorithms.test_trainer import assert_same_state, cut, finish, state_of

SHARED = {
    "backend": "torch",
    "num_envs": 4,
    "tensorboard": False,
    "agent.network": [{"type": "dense", "units": 4, "activation": "tanh"}],
}
SMALL = {
    "regression": {
        "env": "rlweave/SineTasks-v0",
        "agent.problem": "regression",
        "agent.shots": 5,
        "agent.inner_lr": 0.01,
        "steps": 400,
        "report_every": 40,
        "evaluate_every": 120,
        "checkpoint_every": 120,
    },
    "reinforcement": {
        "env": "rlweave/PointNavigation-v0",
        "env_options": {"horizon": 4},
        "agent.shots": 8,
        "steps": 640,
        "report_every": 64,
        "evaluate_every": 192,
        "evaluation_episodes": 6,
        "checkpoint_every": 192,
    },
}


def trainer_of(problem, run=None, **sets):
    settings = {**SHARED, **SMALL[problem], **{key.replace("__", "."): value for key, value in sets.items()}}
    config = resolve_config(MAMLTrainConfig, sets=settings)
    if run is not None:
        run = RunDirectory(run) if run.exists() else RunDirectory.create("maml", config.to_data(), path=run)
    return maml.make_trainer(config, run)


def test_rollouts_before_and_after_adaptation_are_of_the_policies_that_they_say():
    """The learner adapts as the worker did: ratios are 1, so the loss of normalized advantages is their mean, 0."""
    trainer = trainer_of("reinforcement")
    try:
        (worker,) = trainer.parts.workers
        agent = trainer.agent
        worker.start(3)
        batch = worker.sample()
        assert batch.num_steps == agent.env_steps == 2 * 8 * 4
        before, after = agent.losses(batch.data)
        np.testing.assert_allclose(after, 0.0, atol=1e-5)
        assert np.abs(before).max() > 1e-4  # the policy that was not adapted has other ratios
        other = {"support": batch["query"], "query": batch["support"]}
        np.testing.assert_allclose(agent.losses(other)[0], 0.0, atol=1e-5)
        # a second item is of other tasks
        assert not np.array_equal(worker.sample()["support"]["advantages"], batch["support"]["advantages"])
        assert len(worker.task_returns[0]) == 4
    finally:
        trainer.close()


def test_both_rollouts_of_a_task_have_one_goal():
    """Rewards say where the goal is: where the point stood, minus the squared distance."""
    trainer = trainer_of("reinforcement", env_options={"horizon": 50}, agent__shots=12)
    try:
        (worker,) = trainer.parts.workers
        worker.start(1)
        seen = []
        worker.agent.postprocess = lambda rollout: (
            seen.append(rollout) or type(trainer.agent).postprocess(worker.agent, rollout)
        )
        worker.sample()
        goals = []
        for rollout in seen:
            positions = rollout["observations"][1:].astype(np.float64)
            rewards = rollout["rewards"][:-1].astype(np.float64)
            found = []
            for task in range(4):  # |p|^2 + r = 2 p g - |g|^2 is linear in g and |g|^2
                p = positions[:, task]
                matrix = np.concatenate([2 * p, -np.ones((len(p), 1))], axis=1)
                found.append(np.linalg.lstsq(matrix, (p**2).sum(1) + rewards[:, task], rcond=None)[0])
            goals.append(np.array(found))
        np.testing.assert_allclose(goals[0], goals[1], atol=1e-2)
        np.testing.assert_allclose((goals[0][:, :2] ** 2).sum(1), goals[0][:, 2], atol=1e-2)
        assert len(np.unique(goals[0].round(2), axis=0)) == 4
    finally:
        trainer.close()


@pytest.mark.parametrize("problem", sorted(SMALL))
def test_evaluation_is_of_new_tasks_the_same_each_time_and_disturbs_nothing(problem):
    trainer = trainer_of(problem)
    try:
        steps, state = trainer.agent.env_steps, trainer.agent.state_dict()
        first, again, other = (trainer.evaluate_tasks(6, seed) for seed in (1, 1, 2))
        assert [len(values) for values in first] == [6, 6]
        np.testing.assert_array_equal(first, again)
        assert not np.array_equal(first, other)
        assert trainer.agent.env_steps == steps
        for path, value in trainer.agent.state_dict().items():
            if "/adapted/" not in path:
                np.testing.assert_array_equal(value, state[path], err_msg=path)
        assert trainer.evaluate(6, 1).returns == pytest.approx(first[1])
        row = next(row for row in trainer.train() if "evaluation_return" in row)
        assert {"evaluation_return", "unadapted_return"} <= row.keys()
    finally:
        trainer.close()


@pytest.mark.parametrize(
    ("problem", "where"),
    [("regression", {}), ("reinforcement", {}), ("reinforcement", {"placement": "single_learner_coarse"})],
)
def test_it_is_deterministic_and_a_cut_training_equals_the_uncut_one(tmp_path, problem, where):
    sets = {"placement.workers": 2, **where}
    uncut = trainer_of(problem, tmp_path / "uncut", **sets)
    rows = finish(uncut)
    before = cut(trainer_of(problem, tmp_path / "cut", **sets), 280)
    resumed = trainer_of(problem, tmp_path / "cut", **sets)
    try:
        resumed.restore(find_checkpoint(tmp_path / "cut"))
        kept = [row for row in before if row["env_steps_sampled"] <= resumed.env_steps]
        assert kept
        np.testing.assert_equal([*kept, *finish(resumed)], rows)  # returns of a regression are NaN
        assert_same_state(state_of(uncut), state_of(resumed))
    finally:
        uncut.close()
        resumed.close()


@pytest.mark.slow
def test_workers_on_ray_adapt_and_send_both_rollouts(ray_engine, tmp_path):
    trainer = trainer_of("reinforcement", tmp_path / "run", engine="ray", placement__workers=2, object_store_mb=80)
    try:
        rows = list(trainer.train())
        assert trainer.agent.env_steps == trainer.env_steps >= 640
        assert rows[-1]["updates"] == trainer.env_steps // 64
        # whoever adapted elsewhere did so from the newest weights: ratios of the first epoch are 1
        assert abs(rows[-1]["train_one_step/adapted_loss"]) < 1e-4
    finally:
        trainer.close()


def test_an_environment_without_points_to_draw_is_no_regression():
    with pytest.raises(ConfigError, match="no distribution of regression tasks"):
        trainer_of("regression", env="CartPole-v1")


def test_an_environment_without_tasks_is_refused_where_it_would_ignore_the_wish_for_another_one():
    with pytest.raises(ConfigError, match="distribution of tasks") as caught:
        trainer_of("reinforcement", env="CartPole-v1", env_options={})
    assert "CartPole-v1" in str(caught.value)
    assert "new_task" in str(caught.value)


@pytest.mark.learning
@pytest.mark.long(minutes=1)
def test_a_tenth_of_the_training_leaves_a_fifth_of_the_loss(learning_seed, tmp_path):
    """The whole training, which `make learning` does, leaves a tenth; who has learned nothing, nearly all."""
    from benchmarks.learning import train_task

    row = train_task("maml-sine", "jax", learning_seed, tmp_path / "run", {"steps": 1_500_000})
    assert row["result"] < 0.2
