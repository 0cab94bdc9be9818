"""JAX: cells, abstract evaluation through the jaxpr, compiled runs; loops and derivatives carry cells (`carrying`)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from rlweave.backends import carrying
from rlweave.backends.base import (
    TOGETHER,
    Array,
    Backend,
    Cell,
    Evaluation,
    Suspect,
    is_user_file,
    number_error,
    numpy_error,
    truth_error,
)
from rlweave.backends.jax_ import ops
from rlweave.backends.jax_.loops import loop, loop_of_unknown_length
from rlweave.tree import tree_map


class JaxCell(Cell):
    """A cell that rebinds; rows are written functionally."""

    __slots__ = ()

    def assign(self, x: Array) -> None:
        self.value = jnp.asarray(x, self.dtype)

    def assign_at(self, indices: Array, x: Array) -> None:
        self.value = ops.set_at(self.value, indices, jnp.asarray(x, self.dtype))


class JaxBackend(Backend):
    """JAX: device runs are pure functions, compiled by `jax.jit`, with donated state."""

    name, extra = "jax", "jax"
    description = "aval"
    functional = True
    immutable = True
    wide = False
    ops = ops
    spreads = True
    evaluated_types = (jax.core.Tracer,)

    def from_numpy(self, x: np.ndarray, device: str | None = None) -> Array:
        # a copy on the host first: on the CPU an aligned array would be used in place. `jnp.array` copies, too, and
        # compiles a program for each shape to do so.
        return jax.device_put(np.array(x), None if device is None else find_device(device))

    def device_names(self) -> list[str]:
        found = [jax.devices()]
        if jax.default_backend() != "cpu":
            found.append(jax.devices("cpu"))
        return [f"{device.platform}:{index}" for devices in found for index, device in enumerate(devices)]

    def device_name(self, name: str) -> str:
        kind, _, index = name.partition(":")
        full = f"{'gpu' if kind == 'cuda' else kind}:{index or 0}"
        if full not in self.device_names():
            raise self._no_device(name)
        return full

    def split_rows(self, x: Array, axis: int, place: str) -> Array:
        mesh = find_device(place).mesh
        return lax.with_sharding_constraint(x, NamedSharding(mesh, PartitionSpec(*(None,) * axis, _ROWS)))

    def transfer(self, device: str) -> Callable[[Any], Any]:
        return functools.partial(_put, find_device(device))

    def stage(self, x: Any, device: str | None = None) -> Array:
        # a copy on the host first: on the CPU the caller's memory would be used in place
        there = None if device is None else find_device(device)
        return jax.device_put(x if isinstance(x, jax.Array) else np.array(x), there)

    def to_numpy(self, x: Array) -> np.ndarray:
        return np.array(x)

    def make_cell(self, path: str, value: Array, trainable: bool) -> Cell:
        return JaxCell(path, value, trainable)

    def random_module(self) -> Any:
        from rlweave.backends.jax_ import random

        return random

    def portable_random(self, cell: Any) -> Any:
        from rlweave.backends.jax_.random import encrypted
        from rlweave.backends.portable_random import PortableRandom

        return PortableRandom(ops, cell, encrypted)

    def evaluate(
        self,
        run: Callable[[list[Array]], list[Array]],
        specs: Sequence[tuple[tuple[int, ...], str]],
        fill: Sequence[int],
        batch_sizes: frozenset[int],
        host: bool = False,
    ) -> Evaluation:
        args = [jax.ShapeDtypeStruct(shape, np.dtype(dtype)) for shape, dtype in specs]
        trace = jax.make_jaxpr(lambda *xs: [jnp.asarray(x) for x in run(list(xs))], return_shape=True)
        try:
            closed, shapes = trace(*args)
        except jax.errors.ConcretizationTypeError as error:  # the next two are kinds of it
            kind = truth_error if isinstance(error, jax.errors.TracerBoolConversionError) else number_error
            raise kind().with_traceback(error.__traceback__) from None
        except jax.errors.TracerIntegerConversionError as error:
            raise number_error().with_traceback(error.__traceback__) from None
        except jax.errors.TracerArrayConversionError as error:
            raise numpy_error("NumPy").with_traceback(error.__traceback__) from None
        suspects = list(_double_batch(closed.jaxpr, batch_sizes)) if batch_sizes else []
        inputs = {id(var): i for i, var in enumerate(closed.jaxpr.invars)}
        aliases = [{inputs[id(var)]} if id(var) in inputs else set() for var in closed.jaxpr.outvars]
        return Evaluation([(tuple(x.shape), str(x.dtype)) for x in shapes], suspects, aliases)

    def runtime(self) -> dict[str, Any]:
        return {
            "scan": functools.partial(carrying.scan, loop),
            "cond": functools.partial(carrying.cond, lax.cond),
            "while_loop": functools.partial(carrying.while_loop, _while),
            "vmap": vmap,
            "vjp": functools.partial(carrying.vjp, jax.vjp),
            "copy": jnp.copy,
            "stop_gradient": lax.stop_gradient,
            "ones_like": jnp.ones_like,
            "zeros_like": jnp.zeros_like,
        }

    def boundary(self, device: str | None = None) -> dict[str, Any]:
        return {
            "array_type": type(jnp.zeros(())),
            "numpy_of": np.asarray,
            "copy_numpy_of": np.array,
            "number": _number,
            "to_host": _to_host,
            "staged": _staged,
            "handed": _handed,
        }

    def differentiate(self, loss: Callable[..., Any], *arguments: Any) -> Any:
        return jax.grad(loss, argnums=tuple(range(len(arguments))))(*arguments)

    def compile(
        self, function: Callable[..., Any], states: Sequence[str], inputs: Sequence[Any] = (), **options: Any
    ) -> Callable[..., Any]:
        donated, device = (0,) if "donated" in states else (), options.get("device")
        if device is not None and TOGETHER in device:
            # results are whole on each device, and so is the state that the next run takes
            return jax.jit(function, donate_argnums=donated, out_shardings=find_device(device))
        compiled = jax.jit(function, donate_argnums=donated)
        if device is None or states or inputs:
            return compiled  # it runs where its arguments are
        there = find_device(device)

        def run() -> Any:
            with jax.default_device(there):
                return compiled()

        return run


def _number(x: Any) -> float:
    return float(np.asarray(x))  # `float(x)` of an array of JAX takes seven times as long


def _to_host(x: Any) -> Any:
    return np.asarray(x) if isinstance(x, jax.Array) else tree_map(np.asarray, x)


def _put(device: Any, x: Any) -> Any:
    return jax.device_put(x, device)


def _staged(x: Any) -> Any:
    """A copy of every NumPy leaf: the caller may refill its own while a run reads."""
    if type(x) is np.ndarray:
        return x.copy()
    if type(x) is dict:
        for leaf in x.values():
            if type(leaf) in _MAY_HOLD_NUMPY:
                break
        else:
            return x
    return tree_map(lambda leaf: leaf.copy() if isinstance(leaf, np.ndarray) else leaf, x)


_MAY_HOLD_NUMPY = frozenset({np.ndarray, dict, tuple, list})


def _handed(x: Any) -> Any:
    return jnp.array(x, copy=True)


_ROWS = "rows"
"""The axis of a mesh of devices: each has a part of a batch."""


def find_device(name: str) -> Any:
    """A device by "cpu", "gpu:1" and the like; of "cpu:0+cpu:1" what has an array whole on each of them."""
    if TOGETHER in name:
        devices = np.array([find_device(one) for one in name.split(TOGETHER)])
        return NamedSharding(Mesh(devices, (_ROWS,)), PartitionSpec())
    kind, _, index = name.partition(":")
    return jax.devices({"cuda": "gpu"}.get(kind, kind))[int(index or 0)]


#: Operations that only change the layout of an array; broadcasting puts some of them before what a user wrote.
_LAYOUT = frozenset({"broadcast_in_dim", "reshape", "squeeze", "convert_element_type", "copy"})


def _double_batch(
    jaxpr: Any, batch_sizes: frozenset[int], origins: Mapping[Any, tuple[int, ...]] | None = None
) -> Iterator[Suspect]:
    """Intermediate arrays with the batch axis twice, with the operands that met in them.

    Args:
        jaxpr: What was traced.
        batch_sizes: Sizes that stand for a batch axis.
        origins: For input variables the shape that they had before they were laid out.
    """
    origin: dict[Any, tuple[int, ...]] = dict(origins or {})
    pending: dict[Any, Suspect] = {}

    def source(var: Any) -> tuple[int, ...]:
        return _shape(var) if _is_constant(var) else origin.get(var, _shape(var))

    for equation in jaxpr.eqns:
        operands = tuple(source(var) for var in equation.invars if hasattr(var.aval, "shape"))
        for value in equation.params.values():
            for item in value if isinstance(value, tuple | list) else (value,):
                inner: Any = getattr(item, "jaxpr", item)
                if hasattr(inner, "eqns"):
                    same = len(inner.invars) == len(equation.invars)
                    known = dict(zip(inner.invars, map(source, equation.invars), strict=True)) if same else {}
                    yield from _double_batch(inner, batch_sizes, known)
        layout = equation.primitive.name in _LAYOUT
        for var in equation.outvars:
            shape = _shape(var)
            met = [pending.pop(v) for v in equation.invars if not _is_constant(v) and v in pending]
            twice = any(shape.count(size) > 1 for size in batch_sizes)
            if layout:
                before = _shape(equation.invars[0])
                # axes in front, and what makes the double array, come from broadcasting; the rest a user wrote
                if twice or (1,) * (len(shape) - len(before)) + before == shape:
                    origin[var] = source(equation.invars[0])
                if met or (twice and shape not in map(_shape, equation.invars)):
                    pending[var] = Suspect(shape, operands, _location(equation))
            elif met or (twice and shape not in map(_shape, equation.invars)):
                yield Suspect(met[0].shape if met else shape, operands, _location(equation))
    yield from pending.values()


def _is_constant(operand: Any) -> bool:
    # what `jax.extend.core.Literal` is; the import of `jax.extend` brings Pallas with it, a tenth of a second
    return hasattr(operand, "val")


def _shape(var: Any) -> tuple[int, ...]:
    return tuple(getattr(var.aval, "shape", ()))


def _location(equation: Any) -> str:
    import linecache

    traceback = getattr(equation.source_info, "traceback", None)
    for frame in getattr(traceback, "frames", ()):
        if is_user_file(frame.file_name):
            text = linecache.getline(frame.file_name, frame.line_num).strip()
            return f"{frame.file_name}:{frame.line_num}: {text}"
    return "unknown line"


def _while(check: Callable[[Any], Any], step: Callable[[Any], Any], state: Any) -> Any:
    with loop_of_unknown_length():
        return lax.while_loop(check, step, state)


def vmap(body: Callable[..., Any], in_axes: Sequence[int | None], size: int, args: Sequence[Any]) -> Any:
    """`graph.vmap` as `jax.vmap`."""
    return jax.vmap(body, in_axes=tuple(in_axes), axis_size=size)(*args)


BACKEND = JaxBackend()
