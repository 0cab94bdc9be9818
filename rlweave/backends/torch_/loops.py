"""Loops, branches and derivatives on PyTorch, which generated code calls."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from rlweave.backends.base import Array
from rlweave.backends.python_loops import python_scan
from rlweave.backends.torch_.ops.control import readable
from rlweave.tree import tree_map


def tracked(x: Array) -> Array:
    """A value that gradients can be taken by: a leaf, or, where it has a history, a node of its own."""
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


scan = functools.partial(python_scan, torch.stack, lambda x: x.new_zeros(x.shape[1:]), torch.clone)


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


def vmap(body: Callable[..., Any], in_axes: Sequence[int | None], size: int, args: Sequence[Any]) -> Any:
    """`graph.vmap` through `torch.func.vmap`."""
    return torch.func.vmap(body, in_dims=tuple(in_axes))(*args)
