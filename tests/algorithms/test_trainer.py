"""Trainings: a cut one equals an uncut one, evaluation disturbs nothing, the best checkpoint is the best."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest

from rlweave.algorithms.config import TrainConfig, resolve_config
from rlweave.algorithms.parts import Events
from rlweave.algorithms.registry import get_algorithm
from rlweave.algorithms.saving import Rescue
from rlweave.algorithms.trainer import PlanTrainer
from rlweave.envs import Evaluation
from rlweave.envs.seeding import derived_seed
from rlweave.envs.steps import Episode
from rlweave.errors import CheckpointError, ConfigError, PlanError
from rlweave.flow import ParallelRollouts, ReportMetrics, TrainOneStep
from rlweave.runs.checkpoint import (
    ARRAYS,
    MODEL,
    find_checkpoint,
    load_checkpoint,
    open_model,
    set_aside_newer,
)
from rlweave.runs.run_directory import RunDirectory
from tests.flow.fakes import FakeLearner, FakeWorker

NETWORK = [{"type": "dense", "units": 8, "activation": "tanh"}]
SETTINGS = {
    "ppo": {
        "num_envs": 2,
        "steps": 600,
        "agent.rollout_steps": 16,
        "agent.epochs": 2,
        "agent.minibatches": 2,
        "agent.normalize_observations": True,
        "agent.lr": {"type": "linear", "start": 1e-2, "end": 0.0},
    },
    "dqn": {
        "num_envs": 2,
        "steps": 500,
        "agent.learning_starts": 60,
        "agent.memory_capacity": 300,  # less than the steps: the ring goes round
        "agent.batch_size": 16,
        "agent.samples_per_step": 4.0,
        "agent.target_update_interval": 50,
        "agent.epsilon": {"type": "linear", "start": 1.0, "end": 0.1, "steps": 400},
        "agent.lr": {"type": "linear", "start": 1e-2, "end": 0.0},
    },
    "pqn": {
        "num_envs": 2,
        "steps": 600,
        "agent.rollout_steps": 16,
        "agent.epochs": 2,
        "agent.minibatches": 2,
        "agent.epsilon": {"type": "linear", "start": 1.0, "end": 0.1, "steps": 400},
        "agent.lr": {"type": "linear", "start": 1e-2, "end": 0.0},
    },
    "impala": {
        "num_envs": 2,
        "steps": 600,
        "agent.rollout_steps": 8,
        "agent.lr": {"type": "linear", "start": 1e-2, "end": 0.0},
    },
    "appo": {
        "num_envs": 2,
        "steps": 600,
        "agent.rollout_steps": 8,
        "agent.minibatches": 2,
        "agent.lr": {"type": "linear", "start": 1e-2, "end": 0.0},
    },
}
SETTINGS["ape-x"] = {
    **{
        key: value
        for key, value in SETTINGS["dqn"].items()
        if key.split(".")[-1] not in ("epsilon", "target_update_interval")
    },
    "steps_per_item": 8,
    "weight_interval": 20,
    "agent.target_update_samples": 200,
}
#: Algorithms for floats: TD3's second update is that of the policy, and its counter is a variable.
FLOATS = {
    "env": "Pendulum-v1",
    "env_options": {"max_episode_steps": 40},
    "num_envs": 2,
    "steps": 500,
    "agent.learning_starts": 60,
    "agent.memory_capacity": 300,
    "agent.batch_size": 16,
    "agent.samples_per_step": 4.0,
    "agent.lr": {"type": "linear", "start": 1e-2, "end": 0.0},
}
SETTINGS |= {  # of these schedules, too, the training is the length
    "sac": {**FLOATS, "agent.temperature_lr": {"type": "linear", "start": 1e-2, "end": 0.0}},
    "td3": FLOATS,
    "ddpg": {**FLOATS, "agent.n_step": 3},
}
SHARED = {
    "env": "CartPole-v1",
    "report_every": 50,
    "evaluate_every": 150,
    "evaluation_episodes": 2,
    "checkpoint_every": 200,
    "tensorboard": False,
    "agent.network": NETWORK,
}
ALGORITHMS = ["dqn", "ppo"]  # others have files of their own
CONTINUOUS = ["sac", "td3", "ddpg"]  # DQN's plan and workers, so that a few ways to run stand for all
BACKENDS = ("jax", "torch", "tensorflow")


def make(algorithm, run=None, **sets):
    """A trainer of a small agent; a run directory when a path is given (a new one, or one to go on with)."""
    spec = get_algorithm(algorithm)
    settings = {**SHARED, **SETTINGS[algorithm], **{key.replace("__", "."): value for key, value in sets.items()}}
    config = resolve_config(spec.config_class, sets=settings)
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


def finish(trainer):
    """Trains to the end; the lines of metrics without measured times."""
    return [without_times(row) for row in trainer.train()]


def without_times(row):
    return {name: value for name, value in row.items() if "second" not in name}


def cut(trainer, steps):
    """Trains until a report of so many steps, then abandons it as a killed process would."""
    rows = []
    for row in trainer.train():
        rows.append(without_times(row))
        if trainer.env_steps >= steps:
            break
    trainer.close()
    return rows


def state_of(trainer):
    """Arrays and counters, without measured times."""
    plan = trainer.plan.state_dict()
    operators = {name: {**entry, "timer": None} for name, entry in plan["operators"].items()}
    kept = {name: plan[name] for name in ("counters", "episodes", "train_lag", "gather_lag")}
    return trainer.agent.state_dict(), {**kept, "operators": operators, "agent": trainer.agent.counters()}


def assert_same_state(first, second):
    (arrays, counters), (other_arrays, other_counters) = first, second
    assert arrays.keys() == other_arrays.keys()
    for path, value in arrays.items():
        np.testing.assert_array_equal(value, other_arrays[path], err_msg=path)
    np.testing.assert_equal(counters, other_counters)


@pytest.mark.parametrize(
    ("algorithm", "sets"),
    [
        ("dqn", {}),
        # a call ends with the training
        ("dqn", {"placement": "fused", "agent.n_step": 1, "agent.target_update_interval": 40}),
        ("ape-x", {}),
    ],
    ids=["dqn", "fused", "ape-x"],
)
def test_a_schedule_over_the_whole_training_ends_with_it(trainers, algorithm, sets):
    trainer = trainers(algorithm, steps=500, agent__learning_starts=300, evaluate_every=0, backend="torch", **sets)
    updates = finish(trainer)[-1]["gradient_steps"]
    assert trainer.agent.config.lr["steps"] == (500 - 300) * 4 // 16
    assert trainer.agent.config.lr["steps"] - updates in (0, 1)  # the last item is stored, and nobody learns any more


#: Of a report, what does not depend on how many steps an item has.
KEPT = {"env_steps_sampled", "gradient_steps", "episode_return", "evaluation_return", "train_one_step/loss"}


@pytest.mark.parametrize("algorithm", ["dqn", "sac"])
@pytest.mark.parametrize(("starts", "ratio"), [(60, 4.0), (61, 3.0)])
def test_items_are_what_lies_between_updates_and_change_nothing(trainers, algorithm, starts, ratio):
    """Updates and reports come at the same steps, with the same numbers, as where an item is one step."""
    sets = {"num_envs": 1, "agent__learning_starts": starts, "agent__samples_per_step": ratio, "steps": 245}
    many, single = (
        trainers(algorithm, backend="torch", agent__n_step=2, **sets, **more) for more in ({}, {"steps_per_item": 1})
    )
    (worker,) = many.parts.workers
    lengths, sample = [], worker.sample
    worker.sample = lambda: lengths.append((item := sample()).num_steps) or item
    rows, expected = finish(many), finish(single)
    assert [row["env_steps_sampled"] for row in rows] == [50, 100, 150, 200, 245]
    for row, other in zip(rows, expected, strict=True):
        np.testing.assert_equal(*({key: found.get(key) for key in KEPT} for found in (row, other)))
    np.testing.assert_equal(many.agent.state_dict(), single.agent.state_dict())
    assert max(lengths[10:]) == np.ceil(16 / ratio)
    assert len(lengths) < 70


PLACES = [
    {},
    {"gather": "async"},
    {"placement": "single_learner_coarse", "gather": "sync"},
    {"placement": "single_learner_coarse", "gather": "async"},
]


@pytest.mark.parametrize(
    ("algorithm", "where"),
    [
        *itertools.product(ALGORITHMS, PLACES),
        *(pytest.param(name, PLACES[-1], marks=pytest.mark.slow) for name in CONTINUOUS),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value.values()) or "local",
)
def test_several_workers_in_turns_are_deterministic_and_resume_exactly(trainers, tmp_path, algorithm, where):
    sets = {"backend": "torch", "agent__acting_backend": "numpy", "placement.workers": 2, **where}
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
    assert len(uncut.parts.workers) == 2
    if "placement" not in where:
        assert [worker.env.num_envs for worker in uncut.parts.workers] == [1, 1]


@pytest.mark.parametrize(
    ("algorithm", "interval"), [("impala", {"broadcast_interval": 4}), ("ape-x", {"weight_interval": 90})]
)
def test_keeping_the_best_changes_nothing_in_the_course_of_an_asynchronous_training(
    trainers, tmp_path, algorithm, interval
):
    """Weights go to the workers at intervals of their own, whoever looks in between."""
    sets = {"backend": "torch", "agent__acting_backend": "numpy", "placement.workers": 2, "gather": "async"}
    sets |= {"placement": "single_learner_coarse", "checkpoint_every": 1000, **interval}
    plain = trainers(algorithm, evaluate_every=0, **sets)
    finish(plain)
    lag, state = plain.plan.report().train_lag, state_of(plain)
    for run in (tmp_path / "run", None):
        looked = trainers(algorithm, run, evaluate_every=50, **sets)
        rows = finish(looked)
        assert any(row.get("evaluation_return", -1) == row.get("best_evaluation_return", 0) for row in rows)
        assert looked.plan.report().train_lag == lag
        assert_same_state(state_of(looked), state)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_best_checkpoint_holds_what_acts_and_a_training_does_not_go_on_from_it(trainers, tmp_path, algorithm):
    path = tmp_path / "run"
    finish(trainers(algorithm, path, backend="torch"))
    best = path / "checkpoints" / "best"
    assert load_checkpoint(best)[0] == {}, "no optimizer, no memory"
    other = trainers(algorithm, path, backend="torch")
    with pytest.raises(CheckpointError, match="holds only a model, from which no training can resume"):
        other.restore(best)


@pytest.mark.parametrize("name", ["best", None])
def test_every_checkpoint_has_a_model_as_agents_export_it(trainers, tmp_path, name):
    path = tmp_path / "run"
    trainer = trainers("ppo", path, backend="torch", evaluate_every=0, steps=64)
    finish(trainer)
    if name:
        trainer.best_return = 1.0
        trainer._keep_best()
    saved = path / "checkpoints" / name if name else trainer.save()
    exported = trainer.agent.export_model(tmp_path / "exported")
    files = sorted(file.name for file in exported.iterdir())
    assert sorted(file.name for file in (saved / MODEL).iterdir()) == files == ["model.json", "weights.safetensors"]
    for file in files:
        assert (saved / MODEL / file).read_bytes() == (exported / file).read_bytes()
    model, meta = open_model(saved)
    assert (model, meta["env_steps"]) == (saved / MODEL, trainer.env_steps)
    if not name:
        (saved / ARRAYS).unlink()
        assert open_model(saved)[0] == model, "who acts needs nothing else"
    content = bytearray((model / files[1]).read_bytes())
    content[len(content) // 2] ^= 1
    (model / files[1]).write_bytes(content)
    with pytest.raises(CheckpointError, match=files[1]):
        open_model(saved)


@pytest.mark.slow
@pytest.mark.parametrize(
    "algorithm",
    [pytest.param(n, marks=() if n in ("ppo", "dqn") else pytest.mark.thorough) for n in (*ALGORITHMS, *CONTINUOUS)],
)
def test_workers_on_ray_train_save_and_resume(trainers, ray_engine, tmp_path, algorithm):
    sets = {
        "backend": "torch",
        "agent__acting_backend": "numpy",
        "placement.workers": 2,
        "engine": "ray",
        "object_store_mb": 80,
    }
    path = tmp_path / "run"
    trainer = trainers(algorithm, path, **sets)
    rows = list(trainer.train())
    assert trainer.env_steps >= trainer.config.steps
    assert rows[-1]["env_steps_sampled"] == trainer.env_steps == trainer.agent.env_steps
    assert rows[-1]["episodes_finished"] > 2
    assert np.isfinite(rows[-1]["best_evaluation_return"])
    newest = trainer.save()
    weights = trainer.agent.get_weights()
    trainer.close()
    resumed = trainers(algorithm, path, **{**sets, "steps": trainer.config.steps + 200})
    resumed.restore(newest)
    for name, value in resumed.agent.get_weights().items():
        np.testing.assert_array_equal(value, weights[name])
    assert resumed.env_steps == trainer.env_steps
    assert list(resumed.train())[-1]["env_steps_sampled"] >= trainer.config.steps + 200


@pytest.mark.slow
def test_a_worker_that_is_killed_in_a_training_on_ray_is_replaced(trainers, ray_engine):
    ray = pytest.importorskip("ray")
    sets = {
        "backend": "torch",
        "agent__acting_backend": "numpy",
        "placement.workers": 2,
        "engine": "ray",
        "object_store_mb": 80,
    }
    trainer = trainers("ppo", placement__on_error="replace", **sets)
    rows = []
    for row in trainer.train():
        if not rows:
            ray.kill(trainer.plan._context.actors(trainer.parts.workers)[1].handle)
        rows.append(row)
    assert rows[-1]["env_steps_sampled"] >= trainer.config.steps
    assert rows[-1]["replacements/parallel_rollouts"] == 1
    assert rows[-1]["lost_items/parallel_rollouts"] == 1
    rows_of_update = trainer.config.num_envs * trainer.config.agent.rollout_steps
    assert rows[-1]["env_steps_sampled"] == rows[-1]["updates"] * rows_of_update, "no step was trained on twice or lost"


@pytest.mark.parametrize(
    ("sets", "text"),
    [
        ({"placement.workers": 3}, "the environments cannot be divided evenly among the workers"),
        ({"placement.workers": 2, "placement": "fused"}, "placement fused has no workers"),
        ({"engine": "ray", "placement": "fused"}, "placement fused has no workers"),
        ({"vectorization": "async", "placement": "fused"}, "environments of a fused training are part of its program"),
    ],
)
def test_workers_that_cannot_be_are_refused(sets, text):
    with pytest.raises(ConfigError, match=text):
        make("ppo", backend="torch", **sets)


@pytest.mark.parametrize(
    ("algorithm", "backend", "acting"),
    [
        *itertools.product(ALGORITHMS, BACKENDS, [None, "numpy"]),
        *(pytest.param(n, "torch", "numpy", marks=() if n == "sac" else pytest.mark.thorough) for n in CONTINUOUS),
        *(pytest.param(n, "jax", None, marks=() if n == "td3" else pytest.mark.thorough) for n in CONTINUOUS),
        pytest.param("ddpg", "torch", "onnx", marks=pytest.mark.slow),
        *(pytest.param(n, "torch", "onnx", marks=pytest.mark.thorough) for n in ("sac", "td3")),
        *((n, "tensorflow", None) for n in CONTINUOUS),
        ("pqn", "torch", "numpy"),
        pytest.param("pqn", "jax", None, marks=pytest.mark.thorough),
    ],
)
def test_a_cut_run_equals_an_uncut_one(trainers, tmp_path, algorithm, backend, acting):
    sets = {"backend": backend, "agent__acting_backend": acting}
    uncut = trainers(algorithm, tmp_path / "uncut", **sets)
    rows = finish(uncut)
    assert np.isfinite(rows[-1]["train_one_step/policy_loss" if algorithm == "ppo" else "train_one_step/loss"])

    path = tmp_path / "cut"
    begun = cut(trainers(algorithm, path, **sets), 350)
    resumed = trainers(algorithm, path, **sets)
    resumed.restore(find_checkpoint(path))
    checkpoint = resumed.env_steps
    assert 200 <= checkpoint < 350
    continued = finish(resumed)

    assert resumed.env_steps == uncut.env_steps >= uncut.config.steps
    assert_same_state(state_of(resumed), state_of(uncut))
    assert resumed.best_return == uncut.best_return
    assert [row for row in begun if row["env_steps_sampled"] <= checkpoint] + continued == rows
    here, there = (load_checkpoint(find_checkpoint(tmp_path / run))[0] for run in ("cut", "uncut"))
    assert here.keys() == there.keys()
    for key in here:
        np.testing.assert_array_equal(here[key], there[key], err_msg=key)
    first, second = (tmp_path / run / "checkpoints/best" / MODEL / "weights.safetensors" for run in ("cut", "uncut"))
    assert first.read_bytes() == second.read_bytes()


#: What makes an agent recurrent, and an environment whose episodes end at different times.
RECURRENT = {
    "agent__network": [{"type": "gru", "units": 4}],
    "env": "rlweave/CueRecall-v0",
    "env_options": {"length": 3, "max_length": 7},
    "steps": 450,
}
#: Short sequences, which cost torch little.
SEQUENCES = {"agent__burn_in": 2, "agent__unroll": 4, "agent__overlap": 1}


def recurrent(algorithm):
    return {**RECURRENT, **(SEQUENCES if algorithm == "dqn" else {})}


@pytest.mark.parametrize(
    ("algorithm", "backend", "acting"),
    [
        ("ppo", "torch", "numpy"),
        ("dqn", "torch", None),
        pytest.param("dqn", "jax", None, marks=pytest.mark.thorough),
    ],
)
def test_a_cut_run_of_recurrent_networks_equals_an_uncut_one(trainers, tmp_path, algorithm, backend, acting):
    sets = {"backend": backend, "agent__acting_backend": acting, **recurrent(algorithm)}
    uncut = trainers(algorithm, tmp_path / "uncut", **sets)
    rows = finish(uncut)
    path = tmp_path / "cut"
    begun = cut(trainers(algorithm, path, **sets), 350)
    resumed = trainers(algorithm, path, **sets)
    resumed.restore(find_checkpoint(path))
    checkpoint = resumed.env_steps
    assert 200 <= checkpoint < 350
    continued = finish(resumed)
    assert resumed.env_steps == uncut.env_steps >= uncut.config.steps
    assert_same_state(state_of(resumed), state_of(uncut))
    assert [row for row in begun if row["env_steps_sampled"] <= checkpoint] + continued == rows


@pytest.mark.parametrize("algorithm", ["dqn", "ppo"])
def test_evaluation_does_not_disturb_recurrent_state(trainers, algorithm):
    often = trainers(algorithm, backend="torch", evaluate_every=80, evaluation_episodes=3, **recurrent(algorithm))
    never = trainers(algorithm, backend="torch", evaluate_every=0, **recurrent(algorithm))
    rows = finish(often)
    for _ in never.train():
        never.evaluate(1, seed=3)
    assert sum("evaluation_return" in row for row in rows) > 5
    assert_same_state(state_of(often), state_of(never))


def test_evaluation_carries_recurrent_state_and_starts_it_anew(trainers):
    """An agent that plays greedily acts as one that is run over each episode from zero."""
    trainer = trainers("ppo", backend="torch", evaluate_every=0, **{**RECURRENT, "steps": 64})
    play = trainer.agent.greedy_player()
    observations = np.random.default_rng(0).normal(size=(9, 2, 2)).astype(np.float32)
    start = np.zeros((9, 2), bool)
    start[0], start[4, 0], start[6, 1] = True, True, True
    played = np.stack([play(observations[t], start[t]) for t in range(9)])
    for column, begins in ((0, (0, 4)), (1, (0, 6))):
        for first, last in zip(begins, (*begins[1:], 9), strict=True):
            state = trainer.agent.initial_state(1)
            for t in range(first, last):
                actions, _, state = trainer.agent.act(
                    observations[t, [column]], state, np.zeros(1, bool), explore=False
                )
                assert actions[0] == played[t, column]


@pytest.mark.parametrize("algorithm", ["dqn", "ppo", pytest.param("pqn", marks=pytest.mark.thorough)])
def test_a_cut_run_equals_an_uncut_one_where_environments_are_in_the_graph(trainers, tmp_path, algorithm):
    """No episode begins anew at a checkpoint: the environments are part of the state."""
    sets = {"backend": "torch", "placement": "fused"}
    uncut = trainers(algorithm, tmp_path / "uncut", **sets)
    rows = finish(uncut)
    path = tmp_path / "cut"
    begun = cut(trainers(algorithm, path, **sets), 350)
    resumed = trainers(algorithm, path, **sets)
    resumed.restore(find_checkpoint(path))
    checkpoint = resumed.env_steps
    assert 200 <= checkpoint <= 400
    continued = finish(resumed)
    assert resumed.env_steps == uncut.env_steps >= uncut.config.steps
    assert_same_state(state_of(resumed), state_of(uncut))
    assert [row for row in begun if row["env_steps_sampled"] <= checkpoint] + continued == rows


def test_a_cut_run_with_batches_under_way_equals_an_uncut_one(trainers, tmp_path):
    sets = {"backend": "torch", "agent__prefetch": 2}
    uncut = trainers("dqn", tmp_path / "uncut", **sets)
    rows = finish(uncut)
    assert rows[-1]["prefetch/lag"] == 2.0
    assert rows[-1]["updates"] > 50
    path = tmp_path / "cut"
    begun = cut(trainers("dqn", path, **sets), 350)
    resumed = trainers("dqn", path, **sets)
    resumed.restore(find_checkpoint(path))
    checkpoint = resumed.env_steps
    continued = finish(resumed)
    assert_same_state(state_of(resumed), state_of(uncut))
    assert [row for row in begun if row["env_steps_sampled"] <= checkpoint] + continued == rows


@pytest.mark.parametrize("where", [PLACES[0], pytest.param(PLACES[-1], marks=pytest.mark.slow)])
def test_a_cut_run_with_noise_that_drifts_equals_an_uncut_one(trainers, tmp_path, where):
    noise = {"type": "ornstein_uhlenbeck_noise", "deviation": 0.3, "rate": 0.1}
    sets = {
        "backend": "torch",
        "agent__acting_backend": "numpy",
        "agent__noise": noise,
        "placement.workers": 2,
        **where,
    }
    uncut = trainers("td3", tmp_path / "uncut", **sets)
    rows = finish(uncut)
    path = tmp_path / "cut"
    begun = cut(trainers("td3", path, **sets), 350)
    resumed = trainers("td3", path, **sets)
    resumed.restore(find_checkpoint(path))
    checkpoint = resumed.env_steps
    continued = finish(resumed)
    assert_same_state(state_of(resumed), state_of(uncut))
    assert [row for row in begun if row["env_steps_sampled"] <= checkpoint] + continued == rows


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_run_that_is_cut_twice_equals_an_uncut_one(trainers, tmp_path, algorithm):
    uncut = trainers(algorithm, tmp_path / "uncut", backend="torch")
    finish(uncut)
    path = tmp_path / "cut"
    cut(trainers(algorithm, path, backend="torch"), 250)
    second = trainers(algorithm, path, backend="torch")
    second.restore(find_checkpoint(path))
    cut(second, 450)
    third = trainers(algorithm, path, backend="torch")
    third.restore(find_checkpoint(path))
    assert third.env_steps >= 400
    finish(third)
    assert_same_state(state_of(third), state_of(uncut))


def test_one_trainer_can_go_back_to_an_earlier_checkpoint(trainers, tmp_path):
    trainer = trainers("ppo", tmp_path / "run", backend="torch", checkpoint_every=150)
    rows = finish(trainer)
    after = state_of(trainer)
    first = sorted((tmp_path / "run" / "checkpoints").glob("step-*"))[0]
    trainer.restore(first)
    step = trainer.env_steps
    set_aside_newer(trainer.run.checkpoints, step)
    assert finish(trainer) == [row for row in rows if row["env_steps_sampled"] > step]
    assert_same_state(state_of(trainer), after)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_environments_in_processes_of_their_own_change_nothing(trainers, algorithm):
    sync, apart = trainers(algorithm, steps=300), trainers(algorithm, steps=300, placement="environments_apart")
    assert [without_times(row) for row in finish(sync)] == [without_times(row) for row in finish(apart)]
    assert_same_state(state_of(sync), state_of(apart))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_seeds_decide(trainers, algorithm):
    rows = [finish(trainers(algorithm, backend="torch", steps=300, seed=seed)) for seed in (5, 5, 6)]
    assert rows[0] == rows[1] != rows[2]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_evaluation_does_not_disturb_the_training(trainers, algorithm):
    often = trainers(algorithm, backend="torch", evaluate_every=80, evaluation_episodes=3)
    never = trainers(algorithm, backend="torch", evaluate_every=0)
    rows = finish(often)
    for _ in never.train():
        never.evaluate(1, seed=3)
    assert sum("evaluation_return" in row for row in rows) > 5
    assert_same_state(state_of(often), state_of(never))


def test_a_run_that_is_not_written_is_the_same(trainers, tmp_path):
    written, unwritten = trainers("ppo", tmp_path / "run", backend="torch"), trainers("ppo", backend="torch")
    assert finish(written) == finish(unwritten)
    assert_same_state(state_of(written), state_of(unwritten))


@pytest.mark.parametrize(
    ("algorithm", "sets"),
    [
        ("impala", {"broadcast_interval": 2}),
        ("impala", {"broadcast_interval": 2, "learner": "actor"}),
        ("ape-x", {}),
    ],
    ids=["impala", "learner-elsewhere", "ape-x"],
)
def test_a_run_that_is_not_written_is_the_same_where_workers_have_older_weights(trainers, tmp_path, algorithm, sets):
    sets = {"backend": "torch", "agent__acting_backend": "numpy", "placement": "single_learner_coarse", **sets}
    written, unwritten = trainers(algorithm, tmp_path / "run", **sets), trainers(algorithm, **sets)
    assert finish(written) == finish(unwritten)
    assert_same_state(state_of(written), state_of(unwritten))


def test_looking_sends_no_weights(trainers):
    """Workers act on what was published, whether or not somebody looks at the learner meanwhile."""
    sets = {"backend": "torch", "agent__acting_backend": "numpy", "placement": "single_learner_coarse"}
    sets |= {"learner": "actor", "broadcast_interval": 4, "evaluate_every": 0, "checkpoint_every": 0}
    looking, other = (trainers("impala", **sets) for _ in range(2))
    for _ in looking.train():
        looking.evaluate(1, seed=3)
    finish(other)
    assert looking.plan.report().gather_lag == other.plan.report().gather_lag


def test_a_training_whose_sources_are_over_ends_with_an_error_that_names_them(monkeypatch):
    trainer = PlanTrainer.__new__(PlanTrainer)
    trainer.config = TrainConfig(env="CartPole-v1", steps=1_000, report_every=4, evaluate_every=0, checkpoint_every=0)
    stream = ParallelRollouts([FakeWorker(items=3)]).gather_sync().for_each(TrainOneStep(FakeLearner()))
    trainer.plan, trainer.run, trainer.agent = ReportMetrics(stream), None, SimpleNamespace()
    trainer._rescue = Rescue(lambda: None, trainer.save, 10.0)
    trainer.events = Events(trainer.config)
    goals, run_to = iter(range(8)), trainer.run_to
    monkeypatch.setattr(trainer, "run_to", lambda goal: run_to(goal) if next(goals) < 7 else pytest.fail("no end"))
    train = trainer.train()
    assert [row["env_steps_sampled"] for row in itertools.islice(train, 4)] == [4, 8, 12, 12]
    with pytest.raises(PlanError, match="all sources of its plan have ended") as caught:
        next(train)
    assert caught.value.where == "parallel_rollouts"
    assert "--steps 12" in str(caught.value)


def test_evaluation_is_greedy_and_repeats(trainers):
    trainer = trainers("dqn", backend="torch", **{"agent__epsilon": 1.0})
    finish(trainer)
    first, second = (trainer.evaluate(4, seed=9) for _ in range(2))
    np.testing.assert_array_equal(first.returns, second.returns)
    assert len(first.episodes) == 4
    assert (trainer.evaluate(4, seed=10).returns != first.returns).any()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_best_checkpoint_is_that_of_the_best_evaluation(trainers, tmp_path, algorithm, monkeypatch):
    trainer = trainers(algorithm, tmp_path / "run", backend="torch", evaluate_every=100, steps=500)
    returns = iter([3.0, 8.0, 8.0, 5.0, 7.0, 1.0])
    seen, seeds = [], set()

    def evaluate(episodes, seed):
        seeds.add(seed)
        assert episodes == 2
        value = next(returns)
        seen.append((value, trainer.env_steps, trainer.agent.get_weights()))
        return Evaluation((Episode(0, value, 1, True),) * episodes)

    monkeypatch.setattr(trainer, "evaluate", evaluate)
    rows = finish(trainer)
    assert len(seen) == 5
    assert [row["best_evaluation_return"] for row in rows if "evaluation_return" in row] == [3, 8, 8, 8, 8]
    # of equals the later one, which has learned more
    _, steps, weights = seen[2]
    best = tmp_path / "run" / "checkpoints" / "best"
    trainer.load_model(best)
    assert open_model(best)[1]["env_steps"] == steps
    for path, value in trainer.agent.get_weights().items():
        np.testing.assert_array_equal(value, weights[path], err_msg=path)
    # those that choose are not those that judge
    assert seeds == {derived_seed(trainer.config.seed, "evaluation")}
    assert derived_seed(trainer.config.seed, "final evaluation") not in seeds


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_training_of_no_length(trainers, tmp_path, algorithm):
    trainer = trainers(algorithm, tmp_path / "run", backend="torch", steps=0)
    before = trainer.agent.get_weights()
    assert list(trainer.train()) == [{"env_steps_sampled": 0}]
    path = trainer.save()
    other = trainers(algorithm, backend="torch", steps=0, seed=1)
    other.restore(path)
    assert other.env_steps == 0
    for name, value in other.agent.get_weights().items():
        np.testing.assert_array_equal(value, before[name], err_msg=name)
    assert len(other.evaluate(2, seed=0).episodes) == 2


def test_counters_and_events(trainers, tmp_path):
    trainer = trainers("ppo", tmp_path / "run", backend="torch", steps=400, checkpoint_every=90, keep_checkpoints=2)
    rows = finish(trainer)
    assert trainer.agent.env_steps == trainer.env_steps == 416  # whole rollouts of 2 x 16 steps
    assert [row["env_steps_sampled"] for row in rows] == [64, 128, 160, 224, 256, 320, 352, 416]
    assert [row["env_steps_sampled"] for row in rows if "evaluation_return" in row] == [160, 320, 416]
    names = sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir())
    assert names == ["best", "step-000000000288", "step-000000000384"]


def test_stopping_ends_the_iteration(trainers):
    trainer = trainers("ppo", backend="torch")
    rows = []
    for row in trainer.train():
        rows.append(row)
        trainer.plan.stop()
    assert len(rows) == 1


def test_a_checkpoint_of_another_algorithm_is_refused(trainers, tmp_path):
    trainer = trainers("ppo", tmp_path / "run", backend="torch", steps=0)
    path = trainer.save()
    with pytest.raises(CheckpointError, match="of another algorithm"):
        trainers("dqn", backend="torch", steps=0).restore(path)


def test_a_run_without_directory_cannot_be_saved(trainers):
    with pytest.raises(CheckpointError, match="no run directory"):
        trainers("ppo", backend="torch", steps=0).save()


def test_threads(trainers):
    import torch

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        trainers("ppo", backend="torch")
        assert torch.get_num_threads() == 1
        trainers("ppo", backend="torch", threads=3)
        assert torch.get_num_threads() == 3
        with pytest.raises(ConfigError, match="does not take a number of threads"):
            trainers("ppo", backend="jax", threads=2)
    finally:
        torch.set_num_threads(before)


def test_images_declare_their_layout(trainers):
    network = [{"type": "conv2d", "filters": 4, "kernel_size": 3, "activation": "relu"}]
    with pytest.raises(ConfigError, match="image_layout=channels_last"):
        trainers("ppo", env="rlweave/Catch-v0", agent__image_network=network)
    sets = {
        "env": "rlweave/Catch-v0",
        "image_layout": "channels_last",
        "steps": 100,
        "agent__normalize_observations": False,
    }
    trainer = trainers("ppo", backend="torch", agent__image_network=network, **sets)
    assert trainer.agent.observation_space.layout == "channels_last"
    assert finish(trainer)[-1]["env_steps_sampled"] >= 100
