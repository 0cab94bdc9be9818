"""Groups of workers, the actor around each of them, and the requests and items that a gather keeps."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from rlweave.errors import PlanError
from rlweave.flow.codec import saved_as
from rlweave.flow.engine import ArgumentFailed, Call, LocalCall
from rlweave.flow.envelope import ABSORBED, END, AbsorbedAt, Envelope, SourceItem, apart, referenced
from rlweave.flow.item_types import check_arguments, signature_of
from rlweave.flow.protocols import Episode, Source, require, steps_of
from rlweave.flow.resources import Resources


class SourceFailure(Exception):  # noqa: N818  (it is not an error that users see: its cause is)
    """An item failed at a stage of a source actor; the error itself is the cause."""

    def __init__(self, stage: str) -> None:
        super().__init__(stage)
        self.stage = stage


def origin_of(error: Exception) -> tuple[str, Exception]:
    """The stage of a source actor that a failed call comes from, and the error itself."""
    cause = error.__cause__ if isinstance(error, SourceFailure | ArgumentFailed) else error
    stage = error.stage if isinstance(error, SourceFailure) else "sample"
    return "set_weights" if isinstance(error, ArgumentFailed) else stage, cause if isinstance(
        cause, Exception
    ) else error


@saved_as("answer")
class Answer(NamedTuple):
    """The answer to a worker's item: a method of the worker, its argument, and the number of learner updates so far."""

    method: str
    message: Any
    version: int


class SourceActor:
    """The actor around one worker, with its own copies of the operators of ``par_for_each``.

    Args:
        make_worker: Makes the worker.
        stages: ``(name, operator)`` in order; each item goes through them before it leaves.
        replaces: How many workers failed in this one's place before; told to a worker that has ``replacing(number)``.
        with_episodes: Whether finished episodes travel with the items.
        count: Items that it makes per call.
    """

    #: Version of the weights before the first ones arrive.
    first_version: ClassVar[int] = 0
    #: Whether the worker may have episodes.
    has_episodes: ClassVar[bool] = True

    def __init__(
        self,
        make_worker: Callable[[], Any],
        stages: Sequence[tuple[str, Any]],
        replaces: int = 0,
        with_episodes: bool = False,
        count: int = 1,
    ) -> None:
        self.worker = make_worker()
        self.owns_worker = not isinstance(make_worker, _Existing)
        self.weight_version: int | tuple[int, ...] = self.first_version
        self.with_episodes = with_episodes and self.has_episodes and hasattr(self.worker, "episode_stats")
        self.count = count
        self.stages = [(name, copy.deepcopy(operator)) for name, operator in stages]
        self._failed: SourceFailure | None = None
        for _, operator in self.stages:
            operator.bind(self.worker)
        if replaces:
            replacing = getattr(self.worker, "replacing", None)
            if replacing is not None:
                replacing(replaces)

    def next_items(self, *given: Any) -> list[SourceItem]:
        """Takes over an answer and newer weights, if there are any, and makes ``count`` items.

        Args:
            given: The `Answer` to the last item, if it gets one; then, if there are newer weights, their version (of
                each learner's, if there are several), and those of each learner.

        Returns:
            The items. Fewer come if the worker has no more: then the last one's payload is END.

        Raises:
            SourceFailure: If the first item fails. If a later one does, those before it are delivered, and the failure
                is the answer to the next call.
        """
        if self._failed is not None:
            failed, self._failed = self._failed, None
            raise failed
        answer = None
        if given and type(given[0]) is Answer:
            answer, *given = given  # type: ignore[assignment]
        if given:
            try:
                self.take_weights(*given)
            except Exception as error:
                raise SourceFailure("set_weights") from error
        if answer is not None:
            try:
                self.notify(*answer)
            except Exception as error:
                raise SourceFailure("reply") from error
        items: list[SourceItem] = []
        for _ in range(self.count):
            try:
                items.append(self._next_item())
            except SourceFailure as failed:
                if not items:
                    raise
                self._failed = failed
                break
            if items[-1][0] is END:
                break
        return items

    def next_apart(self, *newer: Any) -> tuple[Any, ...]:
        """As ``next_items``, each value by itself: the heads of the items for the plan, then items, or their pieces."""
        pieces = self.stages[-1][1].pieces if self.stages else 1
        return apart(self.next_items(*newer), 1 + self.count * pieces)

    def _next_item(self) -> SourceItem:
        """Samples, then applies the operators; an END payload means that the worker has no more."""
        stage, payload, num_steps = "sample", None, 0
        try:
            try:
                payload = self.worker.sample()
                num_steps = steps_of(payload)
                for number, (name, operator) in enumerate(self.stages):
                    stage = name
                    payload = operator(payload)
                    if payload is ABSORBED:
                        payload = AbsorbedAt(number)
                        break
            except StopIteration:
                if stage != "sample":
                    raise
                payload = END
            episodes = self.episode_stats() if self.with_episodes else ()
        except Exception as error:
            raise SourceFailure(stage) from error
        return payload, num_steps, self.weight_version, episodes

    def shares_weights(self) -> bool:
        """Whether the worker acts on the learner's own weights."""
        return bool(getattr(self.worker, "shares_weights", False))

    def take_weights(self, version: int | tuple[int, ...], *weights: Any) -> None:
        """Gives the worker newer weights of each learner, with the version of each."""
        self.weight_version = version
        if not self.shares_weights():
            versions = (version,) if isinstance(version, int) else version
            for learned, number in zip(weights, versions, strict=True):
                self.worker.set_weights(learned, number)

    def hold_weights(self, version: int | tuple[int, ...]) -> None:
        """Notes which weights the worker has: it was restored with them."""
        self.weight_version = version

    def episode_stats(self) -> Sequence[Episode]:
        """The worker's episodes since the last call, if it has any."""
        told: Sequence[Episode] = getattr(self.worker, "episode_stats", tuple)()
        return told

    def notify(self, method: str, message: Any, version: int) -> None:
        """Passes a message on to the worker."""
        getattr(self.worker, method)(message, version)

    def ask(self, method: str, *arguments: Any) -> Any:
        """Calls any method of the worker."""
        return getattr(self.worker, method)(*arguments)

    def stage_state(self, name: str) -> dict[str, Any]:
        """The state of its copy of an operator."""
        state: dict[str, Any] = self._stage(name).state_dict()
        return state

    def load_stage_state(self, name: str, state: Mapping[str, Any]) -> None:
        """Gives its copy of an operator a state."""
        self._stage(name).load_state_dict(state)

    def _stage(self, name: str) -> Any:
        return next(operator for stage, operator in self.stages if stage == name)

    def close(self) -> None:
        """Closes the worker if it can be closed and was made here; a worker object belongs to its maker."""
        close = getattr(self.worker, "close", None)
        if close is not None and self.owns_worker:
            close()


class WorkerGroup:
    """Workers that an engine makes when the plan starts, one per factory.

    On the local engine a plain sequence of worker objects will do in place of a group. Factories are needed
    where workers live in other processes, or are to be restarted after a failure.

    Args:
        factories: One callable without arguments per worker. Its class, its attribute ``makes``, or else its return
            annotation says what kind of worker it makes. One that makes a plan in a plan (`NestedPlan`) also has
            ``resources``, what its actor holds, ``needs()``, what the inner plan's actors hold, and ``capacity()``.
        resources: What each worker holds on a cluster while it lives; by default what its factory says, or one core.
    """

    actor_class: type[SourceActor] = SourceActor
    """The factory of each worker's actor."""

    def __init__(self, factories: Sequence[Callable[[], Any]], resources: Resources | None = None) -> None:
        self.factories = list(factories)
        for factory in self.factories:
            check_arguments(factory, 0, "WorkerGroup", "a factory")
        said = getattr(self.factories[0], "resources", None) if self.factories else None
        self.resources = resources or (said if isinstance(said, Resources) else Resources())
        self.key: tuple[int, ...] = (id(self),)

    @classmethod
    def of(cls, workers: Workers, operator: str, protocol: type = Source) -> WorkerGroup:
        """The group itself, or a group of worker objects that exist already (equal for equal objects).

        Args:
            workers: The workers.
            operator: Name of the operator that asks, for errors.
            protocol: What each of them has to be.

        Raises:
            PlanError: If there are no workers, or one lacks a method of the protocol.
        """
        if isinstance(workers, WorkerGroup):
            group = workers
        else:
            if not isinstance(workers, Sequence):
                raise PlanError(
                    f"{operator!r} needs a list of workers or a WorkerGroup",
                    where=f"operator {operator!r}, argument 'workers'",
                    received=type(workers).__name__,
                    fix="give a list, also for a single worker",
                )
            group = cls([_Existing(worker) for worker in workers])
            group.key = tuple(id(worker) for worker in workers)
        if not group.factories:
            raise PlanError(
                f"{operator!r} got no workers", where=f"operator {operator!r}", received="[]", fix="give at least one"
            )
        for kind in group.kinds():
            if kind is not Any:
                require(kind, protocol, operator, "workers")
        return group

    def __len__(self) -> int:
        """Number of workers."""
        return len(self.factories)

    def inner_needs(self) -> list[tuple[int, Resources]]:
        """Resources of the actors of inner plans: how many, and what each of them holds."""
        makers: list[Any] = [factory for factory in self.factories if hasattr(factory, "needs")]
        return [need for maker in makers for need in maker.needs()]

    def inner_capacity(self) -> Mapping[str, float] | None:
        """Capacity of the engine of these inner plans; None where nothing is counted."""
        makers: list[Any] = [factory for factory in self.factories if hasattr(factory, "capacity")]
        return next((maker.capacity() for maker in makers if maker.needs()), None)

    def exists(self) -> bool:
        """Whether a worker exists already, so that it can neither live in another process nor be restarted."""
        return any(isinstance(factory, _Existing) for factory in self.factories)

    def kinds(self) -> Iterator[Any]:
        """The known kind of each worker: the object, its class, or Any."""
        for factory in self.factories:
            if isinstance(factory, _Existing):
                yield factory.worker
            else:
                yield getattr(factory, "makes", None) or signature_of(factory).gives

    def take_weights(self) -> bool:
        """Whether weights may go to its workers: not to those whose class says ``takes_weights = False``."""
        return any(getattr(kind, "takes_weights", True) for kind in self.kinds())

    def item_types(self) -> list[Any]:
        """Item type of each worker's ``sample``, as far as it is annotated."""
        return [Any if kind is Any else signature_of(_sample_of(kind)).gives for kind in self.kinds()]


Workers = WorkerGroup | Sequence[Source]
"""Workers as operators take them: a group, or a plain sequence of worker objects."""


def _sample_of(kind: Any) -> Callable[..., Any]:
    sample: Callable[..., Any] = kind.sample
    return sample


class _Existing:
    """A factory for a worker that exists already."""

    def __init__(self, worker: Source) -> None:
        self.worker = worker

    def __call__(self) -> Source:
        return self.worker


@saved_as("requested")
class Requested(NamedTuple):
    """A started call for items: its source, weights, time and round.

    Where several learners train for the source, ``versions`` has the version of each, as in an envelope. Where items
    stay where they are made, ``payloads`` has a call for each of them.
    """

    actor: int
    call: Call
    version: int
    asked_at: float
    round: int
    versions: tuple[int, ...] = ()
    payloads: Sequence[Call] = ()

    def state_dict(self) -> dict[str, Any]:
        """The request with the result of its call, which is done. Raises what the call raised."""
        items: list[SourceItem] = self.call.result()
        if self.payloads:
            items = referenced(items, self.payloads)
        fields = {"actor": self.actor, "version": self.version, "round": self.round, "versions": self.versions}
        return {**fields, "items": items}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Requested:
        """The call that ``state_dict`` described, which is done."""
        call = LocalCall(state["items"], None)
        return cls(state["actor"], call, state["version"], 0.0, state["round"], state["versions"])


@saved_as("arrival")
class Arrival(NamedTuple):
    """An item that has arrived and was not delivered yet.

    Attributes:
        envelope: The item; its payload may be ABSORBED.
        num_steps: Environment steps it took.
        actor: Number of its source.
        last: Whether it is the last one of its call.
        episodes: Episodes that came with it.
    """

    envelope: Envelope
    num_steps: int
    actor: int
    last: bool
    episodes: Sequence[Episode]
