"""Whether torch records for its tape: contexts that cost a third of torch's own, for calls that take microseconds.

They are contexts only (no decorators), and nothing for `torch.compile` to trace.
"""

from __future__ import annotations

import functools
from typing import Any

import torch


class NoGrad:
    """What `torch.no_grad` does."""

    __slots__ = ("_before",)
    enabled = False

    def __enter__(self) -> None:
        self._before = torch.is_grad_enabled()
        torch._C._set_grad_enabled(self.enabled)

    def __exit__(self, *exception: Any) -> None:
        torch._C._set_grad_enabled(self._before)


class EnableGrad(NoGrad):
    """What `torch.enable_grad` does."""

    __slots__ = ()
    enabled = True


#: Makes what `with torch.inference_mode():` enters.
inference_mode = functools.partial(torch._C._InferenceMode, True)
