"""Vector environments: rows that reset themselves lose no step and no observation, and do not reach each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from rlweave.testing.checks.environments.inspection import Event, Inspection, place_of, replay
from rlweave.testing.checks.environments.players import CallFailed, Drawing, Outcome
from rlweave.testing.checks.environments.spaces import misfits
from rlweave.testing.checks.environments.values import copied, difference, leaves, shown
from rlweave.testing.checks.environments.vectors import GraphPlayer, GymVectorPlayer, OwnVectorPlayer
from rlweave.testing.checks.findings import Cause

VectorPlayer = GymVectorPlayer | OwnVectorPlayer | GraphPlayer
_CHECK = "autoreset"
_TRIALS, _DRAWS, _RESETS, _FAR = 3, 10, 32, 5.0


def check_rows(inspection: Inspection, player: VectorPlayer, repeats: bool) -> None:
    """Checks the rows of a vector environment.

    Args:
        inspection: With the events.
        player: That played them.
        repeats: Whether new environments play the same again.
    """
    ends = [(index, row) for index, event in enumerate(inspection.events) for row in _ended(event.outcome)]
    episodes = f"{len(ends)} ended in {player.rows} rows"
    inspection.report.facts["episodes"] = episodes if ends else f"none ended in {player.rows} rows"
    with inspection.check(_CHECK):
        if not ends:
            inspection.skip(_CHECK, "no episode ended")
        elif isinstance(player, GymVectorPlayer):
            inspection.report.facts["autoreset"] = player.mode.name
            _check_mode(inspection, player, ends, repeats)
        else:
            finals = [(index, row, _next(inspection.events[index])) for index, row in ends]
            _check_final(inspection, [(index, row, row_of(final, row)) for index, row, final in finals])
    if repeats:
        with inspection.check("rows are apart"):
            _check_rows_apart(inspection, player)
            _check_rows_differ(inspection, player)
        if ends and not inspection.found(Cause.COUNTED_TWICE):
            with inspection.check("a row begins anew"):
                _check_rows_begin(inspection, ends, player)


def row_of(batch: Any, row: int) -> list[Any]:
    """The leaves of one row."""
    return [np.asarray(leaf)[row] for _, leaf in leaves(batch) if np.ndim(leaf)]


def _ended(outcome: Outcome) -> list[int]:
    if outcome.terminated is None:
        return []
    return [int(row) for row in np.flatnonzero(np.asarray(outcome.terminated) | np.asarray(outcome.truncated))]


def _next(event: Event) -> Any:
    return event.outcome.info["next_observations"]


def _where(inspection: Inspection, index: int, row: int) -> str:
    return f"row {row}, step {sum(not event.is_reset for event in inspection.events[: index + 1])}"


def _check_mode(inspection: Inspection, player: GymVectorPlayer, ends: list[tuple[int, int]], repeats: bool) -> None:
    if player.mode is AutoresetMode.SAME_STEP:
        finals = list(_final_rows(inspection, player.env.single_observation_space, ends))
        _check_final(inspection, finals)
    elif player.mode is AutoresetMode.NEXT_STEP:
        _check_reset_steps(inspection, ends)
        if repeats and not inspection.found(Cause.COUNTED_TWICE):
            _check_action_of_reset(inspection, ends)
    elif repeats:
        _check_row_reset(inspection, ends[0][0])


def _final_rows(
    inspection: Inspection, space: gymnasium.Space[Any], ends: list[tuple[int, int]]
) -> Iterator[tuple[int, int, list[Any]]]:
    """The final observations that the infos of a SAME_STEP environment hold."""
    for index, row in ends:
        finals = inspection.events[index].outcome.info.get("final_obs")
        final = _final_of(finals, row)
        if final is None:
            inspection.note(
                _CHECK,
                Cause.FINAL_OBSERVATION_LOST,
                f"{_where(inspection, index, row)}: the episode ended, and infos have no 'final_obs' of it",
                "put the last observation into infos['final_obs'] before the row is reset, as SAME_STEP promises",
            )
            return
        for misfit in misfits(space, final):
            seen = f"{_where(inspection, index, row)}: the final observation: {misfit.seen}"
            inspection.note(_CHECK, Cause.OUTSIDE_OF_SPACE, seen, misfit.fix, key=misfit.path)
        yield index, row, [np.asarray(leaf) for _, leaf in leaves(final)]


def _final_of(finals: Any, row: int) -> Any:
    if finals is None:
        return None
    if isinstance(finals, dict):
        return {key: _final_of(value, row) for key, value in finals.items()}
    return tuple(_final_of(value, row) for value in finals) if isinstance(finals, tuple) else finals[row]


def _check_final(inspection: Inspection, finals: list[tuple[int, int, list[Any]]]) -> None:
    """Final observations that are always the first one of the next episode."""
    lost = [
        difference(final, row_of(inspection.events[index].outcome.observation, row)) is None
        for index, row, final in finals
    ]
    if len(lost) > 2 and all(lost):
        index, row, final = finals[0]
        inspection.note(
            _CHECK,
            Cause.FINAL_OBSERVATION_LOST,
            f"at all {len(lost)} ends the final observation was the first one of the next episode; "
            f"{_where(inspection, index, row)}: {shown(final[0]) if final else ''}",
            "copy the last observation before the row is reset",
        )


def _check_reset_steps(inspection: Inspection, ends: list[tuple[int, int]]) -> None:
    """The step after an end, which only resets the row, has no reward and no end."""
    for index, row in ends:
        if index + 1 >= len(inspection.events) or inspection.events[index + 1].is_reset:
            continue
        outcome = inspection.events[index + 1].outcome
        reward, ended = np.asarray(outcome.reward)[row], row in _ended(outcome)
        if reward != 0 or ended:
            what = f"its reward was {shown(reward)}" if reward != 0 else "it ended again"
            inspection.note(
                _CHECK,
                Cause.COUNTED_TWICE,
                f"{_where(inspection, index + 1, row)}: an episode ended the step before, so this one resets the row "
                f"(autoreset NEXT_STEP), but {what}",
                "in the step after an end take no action: reset the row, reward 0, flags False; or declare SAME_STEP "
                "and put the final observation into infos['final_obs']",
            )


def _check_action_of_reset(inspection: Inspection, ends: list[tuple[int, int]]) -> None:
    """Takes other actions in steps that only reset a row: they must not matter."""
    for index, row in [pair for pair in ends if pair[0] + 1 < len(inspection.events)][:_TRIALS]:
        event = inspection.events[index + 1]
        if event.is_reset:
            continue
        player = inspection.subject.make()
        last = Outcome(None, None)
        for _, _, outcome in replay(player, inspection.events[: index + 1]):
            last = outcome
        drawing = Drawing(inspection.seed + 1 + index)
        drawn = (_with_row(event.action, player.draw(drawing, last), {row}) for _ in range(_DRAWS))
        action = next((action for action in drawn if difference(action, event.action) is not None), None)
        if action is None:
            continue
        outcome = player.step(action)
        player.close()
        found = difference(row_of(event.outcome.observation, row), row_of(outcome.observation, row))
        if found is not None:
            inspection.note(
                _CHECK,
                Cause.COUNTED_TWICE,
                f"{_where(inspection, index + 1, row)}: an episode ended the step before, so this one resets the row "
                "(autoreset NEXT_STEP), but another action leads to another observation: the row was reset before",
                "reset a row in the step after its end; or declare SAME_STEP, with infos['final_obs']",
            )
            return


def _check_row_reset(inspection: Inspection, index: int) -> None:
    """Resets the rows that ended: the others have to stay."""
    player = inspection.subject.make()
    last = Outcome(None, None)
    for _, _, outcome in replay(player, inspection.events[: index + 1]):
        last = Outcome(copied(outcome.observation), None)
    mask = np.zeros(np.shape(inspection.events[index].outcome.terminated), np.bool_)
    mask[_ended(inspection.events[index].outcome)] = True
    try:
        observation, _ = player.env.reset(options={"reset_mask": mask.copy()})
    except Exception as error:
        raise CallFailed("reset", error) from error
    player.close()
    for row in np.flatnonzero(~mask).tolist():
        found = difference(row_of(last.observation, row), row_of(observation, row))
        if found is not None:
            inspection.note(
                _CHECK,
                Cause.COUNTED_TWICE,
                f"{_where(inspection, index, row)}: reset(options={{'reset_mask': ...}}) of other rows changed it",
                "reset only the rows of the mask, and return the present observations of the others",
            )


def _with_row(action: Any, other: Any, rows: set[int]) -> Any:
    """An action of all rows, with some rows taken from another one."""
    if isinstance(action, dict):
        return {key: _with_row(child, other[key], rows) for key, child in action.items()}
    if isinstance(action, tuple):
        return tuple(_with_row(one, two, rows) for one, two in zip(action, other, strict=True))
    mixed = np.array(action)
    for row in rows:
        mixed[row] = np.asarray(other)[row]
    return mixed


def _check_rows_apart(inspection: Inspection, player: VectorPlayer) -> None:
    """Takes other actions in row 0 until an episode ends: no other row may differ."""
    if player.rows < 2:
        return
    again, drawing = inspection.subject.make(), Drawing(inspection.seed + 1)
    last = Outcome(None, None)
    for number, event in enumerate(inspection.replayed):
        if event.is_reset:
            if number:
                break
            last = again.reset(event.seed)
            continue
        last = again.step(_with_row(event.action, again.draw(drawing, last), {0}))
        for row in range(1, player.rows):
            mine, its = _row_data(event.outcome, row), _row_data(last, row)
            found = difference(mine, its)
            if found is not None:
                again.close()
                inspection.note(
                    "rows are apart",
                    Cause.ROWS_MEET,
                    f"other actions were taken in row 0: row {row} differs at {place_of(inspection.events, number)}: "
                    f"{found[0]} was {shown(found[1])}, then {shown(found[2])}",
                    "look for a mean, maximum or sum over the rows, and for an array that all rows write into",
                )
                return
        if _ended(event.outcome) or _ended(last):
            break  # rows may draw from one stream when they are reset
    again.close()


def _row_data(outcome: Outcome, row: int) -> dict[str, Any]:
    return {
        "observation": row_of(outcome.observation, row),
        "reward": np.asarray(outcome.reward)[row],
        "terminated": np.asarray(outcome.terminated)[row],
        "truncated": np.asarray(outcome.truncated)[row],
    }


def _check_rows_differ(inspection: Inspection, player: VectorPlayer) -> None:
    """Where seeds give different first observations, rows have to differ, too."""
    if player.rows < 2:
        return
    firsts = []
    for number in range(4):
        again = inspection.subject.make()
        firsts.append(copied(again.reset(inspection.seed + number).observation))
        again.close()
    seeds_differ = all(difference(firsts[0], other) is not None for other in firsts[1:])
    rows_equal = all(
        difference(row_of(first, 0), row_of(first, row)) is None for first in firsts for row in range(1, player.rows)
    )
    if seeds_differ and rows_equal:
        inspection.note(
            "rows are apart",
            Cause.DRAWN_ONCE,
            f"{len(firsts)} seeds give different first observations, but those of all {player.rows} rows are equal",
            "give each row a seed or random numbers of its own: np_random.uniform(size=(num_envs, ...))",
        )


def _check_rows_begin(inspection: Inspection, ends: list[tuple[int, int]], player: VectorPlayer) -> None:
    """Compares first observations after an autoreset with those after `reset`."""
    again = inspection.subject.make()
    begun = [
        copied(again.reset(inspection.seed + number if number < 2 else None).observation) for number in range(_RESETS)
    ]
    again.close()
    reference = [row_of(first, row) for first in begun for row in range(player.rows)]
    for place, values in enumerate(zip(*reference, strict=True)):
        array = np.stack([np.asarray(value) for value in values])
        if array.dtype.kind != "f":
            continue
        low, high = array.min(axis=0), array.max(axis=0)
        far = _FAR * (high - low) + 1e-6
        for index, row in ends:
            first = _first_after(inspection, player, index, row)
            if first is None:
                continue
            wrong = (first[place] < low - far) | (first[place] > high + far)
            if np.any(wrong):
                element = tuple(int(i) for i in np.argwhere(wrong)[0]) if np.ndim(wrong) else ()
                inspection.note(
                    "a row begins anew",
                    Cause.NEVER_RESET,
                    f"{_where(inspection, index, row)}: an episode ended, and the next one began with "
                    f"{shown(first[place][element])} at {list(element)}, where {len(reference)} rows after reset() "
                    f"began with {shown(low[element])} to {shown(high[element])}",
                    "set all arrays anew in the rows that ended, as reset() does in all rows",
                )
                return


def _first_after(inspection: Inspection, player: VectorPlayer, index: int, row: int) -> list[Any] | None:
    """The first observation of the episode after an end, if it was seen."""
    later = isinstance(player, GymVectorPlayer) and player.mode is not AutoresetMode.SAME_STEP
    if isinstance(player, GymVectorPlayer) and player.mode is AutoresetMode.DISABLED:
        return None  # a step is taken at once
    place = index + later
    if place >= len(inspection.events) or inspection.events[place].is_reset:
        return None
    return row_of(inspection.events[place].outcome.observation, row)
