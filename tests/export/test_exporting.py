"""Policies as artefacts: what they compute, what describes them, and that a wrong one is never left behind."""

import json

import numpy as np
import pytest
from gymnasium import spaces as gym

from rlweave.agents.dqn import DQN
from rlweave.agents.impala import IMPALA
from rlweave.agents.ppo import PPO
from rlweave.agents.trained_policy import TrainedPolicy
from rlweave.algorithms.config import resolve_config
from rlweave.algorithms.registry import get_algorithm
from rlweave.cli import main
from rlweave.errors import ConfigError, ExportError
from rlweave.export import TARGETS, export_policy
from rlweave.extras.es_agent import ES
from rlweave.extras.maml_agent import MAML
from rlweave.runs.run_directory import RunDirectory
from rlweave.spaces import BoolBox, Dict, FloatBox, IntBox, Tuple
from rlweave.spaces.gymnasium_json import gymnasium_to_json
from rlweave.spaces.gymnasium_spaces import Tokens, from_gymnasium

IMAGE = IntBox(0, 256, shape=(12, 10, 3), dtype="uint8", layout="channels_last")
OBSERVATIONS = Dict(image=IMAGE, gear=IntBox(-1, 3), speed=FloatBox(shape=(2,)))
ACTIONS = Tuple(
    IntBox(3), IntBox(-2, 2), IntBox(high=[2, 4], shape=(2,)), BoolBox((2,)), FloatBox([-2.0, 0.0], [2.0, 1.0])
)
CONVOLUTION = [
    {"type": "conv2d", "filters": 4, "kernel_size": 4, "stride": 2, "activation": "relu"},
    {"type": "flatten"},
]
DENSE = [{"type": "dense", "units": 8, "activation": "tanh"}]
MASKED = Dict(position=FloatBox(-1.0, 1.0, (2,)), allowed=BoolBox((4,)))


def export_agent(agent, to, directory):
    return export_policy(TrainedPolicy(agent, agent.model().weights, "numpy"), to, directory)


def recurrent_ppo(backend="numpy"):
    config = {
        "network": [*DENSE, {"type": "lstm", "units": 6}],
        "image_network": CONVOLUTION,
        "normalize_observations": True,
    }
    return PPO(OBSERVATIONS, ACTIONS, config, backend=backend, num_envs=4)


@pytest.mark.parametrize(
    "to", [pytest.param(to, marks=[pytest.mark.slow] if to in ("torch", "jax") else []) for to in TARGETS]
)
def test_every_target_holds_preprocessing_state_and_all_kinds_of_actions(to, tmp_path):
    # images, one-hot codes, normalization, an LSTM, five kinds of actions; 1,000 observations are compared inside
    description = export_agent(recurrent_ppo(), to, tmp_path / "policy")
    assert json.loads((tmp_path / "policy/policy.json").read_text()) == description
    assert description["verification"]["observations"] == 1000
    assert description["verification"]["greatest_difference"] <= 1e-5
    assert [i["name"] for i in description["inputs"]][:3] == [
        "observation/gear",
        "observation/image",
        "observation/speed",
    ]
    assert description["inputs"][1] == {
        "name": "observation/image",
        "shape": ["batch", 12, 10, 3],
        "dtype": "uint8",
    }
    assert {o["name"]: o["dtype"] for o in description["outputs"] if o["name"].startswith("action")} == {
        "action/0": "int32",
        "action/1": "int32",
        "action/2": "int32",
        "action/3": "bool",
        "action/4": "float32",
    }
    assert all(after == f"next_{name}" for name, after in description["recurrent_state"].items())


def test_what_was_loaded_acts_as_the_agent_does(tmp_path):
    agent = recurrent_ppo()
    description = export_agent(agent, "numpy", tmp_path / "policy")
    act = TARGETS["numpy"].load(tmp_path / "policy")
    observations = {
        name: np.zeros((5, *i["shape"][1:]), i["dtype"]) for i in description["inputs"] for name in [i["name"]]
    }
    play, rng = agent.greedy_player(), np.random.default_rng(1)
    for step in range(4):
        observation = OBSERVATIONS.with_batch_rank().sample(5, rng=rng)
        start = np.full(5, step == 0)
        given = {f"observation/{path}": x for path, x in OBSERVATIONS.flatten_value(observation).items()}
        found = act({**observations, **given, "episode_start": start})
        for path, wanted in ACTIONS.flatten_value(play(observation, start)).items():
            np.testing.assert_allclose(found[f"action/{path}"], wanted, atol=1e-6)
        assert set(np.unique(found["action/1"])) <= {-2, -1, 0, 1}
        observations |= {name: found[after] for name, after in description["recurrent_state"].items()}


@pytest.mark.parametrize(
    ("make", "actions"),
    [
        (lambda: DQN(MASKED, IntBox(4), {"network": DENSE, "mask_leaf": "allowed"}, backend="numpy"), IntBox(4)),
        (
            lambda: DQN(
                FloatBox(shape=(3,)),
                BoolBox((2,)),
                {"network": [{"type": "gru", "units": 4}], "dueling": True},
                backend="numpy",
            ),
            BoolBox((2,)),
        ),
        (lambda: PPO(MASKED, IntBox(4), {"network": DENSE, "mask_leaf": "allowed"}, backend="numpy"), IntBox(4)),
        (lambda: IMPALA(IntBox(5), IntBox(2), {"network": DENSE}, backend="numpy"), IntBox(2)),
        (lambda: ES(FloatBox(shape=(2,)), FloatBox(100.0, 200.0, (1,)), {"network": DENSE}, backend="numpy"), None),
        (lambda: MAML(FloatBox(shape=(2,)), FloatBox(shape=(1,)), {"network": DENSE}, backend="jax"), None),
    ],
    ids=["masked dqn", "recurrent dueling dqn", "masked ppo", "impala", "es", "maml"],
)
@pytest.mark.parametrize("to", ["numpy", "onnx"])
def test_every_agent_is_exported(make, actions, to, tmp_path):
    agent = make()
    checked = export_agent(agent, to, tmp_path / "policy")["verification"]
    assert checked["greatest_difference"] <= 1e-5
    if "mask_leaf" in str(agent.config) and agent.config.mask_leaf:
        allowed = np.eye(4, dtype=bool)
        given = {"observation/position": np.zeros((4, 2), np.float32), "observation/allowed": allowed}
        found = TARGETS[to].load(tmp_path / "policy")(given)
        np.testing.assert_array_equal(found["action"], np.arange(4))


def test_a_convolution_that_pads_and_other_layers_are_exported(tmp_path):
    layers = [{"type": "dense", "units": 6, "activation": a} for a in ("gelu", "silu", "elu", "sigmoid", "softplus")]
    image = [{"type": "conv2d", "filters": 3, "kernel_size": 3, "stride": 2, "padding": "same"}, {"type": "flatten"}]
    agent = PPO(IMAGE, IntBox(2), {"network": layers, "image_network": image}, backend="numpy")
    for to in ("numpy", "onnx"):
        assert export_agent(agent, to, tmp_path / to)["verification"]["greatest_difference"] <= 1e-5


GYMNASIUM = {
    "categories from anywhere": (
        gym.Dict({"floor": gym.Discrete(4, start=-1), "x": gym.Box(-2, 2, (3,), np.float64)}),
        gym.Tuple([gym.Discrete(3, start=5), gym.MultiDiscrete([2, 5], start=[1, -3]), gym.Box(-1, 1, (), np.float64)]),
        None,
    ),
    "mask of the infos": (
        gym.Dict({"action_mask": gym.MultiBinary(3), "observation": gym.Discrete(4)}),
        gym.Discrete(3, start=-1),
        "allowed",
    ),
    "text": (gym.Dict({"said": Tokens(5, 50), "x": gym.Box(0, 1, (1,), np.float32)}), gym.MultiBinary(2), None),
}


@pytest.mark.parametrize("case", GYMNASIUM)
def test_artefacts_take_and_give_the_numbers_of_the_environment(case, tmp_path):
    observations, actions, info_mask = GYMNASIUM[case]
    config = {"network": DENSE, "mask_leaf": None if info_mask is None else "action_mask"}
    agent = PPO(from_gymnasium(observations), from_gymnasium(actions), config, backend="numpy")
    agent.made_for = {
        "id": "Own-v0",
        "options": {},
        "info_mask": info_mask,
        "observation_space": gymnasium_to_json(observations),
        "action_space": gymnasium_to_json(actions),
    }
    description = export_agent(agent, "numpy", tmp_path / "policy")
    assert description["environment"] == {"id": "Own-v0", "options": {}, "info_mask": info_mask}
    assert description["observation_space"] == gymnasium_to_json(observations)
    texts = {i["name"]: i["text"] for i in description["inputs"] if "text" in i}
    assert texts == ({"observation/said": {"words": 5, "numbers": 50}} if case == "text" else {})
    # and as a user calls it, with what the environment gives
    act, policy = TARGETS["numpy"].load(tmp_path / "policy"), TrainedPolicy(agent, agent.model().weights, "numpy")
    observations.seed(3)
    for _ in range(20):
        seen = observations.sample()
        if info_mask is not None:
            seen["action_mask"][0] = 1
        given = {i["name"]: np.asarray([seen[i["name"].partition("/")[2]]], i["dtype"]) for i in description["inputs"]}
        found = [x[0] for name, x in act(given).items() if name.startswith("action")]
        own = (seen, None) if info_mask is None else (seen["observation"], seen["action_mask"])
        wanted = policy.act(own[0], mask=own[1])
        for got, want in zip(found, wanted if isinstance(actions, gym.Tuple) else [wanted], strict=True):
            np.testing.assert_allclose(got, want, atol=1e-6)
        assert actions.contains(wanted)


def test_the_command_exports_a_run_and_each_of_several_policies(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for algorithm, env, policies in (
        ("ppo", "CartPole-v1", [""]),
        ("multi-agent", "rlweave/MultiCartPole-v0", ["shared"]),
    ):
        spec = get_algorithm(algorithm)
        config = resolve_config(spec.config_class, sets={"env": env, "backend": "numpy", "num_envs": 1})
        trainer = spec.make_trainer(config, RunDirectory.create(algorithm, config.to_data(), path=algorithm))
        trainer.save()
        trainer.close()
        for to in ("numpy", "numpy"):  # the second one takes the place of the first
            with pytest.raises(SystemExit) as ended:
                main(["export", algorithm, "--to", to])
            assert not ended.value.code, capsys.readouterr().err
        printed = capsys.readouterr().out
        assert "1,000 observations compared with the policy" in printed
        assert "actions equal" in printed
        for policy in policies:
            assert (tmp_path / algorithm / "export/numpy" / policy / "policy.json").exists()
    with pytest.raises(SystemExit) as ended:
        main(["export", "ppo/checkpoints/step-000000000000/model", "--to", "numpi", "-o", "x"])
    assert ended.value.code == 2
    assert "did you mean 'numpy'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "space", [FloatBox(0.0, 1000.0, (20,)), IntBox(-(10**6), 10**6, shape=(4,)), FloatBox(5.0, 3e38)]
)
def test_observations_in_the_thousands_can_be_exported(space, tmp_path):
    # the units of a difference are the greatest values, as numbers that cancel are not exact in single precision
    network = [{"type": "dense", "units": 128, "activation": "relu"}] * 2
    agent = DQN(space, IntBox(4), {"network": network}, backend="numpy")
    assert export_agent(agent, "onnx", tmp_path / "policy")["verification"]["greatest_difference"] <= 1e-5


def small_dqn():
    return DQN(FloatBox(shape=(3,)), IntBox(2), {"network": DENSE}, backend="numpy")


@pytest.mark.parametrize(
    ("name", "wrong", "what"),
    [
        ("parameters", lambda x: x + 1e-3, "other numbers"),
        ("action", lambda x: 1 - x, "other actions"),
        ("action", lambda x: x.astype(np.int64), "another shape or dtype"),
    ],
)
def test_an_artefact_that_differs_is_an_error_and_leaves_nothing(name, wrong, what, tmp_path, monkeypatch):
    right = type(TARGETS["numpy"]).load

    def load(target, directory):
        act = right(target, directory)
        return lambda given: {**(found := act(given)), name: wrong(found[name])}

    monkeypatch.setattr(type(TARGETS["numpy"]), "load", load)
    with pytest.raises(ExportError, match=what):
        export_agent(small_dqn(), "numpy", tmp_path / "new/policy")
    assert list(tmp_path.iterdir()) == []


def test_actions_that_are_equally_good_may_differ(tmp_path):
    agent = small_dqn()
    agent.set_weights({path: 0 * value for path, value in agent.get_weights().items() if "head" in path})
    assert export_agent(agent, "numpy", tmp_path / "policy")["verification"]["greatest_difference"] == 0


def test_only_an_earlier_artefact_is_replaced(tmp_path):
    with pytest.raises(ConfigError, match=r"onnx.*torch|did you mean"):
        export_agent(small_dqn(), "onx", tmp_path / "policy")
    export_agent(small_dqn(), "numpy", tmp_path / "policy")
    export_agent(small_dqn(), "onnx", tmp_path / "policy")
    assert sorted(path.name for path in (tmp_path / "policy").iterdir()) == ["policy.json", "policy.onnx"]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.tex").write_text("all of it")
    with pytest.raises(ConfigError, match="something else"):
        export_agent(small_dqn(), "numpy", tmp_path / "mine")
    assert (tmp_path / "mine/thesis.tex").exists()
