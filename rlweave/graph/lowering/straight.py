"""Programs of NumPy and eager torch: the nodes are lines of one Python function."""

from __future__ import annotations

from rlweave.graph.ir import Call, Gradients, Value
from rlweave.graph.lowering.entry import EntryWriter
from rlweave.graph.lowering.tape import TapedBlockWriter
from rlweave.graph.passes.partition import runs_of
from rlweave.tree import leaves_of


class StraightProgram(EntryWriter):
    """One function, line after line."""

    def write(self) -> None:
        linker, graph, out = self.linker, self.graph, self.out
        block = TapedBlockWriter(linker, self.names, out)
        block.parameters = {name: graph.inputs[p] for p, name in self.parameters.items()}
        for name in self.parameters.values():
            block.name_leaves(block.parameters[name], name)
        self.rename_inputs()
        block.inplace_paths = linker.inplace_paths
        block.aliased_paths = {p for node in graph.nodes for p in node.alias_variables}
        tape = linker.backend.has_tape
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
        self.checks(converts="convert_nested" in self.globals)

    def _reading(self, block: TapedBlockWriter) -> None:
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

    def _nodes(self, block: TapedBlockWriter, mixed: bool) -> None:
        out, nodes = self.out, self.graph.nodes
        tape = self.linker.backend.has_tape
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

    def _mixed(self, block: TapedBlockWriter) -> None:
        """Runs of several places; transfers are lines of their own."""
        for run in runs_of(self.graph):
            block.escaping = set()
            block.block(run)

    def _results(self, block: TapedBlockWriter, bare: bool = False) -> None:
        fresh = {id(v) for n in self.graph.nodes for v in n.values() if not n.aliases}
        safe = all(id(v) in fresh for v in leaves_of(self.graph.outputs, Value))
        if self.linker.backend.on_host:
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
