"""The containers: `Dict` and `Tuple`, nested as deep as wanted and possibly empty."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, ItemsView, Iterator, KeysView, Mapping, ValuesView
from typing import Any, Self

from rlweave.errors import SpaceError, nearest
from rlweave.spaces.box import Box, checked_space
from rlweave.spaces.space import Rank, Space, at_path, join_path


class Container(Space):
    """What `Dict` and `Tuple` have in common: children by key."""

    @abstractmethod
    def _children(self) -> Mapping[Any, Space]:
        """The children in canonical order."""

    @abstractmethod
    def _nest(self, children: Mapping[Any, Any]) -> Any:
        """Nests plain values like this container."""

    @abstractmethod
    def _like(self, children: Mapping[Any, Space]) -> Self:
        """Makes a container like this one with other children."""

    @abstractmethod
    def _mismatch(self, value: Any) -> str | None:
        """Says how a value differs from this container on this level."""

    def __len__(self) -> int:
        return len(self._children())

    def flatten(self) -> dict[str, Box]:
        """Returns the leaves by path, in canonical order (a new dict each time).

        >>> from rlweave.spaces import IntBox
        >>> list(Dict(b=IntBox(2), a=Tuple(IntBox(3), Dict(x=IntBox(4)))).flatten())
        ['a/0', 'a/1/x', 'b']
        """
        return {
            join_path(str(key), path) if path else str(key): leaf
            for key, child in self._children().items()
            for path, leaf in child.flatten().items()
        }

    def map(self, function: Callable[[Box], Space]) -> Self:
        """Applies a function to every leaf and returns the space of the results, nested like this one.

        >>> from rlweave.spaces import FloatBox, IntBox
        >>> Dict(a=IntBox(3)).map(lambda leaf: FloatBox(shape=leaf.shape))
        Dict(a=FloatBox(() float32))
        """
        return self._like({key: child.map(function) for key, child in self._children().items()})

    def with_batch_rank(self, rank: Rank = True) -> Self:
        """Returns this space with the batch rank of every leaf set: True, a number, a Dim, or False (none)."""
        return self._like({key: child.with_batch_rank(rank) for key, child in self._children().items()})

    def with_time_rank(self, rank: Rank = True) -> Self:
        """Returns this space with the time rank of every leaf set: True, a number, a Dim, or False (none)."""
        return self._like({key: child.with_time_rank(rank) for key, child in self._children().items()})

    def _identity(self) -> Hashable:
        return tuple(self._children().items())

    def _renest(self, flat: Mapping[str, Any], path: str) -> Any:
        return self._nest({
            key: child._renest(flat, join_path(path, key)) for key, child in self._children().items()
        })  # fmt: skip

    def _collect(self, value: Any, path: str, flat: dict[str, Any]) -> None:
        reason = self._mismatch(value)
        if reason is not None:
            raise SpaceError(
                "A value is not nested like its space.",
                where=at_path(path, repr(self)),
                received=reason,
                fix="plain dicts and tuples, nested like the space",
            )
        for key, child in self._children().items():
            child._collect(value[key], join_path(path, key), flat)

    def _why_not(self, value: Any, path: str, bound: dict[str, tuple[int, str]]) -> str | None:
        reason = self._mismatch(value)
        if reason is not None:
            return at_path(path, reason)
        for key, child in self._children().items():
            reason = child._why_not(value[key], join_path(path, key), bound)
            if reason is not None:
                return reason
        return None


class Dict(Container):
    """Named spaces, in one canonical (sorted) order; values are dicts, matched by name.

    Args:
        spaces: A mapping of names to spaces; names are not empty and have no ``/``.
        add_batch_rank: Gives every leaf a batch rank (False: leaves them as they are).
        add_time_rank: Gives every leaf a time rank (False: leaves them as they are).
        **named: More spaces by name.

    Raises:
        SpaceError: When a name cannot be part of a path, is given twice, or something is no space.

    >>> from rlweave.spaces import FloatBox, IntBox
    >>> space = Dict(b=IntBox(2), a=FloatBox(shape=(3,)), add_batch_rank=True)
    >>> space
    Dict(a=FloatBox((B, 3) float32), b=IntBox((B,) int32 in [0, 2)))
    >>> space["a"].shape, list(space)
    ((3,), ['a', 'b'])
    """

    JSON_FIELDS = frozenset({"spaces"})

    _spaces: dict[str, Space]

    def __init__(
        self,
        spaces: Mapping[str, Space] | None = None,
        /,
        *,
        add_batch_rank: Rank = False,
        add_time_rank: Rank = False,
        **named: Space,
    ) -> None:
        if spaces is not None and not isinstance(spaces, Mapping):
            raise SpaceError(
                "A Dict is made from a mapping of names to spaces.", received=repr(spaces), fix="Dict(a=..., b=...)"
            )
        children = dict(spaces or {})
        twice = sorted(children.keys() & named.keys())
        if twice:
            raise SpaceError("A Dict has a name twice.", received=f"{twice}", fix="give each name once")
        children.update(named)
        for name, child in children.items():
            if not isinstance(name, str) or not name or "/" in name:
                raise SpaceError(
                    "The names of a Dict are strings, not empty, without '/' (which separates the parts of a path).",
                    received=f"name {name!r}",
                    fix="rename it, for instance to "
                    + repr(str(name).replace("/", "_") or "value" if isinstance(name, str) else str(name)),
                )
            checked_space(child, f"The entry {name!r} of a Dict is no space.")
        ordered = {name: children[name] for name in sorted(children)}
        self.__dict__["_spaces"] = _with_ranks(ordered, add_batch_rank, add_time_rank)

    def __getitem__(self, key: str) -> Space:
        if key not in self._spaces:
            raise SpaceError(
                "A Dict has no such entry.",
                where=repr(self),
                received=f"{key!r}",
                fix=nearest(str(key), self._spaces) if self._spaces else "it is empty",
            )
        return self._spaces[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._spaces)

    def __contains__(self, key: object) -> bool:
        return key in self._spaces

    def keys(self) -> KeysView[str]:
        """The names in canonical order."""
        return self._spaces.keys()

    def values(self) -> ValuesView[Space]:
        """The spaces in canonical order."""
        return self._spaces.values()

    def items(self) -> ItemsView[str, Space]:
        """Names and spaces in canonical order."""
        return self._spaces.items()

    def _children(self) -> Mapping[str, Space]:
        return self._spaces

    def _nest(self, children: Mapping[str, Any]) -> dict[str, Any]:
        return dict(children)

    def _like(self, children: Mapping[str, Space]) -> Self:
        return type(self)(children)

    def _mismatch(self, value: Any) -> str | None:
        if not isinstance(value, Mapping):
            return f"needs a dict, got {type(value).__name__}"
        if value.keys() != self._spaces.keys():
            missing = sorted(self._spaces.keys() - value.keys())
            unknown = sorted(map(str, value.keys() - self._spaces.keys()))
            return "; ".join([f"lacks {missing}"] * bool(missing) + [f"has unknown {unknown}"] * bool(unknown))
        return None

    def to_json(self) -> dict[str, Any]:
        """Returns a description of plain, strict JSON data, from which `from_json` makes an equal space."""
        return {"type": "Dict", "spaces": {name: child.to_json() for name, child in self._spaces.items()}}

    @classmethod
    def _read_json(cls, form: Mapping[str, Any]) -> Space:
        return cls({name: Space.from_json(child) for name, child in form["spaces"].items()})

    def __repr__(self) -> str:
        if all(name.isidentifier() for name in self._spaces):
            return "Dict(" + ", ".join(f"{name}={child!r}" for name, child in self._spaces.items()) + ")"
        return f"Dict({dict(self._spaces)!r})"


class Tuple(Container):
    """Spaces by position; values are tuples.

    Args:
        *spaces: The spaces.
        add_batch_rank: Gives every leaf a batch rank (False: leaves them as they are).
        add_time_rank: Gives every leaf a time rank (False: leaves them as they are).

    Raises:
        SpaceError: When something is no space.

    >>> from rlweave.spaces import BoolBox, IntBox
    >>> Tuple(IntBox(2), BoolBox(), add_batch_rank=True)
    Tuple(IntBox((B,) int32 in [0, 2)), BoolBox((B,) bool))
    """

    JSON_FIELDS = frozenset({"spaces"})

    _spaces: tuple[Space, ...]

    def __init__(self, *spaces: Space, add_batch_rank: Rank = False, add_time_rank: Rank = False) -> None:
        for index, child in enumerate(spaces):
            if isinstance(child, list | tuple):
                raise SpaceError(
                    "A Tuple takes its spaces one by one.", received=repr(child), fix="unpack them: Tuple(*spaces)"
                )
            checked_space(child, f"The entry {index} of a Tuple is no space.")
        children = _with_ranks(dict(enumerate(spaces)), add_batch_rank, add_time_rank)
        self.__dict__["_spaces"] = tuple(children.values())

    def __getitem__(self, index: int) -> Space:
        try:
            return self._spaces[index.__index__()]
        except (IndexError, AttributeError):
            raise SpaceError(
                "A Tuple has no such entry.",
                where=repr(self),
                received=f"{index!r}",
                fix=f"0 to {len(self) - 1}" if len(self) else "it is empty",
            ) from None

    def __iter__(self) -> Iterator[Space]:
        return iter(self._spaces)

    def values(self) -> tuple[Space, ...]:
        """The spaces in order."""
        return self._spaces

    def items(self) -> ItemsView[int, Space]:
        """Positions and spaces in order."""
        return self._children().items()

    def _children(self) -> Mapping[int, Space]:
        return dict(enumerate(self._spaces))

    def _nest(self, children: Mapping[int, Any]) -> tuple[Any, ...]:
        return tuple(children.values())

    def _like(self, children: Mapping[int, Space]) -> Self:
        return type(self)(*children.values())

    def _mismatch(self, value: Any) -> str | None:
        if not isinstance(value, tuple | list):
            return f"needs a tuple, got {type(value).__name__}"
        if len(value) != len(self._spaces):
            return f"needs {len(self._spaces)} entries, got {len(value)}"
        return None

    def to_json(self) -> dict[str, Any]:
        """Returns a description of plain, strict JSON data, from which `from_json` makes an equal space."""
        return {"type": "Tuple", "spaces": [child.to_json() for child in self._spaces]}

    @classmethod
    def _read_json(cls, form: Mapping[str, Any]) -> Space:
        return cls(*[Space.from_json(child) for child in form["spaces"]])

    def __repr__(self) -> str:
        return "Tuple(" + ", ".join(map(repr, self._spaces)) + ")"


def _with_ranks(children: dict[Any, Space], batch: Rank, time: Rank) -> dict[Any, Space]:
    """Pushes ranks down to the leaves; False leaves them alone."""
    if not isinstance(batch, bool) or batch:
        children = {key: child.with_batch_rank(batch) for key, child in children.items()}
    if not isinstance(time, bool) or time:
        children = {key: child.with_time_rank(time) for key, child in children.items()}
    return children


def space_of(nested: Any) -> Space:
    """The space of nested dicts and tuples of spaces: the inverse of what `Space.unflatten` makes of leaves.

    >>> from rlweave.spaces import IntBox
    >>> space_of({"a": (IntBox(2), IntBox(3))})
    Dict(a=Tuple(IntBox(() int32 in [0, 2)), IntBox(() int32 in [0, 3))))
    """
    if isinstance(nested, dict):
        return Dict({key: space_of(child) for key, child in nested.items()})
    if isinstance(nested, tuple):
        return Tuple(*[space_of(child) for child in nested])
    return checked_space(nested, "A leaf is no space.")
