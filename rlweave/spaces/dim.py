"""Symbolic axis lengths: how long an axis is, as a function of the batch and time sizes of a call."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from rlweave.errors import SpaceError

_SYMBOL = re.compile(r"[TB](=[1-9][0-9]*)?")
_TERM = re.compile(r"(?P<product>[^+\-]+)(?P<offset>[+\-][0-9]+)?")


def _symbol_order(symbol: str) -> tuple[bool, bool, int]:
    """Sorts time before batch (arrays are time-major), free symbols before fixed ones."""
    return symbol[0] != "T", "=" in symbol, fixed_size(symbol) or 0


def fixed_size(symbol: str) -> int | None:
    """Returns the number that a symbol is fixed at, or None when it is free.

    >>> fixed_size("B=64"), fixed_size("T")
    (64, None)
    """
    _, _, number = symbol.partition("=")
    return int(number) if number else None


@dataclass(frozen=True)
class Dim:
    """The length of one axis: ``factor * product(sizes of symbols) + offset``.

    Symbols are ``"T"`` (time) and ``"B"`` (batch), which differ from call to call, and ``"T=8"``, ``"B=64"``, which
    are fixed at a number. So folding ``(T, B)`` gives ``Dim(("T", "B"))`` and a sequence with one bootstrap row more
    is ``Dim(("T",), offset=1)``. Symbols are kept in one order, time first; without symbols, factor and offset become
    one number.

    Args:
        symbols: The symbols that are multiplied; none for a constant.
        factor: A positive whole number that multiplies them.
        offset: A whole number that is added.

    Raises:
        SpaceError: For an unknown symbol, a factor below 1, or numbers that are not whole.

    >>> str(Dim(("B", "T"))), str(Dim(("T",), offset=1)), str(Dim(("B",), 4))
    ('T*B', 'T+1', '4*B')
    >>> Dim(("T", "B=64"), offset=-1).evaluate({"T": 3})
    191
    """

    symbols: tuple[str, ...] = ()
    factor: int = 1
    offset: int = 0

    def __post_init__(self) -> None:
        symbols: object = self.symbols
        if not isinstance(symbols, tuple):
            raise SpaceError(
                "The symbols of a Dim are a tuple of strings.",
                received=f"symbols={symbols!r}",
                fix=f"Dim(({symbols!r},))" if isinstance(symbols, str) else 'for instance Dim(("T", "B"))',
            )
        for symbol in self.symbols:
            if not _SYMBOL.fullmatch(symbol):
                raise SpaceError(
                    "An axis has a symbol that is neither time nor batch.",
                    received=f"symbol {symbol!r}",
                    fix="use 'T', 'B', or a fixed one such as 'T=8' or 'B=64'",
                )
        factor, offset = int(self.factor), int(self.offset)
        if (factor, offset) != (self.factor, self.offset):
            raise SpaceError(
                "The factor and the offset of a Dim are whole numbers.",
                received=f"factor={self.factor!r}, offset={self.offset!r}",
                fix="round them, and say in which direction",
            )
        if not self.symbols:
            factor, offset = factor + offset, 0
        if factor < 1 and self.symbols:
            raise SpaceError(
                "The factor of a symbolic axis has to be at least 1.",
                received=f"factor={self.factor}, symbols={self.symbols}",
                fix="write a constant axis as a plain int",
            )
        if factor < 0:
            raise SpaceError("An axis cannot have a negative length.", received=str(factor))
        object.__setattr__(self, "symbols", tuple(sorted(self.symbols, key=_symbol_order)))
        object.__setattr__(self, "factor", factor)
        object.__setattr__(self, "offset", offset)

    @property
    def is_time(self) -> bool:
        """Whether the length depends on time alone (``T``, ``T+1``, ``2*T``)."""
        return bool(self.symbols) and all(symbol[0] == "T" for symbol in self.symbols)

    @property
    def is_batch(self) -> bool:
        """Whether the length depends on the batch; ``T*B``, folded ranks, counts."""
        return any(symbol[0] == "B" for symbol in self.symbols)

    @property
    def constant(self) -> int | None:
        """The length when there are no symbols in it, else None."""
        return None if self.symbols else self.factor

    def evaluate(self, sizes: Mapping[str, int]) -> int:
        """Computes the length for given sizes of the symbols.

        Args:
            sizes: Size of each symbol. A fixed symbol may be left out; its own number counts then.

        Raises:
            SpaceError: When the size of a free symbol is missing, or the length comes out negative.
        """
        length = self.factor
        for symbol in self.symbols:
            size = sizes.get(symbol, fixed_size(symbol))
            if size is None:
                raise SpaceError(
                    f"The length of the axis {self} is unknown without a size for {symbol!r}.",
                    received=f"sizes={dict(sizes)}",
                    fix=f"pass sizes with an entry for {symbol!r}",
                )
            length *= size
        length += self.offset
        if length < 0:
            raise SpaceError(
                f"The axis {self} would have the negative length {length}.",
                received=f"sizes={dict(sizes)}",
                fix=f"use sizes that give {self} at least 0",
            )
        return length

    def __str__(self) -> str:
        if not self.symbols:
            return str(self.factor)
        factors = ([str(self.factor)] if self.factor != 1 else []) + list(self.symbols)
        return "*".join(factors) + (f"{self.offset:+d}" if self.offset else "")

    @classmethod
    def parse(cls, text: str) -> Dim:
        """Reads a Dim back from its string.

        Raises:
            SpaceError: When the text is no axis length.

        >>> Dim.parse("4*T*B=64-1") == Dim(("T", "B=64"), 4, -1)
        True
        """
        match = _TERM.fullmatch(text)
        factors = match["product"].split("*") if match else []
        numbers = [int(factor) for factor in factors if factor.isdecimal()]
        symbols = tuple(factor for factor in factors if not factor.isdecimal())
        if match is None or len(numbers) > 1:
            raise SpaceError(
                "A text is no axis length.", received=repr(text), fix="write it like 'T', 'B=64', 'T*B', '4*B' or 'T+1'"
            )
        return cls(symbols, numbers[0] if numbers else 1, int(match["offset"] or 0))


BATCH = Dim(("B",))
"""The free batch rank."""

TIME = Dim(("T",))
"""The free time rank."""


def fixed_batch(size: int) -> Dim:
    """Returns a batch rank that always has ``size`` rows (at least 1).

    >>> str(fixed_batch(64))
    'B=64'
    """
    return Dim((f"B={_positive(size, 'batch')}",))


def fixed_time(size: int) -> Dim:
    """Returns a time rank that always has ``size`` steps (at least 1).

    >>> str(fixed_time(8))
    'T=8'
    """
    return Dim((f"T={_positive(size, 'time')}",))


def _positive(size: int, kind: str) -> int:
    if int(size) != size or size < 1:
        raise SpaceError(
            f"A fixed {kind} rank needs a whole number of at least 1.",
            received=repr(size),
            fix=f"True for a free {kind} rank, False for none, or a number such as 8",
        )
    return int(size)
