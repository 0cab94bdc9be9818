"""Configuration objects: strictness, help, and errors that name the nearest right thing."""

import pickle
from typing import Any, Literal, Optional

import pytest

from rlweave.errors import ConfigError
from rlweave.settings.config import Config, describe_settings, setting


class Inner(Config):
    lr: float = setting(3e-4, "step size", gt=0)
    kind: Literal["huber", "square"] = setting("huber", "which loss")
    hidden: tuple[int, ...] = setting((64, 64), "units of each layer", unit="units")


class Outer(Config):
    env: str = setting(help="the environment")
    steps: int = setting(10, "length", unit="environment steps")
    inner: Inner = setting(Inner(), "the agent")
    optional: Inner | None = setting(None, "a second agent")


def error_of(make):
    with pytest.raises(ConfigError) as error:
        make()
    return str(error.value)


def test_plain_data_round_trips():
    config = Outer(env="x", inner=Inner(hidden=(1, 2, 3), lr=1))
    data = config.to_data()
    assert data["inner"] == {"lr": 1.0, "kind": "huber", "hidden": [1, 2, 3]}
    assert Outer.from_data(data) == config
    assert pickle.loads(pickle.dumps(config)) == config  # noqa: S301


def test_infinity_survives():
    assert Inner.from_data({"lr": float("inf")}).lr == float("inf")


@pytest.mark.parametrize("make", [lambda data: Outer(**data), Outer.from_data], ids=["constructor", "from_data"])
@pytest.mark.parametrize(
    ("data", "texts"),
    [
        ({"env": "x", "stepss": 3}, ["unknown setting 'stepss'", "did you mean 'steps'?", "where:    Outer"]),
        ({"env": "x", "inner": {"lrr": 3}}, ["unknown setting 'inner.lrr'", "did you mean 'lr'?", "Inner"]),
        ({"env": "x", "steps": "3"}, ["setting 'steps': must be int", "received: '3'", "such as"]),
        ({"env": "x", "steps": True}, ["setting 'steps': must be int", "received: True"]),
        ({"env": "x", "steps": 2.5}, ["setting 'steps'"]),
        ({"env": "x", "inner": {"lr": -1}}, ["setting 'inner.lr'", "greater than 0"]),
        ({"env": "x", "inner": {"kind": "hubr"}}, ["setting 'inner.kind'", "did you mean 'huber'?"]),
        ({"steps": 3}, ["setting 'env' is missing: the environment"]),
        ({"env": 1, "stepss": 3}, ["setting 'env'", "(also) unknown setting 'stepss': did you mean 'steps'?"]),
    ],
)
def test_errors_say_what_where_and_what_was_meant(make, data, texts):
    text = error_of(lambda: make(data))
    for expected in texts:
        assert expected in text


class Shapes(Config):
    lr: float | dict[str, Any] = setting(0.1, "step size", gt=0)
    layers: list[dict[str, Any]] = setting([], "layers")
    sizes: tuple[int, ...] | None = setting(None, "sizes")
    pair: tuple[int, str] = setting((1, "a"), "pair")
    loss: Literal["huber", "square"] | None = setting(None, "loss")
    on: Optional[bool] = setting(None, "switch")  # noqa: UP045 (users write both)
    devices: str | dict[str, str] | None = setting(None, "devices")


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({"lr": "abc"}, "setting 'lr': must be float | mapping to anything\n  received: 'abc'"),
        ({"lr": -1.0}, "setting 'lr': should be greater than 0"),
        ({"layers": [1]}, "setting 'layers': must be list of mapping to anything"),
        ({"sizes": [1, "b"]}, "setting 'sizes': must be list of int | null"),
        ({"devices": {"a": 1}}, "setting 'devices': must be text | mapping to text | null"),
    ],
)
def test_an_error_names_the_setting_and_its_type_as_users_write_them(data, text):
    error = error_of(lambda: Shapes.from_data(data))
    assert text in error
    assert "(also)" not in error


def test_types_are_described_as_users_write_them():
    types = {row.key: row.type for row in describe_settings(Shapes)}
    assert types == {
        "lr": "float | mapping to anything",
        "layers": "list of mapping to anything",
        "sizes": "list of int | null",
        "pair": "list of int and text",
        "loss": "huber | square | null",
        "on": "true | false | null",
        "devices": "text | mapping to text | null",
    }


def test_a_config_cannot_be_changed():
    with pytest.raises(Exception, match="frozen"):
        Inner().lr = 1.0


def test_what_is_no_plain_data_is_refused():
    assert "plain data only" in error_of(lambda: Outer.from_data({"env": object()}))


def test_a_setting_without_help_is_refused():
    with pytest.raises(TypeError, match=r"Bad\.x needs a line of help"):
        type("Bad", (Config,), {"__annotations__": {"x": int}, "x": 3, "__module__": __name__})


def test_all_settings_are_described():
    rows = {row.key: row for row in describe_settings(Outer)}
    assert list(rows) == [
        "env",
        "steps",
        "inner.lr",
        "inner.kind",
        "inner.hidden",
        "optional.lr",
        "optional.kind",
        "optional.hidden",
    ]
    assert (rows["env"].default, rows["env"].help) == ("", "the environment")
    assert (rows["steps"].default, rows["steps"].unit, rows["steps"].type) == ("10", "environment steps", "int")
    assert rows["inner.kind"].type == "huber | square"
    assert rows["inner.hidden"].default == "[64, 64]"
