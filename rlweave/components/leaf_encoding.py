"""How one leaf of an observation becomes features."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rlweave import ops
from rlweave.errors import BuildError
from rlweave.spaces import BoolBox, Box, FloatBox, IntBox, Space, TextBox
from rlweave.spaces.box import FRAMES_FIRST, TOKENS

MAX_CATEGORIES = 65536
"""Integers with more values than this in one dimension are taken as numbers instead of being one-hot encoded."""


#: Types of numbers that torch lacks or hardly computes with, and what stands for them.
_NOT_ON_EVERY_BACKEND = {"float16": "float32", "uint16": "int32", "uint32": "int32 or int64"}


@dataclass(frozen=True)
class LeafEncoding:
    """How one leaf of an observation becomes features.

    Args:
        kind: "float" (as it is), "bool" (0 and 1), "one_hot", "number" (integers without a range), "scale" (integer
            images and bytes: to [0, 1]), or "tokens" (numbers of words, which an embedding takes).
        shape: The leaf's feature shape.
        low: Lowest value by dimension ("one_hot"), or of all ("scale").
        sizes: Number of categories by dimension ("one_hot"), or the whole range ("scale").
        layout: Declared layout of an image, or None.
        dtype: The leaf's dtype.

    Attributes:
        widest: The largest number of categories of any dimension.
        offset: What is subtracted to make indices from 0: a number, or an array of the leaf's shape; None for 0.
        columns: Which columns of equally wide one-hot codes stand for a category; None for all of them.
    """

    kind: str
    shape: tuple[int, ...]
    low: tuple[int, ...] = ()
    sizes: tuple[int, ...] = ()
    layout: str | None = None
    dtype: str = "float32"
    widest: int = field(init=False, repr=False, compare=False, default=0)
    offset: Any = field(init=False, repr=False, compare=False, default=None)
    columns: np.ndarray | None = field(init=False, repr=False, compare=False, default=None)

    @property
    def width(self) -> int:
        """How many features it makes."""
        return sum(self.sizes) if self.kind == "one_hot" else math.prod(self.shape)

    @property
    def is_identity(self) -> bool:
        """Whether the leaf is its own vector of features."""
        return self.is_float32 and len(self.shape) == 1

    @property
    def is_float32(self) -> bool:
        """Whether its numbers are taken as they are."""
        return self.kind == "float" and self.dtype == "float32"

    def __post_init__(self) -> None:
        widest = max(self.sizes, default=0)
        object.__setattr__(self, "widest", widest)
        if len(set(self.sizes)) > 1:
            columns = [i * widest + j for i, size in enumerate(self.sizes) for j in range(size)]
            object.__setattr__(self, "columns", np.asarray(columns, np.int32))
        if self.kind == "one_hot" and any(self.low):
            offset = np.asarray(self.low, np.int32).reshape(self.shape)
            object.__setattr__(self, "offset", self.low[0] if len(set(self.low)) == 1 else offset)


def check_observations(space: Space, where: str) -> None:
    """Checks that observations of a space can become features, before anything is built.

    Args:
        space: The observation space.
        where: The agent, for errors.

    Raises:
        BuildError: There is no leaf, or one that `leaf_encoding` refuses; names it.
    """
    leaves = space.flatten()
    if not leaves:
        raise without_leaves(space, f"{where}, observation")
    for path, leaf in leaves.items():
        leaf_encoding(leaf, f"{where}, observation {path!r}" if path else f"{where}, observation")


def without_leaves(space: Any, where: str) -> BuildError:
    """The error of an observation that holds nothing."""
    return BuildError(
        "an observation without any leaf has no batch size",
        where=where,
        received=repr(space),
        fix="add a leaf, such as FloatBox(shape=(0,))",
    )


def leaf_encoding(space: Box, where: str) -> LeafEncoding:
    """Chooses how a leaf becomes features.

    Raises:
        BuildError: The leaf holds text, numbers of a type that not every backend has, or an image without bounds.
    """
    shape = space.feature_shape
    if space.dtype in _NOT_ON_EVERY_BACKEND:
        raise BuildError(
            f"an observation of {space.dtype} cannot be computed with on every backend",
            where=where,
            received=repr(space),
            fix=f"declare {_NOT_ON_EVERY_BACKEND[space.dtype]}, as make_env does for an environment, and pass that",
        )
    if isinstance(space, FloatBox):
        return LeafEncoding("float", shape, layout=space.layout, dtype=space.dtype)
    if isinstance(space, BoolBox):
        return LeafEncoding("bool", shape, layout=space.layout, dtype=space.dtype)
    if isinstance(space, TextBox) or not isinstance(space, IntBox):
        raise BuildError(
            "an observation with text cannot be encoded",
            where=where,
            received=repr(space),
            fix="hash its words: make_env does it for an environment, hash_text for others",
        )
    if space.layout == TOKENS:
        return LeafEncoding("tokens", shape, layout=TOKENS, dtype=space.dtype)
    low, last = space.low, space.last
    whole_bytes = space.dtype == "uint8" and bool(np.all(low == 0) and np.all(last == 255))
    if space.layout is not None or whole_bytes:
        first, final = (int(low.min()), int(last.max())) if low.size else (0, 1)
        if not np.all(space.bounded):
            raise BuildError(
                "an integer image has no bounds to scale it by",
                where=where,
                received=repr(space),
                fix="IntBox(0, 256, shape=..., dtype='uint8', layout=...), or convert it to floats before",
            )
        return LeafEncoding("scale", shape, (first,), (max(final - first, 1),), space.layout, space.dtype)
    sizes = last.reshape(-1).astype(object) - low.reshape(-1).astype(object) + 1
    if np.all(space.bounded) and all(size <= MAX_CATEGORIES for size in sizes):
        return LeafEncoding(
            "one_hot", shape, tuple(int(n) for n in low.reshape(-1)), tuple(int(n) for n in sizes), dtype=space.dtype
        )
    return LeafEncoding("number", shape, dtype=space.dtype)


def encode_leaf(x: Any, leaf: LeafEncoding, flat: bool = True) -> Any:
    """Encodes the arrays of one leaf (inside a graph function).

    Args:
        x: (..., *shape).
        leaf: How.
        flat: False leaves the feature axes apart and brings channels to the end (images on their way into a
            convolution).

    Returns:
        float32, (..., width), or (..., height, width, channels).
    """
    leading = tuple(x.shape[: len(x.shape) - len(leaf.shape)])
    if leaf.kind == "one_hot":
        return _one_hot(x, leaf, leading)
    if not flat:  # before they are floats: bytes are a quarter of what is to be moved
        x = channels_last(x, leaf.layout)
    if leaf.kind == "scale":
        x = ops.astype(x, "float32")
        if leaf.low[0]:
            x = x - float(leaf.low[0])
        x = x / float(leaf.sizes[0])
    elif leaf.dtype != "float32":
        x = ops.astype(x, "float32")
    return x if not flat or len(leaf.shape) == 1 else ops.reshape(x, (*leading, leaf.width))


def _one_hot(x: Any, leaf: LeafEncoding, leading: tuple[int, ...]) -> Any:
    if leaf.offset is not None:
        x = ops.subtract(ops.astype(x, "int32"), leaf.offset)
    codes = ops.reshape(ops.one_hot(x, leaf.widest), (*leading, leaf.widest * len(leaf.sizes)))
    return codes if leaf.columns is None else ops.take(codes, leaf.columns, axis=-1)


def channels_last(x: Any, layout: str | None) -> Any:
    """Images (..., C, H, W), or frames (..., N, H, W), as (..., H, W, C); others stay (inside a graph function)."""
    if layout not in ("channels_first", FRAMES_FIRST):
        return x
    n = len(x.shape)
    return ops.permute_dims(x, (*range(n - 3), n - 2, n - 1, n - 3))
