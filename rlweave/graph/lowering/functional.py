"""Programs of backends whose runs are functions (JAX): what runs on a device is a pure function of state and inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlweave.backends.base import OpenArray
from rlweave.errors import BuildError
from rlweave.graph.ir import RANDOM, Gradients, Node, Structure, Transfer, Value, unique
from rlweave.graph.lowering.blocks import BlockWriter
from rlweave.graph.lowering.entry import EntryWriter
from rlweave.graph.lowering.expressions import INLINE_CELLS
from rlweave.graph.lowering.linking import Run
from rlweave.graph.lowering.source import Writer, identifier, tuple_text
from rlweave.graph.passes.partition import runs_of
from rlweave.spaces import Dim
from rlweave.tree import leaves_of, tree_map


class FunctionalProgram(EntryWriter):
    """An entry function that calls device runs, which are pure functions, and what runs on the host."""

    def write(self) -> None:
        linker, graph, out = self.linker, self.graph, self.out
        runs = runs_of(graph)
        outputs = {id(v) for v in graph.output_values()}
        main = BlockWriter(linker, self.names, Writer())
        main.parameters = {name: graph.inputs[p] for p, name in self.parameters.items()}
        for name in self.parameters.values():
            main.name_leaves(main.parameters[name], name)
        self.rename_inputs()
        main.inplace_paths = linker.inplace_paths
        computing = [run for run in runs if not isinstance(run[0], Transfer)]
        device_only = len(computing) == 1 and not computing[0][0].host
        only_reads = device_only and not graph.writes and linker.backend.immutable
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
        self.checks(converts=False)
        # JAX on the CPU may alias NumPy inputs while it computes: an entry that returns before the run ends copies them
        staged = list(self.parameters.values()) if self.runs else []
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
        plain = "handed({})" if foreign or linker.backend.wraps else "{}"
        self.result(main, "numpy_of({})", plain, "copy_numpy_of({})")

    def _device_run(self, main: BlockWriter, run: Sequence[Node], wanted: set[int], only_reads: bool) -> None:
        linker, out = self.linker, self.out
        block = BlockWriter(linker, self.names, out)
        inside = {id(v) for n in run for v in n.values()}
        inputs = list({id(v): v for n in run for v in n.inputs() if id(v) not in inside}.values())
        results = [v for n in run for v in n.values() if id(v) in wanted]
        reads = unique(p for n in run for p in n.reads if not isinstance(n, Gradients))
        reads = unique([*reads, *(p for n in run for p in _gradient_reads(n))])
        writes = unique(p for n in run for p in n.writes)
        if linker.backend.reads_bytecode and RANDOM in reads and linker.store.rng == "fast":
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
        compiled = self.runs[name] = Run(states, run[0].device)
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
        compiled.inputs = [tree_map(open_array, structure) for structure in known]
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
        compiled.whole = not block.compiles_bodies
        returned = [
            f"copy({block.expressions[id(v)]})" if v.node is not None and v.node.aliases else block.expressions[id(v)]
            for v in results
        ]
        if len(writes) > INLINE_CELLS:
            state = f"values_of_cells({block.cells(writes)})"
        else:
            state = tuple_text([f"{block.cell(p)}.value" for p in writes])
        # a single result is in no tuple: each level of nesting costs at the border of a compiled run
        result = returned[0] if len(returned) == 1 else tuple_text(returned)
        out.line(f"return {result}, {state}" if writes else f"return {result}")
        out.indent -= 1
        out.line()

        def stored(label: str, paths: Sequence[str]) -> str:
            return self.names.constant(label, tuple(linker.store.cells[p] for p in paths))

        def store(label: str, paths: Sequence[str]) -> str:
            if len(paths) > INLINE_CELLS:
                return f"values_of_cells({stored(label, paths)})"
            return tuple_text([f"{self.names.constant(f's_{p}', linker.store.cells[p])}.value" for p in paths])

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
            snapshot = self.names.constant("snapshot", linker.snapshot(kept))
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
