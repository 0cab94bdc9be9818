"""Programs: the entry function of one API method, with its runs on host and device, compiled from source."""

from __future__ import annotations

import functools
import types
from collections.abc import Sequence
from typing import Any

from rlweave.backends.base import OpenArray
from rlweave.errors import BuildError
from rlweave.graph.ir import RANDOM, Call, Gradients, Graph, Node, Structure, Transfer, Value, unique
from rlweave.graph.lowering import (
    INLINE_CELLS,
    BlockWriter,
    Names,
    Writer,
    identifier,
    leaves_in_source,
    register_source,
    tuple_text,
)
from rlweave.graph.passes.partition import runs_of
from rlweave.spaces import BATCH, TIME, Box, Dim
from rlweave.tree import has_leaf, leaves_of, tree_map

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


class _ProgramWriter:
    """What both kinds of program share: checks of inputs, conversions, results."""

    def __init__(self, executor: Any, graph: Graph, names: Names, out: Writer) -> None:
        self.executor, self.graph, self.names, self.out = executor, graph, names, out
        self.globals: dict[str, Any] = executor.program_globals()
        names.taken.update(self.globals)
        #: Which groups of state each run takes first, by the run's name.
        self.runs: dict[str, Sequence[str]] = {}
        #: What is known of the other arguments of each run: nested `OpenArray`s.
        self.run_inputs: dict[str, Sequence[Any]] = {}
        #: Where each run is compiled for, where a device was named.
        self.run_devices: dict[str, str | None] = {}
        #: Runs of which only bodies of loops are compiled.
        self.plain_runs: set[str] = set()
        self.name = names.fresh(graph.name)
        self.parameters = {parameter: names.fresh(parameter) for parameter in graph.parameters}
        self.inner = self.name
        if any(parameter != name for parameter, name in self.parameters.items()):
            self.inner = names.fresh(f"{graph.name}_of")

    def header(self) -> None:
        """The first line of the entry; one more function where parameters have names that the body uses itself."""
        if self.inner != self.name:
            given = ", ".join(self.parameters)
            self.out.line(f"def {self.name}({given}, *, as_numpy=True, with_metrics=False):")
            self.out.line(f"    return {self.inner}({given}, as_numpy=as_numpy, with_metrics=with_metrics)")
            self.out.line()
        parameters = ", ".join(self.parameters.values())
        comma = ", " if parameters else ""
        self.out.line(f"def {self.inner}({parameters}{comma}*, as_numpy=True, with_metrics=False):")
        self.out.indent += 1

    def checks(self, convert: bool) -> None:
        """Lines that check (and where needed convert) each input: one expression when it fits, a function when not.

        Args:
            convert: Whether NumPy arrays become arrays of the framework here.
        """
        leading: list[tuple[str, Box]] = []
        for parameter, name in self.parameters.items():
            structure = self.graph.inputs[parameter]
            check = self.executor.input_check(self.graph.name, parameter, structure)
            checker = self.names.constant(f"check_{parameter}", check)
            if isinstance(structure, Value):
                self._array(name, structure.space, checker, convert)
                leading.append((name, structure.space))
            elif isinstance(structure, dict) and structure and all(isinstance(v, Value) for v in structure.values()):
                leaves = self._flat_dict(name, structure, checker)
                if convert and self._on_cpu():
                    self.out.line(f"if not fits or {' or '.join(f'type({leaf}) is ndarray' for leaf in leaves)}:")
                    self.out.line(f"    {name} = convert_nested({name})")
                elif convert:
                    self.out.line(f"{name} = convert_nested({name})")
            else:
                self.out.line(f"{name} = {checker}({name})")
                if convert:
                    self.out.line(f"{name} = convert_nested({name})")
                leading += [(text, value.space) for text, value in leaves_in_source(name, structure, repr)]
        self._agree(leading)

    def _array(self, name: str, space: Box, checker: str, convert: bool) -> None:
        """Lines that check one array, and where needed convert it."""
        line = self.out.line
        convert = convert and space.dtype != "object"  # text stays on the host
        if convert and self._on_cpu():
            line(f"if {self._fits(name, space, own=False)} and {name}.flags.writeable:")
            line("    try:")
            line(f"        {name} = share({name})")
            line("    except ValueError:  # it runs backwards")
            line(f"        {name} = from_numpy({name})")
            line(f"elif not ({self._fits(name, space, own=True)}):")
            line(f"    {name} = from_numpy({checker}({name}))")
            return
        if self.executor.backend.functional:
            seen = self.names.fresh(f"{name}_seen")
            test = self._fits(seen, space).replace(f"type({seen})", f"type({seen} := {name})", 1)
        else:
            test = self._fits(name, space)
        line(f"if not ({test}):")
        line(f"    {name} = {checker}({name})")
        if convert and len(self.executor.store.device_places) > 1:
            line(f"{name} = from_numpy({name})  # a tensor may be on any of the devices")
        elif convert:
            line(f"if type({name}) is ndarray: {name} = from_numpy({name})")

    def _on_cpu(self) -> bool:
        store = self.executor.store
        return store.device in (None, "cpu") and len(store.device_places) < 2

    def _flat_dict(self, name: str, structure: dict[str, Value], checker: str) -> list[str]:
        """Lines that check a dict of arrays, and the names that they give to its leaves."""
        self.out.line("try:")
        tests = [f"len({name}) == {len(structure)}"]
        leaves = []
        sizes: dict[str, str] = {}
        for key, value in structure.items():
            leaf = self.names.fresh(f"{name}_{key}")
            leaves.append(leaf)
            test = self._fits(leaf, value.space, sizes)
            tests.append(test.replace(f"type({leaf})", f"type({leaf} := {name}[{key!r}])", 1))
        inner = [(f"{name}[{key!r}]", value.space) for key, value in structure.items()]
        self.out.line("    fits = (")
        for number, test in enumerate(tests):
            self.out.line(f"        {'and ' if number else ''}{test}")
        self.out.line("    )")
        self.out.line("except (KeyError, IndexError, TypeError, AttributeError):")
        self.out.line("    fits = False")
        self.out.line("if not fits:")
        self.out.indent += 1
        self.out.line(f"{name} = {checker}({name})")
        self._agree(inner)
        self.out.indent -= 1
        return leaves

    def _fits(self, name: str, space: Box, sizes: dict[str, str] | None = None, own: bool | None = None) -> str:
        """An expression that is true where an array fits a space.

        Args:
            name: The array.
            space: The space.
            sizes: Names of batch and time sizes that are known, to which this adds; None: sizes are not looked at.
            own: Only an array of the framework (True) or of NumPy (False); None: either.
        """
        axes, ranks = space.axes, space.ranks
        if any(not isinstance(axis, int) for axis in axes[ranks:]):
            return f"type({name}) is None"  # irregular: always through the function
        dtypes = [
            f"{name}.dtype is {self.names.constant(label, dtype)}"
            for label, dtype in self.executor.dtypes(space.dtype).items()
            if own is None or own != label.startswith("numpy_")
        ]
        dtype = f"({' or '.join(dtypes)})" if len(dtypes) > 1 else dtypes[0]
        expected = [self._expected(name, axis, dim, sizes) for axis, dim in enumerate(axes)]
        free = next((axis for axis, text in enumerate(expected) if text is not None), len(axes))
        known = [text for text in expected[free:] if text is not None]
        if not known:
            shape = f"len({name}.shape) == {len(axes)}"
        elif len(known) == len(axes) - free:
            shape = f"{name}.shape{f'[{free}:]' if free else ''} == {tuple_text(known)}"
        else:
            shape = " and ".join(
                [f"len({name}.shape) == {len(axes)}"]
                + [f"{name}.shape[{axis}] == {text}" for axis, text in enumerate(expected) if text is not None]
            )
        right_type = f"type({name}) is {'array_type' if own else 'ndarray'}"
        if own is None and "array_type" in self.globals:
            # JAX keeps shape and dtype in an object of their own, where they are found in a quarter of the time
            description = self.executor.backend.description
            seen = f" and ({name} := {name}.{description}) is not None" if description else ""
            right_type = f"({right_type} or type({name}) is array_type{seen})"
        return f"{right_type} and {dtype} and {shape}"

    def _expected(self, name: str, axis: int, dim: int | Dim, sizes: dict[str, str] | None) -> str | None:
        """The expression of the length that an axis has to have, None where it may have any."""
        if isinstance(dim, int):
            return repr(dim)
        if all("=" in symbol for symbol in dim.symbols):
            return repr(dim.evaluate({}))
        if sizes is None or len(dim.symbols) > 1 or dim.factor != 1 or dim.offset:
            return None
        symbol = dim.symbols[0]
        if symbol in sizes:
            return sizes[symbol]
        sizes[symbol] = self.names.fresh({"B": "batch_size", "T": "steps"}[symbol])
        return f"({sizes[symbol]} := {name}.shape[{axis}])"

    def _agree(self, leading: Sequence[tuple[str, Box]]) -> None:
        for symbol, members in _common_axes(leading).items():
            if len(members) > 1:
                test = " == ".join(f"{text}.shape[{axis}]" for text, axis in members)
                sizes = ", ".join(f"{text!r}: {text}.shape[{axis}]" for text, axis in members)
                self.out.line(f"if not ({test}):")
                self.out.line(f"    disagree({self.graph.name!r}, {symbol!r}, {{{sizes}}})")

    def result(self, block: BlockWriter, to_numpy: str, plain: str, borrowed: str = "", bare: bool = False) -> None:
        """Lines that hand out results and metrics.

        Args:
            block: Knows their names.
            to_numpy: Format of a result as NumPy.
            plain: Format of a result as an array of the framework.
            borrowed: Likewise as NumPy, for what is an input or comes from the host; nothing: as the others.
            bare: Only results, without the metrics that a caller may ask for.
        """

        def expression(structure: Structure, fmt: str) -> str:
            if isinstance(structure, Value):
                foreign = structure.node is None or structure.node.host
                form = borrowed if borrowed and foreign and fmt is to_numpy else fmt
                return form.format(block.expressions[id(structure)])
            if isinstance(structure, dict):
                return "{" + ", ".join(f"{block.literal(k)}: {expression(v, fmt)}" for k, v in structure.items()) + "}"
            if isinstance(structure, (tuple, list)):
                inner = ", ".join(expression(item, fmt) for item in structure)
                if isinstance(structure, tuple) and hasattr(structure, "_fields"):
                    return f"{self.names.constant(type(structure).__name__, type(structure))}({inner})"
                if isinstance(structure, list):
                    return f"[{inner}]"
                return f"({inner},)" if len(structure) == 1 else f"({inner})"
            return block.expression(structure)

        outputs = self.graph.outputs
        target = "return" if bare else "result ="
        if to_numpy == plain or not has_leaf(outputs, Value):
            self.out.line(f"{target} {expression(outputs, to_numpy)}")
        else:
            self.out.line("if as_numpy:")
            self.out.line(f"    {target} {expression(outputs, to_numpy)}")
            self.out.line("else:")
            self.out.line(f"    {target} {expression(outputs, plain)}")
        if bare:
            return
        if self.graph.metrics:
            metrics = {metric.name: metric.value for metric in self.graph.metrics}
            number = "number({})" if "number" in self.globals else "float({})"
            self.out.line("if with_metrics:")
            self.out.line(f"    return result, {expression(metrics, number)}")
            self.out.line("return result")
        else:
            self.out.line("return (result, {}) if with_metrics else result")


class _StraightProgram(_ProgramWriter):
    """NumPy and eager torch: one function, line after line."""

    def write(self) -> None:
        executor, graph, out = self.executor, self.graph, self.out
        block = BlockWriter(executor, self.names, out, functional=False)
        block.parameters = {name: graph.inputs[p] for p, name in self.parameters.items()}
        for name in self.parameters.values():
            block._name_leaves(block.parameters[name], name)
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
            block._escaping = set()
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
        if bare and to_numpy == "numpy_of({})" and isinstance(self.graph.outputs, Value) and self._on_cpu():
            name = block.expressions[id(self.graph.outputs)]
            self.out.line("try:")
            self.out.line(f"    return {name}.numpy() if as_numpy else plain({name})")
            self.out.line("except (AttributeError, RuntimeError):  # no tensor, or one with a gradient")
            self.out.line(f"    return numpy_of({name})")
            return
        self.result(block, to_numpy, plain, bare=bare)


class _FunctionalProgram(_ProgramWriter):
    """JAX and compiled torch: device runs are pure functions of state and inputs."""

    def write(self) -> None:
        executor, graph, out = self.executor, self.graph, self.out
        runs = runs_of(graph)
        outputs = {id(v) for v in graph.output_values()}
        main = BlockWriter(executor, self.names, Writer(), functional=True)
        main.parameters = {name: graph.inputs[p] for p, name in self.parameters.items()}
        for name in self.parameters.values():
            main._name_leaves(main.parameters[name], name)
        _rename_inputs(graph, self.parameters)
        main.inplace_paths = executor.inplace_paths
        computing = [run for run in runs if not isinstance(run[0], Transfer)]
        device_only = len(computing) == 1 and not computing[0][0].host
        only_reads = device_only and not graph.writes and executor.backend.functional
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
        if executor.torch_compile and RANDOM in reads and executor.store.rng == "fast":
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
                out.line(f"set_cells({block._cells(paths)}, {group})")
            elif paths:
                targets = ", ".join(f"{block.cell(p)}.value" for p in paths)
                out.line(f"{targets}{',' if len(paths) == 1 else ''} = {group}")
        block._escaping = {id(v) for v in results}
        block.block(run)
        if block.compiles_bodies:
            self.plain_runs.add(name)
        returned = [
            f"copy({block.expressions[id(v)]})" if v.node is not None and v.node.aliases else block.expressions[id(v)]
            for v in results
        ]
        if len(writes) > INLINE_CELLS:
            state = f"values_of_cells({block._cells(writes)})"
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


def _common_axes(leading: Sequence[tuple[str, Box]]) -> dict[str, list[tuple[str, int]]]:
    """For each free symbol the (expression, axis) pairs whose sizes have to agree."""
    groups: dict[str, list[tuple[str, int]]] = {}
    for text, space in leading:
        for axis, dim in enumerate(space.axes[: space.ranks]):
            if dim in (TIME, BATCH):
                groups.setdefault(str(dim), []).append((text, axis))
    return groups


def _gradient_reads(node: Node) -> tuple[str, ...]:
    """Variables whose shape a gradient needs for zeros where the loss does not depend on them."""
    if isinstance(node, Gradients):
        return tuple(node.paths)
    return ()


def _rename_inputs(graph: Graph, parameters: dict[str, str]) -> None:
    for value in leaves_of(graph.inputs, Value):
        value.name = parameters.get(value.name, value.name)
