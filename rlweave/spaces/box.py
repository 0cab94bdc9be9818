"""The base of all leaves: an array with feature shape, dtype and leading ranks."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from rlweave.errors import SpaceError, nearest
from rlweave.spaces.dim import BATCH, TIME, Dim, fixed_batch, fixed_size, fixed_time
from rlweave.spaces.space import Rank, Space, at_path

Axis = int | Dim
"""The length of an axis: a number, or a symbolic length."""

FRAMES_FIRST = "frames_first"
"""Layout of images (N, height, width) that are the last N frames in grey, the oldest first; frames are channels."""

LAYOUTS = ("channels_last", "channels_first", FRAMES_FIRST)
"""Where the channels of an image are: ``(height, width, channels)`` or ``(channels, height, width)``."""

TOKENS = "tokens"
"""The layout of text as integers, ``(tokens,)``: each the number of a word, 0 where there is none."""


class Box(Space):
    """A leaf: arrays of one dtype with axes ``(time, batch, *shape)``, of which the first two are optional.

    Use `FloatBox`, `IntBox`, `BoolBox` or `TextBox`.

    Attributes:
        shape: The feature shape. Entries are numbers, and Dims only for irregular values inside a graph.
        dtype: The NumPy name of the dtype: ``"float32"``, ``"int32"``, ``"bool"``, ...
        batch: The batch rank, or None.
        time: The time rank, or None.
        layout: For images ``"channels_last"`` or ``"channels_first"``, for words as integers ``"tokens"``, as declared;
            None for everything else.
    """

    DTYPES: ClassVar[tuple[str, ...]] = ()

    shape: tuple[Axis, ...]
    dtype: str
    batch: Dim | None
    time: Dim | None
    layout: str | None

    def _set_up(
        self,
        shape: Axis | Sequence[Axis],
        dtype: str,
        add_batch_rank: Rank,
        add_time_rank: Rank,
        layout: str | None,
        **fields: Any,
    ) -> None:
        """Checks and sets all fields, once, from the constructor of a leaf class."""
        self.__dict__.update(
            shape=axes_tuple(shape),
            dtype=self._dtype_name(dtype),
            batch=_rank(add_batch_rank, "batch"),
            time=_rank(add_time_rank, "time"),
            layout=layout,
            **fields,
        )
        if layout == TOKENS:
            self._check_tokens()
        elif layout is not None and layout not in LAYOUTS:
            known = (*LAYOUTS, TOKENS)
            raise SpaceError("A layout is unknown.", received=repr(layout), fix=nearest(str(layout), known))
        elif layout is not None and len(self.shape) != 3:
            raise SpaceError(
                "Only an image, with three feature axes, has a layout.",
                received=f"layout={layout!r} with shape {axes_text(self.shape)}",
                fix="leave layout out, or give the shape its channel axis",
            )

    def _check_tokens(self) -> None:
        if not self.dtype.startswith("int") or len(self.shape) != 1:
            raise SpaceError(
                "Tokens are integers along one feature axis.",
                received=f"layout={TOKENS!r} with shape {axes_text(self.shape)} of {self.dtype}",
                fix="IntBox(number_of_tokens, shape=(length,), layout='tokens')",
            )

    @property
    def is_image(self) -> bool:
        """Whether it is declared as an image."""
        return self.layout in LAYOUTS

    @classmethod
    def _dtype_name(cls, dtype: str) -> str:
        name = dtype if isinstance(dtype, str) else getattr(dtype, "__name__", str(dtype))
        if name not in cls.DTYPES:
            raise SpaceError(
                f"A {cls.__name__} cannot have this dtype.", received=f"dtype={dtype!r}", fix=nearest(name, cls.DTYPES)
            )
        return name

    # ---- axes ------------------------------------------------------------------------------------------------------

    @property
    def low(self) -> np.ndarray | None:
        """The lowest values, read-only, broadcast to the shape; None where the dtype has no order."""
        return None

    @property
    def high(self) -> np.ndarray | None:
        """The highest values, read-only, broadcast to the shape; None where the dtype has no order."""
        return None

    @property
    def has_batch_rank(self) -> bool:
        """Whether there is a batch rank."""
        return self.batch is not None

    @property
    def has_time_rank(self) -> bool:
        """Whether there is a time rank."""
        return self.time is not None

    @property
    def ranks(self) -> int:
        """The number of leading ranks: 0, 1 or 2."""
        return (self.time is not None) + (self.batch is not None)

    @property
    def axes(self) -> tuple[Axis, ...]:
        """All axes of an array of this space: ``(time, batch, *shape)``.

        >>> from rlweave.spaces import FloatBox
        >>> [str(axis) for axis in FloatBox(shape=(4,), add_batch_rank=True, add_time_rank=8).axes]
        ['T=8', 'B', '4']
        """
        return tuple(rank for rank in (self.time, self.batch) if rank is not None) + self.shape

    def concrete_shape(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Returns the shape of an array of this space, ranks included, for given sizes of the symbols.

        >>> from rlweave.spaces import FloatBox
        >>> FloatBox(shape=(4,), add_batch_rank=True).concrete_shape({"B": 3})
        (3, 4)
        """
        return tuple(axis.evaluate(sizes) if isinstance(axis, Dim) else axis for axis in self.axes)

    @property
    def flat_dim(self) -> int:
        """How many numbers one step holds: the product of the feature shape.

        Raises:
            SpaceError: When a feature axis is symbolic.
        """
        if not self._is_regular:
            raise SpaceError(
                "The number of features is unknown, because a feature axis is symbolic.",
                where=repr(self),
                fix="use concrete_shape(sizes)",
            )
        return math.prod(self.feature_shape)

    @property
    def feature_shape(self) -> tuple[int, ...]:
        """The feature shape as plain numbers.

        Raises:
            SpaceError: When a feature axis is symbolic.
        """
        if not self._is_regular:
            raise SpaceError("A feature axis is symbolic.", where=repr(self), fix="use concrete_shape(sizes)")
        return tuple(axis for axis in self.shape if not isinstance(axis, Dim))

    @property
    def _is_regular(self) -> bool:
        return not any(isinstance(axis, Dim) for axis in self.shape)

    def with_batch_rank(self, rank: Rank = True) -> Self:
        """Returns this space with the batch rank set: True (free), a number (fixed), a Dim, or False (none)."""
        return self._replace(batch=_rank(rank, "batch"))

    def with_time_rank(self, rank: Rank = True) -> Self:
        """Returns this space with the time rank set: True (free), a number (fixed), a Dim, or False (none)."""
        return self._replace(time=_rank(rank, "time"))

    def _replace(self, **fields: Any) -> Self:
        clone = object.__new__(type(self))
        clone.__dict__.update(self.__getstate__(), **fields)
        return clone

    # ---- structure: a leaf is its own only leaf --------------------------------------------------------------------

    def flatten(self) -> dict[str, Box]:
        """Returns ``{"": self}``."""
        return {"": self}

    def map(self, function: Callable[[Box], Space]) -> Space:
        """Applies a function to this leaf."""
        return checked_space(function(self), "The function of map returned something that is no space.")

    def _renest(self, flat: Mapping[str, Any], path: str) -> Any:
        return flat[path]

    def _collect(self, value: Any, path: str, flat: dict[str, Any]) -> None:
        flat[path] = value

    # ---- data ------------------------------------------------------------------------------------------------------

    @abstractmethod
    def _sample(self, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
        """Draws an array of the given full shape."""

    def _zeros(self, shape: tuple[int, ...]) -> np.ndarray:
        return np.zeros(shape, self.dtype)

    @abstractmethod
    def _why_not_values(self, array: np.ndarray) -> str | None:
        """Says which value of an array of the right shape and dtype lies outside."""

    def _why_not(self, value: Any, path: str, bound: dict[str, tuple[int, str]]) -> str | None:
        if not isinstance(value, np.ndarray | np.generic):
            return at_path(path, f"needs a NumPy array, got {type(value).__name__}")
        if value.dtype != np.dtype(self.dtype):
            return at_path(path, f"needs dtype {self.dtype}, got {value.dtype}")
        if len(value.shape) != self.ranks + len(self.shape):
            return at_path(path, f"needs axes {axes_text(self.axes)}, got shape {value.shape}")
        for axis, length in zip(self.axes, value.shape, strict=True):
            if axis is length or axis == length:
                continue
            reason = f"got shape {value.shape}"
            if isinstance(axis, Dim):
                conflict = _bind(axis, length, path, bound)
                if conflict is None:
                    continue
                reason += f": {conflict}"
            return at_path(path, f"needs axes {axes_text(self.axes)}, {reason}")
        reason_values = self._why_not_values(np.asarray(value))
        return None if reason_values is None else at_path(path, reason_values)

    # ---- text and data forms ---------------------------------------------------------------------------------------

    def _identity(self) -> Hashable:
        return self.shape, self.dtype, self.batch, self.time, self.layout

    def to_json(self) -> dict[str, Any]:
        """Returns a description of plain, strict JSON data, from which `from_json` makes an equal space."""
        form: dict[str, Any] = {
            "type": type(self).__name__,
            "shape": [str(axis) if isinstance(axis, Dim) else axis for axis in self.shape],
            "dtype": self.dtype,
        }
        if self.batch is not None:
            form["batch"] = str(self.batch)
        if self.time is not None:
            form["time"] = str(self.time)
        if self.layout is not None:
            form["layout"] = self.layout
        return form

    @staticmethod
    def _axes_from_json(form: Mapping[str, Any]) -> tuple[tuple[Axis, ...], Rank, Rank]:
        """The shape and both ranks in a form: text as `to_json` writes it, or as a person writes it in Python."""
        shape, *ranks = form.get("shape", ()), form.get("batch"), form.get("time")
        axes: tuple[Axis, ...] = tuple(Dim.parse(axis) if isinstance(axis, str) else axis for axis in shape)
        batch, time = (Dim.parse(r) if isinstance(r, str) else False if r is None else r for r in ranks)
        return axes, batch, time

    def _details(self) -> str:
        """What `repr` says beside axes and dtype, with a leading blank."""
        return ""

    def __repr__(self) -> str:
        layout = f" {self.layout}" if self.layout else ""
        return f"{type(self).__name__}({axes_text(self.axes)} {self.dtype}{self._details()}{layout})"


def axes_text(axes: Sequence[Axis]) -> str:
    """Formats axes like a tuple.

    >>> axes_text((TIME, BATCH, 4)), axes_text((BATCH,)), axes_text(())
    ('(T, B, 4)', '(B,)', '()')
    """
    return "(" + ", ".join(map(str, axes)) + (",)" if len(axes) == 1 else ")")


def checked_space(space: Any, what: str) -> Space:
    """Returns the argument if it is a space, else raises an error that starts with ``what``."""
    if not isinstance(space, Space):
        raise SpaceError(
            what,
            received=f"{space!r} (of type {type(space).__name__})",
            fix="give a FloatBox, IntBox, BoolBox, TextBox, Dict(...) or Tuple(...); "
            "Space.from_gymnasium converts a Gymnasium space",
        )
    return space


def axes_tuple(shape: Any) -> tuple[Axis, ...]:
    """Reads a shape: one axis or a sequence of axes, whole numbers or Dims. Constant Dims become numbers.

    Raises:
        SpaceError: For anything else.

    >>> axes_tuple(4), axes_tuple([Dim(offset=1), 4])
    ((4,), (2, 4))
    """
    if isinstance(shape, int | np.integer | Dim):
        shape = (shape,)
    axes: list[Axis] = []
    for axis in shape if isinstance(shape, Iterable) else (shape,):
        if isinstance(axis, Dim):
            axes.append(axis if axis.constant is None else axis.constant)
        elif isinstance(axis, int | np.integer) and not isinstance(axis, bool) and axis >= 0:
            axes.append(int(axis))
        else:
            raise SpaceError(
                "A shape consists of whole numbers of at least 0.",
                received=f"shape={shape!r}",
                fix="shape=(4,); the batch and time axes are ranks: add_batch_rank=True, add_time_rank=True",
            )
    return tuple(axes)


def _rank(rank: Rank, kind: str) -> Dim | None:
    if isinstance(rank, bool | np.bool_):
        return (BATCH if kind == "batch" else TIME) if rank else None
    if isinstance(rank, Dim):
        if not (rank.is_batch if kind == "batch" else rank.is_time):
            raise SpaceError(
                f"A {kind} rank has to depend on {'the batch' if kind == 'batch' else 'time alone'}.",
                received=f"add_{kind}_rank={rank}",
                fix=f"use {'BATCH' if kind == 'batch' else 'TIME'}, or put a constant axis into the shape",
            )
        return rank
    if not isinstance(rank, int | np.integer):
        raise SpaceError(
            f"A {kind} rank is False, True, a number or a Dim.", received=f"add_{kind}_rank={rank!r}", fix="True"
        )
    return fixed_batch(rank) if kind == "batch" else fixed_time(rank)


def _bind(axis: Dim, length: int, path: str, bound: dict[str, tuple[int, str]]) -> str | None:
    """Fits a length to a symbolic axis, given the sizes seen so far; says why it cannot be."""
    known, unknown = axis.factor, []
    for symbol in axis.symbols:
        size = fixed_size(symbol)
        if size is None and symbol in bound:
            size = bound[symbol][0]
        if size is None:
            unknown.append(symbol)
        else:
            known *= size
    rest = length - axis.offset
    if not unknown:
        if rest == known:
            return None
        sources = [f"{s} is {bound[s][0]} in {bound[s][1] or 'an earlier axis'!r}" for s in axis.symbols if s in bound]
        return f"{axis} is {length}, not {known + axis.offset}" + (f", as {', '.join(sources)}" if sources else "")
    if rest < 0 or (rest % known if known else rest):
        return f"{axis} cannot be {length}"
    if len(unknown) == 1 and known:
        bound[unknown[0]] = (rest // known, path)
    return None
