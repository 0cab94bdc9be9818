"""What a graph function's code names that lies outside of the graph: random generators, clocks, globals, attributes."""

from __future__ import annotations

import datetime
import dis
import os
import random
import time
import types
from collections.abc import Iterator
from typing import Any

import numpy as np

from rlweave.backends.base import is_user_file
from rlweave.graph import Component
from rlweave.graph.decorators import ApiMethod, GraphFunction
from rlweave.graph.ir import Call
from rlweave.graph.variable import Variable

_MODULES = (np.random, random, time, datetime, os)
_GENERATORS = (np.random.Generator, np.random.RandomState, np.random.BitGenerator, random.Random)
_CONSTANTS = (bool, int, float, complex, str, bytes, type(None), tuple, frozenset, np.generic, np.dtype)
_LOADS = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
_STORES = frozenset({"STORE_ATTR", "DELETE_ATTR"})
#: Methods that run before a graph is built.
_BEFORE = ("__init__", "create_variables")

Names = tuple[str, ...]


def outside_name(function: Any, owner: Any = None) -> str:
    """What a function most likely reads from outside: "np.random.normal", "the global STATE"; "" if nothing is seen.

    Args:
        function: A plain function.
        owner: The component whose method it is.
    """
    found = sorted(_outside(function, owner, set()), key=lambda pair: not pair[0])
    return found[0][1] if found else ""


def draws_elsewhere(function: Any, owner: Any = None) -> str:
    """The generator of NumPy or Python that a function makes or uses; "" for none."""
    names = (name for strong, name in _outside(function, owner, set()) if strong)
    return next((name for name in names if "random" in name.lower() or "rng" in name.lower()), "")


def _outside(function: Any, owner: Any, seen: set[int]) -> Iterator[tuple[bool, str]]:
    """(whether it is a generator or a clock, name) of everything, in the order of the code."""
    if not isinstance(function, types.FunctionType) or id(function) in seen or len(seen) > 30:
        return
    seen.add(id(function))
    if not is_user_file(function.__code__.co_filename):
        return
    scope = function.__globals__
    local = _imported(function.__code__)
    for root, names in _chains(function.__code__):
        if root == "self" and names and owner is not None:
            yield from _of_attribute(owner, names, seen)
        elif root in local or root in scope:
            yield from _of_global((root, *names), local.get(root, scope.get(root)), owner, seen)
    for name in _stored_globals(function.__code__):
        yield False, f"the global {name}"


def _of_global(names: Names, value: Any, owner: Any, seen: set[int]) -> Iterator[tuple[bool, str]]:
    text = ".".join(names)
    for name in (*names[1:], None):
        if any(value is module for module in _MODULES) or _is_source(value):
            yield True, text
            return
        if name is None or not isinstance(value, types.ModuleType) or not hasattr(value, name):
            break
        value = getattr(value, name)
    if isinstance(value, types.FunctionType):
        yield from _outside(value, None, seen)
    elif _may_change(value):
        yield False, f"the global {names[0]}"


def _of_attribute(owner: Any, names: Names, seen: set[int]) -> Iterator[tuple[bool, str]]:
    value = owner.__dict__.get(names[0], getattr(type(owner), names[0], None))
    if isinstance(value, GraphFunction):
        value = value.function
    if isinstance(value, property):
        value = value.fget
    if isinstance(value, types.FunctionType):
        yield from _outside(value, owner, seen)
    elif _is_source(value):
        yield True, ".".join(("self", *names))
    elif names[0] in owner.__dict__ and _may_change(value):
        yield False, f"the attribute self.{names[0]}"


def _is_source(value: Any) -> bool:
    """Whether it is a generator, or a function that draws or looks at a clock."""
    if isinstance(value, _GENERATORS):
        return True
    if isinstance(value, types.BuiltinFunctionType | types.MethodType):
        module = getattr(value, "__module__", None) or ""
        return isinstance(value.__self__, _GENERATORS) or module == "time" or module.startswith("numpy.random")
    return False


def _may_change(value: Any) -> bool:
    """Whether it is data that code may change."""
    known = (*_CONSTANTS, type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType)
    return not callable(value) and not isinstance(value, (*known, Component, Variable, ApiMethod, GraphFunction))


def _chains(code: types.CodeType) -> Iterator[tuple[str, Names]]:
    """Each name that code loads, with the attributes that it asks for next."""
    root, names = "", []
    for instruction in dis.get_instructions(code):
        name = str(instruction.argval)
        if instruction.opname in _LOADS and root:
            names.append(name)
            continue
        if root:
            yield root, tuple(names)
        root, names = "", []
        if instruction.opname.startswith(("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FAST", "LOAD_DEREF")):
            root = name
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _chains(constant)


def _imported(code: types.CodeType) -> dict[str, Any]:
    """The modules of `_MODULES` that a function imports itself, by local name."""
    known = {module.__name__: module for module in (*_MODULES, np)}
    found = {}
    module: Any = None
    for instruction in dis.get_instructions(code):
        if instruction.opname == "IMPORT_NAME":
            module = known.get(instruction.argval)
        elif instruction.opname == "IMPORT_FROM" and module is not None:
            found[instruction.argval] = getattr(module, instruction.argval, None)
        elif instruction.opname == "STORE_FAST" and module is not None:
            found.setdefault(instruction.argval, module)
            module = None
    return found


def _stored_globals(code: types.CodeType) -> list[str]:
    return [i.argval for i in dis.get_instructions(code) if i.opname == "STORE_GLOBAL"]


def changed_attribute(node: Call) -> tuple[str, str] | None:
    """An attribute that a graph function reads and a method sets that is called after the build: (name, method)."""
    component = node.component
    if component is None or node.plain:
        return None
    setters = _setters(type(component))
    for name in attributes_read(node.function):
        if name in setters and not isinstance(component.__dict__.get(name), Variable | Component):
            return name, setters[name]
    return None


def changeable_global(function: Any, owner: Any, seen: frozenset[int] = frozenset()) -> str:
    """A global dict of numbers that a graph function reads, or a method or function that it calls; "" for none."""
    if not isinstance(function, types.FunctionType) or id(function) in seen:
        return ""
    if not is_user_file(function.__code__.co_filename):
        return ""
    for root, names in _chains(function.__code__):
        value = function.__globals__.get(root)
        if isinstance(value, dict) and value and all(isinstance(x, int | float) for x in value.values()):
            return root
        called = getattr(type(owner), names[0], None) if root == "self" and names else value
        called = called.function if isinstance(called, GraphFunction) else called
        found = changeable_global(called, owner, seen | {id(function)})
        if found:
            return found
    return ""


def attributes_read(function: Any) -> list[str]:
    """Names of the attributes of `self` that a method reads."""
    return [names[0] for root, names in _chains(function.__code__) if root == "self" and names]


def _setters(cls: type) -> dict[str, str]:
    """The attributes that methods of a class set once it is built, with one of these."""
    methods: dict[str, Any] = {}
    for base in reversed([base for base in cls.__mro__ if base not in Component.__mro__]):
        for name, member in vars(base).items():
            methods[name] = member.function if isinstance(member, ApiMethod) else member
            if isinstance(member, property) and member.fset is not None:
                methods[name] = member.fset
    functions = {name: member for name, member in methods.items() if isinstance(member, types.FunctionType)}
    before, waiting = set(), [*_BEFORE]
    while waiting:
        name = waiting.pop()
        if name in functions and name not in before:
            before.add(name)
            waiting += functions[name].__code__.co_names
    found = {}
    for name, function in functions.items():
        if name not in before:
            stored = (i for i in dis.get_instructions(function) if i.opname in _STORES)
            found.update({i.argval: name for i in stored})
    return found
