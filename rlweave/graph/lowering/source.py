"""Source files of generated code: names, lines, and the texts of expressions."""

from __future__ import annotations

import functools
import keyword
import linecache
import re
from collections.abc import Callable, Sequence
from typing import Any

from rlweave.graph.ir import Structure, Value
from rlweave.tree import map_with_key


@functools.lru_cache(maxsize=65536)
def identifier(text: str) -> str:
    """A Python name from a path."""
    name = re.sub(r"\W+", "_", text).strip("_") or "value"
    return f"{name}_" if keyword.iskeyword(name) or name[0].isdigit() else name


class Names:
    """Names of one source file: what values are called, and the global objects of the generated functions."""

    def __init__(self) -> None:
        self.taken: set[str] = set()
        self.objects: dict[str, Any] = {}
        self._known: dict[int, tuple[Any, str]] = {}
        self._last: dict[str, int] = {}

    def fresh(self, text: str) -> str:
        name = base = identifier(text)
        if name in self.taken:
            number = self._last.get(base, 1)
            while name in self.taken:
                number += 1
                name = f"{base}_{number}"
            self._last[base] = number
        self.taken.add(name)
        return name

    def constant(self, text: str, value: Any) -> str:
        """The name of a global object."""
        if id(value) in self._known:
            return self._known[id(value)][1]
        name = self.fresh(text)
        self.objects[name] = value
        self._known[id(value)] = (value, name)
        return name


class Writer:
    """Lines of one source file."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.indent = 0

    def line(self, text: str = "") -> None:
        self.lines.append("    " * self.indent + text if text else "")

    def source(self) -> str:
        return "\n".join(self.lines) + "\n"


def register_source(filename: str, source: str) -> None:
    """Shows generated code to tracebacks and debuggers."""
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)


def leaves_in_source(holder: str, structure: Structure, literal: Callable[[Any], str]) -> list[tuple[str, Value]]:
    """The values of a nested structure, each with the expression that takes it out of the variable that holds all."""
    found: list[tuple[str, Value]] = []

    def note(key: tuple[Any, ...], leaf: Any) -> None:
        if isinstance(leaf, Value):
            found.append((holder + "".join(f"[{literal(part)}]" for part in key), leaf))

    map_with_key(note, structure)
    return found


def tuple_text(items: Sequence[str]) -> str:
    """A tuple display of expressions."""
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"


def short_name(label: str) -> str:
    """`dense_0_call` for `policy/dense-0._call`: what a bound graph function is called."""
    path, _, function = label.rpartition(".")
    parts = [part for part in path.split("/") if part]
    return identifier("_".join([*parts[-1:], function.lstrip("_")]))


def result_name(label: str) -> str:
    """`dense_0` for `policy/dense-0.call`, `loss` for `dqn._loss`."""
    path, _, function = label.rpartition(".")
    function = function.lstrip("_")
    return identifier(path.rpartition("/")[2] if function in ("call", "") else function)
