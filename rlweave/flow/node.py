"""The nodes of a plan's graph: what every operator has in common, and the rules by which outputs meet inputs."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from rlweave.errors import PlanError
from rlweave.flow.counters import Timer
from rlweave.flow.engine import Call
from rlweave.flow.envelope import Envelope, Pulled
from rlweave.flow.failure_rule import FailureRule
from rlweave.flow.item_reference import stands_for
from rlweave.flow.item_types import type_name

if TYPE_CHECKING:
    from rlweave.flow.context import Context
    from rlweave.flow.plan_graph import PlanGraph


Place = Literal["sources", "driver", "learner", "elsewhere"]
"""Where an operator runs: beside the workers, in the driver's process, in a learner's actor, or out of the plan."""


def snake_case(name: str) -> str:
    """A class name as an operator name.

    >>> snake_case("TrainOneStep")
    'train_one_step'
    """
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().strip("_<>")


class Port:
    """One output of a node. It has one consumer at most: whoever wants two, splits.

    Attributes:
        node: The node it belongs to.
        index: Its number among that node's outputs.
        item_type: Type of the items that come out.
        parallel: Whether the items still live at several sources, so that a gather is needed.
        consumer: The node that takes the items, once there is one.
    """

    def __init__(self, node: Node, index: int, item_type: Any, parallel: bool = False) -> None:
        self.node, self.index, self.item_type, self.parallel = node, index, item_type, parallel
        self.consumer: Node | None = None

    def describe(self) -> str:
        """Name of the operator, number of the output where there are several, and the item type."""
        which = f" output {self.index}" if len(self.node.outputs) > 1 else ""
        return f"{self.node.name!r}{which}, which gives {type_name(self.item_type)}"


_creation = itertools.count()


class Node:
    """One operator in a plan's graph. Composing makes nodes; nothing runs before the plan starts.

    Attributes:
        base_name: Name before the plan makes it unique.
        name: Unique name, final once the plan is made.
        order: Number in order of creation; inputs exist before their consumer, so this order is topological.
        inputs: Ports that it takes items from.
        outputs: Its own ports.
        timer: Items worked on and seconds taken.
        ended: Whether it has answered END.
        failure_rule: What becomes of the plan when the operator fails; None stops it.
    """

    capacity: int = 1
    """Items that the edges out of this node can hold."""
    in_flight: int = 1
    """Items that the edge into this node can hold."""
    policy = "block"
    """What happens when they are full."""
    on_error_choices: tuple[str, ...] = ()
    """What ``on_error`` may say about it; nothing for a node that cannot fail on an item."""
    takes: Any = Any
    gathers_up = False
    """Whether it makes one item of many, so that it may take many and give none for long."""
    place: Place = "driver"
    """Where it runs."""

    def __init__(self, base_name: str, inputs: Sequence[Port]) -> None:
        self.base_name = self.name = base_name
        self.named_by_user = False
        self.order = next(_creation)
        self.inputs = list(inputs)
        self.outputs: list[Port] = []
        self.timer = Timer()
        self.ended = False
        self.failure_rule: FailureRule | None = None
        self.gates: list[Callable[[], bool]] = []
        """All must be open before this node takes another item (a rate limiter holds back inserts by one)."""

    def connect(self) -> None:
        """Makes this node the consumer of its inputs.

        Raises:
            PlanError: If an input has a consumer already, or is listed twice.
        """
        for port in self.inputs:
            if port.consumer is not None:
                raise PlanError(
                    f"the items of {port.node.name!r} are used twice",
                    where=f"operators {port.consumer.name!r} and {self.name!r}",
                    received=f"{port.describe()}, as input of both",
                    fix=f"use split(2, capacity) on {port.node.name!r} and give each of them one branch",
                )
            port.consumer = self

    def prepare(self, context: Context) -> None:
        """Says what the actors need to know when they are made; called once, before any actor exists."""

    def start(self, context: Context) -> None:
        """Gets ready to be pulled; called once, sources first."""

    def pull(self, output: int = 0) -> Pulled:
        """The next item of an output, or a signal. Moves at most one item; never waits."""
        raise NotImplementedError

    def check(self, graph: PlanGraph) -> None:
        """Raises PlanError for what can be known to be wrong only when the whole plan is there."""

    def waits_on(self) -> Iterator[Call]:
        """Calls whose completion lets this node go on."""
        return iter(())

    def wakes_at(self) -> float | None:
        """When the node can go on although no call is done; None if it cannot."""
        return None

    def may_wait(self) -> bool:
        """Whether it is of a kind that waits for calls or times."""
        kind = type(self)
        return kind.waits_on is not Node.waits_on or kind.wakes_at is not Node.wakes_at

    def drain(self) -> None:
        """Waits until none of its calls is on the way, for a checkpoint."""

    def obstacle(self) -> str:
        """Why the node is not ready, for the message of a stalled plan; empty if it is."""
        return ""

    def measures(self) -> dict[str, float]:
        """Numbers about its present state that belong into a report."""
        return {}

    def placement(self) -> str:
        """Where it runs, for ``explain``."""
        return "driver"

    def note(self) -> str:
        """Settings worth a line in ``explain``."""
        return ""

    def progress(self, seconds: float) -> str:
        """What it has done since the plan started, for pictures; empty if that is nothing.

        Args:
            seconds: How long the plan has been running.
        """
        done = self.timer.items
        rate = f" ({done / seconds:,.0f}/s)" if seconds > 0 else ""
        parts = [f"{done:,} items{rate}"] if done else []
        parts += [f"{name.replace('_', ' ')} {value:g}" for name, value in self.measures().items()]
        return ", ".join(parts)

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps of this node, beside its timer: JSON-able data and arrays."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over a state."""

    def puller(self, port: Port) -> Callable[[], Pulled]:
        """A function that pulls from an input port."""
        source, index = port.node, port.index
        if len(source.outputs) == 1:
            return source.pull
        return lambda: source.pull(index)

    def gates_open(self) -> bool:
        """Whether this node may take another item."""
        return all(gate() for gate in self.gates)


def failure(operator: str, envelope: Envelope, error: Exception) -> PlanError:
    """The error for an operator that failed on an item; raise it from ``error``."""
    said = (str(error).splitlines() or [""])[0]
    return PlanError(
        f"operator {operator!r} failed: {type(error).__name__}: {said}",
        where=f"operator {operator!r}",
        received=envelope.describe(),
        fix="see its cause, the original error; the item named here is the one that was being processed",
    )


def wrong_type(producer: Port, consumer: str, takes: Any) -> PlanError:
    """The error for items that do not fit."""
    fix = f"put an operator between them that makes {type_name(takes)} of {type_name(producer.item_type)}, "
    fix += "or correct the annotations"
    if stands_for(producer.item_type):
        fix = "leave by_reference=True out of the gather, or put for_each(ItemReference.fetch) between them"
    return PlanError(
        f"the items of {producer.node.name!r} do not fit {consumer!r}",
        where=f"operators {producer.node.name!r} and {consumer!r}",
        received=f"{producer.describe()}; {consumer!r} takes {type_name(takes)}",
        fix=fix,
    )


def gather_missing(producer: Port, consumer: str) -> PlanError:
    """The error for an operator on a stream that still is at its sources."""
    return PlanError(
        f"{consumer!r} needs one stream, but the items of {producer.node.name!r} still are at their sources",
        where=f"operators {producer.node.name!r} and {consumer!r}",
        received=f"{producer.describe()}, at several sources in parallel",
        fix="put gather_sync() or gather_async() between them, or use par_for_each to work at the sources",
    )
