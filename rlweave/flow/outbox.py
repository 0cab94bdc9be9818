"""Messages to one actor, bounded: a busy receiver gets the newest ones, and what is left out is counted."""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

from rlweave.flow.engine import Actor, Call, Engine


class Told(NamedTuple):
    """A message: the receiver's method, the engine's handle on what it says, and the number of learner updates."""

    method: str
    handle: Any
    version: int


class Outbox:
    """Messages that are under way to an actor, and those that wait here because it is busy.

    An actor does one call after the other, so messages pile up at one that works on an item for long. At most
    ``capacity`` of a kind are under way; of the rest the newest ``capacity`` wait here, and go out as others arrive, or
    before the next item is asked of the actor.

    Args:
        engine: Where the actor lives.
        actor: The receiver.
    """

    def __init__(self, engine: Engine, actor: Actor) -> None:
        self._engine, self._actor = engine, actor
        self.under_way: list[tuple[str, Call]] = []
        self.waiting: deque[tuple[Told, int]] = deque()

    def add(self, told: Told, capacity: int) -> int:
        """Sends a message, or lets it wait.

        Returns:
            How many messages were left out for it: 0 or 1.
        """
        kept = sum(told.method == other.method for other, _ in self.waiting)
        if not kept and self._room(told.method, capacity):
            self._send(told)
            return 0
        self.waiting.append((told, capacity))
        if kept < capacity:
            return 0
        self.waiting.remove(next(entry for entry in self.waiting if entry[0].method == told.method))
        return 1

    def settle(self, done: set[int]) -> None:
        """Forgets calls by their identities, and sends what there is room for now."""
        self.under_way = [(method, call) for method, call in self.under_way if id(call) not in done]
        still: deque[tuple[Told, int]] = deque()
        for told, capacity in self.waiting:
            if self._room(told.method, capacity):
                self._send(told)
            else:
                still.append((told, capacity))
        self.waiting = still

    def send_waiting(self) -> None:
        """Sends all that waits: the actor is about to be asked for an item, and is to know them before."""
        while self.waiting:
            self._send(self.waiting.popleft()[0])

    def _room(self, method: str, capacity: int) -> bool:
        return sum(method == other for other, _ in self.under_way) < capacity

    def _send(self, told: Told) -> None:
        self.under_way.append((told.method, self._engine.call(self._actor, "notify", *told)))
