"""PyTorch: cells, abstract evaluation on small real tensors, what entries and compiled runs need."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from rlweave.backends import carrying
from rlweave.backends.base import (
    Array,
    ArrayUseError,
    Backend,
    Cell,
    Evaluation,
    Suspect,
    is_user_file,
    number_error,
    numpy_error,
    truth_error,
    user_location,
)
from rlweave.backends.python_loops import python_while
from rlweave.backends.torch_ import ops
from rlweave.backends.torch_.grad_mode import EnableGrad, NoGrad, inference_mode
from rlweave.backends.torch_.loops import cond, gradient, scan, tracked, vmap
from rlweave.backends.torch_.ops.arrays import DTYPES
from rlweave.tree import tree_map


class TorchCell(Cell):
    """A cell that rebinds on `assign`; a trainable one always holds a leaf tensor."""

    __slots__ = ()

    def assign(self, x: Array) -> None:
        if x is self.value:
            return
        if type(x) is not torch.Tensor or x.dtype is not self.dtype:
            x = torch.as_tensor(x, dtype=self.dtype)
        if self.trainable:
            self.value = x.detach().requires_grad_()
        else:
            self.value = x.detach() if x.requires_grad else x

    def assign_at(self, indices: Array, x: Array) -> None:
        with torch.no_grad():
            self.value[indices] = torch.as_tensor(x, dtype=self.dtype)


class _Watch(TorchDispatchMode):
    def __init__(self, batch_sizes: frozenset[int]) -> None:
        super().__init__()
        self.batch_sizes = batch_sizes
        self.suspects: list[Suspect] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # nothing is compiled while it watches; else its first use would import torch's compiler, which takes seconds
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and result.dim() > 1:
            shape = tuple(result.shape)
            if any(shape.count(size) > 1 for size in self.batch_sizes):
                operands = tuple(tuple(x.shape) for x in args if isinstance(x, torch.Tensor))
                # expand / view of what is already double adds nothing; broadcasting makes the first one
                if shape not in operands:
                    self.suspects.append(Suspect(shape, operands, user_location()))
        return result


_REFUSED = {
    "__bool__": truth_error,
    **dict.fromkeys(("__int__", "__float__", "__index__", "item", "tolist"), number_error),
    "numpy": lambda: numpy_error(".numpy()"),
    "__array__": lambda: ArrayUseError(
        "NumPy computed with an array of the graph (`x + numpy_array`, or a function of NumPy)",
        "make NumPy's constants arrays of the graph, ops.asarray(constant), and use functions of rlweave.ops",
    ),
}


class _Refusals(TorchFunctionMode):
    """Refuses what a graph function may not ask of a tensor; operators, and modules of torch, may."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        error = _REFUSED.get(getattr(func, "__name__", ""))
        if error is not None and _asked_by_graph_function():
            raise error()
        return func(*args, **(kwargs or {}))


def _asked_by_graph_function() -> bool:
    frame: Any = sys._getframe(2)
    while frame is not None and "/torch/" in frame.f_code.co_filename.replace("\\", "/"):
        frame = frame.f_back
    if frame is None or not is_user_file(frame.f_code.co_filename):
        return False
    while frame is not None and frame.f_code is not _MODULE_CALL:
        frame = frame.f_back
    return frame is None


_MODULE_CALL = torch.nn.Module._call_impl.__code__


class TorchBackend(Backend):
    """PyTorch, eager with its tape."""

    name, extra = "torch", "torch"
    strided = True
    functional = False
    creates_on_cpu = True
    has_tape = True
    ops = ops
    evaluated_types = (torch.Tensor,)

    def from_numpy(self, x: np.ndarray, device: str | None = None) -> Array:
        # a clone: torch's memory is aligned for vector instructions, NumPy's is not (2 % of a convolution)
        tensor = torch.from_numpy(np.array(x))
        return tensor.clone() if device is None else tensor.to(device, copy=True)

    def constant(self, x: np.ndarray, device: str | None = None) -> Array:
        return self.from_numpy(x, device)

    def stage(self, x: Any, device: str | None = None) -> Array:
        tensor = x if isinstance(x, torch.Tensor) else torch.from_numpy(np.asarray(x))
        return tensor.clone() if device is None else tensor.to(device, copy=True)

    def device_names(self) -> list[str]:
        return ["cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count())), "meta"]

    def device_name(self, name: str) -> str:
        kind, _, index = name.partition(":")
        full = f"{kind}:{index or 0}" if kind == "cuda" else kind if index in ("", "0") else name
        if full not in self.device_names():
            raise self._no_device(name)
        return full

    def transfer(self, device: str) -> Callable[[Any], Any]:
        return functools.partial(_tree_onto, torch.device(device))

    def to_numpy(self, x: Array) -> np.ndarray:
        return np.array(x.detach().cpu().numpy() if isinstance(x, torch.Tensor) else x, order="C")

    def make_cell(self, path: str, value: Array, trainable: bool) -> Cell:
        return TorchCell(path, self.tracked(value) if trainable else value, trainable)

    def tracked(self, value: Array) -> Array:
        return value.detach().requires_grad_()

    def own_dtype(self, name: str) -> Any:
        return DTYPES[name]

    def random_module(self) -> Any:
        from rlweave.backends.torch_ import random

        return random

    def evaluate(
        self,
        run: Callable[[list[Array]], list[Array]],
        specs: Sequence[tuple[tuple[int, ...], str]],
        fill: Sequence[int],
        batch_sizes: frozenset[int],
        host: bool = False,
    ) -> Evaluation:
        args = [
            torch.full((), value, dtype=DTYPES[dtype]).expand(shape)
            if int(np.prod(shape)) > 65536
            else torch.full(shape, value, dtype=DTYPES[dtype])
            for (shape, dtype), value in zip(specs, fill, strict=True)
        ]
        watch = _Watch(batch_sizes)
        with torch.no_grad(), watch, _Refusals():
            results = [torch.as_tensor(x) for x in run(list(args))]
        if any(x._version for x in args):
            raise ValueError(
                "an argument or the value of a variable was changed in place; write y = x + 1 in place of y += 1, and "
                ".assign(...) to change a variable"
            )
        owners: dict[int, set[int]] = {}
        for i, x in enumerate(args):
            owners.setdefault(x.untyped_storage().data_ptr(), set()).add(i)
        owners.pop(0, None)
        aliases = [owners.get(x.untyped_storage().data_ptr(), set()) for x in results]
        return Evaluation([(tuple(x.shape), str(x.dtype)[6:]) for x in results], watch.suspects, aliases)

    def runtime(self) -> dict[str, Any]:
        return {
            "scan": scan,
            "cond": cond,
            "while_loop": python_while,
            "vmap": vmap,
            "copy": torch.clone,
            "gradient": gradient,
            "tracked": tracked,
            "stop_gradient": _stop_gradient,
            "no_grad": NoGrad,
            "enable_grad": EnableGrad,
            "vjp": functools.partial(carrying.vjp, torch.func.vjp),
            "ones_like": torch.ones_like,
            "zeros_like": torch.zeros_like,
        }

    def boundary(self, device: str | None = None) -> dict[str, Any]:
        to_device, from_numpy = arrays_of, from_numpy_shared
        if device is not None and device != "cpu":
            from_numpy = functools.partial(_onto, torch.device(device))
            to_device = functools.partial(_tree_onto, torch.device(device))
        return {
            "array_type": torch.Tensor,
            "from_numpy": from_numpy,
            "share": _share,
            "numpy_of": _numpy_of if from_numpy is from_numpy_shared else _detached_numpy_of,
            "detached_numpy_of": _detached_numpy_of,
            "copy_numpy_of": self.to_numpy,
            "number": _number,
            "plain": _plain,
            "copy_plain": _copy_plain,
            "to_host": _to_host,
            "to_device": to_device,
            "inference_mode": inference_mode,
            "no_grad": NoGrad,
            "convert_nested": to_device,
            "staged": _staged,
            "handed": to_device,
        }

    def set_threads(self, threads: int) -> bool:
        torch.set_num_threads(threads)
        return True

    def differentiate(self, loss: Callable[..., Any], *arguments: Any) -> Any:
        detached = tree_map(lambda x: x.detach(), arguments)
        return torch.func.grad(loss, argnums=tuple(range(len(arguments))))(*detached)

    def eager_scope(self) -> AbstractContextManager[Any]:
        return torch.no_grad()


_share = torch.from_numpy


def from_numpy_shared(x: np.ndarray | np.generic | Array) -> Array:
    """A tensor on a NumPy array's memory (a copy where it is read-only or has negative strides); tensors stay."""
    if type(x) is np.ndarray and x.flags.writeable:
        try:
            return _share(x)
        except ValueError:  # negative strides
            pass
        except TypeError:
            if x.dtype != object:
                raise
            return x  # text stays on the host
    return x if isinstance(x, torch.Tensor) else _share(np.array(x, order="C"))


def _numpy_of(x: Array) -> np.ndarray:
    try:
        return x.numpy()  # a tensor on the CPU, without a gradient
    except (AttributeError, RuntimeError):
        return _detached_numpy_of(x)


def _detached_numpy_of(x: Array) -> np.ndarray:
    return x.detach().cpu().numpy() if isinstance(x, torch.Tensor) else np.asarray(x)


def _number(x: Array) -> float:
    return float(x.detach() if isinstance(x, torch.Tensor) else x)


def _stop_gradient(x: Any) -> Any:
    return tree_map(lambda leaf: leaf.detach() if isinstance(leaf, torch.Tensor) else leaf, x)


def _plain(x: Array) -> Array:
    return x.detach() if isinstance(x, torch.Tensor) and x.requires_grad else x


def _copy_plain(x: Array) -> Array:
    return x.detach().clone() if isinstance(x, torch.Tensor) else torch.from_numpy(np.array(x))


def _to_host(x: Any) -> Any:
    return tree_map(lambda leaf: leaf.detach().cpu().numpy() if isinstance(leaf, torch.Tensor) else leaf, x)


def arrays_of(x: Any) -> Any:
    """Nested arguments with tensors in place of NumPy arrays, whose memory they share."""
    return tree_map(lambda leaf: from_numpy_shared(leaf) if isinstance(leaf, np.ndarray | np.generic) else leaf, x)


def _onto(device: torch.device, x: Any) -> Any:
    return (x if isinstance(x, torch.Tensor) else torch.from_numpy(np.array(x))).to(device)


def _tree_onto(device: torch.device, x: Any) -> Any:
    arrays = np.ndarray | np.generic | torch.Tensor
    return tree_map(lambda leaf: _onto(device, leaf) if isinstance(leaf, arrays) else leaf, x)


def _staged(x: Any) -> Any:
    return tree_map(lambda leaf: torch.from_numpy(np.array(leaf)) if isinstance(leaf, np.ndarray) else leaf, x)


BACKEND = TorchBackend()
