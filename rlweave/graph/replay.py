"""Replay: an API method that one build calls again with equal spaces gives its nodes again, without being run again.

Tracing a Q network costs a hundred times the copy of its nodes, and an update traces it for three batches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rlweave.graph.composition import ComponentBase
from rlweave.graph.ir import Call, Node, Structure, Value
from rlweave.tree import leaves_of, tree_map


class Recording:
    """What one call of an API method emitted.

    Args:
        nodes: In order.
        inputs: The values among its arguments.
        result: What it returned.
    """

    __slots__ = ("_closed", "inputs", "nodes", "result")

    def __init__(self, nodes: Sequence[Node], inputs: Sequence[Value], result: Structure) -> None:
        self.nodes, self.inputs, self.result = nodes, inputs, result
        self._closed: bool | None = None

    @property
    def closed(self) -> bool:
        """Whether it is made of plain calls that depend on the arguments alone; found out when it is first asked."""
        if self._closed is None:
            made = {id(value) for value in self.inputs}
            self._closed = len(made) == len(self.inputs) and self._is_closed(made)
        return self._closed

    def _is_closed(self, made: set[int]) -> bool:
        for node in self.nodes:
            # whether a relabelled value shares memory depends on where the caller has it from
            if not isinstance(node, Call) or node.substitution or node.relabels:
                return False
            if not made.issuperset(map(id, node.inputs())):
                return False
            made.update(map(id, node.values()))
        return made.issuperset(map(id, leaves_of(self.result, Value)))

    def replay(self, emit: Callable[[Node], None], inputs: Sequence[Value]) -> Structure:
        """Emits the nodes again for other values of the same spaces, and returns the result."""
        values = {id(old): new for old, new in zip(self.inputs, inputs, strict=True)}

        def renewed(leaf: Any) -> Any:
            return values.get(id(leaf), leaf) if type(leaf) is Value else leaf

        def made(leaf: Any) -> Any:
            if type(leaf) is not Value:
                return leaf
            values[id(leaf)] = value = Value(leaf.space, node, leaf.key, leaf.name)
            return value

        for old in self.nodes:
            assert isinstance(old, Call)  # a closed recording has no others
            node = Call(
                label=old.label,
                component=old.component,
                function=old.function,
                args=tuple([renewed(a) if type(a) is Value else tree_map(renewed, a) for a in old.args]),
                kwargs=tree_map(renewed, old.kwargs) if old.kwargs else {},
                reads=old.reads,
                writes=old.writes,
                row_writes=old.row_writes,
                host=old.host,
                differentiable=old.differentiable,
                aliases=old.aliases,
                alias_variables=old.alias_variables,
                device=old.device,
                plain=old.plain,
                op=old.op,
                mixes_batch=old.mixes_batch,
                declared_spaces=old.declared_spaces,
                aliased_writes=old.aliased_writes,
                integer_writes=old.integer_writes,
            )
            node.result = made(old.result) if type(old.result) is Value else tree_map(made, old.result)
            emit(node)
        return tree_map(renewed, self.result)


def recording_key(
    component: ComponentBase, function: Callable[..., Any], completed: int, arguments: dict[str, Any]
) -> Any:
    """The key of a call, or None where it has odd arguments.

    Args:
        component: Whose method is called.
        function: The undecorated method.
        completed: How many components are complete.
        arguments: By parameter.
    """
    try:
        key = (id(component), function, completed, *map(_frozen, arguments.items()))
        hash(key)
    except TypeError:
        return None
    return key


def _frozen(item: Any) -> Any:
    """A space in place of each value, the type beside each constant; TypeError for what is neither."""
    kind = type(item)
    if kind is Value:
        return item.space
    if kind is dict:
        return ("dict", *map(_frozen, item.items()))
    if kind is tuple:
        return tuple(map(_frozen, item))
    if kind in (str, int, float, bool, type(None)):
        return kind, item
    raise TypeError(kind.__name__)
