"""The small edits that a mutation test makes in a source file: found in its syntax tree, made in its text.

Each mutant is one edit of the text, so that everything else stays as it was, line numbers included. Errors, docstrings,
type hints and what `setting(...)` declares are left alone: their text is no behaviour of a graph.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tools.mutation.slips import BINARY, COMMUTATIVE, COMPARISONS, FUNCTIONS, LEFT_OUT, RENAMED

_NOT_BEHAVIOUR = {"repr", "__repr__", "__str__", "__all__", "explain", "describe"}
_ANNOTATED = {"annotation", "returns"}


@dataclass(frozen=True)
class Mutant:
    """One edit of one file.

    Args:
        file: Path from the root of the repository.
        line: Line of the edit.
        function: Qualified name of the function, class or "" for the module.
        kind: What kind of slip it is.
        before: The lines of the edit, stripped.
        after: What they become.
        occurrence: Which of the equal edits in this function it is, from 0.
        start: Where the edit begins in the text, in characters.
        end: Where it ends.
        text: What stands there instead.
    """

    file: str
    line: int
    function: str
    kind: str
    before: str
    after: str
    occurrence: int
    start: int
    end: int
    text: str

    @property
    def id(self) -> str:
        """Ten characters that stay while the function has these lines, wherever they move in the file."""
        key = "\0".join((self.file, self.function, self.before, self.after, str(self.occurrence)))
        return hashlib.sha1(key.encode(), usedforsecurity=False).hexdigest()[:10]

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What it is to a reader: the file, the function, and the lines before and after."""
        return self.file, self.function, self.before, self.after

    def apply(self, source: str) -> str:
        """The text of the file with the edit in it."""
        return source[: self.start] + self.text + source[self.end :]


def mutants_of(file: str, source: str, graph_only: bool = False) -> list[Mutant]:
    """All mutants of a file, in the order of the text; a few do not compile.

    Args:
        file: Path from the root of the repository.
        source: Its text.
        graph_only: Only methods of components (classes with API methods or graph functions), and the functions of the
            module that they call: in files that hold more than graphs.
    """
    finder = _Finder(file, source, graph_only)
    found: dict[tuple[int, int, str], Mutant] = {}
    counts: Counter[tuple[str, str, str]] = Counter()
    for function, kind, start, end, text in sorted(finder.edits(), key=lambda edit: (edit[2], edit[3], edit[4])):
        if (start, end, text) in found or source[start:end] == text:
            continue
        first, last = source.rfind("\n", 0, start) + 1, source.find("\n", end)
        before, after = source[first:last], source[first:start] + text + source[end:last]
        words = " ".join(before.split()), " ".join(after.split())
        mutant = Mutant(
            file, source.count("\n", 0, start) + 1, function, kind, *words, counts[function, *words], start, end, text
        )
        counts[function, *words] += 1
        found[start, end, text] = mutant
    return list(found.values())


def changes(mutant: Mutant, source: str) -> bool:
    """The file compiles with the edit, and is another program."""
    try:
        return ast.dump(ast.parse(mutant.apply(source))) != ast.dump(ast.parse(source))
    except SyntaxError:
        return False


def sample(mutants: Iterable[Mutant], source: str, count: int, seed: int) -> list[Mutant]:
    """At most `count` of the mutants of one file: each dropped `stop_gradient`, the rest evenly over kinds.

    No two are at one place. The order within a kind is that of hashes, so that a change of one function leaves most of
    the choice as it was.
    """
    by_kind: dict[str, list[Mutant]] = {}
    for mutant in mutants:
        by_kind.setdefault(mutant.kind, []).append(mutant)

    def rank(text: str) -> str:
        return hashlib.sha1(f"{seed}{text}".encode(), usedforsecurity=False).hexdigest()

    chosen = by_kind.pop("stop_gradient", [])[:count]
    queues = [sorted(by_kind[kind], key=lambda mutant: rank(mutant.id)) for kind in sorted(by_kind, key=rank)]
    places: set[tuple[int, int]] = set()
    while any(queues) and len(chosen) < count:
        for queue in queues:
            while queue and ((queue[0].start, queue[0].end) in places or not changes(queue[0], source)):
                queue.pop(0)
            if queue and len(chosen) < count:
                chosen.append(queue.pop(0))
                places.add((chosen[-1].start, chosen[-1].end))
    return sorted(chosen, key=lambda mutant: (mutant.start, mutant.end, mutant.text))


Edit = tuple[str, str, int, int, str]


class _Finder:
    """Walks a file and yields its edits: (function, kind, start, end, text)."""

    def __init__(self, file: str, source: str, graph_only: bool) -> None:
        self.source = source
        self.tree = ast.parse(source)
        self.lines = [0]
        for line in source.splitlines(keepends=True):
            self.lines.append(self.lines[-1] + len(line))
        self.graph_only = graph_only
        self.functions: set[str] = set()
        if graph_only:
            graphs = [node for node in self.tree.body if isinstance(node, ast.ClassDef) and _is_component(node)]
            self.functions = {n.id for graph in graphs for n in ast.walk(graph) if isinstance(n, ast.Name)}
        self.path: list[str] = []
        self.names: list[set[str]] = [set()]

    def edits(self) -> Iterator[Edit]:
        for node in self.tree.body:
            if self.graph_only:
                graph = isinstance(node, ast.ClassDef) and _is_component(node)
                if not graph and not (isinstance(node, ast.FunctionDef) and node.name in self.functions):
                    continue
            for kind, start, end, text in self._visit(node):
                yield (*self._where(start), kind, start, end, text)

    def _where(self, start: int) -> tuple[str]:
        """Qualified name of the innermost function or class around a place."""
        names: list[str] = []
        nodes: list[ast.stmt] = self.tree.body
        while True:
            for node in nodes:
                if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                    first = min([node, *node.decorator_list], key=lambda n: n.lineno)
                    if self._offset(first.lineno, first.col_offset) <= start < self._span(node)[1]:
                        names.append(node.name)
                        nodes = node.body
                        break
            else:
                return (".".join(names),)

    def _offset(self, line: int, column: int) -> int:
        begin = self.lines[line - 1]
        text = self.source[begin : self.lines[line]]
        return begin + len(text.encode()[:column].decode())

    def _span(self, node: ast.AST) -> tuple[int, int]:
        return (
            self._offset(node.lineno, node.col_offset),  # type: ignore[attr-defined]
            self._offset(node.end_lineno, node.end_col_offset),  # type: ignore[attr-defined]
        )

    def _text(self, node: ast.AST) -> str:
        start, end = self._span(node)
        return self.source[start:end]

    def _visit(self, node: ast.AST, field: str = "") -> Iterator[tuple[str, int, int, str]]:
        if field in _ANNOTATED or _is_no_behaviour(node):
            return
        scoped = isinstance(node, (ast.FunctionDef, ast.ClassDef))
        if scoped:
            self.names.append(_names(node))
        yield from getattr(self, f"_edit_{type(node).__name__.lower()}", lambda node: ())(node)
        for name, value in ast.iter_fields(node):
            if isinstance(node, ast.Subscript) and name == "slice":
                yield from self._indices(node.slice)
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST) and _integer(node) is None and not _is_docstring(child, node):
                    yield from self._visit(child, name)
        if scoped:
            self.names.pop()

    # -- operators -----------------------------------------------------------------------------------------------

    def _between(self, left: ast.AST, right: ast.AST, token: str, new: str) -> Iterator[tuple[int, int, str]]:
        """The token between two expressions."""
        start, end = self._span(left)[1], self._span(right)[0]
        pattern = re.escape(token).replace(r"\ ", r"\s+")
        pattern = rf"\b{pattern}\b" if token[0].isalpha() else rf"(?<![*/<>=!]){pattern}(?![*/<>=])"
        if match := re.search(pattern, self.source[start:end]):
            yield start + match.start(), start + match.end(), new

    def _edit_binop(self, node: ast.BinOp) -> Iterator[tuple[str, int, int, str]]:
        if type(node.op) in BINARY:
            for edit in self._between(node.left, node.right, *BINARY[type(node.op)]):
                yield "operator", *edit

    def _edit_augassign(self, node: ast.AugAssign) -> Iterator[tuple[str, int, int, str]]:
        if type(node.op) in BINARY:
            old, new = BINARY[type(node.op)]
            start, end = self._span(node.target)[1], self._span(node.value)[0]
            place = self.source.index(f"{old}=", start, end)
            yield "operator", place, place + len(old), new

    def _edit_unaryop(self, node: ast.UnaryOp) -> Iterator[tuple[str, int, int, str]]:
        start, _ = self._span(node)
        if _integer(node) is not None:
            for other in (_integer(node) + 1, _integer(node) - 1):
                yield "constant", *self._span(node), str(other)
        elif isinstance(node.op, ast.USub):
            yield "operator", start, start + 1, ""
        elif isinstance(node.op, ast.Not):
            yield "negation", start, start + len("not "), ""

    def _edit_compare(self, node: ast.Compare) -> Iterator[tuple[str, int, int, str]]:
        sides = [node.left, *node.comparators]
        for left, op, right in zip(sides, node.ops, node.comparators, strict=False):
            old, others = COMPARISONS[type(op)]
            for new in others:
                for edit in self._between(left, right, old, new):
                    yield "comparison", *edit

    def _edit_boolop(self, node: ast.BoolOp) -> Iterator[tuple[str, int, int, str]]:
        old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:], strict=False):
            for edit in self._between(left, right, old, new):
                yield "operator", *edit

    # -- conditions and flags ------------------------------------------------------------------------------------

    def _negated(self, test: ast.expr) -> Iterator[tuple[str, int, int, str]]:
        plain = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
        if not plain and not (isinstance(test, ast.Compare) and isinstance(test.ops[0], (ast.Is, ast.IsNot))):
            start, end = self._span(test)
            yield "negation", start, end, f"(not ({self.source[start:end]}))"

    def _edit_ifexp(self, node: ast.IfExp) -> Iterator[tuple[str, int, int, str]]:
        yield from self._negated(node.test)

    def _edit_if(self, node: ast.If) -> Iterator[tuple[str, int, int, str]]:
        if not isinstance(node.body[-1], ast.Raise):  # what raises always is found at once
            yield from self._negated(node.test)

    def _edit_constant(self, node: ast.Constant) -> Iterator[tuple[str, int, int, str]]:
        start, end = self._span(node)
        value = node.value
        if isinstance(value, bool):
            yield "flag", start, end, str(not value)
        elif isinstance(value, int):
            yield "constant", start, end, str(value + 1)
            if value:
                yield "constant", start, end, str(value - 1)
        elif isinstance(value, float):
            yield "constant", start, end, _other_float(value)
        elif isinstance(value, str):
            for other in RENAMED.get(value, ()):
                yield "name", start, end, f'"{other}"'

    # -- indices -------------------------------------------------------------------------------------------------

    def _indices(self, index: ast.expr) -> Iterator[tuple[str, int, int, str]]:
        for part in index.elts if isinstance(index, ast.Tuple) else [index]:
            for bound in [part.lower, part.upper] if isinstance(part, ast.Slice) else [part]:
                if isinstance(bound, ast.Slice) or bound is None:
                    continue
                if _integer(bound) is not None or isinstance(part, ast.Slice):
                    start, end = self._span(bound)
                    value = _integer(bound)
                    yield "index", start, end, f"{self._text(bound)} + 1" if value is None else str(value + 1)
                    if isinstance(part, ast.Slice):
                        yield "index", start, end, ""

    # -- calls ---------------------------------------------------------------------------------------------------

    def _edit_call(self, node: ast.Call) -> Iterator[tuple[str, int, int, str]]:
        name = _called(node)
        place = self._span(node.func)[1] - len(name)
        if name in FUNCTIONS and (_is_of(node, "ops") or name in ("min", "max", "any", "all")):
            yield "function", place, place + len(name), FUNCTIONS[name]
        if name in LEFT_OUT and node.args and (_is_of(node, "ops") or name == "stop_gradient"):
            kind = "stop_gradient" if name == "stop_gradient" else "left out"
            yield kind, *self._span(node), f"({self._text(node.args[0])})"
        if name not in COMMUTATIVE | {"isinstance", "getattr", "setattr", "range", "zip", "cast"}:
            for one, other in zip(node.args, node.args[1:], strict=False):
                if not _same_sort(one, other):
                    continue
                start, end = self._span(one)[0], self._span(other)[1]
                gap = self.source[self._span(one)[1] : self._span(other)[0]]
                yield "arguments", start, end, f"{self._text(other)}{gap}{self._text(one)}"

    def _edit_expr(self, node: ast.Expr) -> Iterator[tuple[str, int, int, str]]:
        if isinstance(node.value, ast.Call) and "super()" not in self._text(node):
            yield "left out", *self._span(node), "pass"

    # -- names ---------------------------------------------------------------------------------------------------

    def _edit_name(self, node: ast.Name) -> Iterator[tuple[str, int, int, str]]:
        if isinstance(node.ctx, ast.Load):
            known = set().union(*self.names)
            for other in RENAMED.get(node.id, ()):
                if other in known:
                    yield "name", *self._span(node), other

    def _edit_attribute(self, node: ast.Attribute) -> Iterator[tuple[str, int, int, str]]:
        if isinstance(node.ctx, ast.Load):
            known = set().union(*self.names)
            for other in RENAMED.get(node.attr, ()):
                if f".{other}" in known:
                    end = self._span(node)[1]
                    yield "name", end - len(node.attr), end, other


def _is_component(node: ast.ClassDef) -> bool:
    """It has API methods or graph functions, or its name says that it is a graph."""
    decorators = [
        decorator.func if isinstance(decorator, ast.Call) else decorator
        for method in node.body
        if isinstance(method, ast.FunctionDef)
        for decorator in method.decorator_list
    ]
    return node.name.endswith("Graph") or any(getattr(d, "id", "") in ("api", "graph_fn") for d in decorators)


def _is_docstring(node: ast.AST, owner: ast.AST) -> bool:
    body = getattr(owner, "body", None)
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and body is not None


def _is_no_behaviour(node: ast.AST) -> bool:
    """Errors, warnings, settings, assertions, text, imports."""
    if isinstance(node, (ast.Raise, ast.Assert, ast.JoinedStr, ast.Import, ast.ImportFrom)):
        return True
    if getattr(node, "name", getattr(node, "arg", None)) in _NOT_BEHAVIOUR:
        return True
    if getattr(getattr(node, "test", None), "id", "") == "TYPE_CHECKING":
        return True
    if isinstance(node, ast.Assign) and any(getattr(target, "id", "") in _NOT_BEHAVIOUR for target in node.targets):
        return True
    return isinstance(node, ast.Call) and (_called(node).endswith("Error") or _called(node) in ("setting", "warn"))


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _is_of(node: ast.Call, module: str) -> bool:
    return isinstance(node.func, ast.Attribute) and getattr(node.func.value, "id", "") == module


def _names(scope: ast.AST) -> set[str]:
    """Names that a function or class binds; attributes of self with a dot."""
    found = {node.arg for node in ast.walk(scope) if isinstance(node, ast.arg)}
    found |= {n.id for n in ast.walk(scope) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return found | {f".{n.attr}" for n in ast.walk(scope) if isinstance(n, ast.Attribute)}


def _integer(node: ast.expr | None) -> int | None:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _integer(node.operand)
        return None if inner is None else -inner
    return node.value if isinstance(node, ast.Constant) and type(node.value) is int else None


def _same_sort(one: ast.expr, other: ast.expr) -> bool:
    """Swapping them is a slip that someone makes: both are constants, or neither is."""
    fixed = (ast.Constant, ast.Tuple, ast.List, ast.Dict, ast.JoinedStr, ast.Lambda)
    if isinstance(one, ast.Starred) or isinstance(other, ast.Starred) or ast.dump(one) == ast.dump(other):
        return False
    literal = [isinstance(node, fixed) or _integer(node) is not None for node in (one, other)]
    return literal[0] == literal[1]


def _other_float(value: float) -> str:
    if value in (0.0, 1.0):
        return str(1.0 - value)
    return repr(value * 1000.0) if abs(value) < 1e-3 else repr(value * 2.0)
