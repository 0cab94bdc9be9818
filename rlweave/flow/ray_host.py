"""The process of an actor on Ray, and how calls, items and errors cross its border."""

from __future__ import annotations

import dataclasses
import enum
import io
import pickle
import traceback
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import ray
import ray.actor
import ray.cloudpickle
from ray import cloudpickle

from rlweave.flow.engine import ArgumentFailed

_ATOMS = frozenset({int, float, bool, str, bytes, type(None)})
_NOTHING = ()
"""The one empty tuple: items that came without an episode have it, and need no look into it."""
_PARTS: dict[type, tuple[str, ...]] = {}
"""What `_parts_of` found, since it is asked for every item."""


def owned(value: Any, within: tuple[int, ...] = ()) -> Any:
    """A value whose arrays are this process's own: views into the object store, which pin it there, become copies.

    Changes dicts and objects in place. Looks into dicts, lists, tuples, and objects that say what they consist of:
    dataclasses, classes with ``__slots__``, and those with a ``data`` dict.

    Args:
        value: The value; it is the caller's alone.
        within: Identities of the objects that it is a part of.

    >>> view = np.zeros(2); view.flags.writeable = False
    >>> owned({"a": [view]})["a"][0].flags.writeable
    True
    """
    kind = type(value)
    if kind is np.ndarray:
        return value if value.flags.writeable else value.copy()
    if kind in _ATOMS or value is _NOTHING:
        return value
    if isinstance(value, dict):
        for key, inner in value.items():
            if type(inner) is np.ndarray:  # the usual case, and this runs for every item
                if not inner.flags.writeable:
                    value[key] = inner.copy()
            else:
                value[key] = owned(inner, within)
        return value
    if isinstance(value, (list, tuple)):
        parts: list[Any] | None = None
        for index, inner in enumerate(value):
            if type(inner) in _ATOMS or inner is _NOTHING:
                continue  # the usual case again
            if (own := owned(inner, within)) is not inner:
                parts = parts or list(value)
                parts[index] = own
        if parts is None or isinstance(value, list):
            return value if parts is None else parts
        return kind(*parts) if hasattr(value, "_fields") else tuple(parts)
    names = _PARTS.get(kind)
    if names is None:
        names = _PARTS[kind] = _parts_of(kind)
    if not names:
        data = getattr(value, "data", None)
        if isinstance(data, dict):
            owned(data, within)
        return value
    if id(value) in within:
        return value  # objects may refer to each other
    within = (*within, id(value))
    for name in names:
        inner = getattr(value, name, None)
        if type(inner) not in _ATOMS and (own := owned(inner, within)) is not inner:
            object.__setattr__(value, name, own)  # also where the class is frozen
    return value


def _parts_of(kind: type) -> tuple[str, ...]:
    """Names of the attributes that objects of a class consist of, as far as it says so."""
    if kind.__module__ in ("builtins", "numpy") or issubclass(kind, type | enum.Enum):
        return ()
    names = [field.name for field in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else []
    for base in kind.__mro__:
        slots = base.__dict__.get("__slots__", ())
        names += [slots] if isinstance(slots, str) else slots
    return tuple(dict.fromkeys(name for name in names if not name.startswith("__")))


SMALL_BYTES = 64 * 2**10
"""Up to this size items go as bytes. Ray sends as much with its answers, instead of through shared memory."""


class _RefusedError(Exception):
    pass


_RAYS_OWN = frozenset({ray.ObjectRef, ray.actor.ActorHandle})
"""Objects that only Ray may pickle, because it counts references."""


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


class RemoteError(Exception):
    """Stands for an error of another process that cannot be rebuilt here; its text is the original one's."""


class PackedError(NamedTuple):
    """An error on its way to another process.

    Attributes:
        pickled: The error itself, if it can be pickled; else empty.
        text: Its type and message.
        trace: The traceback as text, causes included.
        cause: The error behind it.
    """

    pickled: bytes
    text: str
    trace: str
    cause: PackedError | None

    def unpacked(self) -> Exception:
        """The error with its cause, and with the original traceback as a note at the outermost one."""
        error = self._rebuilt()
        innermost = error
        while isinstance(innermost.__cause__, Exception):
            innermost = innermost.__cause__
        innermost.add_note(f"\nOriginal traceback, in the actor:\n\n{self.trace}")
        return error

    def _rebuilt(self) -> Exception:
        error: Exception | None = None
        if self.pickled:
            try:
                error = cloudpickle.loads(self.pickled)
            except Exception:  # an error whose constructor takes other arguments than it passes on
                error = None
        if not isinstance(error, Exception):
            error = RemoteError(self.text)
        if self.cause is not None:
            error.__cause__ = self.cause._rebuilt()
        return error


def packed(error: BaseException) -> PackedError:
    """An error as data that can always be pickled."""
    return _packed(error, "".join(traceback.format_exception(error)))


def _packed(error: BaseException, trace: str) -> PackedError:
    try:
        pickled = cloudpickle.dumps(error.with_traceback(None))
        cloudpickle.loads(pickled)
    except Exception:
        pickled = b""
    cause = None if error.__cause__ is None else _packed(error.__cause__, "")
    text = f"{type(error).__name__}: {error}"
    return PackedError(pickled, text, trace, cause)


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
