"""A build told phase by phase: what was composed, in which rounds it was assembled, and what each method became."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

from rlweave.graph.executor import GraphExecutor
from rlweave.graph.ir import RANDOM_PATHS, Graph, Node, Structure, Value, all_nodes
from rlweave.graph.passes.ordering import by_place
from rlweave.graph.session.components import Round
from rlweave.graph.session.inference import Session
from rlweave.graph.store import Store
from rlweave.graph.variable import VariableCollection

#: The most characters that one structure takes.
_LONGEST = 200


def explain(executor: GraphExecutor) -> str:
    """The phases of a build as text; see `GraphExecutor.explain`."""
    session, seconds = executor.session, executor.build_seconds
    lines = [f"{type(session.root).__name__} {session.root.path!r} on {session.backend.name}", ""]
    lines += [f"1. Composition: {len(session.components)} components"]
    for component in session.components:
        state = session.states[id(component)]
        depth = state.path.count("/")
        needs = f"  needs {', '.join(state.needs)}" if state.needs else ""
        lines.append(f"   {'  ' * depth}{state.path.rpartition('/')[2]}: {type(component).__name__}{needs}")
    lines += ["", "2. Assembly: each API method is called once with symbolic values, again while results are unknown"]
    for number, one in enumerate(session.rounds):
        lines += _round(session, number, one)
    lines += ["", "3. Graphs: what each API method became"]
    for graph in executor.graphs.values():
        lines += _method(executor.store, graph)
    own = seconds["total"] - seconds["abstract evaluation"] - seconds["initializers"]
    lines += [
        "",
        f"4. Time: {1e3 * seconds['total']:.0f} ms in total, {1e3 * seconds['abstract evaluation']:.0f} ms of it for "
        f"evaluating shapes, {1e3 * seconds['initializers']:.0f} ms for initial values, {1e3 * own:.0f} ms for the "
        "rest; methods are lowered to code (and compiled) when they are first called",
    ]
    return "\n".join(lines) + "\n"


def _round(session: Session, number: int, one: Round) -> Iterator[str]:
    title = f"round {number}" if number else "before"
    for component in one.completed:
        state = session.states[id(component)]
        fed = [f"{name} {_space_text(state.inputs[name])} from {state.callers[name]}" for name in state.needs]
        yield f"   {title}: {state.path} is complete{': ' if fed else ''}{'; '.join(fed)}"
        for variable in state.variables:
            kind = "" if variable.trainable and component.trainable else ", not trained"
            yield f"   {' ' * len(title)}    creates {variable.name} {variable.shape} {variable.space.dtype}{kind}"
    for name in one.known:
        yield f"   {title}: {name} is known"
    for name, reason in one.waiting:
        yield f"   {title}: {name} has to wait{': ' if reason else ''}{reason}"


def _method(store: Store, graph: Graph) -> Iterator[str]:
    static = ", ".join(f"{name}={value!r}" for name, value in graph.static.items())
    yield f"   {graph.name}({static})" if static else f"   {graph.name}"
    for name, structure in graph.inputs.items():
        yield f"     takes {name}: {_text(structure)}"
    yield f"     gives {_text(graph.outputs)}"
    nodes = list(all_nodes(graph))
    kinds = Counter(node.kind for node in nodes)
    parts = [_count(count, _KINDS.get(kind, kind)) for kind, count in kinds.most_common()]
    yield f"     {_count(len(nodes), 'node')}{': ' if parts else ''}{', '.join(parts)}"
    runs = [f"{_place(store, run[0])} ({len(run)})" for run in by_place(graph.nodes)]
    if len(runs) > 1:
        yield f"     {len(runs)} runs: {' -> '.join(runs)}"
    for title, paths in (("reads", graph.reads), ("writes", graph.writes)):
        variables = [path for path in paths if path not in RANDOM_PATHS]
        size = sum(math.prod(store.cells[path].value.shape) for path in variables)
        parts = [f"{_count(len(variables), 'variable')} ({_count(size, 'number')})"] if variables else []
        parts += ["random state"] if len(variables) < len(paths) else []
        if parts:
            yield f"     {title} {' and '.join(parts)}"


def _count(number: int, what: str) -> str:
    """A number with its noun.

    >>> _count(1, "branch"), _count(2000, "branch")
    ('1 branch', '2,000 branches')
    """
    return f"{number:,} {what}{'' if number == 1 else 'es' if what.endswith('ch') else 's'}"


_KINDS = {"call": "graph function call", "while": "loop", "cond": "branch"}


def _place(store: Store, node: Node) -> str:
    return "host" if node.host else node.device or store.backend.name


def _text(structure: Structure) -> str:
    """A nested result by its spaces, in one line."""
    if structure is None:
        return "nothing"
    if isinstance(structure, dict):
        return _shortened("{" + ", ".join(f"{key}: {_text(item)}" for key, item in structure.items()) + "}")
    if isinstance(structure, tuple | list):
        return _shortened("(" + ", ".join(map(_text, structure)) + ")")
    return repr(structure.space) if isinstance(structure, Value) else repr(structure)


def _space_text(space: Any) -> str:
    return f"({len(space)} of them)" if isinstance(space, VariableCollection) else _shortened(repr(space))


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 4]} ..."
