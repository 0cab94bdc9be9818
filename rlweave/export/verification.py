"""An artefact against the policy that it was made of: observations of the whole space, in batches of several sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rlweave.agents.trained_policy import TrainedPolicy
from rlweave.errors import ExportError
from rlweave.export.boundary import Boundary
from rlweave.export.targets import Runner
from rlweave.graph.ir import flatten_structure
from rlweave.spaces import BoolBox, Box, FloatBox, IntBox, Space

#: Steps and rows of the rollouts: 1,000 observations, a single one among the batches.
ROLLOUTS = ((8, 1), (16, 7), (10, 88))
OBSERVATIONS = sum(steps * rows for steps, rows in ROLLOUTS)
#: Greatest difference, absolute up to 1 and relative beyond.
TOLERANCE = 1e-5
#: Bounds beyond are none: sums of such numbers are not exact to `TOLERANCE` in single precision.
_LARGEST = 1e4
_UNBOUNDED_EDGE = 10.0


def sample_observations(space: Space, rows: int, rng: np.random.Generator, mask_leaf: str | None) -> dict[str, Any]:
    """Observations by leaf, (B, ...): a third of them has leaves at their edges, the others are anywhere.

    Args:
        space: Of one observation.
        rows: B.
        rng: Draws them.
        mask_leaf: The leaf that says which actions are allowed: at least one is.
    """
    flat = {}
    for path, leaf in space.flatten().items():
        values = np.asarray(leaf.sample(rows, rng=rng))
        if isinstance(leaf, FloatBox):
            values = np.where(np.abs(values) > _LARGEST, rng.normal(size=values.shape), values).astype(leaf.dtype)
        edges = [np.broadcast_to(edge, leaf.feature_shape) for edge in _edges(leaf)]
        for row in np.flatnonzero(rng.random(rows) < 1 / 3):
            values[row] = edges[rng.integers(len(edges))]
        if path == mask_leaf:
            values[np.arange(rows), rng.integers(values.shape[-1], size=rows)] = 1
        flat[path] = values
    return flat


def _edges(leaf: Box) -> list[Any]:
    """The lowest and the highest values of a leaf, and zero where it is among them."""
    if isinstance(leaf, BoolBox):
        return [False, True]
    if isinstance(leaf, IntBox):
        bounded = leaf.bounded
        return [np.where(bounded, leaf.low, -100), np.where(bounded, leaf.last, 100)]
    assert isinstance(leaf, FloatBox)
    low = np.where(np.abs(leaf.low) > _LARGEST, np.minimum(-_UNBOUNDED_EDGE, leaf.high), leaf.low)
    high = np.where(np.abs(leaf.high) > _LARGEST, np.maximum(_UNBOUNDED_EDGE, leaf.low), leaf.high)
    return [low, high, np.clip(0.0, low, high)]


def verify(
    run: Runner,
    source: Callable[..., Any],
    recurrent_space: Space | None,
    policy: TrainedPolicy,
    boundary: Boundary,
    where: str,
) -> dict[str, Any]:
    """Compares an artefact with what it was made of.

    Rollouts of observations go through all; of recurrent policies each carries a state of its own from step to step.
    Differences of numbers are at most `TOLERANCE`. Actions are equal, but where two of them are equally good to the
    source within `TOLERANCE`.

    Args:
        run: The artefact.
        source: The deployed policy on NumPy: from nested observations, and of recurrent ones state and episode starts,
            to its result.
        recurrent_space: Of the recurrent state of one environment; None where there is none.
        policy: What both were made of; only its actions are looked at.
        boundary: Between the environment and the artefact.
        where: What is verified, for the error.

    Returns:
        `observations`, `greatest_difference`, `ties`: how many actions differ between equally good ones.

    Raises:
        ExportError: They differ.
    """
    rng, agent = np.random.default_rng(0), policy.agent
    greatest, ties = 0.0, 0
    for steps, rows in ROLLOUTS:
        state = recurrent_space.with_batch_rank().zeros(rows) if recurrent_space is not None else None
        own_state = None
        carried = flatten_structure({"recurrent_state": state})
        for step in range(steps):
            flat = sample_observations(agent.state_space, rows, rng, agent.config.mask_leaf)
            arguments = [boundary.observation(flat)]
            given = flatten_structure({"observation": arguments[0]})
            start = (rng.random(rows) < 0.1) | (step == 0)
            seen, mask = boundary.of_environment(flat)
            own_action, own_state = policy.act_with_state(seen, own_state, episode_start=start, mask=mask)
            if policy.recurrent:
                arguments += [state, start]
                given |= {**carried, "episode_start": start}
            nested = source(*arguments)
            wanted, found = flatten_structure(nested), run(given)
            difference, tied = _compare(found, wanted, f"{where}, {rows} rows")
            own_actions = flatten_structure({"action": own_action})
            actions = {name: np.asarray(x, wanted[name].dtype) for name, x in own_actions.items()}
            _compare(found, {**wanted, **actions}, f"{where}, {rows} rows")
            greatest, ties = max(greatest, difference), ties + tied
            if policy.recurrent:
                state = nested["next_recurrent_state"]
                carried = {name: found[f"next_{name}"] for name in carried}
    return {"observations": OBSERVATIONS, "greatest_difference": greatest, "ties": ties}


def _compare(found: Mapping[str, np.ndarray], wanted: Mapping[str, np.ndarray], where: str) -> tuple[float, int]:
    """The greatest difference, and how many actions differ between equally good ones."""
    if set(found) != set(wanted):
        raise ExportError("the artefact has other outputs", where=where, received=f"{sorted(found)}, {sorted(wanted)}")
    greatest, ties = 0.0, 0
    for name, want in wanted.items():
        got = np.asarray(found[name])
        if got.shape != want.shape or got.dtype != want.dtype:
            raise ExportError(
                "an output of the artefact has another shape or dtype",
                where=f"{where}, {name}",
                received=f"{got.dtype}{got.shape}, the policy has {want.dtype}{want.shape}",
            )
        if want.dtype.kind == "f":
            with np.errstate(invalid="ignore"):
                difference = np.abs(got - want) / np.maximum(1.0, np.abs(want))
            difference = np.where((got == want) | (np.isnan(got) & np.isnan(want)), 0.0, difference)
            worst = float(difference.max(initial=0.0))
            if not worst <= TOLERANCE:
                raise ExportError(
                    "the artefact computes other numbers than the policy",
                    where=f"{where}, {name}",
                    received=f"a difference of {worst:.3g}, at most {TOLERANCE} is allowed",
                )
            greatest = max(greatest, worst)
        else:
            differs = got != want
            if differs.any():
                ties += int(differs.sum())
                _check_ties(differs, wanted, name, where)
    return greatest, ties


def _check_ties(differs: np.ndarray, wanted: Mapping[str, np.ndarray], name: str, where: str) -> None:
    """Checks that actions which differ are equally good to the source."""
    values = wanted.get(name.replace("action", "parameters", 1))
    margin = np.full(differs.shape, np.inf)
    if values is not None and values.ndim == differs.ndim:  # logits of booleans
        margin = np.abs(values)
    elif values is not None and values.shape[-1] > 1:
        best = np.sort(values, axis=-1)
        margin = (best[..., -1] - best[..., -2]) / np.maximum(1.0, np.abs(best[..., -1]))
    if np.any(margin[differs] > 2 * TOLERANCE):
        raise ExportError(
            "the artefact chooses other actions than the policy",
            where=f"{where}, {name}",
            received=f"{int(differs.sum())} of {differs.size} differ",
        )
