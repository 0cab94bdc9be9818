"""Faults of environments and processes in a training on Ray: what is right, what is lost, and that nothing stays."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rlweave.algorithms.config import resolve_config
from rlweave.algorithms.registry import get_algorithm
from rlweave.errors import PlanError
from rlweave.runs.run_directory import RunDirectory
from tests.algorithms.remote_envs import FAULTY, LAST_REWARD
from tests.processes import descendants, gone_within

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
SMALL = {
    "backend": "torch",
    "engine": "ray",
    "num_envs": 1,
    "evaluate_every": 0,
    "checkpoint_every": 0,
    "tensorboard": False,
    "agent.network": [{"type": "dense", "units": 8}],
    "agent.rollout_steps": 16,
    "agent.epochs": 1,
    "agent.minibatches": 2,
    "agent.acting_backend": "numpy",
}


@pytest.fixture(autouse=True)
def cluster(ray_engine):
    pytest.importorskip("ray")


def trainer_of(run=None, **sets):
    spec = get_algorithm("ppo")
    given = {**SMALL, **{key.replace("__", "."): value for key, value in sets.items()}}
    config = resolve_config(spec.config_class, sets=given)
    directory = None if run is None else RunDirectory.create("ppo", config.to_data(), path=run)
    return spec.make_trainer(config, directory)


class Tells:
    """Makes a worker that tells about its process and its agent."""

    def __init__(self, factory):
        self.factory, self.makes = factory, factory.makes

    def __call__(self):
        worker = self.factory()
        worker.pid = os.getpid
        worker.weights = lambda: worker.agent.get_weights()
        return worker


def telling(trainer):
    """Has the workers of the next plan tell about themselves; begins that plan."""
    group = trainer.parts.workers
    group.factories = [Tells(factory) for factory in group.factories]
    trainer.load_state_dict(trainer.state_dict())
    return trainer


def failure_of(trainer):
    """What the error of a training that fails says, and the processes of its workers, all of which end with it."""
    trainer = telling(trainer)
    workers = trainer.plan.ask_workers("pid")
    processes = {*workers, *(pid for worker in workers for pid in descendants(worker))}
    try:
        with pytest.raises(PlanError) as caught:
            list(trainer.train())
    finally:
        trainer.close()
    assert not gone_within(processes, 10.0)
    return f"{caught.value}\n{caught.value.__cause__}", processes


def test_a_reward_at_the_last_step_arrives_and_no_step_is_invented():
    """Fault 10: episodes of four steps in fragments of two, each an item of its own that crosses a process border."""
    trainer = trainer_of(env=LAST_REWARD, agent__rollout_steps=2, agent__minibatches=1, num_envs=2, steps=64)
    seen = []
    learner = trainer.plan.graph.nodes[-2].learner
    update = learner.update
    learner.update = lambda batch: seen.append(batch.data) or update(batch)
    try:
        list(trainer.train())
        assert trainer.plan.counters.env_steps_sampled == trainer.agent.env_steps == 64
    finally:
        trainer.close()
    keys = ("observations", "rewards", "terminated", "next_observations")
    joined = {key: np.concatenate([data[key] for data in seen]) for key in keys}
    steps = len(joined["rewards"])
    expected = np.arange(steps)[:, None] % 4 * np.ones((1, 2))
    np.testing.assert_array_equal(joined["observations"][..., 0], expected)
    np.testing.assert_array_equal(joined["next_observations"][..., 0], expected + 1)
    np.testing.assert_array_equal(joined["rewards"], expected == 3)
    np.testing.assert_array_equal(joined["terminated"], expected == 3)


def test_normalizer_statistics_are_restored_on_remote_workers_and_frozen_in_evaluation(tmp_path):
    """Fault 30."""
    sets = {
        "env": "CartPole-v1",
        "agent__normalize_observations": True,
        "num_envs": 2,
        "placement.workers": 2,
        "worker_cpus": 0.5,
    }
    trainer = trainer_of(tmp_path / "run", steps=200, **sets)
    try:
        list(trainer.train())
        path = trainer.save()
        saved = trainer.agent.get_weights()
    finally:
        trainer.close()
    statistics = [name for name in saved if "normaliz" in name]
    assert statistics
    again = telling(trainer_of(steps=400, **sets))
    try:
        again.restore(path)
        for weights in again.plan.ask_workers("weights"):
            for name in statistics:
                np.testing.assert_array_equal(weights[name], saved[name], err_msg=name)
        again.evaluate(2, seed=5)
        assert all(np.array_equal(again.agent.get_weights()[name], saved[name]) for name in statistics), "frozen"
        list(again.train())
        moved = again.agent.get_weights()
        assert any(not np.array_equal(moved[name], saved[name]) for name in statistics), "and learned in training"
    finally:
        again.close()


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("raises", ["ZeroDivisionError: broke at step 19", "environment 0", "original traceback", "action"]),
        ("exits", ["parallel_rollouts/0", "ActorLost"]),
        ("hangs", ["parallel_rollouts/0", "no answer for"]),
    ],
)
def test_an_environment_that_fails_reaches_the_user(how, told):
    """Fault 38, with environments in the processes of workers."""
    sets = {"worker_timeout": 4.0 if how == "hangs" else 60.0, "steps": 10_000}
    text, _ = failure_of(trainer_of(env=FAULTY, env_options={"how": how, "at": 19}, **sets))
    for words in told:
        assert words in text


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("raises", ["ZeroDivisionError: broke at step 19", "original traceback"]),
        ("exits", ["ended with exit code 3"]),
        ("hangs", ["has not answered for 4 s"]),
    ],
)
def test_an_environment_in_a_process_of_its_own_that_fails_is_named(how, told):
    """Fault 38, with what only another process can tell; the worker lives, and ends with the training."""
    sets = {"vectorization": "async", "env_timeout": 4.0, "env_failure": "stop", "num_envs": 2}
    text, processes = failure_of(trainer_of(env=FAULTY, env_options={"how": how, "at": 19}, **sets))
    for words in ["parallel_rollouts/0", "action", *told]:
        assert words in text
    assert re.search(r"environment [01], step 3 of its episode", text)  # both fail in this step
    assert len(processes) >= 3


def test_an_info_that_cannot_be_pickled_stays_where_it_is():
    """Fault 38: nobody needs it elsewhere."""
    trainer = trainer_of(env=FAULTY, env_options={"how": "info", "at": 3}, steps=64)
    try:
        list(trainer.train())
        assert trainer.env_steps == 64
    finally:
        trainer.close()


def test_an_environment_that_raises_at_every_hundredth_step_is_begun_anew():
    """The training goes on, items that were begun are lost and counted, and steps are those that were trained on."""
    options = {"how": "raises", "at": 100, "every": True}
    trainer = trainer_of(env=FAULTY, env_options=options, placement__on_error="replace", steps=240)
    try:
        list(trainer.train())
        counters = trainer.plan.counters
        assert counters.replacements == counters.failures == counters.lost_items
        assert counters.replacements["parallel_rollouts"] == 2, "six items of 16 steps are made before each failure"
        assert counters.env_steps_sampled == trainer.agent.env_steps == 240
        assert counters.trained_samples == 240
        assert counters.updates == 15
    finally:
        trainer.close()


SCRIPT = """
import gymnasium, numpy as np
from rlweave.algorithms.config import resolve_config
from rlweave.algorithms.registry import get_algorithm
from rlweave.flow.ray_engine import RayEngine

class Mine(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}
    def step(self, action):
        return np.zeros(2, np.float32), 1.0, False, True, {}

gymnasium.register("Mine-v0", Mine)
gymnasium.register("Mine-v1", "__main__:Mine")
spec = get_algorithm("ppo")
with RayEngine(num_cpus=1, object_store_memory=80 * 2**20):
    for env in ("Mine-v0", "Mine-v1"):
        trainer = spec.make_trainer(resolve_config(spec.config_class, sets={**SETS, "env": env}), None)
        list(trainer.train())
        print("trained", env, trainer.env_steps)
        trainer.close()
"""


def test_an_environment_that_only_the_script_knows_is_shipped(tmp_path):
    """Fault 39: registered by its class, and by its name in the script."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.replace("SETS", repr({**SMALL, "steps": 32})))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, script]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert "trained Mine-v0 32" in done.stdout, done.stderr
    assert "trained Mine-v1 32" in done.stdout, done.stderr
