"""Where a change of one row (or time step) first reaches one that it should not reach."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from rlweave.graph.ir import Call
from rlweave.testing.checks.axes import Along, moved
from rlweave.testing.checks.recording import Recording, Step, pairs, same_array


@dataclass(frozen=True)
class Leak:
    """A node whose results move in rows (or time steps) in which none of its inputs moves.

    Args:
        step: The node, as it ran before the change.
        output: Name of the result.
        indices: The rows (or time steps) that moved.
        through: Name of the input, or path of the variable, that brought the change and has no such axis; "" where the
            node itself spreads it.
    """

    step: Step
    output: str
    indices: frozenset[int]
    through: str = ""


class Movement:
    """Compares two recordings of a call, the second with one row (or time step) of its inputs changed.

    What a node spreads on purpose (it is declared, or it is an optimizer's step) is followed, and no fault of those
    that use it.

    Args:
        along: Batch or time.
        sizes: Sizes of the ranks.
    """

    def __init__(self, along: Along, sizes: Mapping[str, int]) -> None:
        self.along, self.sizes = along, sizes
        self._excused: set[int] = set()
        self._excused_variables: dict[str, bool] = {}

    def leaks(self, one: Recording, other: Recording, index: int) -> Iterator[Leak]:
        """The nodes that spread the change, each once, in the order in which they ran."""
        reported: set[int] = set()
        for before, after in pairs(one, other):
            # a value that is said to be a batch has rows of its own: those of a minibatch, say
            relabels = isinstance(before.node, Call) and before.node.relabels
            leak = None if relabels else self._leak(before, after, index)
            excused = leak is not None or self._excuses(before, after)
            if leak is not None and id(before.node) not in reported:
                reported.add(id(before.node))
                yield leak
            self._follow(before, after, excused)

    def _leak(self, before: Step, after: Step, index: int) -> Leak | None:
        reached: set[int] = set()
        through: str | None = None
        for name, leaf in before.inputs.items():
            where = moved(leaf.space, leaf.array, after.inputs[name].array, self.along, self.sizes)
            if where is not None:
                reached |= where
            elif id(leaf.value) in self._excused:
                return None
            else:
                through = through or name
        for path, array in before.read.items():
            if not same_array(array, after.read[path]):
                if self._excused_variables.get(path, True):
                    return None
                through = through or path
        for name, leaf in before.outputs.items():
            where = moved(leaf.space, leaf.array, after.outputs[name].array, self.along, self.sizes, tolerance=1e-4)
            if where is None:
                continue
            wrong = self._wrong(before, where, reached or ({index} if through else set()))
            if wrong:
                return Leak(before, name, frozenset(wrong), through or "")
        return None

    def _wrong(self, step: Step, found: frozenset[int], reached: set[int]) -> set[int]:
        call = step.declared
        if self.along is Along.BATCH:
            return set() if call is not None and call.mixes_batch else set(found) - reached
        if not reached:
            return set(found)
        if call is not None and call.mixes_batch:
            return set()
        if call is not None and call.looks_ahead:
            return {t for t in found if t > max(reached)}
        return {t for t in found if t < min(reached)}

    def _excuses(self, before: Step, after: Step) -> bool:
        """Whether what a node makes without the axis may be used for all rows."""
        call = before.declared
        if call is not None and (call.mixes_batch or (self.along is Along.TIME and call.looks_ahead)):
            return True
        return any(
            id(leaf.value) in self._excused and not same_array(leaf.array, after.inputs[name].array)
            for name, leaf in before.inputs.items()
        )

    def _follow(self, before: Step, after: Step, excused: bool) -> None:
        if excused:
            self._excused.update(id(leaf.value) for leaf in before.outputs.values())
        component = before.node.component if isinstance(before.node, Call) else None
        path = component.path if component is not None else None
        for variable, array in before.written.items():
            if not same_array(array, after.written[variable]):
                # what a component keeps of a batch and uses on that very batch reaches all rows; what an optimizer
                # writes into others' variables is learning
                own = path is not None and variable.startswith(path + "/")
                self._excused_variables[variable] = excused or not own

    def spreads(self, one: Recording, other: Recording, step: Step) -> bool:
        """Whether a node makes rows (or steps) depend on each other, or reduces them."""
        for before, after in pairs(one, other):
            if before.node is not step.node:
                continue
            reached: set[int] = set()
            for name, leaf in before.inputs.items():
                reached |= moved(leaf.space, leaf.array, after.inputs[name].array, self.along, self.sizes) or set()
            for name, leaf in before.outputs.items():
                array = after.outputs[name].array
                where = moved(leaf.space, leaf.array, array, self.along, self.sizes, tolerance=1e-4)
                if where is None or (self.along is Along.BATCH and set(where) - reached):
                    return True
                if self.along is Along.TIME and any(t < min(reached, default=0) for t in where):
                    return True
            if any(not np.array_equal(x, after.written[path]) for path, x in before.written.items()):
                return True
        return False
