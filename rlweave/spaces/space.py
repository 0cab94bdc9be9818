"""The base of all spaces: what every description of data can do, whether it is a leaf or a container."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self

import numpy as np

from rlweave.errors import SpaceError, nearest
from rlweave.spaces.dim import Dim, fixed_size

if TYPE_CHECKING:
    from rlweave.spaces.box import Box

Rank = bool | int | Dim
"""How a rank is asked for: False (none), True (free), a number (fixed), or any Dim."""

Size = int | tuple[int, int] | None
"""Sizes of the leading ranks: None, one number, or ``(time, batch)``."""

RandomSource = np.random.Generator | int | None
"""A NumPy generator, a seed, or None for fresh entropy."""


#: Classes of spaces by the name that they have in JSON.
_KINDS: dict[str, type[Space]] = {}

#: Fields of spaces that follow from the others.
_MADE_ON_DEMAND = frozenset({"_hash", "_made_identity"})


class Space(ABC):
    """An immutable, hashable, typed description of (nested) data.

    A space is a leaf (:class:`Box`) or a container (:class:`Dict`, :class:`Tuple`). Its leaves have stable paths:
    ``"a/b"`` in nested dicts, ``"0/x"`` in tuples, and ``""`` for a leaf that stands alone.
    """

    #: What its form in JSON may have besides the type.
    JSON_FIELDS: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "JSON_FIELDS" in cls.__dict__:
            _KINDS[cls.__name__] = cls

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise SpaceError(
            f"Spaces cannot be changed (attribute {name!r}).",
            where=repr(self),
            fix="make a new space: with_batch_rank, with_time_rank, strip_ranks, map, or the constructor",
        )

    def __delattr__(self, name: str) -> NoReturn:
        self.__setattr__(name, None)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self is other or self._known_identity() == other._known_identity()

    def __hash__(self) -> int:
        fields = self.__dict__
        if "_hash" not in fields:
            fields["_hash"] = hash(self._known_identity())
        number: int = fields["_hash"]
        return number

    def __getstate__(self) -> dict[str, Any]:
        # Hashes of text differ from process to process, so they do not travel; neither does what is made on demand.
        return {name: field for name, field in self.__dict__.items() if name not in _MADE_ON_DEMAND}

    # ---- structure -------------------------------------------------------------------------------------------------

    def _known_identity(self) -> Hashable:
        """`_identity`, made once: builds compare and hash the same spaces again and again."""
        fields = self.__dict__
        if "_made_identity" not in fields:
            fields["_made_identity"] = self._identity()
        identity: Hashable = fields["_made_identity"]
        return identity

    @abstractmethod
    def _identity(self) -> Hashable:
        """Everything that makes two spaces equal."""

    @abstractmethod
    def flatten(self) -> dict[str, Box]:
        """Returns the leaves by path, in canonical order (a new dict each time)."""

    @abstractmethod
    def _renest(self, flat: Mapping[str, Any], path: str) -> Any:
        """Nests the entries of ``flat`` that lie below ``path`` like this space."""

    @abstractmethod
    def _collect(self, value: Any, path: str, flat: dict[str, Any]) -> None:
        """Puts the leaves of the nested ``value`` into ``flat``."""

    @abstractmethod
    def map(self, function: Callable[[Box], Space]) -> Space:
        """Applies a function to every leaf and returns the space of the results, nested like this one.

        Args:
            function: Takes a leaf and returns a space. For results that are no spaces use
                ``space.unflatten({path: f(leaf) for path, leaf in space.flatten().items()})``.

        Raises:
            SpaceError: When the function returns something that is no space.
        """

    def unflatten(self, flat: Mapping[str, Any]) -> Any:
        """Nests a flat mapping (of anything) by path into dicts and tuples, like this space.

        Args:
            flat: One entry for each path of :meth:`flatten`, in any order: they are matched by name.

        Raises:
            SpaceError: When a path is missing, or is not one of this space.
        """
        paths = self.flatten().keys()
        if flat.keys() != paths:
            missing = sorted(paths - flat.keys())
            unknown = sorted(flat.keys() - paths)
            raise SpaceError(
                "A flat mapping does not have exactly the paths of its space."
                + (f" Missing: {missing}." if missing else "")
                + (f" Unknown: {unknown}." if unknown else ""),
                where=repr(self),
                received=f"paths {sorted(flat)}",
                fix=nearest(unknown[0], paths) if unknown and paths else "give one entry per path of space.flatten()",
            )
        return self._renest(flat, "")

    def flatten_value(self, value: Any) -> dict[str, Any]:
        """Flattens a nested value by the structure of this space; the inverse of :meth:`unflatten`.

        Args:
            value: Dicts and tuples nested like this space; the leaves may be anything.

        Raises:
            SpaceError: When the nesting differs, naming the path.
        """
        flat: dict[str, Any] = {}
        self._collect(value, "", flat)
        return flat

    # ---- ranks -----------------------------------------------------------------------------------------------------

    @property
    def has_batch_rank(self) -> bool:
        """Whether every leaf has a batch rank (False when there is no leaf)."""
        leaves = self.flatten().values()
        return bool(leaves) and all(leaf.batch is not None for leaf in leaves)

    @property
    def has_time_rank(self) -> bool:
        """Whether every leaf has a time rank (False when there is no leaf)."""
        leaves = self.flatten().values()
        return bool(leaves) and all(leaf.time is not None for leaf in leaves)

    @abstractmethod
    def with_batch_rank(self, rank: Rank = True) -> Self:
        """Returns this space with the batch rank set: True (free), a number (fixed), a Dim, or False (none)."""

    @abstractmethod
    def with_time_rank(self, rank: Rank = True) -> Self:
        """Returns this space with the time rank set: True (free), a number (fixed), a Dim, or False (none)."""

    def strip_ranks(self) -> Self:
        """Returns this space without batch and time rank: the space of a single step."""
        return self.with_batch_rank(False).with_time_rank(False)

    # ---- numbers ---------------------------------------------------------------------------------------------------

    @property
    def flat_dim(self) -> int:
        """How many numbers one step holds: the product of the feature shape, summed over all leaves.

        Raises:
            SpaceError: When a feature axis is symbolic, or a leaf holds text.
        """
        return sum(leaf.flat_dim for leaf in self.flatten().values())

    def feature_sizes(self) -> frozenset[int]:
        """Returns all the numbers that occur in the feature shapes of the leaves.

        >>> from rlweave.spaces import FloatBox, Tuple
        >>> sorted(Tuple(FloatBox(shape=(4, 2)), FloatBox(shape=(2,), add_batch_rank=True)).feature_sizes())
        [2, 4]
        """
        return frozenset(axis for leaf in self.flatten().values() for axis in leaf.shape if not isinstance(axis, Dim))

    # ---- data ------------------------------------------------------------------------------------------------------

    def sample(self, size: Size = None, rng: RandomSource = None) -> Any:
        """Draws random data that lies in this space.

        Bounded dimensions are uniform, dimensions with one bound decay away from it, unbounded ones are normal.

        Args:
            size: Sizes of the leading ranks. None: 1 for each free rank. A number: the only free rank.
                ``(T, B)``: both; a leaf takes from it the ranks that it has. For a space without any rank, the
                numbers are leading axes in front of each leaf: ``size`` independent samples.
            rng: A generator (advanced by this call), a seed, or None.

        Returns:
            New NumPy arrays, nested in dicts and tuples like this space.

        Raises:
            SpaceError: When the size contradicts the ranks of this space.

        >>> from rlweave.spaces import IntBox
        >>> IntBox(5, add_batch_rank=True).sample(3, rng=0).shape
        (3,)
        """
        generator = np.random.default_rng(rng)
        sizes, leading = self._sizes(size)
        return self.unflatten({
            path: leaf._sample(leading + leaf.concrete_shape(sizes), generator)
            for path, leaf in self.flatten().items()
        })  # fmt: skip

    def zeros(self, size: Size = None) -> Any:
        """Returns zeros (False, empty text) with the shapes and dtypes of this space, whatever its bounds.

        Args:
            size: Sizes of the leading ranks, as in :meth:`sample`.

        Returns:
            New NumPy arrays, nested in dicts and tuples like this space.
        """
        sizes, leading = self._sizes(size)
        return self.unflatten({
            path: leaf._zeros(leading + leaf.concrete_shape(sizes)) for path, leaf in self.flatten().items()
        })  # fmt: skip

    def contains(self, value: Any) -> bool:
        """Whether a nested NumPy value lies in this space: structure, shapes, dtypes and bounds, without any casting.

        Ranks have to agree: a value is not contained when the batch ranks of two leaves differ.
        """
        return self.why_not(value) is None

    def why_not(self, value: Any) -> str | None:
        """Returns why a value does not lie in this space, starting with the path of the leaf; None if it does.

        >>> from rlweave.spaces import Dict, FloatBox
        >>> Dict(x=FloatBox(-1, 1)).why_not({"x": np.float32(2)})
        'x: holds 2.0, outside [-1, 1]'
        """
        return self._why_not(value, "", {})

    @abstractmethod
    def _why_not(self, value: Any, path: str, bound: dict[str, tuple[int, str]]) -> str | None:
        """As `why_not`; ``bound`` collects the sizes of the symbols and the path that gave each."""

    def _sizes(self, size: Size) -> tuple[dict[str, int], tuple[int, ...]]:
        """Resolves a size into the sizes of the symbols and, for a space without symbols, leading axes."""
        symbols = {
            symbol
            for leaf in self.flatten().values()
            for axis in leaf.axes
            if isinstance(axis, Dim)
            for symbol in axis.symbols
        }
        numbers = () if size is None else (size,) if isinstance(size, int | np.integer) else tuple(size)
        if len(numbers) > 2 or any(not isinstance(n, int | np.integer) or n < 0 for n in numbers):
            raise self._size_error(size)
        numbers = tuple(int(n) for n in numbers)
        if not symbols:
            return {}, numbers
        sizes = {"T": 1, "B": 1}
        given = dict(zip("TB", numbers, strict=True)) if len(numbers) == 2 else {}
        if len(numbers) == 1:
            free = [kind for kind in "TB" if kind in symbols]
            kinds = free if len(free) == 1 else sorted({symbol[0] for symbol in symbols})
            if len(kinds) != 1:
                raise self._size_error(size)
            given = {kinds[0]: numbers[0]}
        for kind, number in given.items():
            fixed = {fixed_size(symbol) for symbol in symbols if symbol[0] == kind}
            if fixed and None not in fixed and fixed != {number}:
                raise self._size_error(size)
        return sizes | given, ()

    def _size_error(self, size: Any) -> SpaceError:
        return SpaceError(
            "A size does not fit the ranks of its space.",
            where=repr(self),
            received=f"size={size!r}",
            fix="None; a number when one rank is free; (T, B) when both are; a fixed rank keeps its own number",
        )

    # ---- JSON ------------------------------------------------------------------------------------------------------

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Returns a description of plain, strict JSON data, from which :meth:`from_json` makes an equal space."""

    @classmethod
    def from_json(cls, form: Any) -> Self:
        """Makes a space from the data that :meth:`to_json` returned, or that a person wrote.

        Raises:
            SpaceError: When the data describes no space, or not one of the class this is called on.

        >>> from rlweave.spaces import FloatBox
        >>> box = FloatBox(high=[1.0, float("inf")], add_batch_rank=True)
        >>> Space.from_json(box.to_json()) == box
        True
        >>> Space.from_json({"type": "IntBox", "low": 0, "high": 5, "batch": "B"})
        IntBox((B,) int32 in [0, 5))
        """
        if not isinstance(form, Mapping) or not isinstance(form.get("type"), str):
            raise SpaceError(
                "A space in JSON is an object with a type.",
                received=repr(form),
                fix='for instance {"type": "FloatBox", "shape": [4]}',
            )
        name = form["type"]
        if name not in _KINDS:
            raise SpaceError("A space in JSON has an unknown type.", received=repr(name), fix=nearest(name, _KINDS))
        kind = _KINDS[name]
        unknown = sorted(map(str, form.keys() - kind.JSON_FIELDS - {"type"}))
        if unknown:
            raise SpaceError(
                f"A {name} in JSON has an unknown field.",
                received=repr(unknown[0]),
                fix=nearest(unknown[0], kind.JSON_FIELDS),
            )
        try:
            return cls._checked(kind._read_json(form))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            if isinstance(error, SpaceError):
                raise
            raise SpaceError(f"A {name} in JSON is malformed ({error}).", received=repr(dict(form))) from error

    @classmethod
    @abstractmethod
    def _read_json(cls, form: Mapping[str, Any]) -> Space:
        """Makes a space from its fields in JSON, none of which is unknown."""

    @classmethod
    def _checked(cls, space: Space) -> Self:
        if not isinstance(space, cls):
            raise SpaceError(
                f"Expected a {cls.__name__}.",
                received=repr(space),
                fix=f"call it on Space or on {type(space).__name__}",
            )
        return space


def at_path(path: str, reason: str) -> str:
    """Puts the path of a leaf in front of a reason; the path of a leaf that stands alone is empty.

    >>> at_path("a/0", "has no value"), at_path("", "has no value")
    ('a/0: has no value', 'has no value')
    """
    return f"{path}: {reason}" if path else reason


def join_path(path: str, key: str | int) -> str:
    """Extends a path by a key.

    >>> join_path("", "a"), join_path("a", 0)
    ('a', 'a/0')
    """
    return f"{path}/{key}" if path else str(key)
