"""Entry functions: what checks the arguments of an API method, converts them, and hands out results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlweave.graph.ir import Graph, Structure, Transfer, Value
from rlweave.graph.lowering.blocks import BlockWriter
from rlweave.graph.lowering.linking import Linker, Run
from rlweave.graph.lowering.source import Names, Writer, leaves_in_source, tuple_text
from rlweave.graph.passes.ordering import HOST
from rlweave.spaces import BATCH, TIME, Box, Dim
from rlweave.tree import has_leaf, leaves_of


class EntryWriter:
    """What both kinds of program share: checks of inputs, conversions, results."""

    def __init__(self, linker: Linker, graph: Graph, names: Names, out: Writer) -> None:
        self.linker, self.graph, self.names, self.out = linker, graph, names, out
        self.globals: dict[str, Any] = linker.program_globals()
        names.taken.update(self.globals)
        self.runs: dict[str, Run] = {}
        self.name = names.fresh(graph.name)
        self.parameters = {parameter: names.fresh(parameter) for parameter in graph.parameters}
        self.inner = self.name
        if any(parameter != name for parameter, name in self.parameters.items()):
            self.inner = names.fresh(f"{graph.name}_of")

    def rename_inputs(self) -> None:
        """Gives input values the names that their parameters have in the source."""
        for value in leaves_of(self.graph.inputs, Value):
            value.name = self.parameters.get(value.name, value.name)

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

    def checks(self, converts: bool) -> None:
        """Lines that check (and where needed convert) each input: one expression when it fits, a function when not.

        Args:
            converts: Whether NumPy arrays become arrays of the framework here; not those that only the host reads.
        """
        leading: list[tuple[str, Box]] = []
        for parameter, name in self.parameters.items():
            structure = self.graph.inputs[parameter]
            convert = converts and not self._stays_on_host(structure)
            check = self.linker.input_check(self.graph.name, parameter, structure)
            checker = self.names.constant(f"check_{parameter}", check)
            if isinstance(structure, Value):
                self._array(name, structure.space, checker, convert)
                leading.append((name, structure.space))
            elif isinstance(structure, dict) and structure and all(isinstance(v, Value) for v in structure.values()):
                leaves = self._flat_dict(name, structure, checker)
                if convert and self.on_cpu():
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

    def _stays_on_host(self, structure: Structure) -> bool:
        """Whether an argument is read by functions on the host alone, and is no result."""
        own = {id(value) for value in leaves_of(structure, Value)}
        if any(id(value) in own for value in self.graph.output_values()):
            return False
        users = [node for node in self.graph.nodes if any(id(value) in own for value in node.inputs())]
        return all(node.target == HOST if isinstance(node, Transfer) else node.host for node in users)

    def _array(self, name: str, space: Box, checker: str, convert: bool) -> None:
        """Lines that check one array, and where needed convert it."""
        line = self.out.line
        convert = convert and space.dtype != "object"  # text stays on the host
        if convert and self.on_cpu():
            line(f"if {self._fits(name, space, own=False)} and {name}.flags.writeable:")
            line("    try:")
            line(f"        {name} = share({name})")
            line("    except ValueError:  # negative strides")
            line(f"        {name} = from_numpy({name})")
            line(f"elif not ({self._fits(name, space, own=True)}):")
            line(f"    {name} = from_numpy({checker}({name}))")
            return
        if self.linker.backend.description:
            seen = self.names.fresh(f"{name}_seen")
            test = self._fits(seen, space).replace(f"type({seen})", f"type({seen} := {name})", 1)
        else:
            test = self._fits(name, space)
        line(f"if not ({test}):")
        line(f"    {name} = {checker}({name})")
        if convert and len(self.linker.store.device_places) > 1:
            line(f"{name} = from_numpy({name})  # a tensor may be on any of the devices")
        elif convert:
            line(f"if type({name}) is ndarray: {name} = from_numpy({name})")

    def on_cpu(self) -> bool:
        store = self.linker.store
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
            for label, dtype in self.linker.dtypes(space.dtype).items()
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
            description = self.linker.backend.description
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


def _common_axes(leading: Sequence[tuple[str, Box]]) -> dict[str, list[tuple[str, int]]]:
    """For each free symbol the (expression, axis) pairs whose sizes have to agree."""
    groups: dict[str, list[tuple[str, int]]] = {}
    for text, space in leading:
        for axis, dim in enumerate(space.axes[: space.ranks]):
            if dim in (TIME, BATCH):
                groups.setdefault(str(dim), []).append((text, axis))
    return groups
