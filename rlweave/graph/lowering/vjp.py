"""Gradients by vjp (JAX, TensorFlow, compiled torch): differentiated paths are functions that are pulled back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlweave.errors import BuildError
from rlweave.graph.ir import Gradients, Node, Value, gradients_of, unique
from rlweave.graph.lowering.expressions import Expressions
from rlweave.graph.lowering.source import identifier, tuple_text
from rlweave.graph.passes.ordering import Piece, pieces


class PullBacks(Expressions):
    """Writes segments of differentiated paths as functions, and gradients as what is pulled back through them."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._pulls: dict[int, list[tuple[Piece, str, list[Value], list[str], list[Value]]]] = {}

    def block(self, nodes: Sequence[Node]) -> None:
        """Writes a block, what is differentiated in as few segments as its dependencies allow."""
        for item in pieces(nodes):
            if isinstance(item, Piece):
                self.segment(item, nodes)
            else:
                self.node(item)

    def segment(self, piece: Piece, block: Sequence[Node]) -> None:
        """Writes a piece of differentiated path as a function, evaluates it once and keeps its pull-back."""
        gradients = gradients_of(piece.nodes)
        inside = {id(n) for n in piece.nodes}
        nested = {id(g) for g in gradients}
        for g in gradients:
            if any(id(n) not in inside for n in g.path):
                raise BuildError(
                    "a nested gradient is entangled with writes that lie between it and its forward nodes",
                    where=g.label,
                    fix="take the inner gradient directly after its loss, before other variables are written",
                )
        tops = [
            g
            for g in block
            if isinstance(g, Gradients) and id(g) not in nested and any(id(n) in inside for n in g.path)
        ]
        made = {id(v) for n in piece.nodes for v in n.values()}
        paths = unique(
            p
            for g, wanted in [(g, set(g.paths)) for g in tops]
            for n in g.path
            if id(n) in inside and not isinstance(n, Gradients)
            for p in n.reads
            if p in wanted
        )
        writes = unique(p for n in piece.nodes for p in n.writes)
        explicit = {id(v) for g in tops for v in g.by_values or ()}
        earlier = {id(v) for g in tops for _, _, outputs, _, _ in self._pulls.get(id(g), ()) for v in outputs}
        values = list(
            {
                id(v): v
                for n in piece.nodes
                for v in n.inputs()
                if id(v) not in made and (id(v) in explicit or id(v) in earlier)
            }.values()
        )
        outside = [n for n in block if id(n) not in inside]
        used = {id(v) for n in outside for v in n.inputs()} | self.escaping
        losses = {id(g.loss) for g in tops}
        later_path = {id(v) for g in tops for n in g.path if id(n) not in inside for v in n.inputs()}
        results = [v for n in piece.nodes for v in n.values()]
        outputs = [v for v in results if _is_float(v) and (id(v) in losses or id(v) in later_path)]
        chosen = {id(v) for v in outputs}
        others = [v for v in results if id(v) in used and id(v) not in chosen]
        name = self.names.fresh("segment")
        arguments = [self.names.fresh(f"{identifier(self.expressions[id(v)])}_in") for v in values]
        arguments_outside = [self.expressions[id(v)] for v in values]
        self.out.line(f"def {name}({', '.join(arguments)}):")
        self.out.indent += 1
        before = {id(v): self.expressions[id(v)] for v in values}
        for v, argument in zip(values, arguments, strict=True):
            self.expressions[id(v)] = argument
        hidden, self.escaping = self.escaping, self.escaping | {id(v) for v in (*outputs, *others)}
        outer_path, self.in_outer_path = self.in_outer_path, True
        if gradients:
            kept_pulls, self._pulls = self._pulls, {}
            self.block(piece.nodes)
            self._pulls = kept_pulls
        else:
            for n in piece.nodes:
                self.node(n)
        self.escaping, self.in_outer_path = hidden, outer_path
        returned = [tuple_text([self.expressions[id(v)] for v in group]) for group in (outputs, others)]
        self.out.line(f"return {', '.join(returned)}")
        self.out.indent -= 1
        self.expressions.update(before)
        for n in piece.nodes:
            self.containers.pop(id(n), None)
        out_names = [self.names.fresh(identifier(self.expressions[id(v)])) for v in outputs]
        other_names = [self.names.fresh(identifier(self.expressions[id(v)])) for v in others]
        pull = self.names.fresh(f"pull_{name}")
        self.out.line(
            f"{tuple_text(out_names)}, {tuple_text(other_names)}, {pull} = vjp({name}, {self.cells(paths)}, "
            f"{self.cells(writes)}, {tuple_text(arguments_outside)})"
        )
        for v, text in zip((*outputs, *others), (*out_names, *other_names), strict=True):
            self.expressions[id(v)] = text
        record = (piece, pull, outputs, list(paths), values)
        for g in tops:
            self._pulls.setdefault(id(g), []).append(record)

    def pull_gradient(self, node: Gradients) -> None:
        """Writes a gradient node: pull-backs of its pieces, last one first."""
        loss = node.loss
        cotangents: dict[int, str] = {id(loss): f"ones_like({self.expressions[id(loss)]})"}
        by_path: dict[str, list[str]] = {}
        for _piece, pull, outputs, paths, values in reversed(self._pulls.get(id(node), [])):
            if not any(id(v) in cotangents for v in outputs):
                continue
            seeds = [cotangents.get(id(v), f"zeros_like({self.expressions[id(v)]})") for v in outputs]
            name = self.names.fresh("cotangents")
            self.out.line(f"{name} = {pull}({tuple_text(seeds)})")
            for i, path in enumerate(paths):
                by_path.setdefault(path, []).append(f"{name}[0][{i}]")
            for i, v in enumerate(values):
                text = f"{name}[1][{i}]"
                cotangents[id(v)] = f"({cotangents[id(v)]} + {text})" if id(v) in cotangents else text
        if node.by_values is not None:
            for value, source in zip(node.values(), node.by_values, strict=True):
                self.expressions[id(value)] = cotangents.get(id(source), f"zeros_like({self.expressions[id(source)]})")
            return
        for path, value in node.result.items():
            parts = by_path.get(path)
            text = " + ".join(parts) if parts else f"zeros_like({self.cell(path)}.value)"
            self.expressions[id(value)] = f"({text})" if parts and len(parts) > 1 else text


def _is_float(value: Value) -> bool:
    return value.space.dtype.startswith("float")
