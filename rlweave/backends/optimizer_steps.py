"""The formulas of optimizer steps, for backends that compile or interpret them as they are.

They are written once over an array namespace: an object with `square`, `sqrt`, `maximum`, `expm1` and `astype`. Lists
of arrays have one entry for each parameter. What the arguments mean is said in `rlweave.ops.optimization`; `operators`
makes its operators of the formulas.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

Array = Any


def pairs(*lists: Sequence[Array]) -> Any:
    """Entries of lists of one length, parameter by parameter."""
    return zip(*lists, strict=True)


def bias_correction(xp: Any, beta: float, step: Array) -> Array:
    """1 - beta^step, without the loss of half of float32's digits that this expression has in the first steps."""
    return 1.0 if beta == 0.0 else -xp.expm1(xp.astype(step, "float32") * math.log(beta))


def sgd(
    parameters: Sequence[Array],
    gradients: Sequence[Array],
    velocities: Sequence[Array],
    learning_rate: float | Array,
    momentum: float,
    nesterov: bool,
) -> tuple[list[Array], list[Array]]:
    """`sgd_update`."""
    if not momentum:
        return [p - learning_rate * g for p, g in pairs(parameters, gradients)], []
    velocities = [momentum * v + g for v, g in pairs(velocities, gradients)]
    moves = [g + momentum * v for g, v in pairs(gradients, velocities)] if nesterov else velocities
    return [p - learning_rate * move for p, move in pairs(parameters, moves)], velocities


def adam(
    xp: Any,
    parameters: Sequence[Array],
    gradients: Sequence[Array],
    means: Sequence[Array],
    variances: Sequence[Array],
    corrections: tuple[Array, Array],
    learning_rate: float | Array,
    beta1: float,
    beta2: float,
    epsilon: float,
    weight_decay: float,
) -> tuple[list[Array], list[Array], list[Array]]:
    """`adam_update`, with the bias corrections of both moments in place of the step."""
    means = [beta1 * m + (1.0 - beta1) * g for m, g in pairs(means, gradients)]
    variances = [beta2 * v + (1.0 - beta2) * xp.square(g) for v, g in pairs(variances, gradients)]
    moved = []
    for p, m, v in pairs(parameters, means, variances):
        move = (m / corrections[0]) / (xp.sqrt(v / corrections[1]) + epsilon)
        if weight_decay:
            move = move + weight_decay * p
        moved.append(p - learning_rate * move)
    return moved, means, variances


def rmsprop(
    xp: Any,
    parameters: Sequence[Array],
    gradients: Sequence[Array],
    squares: Sequence[Array],
    velocities: Sequence[Array],
    means: Sequence[Array],
    learning_rate: float | Array,
    decay: float,
    epsilon: float,
    momentum: float,
) -> tuple[list[Array], list[Array], list[Array], list[Array]]:
    """`rmsprop_update`."""
    squares = [decay * s + (1.0 - decay) * xp.square(g) for s, g in pairs(squares, gradients)]
    seconds = squares
    if len(means):
        means = [decay * a + (1.0 - decay) * g for a, g in pairs(means, gradients)]
        # rounding may push a second moment of nearly constant gradients below 0
        seconds = [xp.maximum(s - xp.square(a), 0.0) for s, a in pairs(squares, means)]
    moves = [g / (xp.sqrt(s) + epsilon) for g, s in pairs(gradients, seconds)]
    velocities = [momentum * v + u for v, u in pairs(velocities, moves)] if momentum else []
    moves = velocities or moves
    return [p - learning_rate * u for p, u in pairs(parameters, moves)], squares, velocities, list(means)


def operators(
    xp: Any,
    correction: Callable[[float, Array], Array],
    given: Callable[[Sequence[Array]], list[Any]] = list,
    made: Callable[[Sequence[Any]], list[Array]] = list,
    number: Callable[[Any], Any] = lambda rate: rate,
) -> tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]:
    """The operators `sgd_update`, `adam_update` and `rmsprop_update` of a backend that computes the formulas.

    Args:
        xp: The array namespace.
        correction: `bias_correction` of a beta and the step.
        given: Makes of a list of arguments what the formulas compute with.
        made: Makes arrays of the backend of a list of results.
        number: Makes of a learning rate what the formulas compute with.
    """

    def sgd_update(
        parameters: Sequence[Array],
        gradients: Sequence[Array],
        velocities: Sequence[Array],
        learning_rate: float | Array,
        momentum: float = 0.0,
        nesterov: bool = False,
        donate: bool = False,
    ) -> tuple[list[Array], ...]:
        p, g, v = map(given, (parameters, gradients, velocities))
        return tuple(map(made, sgd(p, g, v, number(learning_rate), momentum, nesterov)))

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
    ) -> tuple[list[Array], ...]:
        p, g, m, v = map(given, (parameters, gradients, means, variances))
        corrections = (correction(beta1, step), correction(beta2, step))
        rates = (number(learning_rate), beta1, beta2, epsilon, weight_decay)
        return tuple(map(made, adam(xp, p, g, m, v, corrections, *rates)))

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
    ) -> tuple[list[Array], ...]:
        p, g, s, v, m = map(given, (parameters, gradients, squares, velocities, means))
        return tuple(map(made, rmsprop(xp, p, g, s, v, m, number(learning_rate), decay, epsilon, momentum)))

    return sgd_update, adam_update, rmsprop_update
