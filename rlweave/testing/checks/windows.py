"""Windows of n steps that a component fills call by call: none reaches across the end of an episode."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from rlweave.testing.checks.axes import differs
from rlweave.testing.checks.bootstrapping import FIXES
from rlweave.testing.checks.findings import Cause, Finding
from rlweave.testing.checks.meaning import ENDS, Meaning, meaning_of
from rlweave.testing.checks.recording import Recording, record
from rlweave.testing.checks.subject import Subject
from rlweave.testing.checks.trail import Trail
from rlweave.testing.checks.trajectory import Arrays, Trajectory, trajectories
from rlweave.tree import unflatten_like

#: Calls that fill a window, and more; episodes end at one in the middle.
CALLS = 12
END = 6


class _Windows:
    """A method that is called step by step, and what its transitions begin with.

    Args:
        trajectory: Its call.
    """

    def __init__(self, trajectory: Trajectory) -> None:
        self.trajectory = trajectory
        self.results = {meaning_of(path): path for path in trajectory.situation.outputs}
        names = {path.split("/")[-1]: path for path, meaning in trajectory.meanings.items() if meaning is None}
        outputs = {path.split("/")[-1]: path for path in trajectory.situation.outputs}
        #: What is handed on unchanged from the first step of a window: by input, the result.
        self.echoes = {path: outputs[name] for name, path in names.items() if name in outputs}

    @property
    def fits(self) -> bool:
        """Whether it makes transitions of steps."""
        trajectory = self.trajectory
        inputs = all(trajectory.named(meaning, time=False) for meaning in (Meaning.REWARDS, Meaning.NEXT))
        writes = trajectory.run(trajectory.calm).writes
        made = Meaning.REWARDS in self.results and Meaning.NEXT in self.results
        return bool(inputs and trajectory.ends and writes and made and self.echoes)

    def calls(self, changed: dict[int, Arrays]) -> list[Recording]:
        """Calls, one after another, with samples of their own.

        Args:
            changed: Other inputs by the number of the call.
        """
        situation = self.trajectory.situation
        state, found = situation.state, []
        for number in range(CALLS):
            arrays = {**self.steps[number], **changed.get(number, {})}
            arguments = {**unflatten_like(situation.arguments, arrays), **situation.static}
            found.append(record(situation.subject.eager, situation.method, arguments, state))
            state = found[-1].state
        return found

    @cached_property
    def steps(self) -> list[Arrays]:
        """The inputs of each call; no episode ends."""
        calm = self.trajectory.calm
        flags = {path: calm[path] for path in self.trajectory.ends}
        return [{**calm, **self.trajectory.samples(10 + number), **flags} for number in range(CALLS)]

    def anew(self, number: int, paths: list[str]) -> Arrays:
        """Some inputs of a call sampled anew."""
        samples = self.trajectory.samples(50 + number)
        return {path: samples[path] for path in paths}

    def begins(self) -> dict[int, int]:
        """The step that each call's transition begins with: the one whose observations it hands on."""
        found = {}
        for call, recording in enumerate(self.calls({})):
            for number, arrays in enumerate(self.steps):
                handed_on = ((arrays[path], recording.result[result]) for path, result in self.echoes.items())
                if all(one.shape == other.shape and not differs(one, other, 1e-4).any() for one, other in handed_on):
                    found[call] = number
        return found


def _moved(result: str, one: Recording, other: Recording) -> bool:
    return bool(differs(one.result[result], other.result[result], 1e-4).any())


def windows(subject: Subject) -> Iterator[Finding]:
    """An episode ends in a call, and later steps are sampled anew; transitions that began before may not move."""
    for trajectory in trajectories(subject.situations()):
        made = _Windows(trajectory)
        if made.fits:
            begins = made.begins()
            for flag in trajectory.ends:
                yield from list(_crossings(made, flag, begins))[:1]


def _crossings(made: _Windows, flag: str, begins: dict[int, int]) -> Iterator[Finding]:
    trajectory = made.trajectory
    end = {flag: trajectory.flagged(trajectory.calm, flag)[flag]}
    kept, inputs = trajectory.named(*ENDS), list(trajectory.meanings)
    later = {n: made.anew(n, [p for p in inputs if p not in kept]) for n in range(END + 1, CALLS)}
    one, other = made.calls({END: end}), made.calls({**later, END: end})
    checked = [path for meaning, path in made.results.items() if meaning is not None]
    for call, first in begins.items():
        for result in checked:
            if first <= END < call and _moved(result, one[call], other[call]):
                step = next(iter(Trail(one[call], other[call]).to(result)), None)
                seen = f"{flag!r} is set in call {END}, later calls got other steps"
                yield _finding(made, step.where if step else "", seen, result, "moved", Cause.CROSSES_EPISODES)
    final = made.calls({END: {**end, **made.anew(END, trajectory.named(Meaning.NEXT))}})
    result = made.results[Meaning.NEXT]
    for call, first in begins.items():
        if first <= END <= call and not _moved(result, one[call], final[call]):
            where = next((s.where for s in one[call].steps if any(_is(out, result) for out in s.outputs)), "")
            seen = f"{flag!r} is set in call {END}, and its next observations were sampled anew"
            yield _finding(made, where, seen, result, "did not move", Cause.WRONG_BOOTSTRAP)


def _is(output: str, result: str) -> bool:
    return output.split("/")[-1] == result.split("/")[-1]


def _finding(made: _Windows, where: str, seen: str, result: str, moved: str, cause: Cause) -> Finding:
    place = made.trajectory.situation.where
    return Finding(
        "windows",
        where or place,
        f"{place}, called {CALLS} times: {seen}, and {result!r} of a transition that began before {moved}",
        cause,
        FIXES[cause],
    )
