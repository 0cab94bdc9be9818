"""The second phase of a build: components are complete when the spaces of their inputs are known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rlweave.backends import Backend
from rlweave.errors import BuildError
from rlweave.graph.composition import ComponentBase, refuse_late
from rlweave.graph.current import SESSION
from rlweave.graph.ir import Structure, Unknown, Value
from rlweave.graph.session.composition import Composition
from rlweave.graph.session.fingerprints import Fingerprints
from rlweave.graph.values import same_features, to_space
from rlweave.graph.variable import Variable
from rlweave.tree import leaves_of


@dataclass(frozen=True)
class Round:
    """One pass of the build over the API methods that are not known yet.

    Attributes:
        known: Methods whose results became known.
        waiting: Methods that have to be traced again, with the reason where there is one besides unknown inputs.
        completed: Components that became input-complete, in this order; they created their variables then.
    """

    known: tuple[str, ...]
    waiting: tuple[tuple[str, str], ...]
    completed: tuple[ComponentBase, ...]


class Completeness(Composition):
    """Which components are complete, with which variables."""

    def __init__(
        self,
        root: ComponentBase,
        backend: Backend,
        device: str | Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(root, backend, device)
        self.creating: ComponentBase | None = None
        #: By component and input: calls that passed an unknown value, of this round.
        self.unknown_inputs: dict[tuple[int, str], list[str]] = {}
        #: Components that are complete, in the order in which they became it.
        self.completion: list[ComponentBase] = []
        #: The passes over the API methods.
        self.rounds: list[Round] = []
        self.fingerprints = Fingerprints()

    def is_complete(self, component: ComponentBase) -> bool:
        return self.states[id(component)].complete

    def variables_of(self, component: ComponentBase) -> list[Variable]:
        return self.states[id(component)].variables

    def all_variables(self) -> list[Variable]:
        return [variable for component in self.components for variable in self.states[id(component)].variables]

    def needs_of(self, component: ComponentBase) -> tuple[str, ...]:
        """Names of the API inputs that its `create_variables` takes."""
        return self.states[id(component)].needs

    def record_input(
        self, component: ComponentBase, method: str, name: str, argument: Structure, calls: list[str]
    ) -> None:
        """Notes the space of an API input that it needs; completes the component when it was the last one it needs."""
        state = self.states[id(component)]
        if isinstance(argument, Value) and state.inputs.get(name) is argument.space:
            return
        for variable in leaves_of(argument, Variable):
            variable.refuse()
        unknown = next(leaves_of(argument, Unknown), None)
        if unknown is not None:
            calls_of = self.unknown_inputs.setdefault((id(component), name), [])
            calls_of.append(f"{state.path}.{method} gets what {unknown.source} returns")
            return
        space = to_space(argument)
        if name in state.inputs and same_features(state.inputs[name], space):
            return
        caller = f"{state.path}.{method}" + (f", called from {calls[-1]}" if calls else "")
        if name in state.inputs:
            raise BuildError(
                f"two callers pass different spaces as {name!r}",
                where=caller,
                received=f"{space!r}; before: {state.inputs[name]!r} from {state.callers[name]}",
                fix="pass the same feature space, or use two components",
            )
        state.inputs[name], state.callers[name] = space, caller
        self.complete_if_possible(component)

    def complete_if_possible(self, component: ComponentBase) -> None:
        state = self.states[id(component)]
        if state.complete or any(name not in state.inputs for name in state.needs):
            return
        before, self.creating = self.creating, component
        token = SESSION.set(self)
        try:
            component.create_variables(**{name: state.inputs[name] for name in state.needs})
        finally:
            self.creating = before
            SESSION.reset(token)
        state.complete = True
        self.completion.append(component)
        if type(component).create_variables is not ComponentBase.create_variables:
            state.referenced = component._referenced()
            for other in state.referenced:
                if not self.knows(other):
                    refuse_late(component.path)
            self.fingerprints.forget(component)

    def add_variable(self, variable: Variable) -> None:
        state = self.states[id(variable.owner)]
        if variable.name in [other.name for other in state.variables]:
            raise BuildError("two variables of one name", where=variable.path, fix="choose another name")
        state.variables.append(variable)
        self.feature_sizes.update(variable.shape)
