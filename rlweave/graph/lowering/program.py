"""Programs: the entry function of one API method, with its runs on host and device, compiled from source."""

from __future__ import annotations

import functools
import types
from collections.abc import Sequence
from typing import Any

from rlweave.backends.base import OpenArray
from rlweave.errors import BuildError
from rlweave.graph.ir import RANDOM, Call, Gradients, Graph, Node, Structure, Transfer, Value, unique
from rlweave.graph.lowering.blocks import BlockWriter
from rlweave.graph.lowering.entry import EntryWriter
from rlweave.graph.lowering.expressions import INLINE_CELLS
from rlweave.graph.lowering.source import Names, Writer, identifier, register_source, tuple_text
from rlweave.graph.passes.partition import runs_of
from rlweave.spaces import Dim
from rlweave.tree import leaves_of, tree_map

#: Names that generated functions use besides those of the backend's runtime.
_RESERVED = (
    *("as_numpy", "with_metrics", "result", "fits", "state", "donated", "kept", "version", "whole", "Exception"),
    *("type", "len", "float", "KeyError", "IndexError", "TypeError", "AttributeError", "RuntimeError", "ValueError"),
)


class Program:
    """One API method, lowered.

    Args:
        source: What runs, readable.
        entry: The function that the executor calls.
        runs: Compiled device runs by name.
    """

    def __init__(self, source: str, entry: Any, runs: dict[str, Any]) -> None:
        self.source, self.entry, self.runs = source, entry, runs


def write_program(executor: Any, graph: Graph) -> Program:
    """Lowers a graph for an executor."""
    names = Names()
    names.taken.update(_RESERVED)
    number = f"#{executor.serial}.{executor.count_program()}"
    filename = f"<rlweave {executor.root.scope}.{graph.name} on {executor.backend.name} {number}>"
    out = Writer()
    kind = _FunctionalProgram if executor.functional else _StraightProgram
    entry = kind(executor, graph, names, out)
    entry.write()
    source = out.source()
    register_source(filename, source)
    scope: dict[str, Any] = {
        "__name__": f"rlweave.generated.{identifier(graph.name)}",
        **names.objects,
        **entry.globals,
    }
    exec(_named(_compiled(source), filename), scope)
    runs = {}
    for name, states in entry.runs.items():
        inputs = entry.run_inputs.get(name, ())
        runs[name] = scope[name] = executor.compile_run(
            scope[name], states, inputs, whole=name not in entry.plain_runs, device=entry.run_devices.get(name)
        )
    return Program(source, scope[entry.name], runs)


@functools.lru_cache(maxsize=1024)
def _compiled(source: str) -> types.CodeType:
    """The code of a source; equal graphs, built again, have equal sources."""
    return compile(source, "<rlweave>", "exec")


def _named(code: types.CodeType, filename: str) -> types.CodeType:
    """The same code under another file name, which tracebacks show."""
    constants = tuple(_named(c, filename) if isinstance(c, types.CodeType) else c for c in code.co_consts)
    return code.replace(co_filename=filename, co_consts=constants)


class _StraightProgram(EntryWriter):
    """NumPy and eager torch: one function, line after line."""

    def write(self) -> None:
        executor, graph, out = self.executor, self.graph, self.out
        block = BlockWriter(executor, self.names, out, functional=False)
        block.parameters = {name: graph.inputs[p] for p, name in self.parameters.items()}
        for name in self.parameters.values():
            block.name_leaves(block.parameters[name], name)
        _rename_inputs(graph, self.parameters)
        block.inplace_paths = executor.inplace_paths
        block.aliased_paths = {p for node in graph.nodes for p in node.alias_variables}
        tape = executor.backend.has_tape
        writes = bool(graph.writes)
        gradients = any(isinstance(node, Gradients) or node.bodies for node in graph.nodes)
        mixed = tape and len(runs_of(graph)) > 1
        self.inference = tape and not writes and not gradients
        # what computes with cells of its own (substitution, derivatives in a body) or has effects takes the lock
        pure = not mixed and not any(
            node.host or (isinstance(node, Call) and node.substitution) for node in graph.nodes
        )
        if pure and not writes and not gradients and not graph.metrics:
            self._reading(block)
            return
        self.header()
        self._checks()
        out.line(f"with {'guard' if writes else 'lock'}:")
        out.indent += 1
        self._nodes(block, mixed)
        self._results(block)  # in the lock: a copy of a variable must not meet a write
        out.indent -= 1

    def _checks(self) -> None:
        self.checks(convert="convert_nested" in self.globals)

    def _reading(self, block: BlockWriter) -> None:
        """A function of its own for the nodes, which runs again where a write came between."""
        out = self.out
        reads = self.names.fresh(f"{self.graph.name}_reads")
        arguments = ", ".join([*self.parameters.values(), "as_numpy"])
        out.line(f"def {reads}({arguments}):")
        out.indent += 1
        self._nodes(block, mixed=False)
        self._results(block, bare=True)
        out.indent -= 1
        out.line()
        self.header()
        self._checks()
        out.line("version = store.version")
        out.line("try:")
        out.line(f"    result = {reads}({arguments})")
        out.line("    if version == store.version and not store.writing:")
        out.line("        return (result, {}) if with_metrics else result")
        out.line("except Exception:")
        out.line("    if version == store.version and not store.writing:")
        out.line("        raise")
        out.line("with lock:  # another thread wrote meanwhile")
        out.line(f"    result = {reads}({arguments})")
        out.line("return (result, {}) if with_metrics else result")
        out.indent -= 1

    def _nodes(self, block: BlockWriter, mixed: bool) -> None:
        out, nodes = self.out, self.graph.nodes
        tape = self.executor.backend.has_tape
        if tape:
            out.line("with inference_mode() if as_numpy else no_grad():" if self.inference else "with no_grad():")
            out.indent += 1
        if not nodes:
            out.line("pass")
        if mixed:
            self._mixed(block)
        else:
            block.block(nodes)
        if tape:
            out.indent -= 1

    def _mixed(self, block: BlockWriter) -> None:
        """Runs of several places; transfers are lines of their own."""
        for run in runs_of(self.graph):
            block.escaping = set()
            block.block(run)

    def _results(self, block: BlockWriter, bare: bool = False) -> None:
        fresh = {id(v) for n in self.graph.nodes for v in n.values() if not n.aliases}
        safe = all(id(v) in fresh for v in leaves_of(self.graph.outputs, Value))
        if self.executor.backend.on_host:
            to_numpy = plain = "{}" if safe else "array({})"
        elif safe:
            to_numpy, plain = "numpy_of({})" if self.inference else "detached_numpy_of({})", "plain({})"
        else:
            to_numpy, plain = "copy_numpy_of({})", "copy_plain({})"
        if bare and to_numpy == "numpy_of({})" and isinstance(self.graph.outputs, Value) and self.on_cpu():
            name = block.expressions[id(self.graph.outputs)]
            self.out.line("try:")
            self.out.line(f"    return {name}.numpy() if as_numpy else plain({name})")
            self.out.line("except (AttributeError, RuntimeError):  # no tensor, or one with a gradient")
            self.out.line(f"    return numpy_of({name})")
            return
        self.result(block, to_numpy, plain, bare=bare)


class _FunctionalProgram(EntryWriter):
    """JAX and compiled torch: device runs are pure functions of state and inputs."""

    def write(self) -> None:
        executor, graph, out = self.executor, self.graph, self.out
        runs = runs_of(graph)
        outputs = {id(v) for v in graph.output_values()}
        main = BlockWriter(executor, self.names, Writer(), functional=True)
        main.parameters = {name: graph.inputs[p] for p, name in self.parameters.items()}
        for name in self.parameters.values():
            main.name_leaves(main.parameters[name], name)
        _rename_inputs(graph, self.parameters)
        main.inplace_paths = executor.inplace_paths
        computing = [run for run in runs if not isinstance(run[0], Transfer)]
        device_only = len(computing) == 1 and not computing[0][0].host
        only_reads = device_only and not graph.writes and executor.backend.immutable
        body = main.out
        body.indent = 1 if only_reads else 2
        for index, run in enumerate(runs):
            later = {id(v) for other in runs[index + 1 :] for n in other for v in n.inputs()}
            if run[0].host or isinstance(run[0], Transfer):
                for node in run:
                    main.node(node)
            else:
                self._device_run(main, run, outputs | later, only_reads)
        out.line()
        self.header()
        results = list(leaves_of(graph.outputs, Value))
        self.checks(convert=False)
        # JAX on the CPU may read an aligned NumPy input in place, and later: whoever does not wait for a result of the
        # run copies
        staged = list(self.parameters.values())
        waits = device_only and any(v.node is not None for v in results)
        if staged and not waits:
            for name in staged:
                out.line(f"{name} = staged({name})")
        elif staged:
            out.line("if not as_numpy:")
            for name in staged:
                out.line(f"    {name} = staged({name})")
        if not only_reads:
            out.line(f"with {'guard' if graph.writes else 'lock'}:")
            if not body.lines:
                body.line("pass")
        out.lines += body.lines
        inputs = {id(v) for v in leaves_of(graph.inputs, Value)}
        if any(v.node is not None and v.node.host and v.node.aliases for v in results):
            out.indent += 1  # in the lock: a copy of a host variable must not meet a write
        foreign = any(id(v) in inputs or (v.node is not None and v.node.host) for v in results)
        plain = "handed({})" if foreign or executor.backend.wraps else "{}"
        self.result(main, "numpy_of({})", plain, "copy_numpy_of({})")

    def _device_run(self, main: BlockWriter, run: Sequence[Node], wanted: set[int], only_reads: bool) -> None:
        executor, out = self.executor, self.out
        block = BlockWriter(executor, self.names, out, functional=True)
        inside = {id(v) for n in run for v in n.values()}
        inputs = list({id(v): v for n in run for v in n.inputs() if id(v) not in inside}.values())
        results = [v for n in run for v in n.values() if id(v) in wanted]
        reads = unique(p for n in run for p in n.reads if not isinstance(n, Gradients))
        reads = unique([*reads, *(p for n in run for p in _gradient_reads(n))])
        writes = unique(p for n in run for p in n.writes)
        if executor.backend.reads_bytecode and RANDOM in reads and executor.store.rng == "fast":
            drawing = next(n for n in run if RANDOM in n.reads)
            raise BuildError(
                "a compiled run draws random numbers from a torch.Generator",
                where=drawing.label,
                fix='build with rng="portable"; torch.compile(fullgraph=True) refuses generators',
            )
        read, written = set(reads), set(writes)
        donated = [p for p in writes if p in read]
        kept = [p for p in reads if p not in written]
        name = self.names.fresh("run" if len(self.runs) == 0 else f"run_{len(self.runs) + 1}")
        states = [group for group, paths in (("donated", donated), ("kept", kept)) if paths]
        self.runs[name] = states
        self.run_devices[name] = run[0].device
        whole = {parameter: main.parameters[parameter] for parameter in main.parameters}
        parameters: list[str] = []
        arguments: list[str] = []
        known: list[Structure] = []
        for value in inputs:
            text = main.expressions[id(value)]
            root = value.name if value.node is None else main.containers.get(id(value.node))
            if root in self._locals(main) and root is not None:
                if root not in parameters:
                    parameters.append(root)
                    arguments.append(root)
                    known.append(whole[root] if value.node is None else value.node.result)
                block.expressions[id(value)] = text
                if value.node is None:
                    block.parameters[root] = whole[root]
                else:
                    block.containers[id(value.node)] = root
            else:
                parameter = identifier(text)
                if parameter != text:
                    parameter = self.names.fresh(parameter)
                if parameter not in parameters:
                    parameters.append(parameter)
                    arguments.append(text)
                    known.append(value)
                block.expressions[id(value)] = parameter
        self.run_inputs[name] = [tree_map(open_array, structure) for structure in known]
        out.line(f"def {name}({', '.join([*states, *parameters])}):")
        out.indent += 1
        for group, paths in (("donated", donated), ("kept", kept)):
            if len(paths) > INLINE_CELLS:
                out.line(f"set_cells({block.cells(paths)}, {group})")
            elif paths:
                targets = ", ".join(f"{block.cell(p)}.value" for p in paths)
                out.line(f"{targets}{',' if len(paths) == 1 else ''} = {group}")
        block.escaping = {id(v) for v in results}
        block.block(run)
        if block.compiles_bodies:
            self.plain_runs.add(name)
        returned = [
            f"copy({block.expressions[id(v)]})" if v.node is not None and v.node.aliases else block.expressions[id(v)]
            for v in results
        ]
        if len(writes) > INLINE_CELLS:
            state = f"values_of_cells({block.cells(writes)})"
        else:
            state = tuple_text([f"{block.cell(p)}.value" for p in writes])
        # one result comes as it is: every level of nesting costs at the border of a compiled run
        result = returned[0] if len(returned) == 1 else tuple_text(returned)
        out.line(f"return {result}, {state}" if writes else f"return {result}")
        out.indent -= 1
        out.line()

        def stored(label: str, paths: Sequence[str]) -> str:
            return self.names.constant(label, tuple(executor.store.cells[p] for p in paths))

        def store(label: str, paths: Sequence[str]) -> str:
            if len(paths) > INLINE_CELLS:
                return f"values_of_cells({stored(label, paths)})"
            return tuple_text([f"{self.names.constant(f's_{p}', executor.store.cells[p])}.value" for p in paths])

        made: list[str] = []
        for value in results:
            text = self.names.fresh(identifier(block.expressions[id(value)]))
            main.expressions[id(value)] = text
            made.append(text)
        left = made[0] if len(made) == 1 else tuple_text(made) if made else "_"
        if only_reads:
            if not kept:
                main.out.line(f"{left} = {name}({', '.join(arguments)})")
                return
            snapshot = self.names.constant("snapshot", executor.snapshot(kept))
            main.out.line(f"kept = {snapshot}.arrays or {snapshot}.take()")
            main.out.line("try:")
            main.out.line(f"    {left} = {name}({', '.join(['kept', *arguments])})")
            main.out.line("except Exception:")  # JAX has several kinds for memory that was taken over
            main.out.line(f"    if {snapshot}.arrays is kept:")
            main.out.line("        raise")
            main.out.line("    with lock:  # a write in another thread took the arrays over")
            main.out.line(f"        {left} = {name}({', '.join([f'{snapshot}.take()', *arguments])})")
            return
        given = [store("kept_state", kept)] if kept else []
        if len(writes) > INLINE_CELLS and set(writes) == set(donated):
            cells = stored("state_cells", writes)
            main.out.line(f"state = store.values if store.held is {cells} else store.hold({cells})")
            main.out.line(f"{left}, store.values = {name}({', '.join(['state', *given, *arguments])})")
            return
        main.out.line("if store.held is not None:")
        main.out.line("    store.release()")
        if donated:
            given = [store("donated_state", donated), *given]
        call = f"{name}({', '.join([*given, *arguments])})"
        if len(writes) > INLINE_CELLS:
            main.out.line(f"{left}, state = {call}")
            main.out.line(f"set_cells({stored('written_state', writes)}, state)")
        elif writes:
            main.out.line(f"{left}, {store('', writes)} = {call}")
        else:
            main.out.line(f"{left} = {call}")

    def _locals(self, main: BlockWriter) -> set[str]:
        return {*main.parameters, *main.containers.values()}


def open_array(leaf: Any) -> Any:
    """What a backend has to know of an array before it comes; constants stay."""
    if not isinstance(leaf, Value):
        return leaf
    axes = leaf.space.axes
    fixed = [all("=" in symbol for symbol in axis.symbols) if isinstance(axis, Dim) else True for axis in axes]
    sizes = [
        axis if isinstance(axis, int) else axis.evaluate({}) if known else "*".join(axis.symbols)
        for axis, known in zip(axes, fixed, strict=True)
    ]
    return OpenArray(tuple(sizes), leaf.space.dtype)


def _gradient_reads(node: Node) -> tuple[str, ...]:
    """Variables whose shape a gradient needs for zeros where the loss does not depend on them."""
    if isinstance(node, Gradients):
        return tuple(node.paths)
    return ()


def _rename_inputs(graph: Graph, parameters: dict[str, str]) -> None:
    for value in leaves_of(graph.inputs, Value):
        value.name = parameters.get(value.name, value.name)
