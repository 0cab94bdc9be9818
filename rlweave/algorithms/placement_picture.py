"""The picture of a placement: processes with their fragments, and what crosses the borders between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlweave.algorithms.config import TrainConfig
from rlweave.algorithms.placement_report import Row, placement_rows
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
    boxes = _processes(fragments)
    picture = PlanPicture([], explains_places=False)
    for (source, target, what, how), sizes in _crossings(borders).items():
        for place in (source, target):
            if place not in boxes:  # the driver holds the plan, where it holds no fragment
                boxes[place] = OperatorBox(place, ["the plan"], _PLACES.get(place, "sources"))
        if source == target:
            boxes[source].small.append(f"{what}: {how}")
            continue
        labels = [what, *([f"{' and '.join(sizes)} bytes"] if sizes else []), how]
        picture.arrows.append(Arrow(source, target, labels, "message" if what in _GO_BACK else "stream"))
    picture.boxes += boxes.values()
    return FORMS[form](picture)


def _processes(fragments: Sequence[Row]) -> dict[str, OperatorBox]:
    """A box for each process, with its fragments."""
    boxes: dict[str, OperatorBox] = {}
    for name, where, number, device, *_ in fragments:
        process, _, aside = where.partition(" (")
        box = boxes.get(process)
        if box is None:
            box = boxes[process] = OperatorBox(process, [], _PLACES.get(process, "sources"))
            box.small += [aside.removesuffix(")")] if aside else []
            box.small += [f"{number} of them"] if number != "1" else []
        box.small.append(f"{name} ({device})")
    return boxes


def _crossings(borders: Sequence[Row]) -> dict[tuple[str, str, str, str], list[str]]:
    """Sizes in bytes of what crosses, by source, target, what and how; those of several shards together."""
    found: dict[tuple[str, str, str, str], list[str]] = {}
    for source, target, what, size, how, *_ in borders:
        sizes = found.setdefault((_group(source), _group(target), what, how), [])
        if size not in ("-", *sizes):
            sizes.append(size)
    return found


def _group(place: str) -> str:
    """The process of a fragment that is one of several.

    >>> _group("shard 1")
    'shard'
    """
    return place.rstrip("0123456789 ")
