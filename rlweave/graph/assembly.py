"""Assembly: API methods are called with symbolic values, in rounds, and become graphs.

A method is traced (`trace.py`) again in each round until every component that it meets knows its inputs.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rlweave.errors import BuildError, nearest
from rlweave.graph.component import api_methods
from rlweave.graph.current import tracing
from rlweave.graph.decorators import describe
from rlweave.graph.executor import EXECUTOR_ATTRIBUTES, GraphExecutor
from rlweave.graph.ir import Graph, NotReady, Structure, Unknown
from rlweave.graph.session.components import Round
from rlweave.graph.session.inference import Session
from rlweave.graph.trace import Trace
from rlweave.graph.values import make_inputs, nested_boxes
from rlweave.graph.variable import VariableCollection
from rlweave.plugins import extension
from rlweave.spaces import Space
from rlweave.tree import has_leaf

InputSpace = Space | Callable[[Any], VariableCollection]


class Assembly:
    """The API methods of a root as graphs: traced in rounds, until every component knows its inputs.

    Args:
        session: The build.
        input_spaces: As in `build`.
        methods: As in `build`.
        static: As in `build`.
    """

    def __init__(
        self,
        session: Session,
        input_spaces: dict[str, InputSpace],
        methods: Iterable[str] | None,
        static: dict[str, Mapping[str, Any]],
    ) -> None:
        self.session, self.input_spaces, self.static = session, input_spaces, static
        self.declared = api_methods(type(session.root))
        offered = [name for name in self.declared if session.root.offers(name)]
        self.wanted = offered if methods is None else list(methods)
        for name in (*self.wanted, *static):
            if name not in self.declared:
                raise BuildError(
                    f"{type(session.root).__name__} has no API method {name!r}",
                    where=session.root.path,
                    fix=nearest(name, self.declared),
                )
        if not self.wanted:
            raise BuildError("the root has no API methods", where=session.root.path, fix="declare one with @api")
        self.graphs: list[Graph] = []
        self._check_input_names()

    def _check_input_names(self) -> None:
        known = {p for m in self.declared for p in self.declared[m].parameters}
        known |= {f"{m}.{p}" for m in self.declared for p in self.declared[m].parameters}
        for name, space in self.input_spaces.items():
            if name not in known:
                close = difflib.get_close_matches(name, known, 1)
                raise BuildError(
                    f"unknown input {name!r}: no API method of the root has such a parameter",
                    where=self.session.root.path,
                    received=repr(space),
                    fix=f"did you mean {close[0]!r}?"
                    if close
                    else f"parameters are {sorted(p for p in known if '.' not in p)}",
                )

        for method in self.wanted:
            declared = self.declared[method]
            for parameter in declared.parameters:
                if parameter in ("as_numpy", "with_metrics"):
                    raise BuildError(
                        f"a parameter is called {parameter!r}, which is a keyword of every method of an executor",
                        where=f"{self.session.root.path}.{method}",
                        fix="choose another name",
                    )
                if parameter in declared.static and f"{method}.{parameter}" in self.input_spaces:
                    raise BuildError(
                        f"a space was given for the static argument {parameter!r}",
                        where=f"{self.session.root.path}.{method}",
                        fix=f"pass a constant instead: build(..., static={{{method!r}: {{{parameter!r}: ...}}}})",
                    )
            # `draw` is a natural name of a random draw; `rlweave.extensions.drawing.draw` is there then
            if method != "draw" and (hasattr(GraphExecutor, method) or method in EXECUTOR_ATTRIBUTES):
                raise BuildError(
                    f"an API method of the root has the name of an attribute of executors, {method!r}",
                    where=self.session.root.path,
                    fix="choose another name, or leave it out: build(..., methods=[...])",
                )

    def space_of(self, method: str, parameter: str) -> Any:
        return self.input_spaces.get(f"{method}.{parameter}", self.input_spaces.get(parameter))

    def run(self) -> None:
        """Traces all methods, in rounds, until all of them are known."""
        session = self.session
        for component in session.components:
            session.complete_if_possible(component)
        session.rounds.append(Round((), (), tuple(session.completion)))
        waiting: list[tuple[str, dict[str, Any]]] = []
        for name in self.wanted:
            static = self._static_for(name)
            if static is not None:
                waiting.append((name, static))
        done: dict[str, Graph] = {}
        while waiting:
            complete_before = len(session.completion)
            session.unknown_inputs.clear()
            again: list[tuple[str, dict[str, Any]]] = []
            reasons: dict[str, str] = {}
            for name, static in waiting:
                graph, reason = self.trace(name, static)
                if graph is None:
                    again.append((name, static))
                    reasons[name] = reason
                else:
                    done[name + repr(static)] = graph
                    self.graphs.append(graph)
            completed = tuple(session.completion[complete_before:])
            if again and len(again) == len(waiting) and not completed:
                raise extension("diagnosis").stuck(session, reasons)
            known = tuple([name for name, static in waiting if (name, static) not in again])
            session.rounds.append(Round(known, tuple(reasons.items()), completed))
            waiting = again
        order = {name: i for i, name in enumerate(self.wanted)}
        self.graphs.sort(key=lambda graph: order[graph.name])

    def _static_for(self, name: str) -> dict[str, Any] | None:
        """Static arguments to trace at build time: given ones, defaults; None when some are not known yet."""
        declared = self.declared[name]
        given = self.static.get(name, {})
        for parameter in given:
            if parameter not in declared.static:
                raise BuildError(
                    f"{parameter!r} is no static argument of {name!r}",
                    where=self.session.root.path,
                    fix=nearest(parameter, declared.static) if declared.static else "declare it with @api(static=...)",
                )
        known = {**declared.static_defaults, **given}
        return {p: known[p] for p in declared.static} if len(known) == len(declared.static) else None

    def trace(self, name: str, static: Mapping[str, Any]) -> tuple[Graph | None, str]:
        """Traces one method; (None, reason) when it has to be traced again."""
        declared, root = self.declared[name], self.session.root
        graph = Graph(name, tuple(p for p in declared.parameters if p not in declared.static), static=dict(static))
        arguments: dict[str, Structure] = dict(static)
        for parameter in graph.parameters:
            space = self.space_of(name, parameter)
            default = declared.signature.parameters[parameter].default
            if space is None:
                if default is not declared.signature.empty:
                    arguments[parameter] = default
                    continue
                raise BuildError(
                    f"no space for input {parameter!r}",
                    where=f"{root.path}.{name}",
                    received=f"input spaces for {sorted(self.input_spaces)}",
                    fix=f'add {{"{parameter}": <space>}} to input_spaces, or leave the method out with methods=[...]',
                )
            if callable(space):
                with tracing(Trace(self.session, graph)):
                    try:
                        collection = space(root)
                    except NotReady as reason:
                        return None, str(reason)
                structure: Structure = {path: variable.space for path, variable in collection.items()}
                graph.inputs[parameter] = arguments[parameter] = make_inputs(structure, parameter)
                continue
            if not isinstance(space, Space):
                raise BuildError(
                    f"the space of input {parameter!r} is no space",
                    where=f"{root.path}.{name}",
                    received=describe(space),
                    fix="pass a FloatBox, IntBox, BoolBox, Dict or Tuple",
                )
            # float64 inputs lose digits, which is accepted; an integer would become another number
            backend = self.session.backend
            if not backend.wide and any(leaf.dtype == "int64" for leaf in space.flatten().values()):
                raise BuildError(
                    f"the {backend.name} backend computes in 32 bits here, and input {parameter!r} is int64",
                    where=f"{root.path}.{name}",
                    received=repr(space),
                    fix='use a space of 32 bits, or backend="torch" or "numpy"',
                )
            self.session.feature_sizes.update(space.feature_sizes())
            graph.inputs[parameter] = arguments[parameter] = make_inputs(nested_boxes(space), parameter)
        graph.parameters = tuple(graph.inputs)
        trace = Trace(self.session, graph)
        with tracing(trace):
            try:
                graph.outputs = trace.call(root, declared, (), arguments)
            except NotReady as reason:
                return None, str(reason)
            except KeyError as error:
                failed = extension("diagnosis").failed_method(f"{root.path}.{name}", error)
                if failed is None:
                    raise
                raise failed from error
        if trace.unknown or has_leaf(graph.outputs, Unknown):
            return None, ""
        return graph, ""

    def trace_variant(self, name: str, static: Mapping[str, Any]) -> Graph:
        """Traces a static variant after the build."""
        self.session.activate()
        graph, reason = self.trace(name, static)
        if graph is None:
            graph, reason = self.trace(name, static)
        if graph is None:
            raise extension("diagnosis").stuck(self.session, {name: reason})
        return graph
