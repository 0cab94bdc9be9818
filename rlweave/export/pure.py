"""An API method that only reads, as a pure function of weights and inputs, for an export."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlweave.backends.base import OpenArray
from rlweave.errors import BuildError
from rlweave.graph.current import BUILD_LOCK
from rlweave.graph.executor import GraphExecutor
from rlweave.graph.ir import Transfer
from rlweave.graph.lowering.blocks import BlockWriter
from rlweave.graph.lowering.functional import open_array
from rlweave.graph.lowering.source import Names, Writer, register_source
from rlweave.tree import flatten_tree, tree_map, unflatten_like


@dataclass(frozen=True)
class PureMethod:
    """An API method without a store.

    Attributes:
        function: From the weights, in order, and the (nested) inputs by parameter to the result.
        weights: The variables that it reads, by path below the root.
        inputs: Shapes and dtypes of each parameter: nested `OpenArray`s.
    """

    function: Callable[..., Any]
    weights: Mapping[str, np.ndarray]
    inputs: Mapping[str, Any]

    def flat_inputs(self) -> dict[str, OpenArray]:
        """Shape and dtype of each input array, by name: its parameter, and its path in there ("state/0")."""
        return flatten_tree(dict(self.inputs))

    def call_flat(self, weights: Sequence[Any], arrays: Mapping[str, Any]) -> dict[str, Any]:
        """The function on arrays by name; results have the names of their paths."""
        given = unflatten_like(dict(self.inputs), dict(arrays))
        return flatten_tree(self.function(tuple(weights), *given.values()))


def pure_method(executor: GraphExecutor, name: str) -> PureMethod:
    """Writes a method without static arguments as a pure function of arrays of the executor's backend.

    Args:
        executor: On a backend whose runs are functions (on torch: built with `torch_compile=True`).
        name: The API method.

    Raises:
        BuildError: It writes variables (or draws random numbers), or computes in several places.
    """
    with BUILD_LOCK, executor.store.lock:
        executor.session.activate()
        graph = executor.graphs[name, ()]
        where = f"{executor.root.path}.{name}"
        if graph.writes:
            raise BuildError(
                "a method that changes state is no pure function",
                where=where,
                received=f"it writes {graph.writes[0]}",
                fix="leave out what draws random numbers or assigns variables",
            )
        for node in graph.nodes:
            if node.host or isinstance(node, Transfer):
                raise BuildError(
                    "a method that computes on the host or on several devices is no single function",
                    where=f"{where}, {node.label}",
                    fix="export a policy without nodes on the host",
                )
        names, out, linker = Names(), Writer(), executor.linker
        scope = linker.program_globals()
        names.taken.update(scope)
        function = names.fresh(name)
        parameters = {parameter: names.fresh(parameter) for parameter in graph.parameters}
        block = BlockWriter(linker, names, out)
        block.parameters = {known: graph.inputs[parameter] for parameter, known in parameters.items()}
        for known, structure in block.parameters.items():
            block.name_leaves(structure, known)
        paths = list(graph.reads)
        cells = names.constant("cells", tuple([linker.working_cell(path, False) for path in paths]))
        out.line(f"def {function}({', '.join(['weights', *parameters.values()])}):")
        out.indent += 1
        out.line(f"set_cells({cells}, weights)")
        block.escaping = {id(value) for value in graph.output_values()}
        block.block(graph.nodes)
        out.line(f"return {block.expression(graph.outputs)}")
        filename = linker.file_name(f"{where} as a pure function")
        register_source(filename, out.source())
        scope |= names.objects
        exec(compile(out.source(), filename, "exec"), scope)
        top = f"{executor.root.path}/"
        weights = {path.removeprefix(top): executor.store.to_numpy(path) for path in paths}
        inputs = {p: tree_map(open_array, structure) for p, structure in graph.inputs.items()}
        return PureMethod(scope[function], weights, inputs)
