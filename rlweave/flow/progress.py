"""Warnings about plans without progress: items move, but none reaches the end."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from rlweave.errors import PlanWarning
from rlweave.flow.operator import Operator
from rlweave.flow.sources import RolloutSource


class ProgressWatch:
    """Counts the seconds in which items move without any progress, and warns if they are too many.

    Args:
        plan: Name of the plan.
        nodes: Its operators.
        lacking: The kind of progress that is missing.
    """

    def __init__(self, plan: str, nodes: Sequence[Operator], lacking: str) -> None:
        self.plan, self.lacking = plan, lacking
        self.since: float | None = None
        """When something moved for the first time since the last progress. None is progress."""
        self._nodes = nodes
        self._before: dict[Operator, int] | None = None
        self._before_of: float | None = None
        self._warned_of: float | None = None

    def moved(self, now: float, seconds: float) -> None:
        """Notes a movement that was no progress.

        Args:
            now: The time.
            seconds: Time without progress before the warning; 0: no warning.
        """
        if self.since is None:
            self.since = now
        elapsed = now - self.since
        if not seconds or 2.0 * elapsed < seconds:
            return
        if self._before is None or self._before_of != self.since:  # not earlier: items that make progress cost nothing
            self._before = {node: node.timer.items for node in self._nodes}
            self._before_of = self.since
        if elapsed < seconds or self._warned_of == self.since:
            return
        taken = {node: node.timer.items - before for node, before in self._before.items()}
        culprits = self.culprits(taken)
        # operators that merge many items into one need time for that
        if culprits and (elapsed >= 10.0 * seconds or not all(node.merges for node in culprits)):
            self._warned_of = self.since
            warnings.warn(self._message(elapsed, taken, culprits), PlanWarning, stacklevel=4)

    def culprits(self, taken: dict[Operator, int]) -> list[Operator]:
        """The operators that took items and gave none, by what each of them took."""
        return [
            node
            for node, items in taken.items()
            if items and node.outputs and not any(taken[port.consumer] for port in node.outputs if port.consumer)
        ]

    def _message(self, elapsed: float, taken: dict[Operator, int], culprits: list[Operator]) -> str:
        shown = "; ".join(f"{node.name!r} took {taken[node]:,} items and gave none" for node in culprits)
        return (
            f"plan {self.plan!r}: items have moved for {elapsed:.0f} seconds, but {self.lacking}: {shown}. "
            "If that is meant, set plan.warn_after (of a training: --set warn_after=SECONDS), 0 for no warning."
        )


class StepsWatch(ProgressWatch):
    """The same of environment steps, where these decide when a report is due."""

    def culprits(self, taken: dict[Operator, int]) -> list[Operator]:
        """The sources whose items were of no steps."""
        return [node for node, items in taken.items() if items and isinstance(node, RolloutSource) and node.counts]

    def _message(self, elapsed: float, taken: dict[Operator, int], culprits: list[Operator]) -> str:
        shown = "; ".join(f"{taken[node]:,} items of {node.name!r} have none" for node in culprits)
        return (
            f"plan {self.plan!r}: items have moved for {elapsed:.0f} seconds, but {self.lacking}: {shown}. "
            "An item says its steps by num_steps or by its length."
        )
