"""What a backend that only acts refuses."""

from __future__ import annotations

from rlweave.backends import Backend
from rlweave.errors import BuildError
from rlweave.graph.ir import RANDOM_PATHS, Gradients, Graph, all_nodes


def refuse_learning(graph: Graph, root: str, backend: Backend) -> None:
    """Checks that a graph neither writes variables nor takes gradients.

    Args:
        graph: A traced method.
        root: Path of the root component.
        backend: One that only acts.

    Raises:
        BuildError: It does; names the first node that does, and what to do.
    """
    for node in all_nodes(graph):
        written = [path for path in node.writes if path not in RANDOM_PATHS]
        if not isinstance(node, Gradients) and not written:
            continue
        raise BuildError(
            f"the {backend.name} backend only acts, and {graph.name!r} learns",
            where=f"{root}.{graph.name}",
            received=f"{node.label} writes {written[0]}" if written else f"{node.label} takes a gradient",
            fix='learn on backend="jax", "torch" or "tensorflow"; act on this one with build(..., methods=[...]) of '
            f"methods that only act, or with acting_backend={backend.name!r} of an agent",
        )
