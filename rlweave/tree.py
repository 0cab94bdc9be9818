"""Trees: dicts, tuples and lists, nested, with anything else as their leaves; None stands for no leaf.

Plain recursion: `torch.compile` traces through it, and small trees take less time than in a library with a registry of
node types (optree: two to seven times as long for an array or a dict of four, and 60 ms to import).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

#: A tree; `Any` to a type checker.
Tree = Any


def tree_map(f: Callable[..., Any], tree: Tree, *rest: Tree) -> Tree:
    """Applies f to the leaves of one tree, or of several of equal structure; None stays None.

    >>> tree_map(lambda x, y: x + y, {"a": 1, "b": (2, None)}, {"b": (20, None), "a": 10})
    {'a': 11, 'b': (22, None)}
    """
    if rest:
        return _map_several(f, tree, rest)
    if isinstance(tree, dict):
        return {key: tree_map(f, value) for key, value in tree.items()}
    if isinstance(tree, (tuple, list)):
        return _alike(tree, [tree_map(f, value) for value in tree])
    return None if tree is None else f(tree)


def _map_several(f: Callable[..., Any], tree: Tree, rest: Sequence[Tree]) -> Tree:
    if isinstance(tree, dict):
        return {key: _map_several(f, value, [other[key] for other in rest]) for key, value in tree.items()}
    if isinstance(tree, (tuple, list)):
        return _alike(tree, [_map_several(f, first, others) for first, *others in zip(tree, *rest, strict=True)])
    return None if tree is None else f(tree, *rest)


def _alike(tree: tuple[Any, ...] | list[Any], items: list[Any]) -> tuple[Any, ...] | list[Any]:
    """Items as a list, tuple or named tuple like another one."""
    if isinstance(tree, list):
        return items
    return type(tree)(*items) if hasattr(tree, "_fields") else tuple(items)


def tree_leaves(tree: Tree) -> list[Any]:
    """All leaves in order.

    >>> tree_leaves({"a": 1, "b": (2, None)})
    [1, 2]
    """
    if tree is None:
        return []
    if isinstance(tree, dict):
        return [leaf for value in tree.values() for leaf in tree_leaves(value)]
    if isinstance(tree, (tuple, list)):
        return [leaf for value in tree for leaf in tree_leaves(value)]
    return [tree]


def leaves_of(tree: Tree, kind: Any) -> Iterator[Any]:
    """All leaves of a class (or of one of several), in order; what is none is looked into."""
    found: list[Any] = []
    _collect(tree, kind, found)
    return iter(found)


def _collect(tree: Tree, kind: Any, found: list[Any]) -> None:
    if isinstance(tree, kind):
        found.append(tree)
    elif isinstance(tree, dict):
        for value in tree.values():
            _collect(value, kind, found)
    elif isinstance(tree, (tuple, list)):
        for value in tree:
            _collect(value, kind, found)


def has_leaf(tree: Tree, kind: Any) -> bool:
    """Whether a tree has a leaf of a class (or of one of several)."""
    if isinstance(tree, kind):
        return True
    inner: Any = tree.values() if isinstance(tree, dict) else tree
    if inner is tree and not isinstance(tree, (tuple, list)):
        return False
    for value in inner:  # noqa: SIM110 - a generator takes twice as long, and this is called often
        if has_leaf(value, kind):
            return True
    return False


def map_with_key(f: Callable[[tuple[Any, ...], Any], Any], tree: Tree, key: tuple[Any, ...] = ()) -> Tree:
    """`tree_map` with the keys that lead to each leaf as first argument; None is a leaf, too.

    >>> map_with_key(lambda key, leaf: key, {"a": (1, 2)})
    {'a': (('a', 0), ('a', 1))}
    """
    if isinstance(tree, dict):
        return {name: map_with_key(f, value, (*key, name)) for name, value in tree.items()}
    if isinstance(tree, (tuple, list)):
        return _alike(tree, [map_with_key(f, value, (*key, index)) for index, value in enumerate(tree)])
    return f(key, tree)


def flatten_tree(tree: Tree, prefix: str = "") -> dict[str, Any]:
    """The leaves by path ("a/b", "0/x"), None among them; a leaf that stands alone has the path "".

    >>> flatten_tree({"a": 1, "b": (2, 3)})
    {'a': 1, 'b/0': 2, 'b/1': 3}
    """
    if isinstance(tree, dict):
        pairs: list[tuple[str, Any]] = [(str(key), value) for key, value in tree.items()]
    elif isinstance(tree, (tuple, list)):
        pairs = [(str(index), value) for index, value in enumerate(tree)]
    else:
        return {prefix: tree}
    flat: dict[str, Any] = {}
    for key, value in pairs:
        flat.update(flatten_tree(value, f"{prefix}/{key}" if prefix else key))
    return flat


def unflatten_like(tree: Tree, flat: dict[str, Any], prefix: str = "") -> Tree:
    """Leaves by path, nested like a tree; the inverse of `flatten_tree`.

    >>> unflatten_like({"a": 0, "b": (0, 0)}, {"a": 1, "b/0": 2, "b/1": 3})
    {'a': 1, 'b': (2, 3)}
    """
    if isinstance(tree, dict):
        return {k: unflatten_like(v, flat, f"{prefix}/{k}" if prefix else str(k)) for k, v in tree.items()}
    if isinstance(tree, (tuple, list)):
        items = [unflatten_like(v, flat, f"{prefix}/{i}" if prefix else str(i)) for i, v in enumerate(tree)]
        return _alike(tree, items)
    return flat[prefix]
