"""Typed, nested descriptions of data: shape, dtype, bounds, and batch and time ranks.

Leaves are `FloatBox`, `IntBox`, `BoolBox` and (on the host only) `TextBox`; `Dict` and `Tuple` nest them. All are
immutable and hashable. Arrays are time-major: ``(T, B, *shape)``.

>>> space = Dict(pixels=IntBox(0, 256, shape=(8, 8, 3), dtype="uint8"), speed=FloatBox(-1, 1), add_batch_rank=True)
>>> batch = space.sample(2, rng=0)
>>> space.contains(batch), batch["pixels"].shape
(True, (2, 8, 8, 3))
"""

from rlweave.spaces.box import Axis, Box, axes_text
from rlweave.spaces.boxes import BoolBox, FloatBox, IntBox, from_axes
from rlweave.spaces.containers import Container, Dict, Tuple
from rlweave.spaces.dim import BATCH, TIME, Dim, fixed_batch, fixed_size, fixed_time
from rlweave.spaces.space import RandomSource, Rank, Size, Space
from rlweave.spaces.text import TextBox

__all__ = [
    "BATCH",
    "TIME",
    "Axis",
    "BoolBox",
    "Box",
    "Container",
    "Dict",
    "Dim",
    "FloatBox",
    "IntBox",
    "RandomSource",
    "Rank",
    "Size",
    "Space",
    "TextBox",
    "Tuple",
    "axes_text",
    "fixed_batch",
    "fixed_size",
    "fixed_time",
    "from_axes",
]
