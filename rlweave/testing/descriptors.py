"""Descriptors: how to build a component alone and what to call, for checks that run over all components.

A component that has a descriptor is covered by every check in `rlweave.testing.parity`. Those of the library are in
`rlweave.testing.component_descriptors`; a library of third-party components keeps descriptors of its own the same way.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rlweave import backends
from rlweave.errors import SpecError, nearest
from rlweave.graph import Component
from rlweave.graph.component import api_methods
from rlweave.spaces import Box, Space
from rlweave.testing.checks.findings import Cause

#: Backends that run every component.
BACKENDS = tuple(name for name, offer in backends.BACKENDS.items() if not offer.acts_only)
#: Length of the time axis of sampled inputs.
TIME_STEPS = 3


@dataclass(frozen=True)
class ScaleLaw:
    """What becomes of results where inputs are scaled together: by a factor above 0, in all calls of a round.

    Args:
        method: Whose results, of its last call.
        inputs: Names of float inputs, of any method.
        power: Results are multiplied by the factor to this power: 0, they stay; 1, they scale alike.
        shift: The results also stay where a number is added to the inputs.
        results: Paths of results; none: all float ones.
    """

    method: str
    inputs: tuple[str, ...]
    power: float = 0.0
    shift: bool = False
    results: tuple[str, ...] = ()


@dataclass(frozen=True)
class Descriptor:
    """How to build a component alone, and what to call.

    Args:
        name: Unique; several descriptors may cover one class.
        component: The class that it covers.
        make: Makes a new root to build: a small instance of the class, or a component around one.
        input_spaces: Space of each API input of the root, by parameter name or "method.parameter".
        calls: API methods of the root in the order of one round; all that have their inputs by default.
        static: Static arguments by method.
        adapt: Corrects sampled inputs where their space says too little (indices of records that exist):
            (method, arguments) to arguments.
        gradients: Methods whose results are differentiated. None: all with a float result and a float input or a
            trainable variable.
        differentiated: By method, the part of its result that is differentiated; the rest is constant by design.
        constants: By method, float inputs that no gradient may reach (targets).
        with_gradient: By method, inputs and arguments with names of targets that a gradient is meant to pass through.
        unused: By method, inputs (or leaves: "inputs/kind") without effect, which an interface asks for.
        tolerance: Largest difference of values, absolute and relative.
        gradient_tolerance: Largest difference of gradients, relative to the largest entry of all of a method.
        backends: Where it runs.
        reference: The backend that others are compared with.
        batch_sizes: Batch sizes to try.
        scale_laws: On which scales results do not depend, or how.
        intended: What it does on purpose: causes of which no finding is a fault of it, such as
            `Cause.TERMINATION_IGNORED` for the returns of a task that goes on.
        density_unit: How long a unit is in which densities of floats are reported, in those of the values: the half
            width of a box, for the density of numbers in [-1, 1] that are scaled to it.
    """

    name: str
    component: type[Component]
    make: Callable[[], Component]
    input_spaces: Mapping[str, Space] = field(default_factory=dict)
    calls: tuple[str, ...] = ()
    static: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    adapt: Callable[[str, dict[str, Any]], dict[str, Any]] | None = None
    gradients: tuple[str, ...] | None = None
    differentiated: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)
    constants: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    with_gradient: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unused: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    tolerance: float = 2e-5
    gradient_tolerance: float = 1e-4
    backends: tuple[str, ...] = BACKENDS
    reference: str = "numpy"
    batch_sizes: tuple[int, ...] = (1, 2, 7)
    scale_laws: tuple[ScaleLaw, ...] = ()
    intended: tuple[Cause, ...] = ()
    density_unit: float = 1.0

    def methods(self, root: Component) -> tuple[str, ...]:
        """API methods of one round, in order.

        Raises:
            SpecError: `calls` names none of the root.
        """
        declared = api_methods(type(root))
        for name in self.calls:
            if name not in declared:
                raise SpecError(f"descriptor {self.name!r}: no API method {name!r}", fix=nearest(name, declared))
        offered = [name for name in declared if root.offers(name)]
        return self.calls or tuple(name for name in offered if not self._lacking(declared[name], name))

    def lacking(self, root: type[Component]) -> dict[str, list[str]]:
        """Parameters that have neither a space nor a value, by API method of a class; methods without any are left out.

        Args:
            root: Class of what `make` gives.
        """
        found = {name: self._lacking(declared, name) for name, declared in api_methods(root).items()}
        return {name: parameters for name, parameters in found.items() if parameters}

    def _lacking(self, declared: Any, method: str) -> list[str]:
        def given(parameter: str) -> bool:
            default = declared.signature.parameters[parameter].default
            has_value = parameter in self.static.get(method, {}) or default is not inspect.Parameter.empty
            return has_value or self.space(method, parameter) is not None

        return [parameter for parameter in declared.parameters if not given(parameter)]

    def made(self) -> Component:
        """A new root.

        Raises:
            SpecError: `make` gives something else.
        """
        root = self.make()
        if not isinstance(root, Component):
            raise SpecError(
                "`make` of a descriptor gives no component",
                where=f"descriptor {self.name!r}",
                received=f"{root!r:.100} (of type {type(root).__name__})",
                fix="have it return a new component: make=lambda: MyComponent(units=8)",
            )
        return root

    def space(self, method: str, parameter: str) -> Space | None:
        """The space of an input, or None where it is left out."""
        return self.input_spaces.get(f"{method}.{parameter}", self.input_spaces.get(parameter))

    def inputs(self, root: Component, method: str) -> dict[str, Space]:
        """Spaces of the inputs of an API method that are passed, by parameter."""
        declared = api_methods(type(root))[method]
        found = {p: self.space(method, p) for p in declared.parameters if p not in declared.static}
        return {parameter: space for parameter, space in found.items() if space is not None}

    def sample(self, root: Component, method: str, batch_size: int, seed: int = 0) -> dict[str, Any]:
        """Arguments for an API method, sampled from their spaces, by parameter.

        Args:
            root: What `make` gave.
            method: The API method.
            batch_size: Length of open batch axes.
            seed: Seeds the sampling.
        """
        name = int.from_bytes(f"{self.name}.{method}".encode(), "little")
        rng = np.random.default_rng([seed, batch_size, name])
        spaces = self.inputs(root, method)
        arguments = {parameter: sample(space, batch_size, rng) for parameter, space in spaces.items()}
        return self.adapt(method, arguments) if self.adapt is not None else arguments


def sample(space: Space, batch_size: int, rng: np.random.Generator) -> Any:
    """Nested arrays of a space: (TIME_STEPS, batch_size, *shape), with the ranks that each leaf has."""

    def draw(leaf: Box) -> Any:
        sizes = {"T": TIME_STEPS, "B": batch_size}
        wanted = leaf.concrete_shape(sizes)
        plain = leaf.strip_ranks()
        leading = wanted[: len(wanted) - len(plain.shape)]
        count = int(np.prod(leading)) if leading else 1
        return np.asarray(plain.sample(count, rng=rng)).reshape(wanted)

    flat = {path: draw(leaf) for path, leaf in space.flatten().items()}
    return space.unflatten(flat)


class Registry:
    """Descriptors by name."""

    def __init__(self) -> None:
        self._by_name: dict[str, Descriptor] = {}

    def add(self, descriptor: Descriptor) -> Descriptor:
        """Adds a descriptor.

        Raises:
            SpecError: The name is taken.
        """
        if descriptor.name in self._by_name:
            raise SpecError("two descriptors of one name", received=repr(descriptor.name), fix="rename one")
        self._by_name[descriptor.name] = descriptor
        return descriptor

    def __iter__(self) -> Any:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    def __getitem__(self, name: str) -> Descriptor:
        if name not in self._by_name:
            raise SpecError(f"no descriptor {name!r}", fix=nearest(name, self._by_name))
        return self._by_name[name]

    def uncovered(self, components: Iterable[type[Component]]) -> list[type[Component]]:
        """The component classes that no descriptor covers."""
        covered = {descriptor.component for descriptor in self}
        return [cls for cls in components if cls not in covered]


def components_of(package: str) -> list[type[Component]]:
    """All public component classes that a package defines, by name; abstract ones are left out.

    A class is abstract when it leaves a method abstract or has no API method.

    Args:
        package: Import path of the package; all its modules are imported.
    """
    found: dict[str, type[Component]] = {}
    root = importlib.import_module(package)
    names = [package, *(m.name for m in pkgutil.walk_packages(root.__path__, f"{package}."))]
    for name in names:
        for cls in vars(importlib.import_module(name)).values():
            if not (isinstance(cls, type) and issubclass(cls, Component) and cls.__module__ == name):
                continue
            if not cls.__name__.startswith("_") and api_methods(cls) and not _has_abstract_methods(cls):
                found[f"{name}.{cls.__name__}"] = cls
    return [found[name] for name in sorted(found)]


def _has_abstract_methods(cls: type) -> bool:
    return any(getattr(getattr(cls, name, None), "__isabstractmethod__", False) for name in dir(cls))
