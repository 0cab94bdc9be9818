"""Small items on their way from an actor to the driver on Ray: as bytes, which cost both of them the least."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import ray
import ray.actor
import ray.cloudpickle

SMALL_BYTES = 64 * 2**10
"""Up to this size items go as bytes. Ray sends as much with its answers, instead of through shared memory."""


class _RefusedError(Exception):
    pass


_RAYS_OWN = frozenset({ray.ObjectRef, ray.actor.ActorHandle})
"""What only Ray may take apart, because it counts who holds it."""


class _Pickler(ray.cloudpickle.CloudPickler):
    """Ray's own, but for arrays and what only Ray may take apart."""

    def reducer_override(self, value: Any) -> Any:
        """Sends a copy of an array that nobody may write to: the reader of the item may."""
        kind = type(value)
        if kind is np.ndarray:  # without the looks into tables that come else: this runs for every item
            return (value if value.flags.writeable else value.copy()).__reduce_ex__(5)
        if kind in _RAYS_OWN:
            raise _RefusedError
        return super().reducer_override(value)


class ItemPacker:
    """Packs an actor's items, as long as they are small.

    Ray gives the reader of a value arrays that are views of what was sent, and each of them has to be copied before it
    is anybody's own. Out of bytes they come writable, at once. Large ones are better off with Ray: bytes would be a
    copy more. Once an actor has made one of these, or something that bytes cannot hold, it leaves all to Ray.
    """

    def __init__(self) -> None:
        self._packs = True

    def packed(self, items: Any) -> Any:
        """Bytes for ``pickle.loads``, out of which all arrays come writable; or the items themselves."""
        if not self._packs:
            return items
        try:
            with io.BytesIO() as file:
                _Pickler(file, protocol=5).dump(items)
                if file.tell() <= SMALL_BYTES:
                    return file.getvalue()
        except Exception:  # Ray finds out as well, and says why
            pass
        self._packs = False
        return items
