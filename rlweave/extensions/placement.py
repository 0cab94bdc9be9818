"""Where nodes run: the host, or one of the devices that a build names.

A graph function runs where the variables are that it touches; one that touches none, where its component is placed.
Operators of an API method run where their first value was made. A body and what is differentiated run in one place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rlweave.backends import Backend
from rlweave.backends.base import TOGETHER
from rlweave.errors import BackendError, BuildError
from rlweave.graph.composition import ComponentBase
from rlweave.graph.executor import GraphExecutor
from rlweave.graph.ir import RANDOM_PATHS, Call, Gradients, Graph, Node, all_nodes, unique
from rlweave.graph.passes.ordering import HOST, place_of
from rlweave.graph.session.inference import Session
from rlweave.graph.store import Store


def name_devices(session: Session, replicas: Sequence[str]) -> None:
    """Gives every component that is not on the host a device by its full name.

    Args:
        session: A build whose components ask for devices, or have them from the build.
        replicas: The device of each replica of what is differentiated.

    Raises:
        BuildError: There is no such device.
    """
    backend, places = session.backend, {}
    for component in session.components:
        state = session.states[id(component)]
        if state.device in (None, HOST):
            continue
        if not backend.maps_devices:
            # NumPy acts with components that were made for a device of the framework that learns
            if state.device != "cpu" and (not backend.on_host or session.devices):
                raise BuildError(
                    f"the {backend.name} backend computes on the CPU only",
                    where=component.path,
                    received=f"device={state.device!r}",
                    fix='leave the device out, or use backend="jax" or backend="torch"',
                )
            state.device = None
            continue
        places[id(component)] = device_name(backend, str(state.device), component.path)
        state.placed = True
    if places or replicas:
        session.default_device = replicas[0] if replicas else backend.device_names()[0]
        for component in session.components:
            state = session.states[id(component)]
            state.device = HOST if state.device == HOST else places.get(id(component), session.default_device)
        devices = [session.states[id(component)].device for component in session.components]
        session.device_places = unique(d for d in (*devices, *replicas) if d not in (None, HOST))


def device_name(backend: Backend, name: str, where: str) -> str:
    """The full name of a device of a backend.

    Raises:
        BuildError: There is no such device.
    """
    try:
        return backend.device_name(name)
    except BackendError as error:
        raise BuildError(error.what, where=where, received=error.received, fix=error.fix) from None


def place_nodes(graph: Graph, executor: GraphExecutor) -> None:
    """Gives every node of a graph its device, in place: a pass.

    Args:
        graph: A traced graph.
        executor: Its store knows where variables are.

    Raises:
        BuildError: A graph function, a body or a differentiated path would be in two places; it names both.
    """
    for node in graph.nodes:
        place_node(node, executor.store)


def place_node(node: Node, store: Store) -> None:
    """Gives a node its device, after all nodes before it."""
    if store.default_device is None:
        return
    if node.host:
        node.device = HOST
    elif node.bodies:
        found = _places_inside([n for body in node.bodies.values() for n in body.nodes], store)
        if len(found) > 1:
            (one, first), (other, second) = list(found.items())[:2]
            raise BuildError(
                f"the body of {node.kind} is on two devices",
                where=node.label,
                received=f"{first.label} on {one}, {second.label} on {other}",
                fix="a body is one compiled program: " + _together(first, second),
            )
        _settle(node, next(iter(found), None) or _place_of_inputs(node) or store.default_device)
    elif isinstance(node, Gradients):
        _place_gradient(node, store)
    elif isinstance(node, Call):
        node.device = _place_of_call(node, store) or store.default_device


def _place_of_call(node: Call, store: Store) -> str | None:
    if node.replica is not None:
        return node.device
    touched: dict[str, str] = {}
    for path in (*node.reads, *node.writes):
        if path not in RANDOM_PATHS:
            touched.setdefault(store.place_of(path), path)
    if len(touched) > 1:
        (one, first), (other, second) = list(touched.items())[:2]
        raise BuildError(
            "a graph function touches variables on two devices",
            where=node.label,
            received=f"{first} on {one}, {second} on {other}",
            fix="put their components on one device, or pass values of one of them: "
            "values = component.variables().read()",
        )
    if touched:
        return next(iter(touched))
    if node.component is not None and not node.plain:
        return node.device
    return _place_of_inputs(node)


def _place_of_inputs(node: Node) -> str | None:
    """The device on which its first value was made."""
    for value in node.inputs():
        if value.node is not None and not value.node.host and value.node.device is not None:
            return value.node.device
    return None


def _places_inside(nodes: Iterable[Node], store: Store) -> dict[str, Node]:
    """The devices of the nodes of a body that cannot run just anywhere, and the first node on each."""
    found: dict[str, Node] = {}
    for node in nodes:
        if node.bodies:
            for place, inner in _places_inside([n for b in node.bodies.values() for n in b.nodes], store).items():
                found.setdefault(place, inner)
        elif isinstance(node, Call):
            own = _place_of_call(node, store)
            if own is not None:
                found.setdefault(own, node)
    return found


def _settle(node: Node, place: str) -> None:
    node.device = place
    for body in node.bodies.values():
        for inner in all_nodes(body):
            inner.device = place


def _place_gradient(gradient: Gradients, store: Store) -> None:
    loss = gradient.loss.node
    loss_label = loss.label if loss is not None else "the loss"
    gradient.device = place = (loss.device if loss is not None else None) or store.default_device or ""
    if TOGETHER in (store.default_device or "") and place != store.default_device:
        raise BuildError(
            "a batch is split over several devices, and what learns from it lies on one",
            where=gradient.label,
            received=f"{loss_label} on {place}, replicas on {store.default_device}",
            fix="leave out the device of what learns, or the replicas",
        )
    for node in gradient.path:
        if node.device != place and loss is not None:
            raise BuildError(
                "a gradient goes over two devices",
                where=gradient.label,
                received=f"{node.label} on {node.device}, {loss.label} on {place}",
                fix="what is differentiated is one compiled program: " + _together(node, loss),
            )
    for path in gradient.paths:
        if store.place_of(path) != place:
            raise BuildError(
                "a gradient is taken by a variable on another device than its loss",
                where=gradient.label,
                received=f"{path} on {store.place_of(path)}, {loss_label} on {place}",
                fix="put the component of the variable on the device of the loss, or leave it out of the collection",
            )
    # replicas take gradients by weights that come from elsewhere: the derivative does not go on into the transfer
    for value in gradient.by_values or () if gradient.replica is None else ():
        if value.node is not None and place_of(value.node) != place:
            raise BuildError(
                "a gradient is taken by a value on another device than its loss",
                where=gradient.label,
                received=f"{value.node.label} on {place_of(value.node)}, {loss_label} on {place}",
                fix="compute both on one device",
            )


def _together(first: Node, second: Node) -> str:
    """How two nodes come to one device."""
    moved, stays = (first, second) if _component_of(first) is not None else (second, first)
    component = _component_of(moved)
    path = component.path if component is not None else "path/of/the/component"
    return f'put both on one device, as in build(..., device={{"{path}": "{stays.device}"}})'


def _component_of(node: Node) -> ComponentBase | None:
    return node.component if isinstance(node, Call) else None
