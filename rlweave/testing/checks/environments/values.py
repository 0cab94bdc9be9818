"""What environments hand out, as trees of arrays and numbers: their leaves, copies of them, and how two differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from rlweave.tree import tree_map

#: Numbers that differ by less are equal: a library that adds up in several threads may round in another way.
RELATIVE, ABSOLUTE = 1e-6, 1e-9
_SHOWN_CHARACTERS = 60


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yields path and value of each leaf: what is no mapping, tuple or list.

    >>> list(leaves({"a": 1, "b": (2, 3)}))
    [('a', 1), ('b/0', 2), ('b/1', 3)]
    """
    if isinstance(value, Mapping):
        for key, child in value.items():
            yield from leaves(child, below(path, key))
    elif isinstance(value, (tuple, list)):
        for index, child in enumerate(value):
            yield from leaves(child, below(path, index))
    else:
        yield path, value


def below(path: str, key: Any) -> str:
    """The path of a child."""
    return f"{path}/{key}" if path else str(key)


def copied(value: Any) -> Any:
    """A copy of containers and arrays; anything else stays the same object."""
    if isinstance(value, Mapping):
        return {key: copied(child) for key, child in value.items()}
    if isinstance(value, (tuple, list)):
        return [copied(child) for child in value] if isinstance(value, list) else tuple(copied(c) for c in value)
    return np.array(value) if is_array(value) else value


def is_array(value: Any) -> bool:
    """Whether it is an array of NumPy, or of a library that NumPy can read."""
    return isinstance(value, np.ndarray) or (
        hasattr(value, "__array__") and hasattr(value, "shape") and not isinstance(value, np.generic)
    )


def difference(first: Any, second: Any, path: str = "") -> tuple[str, Any, Any] | None:
    """Path and values of the first leaf in which two values differ; None where they are equal.

    Leaves that are no data (objects of the environment's own) count as equal.
    """
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        if first.keys() != second.keys():
            return path, f"keys {sorted(map(str, first))}", f"keys {sorted(map(str, second))}"
        pairs = [(below(path, key), child, second[key]) for key, child in first.items()]
    elif isinstance(first, (tuple, list)) and isinstance(second, (tuple, list)):
        if len(first) != len(second):
            return path, f"{len(first)} items", f"{len(second)} items"
        pairs = [(below(path, i), *both) for i, both in enumerate(zip(first, second, strict=True))]
    else:
        return None if _equal(first, second) else (path, *_different_element(first, second))
    return next((found for pair in pairs if (found := difference(pair[1], pair[2], pair[0])) is not None), None)


def _equal(first: Any, second: Any) -> bool:
    if first is second and not is_array(first):
        return True
    if type(first) is type(second) and isinstance(first, (bool, int, float, str)) and first == second:
        return True  # most are, and NumPy takes longer to tell
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray) and _same_bytes(first, second):
        return True
    if not (_is_data(first) and _is_data(second)):
        return type(first) is type(second)
    one, other = np.asarray(first), np.asarray(second)
    if one.shape != other.shape:
        return False
    if one.dtype.kind in "fc" and other.dtype.kind in "fc":
        return bool(np.allclose(one, other, RELATIVE, ABSOLUTE, equal_nan=True))
    return bool(np.array_equal(one, other))


def _same_bytes(first: np.ndarray, second: np.ndarray) -> bool:
    alike = first.dtype == second.dtype != object and first.shape == second.shape
    return alike and first.tobytes() == second.tobytes()


def _is_data(value: Any) -> bool:
    plain = isinstance(value, (bool, int, float, complex, str, bytes, np.generic)) or value is None
    return plain or (is_array(value) and np.asarray(value).dtype != object)


def _different_element(first: Any, second: Any) -> tuple[Any, Any]:
    if not (is_array(first) and is_array(second)):
        return first, second
    one, other = np.asarray(first), np.asarray(second)
    if one.shape != other.shape or one.size <= 4:
        return one, other
    index = tuple(int(i) for i in np.argwhere(~np.isclose(one, other, RELATIVE, ABSOLUTE, equal_nan=True))[0])
    return f"{one[index]!s} at {list(index)}", f"{other[index]!s} at {list(index)}"


def scribble(value: Any) -> bool:
    """Writes other numbers into all arrays of a value that can be written to; says whether there was one."""
    found = False
    for _, leaf in leaves(value):
        if isinstance(leaf, np.ndarray) and leaf.flags.writeable and leaf.size and leaf.dtype.kind in "biuf":
            # numbers that the leaf holds already, as far as it can be done: a state that they become stays legal
            leaf[...] = ~leaf if leaf.dtype.kind == "b" else np.zeros_like(leaf) if leaf.any() else np.ones_like(leaf)
            found = True
    return found


def shown(value: Any) -> str:
    """A value for a reader, on one line."""
    plain = value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value
    text = " ".join(str(tree_map(_short, plain) if isinstance(plain, (dict, list, tuple, float)) else plain).split())
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + " ..."


def _short(value: Any) -> Any:
    return float(f"{value:.7g}") if isinstance(value, float) else value


def at(path: str) -> str:
    """A leaf for a reader, as in "leaf 'position' of "."""
    return f"leaf {path!r} of " if path else ""
