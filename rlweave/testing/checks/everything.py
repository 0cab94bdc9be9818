"""What can be checked by name: components, descriptors and agents of a module, and everything that is registered."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable, Iterator

from rlweave.agents.agent import Agent
from rlweave.algorithms.registry import algorithm_names, get_algorithm
from rlweave.components.action_leaves import FLOATS
from rlweave.errors import ConfigError, RlweaveError, nearest
from rlweave.graph import Component
from rlweave.plugins import import_named, load_plugin
from rlweave.settings.sources import read_settings_file
from rlweave.spaces import Space
from rlweave.testing.descriptors import Descriptor

#: Packages offer registries of descriptors by entry points of this group.
ENTRY_POINT_GROUP = "rlweave.descriptors"
#: The keys of a file of spaces: fields of a `Descriptor`, and the arguments of the component's class.
SPACES_KEYS = ("inputs", "arguments", "calls", "static")


def find(name: str, spaces: str | None = None) -> Descriptor | type[Agent]:
    """What `module:Name` names: a descriptor, a component, its class, or a class of agents.

    Args:
        name: "module:Name".
        spaces: A YAML or JSON file: `inputs`, space by parameter (as `Space.to_json` writes it); `arguments` of the
            class; `calls`, API methods in order; `static`, static arguments by method.

    Raises:
        ConfigError: There is no such thing, or it needs spaces.
    """
    module_name, _, attribute = name.partition(":")
    fix = "give it as module:Name, with the module importable from here"
    module = import_named(module_name, ConfigError, "a module to check", received=repr(name), fix=fix)
    if not hasattr(module, attribute):
        names = [key for key in vars(module) if not key.startswith("_")]
        raise ConfigError(f"{module_name} has no {attribute!r}", received=repr(name), fix=nearest(attribute, names))
    found = getattr(module, attribute)
    if isinstance(found, Descriptor) or (isinstance(found, type) and issubclass(found, Agent)):
        return found
    cls = found if isinstance(found, type) else type(found)
    if not issubclass(cls, Component):
        raise ConfigError(
            "only components, descriptors and agents are checked by name",
            received=f"{name}, a {cls.__name__}",
            fix="an environment is checked by `rlweave check-env`",
        )
    if spaces is not None:
        return _with_spaces(cls, spaces)
    if hasattr(cls, "descriptor"):
        own: Descriptor = cls.descriptor()
        return own
    known = [descriptor for descriptor in registered() if descriptor.component is cls]
    if known:
        return known[0]
    raise ConfigError(
        "a component is checked with inputs, and their spaces are not known",
        received=name,
        fix="pass --spaces FILE, or give the class a class method `descriptor()` that returns a "
        "rlweave.testing.Descriptor",
    )


def _with_spaces(cls: type[Component], path: str) -> Descriptor:
    settings = read_settings_file(path)
    for key in settings:
        if key not in SPACES_KEYS:
            raise ConfigError("a file of spaces has an unknown key", where=path, received=repr(key),
                              fix=nearest(str(key), SPACES_KEYS))  # fmt: skip
    arguments = settings.get("arguments", {})
    return Descriptor(
        cls.__name__,
        cls,
        lambda: cls(**arguments),
        {name: Space.from_json(form) for name, form in settings.get("inputs", {}).items()},
        calls=tuple(settings.get("calls", ())),
        static=settings.get("static", {}),
    )


def registered() -> Iterator[Descriptor]:
    """The descriptors of the library, and those that other packages offer by entry points."""
    from rlweave.testing.component_descriptors import DESCRIPTORS  # imports all components

    yield from DESCRIPTORS
    for point in sorted(importlib.metadata.entry_points(group=ENTRY_POINT_GROUP), key=lambda point: point.name):
        offered: Iterable[Descriptor] = load_plugin(point)
        yield from offered


def registered_agents() -> Iterator[tuple[str, str]]:
    """The algorithms whose agents can be checked, each with an environment that it can act in."""
    for name in algorithm_names():
        try:
            agent = get_algorithm(name).agent
        except RlweaveError:  # a broken plug-in, which `rlweave list algorithms` names
            continue
        if agent is not None and agent.no_single_steps is None:
            yield name, environment_of(agent)


def environment_of(agent: str | type[Agent]) -> str:
    """An environment that an agent, or that of an algorithm, can act in."""
    found = get_algorithm(agent).agent if isinstance(agent, str) else agent
    return "Pendulum-v1" if found is not None and found.action_kinds == FLOATS else "CartPole-v1"
