"""The state of one build: which components are complete, with which variables, and what abstract evaluation said."""

from __future__ import annotations

import functools
import inspect
import threading
import traceback
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rlweave.backends import Backend, get_backend
from rlweave.backends.base import is_user_file
from rlweave.backends.bound_ops import BoundOps
from rlweave.errors import BuildError, RlweaveError, nearest
from rlweave.graph.abstract import CellLog, Inference, RecordingCell, ScratchRandom, infer
from rlweave.graph.component import Component
from rlweave.graph.decorators import GraphFunction, describe
from rlweave.graph.ir import (
    HOST_RANDOM,
    RANDOM,
    Node,
    Structure,
    Unknown,
    Value,
    flatten_structure,
    has_leaf,
    leaves_of,
    map_structure,
    unique,
)
from rlweave.graph.trace import _SESSION, make_result, spaces_of, variables_of_arguments
from rlweave.graph.variable import Variable, VariableCollection
from rlweave.ops import OP_NAMES
from rlweave.spaces import Box, Dict, Space, Tuple

#: One build (or lowering) at a time: components hold what their last build gave them.
BUILD_LOCK = threading.RLock()

#: Results of abstract evaluation, for the process; the functions and classes in the keys stay alive with them.
_CACHE: dict[Any, Inference] = {}
_CACHE_LIMIT = 20_000


@dataclass
class ComponentState:
    """What a build knows of one component."""

    needs: tuple[str, ...]
    inputs: dict[str, Any] = field(default_factory=dict)
    callers: dict[str, str] = field(default_factory=dict)
    complete: bool = False
    variables: list[Variable] = field(default_factory=list)
    attributes: dict[str, Any] = field(default_factory=dict)


class Session:
    """One build.

    Args:
        root: The root component.
        backend: Where device nodes run.
        rng: "fast" or "portable".
        devices: Devices by component identity, which come before those that components ask for.
    """

    def __init__(self, root: Component, backend: Backend, rng: str, devices: dict[int, str] | None = None) -> None:
        self.root, self.backend, self.rng = root, backend, rng
        self.devices = devices or {}
        self.host_backend = get_backend("numpy")
        self.creating: Component | None = None
        self.states: dict[int, ComponentState] = {}
        self.components: list[Component] = []
        self.result_counts: dict[tuple[int, str], int] = {}
        #: By component and input: calls that passed an unknown value, of this round.
        self.unknown_inputs: dict[tuple[int, str], list[str]] = {}
        self.feature_sizes: set[int] = set()
        self._binders: dict[str, tuple[Any, ScratchRandom]] = {}
        self._fingerprints: dict[int, Any] = {}
        self.evaluation_seconds = 0.0
        self._add_tree(root)

    # -- composition ---------------------------------------------------------------------------------------------

    def _add_tree(self, root: Component) -> None:
        for component in root.tree():
            for child in component._referenced():
                if child._owner is None and child is not root:
                    child._owner = component  # appended to a list after the assignment
            _number_siblings(component)
        for component in root.tree():
            self.states[id(component)] = ComponentState(needed_inputs(type(component).create_variables))
            self.components.append(component)
            for name, value in component.__dict__.items():
                if isinstance(value, int) and not name.startswith("_"):
                    self.feature_sizes.add(int(value))
        for component in self.components:
            for other in component._referenced():
                if id(other) not in self.states:
                    raise BuildError(
                        "a shared component is owned by nobody in this graph",
                        where=f"{other.path}, used in {component.path}",
                        fix="assign the component itself (not shared(...)) to an attribute of one component",
                    )

    def device_of(self, component: Component) -> str | None:
        """Where a component is placed: by the build, by itself, or like its owner."""
        found: Component | None = component
        while found is not None:
            device = self.devices.get(id(found), found._device)
            if device is not None:
                return device
            found = found._owner
        return None

    def knows(self, component: Component) -> bool:
        return id(component) in self.states

    def activate(self) -> None:
        """Puts back the attributes that this build made, after another build of the same components."""
        for component in self.components:
            for name, value in self.states[id(component)].attributes.items():
                object.__setattr__(component, name, value)

    # -- input-completeness --------------------------------------------------------------------------------------

    def is_complete(self, component: Component) -> bool:
        return self.states[id(component)].complete

    def variables_of(self, component: Component) -> list[Variable]:
        return self.states[id(component)].variables

    def all_variables(self) -> list[Variable]:
        return [variable for component in self.components for variable in self.states[id(component)].variables]

    def record_input(self, component: Component, method: str, name: str, argument: Structure, calls: list[str]) -> None:
        """Notes the space of an API input; completes the component when it was the last one it needs."""
        state = self.states[id(component)]
        if name not in state.needs:
            return
        unknown = next(leaves_of(argument, Unknown), None)
        if unknown is not None:
            calls_of = self.unknown_inputs.setdefault((id(component), name), [])
            calls_of.append(f"{component.path}.{method} gets what {unknown.source} returns")
            return
        space = to_space(argument)
        caller = f"{component.path}.{method}" + (f", called from {calls[-1]}" if calls else "")
        if name in state.inputs:
            before = state.inputs[name]
            if _features(before) != _features(space):
                raise BuildError(
                    f"two callers pass different spaces as {name!r}",
                    where=caller,
                    received=f"{space!r}; before: {before!r} from {state.callers[name]}",
                    fix="pass the same feature space, or use two components",
                )
            return
        state.inputs[name], state.callers[name] = space, caller
        self.complete_if_possible(component)

    def complete_if_possible(self, component: Component) -> None:
        state = self.states[id(component)]
        if state.complete or any(name not in state.inputs for name in state.needs):
            return
        before, self.creating = self.creating, component
        token = _SESSION.set(self)
        try:
            component.create_variables(**{name: state.inputs[name] for name in state.needs})
        finally:
            self.creating = before
            _SESSION.reset(token)
        state.complete = True
        self._fingerprints.clear()  # others may read attributes that were set just now

    def add_variable(self, variable: Variable) -> None:
        state = self.states[id(variable.owner)]
        if any(other.name == variable.name for other in state.variables):
            raise BuildError("two variables of one name", where=variable.path, fix="choose another name")
        state.variables.append(variable)
        self.feature_sizes.update(variable.shape)

    def record_attribute(self, component: Component, name: str, value: Any) -> None:
        self.states[id(component)].attributes[name] = value

    # -- abstract evaluation -------------------------------------------------------------------------------------

    def binder(self, host: bool) -> tuple[Any, ScratchRandom]:
        """The binder (and random cell) of abstract evaluation on the host or the device backend."""
        from rlweave.graph.store import make_binder, scratch_state

        key = "host" if host else "device"
        if key not in self._binders:
            backend = self.host_backend if host else self.backend
            random = ScratchRandom(scratch_state(backend, self.rng))
            self._binders[key] = (make_binder(backend, self.rng, random), random)
            backend.watch_ops(self._binders[key][0].ops)
        return self._binders[key]

    def infer(self, node: Node, declared: GraphFunction | None) -> None:
        """Fills in result, reads and writes of a call node."""
        variables = list(self.variables_of(node.component)) if node.component is not None and declared else []
        variables = list(dict.fromkeys([*variables, *variables_of_arguments((node.args, node.kwargs))]))
        if declared is not None and declared.spaces is not None:
            self._declared_spaces(node, declared, variables)
            return
        values = list(leaves_of((node.args, node.kwargs), Value))
        leaves = [value.space for value in values]
        spaces = [node.substitution[v.path].space if v.path in node.substitution else v.space for v in variables]
        key = self._cache_key(node, leaves, variables)
        inference = _CACHE.get(key) if key is not None else None
        if inference is None:
            inference = self._evaluate(node, declared, leaves, variables, spaces)
            if key is not None:
                if len(_CACHE) >= _CACHE_LIMIT:
                    _CACHE.clear()
                _CACHE[key] = inference
        self._apply(node, inference, [variable.path for variable in variables])
        node.extra["integer_writes"] = tuple(v.path for v in variables if not v.space.dtype.startswith("float"))

    def _evaluate(
        self,
        node: Node,
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
        function = bind_node_function(binder, node, cell_of)

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
                mixes_batch=bool(declared and declared.mixes_batch)
                or bool(node.component and node.component.mixes_batch),
                where=node.label,
            )
        except RlweaveError:
            raise
        except Exception as error:
            raise _failed(node, error) from error
        self.evaluation_seconds += time.perf_counter() - start
        return result

    def _apply(self, node: Node, inference: Inference, paths: list[str]) -> None:
        random = (HOST_RANDOM if node.host else RANDOM,) if inference.random else ()
        node.reads = unique([paths[i] for i in (*inference.reads, *inference.row_writes)] + list(random))
        node.writes = unique([paths[i] for i in inference.writes] + list(random))
        node.extra["row_writes"] = tuple(paths[i] for i in inference.row_writes)
        node.extra["aliased_writes"] = tuple(paths[i] for i in inference.aliased_writes)
        node.extra["alias_variables"] = tuple(paths[i] for i in inference.alias_variables)
        node.aliases = inference.alias_arguments or bool(inference.alias_variables)
        node.result = make_result(node, inference.result)

    def _declared_spaces(self, node: Node, declared: GraphFunction, variables: list[Variable]) -> None:
        assert declared.spaces is not None
        method = getattr(node.component, declared.spaces)
        args = [to_space(a) if has_leaf(a, Value) else a for a in node.args]
        kwargs = {k: to_space(a) if has_leaf(a, Value) else a for k, a in node.kwargs.items()}
        result = method(*args, **kwargs)
        paths = unique([v.path for v in variables] + [HOST_RANDOM if node.host else RANDOM])
        node.reads = node.writes = paths
        node.extra["row_writes"] = paths
        node.extra["declared_spaces"] = True
        node.result = make_result(node, _unwrap_spaces(result))

    def _settings(self, component: Component) -> Any:
        if id(component) not in self._fingerprints:
            self._fingerprints[id(component)] = _fingerprint(component)
        return self._fingerprints[id(component)]

    def _cache_key(self, node: Node, leaves: list[Box], variables: list[Variable]) -> Any:
        def mark(leaf: Any) -> Any:
            if isinstance(leaf, Value):
                return leaf.space
            if isinstance(leaf, VariableCollection):
                return ("variables", tuple((path, variable.space) for path, variable in leaf.items()))
            if isinstance(leaf, np.ndarray | np.generic):
                return ("array", leaf.shape, str(leaf.dtype), leaf.tobytes())
            hash(leaf)
            return (type(leaf), leaf)

        try:
            arguments = _frozen(map_structure(mark, (node.args, node.kwargs)))
            config = self._settings(node.component) if node.component is not None else ()
            substituted = tuple(sorted((path, value.space) for path, value in node.substitution.items()))
            key = (
                self.backend.name if not node.host else "numpy",
                node.function,
                config,
                arguments,
                tuple(variable.space for variable in variables),
                substituted,
                self.rng,
            )
            hash(key)
        except TypeError:
            return None
        return key


@functools.lru_cache(maxsize=4096)
def needed_inputs(create_variables: Callable[..., None]) -> tuple[str, ...]:
    """API inputs that `create_variables` of a component class needs: the names of its parameters."""
    if create_variables is Component.create_variables:
        return ()
    return tuple(inspect.signature(create_variables).parameters)[1:]


def _failed(node: Node, error: Exception) -> BuildError:
    """The build error for an exception inside a graph function."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if is_user_file(f.filename)]
    line = f", {frames[-1].filename}:{frames[-1].lineno}: {frames[-1].line}" if frames else ""
    inputs = [describe(argument) for argument in node.args]
    inputs += [f"{name}={describe(argument)}" for name, argument in node.kwargs.items()]
    message = str(error).partition("\n")[0]
    fix = "correct the function, or what its callers pass"
    if isinstance(error, AttributeError) and isinstance(error.obj, BoundOps):
        fix = f"use an operator that exists: {nearest(str(error.name), OP_NAMES)}"
    return BuildError(
        f"a graph function failed when it was tried on small arrays: {type(error).__name__}: {message}",
        where=f"{node.label}{line}",
        received=f"({', '.join(inputs)})",
        fix=fix,
    )


def bind_node_function(binder: Any, node: Node, cell_of: Any) -> Any:
    """The bound callable of a call node."""
    assert node.function is not None
    if node.extra.get("plain"):
        name = node.extra.get("op")
        return getattr(binder.ops, name) if name else binder.rebind(node.function)
    # by the function itself and not by its name: an API method may call a graph function of its super-class
    return types.MethodType(binder.rebind(node.function), binder.view(node.component, cell_of))


def fill_arguments(
    node: Node, arrays: list[Any], collection: Any, constant: Callable[[Any], Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments of a node with arrays for its values, in `leaves_of` order; NumPy constants by `constant`."""
    remaining = iter(arrays)

    def fill(leaf: Any) -> Any:
        if isinstance(leaf, Value):
            return next(remaining)
        if isinstance(leaf, np.ndarray):
            return constant(leaf)
        return collection(leaf) if isinstance(leaf, VariableCollection) else leaf

    args = map_structure(fill, node.args)
    return args, map_structure(fill, node.kwargs)


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
    if isinstance(argument, tuple | list):
        parts = [to_space(value) for value in argument]
        return Tuple(*parts) if all(isinstance(part, Space) for part in parts) else tuple(parts)
    if isinstance(argument, Space | VariableCollection):
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
    if isinstance(result, tuple | list):
        return tuple(_unwrap_spaces(value) for value in result)
    return result


def nested_boxes(space: Any) -> Structure:
    """A space as nested dicts and tuples of boxes."""
    return _unwrap_spaces(space)


def _features(space: Any) -> Any:
    if isinstance(space, VariableCollection):
        return tuple(space.keys())
    if isinstance(space, Space):
        return tuple((path, leaf.shape, leaf.dtype) for path, leaf in space.flatten().items())
    if isinstance(space, dict | tuple | list):
        return tuple((path, _features(leaf)) for path, leaf in flatten_structure(space).items())
    return describe(space)


def _number_siblings(component: Component) -> None:
    children = component.sub_components()
    scopes = [child._scope for child in children]
    counts: dict[str, int] = {}
    for child, scope in zip(children, scopes, strict=True):
        if scopes.count(scope) > 1:
            child._name = f"{scope}-{counts.get(scope, 0)}"
            counts[scope] = counts.get(scope, 0) + 1
        else:
            child._name = scope


def _frozen(structure: Structure) -> Any:
    if isinstance(structure, dict):
        return ("dict", *((key, _frozen(value)) for key, value in structure.items()))
    if isinstance(structure, tuple | list):
        return (type(structure).__name__, *(_frozen(item) for item in structure))
    return structure


def _fingerprint(component: Component, above: tuple[int, ...] = ()) -> Any:
    """Hashable description of the plain attributes of a component and of those below; TypeError where there is none."""

    def mark(value: Any) -> Any:
        if isinstance(value, Component):
            # graph functions may read settings of sub-components, and not their variables
            inner = (*above, id(component))
            return type(value) if id(value) in inner else _fingerprint(value, inner)
        if isinstance(value, Variable):
            return ("variable", value.name, value.space) if not above else ()
        if isinstance(value, dict):
            return ("dict", *((key, mark(item)) for key, item in value.items()))
        if isinstance(value, list | tuple | set):
            return (type(value).__name__, *(mark(item) for item in value))
        if isinstance(value, np.ndarray | np.generic):
            return ("array", value.shape, str(value.dtype), value.tobytes())
        hash(value)
        return (type(value), value)

    attributes = tuple((n, mark(v)) for n, v in component.__dict__.items() if n not in _COMPOSITION)
    return (type(component), attributes)


#: Attributes of components that say where they stand, and not what they compute.
_COMPOSITION = frozenset({"_scope", "_device", "_trainable", "_owner", "_name", "_same_as", "_spec_arguments"})
