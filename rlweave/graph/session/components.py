"""The components of a build: their paths, which of them are complete, and their variables.

A component is complete when the spaces of all inputs are known that its `create_variables` names; then it is called.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rlweave.backends import Backend
from rlweave.errors import BuildError, nearest
from rlweave.graph.composition import ComponentBase, hidden_in, refuse_hidden, refuse_late
from rlweave.graph.current import SESSION
from rlweave.graph.ir import Structure, Unknown, Value
from rlweave.graph.session.fingerprints import Fingerprints
from rlweave.graph.values import same_features, to_space
from rlweave.graph.variable import Variable
from rlweave.tree import leaves_of


@dataclass(frozen=True)
class Round:
    """One pass of the build over the API methods that are not known yet.

    Attributes:
        known: Methods whose results became known.
        waiting: Methods that have to be traced again, with the reason where there is one besides unknown inputs.
        completed: Components that became input-complete, in this order; they created their variables then.
    """

    known: tuple[str, ...]
    waiting: tuple[tuple[str, str], ...]
    completed: tuple[ComponentBase, ...]


@dataclass
class ComponentState:
    """What a build knows of one component."""

    path: str
    needs: tuple[str, ...]
    device: str | None
    referenced: list[ComponentBase]
    inputs: dict[str, Any] = field(default_factory=dict)
    callers: dict[str, str] = field(default_factory=dict)
    placed: bool = False
    complete: bool = False
    variables: list[Variable] = field(default_factory=list)
    attributes: dict[str, Any] = field(default_factory=dict)


class BuiltComponents:
    """The components of a build.

    Args:
        root: The root component.
        backend: Where device nodes run.
        device: Device of the root, or devices by component path, which come before those that components ask for.
    """

    def __init__(
        self,
        root: ComponentBase,
        backend: Backend,
        device: str | Mapping[str, str] | None = None,
    ) -> None:
        self.root, self.backend = root, backend
        self.states: dict[int, ComponentState] = {}
        self.components: list[ComponentBase] = []
        #: Sizes that components have in their attributes and variables: no batch of abstract evaluation is that long.
        self.feature_sizes: set[int] = set()
        #: Where components are that were placed nowhere; None: no device was named at all.
        self.default_device: str | None = None
        #: The devices on which something is, by name.
        self.device_places: tuple[str, ...] = ()
        #: The component whose `create_variables` runs now.
        self.creating: ComponentBase | None = None
        #: By component and input: calls that passed an unknown value, of this round.
        self.unknown_inputs: dict[tuple[int, str], list[str]] = {}
        #: Components that are complete, in the order in which they became it.
        self.completion: list[ComponentBase] = []
        #: The passes over the API methods.
        self.rounds: list[Round] = []
        self.fingerprints = Fingerprints()
        if root._owner is not None and not root._owner._holds(root):
            root._owner = None  # it was taken out of a list since
        self._add_tree(root)
        self._check_owners()
        self._look_through_attributes()
        self.devices = self._devices_by_component(device)
        for component in self.components:
            self.states[id(component)].device = self._find_device(component)

    def _add_tree(self, component: ComponentBase) -> None:
        """Takes in a component and all below it, depth first."""
        referenced = component._referenced()
        owned = [child for child in referenced if child._owner is component]
        _number_siblings(owned)
        needs = needed_inputs(type(component).create_variables)
        self.states[id(component)] = ComponentState(component.path, needs, None, referenced)
        self.components.append(component)
        for child in owned:
            self._add_tree(child)

    def _look_through_attributes(self) -> None:
        """Notes sizes, and refuses components in attributes where builds do not look."""
        for component in self.components:
            for name, value in component.__dict__.items():
                if isinstance(value, int) and not name.startswith("_"):
                    self.feature_sizes.add(int(value))
                for hidden in hidden_in(name, value):
                    if name.startswith("_") or not self.knows(hidden):
                        refuse_hidden(component, name, hidden)

    def _check_owners(self) -> None:
        for component in self.components:
            for other in self.referenced_by(component):
                if id(other) not in self.states:
                    raise BuildError(
                        "a shared component is owned by nobody in this graph",
                        where=f"{other.path}, used in {component.path}",
                        fix="assign the component itself (not shared(...)) to an attribute of one component",
                    )

    def knows(self, component: ComponentBase) -> bool:
        return id(component) in self.states

    def referenced_by(self, component: ComponentBase) -> list[ComponentBase]:
        """The components in its attributes, owned and shared ones."""
        return self.states[id(component)].referenced

    def reachable(self, component: ComponentBase) -> list[ComponentBase]:
        """A component and all that are in attributes below it, shared ones too."""
        seen: dict[int, ComponentBase] = {}
        stack = [component]
        while stack:
            found = stack.pop(0)
            if id(found) not in seen:
                seen[id(found)] = found
                stack.extend(self.referenced_by(found))
        return list(seen.values())

    def path_of(self, component: ComponentBase) -> str:
        """The path of a component in this build."""
        return self.states[id(component)].path

    def is_placed(self, component: ComponentBase) -> bool:
        """Whether a place was named for a component, or for an owner of it."""
        return self.states[id(component)].placed

    def place_of(self, variable: Variable) -> str | None:
        """Where a variable lives: "host", a device, or None where none was named."""
        return self.device_of(variable.placed_with)

    def device_of(self, component: ComponentBase) -> str | None:
        """Where a component is placed: by the build, by itself, or like its owner."""
        return self.states[id(component)].device

    def names_devices(self) -> bool:
        """Whether a component is to be on a device by name."""
        return any(state.device not in (None, "host") for state in self.states.values())

    def _devices_by_component(self, device: str | Mapping[str, str] | None) -> dict[int, str]:
        """Devices that a build asks for, by component identity; the components themselves are left as they are."""
        if device is None:
            return {}
        if isinstance(device, str):
            return {id(self.root): device}
        by_path = {self.path_of(component): component for component in self.components}
        found = {}
        for path, name in device.items():
            full = path if path in by_path else f"{self.root.path}/{path}" if path else self.root.path
            if full not in by_path:
                raise BuildError("a device was given for no component", received=path, fix=nearest(path, by_path))
            found[id(by_path[full])] = name
        return found

    def _find_device(self, component: ComponentBase) -> str | None:
        found: ComponentBase | None = component
        while found is not None:
            device = self.devices.get(id(found), found._device)
            if device is not None:
                return device
            found = found._owner
        return None

    def activate(self) -> None:
        """Puts back the attributes that this build made, after another build of the same components."""
        for component in self.components:
            for name, value in self.states[id(component)].attributes.items():
                object.__setattr__(component, name, value)

    def record_attribute(self, component: ComponentBase, name: str, value: Any) -> None:
        self.states[id(component)].attributes[name] = value

    # -- completeness ------------------------------------------------------------------------------------------

    def is_complete(self, component: ComponentBase) -> bool:
        return self.states[id(component)].complete

    def variables_of(self, component: ComponentBase) -> list[Variable]:
        return self.states[id(component)].variables

    def all_variables(self) -> list[Variable]:
        return [variable for component in self.components for variable in self.states[id(component)].variables]

    def needs_of(self, component: ComponentBase) -> tuple[str, ...]:
        """Names of the API inputs that its `create_variables` takes."""
        return self.states[id(component)].needs

    def record_input(
        self, component: ComponentBase, method: str, name: str, argument: Structure, calls: list[str]
    ) -> None:
        """Notes the space of an API input that it needs; completes the component when it was the last one it needs."""
        state = self.states[id(component)]
        if isinstance(argument, Value) and state.inputs.get(name) is argument.space:
            return
        for variable in leaves_of(argument, Variable):
            variable.refuse()
        unknown = next(leaves_of(argument, Unknown), None)
        if unknown is not None:
            calls_of = self.unknown_inputs.setdefault((id(component), name), [])
            calls_of.append(f"{state.path}.{method} gets what {unknown.source} returns")
            return
        space = to_space(argument)
        if name in state.inputs and same_features(state.inputs[name], space):
            return
        caller = f"{state.path}.{method}" + (f", called from {calls[-1]}" if calls else "")
        if name in state.inputs:
            raise BuildError(
                f"two callers pass different spaces as {name!r}",
                where=caller,
                received=f"{space!r}; before: {state.inputs[name]!r} from {state.callers[name]}",
                fix="pass the same feature space, or use two components",
            )
        state.inputs[name], state.callers[name] = space, caller
        self.complete_if_possible(component)

    def complete_if_possible(self, component: ComponentBase) -> None:
        state = self.states[id(component)]
        if state.complete or any(name not in state.inputs for name in state.needs):
            return
        before, self.creating = self.creating, component
        token = SESSION.set(self)
        try:
            component.create_variables(**{name: state.inputs[name] for name in state.needs})
        finally:
            self.creating = before
            SESSION.reset(token)
        state.complete = True
        self.completion.append(component)
        if type(component).create_variables is not ComponentBase.create_variables:
            state.referenced = component._referenced()
            for other in state.referenced:
                if not self.knows(other):
                    refuse_late(component.path)
            self.fingerprints.forget(component)

    def add_variable(self, variable: Variable) -> None:
        state = self.states[id(variable.owner)]
        if variable.name in [other.name for other in state.variables]:
            raise BuildError("two variables of one name", where=variable.path, fix="choose another name")
        state.variables.append(variable)
        self.feature_sizes.update(variable.shape)


@functools.lru_cache(maxsize=4096)
def needed_inputs(create_variables: Callable[..., None]) -> tuple[str, ...]:
    """API inputs that `create_variables` of a component class needs: the names of its parameters."""
    if create_variables is ComponentBase.create_variables:
        return ()
    return tuple(inspect.signature(create_variables).parameters)[1:]


def _number_siblings(children: list[ComponentBase]) -> None:
    scopes = [child._scope for child in children]
    counts: dict[str, int] = {}
    for child, scope in zip(children, scopes, strict=True):
        if scopes.count(scope) > 1:
            child._name = f"{scope}-{counts.get(scope, 0)}"
            counts[scope] = counts.get(scope, 0) + 1
        else:
            child._name = scope
