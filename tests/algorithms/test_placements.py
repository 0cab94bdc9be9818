"""Placements x algorithms: each pair trains, or is refused with the reason before anything begins."""

import numpy as np
import pytest

from rlweave.algorithms.config import resolve_config
from rlweave.algorithms.placements import PLACEMENTS
from rlweave.algorithms.registry import algorithm_names, get_algorithm
from rlweave.errors import ConfigError

NETWORK = [{"type": "dense", "units": 4}]
COMMON = {"num_envs": 2, "evaluate_every": 0, "checkpoint_every": 0, "tensorboard": False}
LEARNING = {**COMMON, "env": "CartPole-v1", "backend": "torch", "agent.network": NETWORK, "steps": 32}
ON_POLICY = {**LEARNING, "agent.rollout_steps": 8}
MINIBATCHES = {**ON_POLICY, "agent.epochs": 1, "agent.minibatches": 1}
REPLAY = {**LEARNING, "agent.learning_starts": 8, "agent.batch_size": 4, "agent.memory_capacity": 100}
REPLAY |= {"agent.samples_per_step": 1.0, "steps": 96}
FLOATS = {**REPLAY, "env": "Pendulum-v1"}
#: The smallest training with an update.
SETTINGS = {
    "a2c": ON_POLICY,
    "a3c": ON_POLICY,
    "ape-x": {**REPLAY, "steps_per_item": 8},
    "appo": MINIBATCHES,
    "ddpg": FLOATS,
    "dqn": {**REPLAY, "agent.n_step": 1},
    "es": {**LEARNING, "backend": "numpy", "agent.pairs": 2, "agent.noise_size": 1000},
    "impala": ON_POLICY,
    "maml": {
        **LEARNING,
        "env": "rlweave/PointNavigation-v0",
        "env_options": {"horizon": 4},
        "agent.shots": 4,
    },
    "multi-agent": {**COMMON, "env": "rlweave/MultiCartPole-v0", "backend": "torch", "steps": 64, "steps_per_item": 8},
    "pbt": {**COMMON, "env": "CartPole-v1", "backend": "torch"},
    "ppo": MINIBATCHES,
    "pqn": MINIBATCHES,
    "sac": FLOATS,
    "td3": FLOATS,
}
SETTINGS["multi-agent"]["policies"] = {
    "shared": {"algorithm": "ppo", "agent": {"network": NETWORK, "rollout_steps": 8, "epochs": 1, "minibatches": 1}}
}
REFUSED = {
    **{
        (name, "fused"): f"{name} has no fused form: its environments step outside of the graph"
        for name in ("a3c", "ape-x", "appo", "es", "impala", "maml", "multi-agent", "pbt")
    },
    **{
        (name, "multi_learner"): f"{name} has no multi_learner form: its update is not a mean over rows"
        for name in ("a3c", "ape-x", "es", "maml", "multi-agent", "pbt")
    },
    **{
        (name, "parameter_server"): f"{name} has no parameter_server form: its update is not one optimizer step"
        for name in SETTINGS
        if name not in ("a2c", "a3c")
    },
    **{
        (name, "single_learner_fine"): f"{name} has no single_learner_fine form: its workers use their agent for more"
        for name in ("a3c", "ape-x", "es", "maml", "multi-agent", "pbt")
    },
    ("multi-agent", "environments_apart"): "those of several agents",
    ("pbt", "environments_apart"): "or of its trials",
    ("pbt", "single_learner_coarse"): "the workers of a population are its trials",
}
#: Those that take seconds: programs of torch, and processes for algorithms whose like is tested among the fast ones.
SLOW = {
    *((name, "fused") for name in ("a2c", "ddpg", "dqn", "ppo", "pqn", "sac", "td3")),
    *((name, "environments_apart") for name in ("a2c", "appo", "ddpg", "es", "impala", "pqn", "td3")),
}
PAIRS = [
    pytest.param(algorithm, placement, marks=[pytest.mark.slow] * ((algorithm, placement) in SLOW))
    for algorithm in SETTINGS
    for placement in PLACEMENTS
    if (algorithm, placement) != ("pbt", "local")  # tests/extras/test_pbt.py
]


def trainer_of(algorithm, placement):
    spec = get_algorithm(algorithm)
    sets = {**SETTINGS[algorithm], "placement": placement}
    if "agent.network" in sets and placement != "fused" and algorithm != "maml":
        sets["agent.acting_backend"] = "numpy"
    return spec.make_trainer(resolve_config(spec.config_class, sets=sets), None)


def test_a_recurrent_policy_with_masks_is_the_same_with_environments_apart():
    sets = {
        **MINIBATCHES,
        "env": "rlweave/MaskedRecall-v0",
        "agent.network": [{"type": "gru", "units": 4}],
        "steps": 48,
    }
    rows = []
    for placement in ("local", "environments_apart"):
        spec = get_algorithm("ppo")
        own = {**sets, "placement": placement, "agent.acting_backend": "numpy"}
        trainer = spec.make_trainer(resolve_config(spec.config_class, sets=own), None)
        try:
            last = list(trainer.train())[-1]
            rows.append({name: value for name, value in last.items() if "second" not in name})
            rows.append(trainer.agent.get_weights())
        finally:
            trainer.close()
    assert repr(rows[0]) == repr(rows[2])  # NaN is equal to NaN
    for path, value in rows[1].items():
        np.testing.assert_array_equal(rows[3][path], value, err_msg=path)


def test_the_table_has_all_algorithms():
    assert set(SETTINGS) == set(algorithm_names())


@pytest.mark.parametrize(("algorithm", "placement"), PAIRS)
def test_every_pair_trains_or_says_why_not(algorithm, placement):
    if (algorithm, placement) in REFUSED:
        with pytest.raises(ConfigError, match=REFUSED[algorithm, placement]) as caught:
            trainer_of(algorithm, placement)
        assert caught.value.where.startswith("placement")
        assert placement in caught.value.received
        assert "local" in caught.value.fix or "trial" in caught.value.fix
        return
    trainer = trainer_of(algorithm, placement)
    try:
        rows = list(trainer.train())
        assert rows[-1]["env_steps_sampled"] >= SETTINGS[algorithm]["steps"]
        assert rows[-1]["updates"] >= 1
    finally:
        trainer.close()


def test_what_an_algorithm_has_no_form_for_is_said_before_how_many_workers_it_has():
    config = resolve_config(get_algorithm("a3c").config_class, sets={**SETTINGS["a3c"], "placement": "fused"})
    assert config.placement.workers > 1
    for refuse in (get_algorithm("a3c").explain, get_algorithm("a3c").make_trainer):
        with pytest.raises(ConfigError, match="a3c has no fused form"):
            refuse(config)


@pytest.mark.parametrize(
    "old", ["worker_failure", "learner_failure", "placement.rank_failure", "placement.shard_failure"]
)
def test_the_settings_that_on_error_replaces_are_refused_with_the_new_key(old):
    with pytest.raises(ConfigError, match="unknown setting") as caught:
        resolve_config(get_algorithm("impala").config_class, sets={"env": "CartPole-v1", old: "stop"})
    assert old in caught.value.what
    assert caught.value.fix == "placement.on_error takes its place"


@pytest.mark.parametrize("placement", ["local", "environments_apart", "single_learner_coarse", "single_learner_fine"])
def test_what_fails_in_this_process_is_neither_replaced_nor_left_out(placement):
    algorithm = get_algorithm("ppo")
    own = {"env": "CartPole-v1", "placement.name": placement, "placement.on_error": "shrink"}
    with pytest.raises(ConfigError, match="ends the training") as caught:
        algorithm.check_placement(resolve_config(algorithm.config_class, sets=own))
    assert "--engine ray" in caught.value.fix
    if placement.startswith("single"):
        algorithm.check_placement(resolve_config(algorithm.config_class, sets={**own, "engine": "ray"}))
