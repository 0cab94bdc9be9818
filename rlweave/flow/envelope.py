"""What travels through a plan: items in envelopes, and the three answers of an operator that has no item to give."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from rlweave.flow.codec import saved_as


@saved_as("signal")
class Signal(enum.Enum):
    """What pulling an operator gives when it does not give an item."""

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
    """What a source actor sends in place of an item that stayed with its n-th operator, counted from 0."""

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
    """One item of a stream together with where it comes from. Immutable.

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
