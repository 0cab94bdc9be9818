"""Staging: the arguments of a later call are brought to the devices where it uses them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlweave.backends import Backend
from rlweave.errors import ExecutionError
from rlweave.graph.executor import GraphExecutor
from rlweave.graph.ir import Graph, Structure, Value
from rlweave.graph.passes.ordering import HOST, place_of
from rlweave.tree import leaves_of, tree_map


class StagedArguments(tuple[Any, ...]):
    """The arguments of one call, checked and on their devices: `executor.update(*staged)` copies nothing again."""

    __slots__ = ()


def stage(executor: GraphExecutor, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> StagedArguments:
    """See `GraphExecutor.stage`."""
    where = f"{executor.root.path}.{name}"
    graph = next((g for (method, _), g in executor.graphs.items() if method == name), None)
    if graph is None:
        if name not in executor.__dict__:
            getattr(executor, name)  # raises the error for an unknown method
        raise ExecutionError(
            "arguments were staged for a method that has not been traced yet",
            where=where,
            received="static arguments without defaults",
            fix=f'call it once, or build with static={{"{name}": {{...}}}}',
        )
    given = dict(zip(graph.parameters, args, strict=False))
    unknown = [key for key in kwargs if key not in graph.parameters or key in given]
    given.update(kwargs)
    if len(args) > len(graph.parameters) or unknown or len(given) != len(graph.parameters):
        raise ExecutionError(
            "wrong arguments to stage",
            where=where,
            received=f"{len(args)} by position, {sorted(kwargs)} by name",
            fix=f"give each of {list(graph.parameters)} once; static arguments belong to the call",
        )
    places, backend = _places(graph, executor.store.input_place), executor.backend
    checked = {p: executor.linker.input_check(name, p, graph.inputs[p])(given[p]) for p in graph.parameters}
    return StagedArguments(_put(backend, graph.inputs[p], argument, places) for p, argument in checked.items())


def _places(graph: Graph, home: str) -> dict[int, str]:
    """Where each input is used: a device, or the host where it is used there only; `home` where several use it."""
    found: dict[int, dict[str, None]] = {}
    inputs = {id(value) for value in leaves_of(graph.inputs, Value)}
    for node in graph.nodes:
        for value in node.inputs():
            if id(value) in inputs:
                found.setdefault(id(value), {})[place_of(node)] = None
    devices = {key: [place for place in places if place != HOST] for key, places in found.items()}
    return {key: HOST if not used else used[0] if len(used) == 1 else home for key, used in devices.items()}


def _put(backend: Backend, structure: Structure, argument: Any, places: dict[int, str]) -> Any:
    def put(value: Any, array: Any) -> Any:
        if not isinstance(value, Value):
            return array
        place = places.get(id(value), HOST)
        return np.array(array) if place == HOST else backend.stage(array, None if place == "device" else place)

    return tree_map(put, structure, argument)
