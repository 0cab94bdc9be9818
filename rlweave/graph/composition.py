"""Composition: owners, scopes, paths and copies of components, and where in attributes a build finds them."""

from __future__ import annotations

import copy as copying
import functools
import gc
import inspect
import re
import types
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np

from rlweave.errors import BuildError
from rlweave.graph.stand_ins import NoArray
from rlweave.spaces import Space
from rlweave.tree import has_leaf, leaves_of

#: Attributes of every component that say where it stands, and not what it computes.
COMPOSITION = frozenset(
    {"_scope", "_device", "_trainable", "_owner", "_name", "_same_as", "_shared", "_spec_arguments"}
)
#: How many objects inside of one attribute are looked at for hidden components.
_SEARCHED = 2_000
_PLAIN = frozenset({bool, int, float, complex, str, bytes, type(None), np.dtype, types.BuiltinFunctionType})
#: Types that are not searched for hidden components.
_CLOSED = (type, types.ModuleType, types.CodeType, NoArray, Space, np.generic)


class Shared:
    """Marks a component that is used here and owned elsewhere; see `shared`."""

    def __init__(self, component: ComponentBase) -> None:
        self.component = component


def shared(component: ComponentBase) -> Any:
    """Refers to a component that is owned elsewhere.

    After `self.encoder = shared(encoder)` it keeps its one owner and its one set of variables
    (policy and value function on one encoder).
    """
    return Shared(component)


def items_of(value: Any) -> Any:
    """The items of a list, tuple or dict; nothing of anything else."""
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, (list, tuple)) else ()


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


_SCOPE = re.compile(r"[A-Za-z0-9_.\-]+")


@functools.lru_cache(maxsize=4096)
def _scope_of(class_name: str) -> str:
    """The scope of components that were given none: `DuelingPolicy` becomes `dueling-policy`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", class_name).lower()


class ComponentBase:
    """What a build sees of a component: owner, scope, path and device, and which inputs its variables need.

    Assigning a component (or a list, tuple or dict of them, nested too) to an attribute makes it a sub-component with
    this one as its owner, and so does putting it into such a list or dict later.

    Args:
        scope: Name within the owner; siblings of one name are numbered (`dense-0`, `dense-1`).
        device: Where its variables live: None (as its owner), "host", or a device name of the backend.
        trainable: False freezes all variables below.
    """

    #: Set by `register`: the name of the class in specs.
    spec_type: ClassVar[str | None] = None
    #: API methods may mix rows of the batch (attention over the batch, batch statistics).
    mixes_batch: ClassVar[bool] = False
    #: Arguments that it was made with, where its class is registered.
    _spec_arguments: dict[str, Any]

    def __init__(self, scope: str = "", device: str | None = None, trainable: bool = True) -> None:
        scope = scope or _scope_of(type(self).__name__)
        if not _SCOPE.fullmatch(scope):
            raise BuildError(
                "a scope may hold letters, digits, '-', '_' and '.' only",
                where=type(self).__name__,
                received=repr(scope),
                fix="choose another scope",
            )
        self._scope, self._device, self._trainable = scope, device, trainable
        self._owner: ComponentBase | None = None
        self._name: str | None = None  # scope, numbered among its siblings
        self._same_as: ComponentBase | None = None  # the component whose initial weights a copy takes
        self._shared: dict[int, ComponentBase] = {}  # what was assigned as shared(...), by identity

    def __delattr__(self, name: str) -> None:
        before = list(leaves_of(self.__dict__.get(name), ComponentBase))
        object.__delattr__(self, name)
        self._release(before)

    def _release(self, components: list[ComponentBase]) -> None:
        """Components that no attribute refers to any more can get another owner."""
        for component in components:
            if not self._holds(component):
                self._shared.pop(id(component), None)
                if component._owner is self:
                    component._owner = None

    def _holds(self, component: ComponentBase) -> bool:
        values = [value for name, value in self.__dict__.items() if not name.startswith("_")]
        return any(found is component for found in leaves_of(values, ComponentBase))

    def _adopt(self, value: Any, in_place: bool = False) -> Any:
        """Makes the components in a value sub-components, those apart that are marked as shared."""
        if isinstance(value, ComponentBase):
            self._own(value)
        elif isinstance(value, Shared):
            self._shared[id(value.component)] = value.component
            return value.component
        elif isinstance(value, (list, tuple, dict)):
            # a marked list is copied at first: it may be given to another component as well
            return with_items(value, lambda item: self._adopt(item, in_place), in_place)
        return value

    def _own(self, component: ComponentBase) -> None:
        if component._owner is self or id(component) in self._shared:
            return
        if component._owner is not None and component._owner._holds(component):
            raise BuildError(
                "a component has two owners",
                where=f"{component.path}, owned by {component._owner.path!r}",
                received=f"also assigned to an attribute of {self.path!r}",
                fix="use shared(component) where it is only referred to, or component.copy() for a second one",
            )
        ancestor: ComponentBase | None = self
        while ancestor is not None:
            if ancestor is component:
                raise BuildError("a component cannot own itself", where=component.path, fix="use shared(component)")
            ancestor = ancestor._owner
        component._owner = self

    @property
    def scope(self) -> str:
        return self._name or self._scope

    @property
    def path(self) -> str:
        """Global path: scopes from the root down, joined by "/"."""
        return f"{self._owner.path}/{self.scope}" if self._owner is not None else self.scope

    @property
    def seed_path(self) -> str:
        """The path that seeds its initial weights: that of its source for a copy with the same weights."""
        if self._same_as is not None:
            return self._same_as.seed_path
        return f"{self._owner.seed_path}/{self.scope}" if self._owner is not None else self.scope

    @property
    def device(self) -> str | None:
        if self._device is not None or self._owner is None:
            return self._device
        return self._owner.device

    @property
    def trainable(self) -> bool:
        return self._trainable and (self._owner is None or self._owner.trainable)

    @property
    def owner(self) -> ComponentBase | None:
        return self._owner

    def sub_components(self) -> list[ComponentBase]:
        """Components that this one owns, in the order of their attributes."""
        return [component for component in self._referenced() if component._owner is self]

    def _referenced(self) -> list[ComponentBase]:
        """Components in its attributes; it takes over those that were put into lists and dicts later."""
        found: dict[int, ComponentBase] = {}
        for name, value in list(self.__dict__.items()):
            # a generator for each attribute would take longer than all else here
            if isinstance(value, (ComponentBase, list, tuple, dict)) and not name.startswith("_"):
                adopted = self._adopt(value, in_place=True)
                if adopted is not value:
                    object.__setattr__(self, name, adopted)
                for component in leaves_of(adopted, ComponentBase):
                    found.setdefault(id(component), component)
        return list(found.values())

    def tree(self) -> Iterator[ComponentBase]:
        """This component and all below it, depth first."""
        yield self
        for child in self.sub_components():
            yield from child.tree()

    def copy(self, scope: str = "", *, trainable: bool | None = None, initial: str = "same") -> Any:
        """A copy of this composition, with variables of its own.

        Args:
            scope: Scope of the copy.
            trainable: Overrides whether it can be trained (a target network: False).
            initial: "same" starts with the weights of the original (target network), "fresh" with other ones
                (twin critic).
        """
        if initial not in ("same", "fresh"):
            raise BuildError("unknown kind of copy", received=f"initial={initial!r}", fix='use "same" or "fresh"')
        clone = clone_of(self)
        clone._scope, clone._name = scope or f"{self._scope}-copy", None
        if trainable is not None:
            clone._trainable = trainable
        if "_spec_arguments" in clone.__dict__:
            changed = {"scope": clone._scope} | ({} if trainable is None else {"trainable": trainable})
            allowed = inspect.signature(type(clone)).parameters
            clone._spec_arguments |= {name: value for name, value in changed.items() if name in allowed}
        if initial == "fresh":
            for component in clone.tree():
                component._same_as = None
        return clone

    def offers(self, method: str) -> bool:
        """Whether this instance offers an API method that its class declares; a build of it leaves the others out.

        Override it where the arguments of `__init__` decide (a recurrent network has no method without a state).
        """
        return True

    def create_variables(self, *inputs: Any, **more: Any) -> None:
        """Creates the variables; override it with the API inputs it needs as its parameters.

        It is called once by the build, when the spaces of all those inputs are known, with these spaces.
        """


def clone_of(root: ComponentBase) -> ComponentBase:
    """A copy of a component and of all that it owns; what they only refer to is shared where it is owned elsewhere."""
    tree = list(root.tree())
    clones = {id(component): object.__new__(type(component)) for component in tree}

    def convert(value: Any) -> Any:
        if isinstance(value, ComponentBase):
            return clones.get(id(value), value)
        if isinstance(value, NoArray):
            return None  # made again by the build
        if has_leaf(value, (ComponentBase, NoArray)):
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


def hidden_in(name: str, value: Any) -> Iterator[ComponentBase]:
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
    seen: set[int] = set()
    stack: list[tuple[Any, bool]] = [(value, not private)]
    while stack and len(seen) < _SEARCHED:
        found, in_sight = stack.pop()
        if type(found) in _PLAIN or id(found) in seen or isinstance(found, _CLOSED):
            continue
        if isinstance(found, (ComponentBase, Shared)):
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


def refuse_hidden(component: ComponentBase, name: str, hidden: ComponentBase, copied: bool = False) -> None:
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


def refuse_late(where: str) -> None:
    """The error for a sub-component that `create_variables` made."""
    raise BuildError(
        "a sub-component was made in create_variables",
        where=where,
        fix="make sub-components in __init__; their own variables wait for their inputs",
    )
