"""The picture of a placement: processes with their fragments, and what crosses the borders between them."""

from __future__ import annotations

from typing import Any

from rlweave.algorithms.config import TrainConfig
from rlweave.algorithms.placement_report import Row, placement_rows
from rlweave.flow import ReportMetrics
from rlweave.flow.drawing import FORMS, Arrow, OperatorBox, PlanPicture
from rlweave.flow.operator import RunsAt

#: The colour of each kind of process, as of the operators that run there.
_PLACES: dict[str, RunsAt] = {"driver": "driver", "program": "driver", "learner's actor": "learner", "rank": "learner"}


def draw_placement(config: TrainConfig, plan: ReportMetrics, agent: Any, form: str = "svg") -> str:
    """Draws a placement.

    Args:
        config: Settings of the training.
        plan: Its plan.
        agent: Its agent; not built.
        form: "mermaid" or "svg".

    Returns:
        The text of the picture.
    """
    _, fragments, borders = placement_rows(config, plan, agent)
    processes: dict[str, OperatorBox] = {}
    for name, where, number, device, *_ in fragments:
        process, _, aside = where.partition(" (")
        box = processes.get(process)
        if box is None:
            box = processes[process] = OperatorBox(process, [], _PLACES.get(process, "sources"))
            if aside:
                box.small.append(aside.removesuffix(")"))
            if number != "1":
                box.small.append(f"{number} of them")
        box.small.append(f"{name} ({device})")
    picture = PlanPicture(list(processes.values()), explains_places=False)
    for row in borders:
        for place in row[:2]:
            if place not in processes:  # the driver holds the plan, where it holds no fragment
                processes[place] = OperatorBox(place, ["the plan"], _PLACES.get(place, "sources"))
                picture.boxes.append(processes[place])
        if row[0] == row[1]:
            processes[row[0]].small.append(f"{row[2]}: {row[4]}")
        else:
            picture.arrows.append(_arrow(row))
    return FORMS[form](picture)


def _arrow(row: Row) -> Arrow:
    source, target, what, size, how, *_ = row
    bytes_each = [f"{size} bytes"] if size != "-" else []
    goes_back = what in ("weights", "priorities", "action")  # against the order in which processes are drawn
    return Arrow(source, target, [what, *bytes_each, how], "message" if goes_back else "stream")
