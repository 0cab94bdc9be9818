"""What travels through a plan: items in envelopes, references to items, and signals."""

from __future__ import annotations

import copy
import enum
import itertools
import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from rlweave.flow.codec import saved_as
from rlweave.flow.engine import Call
from rlweave.flow.protocols import Batch, Episode, steps_of


@saved_as("signal")
class Signal(enum.Enum):
    """The answer of an operator that gives no item."""

    NOT_READY = "not ready"
    """Nothing can move here now: the caller passes over this branch, and never spins on it."""
    ABSORBED = "absorbed"
    """An item moved and stays inside (buffered, filtered, stored): pull again for more."""
    END = "end"
    """The stream is over; every later pull gives the same answer."""

    def state_dict(self) -> dict[str, Any]:
        """Its name."""
        return {"name": self.name}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Signal:
        """What ``state_dict`` described."""
        return cls[state["name"]]


NOT_READY: Literal[Signal.NOT_READY] = Signal.NOT_READY
ABSORBED: Literal[Signal.ABSORBED] = Signal.ABSORBED
END: Literal[Signal.END] = Signal.END


@saved_as("absorbed_at")
class AbsorbedAt(int):
    """Sent by a source actor in place of an item that its n-th operator absorbed, counted from 0."""

    def state_dict(self) -> dict[str, Any]:
        """Number of the operator."""
        return {"number": int(self)}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> AbsorbedAt:
        """What ``state_dict`` described."""
        return cls(state["number"])


UNKNOWN_VERSION = -1


@saved_as("round_mark")
class RoundMark(NamedTuple):
    """Which round of which ``gather_sync`` an item came in.

    Attributes:
        gather: Name of the gather.
        number: Of the round there, from 0.
        last: Whether the round ends with this item: nothing more of it will come.
    """

    gather: str
    number: int
    last: bool


@saved_as("envelope")
class Envelope(NamedTuple):
    """One item of a stream with its origin. Immutable.

    Attributes:
        payload: The item itself.
        source: Name of the actor or operator that made it, such as ``"parallel_rollouts/2"``.
        sequence: Its number at that source, from 0, without gaps.
        weight_version: Version of the weights it was made with (the oldest one for a merged item);
            ``UNKNOWN_VERSION`` for a sample from a memory, which mixes many.
        parts: For an item merged from others, the ``(source, sequence)`` of each; else empty.
        rounds_late: Rounds of a ``gather_sync`` with a quorum that went by without it (the most, for a merged item).
        round: The round it came in (a late item: the later one); None for an item that came in none, or that was
            merged from several.
        versions: Where several learners train for the workers, the version of each one's weights, of which
            ``weight_version`` is the sum; empty for a single learner.
    """

    payload: Any
    source: str
    sequence: int
    weight_version: int = 0
    parts: tuple[tuple[str, int], ...] = ()
    rounds_late: int = 0
    round: RoundMark | None = None
    versions: tuple[int, ...] = ()

    def carrying(self, payload: Any) -> Envelope:
        """The same envelope around another payload."""
        _, source, sequence, version, parts, late, of_round, versions = self
        return Envelope(payload, source, sequence, version, parts, late, of_round, versions)

    @property
    def origins(self) -> tuple[tuple[str, int], ...]:
        """``(source, sequence)`` of every item that this one was made of."""
        return self.parts or ((self.source, self.sequence),)

    def describe(self) -> str:
        """One line for an error message.

        >>> Envelope([1, 2], "parallel_rollouts/0", 7, 3).describe()
        'item parallel_rollouts/0#7 (list, weight version 3)'
        """
        made_of = ""
        if self.parts:
            shown = ", ".join(f"{source}#{sequence}" for source, sequence in self.parts[:8])
            made_of = f", merged from {shown}" + (", ..." if len(self.parts) > 8 else "")
        kind = "not made" if self.payload is None else type(self.payload).__name__
        version = "unknown" if self.weight_version == UNKNOWN_VERSION else str(self.weight_version)
        late = f", {self.rounds_late} rounds late" if self.rounds_late else ""
        return f"item {self.source}#{self.sequence} ({kind}, weight version {version}{late}{made_of})"


Pulled = Envelope | Signal


def merge(envelopes: Sequence[Envelope], payload: Any, source: str, sequence: int) -> Envelope:
    """Wraps a payload made of several items: it is as old as the oldest of them and remembers all of them.

    Args:
        envelopes: The items that went in; at least one.
        payload: What was made of them.
        source: Name of the operator that merged them.
        sequence: Number of the merged item at that operator.
    """
    parts = tuple(origin for envelope in envelopes for origin in envelope.origins)
    version = min(envelope.weight_version for envelope in envelopes)
    late = max(envelope.rounds_late for envelope in envelopes)
    return Envelope(payload, source, sequence, version, parts, late, _common_round(envelopes), _oldest(envelopes))


def _oldest(envelopes: Sequence[Envelope]) -> tuple[int, ...]:
    """The oldest version of each learner's weights; none if not all items were made with weights of as many."""
    versions = [envelope.versions for envelope in envelopes]
    alike = len({len(own) for own in versions}) == 1
    return tuple(map(min, zip(*versions, strict=True))) if alike else ()


def _common_round(envelopes: Sequence[Envelope]) -> RoundMark | None:
    """The round of a merged item, if all that went in are of one."""
    marks = [envelope.round for envelope in envelopes]
    first = marks[0]
    if first is None or any(mark is None or mark[:2] != first[:2] for mark in marks):
        return None
    return first._replace(last=any(mark is not None and mark.last for mark in marks))


ItemT = TypeVar("ItemT")

_NONE = (Signal, AbsorbedAt)
"""Payloads that stand for a missing item."""


@saved_as("pieces")
@dataclass(slots=True)
class Pieces:
    """An item of several pieces, each for another actor. Of a reference to it, each piece is fetched by itself.

    The operator that makes such items at workers says how many pieces they have (`Operator.pieces`).

    Attributes:
        pieces: The pieces.
        num_steps: Environment steps in the item.
    """

    pieces: list[Any]
    num_steps: int

    def state_dict(self) -> dict[str, Any]:
        """The pieces, and the number of steps."""
        return {"pieces": self.pieces, "num_steps": self.num_steps}


@saved_as("item_reference")
class ItemReference(Generic[ItemT]):
    """Refers to an item that is still at the actor that made it. Immutable.

    Operators that only need the number of steps, or pass the item on to another actor, take it as it is:
    `StoreToBuffer` into shards, `UpdateWeights`, unions, queues. The item is kept as long as its reference is.

    Attributes:
        num_steps: Environment steps in the item.
        has_rows: Whether there is any data in it.
    """

    __slots__ = ("_call", "_item", "has_rows", "num_steps")

    def __init__(
        self, call: Call | tuple[Call, ...] | None, num_steps: int, has_rows: bool, item: ItemT | None = None
    ) -> None:
        self._call, self._item = call, item  # a call for each of its pieces, if it consists of some
        self.num_steps, self.has_rows = num_steps, has_rows

    @classmethod
    def to(cls, item: ItemT) -> ItemReference[ItemT]:
        """A reference to an item that is here."""
        return cls(None, *described(item)[:2], item)

    @property
    def argument(self) -> Any:
        """The argument for ``Engine.call`` by which an actor gets the item."""
        return self._item if self._call is None else self._call

    def fetch(self) -> ItemT:
        """The item itself; it belongs to the caller. As an operator: ``for_each(ItemReference.fetch)``.

        Raises:
            ActorLost: It was lost with its actor.
        """
        if isinstance(self._call, tuple):
            return Pieces([call.result() for call in self._call], self.num_steps)  # type: ignore[return-value]
        item: ItemT = self._item if self._call is None else self._call.result()  # type: ignore[assignment]
        return item

    def piece(self, number: int) -> Any:
        """The argument for ``Engine.call`` by which an actor gets one of the item's pieces."""
        return self._call[number] if isinstance(self._call, tuple) else piece_of(self._item, number)

    def state_dict(self) -> dict[str, Any]:
        """The item, which is fetched."""
        return {"item": self.fetch()}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> ItemReference[Any]:
        """A reference to the item that ``state_dict`` fetched."""
        return cls.to(state["item"])

    def copy(self) -> ItemReference[ItemT]:
        """A reference whose item nobody else changes, for a branch of a split."""
        return ItemReference(copy.deepcopy(self._call), self.num_steps, self.has_rows, copy.deepcopy(self._item))

    def __deepcopy__(self, memo: Any) -> ItemReference[ItemT]:
        return self.copy()

    def __repr__(self) -> str:
        return f"<reference to an item of {self.num_steps} steps>"

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"a reference to an item has no {name!r}: leave by_reference=True out of the gather, or "
            "put for_each(ItemReference.fetch) behind it"
        )

    def __reduce__(self) -> Any:
        raise TypeError(
            "a reference to an item means nothing in another process: send reference.fetch(), or give the reference to "
            "an actor by Engine.call(actor, method, reference.argument)"
        )


#: A batch, or a reference to one.
HeldBatch = TypeVar("HeldBatch", bound=Batch | ItemReference[Any])


def described(item: Any) -> tuple[int, bool, int]:
    """What a reference says of its item: number of steps, whether there is any data, and of how many pieces it is.

    >>> described([1, 2, 3])
    (3, True, 0)
    """
    return steps_of(item), has_rows(item), len(item.pieces) if isinstance(item, Pieces) else 0


def has_rows(item: Any) -> bool:
    """Whether there is any data in an item, or in what a reference stands for."""
    if isinstance(item, ItemReference):
        return item.has_rows
    data = getattr(item, "data", None)  # of a batch; arrays and tensors have a buffer of that name
    return bool(data) if isinstance(data, Mapping) else True


def argument_of(item: Any) -> Any:
    """What to give to ``Engine.call`` for an item, or for a reference to one."""
    return item.argument if isinstance(item, ItemReference) else item


def piece_of(item: Any, number: int) -> Any:
    """What to give to ``Engine.call`` for a piece of an item, or of what a reference refers to."""
    return item.piece(number) if isinstance(item, ItemReference) else item.pieces[number]


SourceItem = tuple[Any, int, int | tuple[int, ...], Sequence[Episode]]
"""What a source actor delivers: an item, the environment steps it took, the version of the weights it was made with.

Where actors live elsewhere, the episodes that ended meanwhile come along: asking for them would be one more call that
waits behind the next item. (A plain tuple, because it travels with every item, and a class takes time to pickle.)
"""


def apart(items: Sequence[SourceItem], parts: int) -> tuple[Any, ...]:
    """A source's items as ``parts`` values: first all that a plan needs to know of them, then each item by itself.

    Args:
        items: The items.
        parts: One more than there may be items, or pieces of them.
    """
    heads = [(payload if isinstance(payload, _NONE) else described(payload), *rest) for payload, *rest in items]
    found = [payload for payload, *_ in items if not isinstance(payload, _NONE)]
    values = [value for item in found for value in (item.pieces if isinstance(item, Pieces) else (item,))]
    return heads, *values, *[None] * (parts - 1 - len(values))


def referenced(heads: Iterable[SourceItem], payloads: Iterable[Call]) -> list[SourceItem]:
    """A source's items, of which only the heads that ``apart`` made are here."""
    calls = iter(payloads)
    return [(_reference(head, calls), num_steps, version, episodes) for head, num_steps, version, episodes in heads]


def _reference(head: Any, calls: Iterator[Call]) -> Any:
    if isinstance(head, _NONE):
        return head
    num_steps, rows, pieces = head
    return ItemReference(tuple(itertools.islice(calls, pieces)) if pieces else next(calls), num_steps, rows)


def stands_for(item_type: Any) -> bool:
    """Whether some of the items of a type are references."""
    one_of = typing.get_origin(item_type) in (typing.Union, types.UnionType)
    members = typing.get_args(item_type) if one_of else (item_type,)
    return any((typing.get_origin(member) or member) is ItemReference for member in members)
