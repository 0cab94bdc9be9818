"""Programs: a graph becomes the source of an entry function and of its runs, and the source becomes functions.

`functional.py` writes programs for JAX, `straight.py` for NumPy and torch. The objects behind the names in them are
those of `linking.py`.
"""

from __future__ import annotations

import functools
import types
from typing import Any

from rlweave.graph.ir import Graph
from rlweave.graph.lowering.functional import FunctionalProgram
from rlweave.graph.lowering.linking import Linker
from rlweave.graph.lowering.source import Names, Writer, identifier, register_source
from rlweave.graph.lowering.straight import StraightProgram

#: Names that generated functions use besides those of the backend's runtime.
_RESERVED = (
    *("as_numpy", "with_metrics", "result", "fits", "state", "donated", "kept", "version", "whole", "Exception"),
    *("type", "len", "float", "KeyError", "IndexError", "TypeError", "AttributeError", "RuntimeError", "ValueError"),
)


class Program:
    """One API method, lowered.

    Args:
        source: What runs, readable.
        entry: The function that an executor has as its attribute.
        runs: Compiled device runs by name.
    """

    def __init__(self, source: str, entry: Any, runs: dict[str, Any]) -> None:
        self.source, self.entry, self.runs = source, entry, runs


def write_program(linker: Linker, graph: Graph) -> Program:
    """Lowers a graph."""
    names = Names()
    names.taken.update(_RESERVED)
    filename = linker.file_name(f"{linker.root.scope}.{graph.name}")
    out = Writer()
    kind = FunctionalProgram if linker.functional else StraightProgram
    entry = kind(linker, graph, names, out)
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
    for name, run in entry.runs.items():
        runs[name] = scope[name] = linker.compile_run(scope[name], run)
    return Program(source, scope[entry.name], runs)


@functools.lru_cache(maxsize=1024)
def _compiled(source: str) -> types.CodeType:
    """The code of a source; equal graphs, built again, have equal sources."""
    return compile(source, "<rlweave>", "exec")


def _named(code: types.CodeType, filename: str) -> types.CodeType:
    """The same code under another file name, which tracebacks show."""
    constants = tuple(_named(c, filename) if isinstance(c, types.CodeType) else c for c in code.co_consts)
    return code.replace(co_filename=filename, co_consts=constants)
