"""Keys of the cache of abstract evaluation: fingerprints of arguments and of the settings of components."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlweave.graph.composition import COMPOSITION, ComponentBase
from rlweave.graph.ir import Structure, Value
from rlweave.graph.variable import Variable, VariableCollection

#: Types whose values are hashable and hold nothing else.
PLAIN = frozenset({bool, int, float, str, type(None)})

#: One object for each fingerprint of a component, which keys of the cache hold in its place: they stay short.
_SETTINGS: dict[Any, object] = {}


class Key:
    """A key of the cache, whose hash is computed once; TypeError where a part of it has none."""

    __slots__ = ("_hash", "parts")

    def __init__(self, parts: tuple[Any, ...]) -> None:
        self.parts = parts
        self._hash = hash(parts)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and self.parts == other.parts


class Fingerprints:
    """What stands for the settings of each component of one build."""

    def __init__(self) -> None:
        self._settings: dict[int, object] = {}
        #: By component: the components whose settings depend on its attributes.
        self._dependents: dict[int, set[int]] = {}

    def of(self, component: ComponentBase | None) -> object:
        """An object that stands for all settings that graph functions of a component may read.

        Raises:
            TypeError: One of them has no hash.
        """
        if component is None:
            return None
        found = self._settings.get(id(component))
        if found is None:
            seen: set[int] = set()
            fingerprint = _fingerprint(component, seen)
            found = self._settings[id(component)] = _SETTINGS.setdefault(fingerprint, object())
            for key in seen:
                self._dependents.setdefault(key, set()).add(id(component))
        return found

    def forget(self, component: ComponentBase) -> None:
        """Drops the fingerprints that depend on a component whose attributes have just changed."""
        for dependent in self._dependents.pop(id(component), ()):
            self._settings.pop(dependent, None)

    def clear(self) -> None:
        """Forgets all fingerprints, those of other builds too, when the cache is emptied."""
        _SETTINGS.clear()
        self._settings.clear()


def frozen(structure: Structure) -> Any:
    """Arguments of a node as a part of a key: spaces in place of values; TypeError where something has no hash."""
    if isinstance(structure, Value):
        return structure.space
    if isinstance(structure, dict):
        return ("dict", *[(key, frozen(value)) for key, value in structure.items()])
    if isinstance(structure, (tuple, list)):
        return (type(structure).__name__, *[frozen(item) for item in structure])
    if isinstance(structure, VariableCollection):
        return ("variables", *[(path, variable.space) for path, variable in structure.items()])
    if isinstance(structure, (np.ndarray, np.generic)):
        return ("array", structure.shape, str(structure.dtype), structure.tobytes())
    return (type(structure), structure)


def _fingerprint(component: ComponentBase, seen: set[int], above: tuple[int, ...] = ()) -> Any:
    """Hashable description of the plain attributes of a component and of those below; TypeError where there is none.

    Args:
        component: The component.
        seen: Gets the identities of all components whose attributes count.
        above: Identities of the components around it.
    """
    seen.add(id(component))

    def mark(value: Any) -> Any:
        if type(value) in PLAIN:
            return (type(value), value)
        if isinstance(value, ComponentBase):
            # graph functions may read settings of sub-components, and not their variables
            inner = (*above, id(component))
            return type(value) if id(value) in inner else _fingerprint(value, seen, inner)
        if isinstance(value, Variable):
            return ("variable", value.name, value.space) if not above else ()
        if isinstance(value, dict):
            return ("dict", *[(key, mark(item)) for key, item in value.items()])
        if isinstance(value, (list, tuple, set)):
            return (type(value).__name__, *[mark(item) for item in value])
        if isinstance(value, (np.ndarray, np.generic)):
            return ("array", value.shape, str(value.dtype), value.tobytes())
        hash(value)
        return (type(value), value)

    attributes = tuple([(n, mark(v)) for n, v in component.__dict__.items() if n not in COMPOSITION])
    return (type(component), attributes)
