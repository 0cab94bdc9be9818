"""A checkpoint changes nothing: how often it is taken shows in no metric and no weight; and what resuming means."""

import gymnasium
import numpy as np
import pytest

from rlweave.algorithms.config import resolve_config
from rlweave.algorithms.registry import get_algorithm
from rlweave.runs.checkpoint import find_checkpoint, list_checkpoints
from rlweave.runs.run_directory import RunDirectory
from tests.algorithms import test_trainer
from tests.algorithms.test_trainer import assert_same_state, finish, state_of
from tests.extras import test_es, test_maml, test_multi_agent, test_pbt

ELSEWHERE = {
    "placement.workers": 2,
    "placement": "single_learner_coarse",
    "gather": "async",
    "agent.acting_backend": "numpy",
}
A2C = {**test_trainer.SHARED, "num_envs": 2, "agent.rollout_steps": 8, **ELSEWHERE}


def of(algorithm):
    return {**test_trainer.SHARED, **test_trainer.SETTINGS[algorithm], "backend": "torch"}


CASES = {
    "ppo": ("ppo", {**of("ppo"), "agent.acting_backend": "numpy"}),
    "ppo-fused": ("ppo", {**of("ppo"), "placement": "fused"}),
    "ppo-recurrent": ("ppo", {**of("ppo"), "agent.network": [{"type": "lstm", "units": 4}]}),
    "dqn": ("dqn", {**of("dqn"), "agent.n_step": 3}),
    "dqn-async": ("dqn", {**of("dqn"), **ELSEWHERE}),
    "a2c-async": ("a2c", {**A2C, "backend": "torch", "steps": 400}),
    "ape-x": ("ape-x", {**of("ape-x"), **ELSEWHERE}),
    "impala-learner-elsewhere": ("impala", {**of("impala"), **ELSEWHERE, "learner": "actor", "learner_queue": 2}),
    "multi-agent": ("multi-agent", {**test_multi_agent.SETTINGS, "steps": 600}),
    "es": ("es", test_es.SMALL),
    "maml": ("maml", {**test_maml.SHARED, **test_maml.SMALL["reinforcement"]}),
    "pbt": ("pbt", test_pbt.config_of().to_data()),
}
#: Kept among the fast tests; the others are of the same mechanism, and the longest of them is thorough.
FAST = ("ppo", "dqn-async", "a2c-async", "ape-x", "multi-agent", "es", "pbt")


def trainer_of(algorithm, settings, path, **sets):
    spec = get_algorithm(algorithm)
    own = {key.replace("__", "."): value for key, value in sets.items()}
    whole = {key: value for key, value in settings.items() if "." not in key}
    dotted = {key: value for key, value in settings.items() if "." in key}
    config = resolve_config(spec.config_class, file=whole, sets={**dotted, **own})
    made = RunDirectory(path) if path.exists() else RunDirectory.create(algorithm, config.to_data(), path=path)
    return spec.make_trainer(config, made)


@pytest.fixture
def trainers():
    """Makes trainers and closes them at the end."""
    made = []

    def make(*args, **sets):
        made.append(trainer_of(*args, **sets))
        return made[-1]

    yield make
    for trainer in made:
        trainer.close()


def trained(trainer):
    """Lines of metrics without what is measured in time, and the weights at the end."""
    times = ("second", "trained_samples/")
    rows = [{key: value for key, value in row.items() if not any(t in key for t in times)} for row in trainer.train()]
    agents = trainer.population.members if hasattr(trainer, "population") else trainer.agent.state_dict()
    return rows, agents


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=() if n in FAST else pytest.mark.thorough if n == "ppo-recurrent" else pytest.mark.slow)
        for n in CASES
    ],
)
def test_how_often_checkpoints_are_taken_has_no_influence(trainers, tmp_path, name):
    algorithm, settings = CASES[name]
    never = trained(trainers(algorithm, settings, tmp_path / "never", checkpoint_every=0))
    often = trained(trainers(algorithm, settings, tmp_path / "often", checkpoint_every=17))
    assert list_checkpoints(tmp_path / "often/checkpoints")
    np.testing.assert_equal(often[0], never[0])
    if algorithm == "pbt":
        for here, there in zip(often[1], never[1], strict=True):
            np.testing.assert_equal(here["state"]["variables"], there["state"]["variables"])
            assert {**here, "state": None} == {**there, "state": None}
    else:
        np.testing.assert_equal(often[1], never[1])
    assert any(row.get("episodes_finished", 0) for row in never[0]) or name == "maml"


class Unsaved(gymnasium.Wrapper):
    """An environment that holds something which is no data."""

    def __init__(self, env):
        super().__init__(env)
        self.simulator = iter([1])


@pytest.fixture
def unsaved():
    env_id = "rlweave-tests/Unsaved-v0"
    gymnasium.register(env_id, lambda: Unsaved(gymnasium.make("CartPole-v1")))
    yield env_id
    del gymnasium.registry[env_id]


@pytest.mark.parametrize("name", ["ppo", "dqn-async"])
@pytest.mark.parametrize("cannot", [False, True], ids=["by setting", "by nature"])
def test_a_run_whose_environments_are_not_saved_goes_on_as_one_whose_episodes_began_anew(
    trainers, tmp_path, name, cannot, unsaved
):
    """All but the episodes under way is exact, and these begin on seeds of the step: the uncut run can do the same."""
    algorithm, settings = CASES[name]
    sets = {"env": unsaved} if cannot else {"save_env_state": False}
    uncut = trainers(algorithm, settings, tmp_path / "uncut", **sets)
    rows, saved = [], 0
    for row in uncut.train():
        rows.append(test_trainer.without_times(row))
        if not saved and uncut.env_steps >= 200:
            checkpoint = uncut.save()
            saved = uncut.env_steps
            uncut.begin_episodes()
    resumed = trainers(algorithm, settings, tmp_path / "other", **sets)
    resumed.restore(checkpoint)
    assert resumed.env_steps == saved
    (note,) = [note for note in resumed.notes if "new episodes begin" in note]
    assert ("simulator" if cannot else "save_env_state is false") in note
    assert finish(resumed) == [row for row in rows if row["env_steps_sampled"] > saved]
    assert_same_state(state_of(resumed), state_of(uncut))


def test_a_stop_between_two_reports_loses_nothing(trainers, tmp_path):
    algorithm, settings = CASES["dqn"]
    uncut = finish(trainers(algorithm, settings, tmp_path / "uncut"))
    cut = trainers(algorithm, settings, tmp_path / "cut", checkpoint_every=0)
    rows = []
    for row in cut.train():
        rows.append(test_trainer.without_times(row))
        if cut.env_steps >= 250:
            break
    stop_at = cut.env_steps + 22
    cut._advance(stop_at)
    assert cut.env_steps >= stop_at
    path = cut.save()
    assert path == find_checkpoint(tmp_path / "cut")
    resumed = trainers(algorithm, settings, tmp_path / "cut", checkpoint_every=0)
    resumed.restore(path)
    assert rows + finish(resumed) == uncut


@pytest.mark.parametrize("steps", [400, 1_200])
def test_another_length_leaves_schedules_as_they_were_planned(trainers, tmp_path, steps):
    algorithm, settings = CASES["ppo"]
    planned = trainers(algorithm, settings, tmp_path / "run").config
    length = {"steps": steps, "schedule_steps": planned.schedule_length}
    other = trainers(algorithm, settings, tmp_path / "other", **length)
    trained(other)
    updates = -(-planned.steps // (16 * 2)) * 2 * 2
    assert other.agent.config.lr["steps"] == updates
    trial = test_pbt.trial_config(test_pbt.config_of(steps=steps, schedule_steps=900), 0, {})
    assert (trial.steps, trial.schedule_length) == (steps // 3, 300)
