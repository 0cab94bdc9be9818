"""A replay memory in several shards, each an actor, as in Ape-X (Horgan et al. 2018), and a plan's record of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from rlweave.errors import PlanError
from rlweave.flow.counters import Counters
from rlweave.flow.engine import (
    ANSWER_SECONDS,
    Actor,
    ActorLost,
    ArgumentFailed,
    Call,
    Clock,
    Engine,
    answers_of,
    wait_for_all,
)
from rlweave.flow.envelope import UNKNOWN_VERSION, argument_of, has_rows
from rlweave.flow.item_types import positive
from rlweave.flow.protocols import require, steps_of
from rlweave.flow.resources import Resources
from rlweave.flow.workers import SourceActor, WorkerGroup

CALLS_AHEAD = 8
"""Items (and messages with priorities) that may be under way to one shard; more wait at their operator."""


class Shard(Protocol):
    """The protocol of a shard of a replay memory.

    Two methods are optional: ``replacing(number)``, told to a shard that stands in for as many failed ones before its
    first item; ``state_dict()`` and ``load_state_dict(state)``, for checkpoints that hold the memory.
    """

    def insert(self, batch: Any) -> None:
        """Stores a batch. The memory copies what it keeps."""
        ...

    def sample(self) -> Any:
        """A batch to train on, of the ``batch_size`` of its `ReplayShards`."""
        ...

    def update_priorities(self, indices: Any, priorities: Any) -> int:
        """Sets priorities of sampled items, and returns how many of these it does not hold any more."""
        ...


class ShardActor(SourceActor):
    """The actor around one shard: a source of samples that also stores batches."""

    first_version = UNKNOWN_VERSION  # the versions in a memory are mixed
    has_episodes = False

    def shares_weights(self) -> bool:
        """A memory takes no weights."""
        return True

    def insert(self, batch: Any) -> None:
        """Stores a batch."""
        self.worker.insert(batch)

    def update_priorities(self, indices: Any, priorities: Any) -> int:
        """Sets priorities; returns how many of the items are gone."""
        return int(self.worker.update_priorities(indices, priorities) or 0)


class ReplayShards(WorkerGroup):
    """A replay memory in parts, which an engine makes when the plan starts; for `ParallelReplay`.

    `StoreToBuffer` gives each batch to the next shard in turn; `UpdatePriorities` answers the shard a sample came from.

    Args:
        factories: One callable without arguments per shard; see `Shard` for what it makes.
        batch_size: Samples in each batch that a shard serves.
        capacity: Environment steps that all shards together hold; None if nobody knows.
        resources: What each shard holds on a cluster while it lives; by default nothing, since it mostly waits.
    """

    actor_class = ShardActor

    def __init__(
        self,
        factories: Sequence[Callable[[], Any]],
        batch_size: int,
        capacity: int | None = None,
        resources: Resources | None = None,
    ) -> None:
        super().__init__(factories, resources or Resources(cpus=0.0))
        if not self.factories:
            raise PlanError(
                "a memory needs shards", where="ReplayShards", received="no factories", fix="give at least one"
            )
        self.batch_size = positive("batch_size", batch_size, "replay_shards")
        self.capacity = None if capacity is None else positive("capacity", capacity, "replay_shards")
        for kind in self.kinds():
            if kind is not Any:
                require(kind, Shard, "replay_shards", "shard")


class ShardRecord:
    """A running plan's record of the shards of one memory: which are alive, what each holds, which calls are under way.

    Args:
        shards: The memory.
        engine: Where the shards live.
        clock: Where the time is read.
        actors: The plan's handles on them; a restarted shard takes the place of the one that failed.
        counters: The plan's.
    """

    def __init__(
        self, shards: ReplayShards, engine: Engine, clock: Clock, actors: list[Actor], counters: Counters
    ) -> None:
        self.shards, self.actors, self._counters = shards, actors, counters
        self.stored = [0] * len(actors)
        """Environment steps that were given to each present shard."""
        self.filled = [False] * len(actors)
        """Whether a shard was given an item with rows: the first steps of a window give none."""
        self.alive = [True] * len(actors)
        self._found_dead: list[int] = []
        self.lost_steps = 0
        """Environment steps lost with shards that failed, or before their shard could fetch them."""
        self.late_priorities = 0
        """Priorities that came when their items had been overwritten, or lost with their shard."""
        self._engine, self._clock = engine, clock
        self._calls: list[list[Call]] = [[] for _ in actors]
        self._given: dict[int, tuple[int, str]] = {}
        """By the identity of the call that stores an item: its environment steps, and the operator that sent it."""
        self._heard_of = [0.0] * len(actors)
        """When each shard last finished a call, or began to have one."""
        self._error: Exception | None = None
        """The error of a call, until an operator can raise it under its name."""
        self._turn = 0

    # -- what shards hold ---------------------------------------------------------------------------------------

    def held(self, index: int) -> int:
        """Environment steps in a shard."""
        capacity = self.shards.capacity
        return self.stored[index] if capacity is None else min(self.stored[index], -(-capacity // len(self.actors)))

    def stop(self, index: int) -> None:
        """Notes that a shard is lost, with all it held."""
        if self.alive[index]:
            self.lost_steps += self.held(index)
        for call in self._calls[index]:
            self._given.pop(id(call), None)
        self.alive[index], self.filled[index], self.stored[index], self._calls[index] = False, False, 0, []

    def started(self, index: int) -> None:
        """Notes that a new, empty shard is in its place."""
        self.alive[index] = True

    @property
    def found_dead(self) -> list[int]:
        """Dead shards that ``take_dead`` has not returned yet."""
        return list(self._found_dead)

    def take_dead(self, timeout: float) -> list[int]:
        """Shards that a call found dead, or that have not answered a call for so many seconds."""
        found, self._found_dead = self._found_dead, []
        now = self._clock.now()
        for index, calls in enumerate(self._calls):
            if calls and now - self._heard_of[index] > timeout:
                self._confirm(index)
                if self._calls[index] and now - self._heard_of[index] > timeout:
                    found.append(index)
        return found

    # -- calls --------------------------------------------------------------------------------------------------

    def may_store(self) -> bool:
        """Whether there is a shard that takes the next item (or an error to be raised with it)."""
        index = self._next()
        if index is None:
            return self._error is not None
        if len(self._calls[index]) >= CALLS_AHEAD:
            self._confirm(index)
        return self._error is not None or (self.alive[index] and len(self._calls[index]) < CALLS_AHEAD)

    def store(self, batch: Any, operator: str) -> None:
        """Sends an item to the next shard in turn; ``may_store`` must hold. Raises the error of an earlier call.

        Args:
            batch: The item, or a reference to it.
            operator: Name of the operator that sends it.
        """
        self._raise_error()
        index = self._next()
        assert index is not None
        self._turn = (index + 1) % len(self.actors)
        steps = steps_of(batch)
        self.stored[index] += steps
        self.filled[index] |= has_rows(batch)
        self._call(index, "insert", argument_of(batch), given=(steps, operator))

    def update_priorities(self, index: int, indices: Any, priorities: Any) -> None:
        """Sends a shard priorities of items that were sampled from it. Raises the error of an earlier call."""
        self._raise_error()
        if self.alive[index]:
            self._call(index, "update_priorities", indices, priorities)
        else:
            self.late_priorities += len(indices)

    def waits_on(self) -> Iterator[Call]:
        """The calls that hold up the next item; none if there is room, or no shard."""
        index = self._next()
        if index is not None and len(self._calls[index]) >= CALLS_AHEAD:
            yield from self._calls[index]

    def _next(self) -> int | None:
        count = len(self.actors)
        return next((i for k in range(count) if self.alive[i := (self._turn + k) % count]), None)

    def _call(self, index: int, method: str, *arguments: Any, given: tuple[int, str] = (0, "")) -> None:
        calls = self._calls[index]
        if not calls:
            self._heard_of[index] = self._clock.now()
        calls.append(self._engine.call(self.actors[index], method, *arguments))
        self._given[id(calls[-1])] = given
        if self._engine.in_process or len(calls) >= CALLS_AHEAD:
            self._confirm(index)
            self._raise_error()

    def _raise_error(self) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def _confirm(self, index: int) -> None:
        """Drops calls that are done; keeps the first error."""
        calls = self._calls[index]
        if not calls:
            return
        done = self._engine.wait(calls, 0)
        if done:
            self._heard_of[index] = self._clock.now()
            self._engine.fetch(done)
        finished = {id(call) for call in done}
        self._calls[index] = [call for call in calls if id(call) not in finished]
        for call, (steps, operator) in [(call, self._given.pop(id(call))) for call in done]:
            try:
                self.late_priorities += call.result() or 0
            except ActorLost:
                if self.alive[index]:
                    self.stop(index)
                    self._found_dead.append(index)
                return
            except ArgumentFailed:  # the item is lost with its worker, and the shard is unchanged
                self.stored[index] -= steps
                self.lost_steps += steps
                self._counters.lose(operator, 1)
            except Exception as error:
                self._error = error

    # -- checkpoints --------------------------------------------------------------------------------------------

    def state_dict(self, memory: bool, operator: str) -> dict[str, Any]:
        """Counters and the next turn, and with ``memory`` the state of every living shard.

        A shard that turns out to be dead is left out, and its contents count as lost.
        """
        self._settle()
        live = [index for index, lives in enumerate(self.alive) if lives]
        states = self._ask([(index, "state_dict") for index in live], operator, lost=True) if memory else []
        kept = {index: state for index, state in zip(live, states, strict=False) if state is not None}
        for index in live if memory else []:
            if index not in kept:
                self.stop(index)
                self._found_dead.append(index)
        return {
            "turn": self._turn,
            "held": [self.held(index) for index in range(len(self.actors))],
            "stored": list(self.stored),
            "filled": list(self.filled),
            "lost_steps": self.lost_steps,
            "late_priorities": self.late_priorities,
            "shards": {str(index): state for index, state in kept.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any], operator: str) -> None:
        """Takes over a state. Shards that are not in it stay empty, and their contents count as lost."""
        self._turn = int(state["turn"])
        self.lost_steps, self.late_priorities = int(state["lost_steps"]), int(state["late_priorities"])
        kept = {int(index): saved for index, saved in state["shards"].items()}
        for index, (stored, held) in enumerate(zip(state["stored"], state["held"], strict=True)):
            self.stored[index] = int(stored) if index in kept else 0
            self.filled[index] = bool(state["filled"][index]) and index in kept
            self.lost_steps += 0 if index in kept else int(held)
        self._ask([(index, "load_state_dict", saved) for index, saved in kept.items()], operator)

    def _settle(self) -> None:
        """Waits until every item that was given to a shard is in it.

        Raises:
            PlanError: If that takes too long.
        """
        for index in range(len(self.actors)):
            wait_for_all(self._engine, self._clock, self._calls[index], ANSWER_SECONDS)
            self._confirm(index)
            if self._error is not None:
                raise PlanError(
                    f"a shard of a replay memory failed: {type(self._error).__name__}: {self._error}",
                    where=f"shard {index}, before a checkpoint",
                    fix="see its cause, the original error",
                ) from self._error
            if self._calls[index]:
                raise PlanError(
                    "a shard of a replay memory does not answer",
                    where=f"shard {index}, before a checkpoint",
                    received=f"{len(self._calls[index])} calls that are not done after {ANSWER_SECONDS:g} seconds",
                    fix="see whether it hangs; on_error('replace', timeout=...) replaces it while the plan runs",
                )

    def _ask(self, questions: Sequence[tuple[Any, ...]], operator: str, lost: bool = False) -> list[Any]:
        calls = [self._engine.call(self.actors[index], "ask", *question) for index, *question in questions]
        names = [f"{operator}/{index}" for index, *_ in questions]
        method = questions[0][1] if questions else ""
        return answers_of(self._engine, self._clock, calls, operator, method, names, lost)
