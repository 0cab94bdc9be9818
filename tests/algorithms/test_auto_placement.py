"""Placement auto: what is tried, what is taken, and what is said of it."""

import signal

import pytest
from gymnasium.envs.classic_control import CartPoleEnv

import rlweave
from rlweave.algorithms import auto_placement
from rlweave.algorithms.auto_placement import Measurement, candidates, settle_placement
from rlweave.algorithms.config import resolve_config
from rlweave.algorithms.registry import get_algorithm
from rlweave.errors import ConfigError
from rlweave.runs.run_directory import RunDirectory

NETWORK = [{"type": "dense", "units": 4}]
SMALL = {"backend": "torch", "num_envs": 2, "steps": 32, "evaluate_every": 0, "tensorboard": False}
AGENT = {"network": NETWORK, "rollout_steps": 8, "epochs": 1, "minibatches": 1, "acting_backend": "numpy"}


def config_of(name, **sets):
    common = {"env": "CartPole-v1", "placement": "auto", "num_envs": 12}
    return resolve_config(get_algorithm(name).config_class, sets={**common, **sets})


def tried(name, **sets):
    return [
        (own.placement.name, own.engine, own.placement.workers, own.placement.learners)
        for own in candidates(get_algorithm(name), config_of(name, **sets))
    ]


def test_without_ray_everything_stays_in_this_process_and_its_children():
    assert tried("ppo") == [("local", "local", 1, 1), ("environments_apart", "local", 1, 1), ("fused", "local", 1, 1)]
    assert tried("impala") == [("local", "local", 1, 1), ("environments_apart", "local", 1, 1)]
    assert tried("pbt") == [("local", "local", 1, 1)]


def test_on_ray_there_are_as_many_workers_as_cores_that_divide_the_environments(monkeypatch):
    monkeypatch.setattr(auto_placement, "_cores", lambda: 8)
    on_ray = [own for own in tried("ppo", engine="ray") if own[1] == "ray"]
    assert ("single_learner_coarse", "ray", 6, 1) in on_ray
    assert ("multi_learner", "ray", 1, 6) in on_ray
    assert ("single_learner_coarse", "ray", 3, 1) in tried("ppo", **{"engine": "ray", "placement.workers": 3})
    assert ("fused", "local", 1, 1) in tried("ppo", **{"engine": "ray", "placement.workers": 3})


def settled(monkeypatch, speeds, told):
    """The placement that is taken where these speeds are measured; a text in place of one is a refusal."""

    def measure(algorithm, configs, seconds):
        found = []
        for config in configs:
            speed = speeds[config.placement.name]
            refused = isinstance(speed, str)
            found.append(
                Measurement(config, 0 if refused else speed, 0.0 if refused else 1.0, speed if refused else "")
            )
        return found

    monkeypatch.setattr(auto_placement, "measure", measure)
    return settle_placement(get_algorithm("ppo"), config_of("ppo", num_envs=8), told.append).placement.name


def test_the_fastest_is_taken_and_all_are_shown(monkeypatch):
    told = []
    assert settled(monkeypatch, {"local": 10, "environments_apart": 3000, "fused": "no ops"}, told) == (
        "environments_apart"
    )
    assert "3,000" in told[0]
    assert "no ops" in told[0]
    assert "placement environments_apart is taken" in told[0]


def test_where_none_is_possible_the_error_has_the_reason_of_each(monkeypatch):
    with pytest.raises(ConfigError, match="no placement of this training is possible") as caught:
        settled(monkeypatch, {"local": "one", "environments_apart": "two", "fused": "three"}, [])
    assert caught.value.received == "local: one; environments_apart: two; fused: three"


def test_another_placement_is_left_as_it_is():
    config = config_of("ppo", placement="local")
    assert settle_placement(get_algorithm("ppo"), config, pytest.fail) is config


def test_a_training_begins_in_the_placement_that_was_the_fastest_and_keeps_it(tmp_path):
    run = rlweave.train(
        "ppo",
        CartPoleEnv,
        run_dir=tmp_path / "run",
        placement={"name": "auto", "measure_seconds": 1e-3},
        agent=AGENT,
        **SMALL,
    )
    table = run.notes[0]
    rows = {line.split()[0]: line.split() for line in table.splitlines()[2:5]}
    assert set(rows) == {"local", "environments_apart", "fused"}
    assert rows["fused"][4] == "-"  # this class is not written in ops
    assert all(float(rows[name][4].replace(",", "")) > 0 for name in ("local", "environments_apart"))
    _, kept = RunDirectory.open(tmp_path / "run").read_config()
    taken = kept["placement"]["name"]
    assert f"placement {taken} is taken" in table
    assert run.config.placement.name == taken
    assert run.env_steps == 0
    run.finish()
    assert run.env_steps >= 32


@pytest.mark.parametrize("use", ["explain", "make_trainer"])
def test_elsewhere_a_placement_has_to_be_named(use):
    with pytest.raises(ConfigError, match="measured when a training begins") as caught:
        getattr(get_algorithm("ppo"), use)(config_of("ppo"))
    assert "local" in caught.value.fix


class InterruptedCartPole(CartPoleEnv):
    """CartPole at whose first step Ctrl-C is pressed."""

    def step(self, *args, **kwargs):
        signal.raise_signal(signal.SIGINT)
        return super().step(*args, **kwargs)


def test_ctrl_c_ends_the_measurement():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            rlweave.train("a2c", InterruptedCartPole, placement="auto", agent={"network": NETWORK}, **SMALL)
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_training_is_closed_before_the_next_one_is_made():
    """Those on Ray hold cores, which the next one needs."""
    open_ones, most = [], []

    class Opened:
        def __init__(self):
            open_ones.append(self)
            most.append(len(open_ones))

        def close(self):
            open_ones.remove(self)

    class Algorithm:
        def make_trainer(self, config, run):
            return Opened()

    found = auto_placement.measure(Algorithm(), [config_of("ppo")] * 3, 1.0)
    assert most == [1, 1, 1]
    assert not open_ones
    assert all("runs no plan" in own.limit for own in found)
