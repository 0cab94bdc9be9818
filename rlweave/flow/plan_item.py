"""What a plan did in a while, as an item of the plan that it is part of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlweave.flow.codec import saved_as


@saved_as("plan_item")
@dataclass(slots=True)
class PlanItem:
    """What a plan in a plan did in a while.

    Attributes:
        num_steps: Environment steps that it took.
        report: Single numbers by name, as in the inner plan's report.
        state: What else it says, such as the state that it is in: nested string-keyed dicts and lists of JSON values
            and arrays.
    """

    num_steps: int
    report: Mapping[str, float]
    state: Mapping[str, Any] = field(default_factory=dict)

    @staticmethod
    def concat(items: Sequence[PlanItem], /) -> PlanItem:
        """Several as one: steps are summed, numbers averaged over those that have them, states listed as ``parts``.

        >>> PlanItem.concat([PlanItem(4, {"a": 1.0}), PlanItem(8, {"a": 3.0, "b": 5.0})]).report
        {'a': 2.0, 'b': 5.0}
        """
        names = dict.fromkeys(name for item in items for name in item.report)
        values = {name: [item.report[name] for item in items if name in item.report] for name in names}
        means = {name: sum(found) / len(found) for name, found in values.items()}
        return PlanItem(sum(item.num_steps for item in items), means, {"parts": [dict(item.state) for item in items]})

    def state_dict(self) -> dict[str, Any]:
        """JSON-able data and arrays."""
        return {"num_steps": self.num_steps, "report": dict(self.report), "state": dict(self.state)}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> PlanItem:
        """What ``state_dict`` described."""
        return cls(int(state["num_steps"]), dict(state["report"]), dict(state["state"]))
