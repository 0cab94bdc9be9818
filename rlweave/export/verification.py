"""Compares an artefact with its policy: on observations from all of the space, in batches of several sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rlweave.agents.trained_policy import TrainedPolicy
from rlweave.components.distributions import MASKED
from rlweave.errors import ExportError
from rlweave.export.boundary import Boundary
from rlweave.export.samples import sample_observations
from rlweave.export.targets import Runner
from rlweave.spaces import Space
from rlweave.tree import flatten_tree

#: Steps and rows of the rollouts: 1,000 observations, single ones among the batches.
ROLLOUTS = ((10, 88), (16, 7), (8, 1))
OBSERVATIONS = sum(steps * rows for steps, rows in ROLLOUTS)
#: Greatest difference, in units of the greatest value of an output where that is beyond 1: with observations in the
#: thousands, single numbers that cancel are not exact to this on any backend.
TOLERANCE = 1e-5


def verify(
    run: Runner,
    source: Callable[..., Any],
    recurrent_space: Space | None,
    policy: TrainedPolicy,
    boundary: Boundary,
    where: str,
) -> dict[str, Any]:
    """Compares an artefact with its policy.

    Rollouts of observations go through all; of recurrent policies each carries a state of its own from step to step.
    Differences of numbers are at most `TOLERANCE`. Actions are equal, but where two of them are equally good to the
    source within that.

    Args:
        run: The artefact.
        source: The deployed policy on NumPy: from nested observations, and of recurrent ones state and episode starts,
            to its result.
        recurrent_space: Of the recurrent state of one environment; None where there is none.
        policy: The policy of both; only its actions are used.
        boundary: The conversion between environment and artefact.
        where: Name of the artefact, for the error.

    Returns:
        `observations`, `greatest_difference`, and `ties`: how many actions differ between equally good ones.

    Raises:
        ExportError: They differ.
    """
    rng, agent = np.random.default_rng(0), policy.agent
    comparison = _Comparison(where)
    for steps, rows in ROLLOUTS:
        state = recurrent_space.with_batch_rank().zeros(rows) if recurrent_space is not None else None
        own_state = None
        carried = flatten_tree({"recurrent_state": state})
        for step in range(steps):
            flat = sample_observations(agent.observation_space, rows, rng, agent.config.mask_leaf)
            arguments = [boundary.observation(flat)]
            given = flatten_tree({"observation": arguments[0]})
            start = (rng.random(rows) < 0.1) | (step == 0)
            seen, mask = boundary.of_environment(flat)
            own_action, own_state = policy.act_with_state(seen, own_state, episode_start=start, mask=mask)
            if policy.recurrent:
                arguments += [state, start]
                given |= {**carried, "episode_start": start}
            nested = source(*arguments)
            wanted, found = flatten_tree(nested), run(given)
            comparison.add(found, wanted)
            own_actions = flatten_tree({"action": own_action})
            actions = {name: np.asarray(x, wanted[name].dtype) for name, x in own_actions.items()}
            comparison.add(found, {**wanted, **actions}, counted=False)
            if policy.recurrent:
                state = nested["next_recurrent_state"]
                carried = {name: found[f"next_{name}"] for name in carried}
    return {
        "observations": OBSERVATIONS,
        "greatest_difference": comparison.greatest,
        "ties": comparison.ties,
    }


def _difference(got: np.ndarray, want: np.ndarray) -> float:
    """The greatest difference; NaN if only one of them is NaN."""
    with np.errstate(invalid="ignore"):
        difference = np.abs(got - want)
    difference = np.where((got == want) | (np.isnan(got) & np.isnan(want)), 0.0, difference)
    return float(difference.max(initial=0.0))


@dataclass
class _Comparison:
    """Compares results, and counts differences.

    Attributes:
        where: Name of the artefact, for the error.
        scales: The greatest value of each output so far, masked ones apart; at least 1.
        greatest: The greatest difference so far.
        ties: How many actions differed so far between equally good ones.
    """

    where: str
    scales: dict[str, float] = field(default_factory=dict, init=False)
    greatest: float = field(default=0.0, init=False)
    ties: int = field(default=0, init=False)

    def add(self, found: Mapping[str, np.ndarray], wanted: Mapping[str, np.ndarray], counted: bool = True) -> None:
        """Compares the results of one batch.

        Raises:
            ExportError: They differ.
        """
        if set(found) != set(wanted):
            received = f"{sorted(found)}, {sorted(wanted)}"
            raise ExportError("the artefact has other outputs", where=self.where, received=received)
        self._scale(wanted)
        for name, want in wanted.items():
            got, where = np.asarray(found[name]), f"{self.where}, {name}, {len(want)} rows"
            if got.shape != want.shape or got.dtype != want.dtype:
                raise ExportError(
                    "an output of the artefact has another shape or dtype",
                    where=where,
                    received=f"{got.dtype}{got.shape}, the policy has {want.dtype}{want.shape}",
                )
            if want.dtype.kind == "f":
                worst = _difference(got, want) / self.scales[name]
                if not worst <= TOLERANCE:
                    raise ExportError(
                        "the artefact computes other numbers than the policy",
                        where=where,
                        received=f"a difference of {worst:.3g}, at most {TOLERANCE} is allowed",
                    )
                self.greatest = max(self.greatest, worst)
            elif np.any(got != want):
                self._check_ties(got != want, wanted, name, where)
                self.ties += counted * int(np.sum(got != want))

    def _scale(self, wanted: Mapping[str, np.ndarray]) -> None:
        for name, want in wanted.items():
            if want.dtype.kind == "f":
                numbers = np.abs(want[np.isfinite(want) & (want != np.float32(MASKED))])
                self.scales[name] = max(self.scales.get(name, 1.0), float(numbers.max(initial=1.0)))
        for name in self.scales:
            if name.startswith("action"):  # clipped values were larger before
                own = self.scales.get(f"{name.replace('action', 'parameters', 1)}/mean", 1.0)
                self.scales[name] = max(self.scales[name], own)

    def _check_ties(self, differs: np.ndarray, wanted: Mapping[str, np.ndarray], name: str, where: str) -> None:
        """Checks that actions which differ are equally good to the source."""
        parameters = name.replace("action", "parameters", 1)
        values = wanted.get(parameters)
        margin = np.full(differs.shape, np.inf)
        if values is not None and values.ndim == differs.ndim:  # logits of booleans
            margin = np.abs(values)
        elif values is not None and values.shape[-1] > 1:
            best = np.sort(values, axis=-1)
            margin = best[..., -1] - best[..., -2]
        if np.any(margin[differs] > 2 * TOLERANCE * self.scales.get(parameters, 1.0)):
            raise ExportError(
                "the artefact chooses other actions than the policy",
                where=where,
                received=f"{int(differs.sum())} of {differs.size} differ",
            )
