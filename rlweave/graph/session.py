"""The state of one build: which components are complete, with which variables, and what abstract evaluation said."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rlweave.backends import Backend, get_backend
from rlweave.backends.base import WIDE, fits
from rlweave.errors import BackendError, BuildError, RlweaveError, nearest
from rlweave.graph.abstract import CellLog, Inference, RecordingCell, ScratchRandom, infer
from rlweave.graph.composition import COMPOSITION, ComponentBase, hidden_in, refuse_hidden, refuse_late
from rlweave.graph.current import SESSION
from rlweave.graph.decorators import GraphFunction, describe
from rlweave.graph.explain import Round
from rlweave.graph.failures import failed_call
from rlweave.graph.ir import HOST_RANDOM, RANDOM, Call, Structure, Unknown, Value, unique
from rlweave.graph.replay import Recording
from rlweave.graph.trace import make_result, spaces_of, variables_of_arguments
from rlweave.graph.variable import Variable, VariableCollection
from rlweave.spaces import Box, Dict, Space, Tuple
from rlweave.tree import flatten_tree, has_leaf, leaves_of, tree_map

#: One build (or lowering) at a time: components hold what their last build gave them.
BUILD_LOCK = threading.RLock()

#: Results of abstract evaluation, for the process; the functions and classes in the keys stay alive with them.
_CACHE: dict[Any, Inference] = {}
_CACHE_LIMIT = 20_000
#: One object for each fingerprint of a component, which keys of the cache hold in its place: they stay short.
_SETTINGS: dict[Any, object] = {}


class _Key:
    """A key of the cache, whose hash is computed once; TypeError where a part of it has none."""

    __slots__ = ("_hash", "parts")

    def __init__(self, parts: tuple[Any, ...]) -> None:
        self.parts = parts
        self._hash = hash(parts)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self.parts == other.parts


@dataclass(frozen=True)
class _Effects:
    """What a call returns and touches: the parts of its node that are alike for all calls with equal arguments."""

    result: Structure
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    aliases: bool
    row_writes: tuple[str, ...]
    aliased_writes: tuple[str, ...]
    alias_variables: tuple[str, ...]
    integer_writes: tuple[str, ...]


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


class Session:
    """One build.

    Args:
        root: The root component.
        backend: Where device nodes run.
        rng: "fast" or "portable".
        device: Device of the root, or devices by component path, which come before those that components ask for.
        replicas: The device of each replica of what is differentiated.
    """

    def __init__(
        self,
        root: ComponentBase,
        backend: Backend,
        rng: str,
        device: str | Mapping[str, str] | None = None,
        replicas: tuple[str, ...] = (),
    ) -> None:
        self.root, self.backend, self.rng = root, backend, rng
        self.host_backend = get_backend("numpy")
        self.creating: ComponentBase | None = None
        self.states: dict[int, ComponentState] = {}
        self.components: list[ComponentBase] = []
        self.result_counts: dict[tuple[int, str], int] = {}
        #: By component and input: calls that passed an unknown value, of this round.
        self.unknown_inputs: dict[tuple[int, str], list[str]] = {}
        self.feature_sizes: set[int] = set()
        #: What API methods emitted, as long as methods are traced.
        self.recordings: dict[Any, Recording] = {}
        #: Components that are complete, in the order in which they became it.
        self.completion: list[ComponentBase] = []
        #: The passes over the API methods.
        self.rounds: list[Round] = []
        self._binders: dict[str, tuple[Any, ScratchRandom]] = {}
        #: By plain call: what it returns and touches.
        self._effects: dict[tuple[Any, ...], _Effects] = {}
        #: By component: what stands for its settings in keys of the cache.
        self._settings: dict[int, object] = {}
        #: By component: the components whose settings depend on its attributes.
        self._dependents: dict[int, set[int]] = {}
        self.evaluation_seconds = 0.0
        #: Where components are that were placed nowhere; None: no device was named at all.
        self.default_device: str | None = None
        #: The devices on which components and replicas are.
        self.device_places: tuple[str, ...] = ()
        self.replicas = replicas
        if root._owner is not None and not root._owner._holds(root):
            root._owner = None  # it was taken out of a list since
        self._add_tree(root)
        self._check_owners()
        self._look_through_attributes()
        self.devices = self._devices_by_component(device)
        for component in self.components:
            self.states[id(component)].device = self._find_device(component)
        self._name_devices()

    # -- composition ---------------------------------------------------------------------------------------------

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
        """Notes sizes, and refuses components where nobody looks for them."""
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

    def referenced_by(self, component: ComponentBase) -> list[ComponentBase]:
        """The components in its attributes, owned and shared ones."""
        return self.states[id(component)].referenced

    def path_of(self, component: ComponentBase) -> str:
        """The path of a component in this build."""
        return self.states[id(component)].path

    def is_placed(self, component: ComponentBase) -> bool:
        """Whether a place was named for a component, or for an owner of it."""
        return self.states[id(component)].placed

    def place_of(self, variable: Variable) -> str | None:
        """Where a variable lives: "host", a device, or None where none was named."""
        return self.device_of(variable.placed_with)

    def _name_devices(self) -> None:
        """Gives every component that is not on the host a device by its full name, if any was named."""
        backend, places = self.backend, {}
        for component in self.components:
            state = self.states[id(component)]
            if state.device in (None, "host"):
                continue
            if not backend.maps_devices:
                # NumPy acts with components that were made for a device of the framework that learns
                if state.device != "cpu" and (not backend.on_host or self.devices):
                    raise BuildError(
                        f"the {backend.name} backend computes on the CPU only",
                        where=component.path,
                        received=f"device={state.device!r}",
                        fix='leave the device out, or use backend="jax" or backend="torch"',
                    )
                state.device = None
                continue
            places[id(component)] = device_name(backend, str(state.device), component.path)
            state.placed = True
        if places or self.replicas:
            self.default_device = self.replicas[0] if self.replicas else backend.device_names()[0]
            for component in self.components:
                state = self.states[id(component)]
                state.device = "host" if state.device == "host" else places.get(id(component), self.default_device)
            devices = [self.states[id(component)].device for component in self.components]
            self.device_places = unique(d for d in (*devices, *self.replicas) if d not in (None, "host"))

    def device_of(self, component: ComponentBase) -> str | None:
        """Where a component is placed: by the build, by itself, or like its owner."""
        return self.states[id(component)].device

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

    def knows(self, component: ComponentBase) -> bool:
        return id(component) in self.states

    def activate(self) -> None:
        """Puts back the attributes that this build made, after another build of the same components."""
        for component in self.components:
            for name, value in self.states[id(component)].attributes.items():
                object.__setattr__(component, name, value)

    # -- input-completeness --------------------------------------------------------------------------------------

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
        if name in state.inputs and _same_features(state.inputs[name], space):
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
            for dependent in self._dependents.pop(id(component), ()):  # they may read what was set just now
                self._settings.pop(dependent, None)

    def add_variable(self, variable: Variable) -> None:
        state = self.states[id(variable.owner)]
        if variable.name in [other.name for other in state.variables]:
            raise BuildError("two variables of one name", where=variable.path, fix="choose another name")
        state.variables.append(variable)
        self.feature_sizes.update(variable.shape)

    def record_attribute(self, component: ComponentBase, name: str, value: Any) -> None:
        self.states[id(component)].attributes[name] = value

    # -- abstract evaluation -------------------------------------------------------------------------------------

    def binder(self, host: bool) -> tuple[Any, ScratchRandom]:
        """The binder (and random cell) of abstract evaluation on the host or the device backend."""
        from rlweave.graph.store import make_binder, scratch_state

        key = "host" if host else "device"
        if key not in self._binders:
            backend = self.host_backend if host else self.backend
            random = ScratchRandom(scratch_state(backend, self.rng))
            self._binders[key] = (
                make_binder(backend, self.rng, random, arrays=() if host else backend.evaluated_types),
                random,
            )
            backend.watch_ops(self._binders[key][0].ops)
        return self._binders[key]

    def infer(self, node: Call, declared: GraphFunction | None) -> None:
        """Fills in result, reads and writes of a call node."""
        if declared is not None and declared.spaces is not None:
            self._declared_spaces(node, declared, self._variables_seen_by(node, declared))
            return
        call = self._plain_call(node, declared)
        effects = self._effects.get(call) if call is not None else None
        if effects is None:
            variables = self._variables_seen_by(node, declared)
            effects = _effects_of(self._inference(node, declared, variables), variables, node.host)
            if call is not None:
                self._effects[call] = effects
        node.reads, node.writes, node.aliases = effects.reads, effects.writes, effects.aliases
        node.row_writes, node.aliased_writes = effects.row_writes, effects.aliased_writes
        node.alias_variables, node.integer_writes = effects.alias_variables, effects.integer_writes
        node.result = make_result(node, effects.result)

    def _plain_call(self, node: Call, declared: GraphFunction | None) -> tuple[Any, ...] | None:
        """A key for calls of one build with equal arguments; None where there are others than values and constants."""
        if node.substitution or node.kwargs:
            return None
        parts: list[Any] = [node.function, id(node.component), declared is None, node.host]
        for argument in node.args:
            if type(argument) is Value:
                parts.append(argument.space)
            elif type(argument) in _PLAIN:
                parts += (type(argument), argument)
            else:
                return None
        try:
            parts.append(self._settings_of(node.component))
        except TypeError:
            return None
        return tuple(parts)

    def _variables_seen_by(self, node: Call, declared: GraphFunction | None) -> list[Variable]:
        own = self.variables_of(node.component) if node.component is not None and declared else []
        return list(dict.fromkeys([*own, *variables_of_arguments((node.args, node.kwargs))]))

    def _inference(self, node: Call, declared: GraphFunction | None, variables: list[Variable]) -> Inference:
        """What abstract evaluation says, now or for an equal call before."""
        key = self._cache_key(node, variables)
        inference = _CACHE.get(key) if key is not None else None
        if inference is None:
            leaves = [value.space for value in leaves_of((node.args, node.kwargs), Value)]
            spaces = [node.substitution[v.path].space if v.path in node.substitution else v.space for v in variables]
            inference = self._evaluate(node, declared, leaves, variables, spaces)
            if key is not None:
                if len(_CACHE) >= _CACHE_LIMIT:
                    _CACHE.clear()
                    _SETTINGS.clear()
                    self._settings.clear()
                _CACHE[key] = inference
        return inference

    def _evaluate(
        self,
        node: Call,
        declared: GraphFunction | None,
        leaves: list[Box],
        variables: list[Variable],
        spaces: list[Box],
    ) -> Inference:
        import time

        start = time.perf_counter()
        log = CellLog()
        cells = [
            RecordingCell(i, v.path, space, log) for i, (v, space) in enumerate(zip(variables, spaces, strict=True))
        ]
        by_variable = {id(variable): cell for variable, cell in zip(variables, cells, strict=True)}

        def cell_of(variable: Variable) -> RecordingCell:
            return by_variable[id(variable)]

        backend = self.host_backend if node.host else self.backend
        binder, random = self.binder(node.host)
        random.used = False
        function = bind_node_function(binder, node, cell_of, fixed_cells=False)
        for constant in leaves_of((node.args, node.kwargs), (np.ndarray, np.generic)):
            refuse_wide(backend, constant, node.label)

        def call(arrays: Any) -> Structure:
            args, kwargs = fill_arguments(node, list(arrays), lambda c: binder.collection(c, cell_of), backend.constant)
            return function(*args, **kwargs)

        try:
            result = infer(
                backend,
                call,
                leaves,
                cells,
                log,
                random,
                self.feature_sizes,
                mixes_batch=node.mixes_batch,
                where=node.label,
                host=node.host,
            )
        except RlweaveError:
            raise
        except Exception as error:
            raise failed_call(node, error) from error
        self.evaluation_seconds += time.perf_counter() - start
        return result

    def _declared_spaces(self, node: Call, declared: GraphFunction, variables: list[Variable]) -> None:
        assert declared.spaces is not None
        method = getattr(node.component, declared.spaces)
        args = [to_space(a) if has_leaf(a, Value) else a for a in node.args]
        kwargs = {k: to_space(a) if has_leaf(a, Value) else a for k, a in node.kwargs.items()}
        result = method(*args, **kwargs)
        paths = unique([v.path for v in variables] + [HOST_RANDOM if node.host else RANDOM])
        node.reads = node.writes = paths
        node.row_writes = paths
        node.declared_spaces = True
        node.result = make_result(node, _unwrap_spaces(result))

    def _settings_of(self, component: ComponentBase | None) -> object:
        """An object that stands for all settings that graph functions of a component may read."""
        if component is None:
            return None
        found = self._settings.get(id(component))
        if found is None:
            seen: set[int] = set()
            fingerprint = _fingerprint(component, seen)
            found = self._settings[id(component)] = _SETTINGS.setdefault(fingerprint, object())
            for key in seen:
                self._dependents.setdefault(key, set()).add(id(component))
        return found

    def _cache_key(self, node: Call, variables: list[Variable]) -> Any:
        try:
            arguments = (_frozen(node.args), _frozen(node.kwargs))
            settings = self._settings_of(node.component)
            substituted = tuple([(path, node.substitution[path].space) for path in sorted(node.substitution)])
            key = (
                self.backend.name if not node.host else "numpy",
                node.function,
                settings,
                arguments,
                tuple([variable.space for variable in variables]),
                substituted,
                self.rng,
            )
            return _Key(key)
        except TypeError:
            return None


def device_name(backend: Backend, name: str, where: str) -> str:
    """The full name of a device of a backend.

    Raises:
        BuildError: There is no such device.
    """
    try:
        return backend.device_name(name)
    except BackendError as error:
        raise BuildError(error.what, where=where, received=error.received, fix=error.fix) from None


@functools.lru_cache(maxsize=4096)
def needed_inputs(create_variables: Callable[..., None]) -> tuple[str, ...]:
    """API inputs that `create_variables` of a component class needs: the names of its parameters."""
    if create_variables is ComponentBase.create_variables:
        return ()
    return tuple(inspect.signature(create_variables).parameters)[1:]


def refuse_wide(backend: Backend, constant: np.ndarray | np.generic, where: str) -> None:
    """Refuses integers that do not fit into the 32 bits in which a backend computes."""
    if backend.functional and constant.dtype.name in WIDE and not fits(constant, WIDE[constant.dtype.name]):
        raise BuildError(
            f"the {backend.name} backend computes in 32 bits here, and a constant needs more",
            where=where,
            received=f"{constant.dtype} from {constant.min()} to {constant.max()}",
            fix='use smaller integers, or backend="torch" or "numpy"',
        )


def _effects_of(inference: Inference, variables: list[Variable], host: bool) -> _Effects:
    """What abstract evaluation said of positions, as paths of these variables."""

    def paths(positions: Iterable[int]) -> list[str]:
        return [variables[i].path for i in positions]

    random = [HOST_RANDOM if host else RANDOM] if inference.random else []
    return _Effects(
        result=inference.result,
        reads=unique([*paths((*inference.reads, *inference.row_writes)), *random]),
        writes=unique([*paths(inference.writes), *random]),
        aliases=inference.alias_arguments or bool(inference.alias_variables),
        row_writes=tuple(paths(inference.row_writes)),
        aliased_writes=tuple(paths(inference.aliased_writes)),
        alias_variables=tuple(paths(inference.alias_variables)),
        integer_writes=tuple([v.path for v in variables if not v.space.dtype.startswith("float")]),
    )


def bind_node_function(binder: Any, node: Call, cell_of: Any, fixed_cells: bool = True) -> Any:
    """The bound callable of a call node.

    Args:
        binder: The binder of its place.
        node: A call.
        cell_of: The cell of each variable.
        fixed_cells: Every call finds the same cells, substituted ones apart, and so gets the same callable.
    """
    if node.plain:
        name = node.op
        return getattr(binder.ops, name) if name else binder.rebind(node.function)
    # by the function itself and not by its name: an API method may call a graph function of its super-class
    make_method = binder.known_method if fixed_cells and not node.substitution else binder.method
    return make_method(node.function, node.component, cell_of)


def fill_arguments(
    node: Call, arrays: list[Any], collection: Any, constant: Callable[[Any], Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments of a node with arrays for its values, in `leaves_of` order; NumPy constants by `constant`."""
    remaining = iter(arrays)

    def fill(leaf: Any) -> Any:
        if isinstance(leaf, Value):
            return next(remaining)
        if isinstance(leaf, np.ndarray):
            return constant(leaf)
        return collection(leaf) if isinstance(leaf, VariableCollection) else leaf

    args = tree_map(fill, node.args)
    return args, tree_map(fill, node.kwargs)


def to_space(argument: Structure) -> Any:
    """The space of a nested argument; variable collections and other constants stay what they are."""
    if isinstance(argument, Value):
        return argument.space
    if isinstance(argument, dict):
        items = {key: to_space(value) for key, value in argument.items()}
        if all(isinstance(value, Space) for value in items.values()) and all(
            isinstance(key, str) and key and "/" not in key for key in items
        ):
            return Dict(items)
        return items
    if isinstance(argument, (tuple, list)):
        parts = [to_space(value) for value in argument]
        return Tuple(*parts) if all(isinstance(part, Space) for part in parts) else tuple(parts)
    if isinstance(argument, (Space, VariableCollection)):
        return argument
    try:
        return spaces_of(argument)
    except KeyError:
        return argument


def _unwrap_spaces(result: Any) -> Structure:
    """Container spaces as plain nested dicts and tuples of boxes."""
    if isinstance(result, Dict):
        return {key: _unwrap_spaces(value) for key, value in result.items()}
    if isinstance(result, Tuple):
        return tuple(_unwrap_spaces(value) for value in result)
    if isinstance(result, dict):
        return {key: _unwrap_spaces(value) for key, value in result.items()}
    if isinstance(result, (tuple, list)):
        return tuple(_unwrap_spaces(value) for value in result)
    return result


def nested_boxes(space: Any) -> Structure:
    """A space as nested dicts and tuples of boxes."""
    return _unwrap_spaces(space)


def _same_features(one: Any, other: Any) -> bool:
    if isinstance(one, Box) and isinstance(other, Box):  # most inputs: worth a short way
        return one.shape == other.shape and one.dtype == other.dtype
    return bool(_features(one) == _features(other))


def _features(space: Any) -> Any:
    if isinstance(space, VariableCollection):
        return tuple(space.keys())
    if isinstance(space, Space):
        return tuple((path, leaf.shape, leaf.dtype) for path, leaf in space.flatten().items())
    if isinstance(space, (dict, tuple, list)):
        return tuple((path, _features(leaf)) for path, leaf in flatten_tree(space).items())
    return describe(space)


def _number_siblings(children: list[ComponentBase]) -> None:
    scopes = [child._scope for child in children]
    counts: dict[str, int] = {}
    for child, scope in zip(children, scopes, strict=True):
        if scopes.count(scope) > 1:
            child._name = f"{scope}-{counts.get(scope, 0)}"
            counts[scope] = counts.get(scope, 0) + 1
        else:
            child._name = scope


def _frozen(structure: Structure) -> Any:
    """Arguments of a node as a part of a key: spaces in place of values; TypeError where something has no hash."""
    if isinstance(structure, Value):
        return structure.space
    if isinstance(structure, dict):
        return ("dict", *[(key, _frozen(value)) for key, value in structure.items()])
    if isinstance(structure, (tuple, list)):
        return (type(structure).__name__, *[_frozen(item) for item in structure])
    if isinstance(structure, VariableCollection):
        return ("variables", *[(path, variable.space) for path, variable in structure.items()])
    if isinstance(structure, (np.ndarray, np.generic)):
        return ("array", structure.shape, str(structure.dtype), structure.tobytes())
    return (type(structure), structure)


def _fingerprint(component: ComponentBase, seen: set[int], above: tuple[int, ...] = ()) -> Any:
    """Hashable description of the plain attributes of a component and of those below; TypeError where there is none.

    Args:
        component: The component.
        seen: Gets the identities of all components whose attributes count.
        above: Identities of the components around it.
    """
    seen.add(id(component))

    def mark(value: Any) -> Any:
        if type(value) in _PLAIN:
            return (type(value), value)
        if isinstance(value, ComponentBase):
            # graph functions may read settings of sub-components, and not their variables
            inner = (*above, id(component))
            return type(value) if id(value) in inner else _fingerprint(value, seen, inner)
        if isinstance(value, Variable):
            return ("variable", value.name, value.space) if not above else ()
        if isinstance(value, dict):
            return ("dict", *[(key, mark(item)) for key, item in value.items()])
        if isinstance(value, (list, tuple, set)):
            return (type(value).__name__, *[mark(item) for item in value])
        if isinstance(value, (np.ndarray, np.generic)):
            return ("array", value.shape, str(value.dtype), value.tobytes())
        hash(value)
        return (type(value), value)

    attributes = tuple([(n, mark(v)) for n, v in component.__dict__.items() if n not in COMPOSITION])
    return (type(component), attributes)


#: Types whose values are hashable and hold nothing else.
_PLAIN = frozenset({bool, int, float, str, type(None)})
