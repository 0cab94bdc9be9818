"""What runs in the process of an actor on Ray: holds the object, and sends results and errors back."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

from ray import cloudpickle

from rlweave.flow.engine import ArgumentFailed
from rlweave.flow.item_packer import ItemPacker
from rlweave.flow.owned import owned
from rlweave.flow.remote_errors import PackedError, packed

_KEEPING = frozenset({"load_state_dict", "load_stage_state", "ask"})
"""Methods that keep what they get, or may: of arrays that Ray maps read-only into this process, they get copies."""


class RayHost:
    """Holds one object in a process of its own.

    Args:
        factory: The pickled factory that makes the object. If it fails, every call gives its error, so the error of a
            worker's constructor reaches the user like any other.
    """

    def __init__(self, factory: bytes) -> None:
        self._failed: PackedError | None = None
        self._object: Any = None
        self._packer = ItemPacker()
        try:
            self._object = cloudpickle.loads(factory)()
        except Exception as error:
            self._failed = packed(error)

    def next_items(self, *arguments: Any) -> Any:
        """The call that is made for every item has a method of its own: on Ray, an argument takes its time.

        Returns:
            The items, as bytes if they are small; or a `PackedError`.
        """
        answer = self.invoke("next_items", *arguments)
        return answer if isinstance(answer, PackedError) else self._packer.packed(answer)

    def invoke_with_items(self, places: Sequence[int], method: str, *arguments: Any) -> Any:
        """Calls a method with items of other actors, which come as bytes if they are small, at some places."""
        return self.invoke(method, *_opened(places, arguments))

    def in_parts_with_items(self, places: Sequence[int], parts: int, method: str, *arguments: Any) -> tuple[Any, ...]:
        """The same for a method whose values travel each by itself."""
        return self.in_parts(parts, method, *_opened(places, arguments))

    def in_parts(self, parts: int, method: str, *arguments: Any) -> tuple[Any, ...]:
        """Calls a method whose values travel each by itself; an error comes back in place of each of them."""
        answer = self.invoke(method, *arguments)
        return (answer,) * parts if isinstance(answer, PackedError) else answer

    def invoke(self, method: str, *arguments: Any) -> Any:
        """Calls a method; an error comes back as a `PackedError`, since Ray would lose its cause."""
        if self._failed is not None:
            return self._failed
        try:
            for argument in arguments:
                if isinstance(argument, PackedError):  # the result of a call of another actor, which failed
                    raise ArgumentFailed("an argument could not be made") from argument.unpacked()
            if method in _KEEPING:
                arguments = owned(arguments)
            return getattr(self._object, method)(*arguments)
        except Exception as error:
            return packed(error)


def _opened(places: Sequence[int], arguments: Sequence[Any]) -> list[Any]:
    return [
        pickle.loads(argument) if place in places and type(argument) is bytes else argument  # noqa: S301
        for place, argument in enumerate(arguments)
    ]
