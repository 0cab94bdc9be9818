"""Whether episodes repeat: from a seed, after a reset, beside another environment, and from a saved state."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import numpy as np

from rlweave.envs.contract import refuse_running_statistics
from rlweave.envs.object_state import NotData
from rlweave.errors import EnvError
from rlweave.testing.checks.environments.inspection import (
    Difference,
    Event,
    Inspection,
    first_difference,
    place_of,
    replay,
    told,
    tour,
)
from rlweave.testing.checks.environments.players import CallFailed, Outcome, Player
from rlweave.testing.checks.environments.shared_state import changed_attribute, shared_changes, shared_state
from rlweave.testing.checks.environments.values import copied, difference
from rlweave.testing.checks.findings import Cause

_SEEDS = 6
#: Steps in which a generator that steps draw from is expected to move.
_DRAWING_STEPS = 20
_OWN_STREAM = (
    "draw every random number from self.np_random, which super().reset(seed=seed) seeds, and hand it to everything "
    "else that draws"
)


def check_repeats(inspection: Inspection) -> bool:
    """Checks that the same seed and actions give the same episodes; says whether other checks can build on that."""
    if not inspection.subject.repeats:
        inspection.skip(
            "two environments of one seed",
            "an object was given that cannot be copied: pass its class, or a function that makes it",
        )
        return _check_same_object(inspection)
    with inspection.check("the same seed repeats"), _random_state_kept():
        player = inspection.subject.make()
        before = shared_state(player.env)
        found = first_difference(player, inspection.replayed)
        shared = shared_changes(before, shared_state(player.env))
        player.close()
        if found is not None:
            _explain(inspection, found, shared)
            return False
    _check_resets(inspection)
    _check_neighbours(inspection)
    return True


def _check_same_object(inspection: Inspection) -> bool:
    with inspection.check("the same seed repeats"):
        found = first_difference(inspection.subject.make(), inspection.replayed)
        if found is None:
            return True
        inspection.note(
            "the same seed repeats",
            Cause.SEED_IGNORED,
            f"reset(seed={inspection.seed}) and the same actions, twice with one object: {found.text}",
            f"{_OWN_STREAM}; and have reset() set anew all that a step changes",
        )
    return False


def _explain(inspection: Inspection, found: Difference, shared: str) -> None:
    """Notes why two new environments of one seed play different episodes."""
    seen = f"two new environments, seed {inspection.seed} and the same actions: {found.text}"
    events = inspection.replayed[: found.number + 1]
    source = next((name for name, seed in _GLOBAL.items() if _repeats_with(inspection, events, seed)), None)
    check = "the same seed repeats"
    if source is not None:
        seen += f"; with {source}.seed() before each they are the same"
        inspection.note(check, Cause.SEED_IGNORED, seen, f"replace {source}.*: {_OWN_STREAM}")
    elif shared:
        fix = f"make {shared} an attribute of the object, which __init__ or reset() sets: self.{shared.split('.')[-1]}"
        inspection.note(check, Cause.ENVIRONMENTS_SHARE, f"{seen}; {shared} was changed meanwhile", fix)
    else:
        fix = f"{_OWN_STREAM}; look for default_rng() without a seed, a clock, or the order of a set"
        inspection.note(check, Cause.SEED_IGNORED, seen, fix)


_GLOBAL: dict[str, Any] = {"np.random": np.random.seed, "random": random.seed}


def _repeats_with(inspection: Inspection, events: list[Event], seed: Any) -> bool:
    """Whether a global generator, seeded before, makes the episodes equal."""
    traces = []
    for _ in range(2):
        seed(0)
        player = inspection.subject.make()
        with contextlib.suppress(CallFailed):
            traces.append([copied(outcome.data()) for _, _, outcome in replay(player, events)])
        player.close()
    return len(traces) == 2 and difference(traces[0], traces[1]) is None


@contextlib.contextmanager
def _random_state_kept() -> Iterator[None]:
    """Leaves the global generators as they were."""
    states = np.random.get_state(), random.getstate()  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(states[0])  # noqa: NPY002
        random.setstate(states[1])


def _check_resets(inspection: Inspection) -> None:
    """Checks that an environment that has played begins anew."""
    check = "a reset begins anew"
    with inspection.check(check):
        player = inspection.subject.make()
        for _ in replay(player, inspection.replayed):
            pass
        found = first_difference(player, inspection.replayed)
        player.close()
        if found is not None:
            _explain_reset(inspection, found)
            return
    check = "resets differ"
    with inspection.check(check):
        _check_variety(inspection, check)


def _explain_reset(inspection: Inspection, found: Difference) -> None:
    seed, other = inspection.seed, inspection.seed + 1
    again = _trace_after(inspection, seed, found.number)
    ignored = difference(again, _trace_after(inspection, other, found.number)) is None
    matters = difference(_new_trace(inspection, seed, found), _new_trace(inspection, other, found)) is not None
    if ignored and matters:
        inspection.note(
            "a reset begins anew",
            Cause.SEED_IGNORED,
            f"reset(seed={seed}) after some episodes, and the same actions: {found.text}; reset(seed={other}) there "
            "gives the same, while new environments with these seeds differ: only the first seed counts",
            "call super().reset(seed=seed) at each reset; do not keep a generator that exists already",
        )
        return
    player = inspection.subject.make()
    player.reset(seed)
    used = inspection.subject.make()
    for _ in replay(used, inspection.replayed):
        pass
    used.reset(seed)
    name = changed_attribute(player.env, used.env)
    which, fix = f"; after the reset, {name}" if name else "", "have reset() set anew all that a step changes"
    fix = f"{fix}: {name.split(' ')[0]}" if name else fix
    try:
        refuse_running_statistics(player.env)
    except EnvError as error:
        which, fix = f"; {error.what}", error.fix
    player.close()
    used.close()
    seen = f"reset(seed={seed}) after some episodes, and the same actions: {found.text}{which}"
    inspection.note("a reset begins anew", Cause.NEVER_RESET, seen, fix)


def _trace_after(inspection: Inspection, seed: int, number: int) -> list[Any]:
    """What comes of a reset with a seed, and of the first actions, in an environment that has played."""
    player = inspection.subject.make()
    for _ in replay(player, inspection.replayed):
        pass
    return _trace(player, inspection, seed, number)


def _new_trace(inspection: Inspection, seed: int, found: Difference) -> list[Any]:
    return _trace(inspection.subject.make(), inspection, seed, found.number)


def _trace(player: Player, inspection: Inspection, seed: int, number: int) -> list[Any]:
    events = [Event(e.outcome, e.action, seed if e.seed is not None else None, e.is_reset) for e in inspection.replayed]
    trace = []
    with contextlib.suppress(CallFailed):
        trace += [copied(outcome.data()) for _, _, outcome in replay(player, events[: number + 1])]
    player.close()
    return trace


def _check_variety(inspection: Inspection, check: str) -> None:
    """Checks that different seeds, and resets without a seed, differ where anything is random."""
    player = inspection.subject.make()
    player.reset(inspection.seed)
    unseeded = [copied(player.reset(None).observation) for _ in range(_SEEDS)]
    player.close()
    seeded = []
    for number in range(_SEEDS):
        other = inspection.subject.make()
        seeded.append(copied(other.reset(inspection.seed + number).observation))
        other.close()
    with_seed, without = _distinct(seeded), _distinct(unseeded)
    if with_seed == 1 and without >= _SEEDS // 2:
        inspection.note(
            check,
            Cause.SEED_IGNORED,
            f"{_SEEDS} different seeds begin with the same observation, and {_SEEDS} resets without one with "
            f"{without} different ones",
            "use the value of the seed: super().reset(seed=seed), and then self.np_random",
        )
    if without == 1 and with_seed > _SEEDS // 2:
        inspection.note(
            check,
            Cause.EPISODES_REPEAT,
            f"{_SEEDS} resets without a seed begin with the same observation, where {_SEEDS} seeds begin with "
            f"{with_seed} different ones",
            "seed only where reset() is given a seed: super().reset(seed=seed) leaves the stream alone when it is None",
        )
    if with_seed == without == 1:
        inspection.report.facts["first observations"] = "all alike, whatever the seed"
        if _steps_draw_alike(inspection):
            inspection.note(
                check,
                Cause.SEED_IGNORED,
                f"reset(seed={inspection.seed}) and reset(seed={inspection.seed + 1}) leave self.np_random in the same "
                "state, and steps draw from it",
                "hand on the seed that reset() is given: super().reset(seed=seed)",
            )


def _steps_draw_alike(inspection: Inspection) -> bool:
    """Whether two seeds leave Gymnasium's generator in one state, from which steps draw."""
    starts, drawn = [], False
    for seed in (inspection.seed, inspection.seed + 1):
        player = inspection.subject.make()
        steps = tour(player, seed, _DRAWING_STEPS)
        next(steps)
        starts.append(_generator_state(player))
        drawn = drawn or any(_generator_state(player) != starts[-1] for event, _ in steps if not event.is_reset)
        player.close()
    return drawn and starts[0] is not None and starts[0] == starts[1]


def _generator_state(player: Player) -> str | None:
    """The state of `np_random`; None where nothing has asked for one."""
    generator = getattr(getattr(player.env, "unwrapped", player.env), "_np_random", None)
    return repr(generator.bit_generator.state) if isinstance(generator, np.random.Generator) else None


def _distinct(values: list[Any]) -> int:
    found: list[Any] = []
    for value in values:
        if all(difference(value, other) is not None for other in found):
            found.append(value)
    return len(found)


def _check_neighbours(inspection: Inspection) -> None:
    """Checks that two environments, stepped in turn, do not disturb each other."""
    check = "two environments side by side"
    with inspection.check(check):
        player, neighbour = inspection.subject.make(), inspection.subject.make()
        before = shared_state(player.env)
        steps = tour(neighbour, inspection.seed + 1, len(inspection.replayed))
        next(steps)

        def step_neighbour(event: Event, outcome: Outcome, action: Any) -> None:
            with contextlib.suppress(CallFailed):
                next(steps, None)

        found = first_difference(player, inspection.replayed, step_neighbour)
        shared = shared_changes(before, shared_state(player.env))
        player.close()
        neighbour.close()
        if found is not None:
            which = f"; {shared} was changed meanwhile" if shared else ""
            inspection.note(
                check,
                Cause.ENVIRONMENTS_SHARE,
                f"one was stepped in turn with another of seed {inspection.seed + 1}: {found.text}{which}",
                "make what they share an attribute that __init__ sets: look for attributes of the class, globals of "
                "the module, default arguments that are lists, and files",
            )


def check_saved_state(inspection: Inspection) -> None:
    """Checks that a saved and loaded environment goes on as before."""
    check = "a saved state goes on"
    events = inspection.replayed
    middle = len(events) // 3
    player, other = inspection.subject.make(), inspection.subject.make()
    with inspection.check(check):
        try:
            for _ in replay(player, events[:middle]):
                pass
            state = player.save()
            other.reset(inspection.seed + 1)
            other.load(state)
        except NotData as error:
            inspection.skip(check, f"it cannot be saved: {error}")
            return
        found = _go_on(other, events, middle)
        if found:
            inspection.note(
                check,
                Cause.INCOMPLETE_STATE,
                f"saved after {place_of(events, middle - 1)}, loaded into a new environment: {found}",
                "have get_state() return all that later steps depend on, also the random stream",
            )
    player.close()
    other.close()


def _go_on(player: Player, events: list[Event], begin: int) -> str:
    """What differs from the rest of the events; empty: nothing."""
    for offset, event, outcome in replay(player, events[begin:]):
        found = difference(event.outcome.data(), outcome.data())
        if found is not None:
            return f"{place_of(events, begin + offset)}: {told(found)}"
    return ""
