"""Binding: a graph function becomes a plain function of one backend.

`ops` (and plain functions that use it) are re-bound in the function's globals, variables become store cells, and
`self` becomes a view that holds plain attributes. Nothing is looked up by name at run time.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

import rlweave.ops as vocabulary
from rlweave.backends import Backend
from rlweave.backends.base import is_user_file
from rlweave.backends.bound_ops import bind_ops
from rlweave.errors import BuildError, ExecutionError
from rlweave.graph.component import Component
from rlweave.graph.decorators import ApiMethod, GraphFunction
from rlweave.graph.ir import Call, Value
from rlweave.graph.stand_ins import stand_in
from rlweave.graph.variable import Variable, VariableCollection
from rlweave.tree import has_leaf, tree_map

CellOf = Callable[[Variable], Any]


class BoundCollection:
    """A variable collection inside a running graph function: cells by path.

    Args:
        cells: Store cells by variable path.
        donate: The arrays of these cells may be overwritten in place by this call.
    """

    __slots__ = ("_by_path", "_list", "donate")

    def __init__(self, cells: dict[str, Any], donate: bool = False) -> None:
        self._by_path, self.donate = cells, donate
        self._list = list(cells.values())

    def __iter__(self) -> Any:
        return iter(self._list)

    def __len__(self) -> int:
        return len(self._list)

    def __getitem__(self, path: str) -> Any:
        return self._by_path[path]

    def keys(self) -> Any:
        return self._by_path.keys()

    def values(self) -> Any:
        return self._by_path.values()

    def items(self) -> Any:
        return self._by_path.items()


class Binder:
    """Binds graph functions to one set of ops; one per executor (and per abstract evaluation).

    Args:
        ops: The bound ops namespace that takes the place of `rlweave.ops`.
        keep_module_names: Whether re-bound functions keep `__name__` in their globals (torch.compile looks it up
            and would find the unbound module).
        arrays: Types of arrays that functions of NumPy are to refuse (abstract evaluation, see `stand_ins`); with them
            random numbers and clocks are refused as well.
    """

    def __init__(self, ops: Any, keep_module_names: bool = True, arrays: tuple[type, ...] = ()) -> None:
        self.ops, self.arrays = ops, arrays
        self.keep_module_names = keep_module_names
        self._globals: dict[int, tuple[dict[str, Any], dict[str, Any]]] = {}
        self._functions: dict[int, tuple[Any, Any]] = {}
        self._classes: dict[type, type] = {}
        self._methods: dict[tuple[int, ...], tuple[list[Any], Any]] = {}

    def rebind(self, function: Any) -> Any:
        """A copy of a plain function whose globals hold the bound ops."""
        if id(function) in self._functions:
            return self._functions[id(function)][1]
        closure = tuple(types.CellType() if _is_user_of_ops(cell) else cell for cell in function.__closure__ or ())
        bound = types.FunctionType(
            function.__code__.replace(),  # a copy: the interpreter adapts code to the types and globals that it meets
            self._bound_globals(function.__globals__),
            function.__name__,
            function.__defaults__,
            closure,
        )
        bound.__kwdefaults__ = function.__kwdefaults__
        bound.__qualname__, bound.__module__ = function.__qualname__, function.__module__
        self._functions[id(function)] = (function, bound)
        for cell, original in zip(closure, function.__closure__ or (), strict=True):
            if cell is not original:
                cell.cell_contents = self.rebind(original.cell_contents)
        return bound

    def _bound_globals(self, original: dict[str, Any]) -> dict[str, Any]:
        if id(original) in self._globals:
            return self._globals[id(original)][1]
        bound = dict(original)
        self._globals[id(original)] = (original, bound)
        if not self.keep_module_names:
            bound.pop("__name__", None)
        for name, value in original.items():
            if value is vocabulary:
                bound[name] = self.ops
            elif isinstance(value, types.FunctionType):
                if self._binds(value):
                    bound[name] = self.rebind(value)
            elif self.arrays:
                bound[name] = stand_in(name, value, self.arrays)
        return bound

    def _binds(self, function: Any) -> bool:
        """Whether a plain function has to be bound: it uses `ops`, or a module that abstract evaluation replaces."""
        return uses_ops(function) or (
            bool(self.arrays) and is_user_file(function.__code__.co_filename) and _names_a_module(function)
        )

    def method(self, function: Any, component: Component, cell_of: CellOf) -> Any:
        """A graph function, bound to a view of a component."""
        return types.MethodType(self.rebind(function), self.view(component, cell_of))

    def known_method(self, function: Any, component: Component, cell_of: CellOf) -> Any:
        """`method`, made once as long as the component has the same attributes; the cells never differ."""
        attributes = list(component.__dict__.values())
        key = (id(function), id(component), *map(id, attributes))
        if key not in self._methods:
            # what the key tells by identity has to stay alive
            self._methods[key] = [function, component, *attributes], self.method(function, component, cell_of)
        return self._methods[key][1]

    def view(self, component: Component, cell_of: CellOf) -> Any:
        """The `self` of bound graph functions of a component."""
        cls = self._classes.get(type(component))
        if cls is None:
            cls = self._classes[type(component)] = self._view_class(type(component))
        view: Any = object.__new__(cls)

        def convert(value: Any) -> Any:
            if isinstance(value, (str, int, float, Component)) or value is None:  # most attributes
                return value
            if isinstance(value, Variable):
                return cell_of(value)
            if isinstance(value, types.FunctionType):
                return self.rebind(value) if self._binds(value) else value
            if isinstance(value, (list, tuple)) and has_leaf(value, Variable):
                return type(value)(convert(item) for item in value)
            if isinstance(value, dict) and has_leaf(value, Variable):
                return {key: convert(item) for key, item in value.items()}
            return stand_in(name, value, self.arrays) if self.arrays else value

        for name, value in component.__dict__.items():  # one by one: reading is faster than from a dict made at once
            object.__setattr__(view, name, convert(value))
        return view

    def _view_class(self, cls: type) -> type:
        members: dict[str, Any] = {"__setattr__": _refuse_attribute, "bound_function": staticmethod(self.rebind)}
        for base in reversed(cls.__mro__):
            if base is object or base is Component:
                continue
            for name, value in vars(base).items():
                if isinstance(value, GraphFunction):
                    members[name] = self.rebind(value.function)
                elif isinstance(value, ApiMethod):
                    members.pop(name, None)  # it refuses to be called by itself
                elif isinstance(value, types.FunctionType) and self._binds(value):
                    members[name] = self.rebind(value)
                elif isinstance(value, staticmethod) and self._binds(value.__func__):
                    members[name] = staticmethod(self.rebind(value.__func__))
                elif name in members:
                    del members[name]
        members["__slots__"] = ()
        return type(cls.__name__, (cls,), members)

    def collection(self, collection: VariableCollection, cell_of: CellOf, donate: bool = False) -> BoundCollection:
        return BoundCollection({path: cell_of(variable) for path, variable in collection.items()}, donate)


def _refuse_attribute(self: Any, name: str, value: Any) -> None:
    raise ExecutionError(
        f"attribute {name!r} was set inside a graph function",
        where=type(self).__name__,
        fix="keep state in variables: self.variable(...) in create_variables, .assign(x) in the graph function",
    )


_USES_OPS: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()


def uses_ops(function: Any, seen: set[int] | None = None) -> bool:
    """Whether a plain function, or one that it calls by a global name or from its closure, uses `rlweave.ops`."""
    if seen is None:
        if function not in _USES_OPS:
            _USES_OPS[function] = uses_ops(function, set())
        return _USES_OPS[function]
    if id(function) in seen:
        return False
    seen.add(id(function))
    scope = function.__globals__
    if any(_code_uses(code, scope, seen) for code in _codes(function.__code__)):
        return True
    return any(_is_user_of_ops(cell, seen) for cell in function.__closure__ or ())


def _names_a_module(function: Any) -> bool:
    """Whether a function names a module for which something stands, or something of it."""
    scope = function.__globals__
    names = {name for code in _codes(function.__code__) for name in code.co_names}
    return any(stand_in(name, scope[name], ()) is not scope[name] for name in names if name in scope)


def _is_user_of_ops(cell: types.CellType, seen: set[int] | None = None) -> bool:
    """Whether a closure cell holds a plain function that uses `rlweave.ops`."""
    try:
        value = cell.cell_contents
    except ValueError:  # not filled yet
        return False
    return isinstance(value, types.FunctionType) and uses_ops(value, seen)


def _code_uses(code: types.CodeType, scope: dict[str, Any], seen: set[int]) -> bool:
    for name in code.co_names:
        value = scope.get(name)
        if value is vocabulary or (isinstance(value, types.FunctionType) and uses_ops(value, seen)):
            return True
    return False


def _codes(code: types.CodeType) -> list[types.CodeType]:
    found = [code]
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found += _codes(constant)
    return found


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


# -- random numbers ----------------------------------------------------------------------------------------------


def random_parts(backend: Backend, rng: str) -> tuple[Any, Any]:
    """(class of the random source, its module) of a backend in a random mode."""
    if rng == "portable":
        from rlweave.backends import portable_random

        return None, portable_random
    if rng != "fast":
        raise BuildError("unknown random mode", received=f"rng={rng!r}", fix='use "fast" or "portable"')
    module = backend.random_module()
    return module.FastRandom, module


def scratch_state(backend: Backend, rng: str) -> Any:
    """A random state for abstract evaluation."""
    return initial_random_state(backend, rng, 0)


def initial_random_state(backend: Backend, rng: str, seed: int) -> Any:
    """The random state of a new executor."""
    _, module = random_parts(backend, rng)
    state = module.initial_state(seed)
    return backend.from_numpy(state) if rng == "portable" else state


def make_binder(
    backend: Backend,
    rng: str,
    cell: Any,
    float_dtype: str = "float32",
    device: str | None = None,
    draws_on_cpu: bool = False,
    arrays: tuple[type, ...] = (),
) -> Binder:
    """A binder whose ops draw random numbers from a cell, and make new arrays on a device (torch).

    Args:
        backend: What computes.
        rng: Random mode.
        cell: Holds the random state.
        float_dtype: As in `bind_ops`.
        device: Where new arrays are put.
        draws_on_cpu: The random state stays on the CPU for several devices; numbers are drawn there, and moved.
        arrays: As in `Binder`.
    """
    source, module = random_parts(backend, rng)
    device = device if backend.creates_on_cpu else None
    if source is None and device is not None and not draws_on_cpu:
        ops = bind_ops(backend.ops, None, float_dtype, device)
        ops.random = module.PortableRandom(ops, cell)
    else:
        random = source(cell) if source is not None else backend.portable_random(cell)
        ops = bind_ops(backend.ops, random, float_dtype, device)
    return Binder(ops, keep_module_names=not backend.reads_bytecode, arrays=arrays)
