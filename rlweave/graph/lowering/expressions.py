"""What every writer of generated code shares: the expressions of values, cells, and lines that name results."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from rlweave.graph.ir import Node, Structure, Value
from rlweave.graph.lowering.linking import Linker
from rlweave.graph.lowering.source import Names, Writer, leaves_in_source, result_name
from rlweave.tree import leaves_of

#: Up to so many cells are written out one by one; more are a named tuple of cells.
INLINE_CELLS = 8


class Expressions(ABC):
    """The expressions of values in one block of lines.

    Args:
        linker: Knows the objects behind names.
        names: Names of the file.
        out: Where lines go.
    """

    def __init__(self, linker: Linker, names: Names, out: Writer) -> None:
        self.linker, self.names, self.out = linker, names, out
        #: By identity of a value, and by identity of a node whose nested result one variable holds.
        self.expressions: dict[int, str] = {}
        self.containers: dict[int, str] = {}
        self.parameters: dict[str, Structure] = {}
        self.inplace_paths: set[str] = set()
        self.aliased_paths: set[str] = set()
        #: Values that are used after the block.
        self.escaping: set[int] = set()
        #: Whether what is written now lies on the path of a gradient further out.
        self.in_outer_path = False

    @abstractmethod
    def node(self, node: Node, donate: bool = False) -> None:
        """Writes one node."""

    @abstractmethod
    def block(self, nodes: Sequence[Node]) -> None:
        """Writes the nodes of a block in an order that gives the same results as program order."""

    def expression(self, structure: Structure) -> str:
        """The expression of a nested argument."""
        if isinstance(structure, Value):
            return self.expressions[id(structure)]
        if isinstance(structure, (dict, tuple, list)):
            whole = self.whole(structure)
            if whole is not None:
                return whole
        if isinstance(structure, dict):
            if len(structure) > 3:
                return self._wide_dict(structure)
            items = ", ".join(f"{self.literal(key)}: {self.expression(value)}" for key, value in structure.items())
            return "{" + items + "}"
        if isinstance(structure, tuple) and hasattr(structure, "_fields"):
            fields = ", ".join(self.expression(item) for item in structure)
            return f"{self.names.constant(type(structure).__name__, type(structure))}({fields})"
        if isinstance(structure, tuple):
            items = ", ".join(self.expression(item) for item in structure)
            return f"({items},)" if len(structure) == 1 else f"({items})"
        if isinstance(structure, list):
            return "[" + ", ".join(self.expression(item) for item in structure) + "]"
        return self.literal(structure)

    def _wide_dict(self, structure: dict[Any, Any]) -> str:
        inner = "    " * (self.out.indent + 1)
        lines = [f"{inner}{self.literal(key)}: {self.expression(value)}," for key, value in structure.items()]
        return "{\n" + "\n".join(lines) + "\n" + "    " * self.out.indent + "}"

    def literal(self, value: Any) -> str:
        """The text of a constant: a literal, or the name of a global object."""
        # exact types: an enum or a NumPy number is an int, str or float whose repr is no literal
        if value is None or type(value) in (bool, int, str):
            return repr(value)
        if type(value) is float and value == value and abs(value) != float("inf"):
            return repr(value)
        return self.names.constant(type(value).__name__, value)

    def whole(self, structure: Structure) -> str | None:
        """The variable that already holds exactly this nesting, if there is one."""
        values = list(leaves_of(structure, Value))
        if not values:
            return None
        node, name = values[0].node, values[0].name
        source = node.result if node is not None else self.parameters.get(name)
        holder = self.containers.get(id(node)) if node is not None else name
        if holder is None or source is None or not _same_nesting(source, structure):
            return None
        # a leaf that was renamed since (a copy, the argument of a segment) is not what the holder has
        intact = all(self.expressions[id(value)].startswith(f"{holder}[") for value in values)
        return holder if intact else None

    def assign(self, node: Node, call: str) -> None:
        """Writes the line that gives names to the results of a node."""
        result = node.result
        last = result_name(node.label)
        if not node.values():
            self.out.line(call)
        elif isinstance(result, Value):
            name = self.names.fresh(last)
            self.expressions[id(result)] = name
            self.out.line(f"{name} = {call}")
        elif isinstance(result, tuple) and result and all(isinstance(item, Value) for item in result):
            names = [self.names.fresh(f"{last}_{i}") for i in range(len(result))]
            for value, name in zip(result, names, strict=True):
                self.expressions[id(value)] = name
            self.out.line(f"{', '.join(names)}{',' if len(names) == 1 else ''} = {call}")
        else:
            name = self.names.fresh(last)
            self.containers[id(node)] = name
            self.name_leaves(result, name)
            self.out.line(f"{name} = {call}")

    def name_leaves(self, structure: Structure, holder: str) -> None:
        """Notes that one variable holds all values of a nested structure."""
        self.expressions.update({id(v): text for text, v in leaves_in_source(holder, structure, self.literal)})

    def cell(self, path: str, host: bool = False) -> str:
        """The name of the cell of a variable."""
        return self.names.constant(f"c_{path}", self.linker.working_cell(path, host))

    def cells(self, paths: Sequence[str]) -> str:
        """A tuple of cells, or the name of one."""
        if len(paths) > INLINE_CELLS:
            return self.names.constant("cells", tuple(self.linker.working_cell(path, False) for path in paths))
        items = ", ".join(self.cell(path) for path in paths)
        return f"({items},)" if len(paths) == 1 else f"({items})"


def _same_nesting(source: Structure, structure: Structure) -> bool:
    if isinstance(source, Value) or isinstance(structure, Value):
        return source is structure
    if isinstance(source, dict):
        return (
            isinstance(structure, dict)
            and list(source) == list(structure)
            and all(_same_nesting(source[key], structure[key]) for key in source)
        )
    if isinstance(source, (tuple, list)):
        return (
            type(structure) is type(source)
            and len(structure) == len(source)
            and all(_same_nesting(a, b) for a, b in zip(source, structure, strict=True))
        )
    return source is structure
