"""A population of trainings: their settings and scores, and which trial copies which."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlweave.flow import PlanItem

Bounds = Mapping[str, Sequence[float]]
"""Lowest and highest value of each hyper-parameter, by dotted key."""


def draw_settings(bounds: Bounds, rng: np.random.Generator) -> dict[str, float]:
    """First values of hyper-parameters, uniform on a logarithmic scale (an uneven share of zero: on a linear one).

    Args:
        bounds: Lowest and highest value by dotted key. Where both are whole numbers, so are the values.
        rng: Draws.

    >>> draw_settings({"agent.epochs": [4, 4]}, np.random.default_rng(0))
    {'agent.epochs': 4}
    """
    drawn = {}
    for key, (low, high) in bounds.items():
        share = rng.random()
        value = low * (high / low) ** share if low > 0 else low + (high - low) * share
        drawn[key] = _within(value, low, high)
    return drawn


def explore(
    settings: Mapping[str, float], bounds: Bounds, factors: Sequence[float], rng: np.random.Generator
) -> dict[str, float]:
    """Perturbs settings: each is multiplied by one of the factors (Jaderberg et al. 2017, section 4.1), within bounds.

    >>> explore({"agent.lr": 0.1}, {"agent.lr": [0.0, 1.0]}, [2.0, 2.0], np.random.default_rng(0))
    {'agent.lr': 0.2}
    """
    return {
        key: _within(settings[key] * factors[int(rng.integers(len(factors)))], low, high)
        for key, (low, high) in bounds.items()
    }


def _within(value: float, low: float, high: float) -> float:
    value = min(max(value, low), high)
    return round(value) if isinstance(low, int) and isinstance(high, int) else float(value)


class Population:
    """The learner of a plan whose workers are trainings (Jaderberg et al. 2017, algorithm 1).

    A trial that was among the worst when it reported copies weights, all other state and settings of one of the best
    (*exploit*, by truncation selection), and then changes the settings (*explore*). What the trials get as *weights*
    says which state each is to continue from.

    Args:
        size: Number of trials.
        bounds: Lowest and highest value of each hyper-parameter.
        truncation: Share of the population that counts as the worst, and as the best.
        factors: What hyper-parameters are multiplied by to explore.
        seed: Of all random choices.
    """

    def __init__(self, size: int, bounds: Bounds, truncation: float, factors: Sequence[float], seed: int) -> None:
        self.bounds, self.truncation, self.factors = bounds, truncation, factors
        self._rng = np.random.default_rng(seed)
        self.members: list[dict[str, Any]] = [
            {"generation": 0, "settings": draw_settings(bounds, self._rng), "score": None, "state": None, "owed": True}
            for _ in range(size)
        ]
        """Of each trial: how many times it was told to copy another; its settings; its last score and state (after an
        exploit, those that it copies), and whether it still has to take them over."""
        self.exploits = 0

    def update(self, item: PlanItem) -> dict[str, float]:
        """Notes what a trial reports, and lets it exploit and explore if it is among the worst.

        Returns:
            The score and settings of the trial, by ``trial-<number>/<name>``, and the best score of the population.
        """
        told = item.state
        number = int(told["trial"])
        member = self.members[number]
        # a trial that replaces a lost one chose by itself which state to continue from
        member.update(
            settings=dict(told["settings"]), score=float(item.report["score"]), state=told["state"], owed=False
        )
        metrics = {f"trial-{number}/score": member["score"]}
        metrics |= {f"trial-{number}/{key}": float(value) for key, value in member["settings"].items()}
        donor = self._donor(number)
        if donor is not None:
            self.exploits += 1
            better = self.members[donor]
            settings = explore(better["settings"], self.bounds, self.factors, self._rng)
            member.update(settings=settings, score=better["score"], state=better["state"], owed=True)
            member["generation"] += 1
        best = self.best()
        assert best is not None
        counts = {name: int(item.report[name]) for name in ("trained_samples", "gradient_steps")}
        return {**metrics, **counts, "best_score": self.members[best]["score"], "exploits": float(self.exploits)}

    def _donor(self, number: int) -> int | None:
        """The trial that this one is to copy: one of the best, if this is one of the worst, and worse; else None."""
        ranked = self._ranked()
        share = max(1, int(self.truncation * len(ranked)))
        if len(ranked) < 2 * share or number not in ranked[-share:]:
            return None
        donor = ranked[int(self._rng.integers(share))]
        return donor if self.members[donor]["score"] > self.members[number]["score"] else None

    def _ranked(self) -> list[int]:
        """The trials that have a score, best first; among equals the first."""
        scored = [number for number, member in enumerate(self.members) if member["score"] is not None]
        return sorted(scored, key=lambda number: -self.members[number]["score"])

    def best(self) -> int | None:
        """Number of the trial with the best last score; None before the first report."""
        ranked = self._ranked()
        return ranked[0] if ranked else None

    def get_weights(self) -> dict[str, Any]:
        """The states that trials are to copy and have not received yet, and states for replacements of lost trials.

        Two ``spares``, since a lost trial is replaced by one that continues from another trial's state.
        """
        return {
            "members": [
                {
                    "generation": member["generation"],
                    "settings": dict(member["settings"]),
                    "owed": member["owed"],
                    "state": member["state"] if member["owed"] else None,
                }
                for member in self.members
            ],
            "spares": [
                {"trial": number, "settings": self.members[number]["settings"], "state": self.members[number]["state"]}
                for number in self._ranked()[:2]
            ],
        }

    def state_dict(self) -> dict[str, Any]:
        """Plain data and arrays."""
        return {
            "members": [dict(member) for member in self.members],
            "exploits": self.exploits,
            "rng": copy.deepcopy(self._rng.bit_generator.state),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over a state."""
        self.members = [dict(member) for member in state["members"]]
        self.exploits = int(state["exploits"])
        self._rng.bit_generator.state = state["rng"]
