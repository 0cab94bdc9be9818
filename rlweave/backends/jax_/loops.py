"""The loop of `graph.scan` on JAX, and what becomes of loops that convolve on a CPU.

XLA compiles a convolution inside a loop for CPUs to plain nested loops, some fifty times slower than the kernel that it
calls elsewhere. So a loop whose body convolves is written out step by step; where that would make a program too large,
its convolutions are made of slices and one matrix product each, which are fast in a loop, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from rlweave.backends.jax_.ops.convolution import as_matrix_products

#: A loop is written out up to so many steps and convolutions, those of gradients included: seconds of compilation.
MAX_STEPS, MAX_CONVOLUTIONS = 32, 256


def loop(step: Callable[[Any, Any], Any], state: Any, xs: Any, length: int | None) -> tuple[Any, Any]:
    """`lax.scan`, or what takes its place on a CPU."""
    run, chosen = _for_cpu(step, state, xs, length) if jax.default_backend() == "cpu" else (step, lax.scan)
    return chosen(run, state, xs, length)


def _for_cpu(step: Callable[[Any, Any], Any], state: Any, xs: Any, length: int | None) -> tuple[Any, Any]:
    """The step to loop over, traced once, and what loops: `lax.scan`, or what writes all steps out."""
    steps = length if length is not None else jax.tree.leaves(xs)[0].shape[0]
    row = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), xs)
    traced, results = jax.make_jaxpr(step, return_shape=True)(state, row)
    convolutions = steps * sum(_convolutions(traced.jaxpr))
    loop: Any = lax.scan
    if convolutions and (steps > MAX_STEPS or convolutions > MAX_CONVOLUTIONS):
        with as_matrix_products():  # another function: JAX remembers what it has traced
            traced, results = jax.make_jaxpr(lambda *given: step(*given), return_shape=True)(state, row)
    elif convolutions:
        loop = _written_out
    nesting = jax.tree.structure(results)

    def run(*arguments: Any) -> Any:
        flat = jax.core.eval_jaxpr(traced.jaxpr, traced.consts, *jax.tree.leaves(arguments))
        return jax.tree.unflatten(nesting, flat)

    return run, loop


def _written_out(step: Callable[[Any, Any], Any], state: Any, xs: Any, length: int | None) -> tuple[Any, Any]:
    """`lax.scan` without a loop, not even one of a single turn (which XLA removes too late for convolutions)."""
    steps = length if length is not None else jax.tree.leaves(xs)[0].shape[0]
    rows = []
    for index in range(steps):
        state, row = step(state, jax.tree.map(lambda x, i=index: x[i], xs))
        rows.append(row)
    return state, jax.tree.map(lambda *parts: jnp.stack(parts), *rows)


def _convolutions(jaxpr: Any) -> Iterator[int]:
    """How often each operation of a program convolves; loops inside are written out already."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "conv_general_dilated":
            yield 1
        times = equation.params["length"] if equation.primitive.name == "scan" else 1
        for value in equation.params.values():
            for item in value if isinstance(value, tuple | list) else (value,):
                inner = getattr(item, "jaxpr", item)
                if hasattr(inner, "eqns"):
                    yield times * sum(_convolutions(inner))


def loop_of_unknown_length() -> AbstractContextManager[None]:
    """What surrounds a loop that cannot be written out while it is traced."""
    return as_matrix_products() if jax.default_backend() == "cpu" else nullcontext()
