"""Single elements of a space and batches of them: checked, cast, stacked, taken apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlweave.errors import ExecutionError, SpaceError
from rlweave.spaces import Box, IntBox, Space
from rlweave.tree import tree_leaves, tree_map


def fitted(space: Space, value: Any, where: str, within: bool = False) -> Any:
    """A copy of one element of a space, cast to its dtypes.

    Args:
        space: Without ranks.
        value: Nested like the space; leaves may be lists and numbers.
        where: What it is, for errors.
        within: Floats have to lie within their bounds, too (of observations, few environments keep to them).

    Raises:
        ExecutionError: Another nesting or shape, a number that is not finite, or one outside of its range.
    """
    try:
        flat = space.flatten_value(value) if not isinstance(space, Box) else {"": value}
    except SpaceError as error:
        raise ExecutionError(
            "a value is nested unlike its space", where=where, received=str(error), fix=f"pass {space!r}"
        ) from None
    arrays = {}
    for path, leaf in space.flatten().items():
        assert isinstance(leaf, Box)
        array = np.asarray(flat[path])
        name = f"{where}, leaf {path!r}" if path else where
        if array.shape != leaf.feature_shape:
            raise ExecutionError(
                "a value has another shape than its space",
                where=name,
                received=f"shape {array.shape}",
                fix=f"pass shape {leaf.feature_shape}",
            )
        if leaf.dtype.startswith("float"):
            if not np.isfinite(array).all():
                raise ExecutionError("a value is not finite", where=name, received=str(array), fix="repair its source")
            if within and not _in_bounds(leaf, array):
                raise ExecutionError(
                    "a number is out of its bounds", where=name, received=str(array), fix=f"clip it, to lie in {leaf!r}"
                )
        elif isinstance(leaf, IntBox) and not (np.all(array >= leaf.low) and np.all(array < leaf.high)):
            raise ExecutionError(
                "an integer is out of its range", where=name, received=str(array), fix=f"pass {leaf!r}"
            )
        arrays[path] = np.array(array, leaf.dtype)
    return space.unflatten(arrays)


def _in_bounds(leaf: Box, array: np.ndarray) -> bool:
    """Whether floats lie within their bounds, after they are cast."""
    cast = array.astype(leaf.dtype)
    return bool(np.all(cast >= leaf.low) and np.all(cast <= leaf.high))


def finite(value: Any, where: str) -> np.float32:
    """A reward, a number or an array of one, as float32.

    Raises:
        ExecutionError: It is no finite number.
    """
    array = np.asarray(value)
    if array.size != 1 or array.dtype.kind not in "fiub":
        raise ExecutionError("a reward is not one number", where=where, received=repr(value), fix="pass a float")
    if not np.isfinite(array).all():
        raise ExecutionError("a reward is not finite", where=where, received=str(value), fix="repair the environment")
    return np.float32(array.item())


def flag(value: Any, where: str) -> np.bool_:
    """Whether an episode ended: a bool, or an array of one.

    Raises:
        ExecutionError: It is no bool.
    """
    array = np.asarray(value)
    if array.size != 1 or array.dtype.kind not in "bui":
        raise ExecutionError(
            "terminated and truncated are one bool each", where=where, received=repr(value), fix="pass True or False"
        )
    return np.bool_(array.item())


def same(first: Any, second: Any) -> bool:
    """Whether two nested values are equal."""
    return all(tree_leaves(tree_map(np.array_equal, first, second)))


def stack(items: Sequence[Any]) -> Any:
    """Stacks equally nested arrays along a new first axis.

    >>> stack([{"a": np.zeros(2)}, {"a": np.ones(2)}])["a"].shape
    (2, 2)
    """
    return tree_map(lambda *leaves: np.array(leaves), *items)


def is_single(space: Space, value: Any) -> bool:
    """Whether a value is one element of a space (without ranks), and not a batch of them."""
    for path, leaf in space.flatten().items():
        assert isinstance(leaf, Box)
        item = space.flatten_value(value)[path]
        return np.ndim(item) == len(leaf.shape)
    return False


def add_axis(value: Any) -> Any:
    """A batch of one."""
    return tree_map(lambda leaf: np.asarray(leaf)[None], value)


def first_row(value: Any) -> Any:
    """The first row of a batch."""
    return tree_map(lambda leaf: leaf[0], value)
