"""`Component`: the unit of composition."""

from __future__ import annotations

from typing import Any, ClassVar

from rlweave.errors import BuildError, nearest
from rlweave.graph.composition import COMPOSITION, ComponentBase, refuse_late
from rlweave.graph.current import current_session, current_trace
from rlweave.graph.decorators import ApiMethod, GraphFunction
from rlweave.graph.ir import NotReady
from rlweave.graph.specs import from_spec
from rlweave.graph.variable import Initializer, Variable, VariableCollection, sync_variables, variable_space
from rlweave.tree import leaves_of


class UnknownApiError(BuildError, AttributeError):
    """A component was asked for an API method or attribute that it does not have."""


class Component(ComponentBase):
    """A part of an algorithm: sub-components, variables, API methods and graph functions.

    Components exchange data only through calls of declared API methods.

    Args:
        scope: Name within the owner; siblings of one name are numbered (`dense-0`, `dense-1`).
        device: Where its variables live: None (as its owner), "host", or a device name of the backend.
        trainable: False freezes all variables below.
    """

    #: Set by the views of components in lowered graph functions: binds an undecorated function.
    bound_function: ClassVar[Any] = None

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
            if any(session.knows(c) is False for c in leaves_of(value, Component)):
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
        before = list(leaves_of(self.__dict__[name], Component)) if name in self.__dict__ else None
        object.__setattr__(self, name, self._adopt(value))
        if before:
            self._release(before)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        known = list(api_methods(type(self))) + [n for n in self.__dict__ if not n.startswith("_")]
        raise UnknownApiError(
            f"{type(self).__name__} has no API method or attribute {name!r}",
            where=self.path,
            fix=nearest(name, known) if known else "declare it with @api",
        )

    # -- variables -----------------------------------------------------------------------------------------------

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
        for component in session.reachable(self):
            if trainable and not component.trainable:
                continue  # an optimizer, say, which may wait for the very collection that is asked for
            if not session.is_complete(component):
                raise NotReady(f"variables of {component.path}")
            for variable in session.variables_of(component):
                can_train = variable.trainable and component.trainable
                if trainable is None or can_train == trainable:
                    found[variable.path] = variable
        return VariableCollection(found, root=self.path)

    def sync(self, source: Component, tau: Any = 1.0) -> None:
        """Moves all variables towards those of an equally built component: `v += tau * (source - v)`.

        Args:
            source: Component with variables of the same relative paths and shapes.
            tau: 1 copies; smaller is Polyak averaging. A number or a symbolic scalar.
        """
        sync_variables(self, source, self.variables(trainable=None), source.variables(trainable=None), tau)

    # -- specs ---------------------------------------------------------------------------------------------------

    @classmethod
    def from_spec(cls, spec: Any) -> Any:
        """Makes a component from a JSON-like spec; see `rlweave.graph.specs`."""
        return from_spec(spec, cls)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path}>"


#: Names that no attribute of a component can have.
_METHODS = frozenset(name for name in dir(Component) if callable(getattr(Component, name)))


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
