"""`Component`: the unit of composition."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from rlweave.errors import BuildError, nearest
from rlweave.graph.composition import COMPOSITION, Shared, clone_of, leaves_in, with_items
from rlweave.graph.current import current_session, current_trace
from rlweave.graph.decorators import ApiMethod, GraphFunction
from rlweave.graph.ir import NotReady
from rlweave.graph.variable import Initializer, Variable, VariableCollection, variable_space

if TYPE_CHECKING:
    from rlweave.graph.session import Session


class UnknownApiError(BuildError, AttributeError):
    """A component was asked for an API method or attribute that it does not have."""


class Component:
    """A part of an algorithm: sub-components, variables, API methods and graph functions.

    Assigning a component (or a list, tuple or dict of them, nested too) to an attribute makes it a sub-component with
    this one as its owner, and so does putting it into such a list or dict later. Components exchange data only through
    calls of declared API methods.

    Args:
        scope: Name within the owner; siblings of one name are numbered (`dense-0`, `dense-1`).
        device: Where its variables live: None (as its owner), "host", or a device name of the backend.
        trainable: False freezes all variables below.
    """

    #: Set by `register`: the name of the class in specs.
    spec_type: ClassVar[str | None] = None
    #: API methods may mix rows of the batch (attention over the batch, batch statistics).
    mixes_batch: ClassVar[bool] = False
    #: Set by the views of components in lowered graph functions: binds an undecorated function.
    bound_function: ClassVar[Any] = None

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
        self._owner: Component | None = None
        self._name: str | None = None  # scope, numbered among its siblings
        self._same_as: Component | None = None  # the component whose initial weights a copy takes
        self._shared: dict[int, Component] = {}  # what was assigned as shared(...), by identity

    # -- composition ---------------------------------------------------------------------------------------------

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name, value in vars(cls).items():
            declared = isinstance(value, (ApiMethod, GraphFunction))
            if name in COMPOSITION or (declared and hasattr(Component, name)):
                raise BuildError(
                    f"{'an API method' if declared else 'a member'} is named like an attribute of every component: "
                    f"{name!r}",
                    where=cls.__qualname__,
                    fix="choose another name",
                )

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            object.__setattr__(self, name, value)
            return
        if name in _METHODS:
            raise BuildError(
                f"an attribute is named like a method of every component: {name!r}",
                where=type(self).__name__,
                received=repr(value)[:80],
                fix="choose another name",
            )
        if "_scope" not in self.__dict__:
            raise BuildError(
                "an attribute was set before Component.__init__",
                where=f"{type(self).__name__}.{name}",
                fix="call super().__init__(scope) first",
            )
        session = current_session()
        if session is not None and session.creating is self:
            if any(session.knows(c) is False for c in leaves_in(value, Component)):
                refuse_late(f"{self.path}.{name}")
            session.record_attribute(self, name, value)
        elif current_trace() is not None:
            if session is not None and not session.knows(self):
                raise BuildError(
                    "a component was made while a graph is being traced",
                    where=f"{type(self).__name__} {self.path!r}",
                    fix="make components in the __init__ of their owner",
                )
            raise BuildError(
                "an attribute of a component was set while its graph is being traced",
                where=f"{self.path}.{name}",
                received=repr(value)[:80],
                fix="keep state in variables (self.variable in create_variables); API methods and graph functions "
                "may run several times during a build and must be free of side effects",
            )
        before = list(leaves_in(self.__dict__[name], Component)) if name in self.__dict__ else None
        object.__setattr__(self, name, self._adopt(value))
        if before:
            self._release(before)

    def __delattr__(self, name: str) -> None:
        before = list(leaves_in(self.__dict__.get(name), Component))
        object.__delattr__(self, name)
        self._release(before)

    def _release(self, components: list[Component]) -> None:
        """Components that no attribute refers to any more can get another owner."""
        for component in components:
            if not self._holds(component):
                self._shared.pop(id(component), None)
                if component._owner is self:
                    component._owner = None

    def _holds(self, component: Component) -> bool:
        values = [value for name, value in self.__dict__.items() if not name.startswith("_")]
        return any(found is component for found in leaves_in(values, Component))

    def _adopt(self, value: Any, in_place: bool = False) -> Any:
        """Makes the components in a value sub-components, those apart that are marked as shared."""
        if isinstance(value, Component):
            self._own(value)
        elif isinstance(value, Shared):
            self._shared[id(value.component)] = value.component
            return value.component
        elif isinstance(value, (list, tuple, dict)):
            # a marked list is copied at first: it may be given to another component as well
            return with_items(value, lambda item: self._adopt(item, in_place), in_place)
        return value

    def _own(self, component: Component) -> None:
        if component._owner is self or id(component) in self._shared:
            return
        if component._owner is not None and component._owner._holds(component):
            raise BuildError(
                "a component has two owners",
                where=f"{component.path}, owned by {component._owner.path!r}",
                received=f"also assigned to an attribute of {self.path!r}",
                fix="use shared(component) where it is only referred to, or component.copy() for a second one",
            )
        ancestor: Component | None = self
        while ancestor is not None:
            if ancestor is component:
                raise BuildError("a component cannot own itself", where=component.path, fix="use shared(component)")
            ancestor = ancestor._owner
        component._owner = self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        known = list(api_methods(type(self))) + [n for n in self.__dict__ if not n.startswith("_")]
        raise UnknownApiError(
            f"{type(self).__name__} has no API method or attribute {name!r}",
            where=self.path,
            fix=nearest(name, known) if known else "declare it with @api",
        )

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
    def owner(self) -> Component | None:
        return self._owner

    def sub_components(self) -> list[Component]:
        """Components that this one owns, in the order of their attributes."""
        return [component for component in self._referenced() if component._owner is self]

    def _referenced(self) -> list[Component]:
        """Components in its attributes; those that were put into lists and dicts since become its own."""
        found: dict[int, Component] = {}
        for name, value in list(self.__dict__.items()):
            # a generator for each attribute would take longer than all else here
            if isinstance(value, (Component, list, tuple, dict)) and not name.startswith("_"):
                adopted = self._adopt(value, in_place=True)
                if adopted is not value:
                    object.__setattr__(self, name, adopted)
                for component in leaves_in(adopted, Component):
                    found.setdefault(id(component), component)
        return list(found.values())

    def tree(self) -> Iterator[Component]:
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

    # -- variables -----------------------------------------------------------------------------------------------

    def create_variables(self, *inputs: Any, **more: Any) -> None:
        """Creates the variables; override it with the API inputs it needs as its parameters.

        It is called once by the build, when the spaces of all those inputs are known, with these spaces.
        """

    def variable(
        self,
        name: str,
        shape_or_space: Any,
        initializer: Initializer = 0.0,
        trainable: bool = True,
        dtype: str | None = None,
        axis_order: tuple[int, ...] | None = None,
        beside: Variable | None = None,
    ) -> Variable:
        """Declares a variable; only inside `create_variables`.

        Args:
            name: Unique within the component.
            shape_or_space: A shape, or a space without ranks.
            initializer: Name, number, array, or function of (NumPy generator, shape).
            trainable: Whether `variables(trainable=True)` has it.
            dtype: Overrides the dtype (default "float32").
            axis_order: Its axes in the order in which they should lie in memory, slowest first, on a backend where
                that can be chosen (torch); None: row-major.
            beside: A variable of another component on whose device this one lives (slots of optimizers); None: on the
                device of this component.
        """
        session = current_session()
        if session is None or session.creating is not self:
            raise BuildError(
                "a variable was made outside create_variables",
                where=f"{self.path}, variable {name!r}",
                fix="move the call of self.variable into create_variables(self, ...)",
            )
        space = variable_space(shape_or_space, dtype)
        trainable = trainable and space.dtype.startswith("float")
        variable = Variable(self, name, space, initializer, trainable, axis_order, beside)
        session.add_variable(variable)
        return variable

    def variables(self, trainable: bool | None = True) -> VariableCollection:
        """Its variables and those of all components below, shared ones included, by path.

        Args:
            trainable: True for those that can be trained, False for the others, None for all.
        """
        session = current_session()
        if session is None:
            raise BuildError(
                "variables() was called outside a build",
                where=self.path,
                fix="call it inside an API method; of a built graph use executor.get_weights()",
            )
        found: dict[str, Variable] = {}
        for component in self._reachable(session):
            if trainable and not component.trainable:
                continue  # an optimizer, say, which may wait for the very collection that is asked for
            if not session.is_complete(component):
                raise NotReady(f"variables of {component.path}")
            for variable in session.variables_of(component):
                can_train = variable.trainable and component.trainable
                if trainable is None or can_train == trainable:
                    found[variable.path] = variable
        return VariableCollection(found, root=self.path)

    def _reachable(self, session: Session) -> list[Component]:
        seen: dict[int, Component] = {}
        stack: list[Component] = [self]
        while stack:
            component = stack.pop(0)
            if id(component) not in seen:
                seen[id(component)] = component
                stack.extend(session.referenced_by(component))
        return list(seen.values())

    def sync(self, source: Component, tau: Any = 1.0) -> None:
        """Moves all variables towards those of an equally built component: `v += tau * (source - v)`.

        Args:
            source: Component with variables of the same relative paths and shapes.
            tau: 1 copies; smaller is Polyak averaging. A number or a symbolic scalar.
        """
        from rlweave.graph.sync import sync_variables

        sync_variables(self, source, tau)

    # -- specs ---------------------------------------------------------------------------------------------------

    @classmethod
    def from_spec(cls, spec: Any) -> Any:
        """Makes a component from a JSON-like spec; see `rlweave.graph.specs`."""
        from rlweave.graph.specs import from_spec

        return from_spec(spec, cls)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path}>"


#: Names that no attribute of a component can have.
_METHODS = frozenset(name for name in dir(Component) if callable(getattr(Component, name)))
_SCOPE = re.compile(r"[A-Za-z0-9_.\-]+")


@functools.lru_cache(maxsize=4096)
def _scope_of(class_name: str) -> str:
    """The scope of components that were given none: `DuelingPolicy` becomes `dueling-policy`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", class_name).lower()


def refuse_late(where: str) -> None:
    """The error for a sub-component that `create_variables` made."""
    raise BuildError(
        "a sub-component was made in create_variables",
        where=where,
        fix="make sub-components in __init__; their own variables wait for their inputs",
    )


def api_methods(cls: type) -> dict[str, ApiMethod | GraphFunction]:
    """API methods of a component class: `@api` methods, and graph functions with a public name."""
    found: dict[str, ApiMethod | GraphFunction] = {}
    for base in reversed(cls.__mro__):
        for name, value in vars(base).items():
            if isinstance(value, ApiMethod) or (isinstance(value, GraphFunction) and not name.startswith("_")):
                found[name] = value
            else:
                found.pop(name, None)
    return found
