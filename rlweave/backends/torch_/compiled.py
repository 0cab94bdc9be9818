"""PyTorch for `torch.compile`: runs are pure functions, as on JAX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from rlweave.backends.base import Array, Cell
from rlweave.backends.torch_ import ops
from rlweave.backends.torch_.loops import scan
from rlweave.backends.torch_.runtime import TorchBackend, arrays_of


class FunctionalTorchCell(Cell):
    """A cell inside a compiled run: no in-place writes, no leaves."""

    __slots__ = ()

    def assign(self, x: Array) -> None:
        self.value = x

    def assign_at(self, indices: Array, x: Array) -> None:
        self.value = ops.set_at(self.value, indices, x)


def compiled_scan(
    body: Callable[[Any, Any], tuple[Any, Any]], carry: Any, xs: Any, length: int | None, written: Any
) -> Any:
    """`graph.scan` in a compiled run: the body is compiled, once for all steps and calls, and not unrolled."""
    return scan(torch.compile(body, fullgraph=True, dynamic=False), carry, xs, length, written)


class CompiledTorch(TorchBackend):
    """PyTorch with runs that `torch.compile(fullgraph=True)` gets; made by `build(..., torch_compile=True)`."""

    functional = True
    reads_bytecode = True

    def traced_cell(self, cell: Cell) -> type[Cell]:
        return Cell if type(cell) is Cell else FunctionalTorchCell

    def runtime(self) -> dict[str, Any]:
        return super().runtime() | {"compiled_scan": compiled_scan}

    def compile(
        self, function: Callable[..., Any], states: Sequence[str], inputs: Sequence[Any] = (), **options: Any
    ) -> Callable[..., Any]:
        compiled = torch.compile(function, fullgraph=True, dynamic=False) if options["whole"] else function
        count = len(states)

        def run(*arguments: Any) -> Any:
            with torch.no_grad():
                return compiled(
                    *[tuple(x.detach() for x in state) for state in arguments[:count]],
                    *[arrays_of(x) for x in arguments[count:]],
                )

        return run


BACKEND = CompiledTorch()
