"""Items that stay where they were made: what goes through the plan in their place, by ``gather_async``'s choice."""

from __future__ import annotations

import copy
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from rlweave.flow.codec import saved_as
from rlweave.flow.engine import Call
from rlweave.flow.envelope import AbsorbedAt, Signal
from rlweave.flow.protocols import steps_of

if TYPE_CHECKING:
    from rlweave.flow.workers import SourceItem

ItemT = TypeVar("ItemT")

_NONE = (Signal, AbsorbedAt)
"""What stands in place of an item that there is not."""


@saved_as("item_reference")
class ItemReference(Generic[ItemT]):
    """Stands for an item that is still where it was made. Immutable.

    What only needs the number of steps, or passes the item on to another actor, takes it as it is: `StoreToBuffer`
    into shards, `UpdateWeights`, unions, queues. The item is kept as long as its reference is.

    Attributes:
        num_steps: Environment steps in the item.
        has_rows: Whether there is any data in it.
    """

    __slots__ = ("_call", "_item", "has_rows", "num_steps")

    def __init__(self, call: Call | None, num_steps: int, has_rows: bool, item: ItemT | None = None) -> None:
        self._call, self._item = call, item
        self.num_steps, self.has_rows = num_steps, has_rows

    @classmethod
    def to(cls, item: ItemT) -> ItemReference[ItemT]:
        """A reference to an item that is here."""
        return cls(None, *described(item), item)

    @property
    def argument(self) -> Any:
        """What to give to ``Engine.call`` for the actor to get the item."""
        return self._item if self._call is None else self._call

    def fetch(self) -> ItemT:
        """The item itself; it belongs to the caller. As an operator: ``for_each(ItemReference.fetch)``.

        Raises:
            ActorLost: It was lost with the place where it was.
        """
        item: ItemT = self._item if self._call is None else self._call.result()  # type: ignore[assignment]
        return item

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
            f"an item that was left where it was made has no {name!r}: leave by_reference=True out of the gather, or "
            "put for_each(ItemReference.fetch) behind it"
        )

    def __reduce__(self) -> Any:
        raise TypeError(
            "a reference to an item means nothing in another process: send reference.fetch(), or give the reference to "
            "an actor by Engine.call(actor, method, reference.argument)"
        )


def described(item: Any) -> tuple[int, bool]:
    """What a reference says of its item: number of steps, whether there is any data.

    >>> described([1, 2, 3])
    (3, True)
    """
    return steps_of(item), has_rows(item)


def has_rows(item: Any) -> bool:
    """Whether there is any data in an item, or in what a reference stands for."""
    if isinstance(item, ItemReference):
        return item.has_rows
    data = getattr(item, "data", None)  # of a batch; arrays and tensors have a buffer of that name
    return bool(data) if isinstance(data, Mapping) else True


def argument_of(item: Any) -> Any:
    """What to give to ``Engine.call`` for an item, or for a reference to one."""
    return item.argument if isinstance(item, ItemReference) else item


def apart(items: Sequence[SourceItem], parts: int) -> tuple[Any, ...]:
    """A source's items as ``parts`` values: first all that a plan needs to know of them, then each item by itself.

    Args:
        items: The items.
        parts: One more than there may be items.
    """
    heads = [(payload if isinstance(payload, _NONE) else described(payload), *rest) for payload, *rest in items]
    payloads = [None if isinstance(payload, _NONE) else payload for payload, *_ in items]
    return heads, *payloads, *[None] * (parts - 1 - len(items))


def referenced(heads: Iterable[SourceItem], payloads: Iterable[Call]) -> list[SourceItem]:
    """A source's items, of which only the heads that ``apart`` made are here."""
    return [
        (head if isinstance(head, _NONE) else ItemReference(call, *head), num_steps, version, episodes)
        for (head, num_steps, version, episodes), call in zip(heads, payloads, strict=False)
    ]


def stands_for(item_type: Any) -> bool:
    """Whether some of the items of a type are references."""
    one_of = typing.get_origin(item_type) in (typing.Union, types.UnionType)
    members = typing.get_args(item_type) if one_of else (item_type,)
    return any((typing.get_origin(member) or member) is ItemReference for member in members)
