"""``Notify``: messages that go upstream, behind ``Stream.notify``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from rlweave.errors import ConfigError, PlanError, nearest
from rlweave.flow.item_reference import stands_for
from rlweave.flow.item_state import decode, encode
from rlweave.flow.item_types import check_arguments
from rlweave.flow.operators import Operator, positive
from rlweave.flow.workers import WorkerGroup

if TYPE_CHECKING:
    from rlweave.flow.context import Context
    from rlweave.flow.node import Node

Item = TypeVar("Item")


class Notify(Operator):
    """Sends a message upstream for every n-th item, and passes the item on. Behind ``Stream.notify``.

    The receiver's method is called as ``method(message, version)``, where version is the number of learner updates
    so far. Workers that are busy elsewhere get the newest messages; those that are left out count as drops.
    """

    at_source: ClassVar[bool] = False

    def __init__(
        self,
        target: Any,
        method: str,
        every: int = 1,
        message: Callable[[Any], Any] | None = None,
        capacity: int = 8,
    ) -> None:
        if message is not None:
            check_arguments(message, 1, "operator 'notify'", "what makes a message")
        self.target, self.method, self.message = target, method, message
        self.group = target if isinstance(target, WorkerGroup) else None
        self.every = positive("every", every, "notify")
        self.capacity = positive("capacity", capacity, "notify")
        self._seen = 0
        self._last: tuple[Any, int] | None = None
        """The last message to workers, and its version."""
        known = list(target.kinds()) if isinstance(target, WorkerGroup) else [target]
        for kind in known:
            if kind is not Any and not callable(getattr(kind, method, None)):
                owner = kind if isinstance(kind, type) else type(kind)
                raise PlanError(
                    f"notify() names a method that {owner.__name__} lacks",
                    where="operator 'notify'",
                    received=f"{method!r}",
                    fix=nearest(method, [name for name in dir(owner) if not name.startswith("_")]),
                )

    def check(self, node: Node) -> None:
        """A reference to an item is no message."""
        (port,) = node.inputs
        if self.message is None and stands_for(port.item_type):
            raise PlanError(
                "an item that is left where it was made is no message",
                where=f"operators {port.node.name!r} and 'notify'",
                received=port.describe(),
                fix="give message=, a function that makes the message of the reference, as ItemReference.fetch",
            )

    def __call__(self, item: Item) -> Item:
        """Sends the message if it is time."""
        self._seen += 1
        if self._seen % self.every == 0:
            self._send(item if self.message is None else self.message(item))
        return item

    def start(self, context: Context, name: str) -> None:
        """Finds the actors."""
        self._context, self._name = context, name
        if isinstance(self.target, WorkerGroup):
            self._channel = context.channel(self.target)

    def sends(self) -> list[tuple[Any, str, str, str]]:
        """Its messages; an object of this process gets each at once."""
        edge = (str(self.capacity), "drop_oldest") if self.group is not None else ("1", "block")
        return [(self.target, self.method, *edge)]

    def _send(self, message: Any) -> None:
        version = self._context.version()
        if isinstance(self.target, WorkerGroup):
            self._last = message, version
            for _ in range(self._channel.tell_all(self.method, message, version, self.capacity)):
                self._context.counters.drop(self._name)
        else:
            getattr(self.target, self.method)(message, version)

    def note(self) -> str:
        """Whom, and how often."""
        receiver = "workers" if isinstance(self.target, WorkerGroup) else type(self.target).__name__
        return f"{receiver}.{self.method}, every={self.every}"

    def state_dict(self) -> dict[str, Any]:
        """Items seen, and the last message to workers, which those that come later are told as well.

        Raises:
            CheckpointError: If the message is of a type that cannot be saved.
        """
        if self._last is None:
            return {"seen": self._seen}
        message, version = self._last
        return {"seen": self._seen, "last": {"message": encode(message, self._name), "version": version}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over a state."""
        self._seen = int(state["seen"])
        if (last := state.get("last")) is not None:  # an object of this process is saved by who owns it
            self._last = decode(last["message"]), int(last["version"])
            self._channel.remember(self.method, *self._last)


def receiver_of(node: Any) -> Any:
    """What ``notify`` reaches through a stream: the workers or the memory at its beginning.

    Raises:
        ConfigError: If the stream begins at several places, or at something that takes no messages.
    """
    while len(node.inputs) == 1:
        node = node.inputs[0].node
    target = getattr(node, "group", None) or getattr(node, "memory", None)
    if target is None:
        raise ConfigError(
            "notify() needs a stream with one beginning",
            where=f"operator {node.name!r}",
            received=f"{len(node.inputs)} inputs",
            fix="give the stream of one ParallelRollouts or Replay, a group of workers, or an object",
        )
    return target
