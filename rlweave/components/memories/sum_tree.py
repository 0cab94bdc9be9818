"""A sum tree of float64 in one NumPy array: draws indices in proportion to their priorities.

`nodes` has `2 * leaves` entries, `leaves` being a power of two: `nodes[1]` is the root, the children of node k are
2k and 2k + 1, leaf i is `nodes[leaves + i]` and `nodes[0]` is unused. The functions work on a plain array, so that a
memory can keep the tree in a variable and a checkpoint holds it.

Every parent is recomputed from its two children, never moved by a difference, so no rounding error piles up. All
functions work level by level on whole arrays of indices.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Nodes = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

# Width of the level at which a search starts: one cumulative sum over it replaces eleven steps of descent.
_SEARCH_WIDTH = 2048
# Levels are recomputed as a whole up to this width, or up to so many times the number of changes: slices are cheaper
# than lists of indices there.
_WHOLE_LEVEL = 256
_WHOLE_LEVEL_PER_CHANGE = 8


def node_count(capacity: int) -> int:
    """Length of the `nodes` array for so many leaves."""
    return 2 << max(capacity - 1, 0).bit_length()


def total(nodes: Nodes) -> float:
    """The sum of all priorities."""
    return float(nodes[1])


def get(nodes: Nodes, indices: Indices) -> npt.NDArray[np.float64]:
    """The priorities of leaves.

    Args:
        nodes: The tree.
        indices: Leaf numbers, of any shape.
    """
    return nodes.take(indices + nodes.size // 2)


def update(nodes: Nodes, indices: Indices, priorities: npt.ArrayLike) -> None:
    """Sets the priorities of leaves. Where an index comes twice, the last one wins.

    Args:
        nodes: The tree, changed in place.
        indices: Leaf numbers (N,).
        priorities: Their priorities (N,), not negative and finite.
    """
    if len(indices) == 0:
        return
    # NumPy promises nothing for a repeated index on the left of an assignment, so the last one is chosen here.
    distinct, position_from_end = np.unique(indices[::-1], return_index=True)
    values = np.broadcast_to(np.asarray(priorities, np.float64), indices.shape)[::-1][position_from_end]
    width = nodes.size // 2
    node = distinct + width
    nodes[node] = values
    whole = max(_WHOLE_LEVEL, _WHOLE_LEVEL_PER_CHANGE * len(distinct))
    pairs = nodes.reshape(-1, 2)
    while width > 1:
        width //= 2
        if width <= whole:
            np.add(pairs[width : 2 * width, 0], pairs[width : 2 * width, 1], out=nodes[width : 2 * width])
        else:
            node >>= 1
            children = pairs.take(node, axis=0)
            nodes[node] = children[:, 0] + children[:, 1]


def update_range(nodes: Nodes, start: int, priorities: npt.ArrayLike, count: int) -> None:
    """Sets the priorities of neighbouring leaves.

    Args:
        nodes: The tree, changed in place.
        start: The first leaf.
        priorities: One number for all, or an array (count,).
        count: How many leaves.
    """
    if count == 0:
        return
    first = nodes.size // 2 + start
    last = first + count - 1
    nodes[first : last + 1] = priorities
    pairs = nodes.reshape(-1, 2)
    while first > 1:
        first, last = first // 2, last // 2
        np.add(pairs[first : last + 1, 0], pairs[first : last + 1, 1], out=nodes[first : last + 1])


def find(nodes: Nodes, prefix_sums: npt.ArrayLike) -> Indices:
    """The leaf at each prefix sum: leaf i owns the half-open interval [sum before i, sum before i + priority of i).

    A prefix sum at or beyond the total belongs to the last leaf with a priority above 0. A leaf with priority 0 is
    never found, as long as the total is above 0.

    Args:
        nodes: The tree.
        prefix_sums: Numbers (N,), not negative.

    Returns:
        Leaf numbers, int64 (N,).
    """
    remaining = np.array(prefix_sums, np.float64, ndmin=1)
    leaves = nodes.size // 2
    width = min(leaves, _SEARCH_WIDTH)
    ends = np.cumsum(nodes[width : 2 * width])
    last_with_mass = ends.searchsorted(ends[-1], side="left")
    node = np.minimum(ends.searchsorted(remaining, side="right"), last_with_mass)
    # the end of the node before, so that what remains is never below 0 (the own end minus the own sum could be)
    remaining -= np.concatenate(((0.0,), ends)).take(node)
    node += width
    pairs = nodes.reshape(-1, 2)
    while width < leaves:
        children = pairs.take(node, axis=0)
        left = children[:, 0]
        # rounding can leave more to go than the node holds; an empty right half is never entered for it
        goes_right = (remaining >= left) & (children[:, 1] > 0.0)
        remaining -= left * goes_right
        node += node
        node += goes_right
        width *= 2
    return node - leaves


def range_sum(nodes: Nodes, low: int, high: int) -> float:
    """The sum of the priorities of leaves low, ..., high - 1."""
    low, high = low + nodes.size // 2, high + nodes.size // 2
    result = 0.0
    while low < high:
        if low % 2:
            result += float(nodes[low])
            low += 1
        if high % 2:
            high -= 1
            result += float(nodes[high])
        low, high = low // 2, high // 2
    return result
