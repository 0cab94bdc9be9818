"""Every algorithm trains in environments with actions of every kind, which see nothing but elements of their space."""

import numpy as np
import pytest

from rlweave.algorithms.config import resolve_config
from rlweave.algorithms.registry import get_algorithm
from rlweave.cli import main
from tests.envs.acting import BOXES, COUNTABLE, EVERYTHING, LIGHTS, POINTING, SPACES, Taker, check_covered, leaves

FEED_FORWARD, RECURRENT = [{"type": "dense", "units": 4}], [{"type": "lstm", "units": 4}]
SHARED = {
    "backend": "torch",
    "num_envs": 4,
    "steps": 1000,
    "evaluate_every": 0,
    "checkpoint_every": 0,
    "tensorboard": False,
    "agent.network": FEED_FORWARD,
    "agent.acting_backend": "numpy",
}
#: One update at the end: until then, actions are those of the start.
ON_POLICY = {"env": EVERYTHING, "agent.rollout_steps": 250}
Q_LEARNING = {"env": COUNTABLE, "agent.learning_starts": 960, "agent.batch_size": 16, "agent.memory_capacity": 2000}
#: Noise as wide as the box, since the policies begin near its middle.
FLOATING = {**Q_LEARNING, "env": BOXES, "agent.noise": 1.0, "agent.samples_per_step": 16.0}
SEQUENCES = {"agent.network": RECURRENT, "agent.burn_in": 1, "agent.unroll": 4, "agent.n_step": 1}
SETTINGS = {
    "ppo": {**ON_POLICY, "agent.epochs": 1},
    "a2c": ON_POLICY,
    "a3c": ON_POLICY,
    "impala": ON_POLICY,
    "appo": {**ON_POLICY, "agent.epochs": 1},
    "pqn": {**ON_POLICY, "env": COUNTABLE, "agent.epochs": 1, "agent.epsilon": 1.0},
    "dqn": {**Q_LEARNING, "agent.epsilon": 1.0},
    "ape-x": {**Q_LEARNING, "agent.epsilon_base": 1.0},
    "sac": {
        **{key: value for key, value in FLOATING.items() if key != "agent.noise"},
        "agent.network": [{"type": "dense", "units": 64, "activation": "tanh"}],  # deviations begin near 1
    },
    "td3": FLOATING,
    "ddpg": FLOATING,
}


def train(algorithm, **sets):
    """Trains, and returns what was taken by the environments of this process."""
    spec = get_algorithm(algorithm)
    config = resolve_config(spec.config_class, sets={**SHARED, **sets})
    Taker.taken.clear()
    trainer = spec.make_trainer(config, None)
    try:
        reports = list(trainer.train())
    finally:
        trainer.close()
    return list(Taker.taken), reports


@pytest.mark.parametrize("algorithm", sorted(SETTINGS))
def test_environments_get_actions_of_the_whole_space(algorithm):
    taken, _ = train(algorithm, **SETTINGS[algorithm])
    check_covered(SPACES[SETTINGS[algorithm]["env"]], taken[:1000])


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["ppo", "dqn"])
def test_recurrent_policies_do_as_well(algorithm):
    more = SEQUENCES if algorithm == "dqn" else {"agent.network": RECURRENT}
    taken, _ = train(algorithm, **SETTINGS[algorithm] | more)
    check_covered(SPACES[SETTINGS[algorithm]["env"]], taken[:1000])


def test_members_of_a_population_explore_boxes_of_all_scales_alike():
    sets = {"env": EVERYTHING, "agent.pairs": 20, "agent.sigma": 0.5, "agent.noise_size": 10_000, "steps": 320}
    taken, _ = train("es", **sets)
    spread = {}
    for path, leaf, values in leaves(SPACES[EVERYTHING], taken[:320]):
        if path in ("large", "huge", "offset", "small", "tiny"):
            spread[path] = np.std((values - (leaf.low / 2 + leaf.high / 2)) / (leaf.high / 2 - leaf.low / 2))
    assert min(spread.values()) > 0.2
    assert max(spread.values()) < 1


@pytest.mark.slow
def test_policies_of_several_agents_do_as_well():
    agents = {
        "any": {"algorithm": "ppo", "agent": {"network": FEED_FORWARD, "rollout_steps": 16, "minibatches": 1}},
        "counted": {
            "algorithm": "dqn",
            "agent": {"network": FEED_FORWARD, "learning_starts": 200, "memory_capacity": 500, "epsilon": 1.0},
        },
    }
    spec = get_algorithm("multi-agent")
    sets = {key: value for key, value in SHARED.items() if not key.startswith("agent.")}
    file = {
        "env": "tests.envs.acting:TakerPair",
        "policies": agents,
        "mapping": {"any": "any", "counter": "counted"},
        "steps_per_item": 16,
    }
    config = resolve_config(spec.config_class, file=file, sets={**sets, "steps": 400})
    Taker.taken.clear()
    trainer = spec.make_trainer(config, None)
    try:
        list(trainer.train())
    finally:
        trainer.close()
    everything = [action for action in Taker.taken if "tiny" in action]
    counted = [action for action in Taker.taken if "tiny" not in action]
    assert len(everything) == len(counted) >= 200
    assert all(SPACES[EVERYTHING].contains(action) for action in everything)
    check_covered(SPACES[COUNTABLE], counted)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["ppo", pytest.param("ape-x", marks=pytest.mark.thorough)])
def test_workers_on_ray_do_as_well(algorithm, ray_engine):
    # an environment that is given anything else raises, in whatever process
    sets = SETTINGS[algorithm] | {"engine": "ray", "placement.workers": 1, "object_store_mb": 80}
    if algorithm == "ape-x":
        sets["agent.learning_starts"] = 200
    _, reports = train(algorithm, **sets)
    assert reports[-1]["env_steps_sampled"] >= 1000
    assert reports[-1]["updates"] >= 1


@pytest.mark.parametrize("algorithm", ["ppo", "dqn"])
def test_the_command_line_trains_and_evaluates(algorithm, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Taker.taken.clear()
    sets = {**SHARED, **SETTINGS[algorithm], "evaluation_episodes": 2}
    options = [f"--set={name}={str(value).replace(chr(39), chr(34))}" for name, value in sets.items() if name != "env"]
    with pytest.raises(SystemExit) as ended:
        main(["train", algorithm, "--env", sets["env"], "--run-dir", "run", *options])
    assert not ended.value.code, capsys.readouterr().err
    check_covered(SPACES[sets["env"]], Taker.taken[:1000])


LEARNING = {
    "env": LIGHTS,
    "agent.network": [{"type": "dense", "units": 32, "activation": "relu"}],
    "agent.learning_starts": 200,
    "agent.batch_size": 32,
    "agent.discount": 0.0,
    "agent.lr": 3e-3,
    "agent.samples_per_step": 16.0,
    "steps": 3000,
    "evaluate_every": 3000,
    "evaluation_episodes": 20,
}


@pytest.mark.parametrize(
    ("algorithm", "sets"),
    [
        ("dqn", {}),
        pytest.param("dqn", SEQUENCES | {"agent.network": [{"type": "gru", "units": 32}]}, marks=pytest.mark.thorough),
        # four environments of its ladder of epsilons would explore little
        pytest.param("ape-x", {"agent.epsilon_base": 1.0}, marks=pytest.mark.thorough),
    ],
    ids=["dqn", "dqn-recurrent", "ape-x"],
)
def test_q_learning_learns_each_component_of_a_nested_action(algorithm, sets):
    """Chance gives 4 steps x (4 / 2 + 1 / 3) / 5 = 1.87 of 4; who leaves one component to chance has at most 3.6."""
    _, reports = train(algorithm, **LEARNING | sets)
    returns = [report["evaluation_return"] for report in reports if report.get("evaluation_return") is not None]
    assert returns[-1] > 3.65


@pytest.mark.parametrize(
    ("algorithm", "sets"),
    [
        ("sac", {"agent.temperature": 0.05, "steps": 1500, "evaluate_every": 1500}),
        pytest.param("td3", {"agent.noise": 0.4}, marks=pytest.mark.thorough),
        pytest.param(
            "ddpg", {"agent.noise": 0.4, "agent.lr": 1e-3, "agent.samples_per_step": 96.0}, marks=pytest.mark.thorough
        ),
    ],
)
def test_floats_are_learned_from_images_and_numbers_in_each_component_of_a_nest(algorithm, sets):
    """The middle of the box has 4 x -0.59; who leaves one of the three components there at most 4 x -0.16."""
    seen = {
        "env": POINTING,
        "image_layout": "channels_last",
        "agent.image_network": [{"type": "conv2d", "filters": 4, "kernel_size": 3, "stride": 2, "activation": "relu"}],
        "agent.batch_size": 64,
        "agent.samples_per_step": 32.0,
    }
    _, reports = train(algorithm, **LEARNING | seen | sets)
    returns = [report["evaluation_return"] for report in reports if report.get("evaluation_return") is not None]
    assert returns[-1] > -0.5
