"""What makes an environment hard to learn although nothing is wrong with it: scales, bounds, what never changes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rlweave.testing.checks.environments.inspection import Inspection
from rlweave.testing.checks.environments.players import Part, Player
from rlweave.testing.checks.environments.values import at, below, is_array, leaves, shown

#: Scales between these are fine.
_SMALL, _LARGE = 0.02, 20.0
_FEW = 20


def advise(inspection: Inspection, player: Player) -> None:
    """Notes advice on observations, actions and rewards."""
    events = inspection.events
    if len(events) < _FEW:
        return
    with inspection.check("advice"):
        names = {part.name: part for part in player.parts(events[0].outcome)}
        for name, part in names.items():
            mine = [own.outcome for event in events for own in player.parts(event.outcome) if own.name == name]
            whose = f"agent {name!r}: " if name else ""
            observed: dict[str, list[Any]] = {}
            for outcome in mine:
                for path, leaf in leaves(outcome.observation):
                    observed.setdefault(path, []).append(leaf)
            for path, space in boxes(part.observation_space):
                _on_leaf(inspection, whose, path, space, observed.get(path, []))
            _on_constants(inspection, whose, part, observed)
            for path, values in observed.items():
                _on_overflow(inspection, whose, path, values, [event.is_reset for event in events])
            _on_actions(inspection, whose, part)
            _on_rewards(inspection, whose, [outcome.reward for outcome in mine if outcome.reward is not None])


def boxes(space: gymnasium.Space[Any], path: str = "") -> Iterator[tuple[str, spaces.Box]]:
    """Yields the boxes of real numbers in a space."""
    if isinstance(space, spaces.Dict):
        for key, child in space.spaces.items():
            yield from boxes(child, below(path, key))
    elif isinstance(space, spaces.Tuple):
        for index, child in enumerate(space.spaces):
            yield from boxes(child, below(path, index))
    elif isinstance(space, spaces.Box) and np.dtype(space.dtype).kind == "f":
        yield path, space


def _on_leaf(inspection: Inspection, whose: str, path: str, space: spaces.Box, values: list[Any]) -> None:
    fits = [np.asarray(value) for value in values if is_array(value) and np.shape(value) == space.shape]
    if len(fits) < _FEW or not space.shape or 0 in space.shape:
        return
    array = np.stack(fits).astype(np.float64)
    if not np.isfinite(array).all():
        return
    sizes = np.abs(array).max(axis=0)
    large, index = float(sizes.max()), tuple(int(i) for i in np.unravel_index(int(sizes.argmax()), sizes.shape))
    element = f"element {list(index)} of " if index else ""
    unbounded = not (np.isfinite(space.low).all() and np.isfinite(space.high).all())
    if large > _LARGE:
        open_ = ", and the space has no bounds" if unbounded else ""
        inspection.advise(
            "scale of observations",
            f"{whose}{element}{at(path)}the observation reaches {large:.3g}{open_}",
            "bring it to about 1: agent.normalize_observations=true (of ppo, appo, a2c, impala), or divide it by a "
            "fixed number in the environment",
        )
    elif 0 < large < _SMALL:
        inspection.advise(
            "scale of observations",
            f"{whose}{at(path)}the observation stays below {large:.3g}",
            "bring it to about 1: agent.normalize_observations=true, or multiply it by a fixed number",
        )


def _on_constants(inspection: Inspection, whose: str, part: Part, observed: dict[str, list[Any]]) -> None:
    """Leaves, and elements of short vectors, that never change."""
    for path, values in observed.items():
        if len(values) < _FEW or path.rpartition("/")[2] == "action_mask":
            continue
        first = np.asarray(values[0])
        if first.dtype == object or not first.size or any(np.shape(value) != first.shape for value in values):
            continue
        still = np.all(np.stack([np.asarray(value) for value in values]) == first, axis=0)
        if still.all():
            seen = f"{whose}{at(path)}the observation is {shown(first)} at each of {len(values)} steps"
            inspection.advise("observations change", seen, "look whether it is ever set; if so, leave it out")
        elif still.any() and first.ndim == 1 and part.rows is None:
            index = np.flatnonzero(still)
            seen = f"{whose}element{'s' if len(index) > 1 else ''} {shown(index)} of {at(path)}the observation "
            seen += f"never changed in {len(values)} steps"
            inspection.advise("observations change", seen, "look whether they are ever set; if so, leave them out")


def _on_overflow(inspection: Inspection, whose: str, path: str, values: list[Any], resets: list[bool]) -> None:
    """Small whole numbers that jump from one end of their type to the other, and go in small steps elsewhere."""
    if len(values) != len(resets) or any(np.shape(value) != np.shape(values[0]) for value in values):
        return
    array = np.stack([np.asarray(value) for value in values])
    if array.dtype.kind not in "iu" or array.dtype.itemsize > 2 or array.ndim > 2:
        return
    reach = int(np.iinfo(array.dtype).max) - int(np.iinfo(array.dtype).min)
    moves = np.abs(np.diff(array.astype(np.int64).reshape(len(array), -1), axis=0))[~np.array(resets[1:])]
    for element, own in enumerate(moves.T):
        jumps, small = own > 0.75 * reach, (own > 0) & (own < 0.25 * reach)
        if 0 < jumps.sum() <= small.sum() / 4 and (jumps | small | (own == 0)).all():
            which = f"element {element} of " if array.ndim > 1 else ""
            inspection.advise(
                "numbers run over",
                f"{whose}{which}{at(path)}the observation moves by at most {own[small].max()}, but {jumps.sum()} times "
                f"by {own[jumps].min()} or more: {array.dtype} begins anew at its other end",
                "compute in int32 or float32, and clip to the bounds before it becomes the small type",
            )
            return


def _on_actions(inspection: Inspection, whose: str, part: Part) -> None:
    for path, space in boxes(part.action_space):
        low, high = float(np.min(space.low, initial=-1)), float(np.max(space.high, initial=1))
        if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
            inspection.advise(
                "scale of actions",
                f"{whose}{at(path)}the action has no bounds",
                "declare bounds, best -1 to 1, and scale in step(): a policy begins with numbers of about 1",
            )
        elif not np.allclose(space.low, -space.high) or max(-low, high) > _LARGE:
            inspection.advise(
                "scale of actions",
                f"{whose}{at(path)}the action goes from {shown(space.low)} to {shown(space.high)}",
                "declare -1 to 1 and scale in step(); agents of rlweave scale by themselves, those of others may not",
            )


def _on_rewards(inspection: Inspection, whose: str, rewards: list[Any]) -> None:
    try:
        numbers = np.concatenate([np.ravel(np.asarray(reward, np.float64)) for reward in rewards])
    except (TypeError, ValueError):
        return
    if len(numbers) < _FEW or not np.isfinite(numbers).all():
        return
    low, high = float(numbers.min()), float(numbers.max())
    inspection.report.facts[f"rewards{' of ' + whose[6:-2] if whose else ''}"] = (
        f"{low:.4g} to {high:.4g}, {math.fsum(numbers) / len(numbers):.4g} on average"
    )
    if low == high == 0:
        seen, fix = "every reward was 0", "reward steps on the way, begin closer to the goal, or explore more"
    elif max(-low, high) > _LARGE:
        seen = f"rewards go from {low:.4g} to {high:.4g}"
        fix = "bring them to about 1: divide by a fixed number, or agent.normalize_rewards=true (of ppo)"
    elif max(-low, high) < _SMALL:
        seen, fix = f"rewards stay below {max(-low, high):.3g}", "multiply them by a fixed number, to about 1"
    else:
        return
    inspection.advise("scale of rewards", f"{whose}{seen} in {len(numbers)} random steps", fix)
