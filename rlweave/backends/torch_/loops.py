"""Loops, branches and derivatives on PyTorch, which generated code calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from rlweave.backends.base import Array, Cell, untouched
from rlweave.backends.torch_.ops.control import readable
from rlweave.tree import tree_leaves, tree_map


def vjp(segment: Callable[..., Any], cells: Sequence[Cell], written: Sequence[Cell], values: Sequence[Any]) -> Any:
    """Evaluates a segment once and keeps its pull-back, by `torch.func.vjp` (inside compiled runs)."""
    before = tuple(cell.value for cell in cells)

    def pure(cell_values: Any, inner_values: Any) -> Any:
        for cell, value in zip(cells, cell_values, strict=True):
            cell.value = value
        outputs, others = segment(*inner_values)
        return outputs, (others, tuple(cell.value for cell in written))

    before_written = tuple(cell.value for cell in written)
    try:
        outputs, pull, (others, after) = torch.func.vjp(pure, before, tuple(values), has_aux=True)  # type: ignore[misc]
    finally:
        for cell, value in (*zip(written, before_written, strict=True), *zip(cells, before, strict=True)):
            cell.value = value
    for cell, value in zip(written, after, strict=True):
        cell.value = value
    return outputs, others, pull


def tracked(x: Array) -> Array:
    """A value that gradients can be taken by: a leaf, or with a history a node of its own (and of nobody else)."""
    if not x.requires_grad:
        return x.detach().requires_grad_()
    with torch.enable_grad():
        return x.view_as(x)


_ENGINE: Any = torch.autograd.Variable._execution_engine


def gradient(loss: Any, wrt: list[Any], retain_graph: bool, create_graph: bool) -> tuple[Any, ...]:
    """Derivatives of a loss; zeros for what it does not depend on."""
    if not wrt or not loss.requires_grad:
        return tuple(torch.zeros_like(x) for x in wrt)
    # What torch.autograd.grad calls after 5 microseconds of preparations, the last argument being allow_unused. The
    # seed is a new one each time: it is the gradient itself where a loss is differentiated by itself.
    grads = _ENGINE.run_backward(
        (loss,),
        (torch.ones_like(loss),),
        retain_graph or create_graph,
        create_graph,
        tuple(wrt),
        True,
        accumulate_grad=False,
    )
    for g in grads:
        if g is None:
            return tuple(torch.zeros_like(x) if g is None else g for x, g in zip(wrt, grads, strict=True))
    return grads


def scan(body: Callable[[Any, Any], tuple[Any, Any]], carry: Any, xs: Any, length: int | None, written: Any) -> Any:
    """`graph.scan`: a Python loop in eager torch."""
    leaves = tree_leaves(xs)
    steps = leaves[0].shape[0] if leaves else length
    assert steps is not None
    if steps == 0:
        with untouched(written, torch.clone):
            _, y = body(carry, tree_map(lambda x: x.new_zeros(x.shape[1:]), xs))
        return carry, tree_map(lambda leaf: torch.stack([leaf])[:0], y)
    outputs = []
    for step in range(steps):
        carry, y = body(carry, tree_map(lambda x, step=step: x[step], xs))
        outputs.append(y)
    return carry, tree_map(lambda *ys: torch.stack(ys), *outputs)


def cond(pred: Any, f: Callable[[], Any], g: Callable[[], Any], written: Any) -> Any:
    """`graph.cond`: runs one branch; both, and chooses, where Python cannot look at the value (compiled, in a vmap)."""
    if isinstance(pred, torch.Tensor) and not readable(pred):
        before = tuple(cell.value for cell in written)
        yes, after_yes = f(), tuple(cell.value for cell in written)
        for cell, value in zip(written, before, strict=True):
            cell.value = value
        no = g()
        for cell, value in zip(written, after_yes, strict=True):
            cell.value = torch.where(pred, value, cell.value)
        return tree_map(lambda x, y: torch.where(pred, x, y), yes, no)
    return f() if bool(pred) else g()


def while_loop(test: Callable[[Any], Any], body: Callable[[Any], Any], carry: Any, written: Any) -> Any:
    """`graph.while_`."""
    while bool(test(carry)):
        carry = body(carry)
    return carry


def vmap(body: Callable[..., Any], in_axes: Sequence[int | None], size: int, args: Sequence[Any]) -> Any:
    """`graph.vmap` through `torch.func.vmap`."""
    return torch.func.vmap(body, in_dims=tuple(in_axes))(*args)
