"""Sources of settings: YAML as version 1.2 has it, assignments, files, precedence."""

import math
from typing import get_args

import pytest

from rlweave.algorithms.config import TrainConfig, resolve_config
from rlweave.algorithms.placements import PLACEMENTS, PlacementConfig, PlacementName
from rlweave.errors import ConfigError
from rlweave.settings.sources import parse_assignments, parse_yaml, read_settings_file, to_yaml

VALUES = {
    "3e-4": 3e-4,
    "1e5": 1e5,
    "1": 1,
    "-2": -2,
    "010": 10,
    "0x10": 16,
    ".5": 0.5,
    "1.": 1.0,
    ".inf": math.inf,
    "-.inf": -math.inf,
    "true": True,
    "false": False,
    "null": None,
    "~": None,
    "": None,
    "no": "no",
    "off": "off",
    "12:30": "12:30",
    "2024-01-01": "2024-01-01",
    "CartPole-v1": "CartPole-v1",
    "a=b": "a=b",
    "'5'": "5",
    "'null'": "null",
    "'3e-4'": "3e-4",
    "[1, 2e-3, x]": [1, 0.002, "x"],
    "{a: 1, b: {c: off}}": {"a": 1, "b": {"c": "off"}},
}


@pytest.mark.parametrize(("text", "value"), VALUES.items())
def test_yaml_values_and_their_round_trip(text, value):
    parsed = parse_yaml(text)
    assert parsed == value
    assert type(parsed) is type(value)
    assert parse_yaml(to_yaml({"key": value})) == {"key": value}


def test_nan_is_read():
    assert math.isnan(parse_yaml(".nan"))


@pytest.mark.parametrize("text", ["{a: 1, a: 2}", "[1,", "!!python/object/apply:os.getcwd []", "!!python/name:os x"])
def test_what_is_broken_or_would_run_code_is_refused(text):
    with pytest.raises(ConfigError, match="cannot be parsed as YAML"):
        parse_yaml(text)


def test_shared_lists_are_written_out():
    layers = [64, 64]
    assert "&" not in to_yaml({"a": layers, "b": layers})


def test_assignments():
    assert parse_assignments(["agent.lr=3e-4", "x=a=b", "y="]) == {"agent.lr": 3e-4, "x": "a=b", "y": None}
    assert parse_assignments(["x=1", "x=1"]) == {"x": 1}
    for wrong, text in ((["x"], "--set key=value"), (["=3"], "not a setting"), (["a..b=3"], "not a setting"),
                        (["x=1", "x=2"], "two values for 'x'")):  # fmt: skip
        with pytest.raises(ConfigError, match=text):
            parse_assignments(wrong)


def test_precedence():
    config = resolve_config(
        TrainConfig,
        presets={"env": "preset", "seed": 1, "steps": 1, "num_envs": 1, "env_options": {"a": 1, "b": 1}},
        file={"env": "file", "seed": 2, "steps": 2, "env_options": {"b": 2, "c": 2}},
        sets={"env": "set", "seed": 3, "env_options.c": 3},
    )
    assert (config.env, config.seed, config.steps, config.num_envs) == ("set", 3, 2, 1)
    assert config.env_options == {"a": 1, "b": 2, "c": 3}
    assert config.backend == "jax"


def test_a_spec_replaces_another_wholly():
    first = {"env": "x", "env_options": {"schedule": {"type": "linear", "start": 1, "end": 0, "steps": 5}}}
    spec = {"type": "constant", "value": 1}
    config = resolve_config(TrainConfig, presets=first, file={"env_options": {"schedule": spec}})
    assert config.env_options == {"schedule": spec}
    part = resolve_config(TrainConfig, presets=first, sets={"env_options.schedule.end": 0.5})
    assert part.env_options["schedule"] == {"type": "linear", "start": 1, "end": 0.5, "steps": 5}


def test_sources_are_not_changed():
    file = {"env": "x", "env_options": {"a": {"b": 1}}}
    resolve_config(TrainConfig, file=file, sets={"env_options.a.b": 2})
    assert file == {"env": "x", "env_options": {"a": {"b": 1}}}


def test_files(tmp_path):
    (tmp_path / "a.yaml").write_text("env: x\nseed: 3\n")
    (tmp_path / "a.json").write_text('{"env": "x", "agent": {"lr": 3e-4}}')
    (tmp_path / "empty.yaml").write_text("")
    (tmp_path / "list.yaml").write_text("- 1\n")
    assert read_settings_file(tmp_path / "a.yaml") == {"env": "x", "seed": 3}
    assert read_settings_file(tmp_path / "a.json") == {"env": "x", "agent": {"lr": 3e-4}}
    assert read_settings_file(tmp_path / "empty.yaml") == {}
    with pytest.raises(ConfigError, match="`key: value` lines"):
        read_settings_file(tmp_path / "list.yaml")
    with pytest.raises(ConfigError, match=r"did you mean 'empty.yaml'\?"):
        read_settings_file(tmp_path / "emty.yaml")


def test_a_placement_is_a_section_and_its_name_alone_keeps_what_another_source_says_of_it():
    sources = {"file": {"env": "any", "placement": {"workers": 3}}, "sets": {"placement": "single_learner_coarse"}}
    config = resolve_config(TrainConfig, **sources)
    assert config.placement == PlacementConfig(name="single_learner_coarse", workers=3)
    assert TrainConfig.from_data(config.to_data()) == config
    assert TrainConfig(env="any", placement="fused").placement.name == "fused"


def test_the_table_of_placements_has_all_that_can_be_named():
    assert tuple(PLACEMENTS) == get_args(PlacementName)
