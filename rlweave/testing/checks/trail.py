"""The way of a change through the graph functions of a call, from an input to a result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from rlweave.spaces import Box
from rlweave.testing.checks.axes import Along, differs, positions
from rlweave.testing.checks.recording import Leaf, Recording, Step, pairs, same_array

#: Which entries of an array of a space and shape count.
Counts = Callable[[Box, tuple[int, ...]], "np.ndarray | bool"]


class Trail:
    """The nodes whose results differ between two recordings of a call.

    Args:
        one: The call before the change.
        other: The call after it.
        counts: Which entries of an array count, to broadcast; None: all.
    """

    def __init__(self, one: Recording, other: Recording, counts: Counts | None = None) -> None:
        self._one, self._counts = one, counts
        self._pairs = list(pairs(one, other))

    def to(self, result: str) -> list[Step]:
        """The nodes that the change passes on its way to a result, in the order in which they ran."""
        wanted = self._ids_of(self._one.result[result])
        found: list[Step] = []
        for before, after in reversed(self._pairs):
            moved = {n for n, leaf in before.outputs.items() if self._differs(leaf, after.outputs[n])}
            if any(name in moved and id(leaf.value) in wanted for name, leaf in before.outputs.items()):
                found.append(before)
                wanted |= {id(leaf.value) for leaf in before.inputs.values()}
        return found[::-1]

    def among(self, steps: list[Step]) -> list[Step]:
        """Those of the nodes whose results differ."""
        moved = [b for b, a in self._pairs if any(self._differs(x, a.outputs[name]) for name, x in b.outputs.items())]
        return [step for step in steps if any(step is other for other in moved)]

    def stops(self) -> list[Step]:
        """The nodes that get a change and hand nothing of it on."""
        found = []
        for before, after in self._pairs:
            came = any(self._differs(leaf, after.inputs[name]) for name, leaf in before.inputs.items())
            left = any(self._differs(leaf, after.outputs[name]) for name, leaf in before.outputs.items())
            if came and not left:
                found.append(before)
        return found

    def _ids_of(self, array: np.ndarray) -> set[int]:
        """The values that may be a result."""
        leaves = [leaf for step in self._one.steps for leaf in step.outputs.values()]
        return {id(leaf.value) for leaf in leaves if same_array(leaf.array, array)}

    def _differs(self, one: Leaf, other: Leaf) -> bool:
        if one.array.shape != other.array.shape:
            return True
        different = differs(one.array, other.array, 1e-5)
        counted = True if self._counts is None else self._counts(one.space, one.array.shape)
        return bool((different & counted).any())


def in_steps(when: Callable[[int], bool], sizes: Mapping[str, int]) -> Counts:
    """The entries of some time steps; none of an array without a time axis."""

    def counts(space: Box, shape: tuple[int, ...]) -> np.ndarray | bool:
        steps = positions(space, shape, Along.TIME, sizes)
        return False if steps is None else np.vectorize(when, otypes=[bool])(steps)

    return counts


def takes(step: Step, names: Iterable[np.ndarray]) -> bool:
    """Whether one of the arrays goes into a node."""
    given = [leaf.array for leaf in step.inputs.values()]
    return any(same_array(array, flag) for array in given for flag in names)


def blamed(steps: list[Step], flags: Iterable[np.ndarray]) -> Step | None:
    """The node that most likely is at fault: the first one that looks at a flag, else the first of all.

    Args:
        steps: On the way of a change, in order.
        flags: Arrays of the flags that should have stopped it, or let it through.
    """
    flags = list(flags)
    looking = (step for step in steps if takes(step, flags))
    return next(looking, next(iter(steps), None))


def first_difference(one: Recording, other: Recording, part: Callable[[Leaf], np.ndarray | None]) -> Step | None:
    """The first node that makes another result out of the same inputs, of two calls with different sizes.

    Args:
        one: The call with more rows or steps.
        other: The call with fewer.
        part: What the second call should have of an array of the first one; None: nothing that can be compared.
    """
    for before, after in pairs(one, other):
        inputs = [(leaf, after.inputs[name]) for name, leaf in before.inputs.items()]
        outputs = [(leaf, after.outputs[name]) for name, leaf in before.outputs.items()]
        if any(_part_differs(*leaves, part) for leaves in outputs) and not any(
            _part_differs(*leaves, part) for leaves in inputs
        ):
            return before
    return None


def _part_differs(one: Leaf, other: Leaf, part: Callable[[Leaf], np.ndarray | None]) -> bool:
    expected = part(one)
    if expected is None:
        return False
    return expected.shape != other.array.shape or bool(differs(expected, other.array, 1e-4).any())


def called(result: str) -> str:
    """A result in a sentence."""
    return f"its result {result!r}" if result else "its result"
