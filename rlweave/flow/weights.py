"""Weight versions: who has which weights, put once per version, sent only when newer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlweave.flow.counters import LagHistogram
from rlweave.flow.engine import Actor, Call, Engine
from rlweave.flow.protocols import Learner


class LearnerRecord:
    """A learner of a plan and its number of updates, which is the version of its weights."""

    def __init__(self, learner: Learner, engine: Engine) -> None:
        self.learner = learner
        self.updates = 0
        self._engine = engine
        self._put_version = -1
        self._handle: Any = None

    def weights(self) -> Any:
        """The engine's handle on the newest weights; read from the learner once per version."""
        if self._put_version != self.updates:
            self._handle = self._engine.put(self.learner.get_weights())
            self._put_version = self.updates
        return self._handle

    def reread(self) -> None:
        """Reads the weights again next time, because they were replaced without an update."""
        self._put_version = -1


class WeightChannel:
    """The way of weights to one group of workers, from the learner (or learners) that train for it.

    The version of the channel is the number of updates of its learners. An item's weight lag is the channel's version
    less the version of the weights it was made with.

    Publishing costs nothing: a worker gets the newest weights when its next item is asked for, so a learner that makes
    eight updates between two items is read once, not eight times.
    """

    def __init__(self, engine: Engine, actors: Sequence[Actor]) -> None:
        self.learners: list[LearnerRecord] = []
        self.gather_lag = LagHistogram()
        """Lag of items when they leave their gather."""
        self._engine = engine
        self._actors = list(actors)
        self._sent = [-1] * len(actors)
        self._published = [False] * len(actors)
        self._unconfirmed: list[Call] = []
        self._shares = [bool(engine_result(engine, actor, "shares_weights")) for actor in actors]

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

    def deliver(self, index: int) -> None:
        """Sends worker ``index`` what was published since its last item; to be called before asking for the next."""
        if self._published[index]:
            self.send(index)

    def send(self, index: int) -> None:
        """Sends worker ``index`` the newest weights now, if it has older ones."""
        version = self.version
        self._published[index] = False
        if not self.learners or self._sent[index] >= version:
            return
        for record in self.learners:
            weights = None if self._shares[index] else record.weights()
            self._unconfirmed.append(self._engine.call(self._actors[index], "set_weights", weights, version))
        self._sent[index] = version
        self._confirm()

    def send_all(self) -> None:
        """Sends every worker the newest weights now, if it has older ones."""
        for index in range(len(self._actors)):
            self.send(index)

    def tell_all(self, method: str, message: Any, version: int) -> None:
        """Sends a message to every worker: ``method(message, version)``."""
        handle = self._engine.put(message)
        for actor in self._actors:
            self._unconfirmed.append(self._engine.call(actor, "notify", method, handle, version))
        self._confirm()

    def _confirm(self) -> None:
        """Raises the error of a call that failed, and forgets those that are done."""
        done = self._engine.wait(self._unconfirmed, 0)
        for call in done:
            call.result()
        finished = {id(call) for call in done}
        self._unconfirmed = [call for call in self._unconfirmed if id(call) not in finished]

    def forget(self) -> None:
        """Sends to everybody again: the learners' weights were replaced, as by loading a checkpoint."""
        self._sent = [-1] * len(self._actors)
        for record in self.learners:
            record.reread()


def engine_result(engine: Engine, actor: Actor, method: str, *arguments: Any) -> Any:
    """Calls an actor and waits for the result: for the few calls that have nothing to run beside them."""
    call = engine.call(actor, method, *arguments)
    engine.wait([call], None)
    return call.result()
