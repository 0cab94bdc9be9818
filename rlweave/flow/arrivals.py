"""What a gather holds: calls for items that were started, and items that arrived and were not delivered yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rlweave.flow.codec import saved_as
from rlweave.flow.engine import Call, LocalCall
from rlweave.flow.envelope import Envelope
from rlweave.flow.item_reference import referenced
from rlweave.flow.protocols import Episode
from rlweave.flow.workers import SourceItem


@saved_as("requested")
class Requested(NamedTuple):
    """A call for items that was started: of which source, with which weights, when, and in which round.

    Where several learners train for the source, ``versions`` says which weights of each, as in an envelope. Where items
    stay where they are made, ``payloads`` has a call for each of them.
    """

    actor: int
    call: Call
    version: int
    asked_at: float
    round: int
    versions: tuple[int, ...] = ()
    payloads: Sequence[Call] = ()

    def state_dict(self) -> dict[str, Any]:
        """A call that is done, with what it gave. Raises what the call raised."""
        items: list[SourceItem] = self.call.result()
        if self.payloads:
            items = referenced(items, self.payloads)
        fields = {"actor": self.actor, "version": self.version, "round": self.round, "versions": self.versions}
        return {**fields, "items": items}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Requested:
        """The call that ``state_dict`` described, which is done."""
        call = LocalCall(state["items"], None)
        return cls(state["actor"], call, state["version"], 0.0, state["round"], state["versions"])


@saved_as("arrival")
class Arrival(NamedTuple):
    """An item that has arrived and was not delivered yet.

    Attributes:
        envelope: The item; its payload may be ABSORBED.
        num_steps: Environment steps it took.
        actor: Number of its source.
        last: Whether it is the last one of its call.
        episodes: Episodes that came with it.
    """

    envelope: Envelope
    num_steps: int
    actor: int
    last: bool
    episodes: Sequence[Episode]
