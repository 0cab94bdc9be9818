"""Settings as text and as nested data: YAML, files, dotted keys, and one source over another."""

from __future__ import annotations

import copy
import functools
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from rlweave.errors import ConfigError, nearest

Settings = dict[str, Any]


def nest(key: str, value: Any) -> Settings:
    """Nested settings of one dotted key.

    >>> nest("agent.lr", 0.1)
    {'agent': {'lr': 0.1}}
    """
    for part in reversed(key.split(".")):
        value = {part: value}
    return value


def dotted(settings: Mapping[str, Any], whole: Collection[str] = (), prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested settings by dotted key, as `--set` takes them; specs stay whole, and so do the settings in `whole`.

    >>> dict(dotted({"steps": 100, "agent": {"lr": {"type": "linear", "start": 0.1, "end": 0.0}}}))
    {'steps': 100, 'agent.lr': {'type': 'linear', 'start': 0.1, 'end': 0.0}}
    """
    for key, value in settings.items():
        if isinstance(value, Mapping) and "type" not in value and f"{prefix}{key}" not in whole:
            yield from dotted(value, whole, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def parse_assignments(assignments: Sequence[str]) -> Settings:
    """Reads the argument of `--set`: a dotted key and a value in YAML.

    Raises:
        ConfigError: For something that is not `key=value`, or a key that is given two values.

    >>> parse_assignments(["agent.lr=3e-4", "agent.hidden=[64, 64]", "env=CartPole-v1"])
    {'agent.lr': 0.0003, 'agent.hidden': [64, 64], 'env': 'CartPole-v1'}
    """
    settings: Settings = {}
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        key = key.strip()
        if not equals or not all(key.split(".")):
            raise ConfigError("not a setting", received=repr(assignment), fix="write --set key=value, as in seed=3")
        value = parse_yaml(text, where=f"--set {key}")
        if key in settings and settings[key] != value:
            raise ConfigError(f"two values for {key!r}", received=f"{settings[key]!r} and {value!r}")
        settings[key] = value
    return settings


def read_settings_file(path: str | Path) -> Settings:
    """Reads a YAML or JSON file of settings.

    Raises:
        ConfigError: When it is missing, cannot be parsed, or is no mapping.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        neighbours = [p.name for p in path.parent.glob("*") if p.suffix in (".yaml", ".yml", ".json")]
        fix = nearest(path.name, neighbours) if neighbours else "give the path of a YAML or JSON file"
        raise ConfigError("cannot read the config file", where=str(path), received=str(error), fix=fix) from None
    settings = parse_yaml(text, where=str(path))
    if settings is None:
        return {}
    if not isinstance(settings, dict):
        raise ConfigError("a config file must hold `key: value` lines", where=str(path), received=repr(settings))
    return settings


class PresetFile(Mapping[str, Mapping[str, Any]]):
    """Nested settings by environment id, or pattern of ids such as `ALE/*`; read at the first look.

    Args:
        module_file: `__file__` of the algorithm's module; its presets are the `.yaml` file beside it.
    """

    def __init__(self, module_file: str) -> None:
        self.path = Path(module_file).with_suffix(".yaml")

    @functools.cached_property
    def _presets(self) -> dict[str, Any]:
        return read_settings_file(self.path)

    def __getitem__(self, environment: str) -> Mapping[str, Any]:
        preset: Mapping[str, Any] = self._presets[environment]
        return preset

    def __iter__(self) -> Iterator[str]:
        return iter(self._presets)

    def __len__(self) -> int:
        return len(self._presets)


def parse_yaml(text: str, where: str = "") -> Any:
    """Reads YAML as version 1.2 has it: `3e-4` is a number, and `no`, `off` and `12:30` are text.

    Raises:
        ConfigError: When it cannot be parsed, or a key stands twice in a mapping.
    """
    try:
        return yaml.load(text, Loader=_Yaml12Loader)
    except yaml.YAMLError as error:
        raise ConfigError("cannot be parsed as YAML", where=where, received=" ".join(str(error).split())) from None


def to_yaml(settings: Mapping[str, Any]) -> str:
    """Writes settings as YAML that `parse_yaml` reads back equal."""
    # JSON first: it refuses what is no plain data, and breaks the identity of lists that would become YAML anchors.
    plain = json.loads(json.dumps(settings))  # noqa: TID251 (YAML has numbers that are not finite)
    return yaml.dump(plain, Dumper=_Yaml12Dumper, sort_keys=False, allow_unicode=True)


def merge_settings(base: Mapping[str, Any], other: Mapping[str, Any]) -> Settings:
    """Settings over settings: sections key by key, except specs (mappings with a `type`), which replace each other."""
    merged = copy.deepcopy(dict(base))
    for key, value in other.items():
        mine = merged.get(key)
        if isinstance(mine, Mapping) and isinstance(value, Mapping) and "type" not in value:
            merged[key] = merge_settings(mine, value)
        else:
            merged[key] = copy.deepcopy(value)
    return merged


_YAML_12 = [
    ("tag:yaml.org,2002:bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("tag:yaml.org,2002:null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("tag:yaml.org,2002:int", r"[-+]?[0-9]+|0x[0-9a-fA-F]+", "-+0123456789"),
    (
        "tag:yaml.org,2002:float",
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        "-+.0123456789",
    ),
]


class _Yaml12Loader(yaml.SafeLoader):
    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        twice = [key for key in keys if keys.count(key) > 1]
        if twice:
            raise yaml.constructor.ConstructorError(None, None, f"key {twice[0]!r} stands twice", node.start_mark)
        return super().construct_mapping(node, deep=deep)


class _Yaml12Dumper(yaml.SafeDumper):
    """Quotes exactly the texts that `_Yaml12Loader` would read as another type."""


def _construct_int(loader: Any, node: Any) -> int:
    text = loader.construct_scalar(node)
    return int(text, 16) if text.startswith("0x") else int(text)


def _construct_float(loader: Any, node: Any) -> float:
    return float(re.sub(r"\.(inf|nan)", r"\1", loader.construct_scalar(node).lower()))


for _class in (_Yaml12Loader, _Yaml12Dumper):
    _class.yaml_implicit_resolvers = {}  # without those of YAML 1.1
    for _tag, _pattern, _first in _YAML_12:
        # The order matters: an int would also be a float.
        _class.add_implicit_resolver(_tag, re.compile(f"^(?:{_pattern})$"), list(_first))
_Yaml12Loader.add_constructor("tag:yaml.org,2002:int", _construct_int)
_Yaml12Loader.add_constructor("tag:yaml.org,2002:float", _construct_float)
