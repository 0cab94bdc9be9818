"""Stand-ins for all that a plan works with: what they do costs simulated time, and nothing else.

The operators that move items (gathers, queues, unions, rate limiters, channels of weights) stay the plan's own.
"""

from __future__ import annotations

import math
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from rlweave.errors import PlanError
from rlweave.flow.costs import Costs
from rlweave.flow.envelope import Envelope, Pulled
from rlweave.flow.gather import Gather
from rlweave.flow.learner import LearnerActor
from rlweave.flow.operator import Operator
from rlweave.flow.plan_graph import PlanGraph
from rlweave.flow.protocols import steps_of
from rlweave.flow.replay import StoreToBuffer, UpdatePriorities
from rlweave.flow.shards import ReplayShards
from rlweave.flow.simulated_engine import SimulatedEngine
from rlweave.flow.sources import ReplaySource, RolloutSource
from rlweave.flow.supervision import FailureRule
from rlweave.flow.training import LearnerOperator
from rlweave.flow.transforms import Buffering
from rlweave.flow.upstream import Notify, UpdateWeights

_REAL = (Buffering, LearnerOperator, StoreToBuffer, UpdatePriorities, UpdateWeights, Notify)
"""Operators whose work on an item moves items or messages; any other passes an item on as it is."""


class Rows:
    """Stands for an item: its number of rows, and its size.

    Args:
        num_steps: Rows.
        size: Bytes.
    """

    __slots__ = ("num_steps", "size")
    metrics: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, num_steps: int, size: int = 0) -> None:
        self.num_steps, self.size = num_steps, size

    def copy(self) -> Rows:
        """Itself: nothing changes it."""
        return self

    def __getitem__(self, policy: str) -> Rows:
        return self  # the part of one policy, by which costs are counted that were measured of such parts

    @staticmethod
    def concat(items: Sequence[Rows]) -> Rows:
        """As many rows as all of them."""
        return Rows(sum(map(steps_of, items)), sum(item.size for item in items))


def rows_of(payload: Any) -> int:
    """Rows in an item, or in a list of them."""
    return sum(map(rows_of, payload)) if isinstance(payload, list) else steps_of(payload)


class _Weights:
    """Stands for weights."""

    def __init__(self, size: int) -> None:
        self.size = size


class _Source:
    """Stands for the worker, or the shard, of a source, with the operators beside it.

    Args:
        engine: Whose time its work takes.
        operator: Name of the source.
        stages: Names of the operators beside it.
    """

    def __init__(self, engine: SimulatedEngine, operator: str, stages: Sequence[str]) -> None:
        self._engine, self.operator = engine, operator
        costs = engine.costs.of(operator)
        self._item = Rows(costs.rows, costs.bytes)
        self._seconds = sum(engine.costs.of(name).seconds(costs.rows) for name in (operator, *stages))

    def sample(self) -> Rows:
        """An item."""
        self._engine.spend(self._seconds, self.operator)
        return self._item

    def set_weights(self, weights: Any, version: int) -> None:
        """Takes weights over."""
        self._engine.spend(self._engine.costs.weights.write, self.operator)

    def insert(self, batch: Any) -> None:
        """Stores an item."""
        self._engine.spend(self._engine.costs.of(f"{self.operator}/insert").seconds(rows_of(batch)), self.operator)

    def update_priorities(self, indices: Any, priorities: Any) -> int:
        """Sets priorities, of as many rows as an item has."""
        costs = self._engine.costs.of(f"{self.operator}/update_priorities")
        self._engine.spend(costs.seconds(self._item.num_steps), self.operator)
        return 0

    def seconds_to_send(self, method: str) -> float:
        """Time of the driver to send what a method takes."""
        costs = self._engine.costs.operators.get(f"{self.operator}/{method}")
        return 0.0 if costs is None else costs.send

    def __getattr__(self, method: str) -> Callable[..., None]:
        """Takes any message."""
        if method.startswith("_") or method in ("episode_stats", "replacing", "shares_weights", "close"):
            raise AttributeError(method)
        return lambda *arguments: None


class _Learner:
    """Stands for a learner.

    Args:
        engine: Whose time its work takes.
        operator: Name of the operator that trains it; empty where its time is counted there.
        prioritizes: Whether it gives priorities.
    """

    def __init__(self, engine: SimulatedEngine, operator: str = "", prioritizes: bool = False) -> None:
        self._engine, self.operator, self._prioritizes = engine, operator, prioritizes

    def update(self, batch: Any) -> dict[str, Any]:
        """Trains."""
        rows = rows_of(batch)
        if self.operator:
            self._engine.spend(self._engine.costs.of(self.operator).seconds(rows), self.operator)
        return {"trained_samples": rows, **({"priorities": ((), ())} if self._prioritizes else {})}

    apply_gradients = update

    def seconds_to_send(self, method: str) -> float:
        """Time of the driver to send what a method takes."""
        trains = bool(self.operator) and method in ("update", "apply_gradients")
        return self._engine.costs.of(self.operator).send if trains else 0.0

    def get_weights(self) -> _Weights:
        """Its weights."""
        costs = self._engine.costs.weights
        self._engine.spend(costs.read, "weights")
        return _Weights(costs.bytes)


class _Memory:
    """Stands for a memory in the driver's process.

    Args:
        engine: Whose time its work takes.
        memory: What it stands for.
        operator: Name of the operator that samples it.
    """

    def __init__(self, engine: SimulatedEngine, memory: Any, operator: str) -> None:
        self._engine, self._operator = engine, operator
        costs = engine.costs.of(operator)
        self._item = Rows(costs.rows, costs.bytes)
        self.batch_size, self.capacity = costs.rows, getattr(memory, "capacity", None)
        self._stored = 0

    def insert(self, batch: Any) -> None:
        """Counts rows; the time is that of the operator."""
        self._stored += rows_of(batch)

    def ready(self, minimum: int) -> bool:
        """Whether so many rows were stored."""
        return self._stored >= minimum

    def sample(self) -> Rows:
        """A batch."""
        self._engine.spend(self._engine.costs.of(self._operator).seconds(self._item.num_steps), self._operator)
        return self._item

    def update_priorities(self, indices: Any, priorities: Any) -> None:
        """Nothing: the time is that of the operator."""


def needs_costs(node: Operator) -> bool:
    """Whether an operator works on items by itself, in place of only moving them."""
    return isinstance(node, RolloutSource | ReplaySource) or type(node).pull is Operator.pull


def stand_in(graph: PlanGraph, engine: SimulatedEngine) -> None:
    """Puts stand-ins in place of all that a plan, which has not been started, works with.

    Raises:
        PlanError: The costs of an operator are not known, or those of an operator that the plan does not have are.
    """
    _check_names(graph, engine.costs)
    replaced = _replacements(graph, engine)
    for node in graph.nodes:
        node.failure_rule = FailureRule(timeout=math.inf)
        if isinstance(node, Gather):
            _stand_in_for_sources(node, engine)
        for attribute in ("learner", "trains", "memory", "fills", "draws_from"):
            known = replaced.get(id(getattr(node, attribute, None)))
            if known is not None:
                setattr(node, attribute, known)
        if node.beside is None and type(node).pull is Operator.pull:
            node.work_as(_working(node, engine))
    for node in graph.nodes:
        for port in node.outputs:
            port.item_type = Any


def _check_names(graph: PlanGraph, costs: Costs) -> None:
    names = {node.name for node in graph.nodes}
    costs.check([node.name for node in graph.nodes if needs_costs(node)])
    for name in costs.operators:
        if name.partition("/")[0] not in names:
            raise PlanError(
                f"there are costs of {name!r}, which the plan does not have",
                where="costs",
                received=repr(name),
                fix=f"its operators are {', '.join(sorted(names))}",
            )


def _stand_in_for_sources(gather: Gather, engine: SimulatedEngine) -> None:
    source = gather.source
    stages = [stage.name for stage in gather.stages]
    gather.stages = []  # their time is counted at the worker
    group = source.group
    if any(hasattr(factory, "needs") for factory in group.factories):
        raise PlanError(
            "plans in a plan cannot be simulated",
            where=f"operator {source.name!r}",
            received="workers that run plans of their own",
            fix="simulate the inner plan",
        )
    group.factories = [lambda: _Source(engine, source.name, stages)] * len(group)


def _replacements(graph: PlanGraph, engine: SimulatedEngine) -> dict[int, Any]:
    """What stands in for each learner and memory, by the identity of that."""
    found: dict[int, Any] = {}
    prioritizes = any(isinstance(node, UpdatePriorities) for node in graph.nodes)
    for node in graph.nodes:
        learner = getattr(node, "learner", None)
        if isinstance(learner, LearnerActor):
            if node.trains is learner:
                learner.factory = partial(_Learner, engine, node.name, prioritizes)
        elif learner is not None:
            found.setdefault(id(learner), _Learner(engine, prioritizes=prioritizes))
        if isinstance(node, ReplaySource):
            found.setdefault(id(node.memory), _Memory(engine, node.memory, node.name))
    for node in graph.nodes:
        memory = node.fills
        if memory is not None and not isinstance(memory, ReplayShards) and id(memory) not in found:
            raise PlanError(
                "a memory that nothing samples cannot be simulated", where=f"operator {node.name!r}",
                received=type(memory).__name__, fix="give the plan a Replay of it",
            )  # fmt: skip
    return found


def _working(node: Operator, engine: SimulatedEngine) -> Callable[[Envelope], Pulled]:
    costs, own = engine.costs.of(node.name), node.process
    real = isinstance(node, _REAL)
    given = node.outputs[0].item_type
    gives_lists = (typing.get_origin(given) or given) in (list, Any)

    def process(envelope: Envelope) -> Pulled:
        rows = rows_of(envelope.payload)
        engine.spend(costs.seconds(rows), node.name)
        if real:
            return own(envelope)
        return envelope.carrying(Rows(rows)) if isinstance(envelope.payload, list) and not gives_lists else envelope

    return process
