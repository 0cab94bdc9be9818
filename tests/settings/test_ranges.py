"""Ranges of numeric settings: the same in constructors and configurations, and NaN in none."""

import inspect
import math
import re

import pytest

from rlweave import components as c
from rlweave.algorithms.registry import algorithm_names, get_algorithm
from rlweave.errors import ConfigError, RlweaveError
from rlweave.settings.config import Config, _config_class_of
from rlweave.settings.ranges import (
    ANY_NUMBER,
    FINITE,
    FINITE_NOT_NEGATIVE,
    FRACTION,
    NOT_NEGATIVE,
    POSITIVE,
    PROBABILITY,
)
from rlweave.spaces import IntBox


def settings_of(config_class, prefix=""):
    """Dotted key and field of every setting."""
    for name, field in config_class.model_fields.items():
        nested = _config_class_of(field.annotation)
        if nested is None:
            yield f"{prefix}{name}", field
        else:
            yield from settings_of(nested, f"{prefix}{name}.")


def test_what_lies_in_a_range():
    assert [value in POSITIVE for value in (1e-30, 0.0, math.inf, math.nan)] == [True, False, True, False]
    assert [value in FRACTION for value in (0.0, 0.99, 1.0)] == [True, True, False]
    assert (str(PROBABILITY), str(FRACTION), str(ANY_NUMBER)) == (
        "at least 0 and at most 1", "at least 0 and below 1", "a number"
    )  # fmt: skip
    assert (str(FINITE), str(FINITE_NOT_NEGATIVE)) == ("finite", "at least 0 and finite")
    for value in (True, "1", None, math.nan, -1):
        with pytest.raises(ConfigError, match="rate is out of range"):
            NOT_NEGATIVE.check("rate", value)
    NOT_NEGATIVE.check("rate", None, optional=True)


@pytest.mark.parametrize(
    "spec",
    [
        3.0, -1, math.nan, {"type": "constant", "value": 2.0}, {"type": "linear", "start": 1.0, "end": -1.0},
        {"type": "linear", "start": math.nan, "end": 0.0}, {"type": "piecewise", "points": [[0, 0.5], [10, 1.5]]},
        [[0, 0.5], [10, -0.5]],
    ],
)  # fmt: skip
def test_every_value_of_a_schedule_lies_in_the_range_of_its_setting(spec):
    with pytest.raises(ConfigError, match="epsilon is out of range"):
        PROBABILITY.check_schedule("epsilon", spec)
    with_length = {**spec, "steps": 10} if isinstance(spec, dict) and "start" in spec else spec
    with pytest.raises(ConfigError):
        c.EpsilonGreedy(with_length, action_space=IntBox(2))
    with pytest.raises(ConfigError):
        c.PrioritizedReplay(10, beta=with_length)


# What each takes besides the number: constructors have no defaults for these.
NEEDED = {
    "capacity": 10,
    "action_space": IntBox(2),
    "network": [],
    "units": 4,
    "filters": 4,
    "kernel_size": 3,
    "size": 10,
}
NUMERIC = [
    (name, parameter.name)
    for name in sorted(c.__all__)
    if inspect.isclass(cls := getattr(c, name))
    for parameter in inspect.signature(cls.__init__).parameters.values()
    if type(parameter.default) is float
    or "float" in str(parameter.annotation)
    or "Schedule" in str(parameter.annotation)
]


@pytest.mark.parametrize(("name", "parameter"), NUMERIC)
def test_no_component_takes_nan(name, parameter):
    cls = getattr(c, name)
    needed = {key: NEEDED.get(key, 1) for key, p in inspect.signature(cls.__init__).parameters.items()
              if p.default is inspect.Parameter.empty and key != "self"}  # fmt: skip
    with pytest.raises(RlweaveError):
        cls(**{**needed, parameter: math.nan})


@pytest.mark.parametrize("algorithm", algorithm_names())
def test_every_numeric_setting_has_a_range_without_nan(algorithm):
    settings = settings_of(get_algorithm(algorithm).config_class)
    numeric = {key: field for key, field in settings if re.search("float|int", str(field.annotation))}
    assert len(numeric) > 10
    for key, field in numeric.items():
        bounded = any(hasattr(bound, side) for bound in field.metadata for side in ("ge", "gt", "le", "lt"))
        within = field.json_schema_extra["within"] is not ANY_NUMBER
        assert bounded or within or "list" in str(field.annotation), f"{key} has no range"
        single = type(
            "Single", (Config,), {"__annotations__": {"x": field.annotation}, "x": field, "__module__": __name__}
        )
        with pytest.raises(ConfigError):
            single(x=[math.nan] if "list[float]" in str(field.annotation) else math.nan)


@pytest.mark.parametrize("algorithm", algorithm_names())
def test_settings_of_agents_are_finite_as_those_of_models_are(algorithm):
    """Otherwise a training would end with a model that cannot be saved."""
    field = get_algorithm(algorithm).config_class.model_fields.get("agent")
    if field is None:  # it has several agents, of the other kinds
        return
    config_class = _config_class_of(field.annotation)
    for name in [key for key, field in settings_of(config_class) if "float" in str(field.annotation)]:
        with pytest.raises(ConfigError, match=f"'{name}' is out of range|less than"):
            config_class.from_data({name: math.inf})
    with pytest.raises(ConfigError, match="it has to be finite"):
        config_class.from_data({"network": [{"type": "dense", "units": math.inf}]})
