"""Control flow of frameworks whose runs are functions: what bodies write to cells is carried along.

A framework brings its loop, branch or derivative, which knows nothing of cells; here cells are bound to the values that
it hands in, and read again afterwards. Where a body fails, cells hold what they held before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rlweave.backends.base import Array, Cell, set_cells, values_of_cells


@contextmanager
def _restored(cells: Sequence[Cell]) -> Iterator[tuple[Array, ...]]:
    """What cells hold, which they hold again afterwards."""
    before = values_of_cells(cells)
    try:
        yield before
    finally:
        set_cells(cells, before)


def scan(
    loop: Callable[..., Any],
    body: Callable[[Any, Any], tuple[Any, Any]],
    carry: Any,
    xs: Any,
    length: int | None,
    written: Sequence[Cell],
    **more: Any,
) -> Any:
    """`graph.scan`.

    Args:
        loop: Of the framework: `state, ys = loop(step, state, xs, length, **more)`.
        body: `carry, y = body(carry, x)`.
        carry: The first carry.
        xs: What is looped over, or None.
        length: The number of steps, where there are no xs.
        written: The cells that the body writes.
        more: For the loop.
    """

    def step(state: Any, x: Any) -> Any:
        carry, values = state
        set_cells(written, values)
        carry, y = body(carry, x)
        return (carry, values_of_cells(written)), y

    with _restored(written) as before:
        (carry, values), ys = loop(step, (carry, before), xs, length, **more)
    set_cells(written, values)
    return carry, ys


def cond(
    choose: Callable[..., Any], pred: Any, f: Callable[[], Any], g: Callable[[], Any], written: Sequence[Cell]
) -> Any:
    """`graph.cond`; both branches hand out the written cells.

    Args:
        choose: Of the framework: `choose(pred, yes, no, values)` calls one of two functions of values.
        pred: What decides.
        f: The branch where it is true.
        g: The other one.
        written: The cells that a branch writes.
    """

    def branch(fn: Callable[[], Any]) -> Callable[[Any], Any]:
        def run(values: Any) -> Any:
            set_cells(written, values)
            return fn(), values_of_cells(written)

        return run

    with _restored(written) as before:
        result, values = choose(pred, branch(f), branch(g), before)
    set_cells(written, values)
    return result


def while_loop(
    loop: Callable[..., Any],
    test: Callable[[Any], Any],
    body: Callable[[Any], Any],
    carry: Any,
    written: Sequence[Cell],
) -> Any:
    """`graph.while_`.

    Args:
        loop: Of the framework: `state = loop(check, step, state)`.
        test: Whether to go on, of the carry.
        body: From the carry to the next one.
        carry: The first carry.
        written: The cells that the body writes.
    """

    def check(state: Any) -> Any:
        set_cells(written, state[1])
        return test(state[0])

    def step(state: Any) -> Any:
        set_cells(written, state[1])
        carry = body(state[0])
        return carry, values_of_cells(written)

    with _restored(written) as before:
        carry, values = loop(check, step, (carry, before))
    set_cells(written, values)
    return carry


def vjp(
    derive: Callable[..., Any],
    segment: Callable[..., Any],
    cells: Sequence[Cell],
    written: Sequence[Cell],
    values: Sequence[Any],
) -> Any:
    """Evaluates a segment once and keeps its pull-back.

    Args:
        derive: Of the framework: `outputs, pull, aux = derive(pure, *arguments, has_aux=True)`.
        segment: Function of `values` that returns (outputs to differentiate, other results).
        cells: Variables to differentiate by; the segment reads them.
        written: Variables that the segment writes.
        values: Values to differentiate by.

    Returns:
        (outputs, other results, pull-back from output cotangents to (cell cotangents, value cotangents)).
    """

    def pure(cell_values: Any, inner_values: Any) -> Any:
        set_cells(cells, cell_values)
        outputs, others = segment(*inner_values)
        return outputs, (others, values_of_cells(written))

    before, before_written = values_of_cells(cells), values_of_cells(written)
    try:  # torch.compile goes through this function, and not through a context manager
        outputs, pull, (others, after) = derive(pure, before, tuple(values), has_aux=True)
    finally:
        set_cells(written, before_written)
        set_cells(cells, before)
    set_cells(written, after)
    return outputs, others, pull
