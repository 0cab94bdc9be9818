"""Component graphs: composition, tracing into the IR, the build, lowering, execution."""

import rlweave.graph.symbolic_ops  # noqa: F401 - gives symbolic values their operators
from rlweave.graph.building import build
from rlweave.graph.component import Component
from rlweave.graph.composition import shared
from rlweave.graph.control import cond, repeat, scan, vmap, while_
from rlweave.graph.declarations import batch_rank, metric, metrics, time_rank
from rlweave.graph.decorators import api, graph_fn
from rlweave.graph.derivatives import gradients, stop_gradient, substitute
from rlweave.graph.executor import GraphExecutor
from rlweave.graph.specs import from_spec, register, registered_components, to_spec
from rlweave.graph.variable import Variable, VariableCollection, orthogonal

__all__ = [
    "Component",
    "GraphExecutor",
    "Variable",
    "VariableCollection",
    "api",
    "batch_rank",
    "build",
    "cond",
    "from_spec",
    "gradients",
    "graph_fn",
    "metric",
    "metrics",
    "orthogonal",
    "register",
    "registered_components",
    "repeat",
    "scan",
    "shared",
    "stop_gradient",
    "substitute",
    "time_rank",
    "to_spec",
    "vmap",
    "while_",
]
