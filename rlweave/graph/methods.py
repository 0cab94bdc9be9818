"""API methods as attributes of an executor: lowered when first called, once for each set of static arguments."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Protocol

from rlweave.errors import ExecutionError
from rlweave.graph.decorators import describe


class Programs(Protocol):
    """What methods ask of their executor."""

    @property
    def root(self) -> Any:
        """The root component."""

    def program(self, name: str, static: Mapping[str, Any] | None = None) -> Any:
        """The lowered program of a method, made on first use."""


class ArgumentsError(ExecutionError, TypeError):
    """An API method was called with the wrong number or the wrong names of arguments."""


class LazyMethod:
    """An API method that has not been called yet: lowers on the first call and replaces itself."""

    def __init__(self, executor: Programs, name: str) -> None:
        self._executor, self._name = executor, name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        entry = self._executor.program(self._name).entry
        _check_arguments(self._executor, self._name, entry, args, kwargs)
        object.__setattr__(self._executor, self._name, entry)
        return entry(*args, **kwargs)


class StaticMethod:
    """An API method with static arguments: one program per combination."""

    def __init__(self, executor: Programs, name: str, declared: Any) -> None:
        self._executor, self._name, self._declared = executor, name, declared
        self._entries: dict[tuple[Any, ...], Any] = {}
        self._static = declared.static
        self._first = min(declared.parameters.index(parameter) for parameter in declared.static)
        self._defaults = {
            p: declared.signature.parameters[p].default
            for p in declared.static
            if declared.signature.parameters[p].default is not declared.signature.empty
        }

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if len(args) > self._first:
            args, kwargs = self._by_name(args, kwargs)
        try:
            values = [kwargs.pop(p) if p in kwargs else self._defaults[p] for p in self._static]
            key = tuple([(value.__class__, value) for value in values])
            entry = self._entries.get(key)
        except KeyError as error:
            raise ArgumentsError(
                f"static argument {error.args[0]!r} is missing", where=self._where, fix=f"pass {error.args[0]}=..."
            ) from None
        except TypeError:
            raise ExecutionError(
                "a static argument cannot be looked up by its value",
                where=self._where,
                received=describe(tuple(values)),
                fix="pass a number, a text or a tuple of them; arrays are no static arguments",
            ) from None
        if entry is None:
            static = dict(zip(self._static, values, strict=True))
            entry = self._executor.program(self._name, static).entry
            _check_arguments(self._executor, self._name, entry, args, kwargs)
            self._entries[key] = entry
        return entry(*args, **kwargs)

    @property
    def _where(self) -> str:
        return f"{self._executor.root.path}.{self._name}"

    def _by_name(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Positional arguments by name, where static ones are among them."""
        names = self._declared.parameters
        given = dict(zip(names, args, strict=False))
        twice = [name for name in given if name in kwargs]
        if len(args) > len(names) or twice:
            what = f"argument {twice[0]!r} was given twice" if twice else f"{len(args)} arguments were given"
            raise ArgumentsError(f"wrong arguments: {what}", where=self._where, fix=f"its parameters are {list(names)}")
        return (), {**given, **kwargs}


def _check_arguments(executor: Programs, name: str, entry: Any, args: Any, kwargs: Any) -> None:
    """Explains wrong arguments, until the first right call; later ones get Python's own error."""
    signature = inspect.signature(entry)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        names = [p.name for p in signature.parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
        raise ArgumentsError(
            f"wrong arguments: {error}",
            where=f"{executor.root.path}.{name}",
            received=", ".join([describe(a) for a in args] + [f"{k}={describe(v)}" for k, v in kwargs.items()]),
            fix=f"its parameters are {names}",
        ) from None
