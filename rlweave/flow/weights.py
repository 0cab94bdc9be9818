"""Weight versions: who has which weights, put once per version, sent only when newer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlweave.flow.calls import results_of
from rlweave.flow.clock import Clock
from rlweave.flow.counters import LagHistogram
from rlweave.flow.engine import Actor, ActorLost, ArgumentFailed, Call, Engine
from rlweave.flow.learner_record import LearnerRecord
from rlweave.flow.outbox import Outbox, Told


class WeightChannel:
    """The way of weights to one group of workers, from the learner (or learners) that train for it.

    The version of the channel is the number of updates of its learners. An item's weight lag is the channel's version
    less the version of the weights it was made with.

    Publishing costs nothing: a worker gets the newest weights when its next item is asked for, so a learner that makes
    eight updates between two items is read once, not eight times.

    Args:
        engine: Where the workers live.
        actors: The workers, in order.
        clock: Where the time is read.
        name: Name of the group's operator, for errors.
    """

    def __init__(self, engine: Engine, actors: Sequence[Actor], clock: Clock, name: str) -> None:
        self.learners: list[LearnerRecord] = []
        self.gather_lag = LagHistogram()
        """Lag of items when they leave their gather."""
        self.sent = [-1] * len(actors)
        """Version of the weights that each worker has, or will have when its calls so far are done."""
        self._engine = engine
        self._actors = list(actors)
        self._published = [False] * len(actors)
        self._unconfirmed: list[Call] = []
        self._outboxes = [Outbox(engine, actor) for actor in self._actors]
        self._last_messages: dict[str, Told] = {}
        asked = [engine.call(actor, "shares_weights") for actor in self._actors]
        self._shares = [bool(shares) for shares in results_of(engine, clock, asked, f"the actors of {name!r}")]

    def tie(self, record: LearnerRecord) -> None:
        """Makes a learner one of those whose weights these workers act on."""
        if record not in self.learners:
            self.learners.append(record)

    @property
    def version(self) -> int:
        """Number of updates that the learners of this channel made."""
        return sum(record.updates for record in self.learners)

    def publish(self, index: int) -> None:
        """Lets worker ``index`` have the newest weights with the next item that is asked of it."""
        self._published[index] = True

    def publish_to_all(self) -> None:
        """Lets every worker have the newest weights with its next item."""
        self._published = [True] * len(self._published)

    def due(self, index: int) -> tuple[Any, ...]:
        """What worker ``index`` is to get with its next item: (version, weights...), or nothing.

        Who asks passes it on: it counts as sent. Messages that wait for the worker go out before.
        """
        self._outboxes[index].send_waiting()
        return self._newer(index) if self._published[index] else ()

    def _newer(self, index: int) -> tuple[Any, ...]:
        version = self.version
        if any(record.lost for record in self.learners):
            return ()  # until its learner is made anew, a worker goes on with what it has
        self._published[index] = False
        if not self.learners or self.sent[index] >= version:
            return ()
        self.sent[index] = version
        shares = self._shares[index]
        return (version, *[None if shares else record.weights() for record in self.learners])

    def awaits_weights(self) -> bool:
        """Whether a learner in an actor has been asked for its weights, and has not given them yet."""
        return any(record.is_asked() for record in self.learners)

    def awaits_learner(self) -> bool:
        """After weights could not be had: whether that is because a learner is to be made anew.

        Then all workers get weights when the learner is there.
        """
        lost = [record.is_lost() for record in self.learners]  # each of them is looked at
        return any(lost)

    def send(self, index: int) -> None:
        """Sends worker ``index`` the newest weights now, if it has older ones."""
        version, *weights = self._newer(index) or (0,)
        for learned in weights:
            self._unconfirmed.append(self._engine.call(self._actors[index], "set_weights", learned, version))
        self._confirm()

    def send_all(self) -> None:
        """Sends every worker the newest weights now, if it has older ones, and the messages that wait for it."""
        for index, outbox in enumerate(self._outboxes):
            outbox.send_waiting()
            self.send(index)

    def tell_all(self, method: str, message: Any, version: int, capacity: int) -> int:
        """Sends a message to every worker: ``method(message, version)``.

        Args:
            method: Of the workers.
            message: What to say.
            version: Number of learner updates so far.
            capacity: Messages of this kind that may be under way to a worker, and that may wait for it.

        Returns:
            Messages that were left out because their worker is busy.
        """
        self._confirm()
        told = Told(method, self._engine.put(message), version)
        self._last_messages[method] = told
        left_out = sum(outbox.add(told, capacity) for outbox in self._outboxes)
        self._confirm()  # where calls run at once, an error is that of this very message
        return left_out

    def replace(self, index: int, actor: Actor) -> None:
        """Gives a new actor what its predecessor knew: the newest weights, and the last message of each kind."""
        self._actors[index] = actor
        self._outboxes[index] = Outbox(self._engine, actor)
        self.sent[index] = -1
        self.send(index)
        for told in self._last_messages.values():
            self._outboxes[index].add(told, 1)

    def _confirm(self) -> None:
        """Raises the error of a call that failed, and forgets those that are done."""
        calls = self._unconfirmed + [call for outbox in self._outboxes for _, call in outbox.under_way]
        if not calls:
            return
        done = self._engine.wait(calls, 0)
        for call in done:
            try:
                call.result()
            except ActorLost:
                continue  # its gather finds out with its next item, and knows what to do
            except ArgumentFailed:
                if not self.awaits_learner():
                    raise
        finished = {id(call) for call in done}
        self._unconfirmed = [call for call in self._unconfirmed if id(call) not in finished]
        for outbox in self._outboxes:
            outbox.settle(finished)

    def resend(self) -> None:
        """Lets every worker have the weights of a learner that was made anew with its next item."""
        self.sent = [-1] * len(self._actors)
        self.publish_to_all()

    def forget(self) -> None:
        """Sends to everybody again: the learners' weights were replaced, as by loading a checkpoint."""
        self.sent = [-1] * len(self._actors)
        for record in self.learners:
            record.reread()
