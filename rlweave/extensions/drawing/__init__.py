"""Pictures of component graphs."""

from __future__ import annotations

from rlweave.errors import ExecutionError, nearest
from rlweave.extensions.drawing.dataflow import make_picture
from rlweave.extensions.drawing.mermaid import to_mermaid
from rlweave.extensions.drawing.svg import to_svg
from rlweave.graph.executor import GraphExecutor

FORMS = {"mermaid": to_mermaid, "svg": to_svg}


def draw(executor: GraphExecutor, form: str = "mermaid", method: str | None = None) -> str:
    """Draws the component graph of an executor.

    Boxes are components, nested as they own each other: scope, class, number of variables and of parameters; coloured
    by where they run; trainable, frozen or other state. Arrows are what flows between components, with spaces; API
    methods of the root are where it starts and ends. Dashed arrows are gradients, dotted ones are variables that one
    component writes or reads in another (an optimizer's steps, a synchronization).

    Args:
        executor: A built graph.
        form: "mermaid" or "svg".
        method: Only what this API method uses; all methods together by default.

    Returns:
        The text of the picture; the same graph gives the same text.

    Raises:
        ExecutionError: Unknown form or method.

    Example:
        >>> from rlweave.components import Dense
        >>> from rlweave.graph import build
        >>> from rlweave.spaces import FloatBox
        >>> print(draw(build(Dense(2), {"inputs": FloatBox(shape=(3,), add_batch_rank=True)})).splitlines()[0])
        flowchart TB
    """
    if form not in FORMS:
        raise ExecutionError("unknown form of a picture", received=repr(form), fix=nearest(form, FORMS))
    return FORMS[form](make_picture(executor, method))


__all__ = ["FORMS", "draw"]
