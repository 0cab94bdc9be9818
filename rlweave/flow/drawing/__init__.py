"""Pictures of plans."""

from __future__ import annotations

from rlweave.errors import PlanError, nearest
from rlweave.flow.drawing.mermaid import to_mermaid
from rlweave.flow.drawing.picture import make_picture
from rlweave.flow.drawing.svg import to_svg
from rlweave.flow.plan_graph import PlanGraph

FORMS = {"mermaid": to_mermaid, "svg": to_svg}


def draw(graph: PlanGraph, form: str = "mermaid", seconds: float | None = None) -> str:
    """Draws a plan: operators with their settings, coloured by where they run, and what flows between them.

    Solid arrows are streams, with item type, capacity and policy; thick ones are still at their sources. Dashed arrows
    are messages: weights, priorities, what `notify` sends. Dotted ones are items that a memory keeps and gives out.

    Args:
        graph: The operators of the plan.
        form: "mermaid" or "svg".
        seconds: How long the plan has been running; None if it was not started.

    Returns:
        The text of the picture; the same plan gives the same text.

    Raises:
        PlanError: Unknown form.
    """
    if form not in FORMS:
        raise PlanError("unknown form of a picture", where="draw", received=repr(form), fix=nearest(form, FORMS))
    return FORMS[form](make_picture(graph, seconds))


__all__ = ["FORMS", "draw"]
