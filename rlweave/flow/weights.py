"""The channel to workers: weights, put once per version and sent if newer, and messages, bounded for busy workers."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rlweave.errors import PlanError
from rlweave.flow.counters import LagHistogram
from rlweave.flow.engine import Actor, ActorLost, ArgumentFailed, Call, Clock, Engine, results_of
from rlweave.flow.learner import LearnerRecord
from rlweave.flow.workers import origin_of


class Told(NamedTuple):
    """A message: the receiver's method, the engine's handle on what it says, and the number of learner updates."""

    method: str
    handle: Any
    version: int


class Outbox:
    """Messages that are under way to an actor, and those that wait here because it is busy.

    An actor does one call after the other, so messages pile up at one that works on an item for long. At most
    ``capacity`` of a kind are under way; of the rest the newest ``capacity`` wait here, and go out as others arrive, or
    before the next item is asked of the actor.

    Args:
        engine: Where the actor lives.
        actor: The receiver.
    """

    def __init__(self, engine: Engine, actor: Actor) -> None:
        self._engine, self._actor = engine, actor
        self.under_way: list[tuple[str, Call]] = []
        self.waiting: deque[tuple[Told, int]] = deque()

    def add(self, told: Told, capacity: int) -> int:
        """Sends a message, or queues it.

        Returns:
            How many messages were left out for it: 0 or 1.
        """
        kept = sum(told.method == other.method for other, _ in self.waiting)
        if not kept and self._room(told.method, capacity):
            self._send(told)
            return 0
        self.waiting.append((told, capacity))
        if kept < capacity:
            return 0
        self.waiting.remove(next(entry for entry in self.waiting if entry[0].method == told.method))
        return 1

    def settle(self, done: set[int]) -> None:
        """Drops calls by their identities, and sends what there is room for now."""
        self.under_way = [(method, call) for method, call in self.under_way if id(call) not in done]
        still: deque[tuple[Told, int]] = deque()
        for told, capacity in self.waiting:
            if self._room(told.method, capacity):
                self._send(told)
            else:
                still.append((told, capacity))
        self.waiting = still

    def send_waiting(self) -> None:
        """Sends all waiting messages: the actor is about to be asked for an item, and gets them before."""
        while self.waiting:
            self._send(self.waiting.popleft()[0])

    def _room(self, method: str, capacity: int) -> bool:
        return sum(method == other for other, _ in self.under_way) < capacity

    def _send(self, told: Told) -> None:
        self.under_way.append((told.method, self._engine.call(self._actor, "notify", *told)))


class WeightChannel:
    """The channel of weights to one group of workers, from the learner (or learners) that train for it.

    Each learner's weights have a version of their own, the number of its updates; the channel's is their sum, which
    grows with each of them. The weight lag of an item for a learner is the number of updates that this learner made
    since the weights that the item was made with. At a gather, the learner of an item is not known yet: there it is the
    lag for the learner that is furthest ahead.

    Publishing costs nothing: a worker gets the newest weights when its next item is asked for, so a learner that makes
    eight updates between two items is read once, not eight times. One in an actor is asked for its weights at once, in
    time before it is busy with the next update; they stay with its actor until a worker gets them.

    Args:
        engine: Where the workers live.
        actors: The workers, in order.
        clock: Where the time is read.
        name: Name of the group's operator, for errors.
        makes_workers: Whether the plan makes the workers, and they are not objects of this process.
    """

    def __init__(
        self, engine: Engine, actors: Sequence[Actor], clock: Clock, name: str, makes_workers: bool = True
    ) -> None:
        self.learners: list[LearnerRecord] = []
        self.gather_lag = LagHistogram()
        """Lag of items when they leave their gather."""
        self.sent = [-1] * len(actors)
        """Version of the weights that each worker has, or will have when its calls so far are done."""
        self.sent_versions: list[tuple[int, ...]] = [()] * len(actors)
        """The same of each learner, where there are several."""
        self.restarted_at = -1
        """First version after a learner was restarted: older weights may be lost with its predecessor."""
        self._engine = engine
        self._actors = list(actors)
        self._published = [False] * len(actors)
        self.name, self.makes_workers = name, makes_workers
        self._unconfirmed: list[tuple[int, Call]] = []
        """Versions of weights that were sent without a request for items, with the calls."""
        self._error: Exception | None = None
        """The error of a call, until an operator can raise it under its name."""
        self._outboxes = [Outbox(engine, actor) for actor in self._actors]
        self._last_messages: dict[str, Told] = {}
        asked = [engine.call(actor, "shares_weights") for actor in self._actors]
        self._shares = [bool(shares) for shares in results_of(engine, clock, asked, f"the actors of {name!r}")]

    def tie(self, record: LearnerRecord) -> None:
        """Adds a learner whose weights these workers act on."""
        if record not in self.learners:
            self.learners.append(record)

    @property
    def version(self) -> int:
        """Number of updates that the learners of this channel made."""
        version = 0
        for record in self.learners:  # read for every item, where a generator takes its time
            version += record.updates
        return version

    def lag(self, version: int, versions: tuple[int, ...], learner: LearnerRecord | None = None) -> int:
        """The weight lag, in updates.

        Args:
            version: Of the weights.
            versions: Of each learner's, where there are several, as in an envelope.
            learner: The learner whose updates count; by default the one that is furthest ahead.
        """
        if len(self.learners) == 1:  # the usual case, and this runs for every item
            return self.learners[0].updates - version
        if not self.learners:
            return -version
        if version and not versions:
            return self.version - version  # of several: at most this, for items of checkpoints that do not say more
        seen = versions or (0,) * len(self.learners)
        lags = [record.updates - number for record, number in zip(self.learners, seen, strict=True)]
        return max(lags) if learner is None else lags[self.learners.index(learner)]

    def note_lag(self, version: int, versions: tuple[int, ...]) -> None:
        """Counts the weight lag of an item that leaves its gather."""
        learners = self.learners
        lag = learners[0].updates - version if len(learners) == 1 else self.lag(version, versions)
        counts = self.gather_lag.counts  # without a call more: this runs for every item
        counts[lag] = counts.get(lag, 0) + 1

    def publish(self, index: int) -> None:
        """Sends worker ``index`` the newest weights with its next request."""
        self._published[index] = True

    def publish_to_all(self) -> None:
        """Sends every worker the newest weights with its next request."""
        self._published = [True] * len(self._published)

    def due(self, index: int) -> tuple[Any, ...]:
        """The weights for the next request to worker ``index``: (version, weights...), or nothing.

        The version is a number, or a tuple of them, one for each learner, if there are several.

        The caller sends them: they count as sent. Messages that wait for the worker go out before.
        """
        outbox = self._outboxes[index]
        if outbox.waiting:
            outbox.send_waiting()
        return self._newer(index) if self._published[index] else ()

    def _newer(self, index: int) -> tuple[Any, ...]:
        versions = tuple(record.newest for record in self.learners)
        version = sum(versions)
        if self.lacks_learner():
            return ()  # until its learner is restarted, a worker goes on with what it has
        self._published[index] = False
        if not self.learners or self.sent[index] >= version:
            return ()
        several = len(versions) > 1
        self.sent[index], self.sent_versions[index] = version, versions if several else ()
        shares = self._shares[index]
        return (versions if several else version, *[None if shares else record.weights() for record in self.learners])

    def awaits_weights(self) -> bool:
        """Whether a learner in an actor has been asked for its weights, and has not given them yet."""
        return any(record.is_asked() for record in self.learners)

    def lacks_learner(self, look: bool = False) -> bool:
        """Whether a learner is dead and not restarted yet; ``look`` checks it now."""
        lost = [record.is_lost() if look else record.lost for record in self.learners]  # each of them is looked at
        return any(lost)

    def lost_learners(self) -> list[str]:
        """Names of the operators whose learners died before their weights could be read."""
        return [record.trainer for record in self.learners if record.lost_weights()]

    def awaits_learner(self, version: float) -> bool:
        """After weights could not be read: whether the reason is a learner that is to be restarted, or has been since.

        Then all workers get weights when the learner is there.

        Args:
            version: Of those weights.
        """
        return self.lacks_learner(look=True) or version < self.restarted_at

    def _send(self, index: int) -> list[tuple[int, Call]]:
        """Sends worker ``index`` the newest weights now, if it has older ones."""
        newer = self._newer(index)
        return [(self.sent[index], self._engine.call(self._actors[index], "take_weights", *newer))] if newer else []

    def send_all(self) -> None:
        """Sends every worker the newest weights now, if it has older ones, and the messages that wait for it.

        Raises:
            PlanError: Weights or a message that were sent before could not be given to a worker.
        """
        for index, outbox in enumerate(self._outboxes):
            outbox.send_waiting()
            self._unconfirmed += self._send(index)
        self.check()

    def check(self) -> None:
        """Checks whether weights and messages that were sent by themselves have arrived.

        Raises:
            PlanError: Weights or a message could not be given to a worker.
        """
        self._confirm()
        if self._error is not None:
            (_, error), self._error = origin_of(self._error), None
            raise PlanError(
                f"weights or a message for {self.name} failed: {type(error).__name__}: {error}",
                where=f"the way of weights and messages to {self.name}",
                received=f"weight version {self.version}",
                fix="see its cause, the original error of the learner or the worker",
            ) from error

    def tell_all(self, method: str, message: Any, version: int, capacity: int) -> int:
        """Sends a message to every worker: ``method(message, version)``.

        Args:
            method: Of the workers.
            message: What to say.
            version: Number of learner updates so far.
            capacity: Messages of this kind that may be under way to a worker, and that may wait for it.

        Returns:
            Messages that were left out because their worker is busy.

        Raises:
            Exception: What an earlier message raised, once.
        """
        self._confirm()
        told = self.remember(method, message, version)
        left_out = sum(outbox.add(told, capacity) for outbox in self._outboxes)
        self._confirm()  # where calls run at once, an error is that of this very message
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        return left_out

    def remember(self, method: str, message: Any, version: int) -> Told:
        """Stores a message as the last one of its kind, which new workers get."""
        told = self._last_messages[method] = Told(method, self._engine.put(message), version)
        return told

    def repeat_messages(self) -> None:
        """Sends workers the last message of each kind, after a plan was resumed: like restarted ones, they are new.

        Worker objects of this process are not: they were saved and restored with the messages they had.
        """
        for outbox in self._outboxes if self.makes_workers else ():
            self._tell_last(outbox)

    def _tell_last(self, outbox: Outbox) -> None:
        for told in self._last_messages.values():
            outbox.add(told, 1)

    def replace(self, index: int, actor: Actor) -> None:
        """Gives a new actor the newest weights, and the last message of each kind.

        Raises:
            Exception: What came of giving it the weights, where that is known at once.
        """
        self._actors[index] = actor
        self._outboxes[index] = Outbox(self._engine, actor)
        self.sent[index], self.sent_versions[index] = -1, ()
        for version, call in self._send(index):
            if not self._engine.wait([call], 0):
                self._unconfirmed.append((version, call))
            elif (error := self._error_of(call, version)) is not None:
                raise error
        self._tell_last(self._outboxes[index])

    def _confirm(self) -> None:
        """Drops calls that are done, and keeps the first error."""
        versions = {id(call): version for version, call in self._unconfirmed}
        calls = [call for _, call in self._unconfirmed]
        calls += [call for outbox in self._outboxes for _, call in outbox.under_way]
        if not calls:
            return
        done = self._engine.wait(calls, 0)
        finished = {id(call) for call in done}
        self._unconfirmed = [(version, call) for version, call in self._unconfirmed if id(call) not in finished]
        for outbox in self._outboxes:
            outbox.settle(finished)
        for call in done:
            error = self._error_of(call, versions.get(id(call), 0))
            self._error = self._error or error

    def _error_of(self, call: Call, version: int) -> Exception | None:
        """The error of a call that no other operator handles."""
        try:
            call.result()
        except ActorLost:
            return None  # its gather finds out with the next item, and handles it
        except ArgumentFailed as error:
            return None if self.awaits_learner(version) else error
        except Exception as error:
            return error
        return None

    def resend(self) -> None:
        """Sends every worker the weights of a restarted learner with its next request."""
        self._forget_sent()
        self.restarted_at = self.version
        self.publish_to_all()
        for record in self.learners:
            record.offer()

    def state_dict(self) -> dict[str, Any]:
        """The versions that workers have, the workers that are to get newer ones, and cached weights."""
        return {
            "sent": list(self.sent),
            "versions": [list(versions) for versions in self.sent_versions],
            "published": list(self._published),
            "offers": [record.offer_state() for record in self.learners],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over a state; workers have been given the weights that it lists."""
        self.sent = [int(version) for version in state["sent"]]
        self.sent_versions = [tuple(map(int, versions)) for versions in state["versions"]]
        self._published = [bool(published) for published in state["published"]]
        for record, offer in zip(self.learners, state["offers"], strict=True):
            record.load_offer(offer)
        for actor, version, versions in zip(self._actors, self.sent, self.sent_versions, strict=True):
            if version >= 0:
                self._engine.call(actor, "hold_weights", versions or version)

    def forget(self) -> None:
        """Sends weights to all workers again: the learners' weights were replaced, as by loading a checkpoint."""
        self._forget_sent()
        for record in self.learners:
            record.reread()

    def _forget_sent(self) -> None:
        self.sent, self.sent_versions = [-1] * len(self._actors), [()] * len(self._actors)
