"""Lowering: a graph becomes one flat, readable Python function, which is the object that runs."""

from __future__ import annotations

import functools
import keyword
import linecache
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlweave.errors import BuildError
from rlweave.graph.ir import (
    RANDOM,
    RANDOM_PATHS,
    Call,
    Cond,
    Gradients,
    Graph,
    Node,
    Scan,
    Structure,
    Transfer,
    Value,
    VMap,
    While,
    all_nodes,
    gradients_of,
    unique,
)
from rlweave.graph.passes.ordering import Piece, pieces, tape_order
from rlweave.graph.trace import same
from rlweave.graph.variable import VariableCollection
from rlweave.tree import has_leaf, leaves_of, map_with_key, tree_map

#: Up to so many cells are written out one by one; more are a named tuple of cells.
INLINE_CELLS = 8


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


class BlockWriter:
    """Writes nodes as lines.

    Args:
        executor: What binds nodes and knows the cells.
        names: Names of the file.
        out: Where lines go.
        functional: Gradients by vjp of segments (JAX, compiled torch) or by the backend's tape.
    """

    def __init__(self, executor: Any, names: Names, out: Writer, functional: bool) -> None:
        self.executor, self.names, self.out, self.functional = executor, names, out, functional
        self.expressions: dict[int, str] = {}
        self.containers: dict[int, str] = {}
        self.parameters: dict[str, Structure] = {}
        self.inplace_paths: set[str] = set()
        self.aliased_paths: set[str] = set()
        self._outer_gradients = False
        self._outer_path = False
        self._in_vmap = False
        #: Whether bodies of loops are compiled, and so not what is around them (compiled torch).
        self.compiles_bodies = False
        self._escaping: set[int] = set()
        self._versions: dict[int, dict[str, int]] = {}
        self._wanted: dict[int, dict[str, list[int]]] = {}
        self._pulls: dict[int, list[tuple[Piece, str, list[Value], list[str], list[Value]]]] = {}
        self._saved: dict[tuple[str, int], str] = {}

    # -- expressions ---------------------------------------------------------------------------------------------

    def expression(self, structure: Structure) -> str:
        """The expression of a nested argument."""
        if isinstance(structure, Value):
            return self.expressions[id(structure)]
        if isinstance(structure, (dict, tuple, list)):
            whole = self._whole(structure)
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

    def _whole(self, structure: Structure) -> str | None:
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

    # -- blocks --------------------------------------------------------------------------------------------------

    def block(self, nodes: Sequence[Node]) -> None:
        """Writes the nodes of a block in an order that nobody can tell from program order."""
        if self.functional:
            for item in pieces(nodes):
                if isinstance(item, Piece):
                    self.segment(item, nodes)
                else:
                    self.node(item)
            return
        ordered = tape_order(nodes)
        on_path = {id(n) for g in ordered if isinstance(g, Gradients) for n in g.path}
        tape = self.executor.backend.has_tape
        if tape:
            self._plan_versions(ordered)
        open_tape = False
        has_gradients = self._outer_gradients or bool(gradients_of(ordered))
        outer_gradients, outer_path = self._outer_gradients, self._outer_path
        tracked = {id(v): v for g in gradients_of(ordered) for v in g.by_values or ()} if tape else {}
        made = {id(v) for node in ordered for v in node.values()}
        before = {key: self.expressions[key] for key in tracked if key not in made}
        self._track([v for key, v in tracked.items() if key not in made])
        for position, node in enumerate(ordered):
            wanted = tape and id(node) in on_path
            if wanted and not open_tape:
                self.out.line("with enable_grad():")
                self.out.indent += 1
            elif open_tape and not wanted:
                self.out.indent -= 1
            open_tape = wanted
            if tape:
                self._save_versions(ordered, position)
            if isinstance(node, Gradients):
                self._tape_gradient(node, ordered, position)
            else:
                donate = tape and not outer_gradients and self._may_donate(node, ordered, position)
                self._outer_gradients, self._outer_path = has_gradients, outer_path or id(node) in on_path
                self.node(node, donate)
                self._outer_gradients, self._outer_path = outer_gradients, outer_path
            self._track([v for v in node.values() if id(v) in tracked])
        self.expressions.update(before)
        if open_tape:
            self.out.indent -= 1

    def _track(self, values: Sequence[Value]) -> None:
        """Makes values known to the tape, so that gradients can be taken by them."""
        for value in values:
            text = self.expressions[id(value)]
            self.expressions[id(value)] = self.names.fresh(identifier(text))
            self.out.line(f"{self.expressions[id(value)]} = tracked({text})")

    def node(self, node: Node, donate: bool = False) -> None:
        """Writes one node."""
        if isinstance(node, Gradients):
            self.pull_gradient(node)
        elif isinstance(node, Transfer):
            self._transfer(node)
        elif isinstance(node, Call):
            self._call_node(node, donate)
        else:
            self._assign(node, self._with_bodies(node))
            self._copy_what_is_written_in_place(node)

    def _call_node(self, node: Call, donate: bool) -> None:
        if node.function is same:
            self.expressions[id(node.result)] = self.expression(node.args[0])
            return
        call = self._call(node, donate)
        if node.host and node.values() and node.declared_spaces:
            cells = tuple(self.executor.working_cell(path, True) for path in node.reads if path not in RANDOM_PATHS)
            call = f"unshared({call}, {self.names.constant('cells', cells)})" if cells else call
        if not node.differentiable and self._outer_path:
            self._without_gradient(node, call)
        else:
            self._assign(node, call)
        self._copy_what_is_written_in_place(node)
        if self.executor.torch_compile:
            # what a cell keeps is a result of the compiled run, and a value inside a derivative cannot be one
            for path in node.substitution:
                self.out.line(f"{self._fast_cell(node, path)}.value = None")
        for path in node.aliased_writes:
            self.out.line(f"own({self.cell(path, node.host)})")

    def _copy_what_is_written_in_place(self, node: Node) -> None:
        if set(node.alias_variables) & self.inplace_paths:
            for value in node.values():
                name = self.names.fresh(self.expressions[id(value)])
                self.out.line(f"{name} = copy({self.expressions[id(value)]})  # its variable is written in place")
                self.expressions[id(value)] = name
            self.containers.pop(id(node), None)

    def _with_bodies(self, node: Node) -> str:
        """Writes the bodies of a node as functions, and returns the call that runs them."""
        if isinstance(node, Scan):
            body = self.body(node.body, "scan_body")
            carry, xs = node.args
            loop = self._loop_of(node)
            given = [body, self.expression(carry), self.expression(xs), repr(node.length), self._written(node)]
            if self.executor.backend.wraps:
                given.append(self.names.constant("rows", _rows_of(node)))
            return f"{loop}({', '.join(given)})"
        if isinstance(node, Cond):
            true, false = self.body(node.if_true, "if_true"), self.body(node.if_false, "if_false")
            return f"cond({self.expression(node.args[0])}, {true}, {false}, {self._written(node)})"
        if isinstance(node, While):
            test, body = self.body(node.test, "test"), self.body(node.body, "while_body")
            return f"while_loop({test}, {body}, {self.expression(node.args[0])}, {self._written(node)})"
        assert isinstance(node, VMap), node.kind
        # torch's tape does not reach into its vmap, its functional derivatives do
        functional, self.functional = self.functional, self.functional or self.executor.backend.differentiable
        in_vmap, self._in_vmap = self._in_vmap, True
        body = self.body(node.body, "vmap_body")
        self.functional, self._in_vmap = functional, in_vmap
        size = self._axis_size(node)
        return f"vmap({body}, {node.in_axes!r}, {size}, {self.expression(tuple(node.args))})"

    def _transfer(self, node: Transfer) -> None:
        """Writes the line that takes arrays (or the random state) from one place to another."""
        target = node.target
        put = "to_host" if target == "host" else "to_device" if target == "device" else f"to_{identifier(target)}"
        if node.writes:
            cell = self.names.constant(f"s_{RANDOM}", self.executor.store.cells[RANDOM])
            self.out.line("if store.held is not None:")
            self.out.line("    store.release()")
            self.out.line(f"{cell}.value = {put}({cell}.value)")
            return
        (moving,) = node.args
        call = f"{put}({self.expression(moving)})"
        there = f"_on_{identifier(target)}"
        if isinstance(moving, tuple) and all(isinstance(item, Value) for item in moving):
            names = [self.names.fresh(identifier(self.expressions[id(item)]) + there) for item in moving]
            self.expressions.update({id(value): name for value, name in zip(node.result, names, strict=True)})
            self.out.line(f"{tuple_text(names)} = {call}")
            return
        held = self.expression(moving) if isinstance(moving, Value) else self._whole(moving)
        name = self.names.fresh(identifier(held or _result_name(node.of)) + there)
        self._name_leaves(node.result, name)
        if not isinstance(moving, Value):
            self.containers[id(node)] = name
        self.out.line(f"{name} = {call}")

    def _loop_of(self, node: Scan) -> str:
        """The function that runs a scan: compiled torch compiles the innermost bodies and loops around them."""
        if not self.executor.torch_compile or self._outer_path or self._in_vmap:
            return "scan"
        self.compiles_bodies = True
        inner = [n for body in node.bodies.values() for n in all_nodes(body)]
        return "scan" if any(isinstance(n, Scan) for n in inner) else "compiled_scan"

    def _without_gradient(self, node: Node, call: str) -> None:
        """Writes a call inside a differentiated body that the gradient does not go through."""
        if not self.functional:
            self.out.line("with no_grad():")
            self.out.indent += 1
            self._assign(node, call)
            self.out.indent -= 1
            return
        self._assign(node, f"stop_gradient({call})" if node.values() else call)
        for path in node.writes:
            if path not in RANDOM_PATHS:
                self.out.line(f"{self.cell(path)}.value = stop_gradient({self.cell(path)}.value)")

    def _call(self, node: Call, donate: bool) -> str:
        for path, value in node.substitution.items():
            self.out.line(f"{self._fast_cell(node, path)}.value = {self.expression(value)}")
        function = self.executor.bind(node)
        name = self.names.constant(_short(node.label), function)

        def argument(structure: Structure) -> str:
            if type(structure) is Value:
                return self.expressions[id(structure)]
            if not has_leaf(structure, (VariableCollection, np.ndarray)):
                return self.expression(structure)
            return self.expression(tree_map(bound, structure))

        def bound(leaf: Any) -> Any:
            if isinstance(leaf, VariableCollection):
                return self.executor.bound_collection(node, leaf, donate)
            return self.executor.bound_constant(node, leaf) if isinstance(leaf, np.ndarray) else leaf

        arguments = [argument(item) for item in node.args]
        arguments += [f"{key}={argument(value)}" for key, value in node.kwargs.items()]
        return f"{name}({', '.join(arguments)})"

    def _fast_cell(self, node: Call, path: str) -> str:
        return self.names.constant(f"fast_{path}", self.executor.substituted_cell(node, path))

    def _assign(self, node: Node, call: str) -> None:
        result = node.result
        last = _result_name(node.label)
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
            self._name_leaves(result, name)
            self.out.line(f"{name} = {call}")

    def _name_leaves(self, structure: Structure, holder: str) -> None:
        self.expressions.update({id(v): text for text, v in leaves_in_source(holder, structure, self.literal)})

    def cell(self, path: str, host: bool = False) -> str:
        return self.names.constant(f"c_{path}", self.executor.working_cell(path, host))

    def _cells(self, paths: Sequence[str]) -> str:
        if len(paths) > INLINE_CELLS:
            return self.names.constant("cells", tuple(self.executor.working_cell(path, False) for path in paths))
        items = ", ".join(self.cell(path) for path in paths)
        return f"({items},)" if len(paths) == 1 else f"({items})"

    def _written(self, node: Node) -> str:
        return self._cells(node.writes)

    def _axis_size(self, node: VMap) -> str:
        size = node.axis_size
        if isinstance(size, int):
            return repr(size)
        for argument, axis in zip(node.args, node.in_axes, strict=True):
            for value in leaves_of(argument, Value) if axis is not None else ():
                return f"{self.expression(value)}.shape[{axis}]"
        raise AssertionError("a symbolic axis size comes from an argument")

    def body(self, graph: Graph, label: str) -> str:
        """Writes a body as a nested function and returns its name."""
        name = self.names.fresh(label)
        parameters = [self.names.fresh(parameter) for parameter in graph.parameters]
        self.out.line(f"def {name}({', '.join(parameters)}):")
        self.out.indent += 1
        for parameter, holder in zip(graph.parameters, parameters, strict=True):
            self._name_leaves(graph.inputs[parameter], holder)
        kept = self._saved, self._versions, self._wanted, self._escaping
        self._saved, self._escaping = {}, {id(value) for value in graph.output_values()}
        self.block(graph.nodes)
        self._saved, self._versions, self._wanted, self._escaping = kept
        self.out.line(f"return {self.expression(graph.outputs)}")
        self.out.indent -= 1
        return name

    # -- gradients by the tape of the backend --------------------------------------------------------------------

    def _plan_versions(self, ordered: Sequence[Node]) -> None:
        """Which version of each variable every node sees: how often it was written before.

        Notes them for what a node writes (gradients: for all), and for each gradient those of its forward nodes.
        """
        versions: dict[str, int] = {}
        self._versions, self._wanted = {}, {}
        seen: dict[int, dict[str, int]] = {}
        for node in ordered:
            if isinstance(node, Gradients):
                self._versions[id(node)] = dict(versions)
                wanted: dict[str, dict[int, None]] = {path: {} for path in node.paths}
                for forward in node.path:
                    for path, version in seen.get(id(forward), {}).items():
                        if path in wanted:
                            wanted[path][version] = None
                self._wanted[id(node)] = {path: list(found) for path, found in wanted.items()}
            else:
                seen[id(node)] = {path: versions.get(path, 0) for path in node.reads}
            if node.writes:
                self._versions[id(node)] = {path: versions.get(path, 0) for path in node.writes}
                for path in node.writes:
                    versions[path] = versions.get(path, 0) + 1

    def _save_versions(self, ordered: Sequence[Node], position: int) -> None:
        """Keeps the array of a variable that this node overwrites and a later gradient needs."""
        node = ordered[position]
        for path in node.writes:
            version = self._versions[id(node)][path]
            later = gradients_of(ordered[position + 1 :])
            if any(version in self._wanted[id(g)].get(path, ()) for g in later) and (path, version) not in self._saved:
                name = self.names.fresh(f"before_{path}")
                self.out.line(f"{name} = {self.cell(path)}.value")
                self._saved[path, version] = name

    def _may_donate(self, node: Node, ordered: Sequence[Node], position: int) -> bool:
        """Whether the arrays that a node overwrites are needed by nobody else."""
        if not node.writes:
            return True
        pending = gradients_of(ordered[position + 1 :])
        needed = {path for g in pending for n in g.path for path in n.reads}
        return not (set(node.writes) & (needed | self.aliased_paths))

    def _tape_gradient(self, node: Gradients, ordered: Sequence[Node], position: int) -> None:
        loss = self.expression(node.args[0])
        later = gradients_of(ordered[position + 1 :])
        mine = {id(n) for n in node.path}
        retain = any(mine & {id(n) for n in g.path} for g in later)
        create = self._outer_path or any(
            id(node) in {id(n) for n in g.path} for g in ordered if isinstance(g, Gradients)
        )
        flags = f"{retain}, {create}"
        if node.by_values is not None:
            values = tuple(node.by_values)
            name = self.names.fresh("gradients")
            self.out.line(f"{name} = gradient({loss}, {self.expression(values)}, {flags})")
            for i, value in enumerate(node.values()):
                self.expressions[id(value)] = f"{name}[{i}]"
            return
        current = {path: self._versions.get(id(node), {}).get(path, 0) for path in node.paths}
        arrays: list[str] = []
        parts: dict[str, list[int]] = {}
        for path in node.paths:
            versions = self._wanted.get(id(node), {}).get(path) or [current[path]]
            for version in versions:
                parts.setdefault(path, []).append(len(arrays))
                saved = self._saved.get((path, version))
                arrays.append(saved if saved is not None and version != current[path] else f"{self.cell(path)}.value")
        name = self.names.fresh("gradients")
        self.out.line(f"{name} = gradient({loss}, ({', '.join(arrays)},), {flags})")
        for path, value in node.result.items():
            text = " + ".join(f"{name}[{i}]" for i in parts[path])
            if len(parts[path]) > 1:
                # summed here, where the tape may be on, and not where it is used
                self.expressions[id(value)] = self.names.fresh(f"gradient_{path}")
                self.out.line(f"{self.expressions[id(value)]} = {text}")
            else:
                self.expressions[id(value)] = text

    # -- gradients by vjp of segments ----------------------------------------------------------------------------

    def segment(self, piece: Piece, block: Sequence[Node]) -> None:
        """Writes a piece of differentiated path as a function, evaluates it once and keeps its pull-back."""
        gradients = gradients_of(piece.nodes)
        inside = {id(n) for n in piece.nodes}
        nested = {id(g) for g in gradients}
        for g in gradients:
            if any(id(n) not in inside for n in g.path):
                raise BuildError(
                    "a nested gradient is entangled with writes that lie between it and its forward nodes",
                    where=g.label,
                    fix="take the inner gradient directly after its loss, before other variables are written",
                )
        tops = [
            g
            for g in block
            if isinstance(g, Gradients) and id(g) not in nested and any(id(n) in inside for n in g.path)
        ]
        made = {id(v) for n in piece.nodes for v in n.values()}
        paths = unique(
            p
            for g, wanted in [(g, set(g.paths)) for g in tops]
            for n in g.path
            if id(n) in inside and not isinstance(n, Gradients)
            for p in n.reads
            if p in wanted
        )
        writes = unique(p for n in piece.nodes for p in n.writes)
        explicit = {id(v) for g in tops for v in g.by_values or ()}
        earlier = {id(v) for g in tops for _, _, outputs, _, _ in self._pulls.get(id(g), ()) for v in outputs}
        values = list(
            {
                id(v): v
                for n in piece.nodes
                for v in n.inputs()
                if id(v) not in made and (id(v) in explicit or id(v) in earlier)
            }.values()
        )
        outside = [n for n in block if id(n) not in inside]
        used = {id(v) for n in outside for v in n.inputs()} | self._escaping
        losses = {id(g.loss) for g in tops}
        later_path = {id(v) for g in tops for n in g.path if id(n) not in inside for v in n.inputs()}
        results = [v for n in piece.nodes for v in n.values()]
        outputs = [v for v in results if _is_float(v) and (id(v) in losses or id(v) in later_path)]
        chosen = {id(v) for v in outputs}
        others = [v for v in results if id(v) in used and id(v) not in chosen]
        name = self.names.fresh("segment")
        arguments = [self.names.fresh(f"{identifier(self.expressions[id(v)])}_in") for v in values]
        arguments_outside = [self.expressions[id(v)] for v in values]
        self.out.line(f"def {name}({', '.join(arguments)}):")
        self.out.indent += 1
        before = {id(v): self.expressions[id(v)] for v in values}
        for v, argument in zip(values, arguments, strict=True):
            self.expressions[id(v)] = argument
        hidden, self._escaping = self._escaping, self._escaping | {id(v) for v in (*outputs, *others)}
        outer_path, self._outer_path = self._outer_path, True
        if gradients:
            kept_pulls, self._pulls = self._pulls, {}
            self.block(piece.nodes)
            self._pulls = kept_pulls
        else:
            for n in piece.nodes:
                self.node(n)
        self._escaping, self._outer_path = hidden, outer_path
        returned = [tuple_text([self.expressions[id(v)] for v in group]) for group in (outputs, others)]
        self.out.line(f"return {', '.join(returned)}")
        self.out.indent -= 1
        self.expressions.update(before)
        for n in piece.nodes:
            self.containers.pop(id(n), None)
        out_names = [self.names.fresh(identifier(self.expressions[id(v)])) for v in outputs]
        other_names = [self.names.fresh(identifier(self.expressions[id(v)])) for v in others]
        pull = self.names.fresh(f"pull_{name}")
        self.out.line(
            f"{tuple_text(out_names)}, {tuple_text(other_names)}, {pull} = vjp({name}, {self._cells(paths)}, "
            f"{self._cells(writes)}, {tuple_text(arguments_outside)})"
        )
        for v, text in zip((*outputs, *others), (*out_names, *other_names), strict=True):
            self.expressions[id(v)] = text
        record = (piece, pull, outputs, list(paths), values)
        for g in tops:
            self._pulls.setdefault(id(g), []).append(record)

    def pull_gradient(self, node: Gradients) -> None:
        """Writes a gradient node: pull-backs of its pieces, last one first."""
        loss = node.loss
        cotangents: dict[int, str] = {id(loss): f"ones_like({self.expressions[id(loss)]})"}
        by_path: dict[str, list[str]] = {}
        for _piece, pull, outputs, paths, values in reversed(self._pulls.get(id(node), [])):
            if not any(id(v) in cotangents for v in outputs):
                continue
            seeds = [cotangents.get(id(v), f"zeros_like({self.expressions[id(v)]})") for v in outputs]
            name = self.names.fresh("cotangents")
            self.out.line(f"{name} = {pull}({tuple_text(seeds)})")
            for i, path in enumerate(paths):
                by_path.setdefault(path, []).append(f"{name}[0][{i}]")
            for i, v in enumerate(values):
                text = f"{name}[1][{i}]"
                cotangents[id(v)] = f"({cotangents[id(v)]} + {text})" if id(v) in cotangents else text
        if node.by_values is not None:
            for value, source in zip(node.values(), node.by_values, strict=True):
                self.expressions[id(value)] = cotangents.get(id(source), f"zeros_like({self.expressions[id(source)]})")
            return
        for path, value in node.result.items():
            parts = by_path.get(path)
            text = " + ".join(parts) if parts else f"zeros_like({self.cell(path)}.value)"
            self.expressions[id(value)] = f"({text})" if parts and len(parts) > 1 else text


def leaves_in_source(holder: str, structure: Structure, literal: Callable[[Any], str]) -> list[tuple[str, Value]]:
    """The values of a nested structure, each with the expression that takes it out of the variable that holds all."""
    found: list[tuple[str, Value]] = []

    def note(key: tuple[Any, ...], leaf: Any) -> None:
        if isinstance(leaf, Value):
            found.append((holder + "".join(f"[{literal(part)}]" for part in key), leaf))

    map_with_key(note, structure)
    return found


def _rows_of(node: Scan) -> list[tuple[tuple[int | None, ...], str]]:
    """Shape (None: open) and dtype of one row of each result of a scan: what a loop is told before it runs."""
    rows = [value.space for value in leaves_of(node.result[1], Value)]
    return [(tuple([n if isinstance(n, int) else None for n in space.axes[1:]]), space.dtype) for space in rows]


def _is_float(value: Value) -> bool:
    return value.space.dtype.startswith("float")


def tuple_text(items: Sequence[str]) -> str:
    """A tuple display of expressions."""
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"


def _short(label: str) -> str:
    path, _, function = label.rpartition(".")
    parts = [part for part in path.split("/") if part]
    return identifier("_".join([*parts[-1:], function.lstrip("_")]))


def _result_name(label: str) -> str:
    """`dense_0` for `policy/dense-0.call`, `loss` for `dqn._loss`."""
    path, _, function = label.rpartition(".")
    function = function.lstrip("_")
    return identifier(path.rpartition("/")[2] if function in ("call", "") else function)


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
