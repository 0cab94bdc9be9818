"""Steps of optimizers, by the fused and `foreach` kernels that `torch.optim` itself uses.

The kernels work in place, so without `donate` they work on copies. They take memory as it lies: parameters, slots and
gradients must have equal strides, which gradients of `torch.autograd.grad` need not have. Arrays are row-major, or
kernels of convolutions with the filters first in memory. Where the kernels of torch cannot be used (`torch.compile`,
which fuses plain formulas by itself, and transformations such as `vmap`) the plain formulas are.
"""
# ruff: noqa: D103 (documented once, in rlweave.ops)

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rlweave.backends import optimizer_steps
from rlweave.backends.torch_.grad_mode import NoGrad
from rlweave.backends.torch_.ops import elementwise
from rlweave.backends.torch_.ops.arrays import astype

Array = Any


class _Formulas:
    """The namespace of the plain formulas."""

    astype, expm1, maximum = staticmethod(astype), torch.expm1, staticmethod(elementwise.maximum)
    sqrt, square = torch.sqrt, torch.square


def _transformed() -> bool:
    return torch.compiler.is_compiling() or torch._C._functorch.peek_interpreter_stack() is not None


def _dense(x: Tensor) -> bool:
    return x.is_contiguous() or (x.ndim == 4 and x.permute(3, 2, 0, 1).is_contiguous(memory_format=torch.channels_last))


def _aligned(parameters: Sequence[Array], *others: Sequence[Array]) -> bool:
    """Whether all are tensors that lie as the kernels take them."""
    try:
        if all(map(Tensor.is_contiguous, parameters)):
            return all(all(map(Tensor.is_contiguous, arrays)) for arrays in others)
        return all(map(_dense, parameters)) and all(
            x.stride() == p.stride() for arrays in others for p, x in zip(parameters, arrays, strict=True)
        )
    except TypeError:  # there are other things than tensors
        return False


def _writable(arrays: Sequence[Array], donate: bool, like: Sequence[Tensor] | None = None) -> list[Tensor]:
    """Tensors that may be overwritten, laid out as the kernels take them: the given ones if donated, else copies.

    Args:
        arrays: What to overwrite.
        donate: Whether the arrays themselves may be.
        like: Tensors with the strides that they should have; None: their own, or row-major.
    """
    tensors = [torch.as_tensor(x) for x in arrays]
    if like is not None:
        return [
            x if donate and x.stride() == p.stride() else torch.empty_like(p, dtype=x.dtype).copy_(x.detach())
            for p, x in zip(like, tensors, strict=True)
        ]
    return [
        x
        if donate and _dense(x)
        else x.detach().clone(memory_format=torch.preserve_format if _dense(x) else torch.contiguous_format)
        for x in tensors
    ]


def _readable(arrays: Sequence[Array], like: Sequence[Tensor]) -> list[Tensor]:
    """Tensors with given strides: the arrays themselves where they have them."""
    tensors = [torch.as_tensor(x) for x in arrays]
    return [
        x if x.stride() == p.stride() else torch.empty_like(p, dtype=x.dtype).copy_(x)
        for p, x in zip(like, tensors, strict=True)
    ]


def _tensors(arrays: Sequence[Array]) -> list[Tensor]:
    return [torch.as_tensor(x) for x in arrays]


def _number(x: float | Array) -> Any:
    return x if isinstance(x, Tensor) else float(x)


_sgd, _adam, _rmsprop = optimizer_steps.operators(
    _Formulas, functools.partial(optimizer_steps.bias_correction, _Formulas), given=_tensors, number=_number
)


def global_norm_clip(gradients: Sequence[Array], max_norm: float | Array) -> tuple[list[Array], Array]:
    tensors = [g if isinstance(g, Tensor) else torch.as_tensor(g) for g in gradients]
    if not tensors:
        return [], torch.zeros(())
    if _transformed():
        norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in tensors]))
        scale = torch.clamp(_number(max_norm) / norm, max=1.0)
        return [g * scale for g in tensors], norm
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(tensors)))
    if norm.is_cpu and not isinstance(max_norm, Tensor) and norm.item() <= max_norm:
        return tensors, norm  # (on a GPU looking at the norm would take longer than scaling by 1)
    scale = torch.clamp(_number(max_norm) / norm, max=1.0)  # 1 where the norm is 0
    return list(torch._foreach_mul(tensors, scale)), norm


def sgd_update(
    parameters: Sequence[Array],
    gradients: Sequence[Array],
    velocities: Sequence[Array],
    learning_rate: float | Array,
    momentum: float = 0.0,
    nesterov: bool = False,
    donate: bool = False,
) -> tuple[list[Array], list[Array]]:
    if _transformed() or not parameters:
        found: Any = _sgd(parameters, gradients, velocities, learning_rate, momentum, nesterov)
        return found
    new_parameters = _writable(parameters, donate)
    new_velocities = _writable(velocities, donate, new_parameters) if momentum else []
    with NoGrad():
        torch._fused_sgd_(
            new_parameters,
            _readable(gradients, new_parameters),
            new_velocities,
            weight_decay=0.0,
            momentum=momentum,
            lr=_number(learning_rate),
            dampening=0.0,
            nesterov=nesterov,
            maximize=False,
            is_first_step=False,
        )
    return new_parameters, new_velocities


def adam_update(
    parameters: Sequence[Array],
    gradients: Sequence[Array],
    means: Sequence[Array],
    variances: Sequence[Array],
    step: Array,
    learning_rate: float | Array,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    weight_decay: float = 0.0,
    donate: bool = False,
) -> tuple[list[Array], list[Array], list[Array]]:
    if _transformed() or not parameters:
        settings = (learning_rate, beta1, beta2, epsilon, weight_decay)
        found: Any = _adam(parameters, gradients, means, variances, step, *settings)
        return found
    given: Any = parameters, gradients, means, variances
    p, g, m, v = given
    if not (donate and _aligned(p, g, m, v)):
        p = _writable(p, donate)
        m, v, g = _writable(m, donate, p), _writable(v, donate, p), _readable(g, p)
    if not (isinstance(step, Tensor) and step.is_cpu):  # on the CPU the kernel takes an int32 as well
        step = astype(step, "float32")
    with NoGrad():
        torch._fused_adamw_(
            p,
            g,
            m,
            v,
            [],
            [step] * len(p),
            lr=_number(learning_rate),
            beta1=beta1,
            beta2=beta2,
            weight_decay=weight_decay,
            eps=epsilon,
            amsgrad=False,
            maximize=False,
        )
    return p, m, v


def rmsprop_update(
    parameters: Sequence[Array],
    gradients: Sequence[Array],
    squares: Sequence[Array],
    velocities: Sequence[Array],
    means: Sequence[Array],
    learning_rate: float | Array,
    decay: float = 0.99,
    epsilon: float = 1e-8,
    momentum: float = 0.0,
    donate: bool = False,
) -> tuple[list[Array], list[Array], list[Array], list[Array]]:
    rate = _number(learning_rate)
    if _transformed() or not parameters:
        settings = (learning_rate, decay, epsilon, momentum)
        found: Any = _rmsprop(parameters, gradients, squares, velocities, means, *settings)
        return found
    new_parameters = _writable(parameters, donate)
    new_squares = _writable(squares, donate, new_parameters)
    new_means = _writable(means, donate, new_parameters) if means else []
    new_velocities = _writable(velocities, donate, new_parameters) if momentum else []
    tensors = _readable(gradients, new_parameters)
    with NoGrad():
        torch._foreach_mul_(new_squares, decay)
        torch._foreach_addcmul_(new_squares, tensors, tensors, 1.0 - decay)
        if new_means:
            torch._foreach_lerp_(new_means, tensors, 1.0 - decay)
            roots = list(torch._foreach_addcmul(new_squares, new_means, new_means, -1.0))
            # rounding may push a second moment of nearly constant gradients below 0
            torch._foreach_clamp_min_(roots, 0.0)
            torch._foreach_sqrt_(roots)
        else:
            roots = list(torch._foreach_sqrt(new_squares))
        torch._foreach_add_(roots, epsilon)
        if not momentum and isinstance(rate, float):
            torch._foreach_addcdiv_(new_parameters, tensors, roots, -rate)
            return new_parameters, new_squares, [], new_means
        moves = list(torch._foreach_div(tensors, roots))
        if momentum:
            torch._foreach_mul_(new_velocities, momentum)
            torch._foreach_add_(new_velocities, moves)
            moves = new_velocities
        torch._foreach_sub_(new_parameters, list(torch._foreach_mul(moves, rate)))
    return new_parameters, new_squares, new_velocities, new_means
