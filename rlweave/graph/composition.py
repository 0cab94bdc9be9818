"""Components in the attributes of others: which of them are seen, and which are hidden."""

from __future__ import annotations

import copy as copying
import gc
import types
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from rlweave.errors import BuildError
from rlweave.graph.variable import Variable, VariableCollection
from rlweave.spaces import Space

if TYPE_CHECKING:
    from rlweave.graph.component import Component

#: Attributes of every component that say where it stands, and not what it computes.
COMPOSITION = frozenset(
    {"_scope", "_device", "_trainable", "_owner", "_name", "_same_as", "_shared", "_spec_arguments"}
)
#: How many objects inside of one attribute are looked at for hidden components.
_SEARCHED = 2_000
_PLAIN = frozenset({bool, int, float, complex, str, bytes, type(None), np.dtype, types.BuiltinFunctionType})
#: What holds no components of a user, or too much else.
_CLOSED = (type, types.ModuleType, types.CodeType, Variable, VariableCollection, Space, np.generic)


class Shared:
    """Marks a component that is used here and owned elsewhere; see `shared`."""

    def __init__(self, component: Component) -> None:
        self.component = component


def shared(component: Component) -> Any:
    """Refers to a component that is owned elsewhere.

    After `self.trunk = shared(trunk)` it keeps its one owner and its one set of variables
    (actor and critic on one trunk).
    """
    return Shared(component)


def items_of(value: Any) -> Any:
    """The items of a list, tuple or dict; nothing of anything else."""
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, (list, tuple)) else ()


def leaves_in(value: Any, kind: Any) -> Iterator[Any]:
    """All objects of a kind in nested lists, tuples and dicts."""
    if isinstance(value, kind):
        yield value
    else:
        for item in items_of(value):
            yield from leaves_in(item, kind)


def with_items(value: Any, change: Callable[[Any], Any], in_place: bool = False) -> Any:
    """A list, tuple or dict of the same type with changed items; the same object where no item changes.

    Args:
        value: The container.
        change: From an item to what takes its place.
        in_place: Lists and dicts get the new items themselves.
    """
    before = list(items_of(value))
    after = [change(item) for item in before]
    if all(new is old for new, old in zip(after, before, strict=True)):
        return value
    if isinstance(value, tuple):
        return type(value)(*after) if hasattr(value, "_fields") else type(value)(after)
    made = value if in_place else copying.copy(value)
    if isinstance(made, dict):
        made.update(zip(list(made), after, strict=True))
    else:
        made[:] = after
    return made


def clone_of(root: Component) -> Component:
    """A copy of a component and of all that it owns; what they only refer to is shared where it is owned elsewhere."""
    from rlweave.graph.component import Component

    tree = list(root.tree())
    clones = {id(component): object.__new__(type(component)) for component in tree}

    def convert(value: Any) -> Any:
        if isinstance(value, Component):
            return clones.get(id(value), value)
        if isinstance(value, Variable):
            return None  # made anew by the build
        if next(leaves_in(value, (Component, Variable)), None) is not None:
            made = with_items(value, convert)
            return made if made is not value else copying.copy(value)
        return copying.deepcopy(value) if isinstance(value, (list, dict, set)) else value

    for component in tree:
        for name, value in component.__dict__.items():
            for hidden in hidden_in(name, value):
                if name.startswith("_") or id(hidden) in clones or hidden._owner is None:
                    refuse_hidden(component, name, hidden, copied=True)
        clone = clones[id(component)]
        for name, value in component.__dict__.items():
            object.__setattr__(clone, name, convert(value))
        clone._same_as = component
        clone._shared = {id(value): value for value in clone._shared.values()}
    clones[id(root)]._owner = None
    return clones[id(root)]


def hidden_in(name: str, value: Any) -> Iterator[Component]:
    """Components in an attribute of another, where the build does not see them.

    It sees components in public attributes, and there in lists, tuples and dicts. Others are in private attributes, in
    sets, in functions (their closures, defaults) or in objects of other libraries.

    Args:
        name: The attribute.
        value: What it holds.
    """
    if type(value) in _PLAIN or name in COMPOSITION:
        return
    private = name.startswith("_")
    if not private and type(value) in (types.FunctionType, np.ndarray) and not _opens(value):
        return
    from rlweave.graph.component import Component

    seen: set[int] = set()
    stack: list[tuple[Any, bool]] = [(value, not private)]
    while stack and len(seen) < _SEARCHED:
        found, in_sight = stack.pop()
        if type(found) in _PLAIN or id(found) in seen or isinstance(found, _CLOSED):
            continue
        if isinstance(found, (Component, Shared)):
            if not in_sight:
                yield found.component if isinstance(found, Shared) else found
            continue
        seen.add(id(found))
        in_sight = in_sight and isinstance(found, (list, tuple, dict))
        stack += [(part, in_sight) for part in _parts_of(found)]


def _opens(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return value.dtype.hasobject
    return value.__closure__ is not None or bool(value.__defaults__ or value.__kwdefaults__)


def _parts_of(value: Any) -> list[Any]:
    if isinstance(value, types.FunctionType):  # its globals are those of a whole module
        cells = gc.get_referents(*value.__closure__) if value.__closure__ else []
        return [*cells, *(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
    if isinstance(value, np.ndarray):
        return list(value.flat) if value.dtype.hasobject else []
    if isinstance(value, (list, tuple, dict, set, frozenset)):
        return list(value.values() if isinstance(value, dict) else value)
    return gc.get_referents(value)


def refuse_hidden(component: Component, name: str, hidden: Component, copied: bool = False) -> None:
    """The error for a component that the build (or a copy) does not see."""
    private = name.startswith("_")
    what = "is in a private attribute" if private else "is hidden in an attribute"
    effect = "a copy would share it" if copied else "its variables would belong to nobody"
    value = component.__dict__[name]
    inside = f" in a {type(value).__name__}" if value is not hidden else ""
    fix = f"name the attribute {name.lstrip('_')!r}" if private else "keep components in lists, tuples or dicts"
    raise BuildError(
        f"a component {what}, where builds and copies do not look: {effect}",
        where=f"{component.path}.{name}",
        received=f"{type(hidden).__name__} {hidden.path!r}{inside}",
        fix=f"{fix} (with shared(component) if it is only referred to and owned elsewhere)",
    )
