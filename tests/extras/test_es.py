"""Evolution strategies as a training: whose return is whose, counting, determinism, exact resume, Ray."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from rlweave.algorithms.config import resolve_config
from rlweave.algorithms.learners import AgentLearner
from rlweave.algorithms.placement import RolloutWorkers
from rlweave.envs import make_env
from rlweave.errors import ConfigError
from rlweave.extras.es import ESTrainConfig, GenerationWorker, es, es_plan
from rlweave.extras.es_agent import ES
from rlweave.extras.evolution import noise_table
from rlweave.runs.checkpoint import find_checkpoint
from rlweave.runs.run_directory import RunDirectory
from rlweave.settings.config import describe_settings
from rlweave.spaces import FloatBox
from tests.algorithms.test_trainer import assert_same_state, cut, finish, state_of

SMALL = {
    "env": "CartPole-v1",
    "backend": "numpy",
    "num_envs": 4,
    "steps": 1500,
    "report_every": 100,
    "evaluate_every": 500,
    "evaluation_episodes": 2,
    "checkpoint_every": 500,
    "tensorboard": False,
    "agent.network": [{"type": "dense", "units": 4, "activation": "tanh"}],
    "agent.pairs": 4,
    "agent.noise_size": 1000,
}


class Uneven(gymnasium.Env):
    """A reward of the action squared; episodes are the longer the larger the first action."""

    def __init__(self):
        self.observation_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.action_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = None
        return np.ones(1, np.float32), {}

    def step(self, action):
        if self.left is None:
            self.left = 1 + int(abs(action[0]) * 20) % 7
        self.left -= 1
        return np.ones(1, np.float32), float(action[0] ** 2), self.left == 0, False, {}


def trainer_of(run=None, **sets):
    settings = {**SMALL, **{key.replace("__", "."): value for key, value in sets.items()}}
    config = resolve_config(ESTrainConfig, sets=settings)
    if run is not None:
        run = RunDirectory(run) if run.exists() else RunDirectory.create("es", config.to_data(), path=run)
    return es.make_trainer(config, run)


def test_returns_are_those_that_each_perturbed_policy_gains():
    """Against a loop: each member's weights set by hand, one environment."""
    config = {"network": [], "noise_size": 500, "sigma": 0.5}
    space = FloatBox(shape=(1,))
    agent = ES(space, space, config, num_envs=3, backend="numpy", seed=4)
    worker = GenerationWorker(agent, make_env(Uneven, 3, seed=0), pairs=5)
    batch = worker.sample()
    assert batch["returns"].shape == (5, 2)
    centre = agent.get_weights()
    flat = np.concatenate([np.ravel(centre[path]) for path in sorted(centre)])
    lengths = []
    for offset, returns in zip(batch["offsets"], batch["returns"], strict=True):
        for sign, found in zip((1, -1), returns, strict=True):
            parts = (flat + 0.5 * sign * noise_table(500, 0)[offset : offset + flat.size]).astype(np.float32)
            ends = np.cumsum([centre[path].size for path in sorted(centre)])[:-1]
            pieces = zip(sorted(centre), np.split(parts, ends), strict=True)
            agent.set_weights({path: part.reshape(centre[path].shape) for path, part in pieces})
            env, gained, ended = Uneven(), 0.0, False
            observation, _ = env.reset()
            while not ended:
                observation, reward, ended, _, _ = env.step(agent.get_actions(observation, explore=False))
                gained += reward
                lengths.append(1)
            assert found == pytest.approx(gained, rel=1e-4)
    assert len(set(batch["returns"].ravel().tolist())) > 5
    # what was played in environments whose own episode was over is counted as well
    assert batch.num_steps == agent.env_steps == worker.env.tracker.steps >= len(lengths)


def test_workers_share_a_generation_and_each_update_takes_all_of_it():
    updates = []

    class Spy(AgentLearner):
        def update(self, batch):
            updates.append(batch["offsets"].tolist())
            return super().update(batch)

    trainer = trainer_of(placement__workers=2, steps=300)
    try:
        plan = es_plan(RolloutWorkers(trainer.parts.workers, trainer.config), Spy(trainer.agent))
        list(plan.run(until=lambda counters: counters.updates >= 3))
    finally:
        trainer.close()
    assert [len(offsets) for offsets in updates] == [4, 4, 4]
    assert len({offset for offsets in updates for offset in offsets}) > 8  # no two workers, no two times the same


def test_the_generation_that_reaches_the_length_of_the_training_is_finished_and_counted():
    shares = []

    class Spy(GenerationWorker):
        def sample(self):
            shares.append(super().sample())
            return shares[-1]

    trainer = trainer_of(steps=700, evaluate_every=0, checkpoint_every=0)
    try:
        for worker in trainer.parts.workers:
            worker.__class__ = Spy
        row = list(trainer.train())[-1]
        taken = [share.num_steps for share in shares]
        assert sum(taken[:-1]) < 700 <= sum(taken)  # not one more than needed
        assert row["updates"] == len(taken)
        assert row["env_steps_sampled"] == trainer.env_steps == trainer.agent.env_steps == sum(taken)
        assert sum(taken) == trainer.parts.workers[0].env.tracker.steps
    finally:
        trainer.close()
    text = next(setting.help for setting in describe_settings(ESTrainConfig) if setting.key == "steps")
    assert "for es one worker's share of a generation" in text


@pytest.mark.parametrize("where", [{}, {"placement": "single_learner_coarse"}, {"gather": "async"}], ids=str)
def test_it_is_deterministic_and_a_cut_training_equals_the_uncut_one(tmp_path, where):
    sets = {"placement.workers": 2, **where}
    uncut = trainer_of(tmp_path / "uncut", **sets)
    rows = finish(uncut)
    before = cut(trainer_of(tmp_path / "cut", **sets), 800)
    resumed = trainer_of(tmp_path / "cut", **sets)
    try:
        resumed.restore(find_checkpoint(tmp_path / "cut"))
        kept = [row for row in before if row["env_steps_sampled"] <= resumed.env_steps]
        assert kept
        assert resumed.env_steps >= 500
        assert [*kept, *finish(resumed)] == rows
        assert_same_state(state_of(uncut), state_of(resumed))
    finally:
        uncut.close()
        resumed.close()


@pytest.mark.slow
def test_workers_on_ray_send_places_in_the_noise_and_returns_only(ray_engine, tmp_path):
    sets = {
        "engine": "ray",
        "placement.workers": 2,
        "backend": "torch",
        "agent__acting_backend": "numpy",
        "object_store_mb": 80,
    }
    trainer = trainer_of(tmp_path / "run", **sets)
    try:
        rows = list(trainer.train())
        # the share of one worker may wait for that of the other
        assert rows[-1]["trained_samples"] == trainer.agent.env_steps <= trainer.env_steps
        assert trainer.env_steps >= 1500
        assert rows[-1]["updates"] >= 2
        assert np.isfinite(rows[-1]["best_evaluation_return"])
        newest = trainer.save()
    finally:
        trainer.close()
    resumed = trainer_of(tmp_path / "run", **{**sets, "steps": 2000})
    try:
        resumed.restore(newest)
        assert list(resumed.train())[-1]["env_steps_sampled"] >= 2000
    finally:
        resumed.close()


@pytest.mark.parametrize("sets", [{"agent__pairs": 3, "placement.workers": 2}, {"agent__pairs": 1}])
def test_a_generation_that_cannot_be_divided_is_refused(sets):
    with pytest.raises(ConfigError, match="cannot be divided among the workers"):
        trainer_of(**sets)
