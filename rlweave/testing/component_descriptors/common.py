"""Spaces and short forms that the descriptors of the library's components share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlweave.graph import Component
from rlweave.spaces import BoolBox, Dict, FloatBox, IntBox, Space, Tuple
from rlweave.testing.descriptors import Descriptor, Registry

DESCRIPTORS = Registry()

FEATURES = FloatBox(shape=(4,), add_batch_rank=True)
OBSERVATIONS = Dict(position=FloatBox(shape=(2, 2)), kind=IntBox(1, 4), flag=BoolBox(shape=(2,))).with_batch_rank()
SEQUENCE = FloatBox(add_batch_rank=True, add_time_rank=True)
SEQUENCE_FLAGS = BoolBox(add_batch_rank=True, add_time_rank=True)
#: Every kind of action: integers with several components of different sizes, a boolean, floats with and without bounds.
ACTIONS = Dict(
    bounded=FloatBox(low=-1.0, high=[1.0, 3.0], shape=(2,)),
    choice=IntBox(low=[0, 1], high=[2, 4], shape=(2,)),
    free=FloatBox(),
    switch=BoolBox(),
)
#: Policies, memories and losses hold integers as indices from 0, and floats in units of their box.
TAKEN_ACTIONS = Dict(
    bounded=FloatBox(low=-1.0, high=1.0, shape=(2,)),
    choice=IntBox(low=0, high=[2, 3], shape=(2,)),
    free=FloatBox(),
    switch=BoolBox(),
).with_batch_rank()
COUNTABLE_ACTIONS = Tuple(IntBox(3), Dict(pair=IntBox(low=[0, 0], high=[2, 3], shape=(2,)), switch=BoolBox()))


def floats(*shape: int, low: float | None = None, high: float | None = None) -> FloatBox:
    """Floats (B, *shape)."""
    return FloatBox(low=low, high=high, shape=shape, add_batch_rank=True)


def ints(number: int, *shape: int) -> IntBox:
    """Integers (B, *shape) below a number."""
    return IntBox(number, shape=shape, add_batch_rank=True)


def bools(*shape: int) -> BoolBox:
    """Booleans (B, *shape)."""
    return BoolBox(shape=shape, add_batch_rank=True)


def add(
    name: str, component: type[Component], make: Callable[[], Component], spaces: dict[str, Space], **options: Any
) -> None:
    """Adds a descriptor; see `Descriptor` for the options."""
    DESCRIPTORS.add(Descriptor(name, component, make, spaces, **options))


HIDDEN = [{"type": "dense", "units": 5, "activation": "tanh"}]
