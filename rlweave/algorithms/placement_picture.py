"""The picture of a placement: processes with their fragments, and what crosses the borders between them."""

from __future__ import annotations

from typing import Any

from rlweave.algorithms.config import TrainConfig
from rlweave.algorithms.placement_report import placement_rows
from rlweave.flow import ReportMetrics
from rlweave.flow.drawing import FORMS, Arrow, OperatorBox, PlanPicture
from rlweave.flow.operator import RunsAt

#: The colour of each kind of process, as of the operators that run there.
_PLACES: dict[str, RunsAt] = {"driver": "driver", "program": "driver", "learner's actor": "learner", "rank": "learner"}
#: What goes against the order in which processes are drawn.
_GO_BACK = ("weights", "priorities", "action", "actions")


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
    joined: dict[tuple[str, str, str], list[str]] = {}
    for source, target, what, size, how, *_ in borders:  # of several shards, which are one box
        sizes = joined.setdefault((_group(source), _group(target), f"{what}\n{how}"), [])
        sizes += [size] * (size not in ("-", *sizes))
    for (source, target, text), sizes in joined.items():
        what, how = text.split("\n")
        for place in (source, target):
            if place not in processes:  # the driver holds the plan, where it holds no fragment
                processes[place] = OperatorBox(place, ["the plan"], _PLACES.get(place, "sources"))
                picture.boxes.append(processes[place])
        if source == target:
            processes[source].small.append(f"{what}: {how}")
            continue
        labels = [what, *([f"{' and '.join(sizes)} bytes"] if sizes else []), how]
        picture.arrows.append(Arrow(source, target, labels, "message" if what in _GO_BACK else "stream"))
    return FORMS[form](picture)


def _group(place: str) -> str:
    """The process of a fragment that is one of several.

    >>> _group("shard 1")
    'shard'
    """
    return place.rstrip("0123456789 ")
