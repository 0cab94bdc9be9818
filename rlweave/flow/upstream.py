"""Operators that send something upstream: weights, messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar

from rlweave.errors import ConfigError, PlanError, nearest
from rlweave.flow.context import Context
from rlweave.flow.counters import Every
from rlweave.flow.envelope import Envelope, Pulled, stands_for
from rlweave.flow.item_types import Signature, check_arguments, positive
from rlweave.flow.learner import LearnerActor
from rlweave.flow.operator import Graph, Operator, Port
from rlweave.flow.protocols import Learner, TakesWeights, require, steps_of
from rlweave.flow.workers import WorkerGroup, Workers

Item = TypeVar("Item")


class Notify(Operator):
    """Sends a message upstream for every n-th item, and passes the item on. Behind ``Stream.notify``.

    The receiver's method is called as ``method(message, version)``, where version is the number of learner updates
    so far. Busy workers get the newest messages; dropped ones are counted as drops.
    """

    at_source: ClassVar[bool] = False
    state = ("_seen", "_last")

    def __init__(
        self,
        target: Any,
        method: str,
        every: int = 1,
        message: Callable[[Any], Any] | None = None,
        capacity: int = 8,
    ) -> None:
        if message is not None:
            check_arguments(message, 1, "operator 'notify'", "what makes a message")
        self.target, self.method, self.message = target, method, message
        self.sends_to = target if isinstance(target, WorkerGroup) else None
        self.every = positive("every", every, "notify")
        self.capacity = positive("capacity", capacity, "notify")
        self._seen = 0
        self._last: tuple[Any, int] | None = None
        """The last message to workers, and its version."""
        known = list(target.kinds()) if isinstance(target, WorkerGroup) else [target]
        for kind in known:
            if kind is not Any and not callable(getattr(kind, method, None)):
                owner = kind if isinstance(kind, type) else type(kind)
                raise PlanError(
                    f"notify() names a method that {owner.__name__} lacks",
                    where="operator 'notify'",
                    received=f"{method!r}",
                    fix=nearest(method, [name for name in dir(owner) if not name.startswith("_")]),
                )

    def check_place(self, upstream: Port, at_workers: bool) -> None:
        """A reference to an item is no message."""
        if self.message is None and stands_for(upstream.item_type):
            raise PlanError(
                "a reference to an item is no message",
                where=f"operators {upstream.node.name!r} and 'notify'",
                received=upstream.describe(),
                fix="give message=, a function that makes the message of the reference, as ItemReference.fetch",
            )

    def __call__(self, item: Item) -> Item:
        """Sends the message if it is time."""
        self._seen += 1
        if self._seen % self.every == 0:
            self._send(item if self.message is None else self.message(item))
        return item

    def start(self, context: Context) -> None:
        """Finds the actors."""
        if isinstance(self.target, WorkerGroup):
            self._channel = context.channel(self.target)

    def sends(self) -> list[tuple[Any, str, str, str]]:
        """Its messages; an object of this process gets each at once."""
        edge = (str(self.capacity), "drop_oldest") if self.sends_to is not None else ("1", "block")
        return [(self.target, self.method, *edge)]

    def _send(self, message: Any) -> None:
        version = self._context.version()
        if isinstance(self.target, WorkerGroup):
            self._last = message, version
            for _ in range(self._channel.tell_all(self.method, message, version, self.capacity)):
                self._counters.drop(self.name)
        else:
            getattr(self.target, self.method)(message, version)

    def note(self) -> str:
        """The receiver, and the interval."""
        receiver = "workers" if isinstance(self.target, WorkerGroup) else type(self.target).__name__
        return f"{receiver}.{self.method}, every={self.every}"

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over the items seen, and the last message to workers, which new workers get as well."""
        super().load_state_dict(state)
        if self._last is not None:  # an object of this process is saved by its owner
            self._channel.remember(self.method, *self._last)


class UpdateWeights(Operator):
    """Gives the worker that made an item the learner's newest weights with its next item; passes the item on.

    Weights are read from the learner once per version, however many workers get them.

    Args:
        learner: Whose weights; one in an actor is trained elsewhere in the plan.
        workers: The workers that act on them.
        every_steps: Environment steps of one worker between two times that it gets weights; 0 means with every item.
    """

    at_source: ClassVar[bool] = False
    state = ("_steps", "_every")

    def __init__(self, learner: Learner | LearnerActor, workers: Workers, every_steps: int = 0) -> None:
        if not isinstance(learner, LearnerActor):
            require(learner, Learner, "update_weights", "learner")
        self.learner = learner
        self.sends_to = self._workers = WorkerGroup.of(workers, "update_weights", TakesWeights)
        self.every_steps = every_steps
        self._every = [Every(every_steps) for _ in range(len(self._workers))]
        self._steps = [0] * len(self._workers)

    def signature(self) -> Signature:
        """What goes in comes out."""
        return Signature(Item, Item)

    def check(self, graph: Graph) -> None:
        """A learner in an actor lives as long as the operator that trains it."""
        if isinstance(self.learner, LearnerActor) and not graph.trains(self.learner):
            raise PlanError(
                f"the learner of {self.name!r} does not live in this plan",
                where=f"operator {self.name!r}, argument 'learner'",
                received="a LearnerActor that no operator trains",
                fix="give it the LearnerActor of TrainOneStep",
            )

    def start(self, context: Context) -> None:
        """Connects the learner with the weight channel of the workers."""
        self._channel = context.channel(self._workers)
        self._channel.tie(context.learner(self.learner))

    def process(self, envelope: Envelope) -> Pulled:
        """Sends weights to the workers that made the item."""
        origins = dict.fromkeys(source for source, _ in envelope.origins)
        steps = steps_of(envelope.payload) // max(1, len(origins))
        for source in origins:
            channel, index = self._context.worker_of(source) or (None, 0)
            if channel is not self._channel:
                continue
            self._steps[index] += steps
            if not self.every_steps or self._every[index](self._steps[index]):
                self._channel.publish(index)
        return envelope

    def note(self) -> str:
        """Settings."""
        return f"every_steps={self.every_steps}" if self.every_steps else ""


def receiver_of(node: Operator) -> Any:
    """The receiver of ``notify`` through a stream: the workers or the memory at its beginning.

    Raises:
        ConfigError: If the stream begins at several places, or at something that takes no messages.
    """
    while len(node.inputs) == 1:
        node = node.inputs[0].node
    target = node.group or node.draws_from
    if target is None:
        raise ConfigError(
            "notify() needs a stream with one beginning",
            where=f"operator {node.name!r}",
            received=f"{len(node.inputs)} inputs",
            fix="give the stream of one ParallelRollouts or Replay, a group of workers, or an object",
        )
    return target
