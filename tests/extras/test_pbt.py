"""Population-based training: who copies from whom, that it repeats and resumes exactly, and that a trial may die."""

import numpy as np
import pytest

from rlweave.algorithms.config import resolve_config
from rlweave.envs.seeding import derived_seed
from rlweave.errors import ConfigError, PlanError
from rlweave.extras.pbt import PBTTrainConfig, make_trial, pbt, trial_config
from rlweave.extras.population import Population, draw_settings, explore
from rlweave.flow import LocalEngine, PlanItem
from rlweave.runs.checkpoint import find_checkpoint, load_checkpoint
from rlweave.runs.run_directory import RunDirectory

SMALL = {
    "ppo": {
        "network": [{"type": "dense", "units": 8}],
        "rollout_steps": 16,
        "epochs": 1,
        "minibatches": 2,
        "acting_backend": "numpy",
    },
    "impala": {"network": [{"type": "dense", "units": 8}], "rollout_steps": 8, "acting_backend": "numpy"},
    "dqn": {
        "network": [{"type": "dense", "units": 8}],
        "learning_starts": 40,
        "memory_capacity": 150,
        "batch_size": 16,
        "acting_backend": "numpy",
    },
}


def config_of(algorithm="ppo", **sets):
    settings = {
        "env": "CartPole-v1",
        "backend": "torch",
        "num_envs": 2,
        "population": 3,
        "truncation": 0.34,
        "steps": 1_000,
        "ready_every": 100,
        "report_every": 100,
        "evaluate_every": 300,
        "evaluation_episodes": 2,
        "checkpoint_every": 0,
        "tensorboard": False,
        "trial_algorithm": algorithm,
        "trial": {"agent": SMALL[algorithm]},
    }
    return resolve_config(PBTTrainConfig, sets={**settings, **sets})


def finish(trainer):
    """Trains to the end; rows without times, and the final state."""
    try:
        rows = [
            {key: value for key, value in row.items() if "second" not in key and not key.startswith("trained_samples/")}
            for row in trainer.train()
        ]
        return rows, trainer.state_dict()
    finally:
        trainer.close()


def item(trial, score, settings=None):
    report = {"score": score, "trained_samples": 4, "gradient_steps": 2}
    return PlanItem(4, report, {"trial": trial, "settings": settings or {"lr": 0.1}, "state": {"of": trial}})


# -- the population -------------------------------------------------------------------------------------------------


def test_the_worst_copies_state_and_settings_of_the_best_and_perturbs_them():
    population = Population(4, {"lr": [0.001, 1.0]}, 0.25, [0.5, 2.0], seed=0)
    for trial, score in enumerate((1.0, 5.0, 3.0)):
        population.update(item(trial, score, {"lr": 0.01 * (trial + 1)}))
    before = population.exploits
    metrics = population.update(item(3, 0.5, {"lr": 0.9}))
    assert population.exploits == before + 1
    assert metrics["trial-3/score"] == 0.5
    assert metrics["best_score"] == 5.0
    message = population.get_weights()
    told = message["members"][3]
    assert told["owed"]
    assert told["generation"] == 1
    assert told["state"] == {"of": 1}
    assert told["settings"]["lr"] in (pytest.approx(0.01), pytest.approx(0.04)), "that of trial 1, times 0.5 or 2"
    assert [spare["state"]["of"] for spare in message["spares"]] == [1, 1], "the best, and who stands where it does"


def test_the_best_is_left_alone_and_equals_do_not_copy():
    population = Population(2, {"lr": [0.1, 0.1]}, 0.5, [1.0], seed=0)
    population.update(item(0, 3.0))
    population.update(item(1, 3.0))
    population.update(item(0, 4.0))
    assert population.exploits == 0
    assert not any(member["owed"] for member in population.members)
    population.update(item(1, 3.5))
    assert population.exploits == 1
    assert population.get_weights()["members"][1]["state"] == {"of": 0}


def test_counts_are_those_of_the_trials():
    population = Population(2, {"lr": [0.1, 0.1]}, 0.5, [1.0], seed=0)
    metrics = population.update(item(0, 3.0))
    assert metrics["trained_samples"] == 4
    assert metrics["gradient_steps"] == 2


def test_hyper_parameters_stay_within_bounds_and_whole_numbers_whole():
    rng = np.random.default_rng(0)
    bounds = {"agent.lr": [1e-4, 1e-2], "agent.epochs": [2, 9], "agent.entropy_coefficient": [0.0, 0.1]}
    drawn = [draw_settings(bounds, rng) for _ in range(400)]
    for key, (low, high) in bounds.items():
        values = [settings[key] for settings in drawn]
        assert low <= min(values) <= max(values) <= high
    assert {type(settings["agent.epochs"]) for settings in drawn} == {int}
    medians = [np.median([settings[key] for settings in drawn]) for key in ("agent.lr", "agent.entropy_coefficient")]
    assert medians == pytest.approx([1e-3, 0.05], rel=0.35), "on a logarithmic scale; from zero on a linear one"
    for settings in drawn[:50]:
        for key, value in explore(settings, bounds, [0.8, 1.2], rng).items():
            low, high = bounds[key]
            assert low <= value <= high
            near = [np.clip(settings[key] * factor, low, high) for factor in (0.8, 1.2)]
            assert any(abs(value - other) <= (0.5 if key == "agent.epochs" else 1e-12) for other in near)


def test_a_population_goes_on_from_its_state():
    def run(population, trials):
        for trial, score in trials:
            population.update(item(trial, score, dict(population.members[trial]["settings"])))
        return population

    trials = [(0, 1.0), (1, 2.0), (2, 0.5), (0, 0.1), (1, 0.2), (2, 3.0), (0, 0.3), (1, 0.1)]
    bounds, factors = {"lr": [0.001, 1.0]}, [0.8, 1.2]
    uncut = run(Population(3, bounds, 0.34, factors, seed=1), trials)
    cut = run(Population(3, bounds, 0.34, factors, seed=1), trials[:4])
    resumed = Population(3, bounds, 0.34, factors, seed=7)
    resumed.load_state_dict(cut.state_dict())
    assert run(resumed, trials[4:]).state_dict() == uncut.state_dict()
    assert uncut.exploits >= 2


# -- the training ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["ppo", pytest.param("dqn", marks=pytest.mark.slow)])
def test_cut_and_resumed_equals_uncut(algorithm, tmp_path):
    """Bit for bit: weights, memories, settings and scores of all trials, and what is on its way between them."""

    def run_directory(name, config):
        return RunDirectory.create("pbt", config.to_data(), path=tmp_path / name)

    config = config_of(algorithm, checkpoint_every=400)
    rows, uncut = finish(pbt.make_trainer(config, run_directory("uncut", config)))
    assert rows[-1]["env_steps_sampled"] >= 1_000
    assert rows[-1]["train_one_step/exploits"] >= 1, "somebody copied"
    half = pbt.make_trainer(config, run_directory("cut", config))
    for row in half.train():
        if row["env_steps_sampled"] >= 600:
            break
    half.close()
    resumed = pbt.make_trainer(config, RunDirectory(tmp_path / "cut"))
    checkpoint = find_checkpoint(tmp_path / "cut")
    resumed.restore(checkpoint)
    began = resumed.env_steps
    assert 400 <= began < 600
    later, state = finish(resumed)
    assert later == [row for row in rows if row["env_steps_sampled"] > began]
    assert_same(state, uncut)


def assert_same(one, other, path=""):
    """Nested data, bit for bit; times may differ."""
    if isinstance(one, dict):
        assert one.keys() == other.keys(), path
        for key, value in one.items():
            # spaces of environments that nobody seeds have random streams of their own
            if "second" not in key and key not in ("timer", "last_report", "environments"):
                assert_same(value, other[key], f"{path}/{key}")
    elif isinstance(one, list | tuple):
        assert len(one) == len(other), path
        for index, value in enumerate(one):
            assert_same(value, other[index], f"{path}/{index}")
    elif isinstance(one, np.ndarray):
        np.testing.assert_array_equal(one, other, err_msg=path)
    else:
        assert one == other or (one != one and other != other), path


def test_the_best_trial_is_evaluated_and_kept(tmp_path):
    config = config_of()
    trainer = pbt.make_trainer(config, RunDirectory.create("pbt", config.to_data(), path=tmp_path / "run"))
    rows, _ = finish(trainer)
    best = max(member["score"] for member in trainer.population.members)
    assert rows[-1]["evaluation_return"] == best
    _, meta = load_checkpoint(tmp_path / "run/checkpoints/best")
    assert meta["best_return"] == rows[-1]["best_evaluation_return"]
    again = pbt.make_trainer(config, None)
    try:
        again.load_model(tmp_path / "run/checkpoints/best")
        played = again.evaluate(config.evaluation_episodes, derived_seed(config.seed, "evaluation"))
        assert played.mean_return == meta["best_return"], "the same agent in the same episodes"
        assert again.draw().startswith("<svg")
    finally:
        again.close()


def test_a_trial_that_had_not_heard_whom_to_copy_hears_it_when_the_training_is_restored():
    trainer, again = (pbt.make_trainer(config_of(), None) for _ in range(2))
    try:
        members = trainer.population.members
        while not (waiting := [number for number, member in enumerate(members) if member["generation"]]):
            trainer.plan.pull()
        (number,) = waiting
        state = trainer.state_dict()
        assert trainer.plan.ask_workers("standing")[number]["generation"] == 0, "not told yet"
        again.load_state_dict(state)
        standing = again.plan.ask_workers("standing")[number]
        assert standing["generation"] == 1
        assert standing["settings"] == members[number]["settings"]
    finally:
        trainer.close()
        again.close()


LEARNER_ELSEWHERE = {"learner": "actor", "agent": SMALL["impala"]}


def test_what_is_evaluated_of_a_trial_whose_learner_lives_elsewhere_is_what_it_learned():
    trial = {**LEARNER_ELSEWHERE, "placement": "single_learner_coarse"}
    trainer = pbt.make_trainer(config_of("impala", population=2, truncation=0.5, ready_every=64, trial=trial), None)
    try:
        trainer.plan.pull()
        state = trainer.population.members[trainer.population.best()]["state"]
        for _ in range(2):
            trainer.evaluate(1, seed=0)
            shown = trainer._best_trainer()
            for path, value in shown.agent.state_dict().items():
                if not path.startswith("acting:"):
                    np.testing.assert_array_equal(value, state["variables"][path], err_msg=path)
            assert shown.agent.counters() == state["agent"]
        member = trainer.population.members[trainer.population.best()]
        shown, member["state"] = trainer._best_trainer(), dict(state)
        assert trainer._best_trainer() is not shown, "another state, although it is equal"
        assert trainer._best_trainer() is trainer._best_trainer()
    finally:
        trainer.close()


@pytest.mark.parametrize("more", [{"learner": "actor"}, {"broadcast_interval": 2}])
def test_settings_that_only_trials_on_ray_can_have_are_shown_here(more, monkeypatch):
    # the engine that holds the cluster of the trials' workers is not needed for that
    monkeypatch.setattr("rlweave.extras.pbt.make_engine", lambda config: LocalEngine())
    monkeypatch.setattr("rlweave.extras.trials.TrialFactory.needs", lambda self: [])
    trial = {"agent": SMALL["impala"], "engine": "ray", **more}
    trainer = pbt.make_trainer(config_of("impala", population=2, truncation=0.5, trial=trial), None)
    try:
        assert len(trainer.evaluate(1, seed=0).episodes) == 1
    finally:
        trainer.close()


@pytest.mark.parametrize(
    ("algorithm", "settings", "cpus"),
    [
        ("ape-x", {"placement": {"workers": 2}, "worker_cpus": 0.5, "shards": 3, "shard_cpus": 1.0}, 2 * 0.5 + 3 * 1.0),
        (
            "impala",
            {"placement": {"workers": 1}, "worker_cpus": 1.0, "learner": "actor", "learner_cpus": 2.0},
            1.0 + 2.0,
        ),
        ("ppo", {"placement": {"workers": 2}}, 2.0),
    ],
)
def test_trials_need_all_actors_of_their_plans(algorithm, settings, cpus):
    trial = {"engine": "ray", "agent": {"acting_backend": "numpy"}, **settings}
    config = config_of("ppo", trial_algorithm=algorithm, population=2, truncation=0.5, trial=trial)
    needs = pbt.compose(config).graph.needs_by_operator()
    inner = [(number, each.cpus) for name, number, each in needs if name.startswith("plans in")]
    assert sum(number * own for number, own in inner) == 2 * cpus


def test_trials_differ_in_seed_and_have_the_settings_of_the_population():
    config = config_of(trial={"agent": {**SMALL["ppo"], "lr": 0.5}})
    one, two = (trial_config(config, number, {"agent.lr": 0.25}) for number in (0, 1))
    assert one.seed != two.seed
    assert one.agent.lr == 0.25, "what is searched wins"
    assert (one.env, one.backend, one.num_envs, one.agent.rollout_steps) == ("CartPole-v1", "torch", 2, 16)


def test_a_trial_that_stands_in_for_a_lost_one_goes_on_from_the_best_of_the_others():
    config = config_of()
    trials = [make_trial(config, number) for number in range(3)]
    population = Population(3, config.hyper_parameters, 0.34, config.factors, seed=0)
    for trial in trials:
        trial.set_weights(population.get_weights(), 0)
        population.update(trial.sample())
    ranked = sorted(range(3), key=lambda number: -population.members[number]["score"])
    best, lost = ranked[0], ranked[0]
    heir = make_trial(config, lost)
    heir.replacing(1)
    population.members[lost]["owed"] = False
    heir.set_weights(population.get_weights(), 3)
    standing = heir.standing()
    others = [population.members[number] for number in range(3) if number != best]
    assert any(standing["state"] is member["state"] for member in others)
    given = next(member for member in others if standing["state"] is member["state"])
    ratio = standing["settings"]["agent.lr"] / given["settings"]["agent.lr"]
    assert ratio in (pytest.approx(0.8), pytest.approx(1.2)) or standing["settings"]["agent.lr"] in (1e-4, 1e-2)
    before = given["state"]["env_steps"]
    assert heir.sample().state["state"]["env_steps"] > before
    for trial in [*trials, heir]:
        trial.close()


@pytest.mark.parametrize(
    ("sets", "where"),
    [
        ({"placement": {"workers": 2}}, "the workers of a population are its trials"),
        ({"placement": {"on_error": "shrink"}}, "a population stays as large"),
        ({"trial": {"seed": 3}}, "seed of a trial follows from that of the population"),
        ({"hyper_parameters": {"agent.lr": [0.1]}}, "lowest and its highest"),
        ({"hyper_parameters": {"agent.lr": [1.0, 0.1]}}, "lowest and its highest"),
        ({"hyper_parameters": {"agent.learning": [0.1, 1.0]}}, "unknown setting"),
        ({"trial_algorithm": "popo"}, "unknown algorithm"),
    ],
)
def test_wrong_settings_are_refused(sets, where):
    with pytest.raises(ConfigError, match=where):
        pbt.make_trainer(config_of(**sets), None)
    with pytest.raises(ConfigError, match=where):  # nor is a plan shown that could not be trained
        pbt.compose(config_of(**sets))


@pytest.mark.parametrize(
    ("sets", "where"),
    [
        ({"max_lag": 1, "gather": "sync"}, "items gathered in rounds have no weight lag"),
        ({"trial": {"max_lag": 1}}, "items gathered in rounds have no weight lag"),
        ({"trial": {"placement": {"workers": 3}}}, "cannot be divided evenly"),
        ({"trial": {"agent": {"minibatches": 7}}}, "equal minibatches"),
    ],
)
def test_settings_of_trials_are_checked_before_any_process_begins(monkeypatch, sets, where):
    def never(*arguments, **options):
        raise AssertionError("something has begun")

    monkeypatch.setattr("rlweave.extras.pbt.make_engine", never)
    with pytest.raises(ConfigError, match=where):
        pbt.make_trainer(config_of(engine="ray", **sets), None)


# -- on Ray -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.long(minutes=0.5)
def test_a_killed_trial_is_replaced_and_goes_on_from_one_that_lives(ray_engine):
    ray = pytest.importorskip("ray")
    sets = {"engine": "ray", "worker_cpus": 0.5, "steps": 10_000_000, "population": 2}
    trainer = pbt.make_trainer(config_of(truncation=0.5, **sets), None)
    score = "train_one_step/trial-{}/score".format
    try:
        reported, killed_at, after = set(), 0, 0.0
        for row in trainer.train():
            assert row["env_steps_sampled"] < 1_000_000, "it takes its time"
            reported |= {trial for trial in (0, 1) if score(trial) in row}
            if not killed_at and reported == {0, 1}:
                ray.kill(trainer.plan._context.actors(trainer._trials)[1].handle, no_restart=True)
                killed_at = row["env_steps_sampled"]
            after += score(1) in row and trainer.plan.counters.replacements == {"parallel_rollouts": 1}
            if after >= 2:
                break
        counters = trainer.plan.counters
        assert counters.lost_items == counters.failures == {"parallel_rollouts": 1}
        told = trainer.plan.ask_workers("standing")
        own_steps = 100 * counters.updates  # of both trials together, about
        assert told[1]["state"]["env_steps"] > 300, "it went on from the other one's state"
        assert counters.env_steps_sampled >= own_steps, "the steps of the lost trial are counted"
    finally:
        trainer.close()


@pytest.mark.slow
def test_more_trials_than_cores_are_refused_with_the_sum(ray_engine):
    with pytest.raises(PlanError, match="3 CPU in all; there is 2 CPU"):
        pbt.make_trainer(config_of(engine="ray"), None)
    inner = {"agent": SMALL["ppo"], "engine": "ray", "placement": {"workers": 1}}
    for engine in ("local", "ray"):
        with pytest.raises(PlanError, match="3 CPU in all; there is 2 CPU"):
            pbt.make_trainer(config_of(engine=engine, trial=inner), None)
