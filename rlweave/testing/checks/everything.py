"""What can be checked by name: components, descriptors and agents of a module, and everything that is registered."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable, Iterator
from typing import Any

from rlweave.agents.agent import Agent
from rlweave.algorithms.registry import algorithm_names, get_algorithm
from rlweave.components.action_leaves import FLOATS
from rlweave.errors import ConfigError, RlweaveError, nearest
from rlweave.graph import Component
from rlweave.plugins import import_named, load_plugin
from rlweave.testing.checks.describing import described, of_file, own_descriptor
from rlweave.testing.descriptors import Descriptor

#: Packages offer registries of descriptors by entry points of this group.
ENTRY_POINT_GROUP = "rlweave.descriptors"


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
        return of_file(found, spaces)
    own = own_descriptor(cls)
    if own is not None:
        return described(found)
    known = [descriptor for descriptor in registered() if descriptor.component is cls]
    if known:
        return known[0]
    raise ConfigError(
        "a component is checked with inputs, and their spaces are not known",
        received=name,
        fix="pass --spaces FILE, or give the class a class method `descriptor()` that returns a "
        "rlweave.testing.Descriptor",
    )


def registered() -> Iterator[Descriptor]:
    """The descriptors of the library, and those that other packages offer by entry points."""
    from rlweave.testing.component_descriptors import DESCRIPTORS  # imports all components

    yield from DESCRIPTORS
    for point in sorted(importlib.metadata.entry_points(group=ENTRY_POINT_GROUP), key=lambda point: point.name):
        offered: Any = load_plugin(point)
        if not isinstance(offered, Iterable) or not all(isinstance(found, Descriptor) for found in offered):
            raise ConfigError(
                f"the entry point {point.name} does not name descriptors",
                where=f"{ENTRY_POINT_GROUP}, {point.value}",
                received=repr(offered),
                fix="name a Registry, or a list of rlweave.testing.Descriptor",
            )
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
