"""Configuration objects: validated, documented, plain data.

Every setting has a type, a default, a unit where it has one, and one line of help; a wrong one is an error that names
the setting, what was received and the nearest right name.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator
from pydantic.fields import FieldInfo

from rlweave.errors import ConfigError, nearest
from rlweave.settings.ranges import ANY_NUMBER, Range, is_number


def setting(
    default: Any = ..., help: str = "", *, unit: str = "", within: Range = ANY_NUMBER, **constraints: Any
) -> Any:
    """One field of a `Config`.

    Args:
        default: The default value; a `Config`, list or dict may be given as it is. Left out: the user must give one.
        help: Its effect, in one line.
        unit: Its unit, for example `"environment steps"`.
        within: Range of a setting that is a number or a schedule; all values of the schedule lie in it. NaN is in none.
        **constraints: Bounds as pydantic names them: `ge, gt, le, lt, min_length`.

    Returns:
        What a class body needs: `lr: float = setting(3e-4, "step size of the optimizer", gt=0)`.
    """
    return Field(default, description=help, json_schema_extra={"unit": unit, "within": within}, **constraints)  # type: ignore[dict-item]


class _RaisesConfigError(type(BaseModel)):  # type: ignore[misc]
    """Makes `SomeConfig(...)` raise rlweave's error; a wrapped `__init__` would also be called for nested models."""

    def __call__(cls, *args: Any, **values: Any) -> Any:
        try:
            return super().__call__(*args, **values)
        except ValidationError as error:
            raise to_config_error(cls, error) from None


if TYPE_CHECKING:
    _Model = BaseModel  # so that a type checker sees pydantic's own constructor
else:

    class _Model(BaseModel, metaclass=_RaisesConfigError):
        pass


class Config(_Model):
    """Base of all configuration objects; immutable, and compared by value.

    Values are not converted: `"5"` is no number and `1` no boolean. A whole number is accepted for a float.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, validate_default=True)
    numbers: ClassVar[Range] = ANY_NUMBER
    """The range of all its numbers, including those in lists and dicts."""

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        super().__pydantic_init_subclass__(**options)
        for name, field in cls.model_fields.items():
            if not field.description:
                raise TypeError(f"{cls.__name__}.{name} needs a line of help: {name}: ... = setting(default, 'help')")

    @field_validator("*", mode="after")
    @classmethod
    def _in_range(cls, value: Any, info: ValidationInfo) -> Any:
        name = info.field_name or ""
        extra = cls.model_fields[name].json_schema_extra
        within: Any = extra.get("within") if isinstance(extra, dict) else None
        if within is not None:
            within.check_schedule(name, value)
        for number in _numbers(value):
            cls.numbers.check(name, number)
        return value

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        """Makes one from plain data, as a JSON or YAML file holds it (lists where the type says tuple).

        Raises:
            ConfigError: For an unknown key, a wrong type, or a value out of range.
        """
        try:
            return cls.model_validate_json(json.dumps(dict(data)))  # noqa: TID251 (ranges refuse what is not finite)
        except ValidationError as error:
            raise to_config_error(cls, error) from None
        except TypeError as error:
            raise ConfigError(
                "a configuration holds plain data only",
                received=str(error),
                fix='name things in place of passing them: decorate a component with @register("my_network"), make the '
                'module (TorchModule, FlaxModule, KerasModule) in it, and write {"type": "my_network"} here',
            ) from None

    def to_data(self) -> dict[str, Any]:
        """The plain data from which `from_data` makes an equal one."""
        return self.model_dump(mode="json")


@dataclasses.dataclass(frozen=True)
class Setting:
    """A line of help: one setting of a config class.

    Attributes:
        key: Dotted path, as `--set` takes it: `"agent.lr"`.
        type: For a reader, such as `"float"`.
        default: As text; empty when the user must give a value.
        unit: Its unit, or empty.
        help: Its effect.
    """

    key: str
    type: str
    default: str
    unit: str
    help: str


def describe_settings(config_class: type[Config], prefix: str = "") -> list[Setting]:
    """All settings of a config class, those of nested configs with dotted keys."""
    rows: list[Setting] = []
    for name, field in config_class.model_fields.items():
        nested = _config_class_of(field.annotation)
        if nested is not None:
            rows += describe_settings(nested, f"{prefix}{name}.")
            continue
        extra = field.json_schema_extra
        unit = str(extra.get("unit", "")) if isinstance(extra, dict) else ""
        default = "" if field.is_required() else _format(field.get_default(call_default_factory=True))
        rows.append(Setting(prefix + name, _type_name(field.annotation), default, unit, field.description or ""))
    return rows


def to_config_error(config_class: type[BaseModel], error: ValidationError) -> ConfigError:
    """The error for all faults that pydantic found, the first in full."""
    found: dict[str, ConfigError] = {}
    for details in error.errors(include_url=False):
        key, told = _explain(config_class, details)
        # A union has one error for each alternative: that of an alternative with the right type says more.
        if key not in found or not _is_of_wrong_type(details["type"]):
            found[key] = told
    first, *others = found.values()
    what = first.what + "".join(f"\n(also) {other.what}: {other.fix or other.received}" for other in others)
    return ConfigError(what, where=first.where, received=first.received, fix=first.fix)


def _explain(config_class: type[BaseModel], details: Any) -> tuple[str, ConfigError]:
    """The key of the setting that is wrong, and the error."""
    path = [part for part in details["loc"] if isinstance(part, str | int)]
    owner = _model_at(config_class, path[:-1])
    if details["type"] == "extra_forbidden" and owner is not None:
        key, new = ".".join(map(str, path)), getattr(owner, "renamed", {}).get(path[-1])
        fix = f"{new} takes its place" if new else nearest(str(path[-1]), owner.model_fields)
        received = repr(details["input"])
        return key, ConfigError(f"unknown setting {key!r}", where=owner.__name__, received=received, fix=fix)
    path, field = _setting_at(config_class, path)
    key, received = ".".join(map(str, path)), repr(details["input"])
    raised = details.get("ctx", {}).get("error")
    if isinstance(raised, ConfigError) and key:
        what = raised.what.removeprefix(str(path[-1])).strip()
        return key, ConfigError(f"setting {key!r} {what}", received=raised.received, fix=raised.fix)
    if details["type"] == "missing":
        return key, ConfigError(f"setting {key!r} is missing: {field.description if field else ''}")
    if details["type"] == "literal_error" and (choices := _literals(field)):
        fix = nearest(str(details["input"]), choices)
        return key, ConfigError(f"setting {key!r} has no such choice", received=received, fix=fix)
    message, fix = details["msg"].removeprefix("Value error, ").removeprefix("Input "), ""
    if field is not None and _is_of_wrong_type(details["type"]):
        message = f"must be {_type_name(field.annotation)}"
        default = None if field.is_required() else field.get_default(call_default_factory=True)
        fix = f"a value of that type, such as {_format(default)}, the default" if default is not None else ""
    what = f"setting {key!r}: {message}" if key else message
    return key, ConfigError(what, received=received if key else "", fix=fix)


def _numbers(value: Any) -> Iterator[int | float]:
    """The numbers in nested plain data."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, Sequence) and not isinstance(value, str):
        for item in value:
            yield from _numbers(item)
    elif is_number(value):
        yield value


def _is_of_wrong_type(error_type: str) -> bool:
    return error_type.endswith(("_type", "_parsing", "_from_float"))


def _setting_at(config_class: type[BaseModel], path: list[str | int]) -> tuple[list[str | int], FieldInfo | None]:
    """The path of the setting, and its field; below that, pydantic names alternatives of its type."""
    for length in range(len(path), 0, -1):
        field = _field_at(config_class, path[:length])
        if field is not None:
            return path[:length], field
    return path, None


def _model_at(config_class: type[BaseModel], path: list[str | int]) -> type[BaseModel] | None:
    model: type[BaseModel] | None = config_class
    for part in path:
        field = model.model_fields.get(str(part)) if model is not None else None
        model = _config_class_of(field.annotation) if field is not None else None
    return model


def _field_at(config_class: type[BaseModel], path: list[str | int]) -> FieldInfo | None:
    owner = _model_at(config_class, path[:-1]) if path else None
    return owner.model_fields.get(str(path[-1])) if owner is not None else None


def _config_class_of(annotation: Any) -> type[Config] | None:
    """The config class of a nested section, which may be optional."""
    for candidate in _alternatives(annotation):
        if isinstance(candidate, type) and issubclass(candidate, Config):
            return candidate
    return None


def _alternatives(annotation: Any) -> tuple[Any, ...]:
    is_union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
    return typing.get_args(annotation) if is_union else (annotation,)


def _literals(field: FieldInfo | None) -> list[str]:
    if field is None:
        return []
    literals = [a for a in _alternatives(field.annotation) if typing.get_origin(a) is typing.Literal]
    return [str(choice) for literal in literals for choice in typing.get_args(literal)]


def _type_name(annotation: Any) -> str:
    """A type as a user would write it: `float`, `null`, `list of int`, `sync | async`."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation is type(None):
        return "null"
    if annotation is Any:
        return "anything"
    if origin is typing.Annotated:
        return _type_name(arguments[0])
    if origin is typing.Literal:
        return " | ".join("null" if value is None else str(value) for value in arguments)
    if origin in (typing.Union, types.UnionType):
        names = [_type_name(argument) for argument in arguments]
        return " | ".join(dict.fromkeys(sorted(names, key=lambda name: name == "null")))
    if origin in (dict, Mapping):
        return f"mapping to {_type_name(arguments[1])}"
    if origin is tuple and Ellipsis not in arguments:
        return f"list of {' and '.join(map(_type_name, arguments))}"
    if origin is not None and issubclass(origin, Sequence):
        return f"list of {_type_name(arguments[0])}"
    return _NAMES.get(annotation) or str(getattr(annotation, "__name__", annotation))


_NAMES = {str: "text", bool: "true | false", dict: "mapping", list: "list", tuple: "list"}


def _format(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)  # noqa: TID251 (is shown)
