"""Ape-X as a training: an epsilon for each environment of all workers, priorities from workers, shards that fail."""

import subprocess
import sys

import numpy as np
import pytest

from rlweave.algorithms.ape_x import ApeXTrainConfig, ape_x, make_shards
from rlweave.algorithms.config import resolve_config
from rlweave.algorithms.placement import WorkerFactory
from rlweave.components.exploration import ape_x_epsilons
from rlweave.errors import ConfigError
from rlweave.flow import ComputePriorities
from rlweave.runs.run_directory import RunDirectory

SMALL = {
    "env": "CartPole-v1",
    "backend": "torch",
    "num_envs": 8,
    "steps": 2_000,
    "evaluate_every": 0,
    "checkpoint_every": 0,
    "tensorboard": False,
    "agent.network": [{"type": "dense", "units": 8, "activation": "tanh"}],
    "agent.acting_backend": "numpy",
    "agent.learning_starts": 200,
    "agent.batch_size": 16,
    "agent.samples_per_step": 2.0,
}


def config_of(**sets):
    return resolve_config(ApeXTrainConfig, sets={**SMALL, **sets})


@pytest.fixture
def trainers():
    """Makes trainers and closes them at the end."""
    made = []

    def make(run=None, **sets):
        config = config_of(**sets)
        directory = None if run is None else RunDirectory.create("ape-x", config.to_data(), path=run)
        made.append(ape_x.make_trainer(config, directory))
        return made[-1]

    yield make
    for trainer in made:
        trainer.close()


@pytest.mark.parametrize("placement", ["local", "single_learner_coarse"])
def test_eight_workers_have_eight_epsilons(placement):
    config = config_of(placement={"name": placement, "workers": 8})
    if placement == "local":
        workers = ape_x.parts(config).workers
    else:
        workers = [WorkerFactory(config, number, ape_x.make_agent, ape_x.worker)() for number in range(8)]
    epsilons = np.concatenate([worker.epsilons for worker in workers])
    np.testing.assert_allclose(epsilons, ape_x_epsilons(8), rtol=1e-6)
    assert len(set(epsilons.tolist())) == 8
    for worker in workers:
        worker.close()


def test_workers_explore_by_their_epsilon_and_evaluation_does_not(trainers, monkeypatch):
    trainer = trainers(placement={"workers": 2}, steps=0)
    trainer.parts.workers[0].sample()  # the first call puts what it compiled in the place of `act`
    given = []
    act = trainer.agent.acting.act
    monkeypatch.setattr(
        trainer.agent.acting, "act", lambda observations, epsilon: given.append(epsilon) or act(observations, epsilon)
    )
    for worker in trainer.parts.workers:
        worker.sample()
    np.testing.assert_allclose(np.concatenate(given), ape_x_epsilons(8), rtol=1e-6)
    trainer.evaluate(2, seed=5)
    assert len(given) == 2, "evaluation asks for greedy actions"


def test_items_leave_their_worker_with_priorities_by_the_weights_it_acts_on():
    worker = WorkerFactory(config_of(placement="single_learner_coarse"), 0, ape_x.make_agent, ape_x.worker)()
    operator = ComputePriorities()
    operator.bind(worker)
    worker.agent.count_steps(0)
    batch = worker.sample()
    item = operator(batch)
    assert item.num_steps == batch.num_steps == 64
    expected = worker.agent.priorities(batch.data)
    assert expected.shape == (len(batch["rewards"]),)
    np.testing.assert_array_equal(item["priorities"], expected)
    worker.close()


def test_workers_and_shards_import_no_framework():
    code = """
import sys
from rlweave.algorithms.ape_x import ApeXTrainConfig, ape_x, make_shards
from rlweave.algorithms.placement import WorkerFactory
from rlweave.flow import ComputePriorities
config = ApeXTrainConfig.from_data(
    {"env": "CartPole-v1", "backend": "torch", "engine": "ray", "agent": {"acting_backend": "numpy", "batch_size": 4}}
)
worker = WorkerFactory(config, 0, ape_x.make_agent, ape_x.worker)()
operator = ComputePriorities()
operator.bind(worker)
shard = make_shards(config, worker.agent).factories[0]()
shard.insert(operator(worker.sample()))
assert shard.update_priorities(shard.sample()["numbers"], [1.0] * 4) == 0
print([name for name in ("torch", "jax", "tensorflow", "optax", "ray") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "[]"


def test_the_replay_ratio_is_what_the_settings_say(trainers):
    trainer = trainers()
    row = list(trainer.train())[-1]
    assert row["trained_samples"] / (row["env_steps_sampled"] - 200) == pytest.approx(2.0, rel=0.01)
    assert row["rate_limit/samples_per_insert"] == pytest.approx(2.0, rel=0.01)
    assert row["parallel_replay/held_steps"] == row["env_steps_sampled"] == trainer.agent.env_steps
    assert trainer.agent.trained_samples == row["trained_samples"]


def test_a_run_without_its_memory_goes_on_and_says_what_is_lost(trainers, tmp_path):
    begun = trainers(tmp_path / "run", save_memory=False, steps=1_000)
    list(begun.train())
    path = begun.save()
    resumed = trainers(tmp_path / "other", save_memory=False, steps=2_000)
    resumed.restore(path)
    row = list(resumed.train())[-1]
    assert row["parallel_replay/lost_steps"] == 1_000
    assert row["parallel_replay/held_steps"] == row["env_steps_sampled"] - 1_000
    assert row["updates"] > begun.plan.counters.updates
    small = sum(file.stat().st_size for file in path.glob("*"))
    assert small < 200_000, "the memory of 1,000 steps is not in it"


def test_shards_divide_the_memory_and_draw_by_seeds_of_their_own():
    config = config_of(shards=3, **{"agent.memory_capacity": 400})
    parts = ape_x.parts(config)
    shards = [factory() for factory in make_shards(config, parts.agent).factories]
    assert [shard.capacity for shard in shards] == [134, 134, 134]
    assert len({shard.seed for shard in shards}) == 3
    for worker in parts.workers:
        worker.close()


@pytest.mark.parametrize(
    ("sets", "where"),
    [
        ({"placement": "fused"}, "placement"),
        ({"agent.learning_starts": 200_000}, "learning_starts"),
        ({"shards": 0}, "shards"),
    ],
)
def test_settings_that_cannot_be_are_refused(sets, where):
    with pytest.raises(ConfigError) as caught:
        ape_x.parts(config_of(**sets))
    assert where in str(caught.value)


@pytest.mark.slow
def test_a_shard_that_is_killed_in_a_training_on_ray_is_replaced(trainers, ray_engine):
    ray = pytest.importorskip("ray")
    sets = {"engine": "ray", "placement.workers": 2, "object_store_mb": 80, "placement.on_error": "replace"}
    sets["steps_per_item"] = 16
    trainer = trainers(**sets, report_every=500, steps=4_000)
    rows = []
    for row in trainer.train():
        if len(rows) == 1:
            shards = next(node.group for node in trainer.plan.graph.nodes if node.name == "parallel_replay")
            ray.kill(trainer.plan._context.actors(shards)[0].handle)
        rows.append(row)
    last = rows[-1]
    assert last["env_steps_sampled"] == trainer.agent.env_steps >= 4_000
    assert last["replacements/parallel_replay"] == 1
    lost = last["parallel_replay/lost_steps"]
    assert 300 <= lost <= 1_500
    assert lost + last["parallel_replay/held_steps"] == last["env_steps_sampled"]
    assert last["trained_samples"] / (last["env_steps_sampled"] - 200) == pytest.approx(2.0, rel=0.02)
