"""An engine in simulated time: calls of actors run at once, and are done when their costs have passed.

Time passes where work is done (`spend`) and where the driver waits. Processes of one machine share its cores evenly.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from rlweave.errors import PlanError
from rlweave.flow.costs import Costs
from rlweave.flow.engine import Call, value_of
from rlweave.flow.resources import Resources


class Events:
    """What is to happen, in order of time; events of the same moment in the order in which they were planned."""

    def __init__(self) -> None:
        self.now = 0.0
        """Seconds."""
        self._planned: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def at(self, time: float, happens: Callable[[], None]) -> None:
        """Plans an event."""
        heapq.heappush(self._planned, (time, next(self._numbers), happens))

    def run(self, until: Callable[[], bool], limit: float = math.inf) -> None:
        """Lets time pass until something holds, at most to ``limit``, or until nothing more will happen."""
        while not until():
            if not self._planned or self._planned[0][0] > limit:
                self.now = max(self.now, limit) if limit < math.inf else self.now
                return
            time, _, happens = heapq.heappop(self._planned)
            self.now = max(self.now, time)
            happens()


class SimulatedClock:
    """The time of a simulation."""

    def __init__(self, events: Events) -> None:
        self._events = events

    def now(self) -> float:
        """Seconds since the beginning."""
        return self._events.now

    def sleep(self, seconds: float) -> None:
        """Lets time pass."""
        self._events.run(lambda: False, self._events.now + seconds)


class Machine:
    """Cores that the processes of a machine share evenly, and its connection with other machines.

    Args:
        events: Of the simulation.
        cores: Number of cores; each process uses one at most.
    """

    def __init__(self, events: Events, cores: float) -> None:
        self.cores, self.held = cores, 0.0
        self.sends_until = self.receives_until = 0.0
        """When what is under way has left, and has come."""
        self.core_seconds = self.sending_seconds = self.receiving_seconds = 0.0
        """Work done here, and time in which something was sent and received."""
        self._events = events
        self._working: list[tuple[float, int, Callable[[], None]]] = []
        """What each process has done when its work is finished, on a scale of work done per process."""
        self._done_each = self._since = 0.0
        self._numbers = itertools.count()
        self._epoch = 0

    def work(self, seconds: float, finished: Callable[[], None]) -> None:
        """Begins work of so many seconds of a core.

        Args:
            seconds: How long it takes with a core of its own.
            finished: Called when it is done.
        """
        self._catch_up()
        self.core_seconds += seconds
        heapq.heappush(self._working, (self._done_each + seconds, next(self._numbers), finished))
        self._plan()

    def _rate(self) -> float:
        return min(1.0, self.cores / len(self._working)) if self._working else 0.0

    def _catch_up(self) -> None:
        now = self._events.now
        self._done_each += (now - self._since) * self._rate()
        self._since = now

    def _plan(self) -> None:
        self._epoch += 1
        if self._working:
            left = max(0.0, self._working[0][0] - self._done_each)
            self._events.at(self._events.now + left / self._rate(), partial(self._first_done, self._epoch))

    def _first_done(self, epoch: int) -> None:
        if epoch != self._epoch:
            return  # others have begun or finished meanwhile
        self._catch_up()
        done, _, finished = heapq.heappop(self._working)
        self._done_each = max(done, self._done_each)
        self._plan()
        finished()


class Shipped:
    """A value that lies on a machine and can be sent to others, once to each.

    Args:
        value: The value.
        size: Bytes.
        machine: Where it is.
    """

    def __init__(self, value: Any, size: int, machine: Machine) -> None:
        self.value, self.size, self.machine = value, size, machine
        self.there_at: dict[int, float] = {id(machine): 0.0}
        """When it is on each machine."""


class SimulatedCall:
    """A call whose result is known, and comes in simulated time.

    Args:
        engine: Where it was made.
        shipped: The result.
        error: What the method raised.
    """

    __slots__ = ("_engine", "dependents", "done", "error", "shipped", "watched")
    is_call = True

    def __init__(self, engine: SimulatedEngine, shipped: Shipped, error: Exception | None) -> None:
        self._engine, self.shipped, self.error = engine, shipped, error
        self.done = self.watched = False
        self.dependents: list[Process] = []
        """Processes whose next call needs the result."""

    def result(self) -> Any:
        """The result, for which the driver works."""
        self._engine.spend(self._engine.costs.messages.result, "messages")
        if self.error is not None:
            raise self.error
        return self.shipped.value


class _Work:
    """A call at its process: what it needs, how long it takes, who is told."""

    __slots__ = ("asked_at", "calls", "needs", "seconds")

    def __init__(self, asked_at: float, seconds: float, needs: list[Any]) -> None:
        self.asked_at, self.seconds, self.needs = asked_at, seconds, needs
        self.calls: list[SimulatedCall] = []


class Process:
    """An actor: it works off its calls one by one.

    Args:
        made: The object.
        machine: Where it is.
    """

    def __init__(self, made: Any, machine: Machine) -> None:
        self.made, self.machine = made, machine
        self.waiting: deque[_Work] = deque()
        self.busy = False
        self._busy_seconds = 0.0
        self._since: float | None = None

    def begin(self, now: float) -> None:
        """Notes that it works."""
        self._since = now

    def finish(self, now: float) -> None:
        """Notes that it has worked off a call."""
        self._busy_seconds, self._since, self.busy = self.busy_for(now), None, False

    def busy_for(self, now: float) -> float:
        """Time in which it worked, on a core or waiting for one."""
        return self._busy_seconds + (0.0 if self._since is None else now - self._since)


class SimulatedEngine:
    """Actors as processes of a simulated cluster; see `rlweave.flow.Engine`.

    The driver is on the first machine. Actors are placed like Ray does it: on the first machine that has the cores
    that they hold; where there is none, there is one machine more.

    Args:
        costs: What calls and messages cost.
        cores: Of each machine.
    """

    name = "simulated"
    in_process = False

    def __init__(self, costs: Costs, cores: float) -> None:
        self.costs, self.cores = costs, cores
        self.events = Events()
        self.clock = SimulatedClock(self.events)
        self.machines = [Machine(self.events, cores)]
        self.processes: list[Process] = []
        self.driver_seconds: dict[str, float] = {}
        """Time that the driver was busy, by what with."""
        self._work: _Work | None = None
        self._woken = False
        self._room = 0

    # -- time ---------------------------------------------------------------------------------------------------

    def spend(self, seconds: float, what: str) -> None:
        """Does work: of the call that is being made, else of the driver, for which time passes.

        Args:
            seconds: How long it takes with a core of its own.
            what: What it is done for.
        """
        if self._work is not None:
            self._work.seconds += seconds
        elif seconds > 0:
            finished: list[bool] = []
            began = self.events.now
            self.machines[0].work(seconds, lambda: finished.append(True))
            self.events.run(lambda: bool(finished))
            self.driver_seconds[what] = self.driver_seconds.get(what, 0.0) + self.events.now - began

    # -- the operations of an engine ----------------------------------------------------------------------------

    def create_actors(
        self, factories: Sequence[Callable[[], Any]], resources: Resources | None = None
    ) -> list[Process]:
        """Makes the objects and places them.

        Raises:
            PlanError: One holds more cores than a machine has.
        """
        made = [Process(factory(), self._machine_for(resources or Resources())) for factory in factories]
        self.processes += made
        return made

    def _machine_for(self, resources: Resources) -> Machine:
        if resources.cpus > self.cores:
            raise PlanError(
                "an actor holds more cores than a machine has",
                where="cores",
                received=f"{resources.cpus:g} cores for an actor, machines of {self.cores:g}",
                fix=f"--cores {math.ceil(resources.cpus)}",
            )
        if not resources.cpus:
            return self.machines[0]
        while self.machines[self._room].held + resources.cpus > self.cores:
            self._room += 1
            if self._room == len(self.machines):
                self.machines.append(Machine(self.events, self.cores))
        machine = self.machines[self._room]
        machine.held += resources.cpus
        return machine

    def call(self, actor: Process, method: str, *arguments: Any) -> SimulatedCall:
        """Runs the method now; the result comes when the process has worked off the call."""
        return self._start(actor, method, arguments, None)[0]

    def call_in_parts(self, actor: Process, method: str, parts: int, *arguments: Any) -> list[SimulatedCall]:
        """The same for each value of the tuple that the method returns. Only the first one comes to the driver."""
        return self._start(actor, method, arguments, parts)

    def _start(self, actor: Process, method: str, arguments: Sequence[Any], parts: int | None) -> list[SimulatedCall]:
        sends = getattr(getattr(actor.made, "worker", actor.made), "seconds_to_send", _nothing)
        self.spend(self.costs.messages.call + sends(method), "messages")
        needs = [argument for argument in arguments if isinstance(argument, SimulatedCall | Shipped)]
        work = self._work = _Work(self.events.now, self.costs.messages.actor, needs)
        error: Exception | None = None
        value: Any = None
        try:
            value = getattr(actor.made, method)(*map(_value, arguments))
        except Exception as raised:
            error = raised
        finally:
            self._work = None
        values = [value] if parts is None else list(value) if error is None else [None] * parts
        for one in values:
            work.calls.append(SimulatedCall(self, Shipped(one, bytes_of(one), actor.machine), error))
        actor.waiting.append(work)
        self._begin_next(actor)
        return work.calls

    def _begin_next(self, process: Process) -> None:
        if process.busy or not process.waiting:
            return
        work = process.waiting[0]
        late = [need for need in work.needs if isinstance(need, SimulatedCall) and not need.done]
        if late:
            late[0].dependents.append(process)
            return
        process.waiting.popleft()
        process.busy = True
        there = [self._send(getattr(need, "shipped", need), process.machine) for need in work.needs]
        begins = max([self.events.now, work.asked_at + self._latency(process.machine), *there])
        self.events.at(begins, partial(self._begin, process, work))

    def _begin(self, process: Process, work: _Work) -> None:
        process.begin(self.events.now)
        process.machine.work(work.seconds, partial(self._finished, process, work))

    def _finished(self, process: Process, work: _Work) -> None:
        process.finish(self.events.now)
        there = self._send(work.calls[0].shipped, self.machines[0])
        self.events.at(there + self._latency(process.machine), partial(self._deliver, work))
        self._begin_next(process)

    def _deliver(self, work: _Work) -> None:
        for call in work.calls:
            call.done = True
            self._woken |= call.watched
            for process in call.dependents:
                self._begin_next(process)
            call.dependents.clear()

    def _latency(self, machine: Machine) -> float:
        apart = 0.0 if machine is self.machines[0] else self.costs.network.latency
        return self.costs.messages.latency + apart

    def _send(self, shipped: Shipped, machine: Machine) -> float:
        """When a value is on a machine, to which it is sent if it is not there yet."""
        known = shipped.there_at.get(id(machine))
        if known is not None:
            return max(known, self.events.now)
        origin = shipped.machine
        begins = max(self.events.now, origin.sends_until, machine.receives_until)
        seconds = shipped.size / self.costs.network.bytes_per_second
        there = begins + seconds
        origin.sending_seconds += seconds
        machine.receiving_seconds += seconds
        origin.sends_until = machine.receives_until = shipped.there_at[id(machine)] = there
        return there

    def wait(self, calls: Sequence[Call], timeout: float | None = None) -> list[Call]:
        """Calls that are done; if there are none, time passes."""
        mine: Sequence[SimulatedCall] = calls  # type: ignore[assignment]
        self.spend(self.costs.messages.look * len(mine), "messages")
        done: list[Call] = [call for call in mine if call.done]
        if done or timeout == 0 or not mine:
            return done
        self._woken = False
        for call in mine:
            call.watched = True
        self.events.run(lambda: self._woken, math.inf if timeout is None else self.events.now + timeout)
        self.events.run(lambda: False, self.events.now)  # what happens at the same moment
        for call in mine:
            call.watched = False
        return [call for call in mine if call.done]

    def fetch(self, calls: Sequence[Call]) -> None:
        """Nothing: each result is fetched by itself."""

    def put(self, value: Any) -> Shipped:
        """A value that is sent once to each machine."""
        return Shipped(value, bytes_of(value), self.machines[0])

    def kill(self, actors: Sequence[Process], grace: float = 0.0) -> None:
        """Nothing: there are no processes."""

    def capacity(self) -> None:
        """Not counted: there are as many machines as needed."""


def _nothing(method: str) -> float:
    return 0.0


def _value(argument: Any) -> Any:
    if isinstance(argument, SimulatedCall):
        return argument.shipped.value
    return argument.value if isinstance(argument, Shipped) else value_of(argument)


def bytes_of(value: Any) -> int:
    """Size of a stand-in, or of those in a list or tuple; of anything else 0."""
    if isinstance(value, list | tuple):
        return sum(map(bytes_of, value))
    return int(getattr(value, "size", 0) or 0)
