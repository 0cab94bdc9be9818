"""Gradients by the tape of the backend (eager torch); where there is none (NumPy), nodes in program order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlweave.graph.ir import Gradients, Graph, Node, Value, gradients_of
from rlweave.graph.lowering.blocks import BlockWriter
from rlweave.graph.lowering.source import identifier
from rlweave.graph.passes.ordering import tape_order


class TapedBlockWriter(BlockWriter):
    """Writes nodes as lines; a tape records what is differentiated, and gradients are taken from it."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        #: Whether gradients are pulled back instead, as in a vmap, whose inside torch's tape does not record.
        self._functional = False
        self._outer_gradients = False
        self._versions: dict[int, dict[str, int]] = {}
        self._wanted: dict[int, dict[str, list[int]]] = {}
        self._saved: dict[tuple[str, int], str] = {}

    def block(self, nodes: Sequence[Node]) -> None:
        if self._functional:
            super().block(nodes)
        else:
            self._taped_block(nodes)

    def body(self, graph: Graph, label: str) -> str:
        kept = self._saved, self._versions, self._wanted
        self._saved = {}
        name = super().body(graph, label)
        self._saved, self._versions, self._wanted = kept
        return name

    def vmap_body(self, graph: Graph) -> str:
        functional, self._functional = self._functional, self._functional or self.linker.backend.differentiable
        name = super().vmap_body(graph)
        self._functional = functional
        return name

    def without_gradient(self, node: Node, call: str) -> None:
        if self._functional:
            super().without_gradient(node, call)
            return
        self.out.line("with no_grad():")
        self.out.indent += 1
        self.assign(node, call)
        self.out.indent -= 1

    def _taped_block(self, nodes: Sequence[Node]) -> None:
        """Writes a block, each gradient directly after what it needs."""
        ordered = tape_order(nodes)
        on_path = {id(n) for g in ordered if isinstance(g, Gradients) for n in g.path}
        tape = self.linker.backend.has_tape
        if tape:
            self._plan_versions(ordered)
        open_tape = False
        has_gradients = self._outer_gradients or bool(gradients_of(ordered))
        outer_gradients, outer_path = self._outer_gradients, self.in_outer_path
        tracked = {id(v): v for g in gradients_of(ordered) for v in g.by_values or ()} if tape else {}
        made = {id(v) for node in ordered for v in node.values()}
        before = {key: self.expressions[key] for key in tracked if key not in made}
        self._track([v for key, v in tracked.items() if key not in made])
        for position, node in enumerate(ordered):
            wanted = tape and id(node) in on_path
            if wanted and not open_tape:
                self.out.line("with enable_grad():")
                self.out.indent += 1
            elif open_tape and not wanted:
                self.out.indent -= 1
            open_tape = wanted
            if tape:
                self._save_versions(ordered, position)
            if isinstance(node, Gradients):
                self._tape_gradient(node, ordered, position)
            else:
                donate = tape and not outer_gradients and self._may_donate(node, ordered, position)
                self._outer_gradients, self.in_outer_path = has_gradients, outer_path or id(node) in on_path
                self.node(node, donate)
                self._outer_gradients, self.in_outer_path = outer_gradients, outer_path
            self._track([v for v in node.values() if id(v) in tracked])
        self.expressions.update(before)
        if open_tape:
            self.out.indent -= 1

    def _track(self, values: Sequence[Value]) -> None:
        """Makes values known to the tape, so that gradients can be taken by them."""
        for value in values:
            text = self.expressions[id(value)]
            self.expressions[id(value)] = self.names.fresh(identifier(text))
            self.out.line(f"{self.expressions[id(value)]} = tracked({text})")

    def _plan_versions(self, ordered: Sequence[Node]) -> None:
        """Which version of each variable every node sees: how often it was written before.

        Notes them for what a node writes (gradients: for all), and for each gradient those of its forward nodes.
        """
        versions: dict[str, int] = {}
        self._versions, self._wanted = {}, {}
        seen: dict[int, dict[str, int]] = {}
        for node in ordered:
            if isinstance(node, Gradients):
                self._versions[id(node)] = dict(versions)
                wanted: dict[str, dict[int, None]] = {path: {} for path in node.paths}
                for forward in node.path:
                    for path, version in seen.get(id(forward), {}).items():
                        if path in wanted:
                            wanted[path][version] = None
                self._wanted[id(node)] = {path: list(found) for path, found in wanted.items()}
            else:
                seen[id(node)] = {path: versions.get(path, 0) for path in node.reads}
            if node.writes:
                self._versions[id(node)] = {path: versions.get(path, 0) for path in node.writes}
                for path in node.writes:
                    versions[path] = versions.get(path, 0) + 1

    def _save_versions(self, ordered: Sequence[Node], position: int) -> None:
        """Keeps the array of a variable that this node overwrites and a later gradient needs."""
        node = ordered[position]
        for path in node.writes:
            version = self._versions[id(node)][path]
            later = gradients_of(ordered[position + 1 :])
            if any(version in self._wanted[id(g)].get(path, ()) for g in later) and (path, version) not in self._saved:
                name = self.names.fresh(f"before_{path}")
                self.out.line(f"{name} = {self.cell(path)}.value")
                self._saved[path, version] = name

    def _may_donate(self, node: Node, ordered: Sequence[Node], position: int) -> bool:
        """Whether nothing else needs the arrays that a node overwrites."""
        if not node.writes:
            return True
        pending = gradients_of(ordered[position + 1 :])
        needed = {path for g in pending for n in g.path for path in n.reads}
        return not (set(node.writes) & (needed | self.aliased_paths))

    def _tape_gradient(self, node: Gradients, ordered: Sequence[Node], position: int) -> None:
        loss = self.expression(node.args[0])
        later = gradients_of(ordered[position + 1 :])
        mine = {id(n) for n in node.path}
        retain = any(mine & {id(n) for n in g.path} for g in later)
        create = self.in_outer_path or any(
            id(node) in {id(n) for n in g.path} for g in ordered if isinstance(g, Gradients)
        )
        flags = f"{retain}, {create}"
        if node.by_values is not None:
            values = tuple(node.by_values)
            name = self.names.fresh("gradients")
            self.out.line(f"{name} = gradient({loss}, {self.expression(values)}, {flags})")
            for i, value in enumerate(node.values()):
                self.expressions[id(value)] = f"{name}[{i}]"
            return
        current = {path: self._versions.get(id(node), {}).get(path, 0) for path in node.paths}
        arrays: list[str] = []
        parts: dict[str, list[int]] = {}
        for path in node.paths:
            versions = self._wanted.get(id(node), {}).get(path) or [current[path]]
            for version in versions:
                parts.setdefault(path, []).append(len(arrays))
                saved = self._saved.get((path, version))
                arrays.append(saved if saved is not None and version != current[path] else f"{self.cell(path)}.value")
        name = self.names.fresh("gradients")
        self.out.line(f"{name} = gradient({loss}, ({', '.join(arrays)},), {flags})")
        for path, value in node.result.items():
            text = " + ".join(f"{name}[{i}]" for i in parts[path])
            if len(parts[path]) > 1:
                # summed here, where the tape may be on, and not where it is used
                self.expressions[id(value)] = self.names.fresh(f"gradient_{path}")
                self.out.line(f"{self.expressions[id(value)]} = {text}")
            else:
                self.expressions[id(value)] = text
