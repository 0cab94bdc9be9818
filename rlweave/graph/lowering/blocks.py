"""Blocks: the nodes of a run, or of a body, as lines."""

from __future__ import annotations

from typing import Any

import numpy as np

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
)
from rlweave.graph.lowering.source import identifier, result_name, short_name, tuple_text
from rlweave.graph.lowering.vjp import PullBacks
from rlweave.graph.values import same
from rlweave.graph.variable import VariableCollection
from rlweave.tree import has_leaf, leaves_of, tree_map


class BlockWriter(PullBacks):
    """Writes nodes as lines; what is differentiated is pulled back."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._in_vmap = False
        #: Whether bodies of loops are compiled, and so not what is around them (compiled torch).
        self.compiles_bodies = False

    def node(self, node: Node, donate: bool = False) -> None:
        if isinstance(node, Gradients):
            self.pull_gradient(node)
        elif isinstance(node, Transfer):
            self._transfer(node)
        elif isinstance(node, Call):
            self._call_node(node, donate)
        else:
            self.assign(node, self._with_bodies(node))
            self._copy_what_is_written_in_place(node)

    def _call_node(self, node: Call, donate: bool) -> None:
        if node.function is same:
            self.expressions[id(node.result)] = self.expression(node.args[0])
            return
        call = self._call(node, donate)
        if node.host and node.values() and node.declared_spaces:
            cells = tuple(self.linker.working_cell(path, True) for path in node.reads if path not in RANDOM_PATHS)
            call = f"unshared({call}, {self.names.constant('cells', cells)})" if cells else call
        if not node.differentiable and self.in_outer_path:
            self.without_gradient(node, call)
        else:
            self.assign(node, call)
        self._copy_what_is_written_in_place(node)
        if self.linker.backend.reads_bytecode:
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
            if self.linker.backend.wraps:
                given.append(self.names.constant("rows", _rows_of(node)))
            return f"{loop}({', '.join(given)})"
        if isinstance(node, Cond):
            true, false = self.body(node.if_true, "if_true"), self.body(node.if_false, "if_false")
            return f"cond({self.expression(node.args[0])}, {true}, {false}, {self._written(node)})"
        if isinstance(node, While):
            test, body = self.body(node.test, "test"), self.body(node.body, "while_body")
            return f"while_loop({test}, {body}, {self.expression(node.args[0])}, {self._written(node)})"
        assert isinstance(node, VMap), node.kind
        body, size = self.vmap_body(node.body), self._axis_size(node)
        return f"vmap({body}, {node.in_axes!r}, {size}, {self.expression(tuple(node.args))})"

    def _transfer(self, node: Transfer) -> None:
        """Writes the line that takes arrays (or the random state) from one place to another."""
        target = node.target
        put = "to_host" if target == "host" else "to_device" if target == "device" else f"to_{identifier(target)}"
        if node.writes:
            cell = self.names.constant(f"s_{RANDOM}", self.linker.store.cells[RANDOM])
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
        held = self.expression(moving) if isinstance(moving, Value) else self.whole(moving)
        name = self.names.fresh(identifier(held or result_name(node.of)) + there)
        self.name_leaves(node.result, name)
        if not isinstance(moving, Value):
            self.containers[id(node)] = name
        self.out.line(f"{name} = {call}")

    def _loop_of(self, node: Scan) -> str:
        """The function that runs a scan: compiled torch compiles the innermost bodies and loops around them."""
        if not self.linker.backend.reads_bytecode or self.in_outer_path or self._in_vmap:
            return "scan"
        self.compiles_bodies = True
        inner = [n for body in node.bodies.values() for n in all_nodes(body)]
        return "scan" if any(isinstance(n, Scan) for n in inner) else "compiled_scan"

    def without_gradient(self, node: Node, call: str) -> None:
        """Writes a call inside a differentiated body that the gradient does not go through."""
        self.assign(node, f"stop_gradient({call})" if node.values() else call)
        for path in node.writes:
            if path not in RANDOM_PATHS:
                self.out.line(f"{self.cell(path)}.value = stop_gradient({self.cell(path)}.value)")

    def _call(self, node: Call, donate: bool) -> str:
        for path, value in node.substitution.items():
            self.out.line(f"{self._fast_cell(node, path)}.value = {self.expression(value)}")
        function = self.linker.bind(node)
        name = self.names.constant(short_name(node.label), function)

        def argument(structure: Structure) -> str:
            if type(structure) is Value:
                return self.expressions[id(structure)]
            if not has_leaf(structure, (VariableCollection, np.ndarray)):
                return self.expression(structure)
            return self.expression(tree_map(bound, structure))

        def bound(leaf: Any) -> Any:
            if isinstance(leaf, VariableCollection):
                return self.linker.bound_collection(node, leaf, donate)
            return self.linker.bound_constant(node, leaf) if isinstance(leaf, np.ndarray) else leaf

        arguments = [argument(item) for item in node.args]
        arguments += [f"{key}={argument(value)}" for key, value in node.kwargs.items()]
        return f"{name}({', '.join(arguments)})"

    def _fast_cell(self, node: Call, path: str) -> str:
        return self.names.constant(f"fast_{path}", self.linker.substituted_cell(node, path))

    def _written(self, node: Node) -> str:
        return self.cells(node.writes)

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
            self.name_leaves(graph.inputs[parameter], holder)
        kept, self.escaping = self.escaping, {id(value) for value in graph.output_values()}
        self.block(graph.nodes)
        self.escaping = kept
        self.out.line(f"return {self.expression(graph.outputs)}")
        self.out.indent -= 1
        return name

    def vmap_body(self, graph: Graph) -> str:
        """Writes the body of a vmap as a nested function and returns its name."""
        in_vmap, self._in_vmap = self._in_vmap, True
        name = self.body(graph, "vmap_body")
        self._in_vmap = in_vmap
        return name


def _rows_of(node: Scan) -> list[tuple[tuple[int | None, ...], str]]:
    """Shape (None: open) and dtype of one row of each result of a scan: what a loop is told before it runs."""
    rows = [value.space for value in leaves_of(node.result[1], Value)]
    return [(tuple([n if isinstance(n, int) else None for n in space.axes[1:]]), space.dtype) for space in rows]
