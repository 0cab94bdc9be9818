"""A call with a trajectory whose flags are set on purpose, and with parts of it sampled anew."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property

import numpy as np

from rlweave.testing.checks.axes import Along, differs, moved, positions
from rlweave.testing.checks.meaning import ENDS, Meaning, meaning_of
from rlweave.testing.checks.recording import Recording
from rlweave.testing.checks.subject import Situation
from rlweave.tree import flatten_tree

Arrays = dict[str, np.ndarray]
#: Which steps: the state that is carried in comes before step 0, what follows the last step after it.
When = Callable[[int], bool]

_FLAGS = (*ENDS, Meaning.EPISODE_START, Meaning.LAST_START, Meaning.MASK)
#: How often something is sampled anew before it counts as having no effect; clipping hides some changes.
DRAWS = 3


class Trajectory:
    """The inputs of a call by their meaning.

    Args:
        situation: The call.
    """

    def __init__(self, situation: Situation) -> None:
        self.situation = situation
        self.meanings = {path: meaning_of(path) for path in situation.inputs}
        self._recordings: dict[tuple[tuple[str, bytes], ...], Recording] = {}

    # -- what there is -------------------------------------------------------------------------------------------

    def named(self, *meanings: Meaning, time: bool | None = None) -> list[str]:
        """Paths of the inputs that have one of the meanings.

        Args:
            meanings: Any of these.
            time: Only those with a time axis, or (False) with a batch axis alone.
        """
        found = [path for path, meaning in self.meanings.items() if meaning in meanings]
        return [path for path in found if time is None or (self.timed(path) if time else self._rows_only(path))]

    @property
    def ends(self) -> list[str]:
        """Paths of the inputs that say where episodes end: flags, or else discounts, which are 0 there."""
        return self.named(*ENDS) or self.named(Meaning.DISCOUNTS)

    def timed(self, path: str) -> bool:
        """Whether an input has a time axis."""
        return self.steps_of(path) is not None

    def steps_of(self, path: str) -> np.ndarray | None:
        """The step that each entry of an input belongs to, to broadcast; None without a time axis."""
        situation = self.situation
        shape = np.shape(situation.flat[path])
        return positions(situation.inputs[path], shape, Along.TIME, situation.sizes)

    def _rows_only(self, path: str) -> bool:
        situation, shape = self.situation, np.shape(self.situation.flat[path])
        rows = positions(situation.inputs[path], shape, Along.BATCH, situation.sizes)
        return rows is not None and not self.timed(path)

    @cached_property
    def length(self) -> int:
        """Number of time steps; 0 without any."""
        found = [steps for path in self.situation.inputs if (steps := self.steps_of(path)) is not None]
        return min((int(steps.max()) + 1 for steps in found if steps.size), default=0)

    @cached_property
    def time_results(self) -> list[str]:
        """Float results with a time axis."""
        return [path for path in self.float_results if self._result_steps(path) is not None]

    @cached_property
    def float_results(self) -> list[str]:
        """Float results."""
        result = self.run(self.calm).result
        return [p for p in self.situation.outputs if p in result and result[p].dtype.kind == "f" and result[p].size]

    def _result_steps(self, path: str) -> np.ndarray | None:
        shape = self.run(self.calm).result[path].shape
        return positions(self.situation.outputs[path], shape, Along.TIME, self.situation.sizes)

    @cached_property
    def returns(self) -> list[str]:
        """The float results that depend on rewards; where none are passed, those that depend on episode ends."""
        calm, rewards = self.calm, self.named(Meaning.REWARDS)
        if rewards:
            found = self.moving(self.float_results, calm, lambda draw: self.all_renewed(calm, rewards, draw))
        else:
            flagged = [self.flagged(calm, flag) for flag in self.ends]
            found = {p for p in self.float_results for f in flagged if self.differ(p, self.run(calm), self.run(f))}
        return [path for path in self.float_results if path in found]

    @cached_property
    def carried_on(self) -> dict[str, str]:
        """What is carried on to the next steps: paths of results by those of the state that comes in."""
        outputs, states = self.situation.outputs, self.named(Meaning.STATE)
        axes = {path: self.situation.inputs[path].axes for path in states}
        ancestors = {"/".join(path.split("/")[:depth]) for path in outputs for depth in range(path.count("/") + 2)}
        for prefix in sorted(ancestors, reverse=True):  # the state comes last
            found = {path: f"{prefix}/{_within(path)}".strip("/") for path in states}
            if states and all(out in outputs and outputs[out].axes == axes[path] for path, out in found.items()):
                return found
        return {}

    @cached_property
    def adds_to_state(self) -> bool:
        """Whether what is carried on is a sum or a count, and no state of a layer: results are linear in it."""
        calm, states = self.calm, list(self.carried_on)
        if not states or any(calm[path].dtype.kind != "f" for path in states):
            return False
        others = self.all_renewed(calm, states)
        middle = {**calm, **{path: (calm[path] + others[path]) / 2 for path in states}}
        one, two, between = (self.run(arrays).result for arrays in (calm, others, middle))
        results = [*self.time_results, *self.carried_on.values()]
        return not any(differs((one[path] + two[path]) / 2, between[path], 1e-4).any() for path in results)

    # -- arrays --------------------------------------------------------------------------------------------------

    @cached_property
    def calm(self) -> Arrays:
        """The inputs, where no episode starts or ends and nothing is padding."""
        arrays = {path: np.asarray(array) for path, array in self.situation.flat.items()}
        for path in self.named(*_FLAGS):
            arrays[path] = np.full_like(arrays[path], self.meanings[path] in (Meaning.CONTINUES, Meaning.MASK))
        return arrays

    def flagged(self, arrays: Arrays, path: str, when: When = lambda step: True) -> Arrays:
        """The arrays with a flag set at some steps of all rows; starts and ends of episodes are made to fit.

        Args:
            arrays: Inputs by path.
            path: Of a flag.
            when: At which steps; a flag without a time axis is set altogether.
        """
        meaning = self.meanings[path]
        flagged = {**arrays, path: self._set(arrays, path, when)}
        if path in self.ends:
            for start in self.named(Meaning.EPISODE_START, time=True):
                flagged[start] = self._set(flagged, start, lambda step: when(step - 1))
        elif meaning is Meaning.EPISODE_START:
            ends = self.named(Meaning.TERMINATED, time=True) or self.named(*ENDS, time=True)
            for end in ends[:1]:
                flagged[end] = self._set(flagged, end, lambda step: when(step + 1))
        return flagged

    def _set(self, arrays: Arrays, path: str, when: When) -> np.ndarray:
        array, steps = arrays[path], self.steps_of(path)
        value = np.asarray(self.meanings[path] not in (Meaning.CONTINUES, Meaning.DISCOUNTS), array.dtype)
        where = True if steps is None else np.vectorize(when, otypes=[bool])(steps)
        return np.asarray(np.where(where, value, array), array.dtype)

    def renewed(self, arrays: Arrays, when: When, paths: Iterable[str] | None = None, draw: int = 1) -> Arrays:
        """The arrays with some steps sampled anew.

        Args:
            arrays: Inputs by path.
            when: Which steps. What is carried to the first step is step -1, and what is of the state after the last
                step comes after it.
            paths: Of the inputs to change; None: of all but flags.
            draw: Another number gives other samples.
        """
        others = self.samples(draw)
        found = dict(arrays)
        for path in self.meanings if paths is None else paths:
            meaning, steps = self.meanings[path], self.steps_of(path)
            if meaning in _FLAGS or (paths is None and meaning is Meaning.WEIGHTS):
                continue
            where: np.ndarray | bool
            if steps is not None:
                where = np.vectorize(when, otypes=[bool])(steps)
            else:
                where = (meaning is Meaning.STATE and when(-1)) or (meaning is Meaning.LAST and when(self.length))
            found[path] = np.asarray(np.where(where, others[path], arrays[path]), arrays[path].dtype)
        return found

    def all_renewed(self, arrays: Arrays, paths: Iterable[str], draw: int = 1) -> Arrays:
        """The arrays with some inputs sampled anew altogether."""
        others = self.samples(draw)
        return {**arrays, **{path: others[path] for path in paths}}

    def samples(self, draw: int) -> Arrays:
        """Inputs sampled anew."""
        situation = self.situation
        if draw == 1:
            return {path: np.asarray(array) for path, array in situation.flat_others.items()}
        descriptor, root = situation.subject.descriptor, situation.subject.eager.root
        sampled = descriptor.sample(root, situation.method, situation.sizes["B"], seed=100 + draw)
        return {path: np.asarray(array) for path, array in flatten_tree(sampled).items()}

    # -- calls ---------------------------------------------------------------------------------------------------

    def run(self, arrays: Arrays) -> Recording:
        """Makes the call."""
        given = self.situation.flat
        changed = {path: array for path, array in arrays.items() if array is not given[path]}
        key = tuple((path, np.ascontiguousarray(array).tobytes()) for path, array in sorted(changed.items()))
        if any(array.dtype == object for array in changed.values()):
            return self.situation.run(changed)
        if key not in self._recordings:
            self._recordings[key] = self.situation.run(changed)
        return self._recordings[key]

    def steps_moved(self, path: str, one: Recording, other: Recording) -> frozenset[int]:
        """The steps in which a result differs between two calls; what is carried on belongs after the last one."""
        if path in self.time_results:
            space, sizes = self.situation.outputs[path], self.situation.sizes
            found = moved(space, one.result[path], other.result[path], Along.TIME, sizes, tolerance=1e-4)
            return found or frozenset()
        carried = path in self.carried_on.values() and self.differ(path, one, other)
        return frozenset({self.length} if carried else ())

    @staticmethod
    def differ(path: str, one: Recording, other: Recording) -> bool:
        """Whether a result differs between two calls."""
        before, after = one.result[path], other.result[path]
        return before.shape != after.shape or bool(differs(before, after, 1e-4).any())

    def moving(self, paths: Iterable[str], arrays: Arrays, changed: Callable[[int], Arrays]) -> set[str]:
        """The results that move in at least one of some tries.

        Args:
            paths: Of results.
            arrays: Inputs before.
            changed: Inputs after, by the number of the try.
        """
        before = self.run(arrays)
        found: set[str] = set()
        for draw in range(1, DRAWS + 1):
            after = self.run(changed(draw))
            found |= {path for path in paths if self.differ(path, before, after)}
            if found >= set(paths):
                break
        return found


def only(step: int) -> When:
    """One step."""
    return lambda other: other == step


def trajectories(situations: Iterable[Situation]) -> list[Trajectory]:
    """The calls that have an input of a known meaning and are no pure state changes."""
    found = [Trajectory(situation) for situation in situations]
    return [trajectory for trajectory in found if any(trajectory.meanings.values())]


def _within(path: str) -> str:
    """The part of a path that comes after the name of a state."""
    names = path.split("/")
    start = next(i for i, name in enumerate(names) if meaning_of(name) is Meaning.STATE)
    return "/".join(names[start + 1 :])
