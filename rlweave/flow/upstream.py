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
from rlweave.flow.sources import RolloutSource
from rlweave.flow.workers import Answer, WorkerGroup, Workers

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
        check_method(target, method, "notify")

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


class Reply(Operator):
    """Answers the workers that made an item, and passes it on. Behind ``Stream.reply``.

    A worker is asked for its next item only once its last one has been answered, and gets the answer right before, by
    ``method(message, version)``, where version is the number of learner updates so far.

    Args:
        workers: The workers.
        method: Name of their method that takes an answer.
        message: Makes the answer of an item, or the list of answers of an item that was merged.
    """

    at_source: ClassVar[bool] = False

    def __init__(self, workers: WorkerGroup, method: str, message: Callable[[Any], Any] | None = None) -> None:
        if message is not None:
            check_arguments(message, 1, "operator 'reply'", "what makes an answer")
        check_method(workers, method, "reply")
        self.sends_to = self._workers = workers
        self.method, self.message = method, message

    def signature(self) -> Signature:
        """What goes in comes out."""
        return Signature(Item, Item)

    def check(self, graph: Graph) -> None:
        """A worker makes an item, gets one answer, and only then is asked for another item."""
        self._source: RolloutSource = graph.source_of(self._workers)
        problem = ""
        if self._source.fragments > 1:
            problem = f"fragments={self._source.fragments}: a worker makes several items per call, without an answer"
        for node in graph.nodes:
            ahead = getattr(node, "num_async", 1) if getattr(node, "source", None) is self._source else 1
            if ahead > 1:
                problem = f"num_async={ahead} of {node.name!r}: a worker is asked for items ahead, without an answer"
            if getattr(node, "source", None) is self._source and getattr(node, "max_lag", None) is not None:
                problem = f"max_lag of {node.name!r}: items that are dropped there get no answer"
            if isinstance(node, Reply) and node is not self and node._workers.key == self._workers.key:
                problem = f"{node.name!r} answers them as well"
        if problem:
            raise PlanError(
                f"the workers that {self.name!r} answers get one answer to each item, before the next",
                where=f"operator {self.name!r}",
                received=problem,
                fix="leave fragments, num_async, max_lag and further replies out",
            )
        self._source.await_answers()

    def start(self, context: Context) -> None:
        """Finds the workers."""
        self._channel = context.channel(self._workers)

    def process(self, envelope: Envelope) -> Pulled:
        """Answers the workers whose items are in this one."""
        message = envelope.payload if self.message is None else self.message(envelope.payload)
        sources = list(dict.fromkeys(source for source, _ in envelope.origins))
        answers = message if envelope.parts else [message]
        if len(answers) != len(sources):
            raise ValueError(f"{len(answers)} answers for the items of {len(sources)} workers: {', '.join(sources)}")
        version = self._context.version()
        for source, answer in zip(sources, answers, strict=True):
            channel, index = self._context.worker_of(source) or (None, 0)
            if channel is not self._channel:
                raise ValueError(f"{source} is none of the workers that are answered")
            self._source.answer(index, Answer(self.method, answer, version))
        return envelope

    def sends(self) -> list[tuple[Any, str, str, str]]:
        """Its answers: one to each worker."""
        return [(self._workers, self.method, "1", "block")]

    def note(self) -> str:
        """The method that takes an answer."""
        return f"workers.{self.method}"


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


def check_method(target: Any, method: str, operator: str) -> None:
    """Checks that workers, or an object, have the method that takes a message, as far as they are known.

    Raises:
        PlanError: One lacks it; names the nearest one.
    """
    for kind in list(target.kinds()) if isinstance(target, WorkerGroup) else [target]:
        if kind is not Any and not callable(getattr(kind, method, None)):
            owner = kind if isinstance(kind, type) else type(kind)
            raise PlanError(
                f"{operator}() names a method that {owner.__name__} lacks",
                where=f"operator {operator!r}",
                received=f"{method!r}",
                fix=nearest(method, [name for name in dir(owner) if not name.startswith("_")]),
            )


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
