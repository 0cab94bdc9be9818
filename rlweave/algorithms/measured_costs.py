"""What the parts of a training cost on this machine: short trainings, in which every process times its own parts."""

from __future__ import annotations

import functools
import pickle
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from rlweave.algorithms.algorithm import Algorithm
from rlweave.algorithms.placement import set_threads
from rlweave.envs.seeding import derived_seed
from rlweave.flow import Engine, LearnerActor, Operator, ReportMetrics, Resources
from rlweave.flow.costs import Costs, MessageCosts, OperatorCosts, WeightCosts
from rlweave.flow.engine import ANSWER_SECONDS, SystemClock, wait_for_all
from rlweave.flow.envelope import Envelope, Pulled, stands_for
from rlweave.flow.gather import Gather
from rlweave.flow.sources import ReplaySource, ShardSource
from rlweave.flow.stand_ins import needs_costs, rows_of
from rlweave.flow.workers import SourceActor

#: Updates in which everything is compiled, and those that are measured at least.
_WARM_UPDATES, _LEAST_UPDATES = 10, 5
#: Names of what is no operator's: weights that are read, sent and taken over; calls, before the name of the method.
_READ, _PUT, _WRITE, _CALL = "weights/read", "weights/put", "weights/write", "call/"
#: Costs of messages that no short training tells: of a machine with two cores, and Ray 2.60.
TYPICAL = MessageCosts(call=2e-4, result=2e-4, actor=3e-4, look=2e-6, latency=1e-4)


class Tally:
    """What was timed under one name: how often, how many rows, how long."""

    def __init__(self) -> None:
        self.items = self.rows = 0
        self.seconds = self.wall = 0.0
        self.example: Any = None
        """The first result."""

    @property
    def bytes(self) -> int:
        """Size of the example on its way to another process; 0 if it cannot travel."""
        try:
            return len(pickle.dumps(self.example, protocol=5))
        except Exception:
            return 0


class Timed(NamedTuple):
    """A `Tally` as plain numbers, which can be added and subtracted.

    Attributes:
        items: How often.
        rows: How many.
        seconds: Processor time, of all threads.
        wall: Time that passed.
        bytes: Size of a result.
    """

    items: float = 0
    rows: float = 0
    seconds: float = 0.0
    wall: float = 0.0
    bytes: int = 0

    def since(self, other: Timed) -> Timed:
        """What was timed since another one; what is so rare that nothing was since then, from the beginning."""
        if self.items == other.items:
            return self
        seconds, wall = self.seconds - other.seconds, self.wall - other.wall
        return Timed(self.items - other.items, self.rows - other.rows, seconds, wall, self.bytes)

    def plus(self, other: Timed) -> Timed:
        """Both together."""
        seconds, wall, size = self.seconds + other.seconds, self.wall + other.wall, max(self.bytes, other.bytes)
        return Timed(self.items + other.items, self.rows + other.rows, seconds, wall, size)

    @property
    def alone(self) -> float:
        """The time that it takes where nobody else works.

        Time passes while others have the processor, and processor time counts several threads that compute at once.
        """
        return min(self.seconds, self.wall)

    @property
    def mean(self) -> float:
        """Seconds of an item."""
        return self.alone / self.items if self.items else 0.0


Told = tuple[float, dict[str, Timed]]
"""Processor seconds of a process, and what was timed in it by name."""


class Stopwatch:
    """Times of this process by name; what is timed inside of something else counts there alone."""

    def __init__(self) -> None:
        self._tallies: dict[str, Tally] = {}
        self._inner = [(0.0, 0.0)]

    @contextmanager
    def timing(self, name: str) -> Iterator[Tally]:
        """Times what happens inside, as one item."""
        tally, began = self._tallies.setdefault(name, Tally()), (time.process_time(), time.perf_counter())
        self._inner.append((0.0, 0.0))
        try:
            yield tally
        finally:
            elapsed = time.process_time() - began[0], time.perf_counter() - began[1]
            inner, outer = self._inner.pop(), self._inner.pop()
            tally.items += 1
            tally.seconds += elapsed[0] - inner[0]
            tally.wall += elapsed[1] - inner[1]
            self._inner.append((outer[0] + elapsed[0], outer[1] + elapsed[1]))

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function that is timed under a name; rows are those of its result, or else of its first argument."""

        def call(*arguments: Any) -> Any:
            with self.timing(name) as tally:
                result = function(*arguments)
                _finish(result)
                tally.rows += rows_of(result) or sum(map(rows_of, arguments[:1]))
            if tally.example is None:
                tally.example = result
            return result

        return call

    def told(self) -> Told:
        """What was timed so far."""
        timed = {
            name: Timed(own.items, own.rows, own.seconds, own.wall, own.bytes) for name, own in self._tallies.items()
        }
        return time.process_time(), timed


@functools.cache
def here() -> Stopwatch:
    """The stopwatch of this process."""
    return Stopwatch()


def _finish(result: Any) -> None:
    """Waits for what is still computed of an update's metrics."""
    for value in result.values() if isinstance(result, dict) else ():
        if hasattr(value, "__float__") and getattr(value, "shape", ()) == ():
            float(value)


# -- parts that are timed --------------------------------------------------------------------------------------------


def _timed_object(operator: str, make: Callable[[], Any]) -> Any:
    """A worker, shard or learner in its process, whose methods are timed as those of an operator or of the weights."""
    made = make()
    names = {
        "sample": operator, "update": operator, "apply_gradients": operator,
        "insert": f"{operator}/insert", "update_priorities": f"{operator}/update_priorities",
        "get_weights": _READ, "set_weights": _WRITE,
    }  # fmt: skip
    for method, name in names.items():
        if hasattr(made, method):
            setattr(made, method, here().timed(name, getattr(made, method)))
    made.told_costs = here().told
    return made


class _TimedSource(SourceActor):
    """The actor of a worker, where operators beside it are timed as well."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.stages = [(name, _TimedStage(name, operator)) for name, operator in self.stages]


class _TimedStage:
    """An operator beside a worker, which is timed.

    Args:
        name: Of the operator.
        operator: The operator.
    """

    def __init__(self, name: str, operator: Operator) -> None:
        self._operator, self._timed = operator, here().timed(name, operator)

    def __call__(self, item: Any) -> Any:
        """Transforms an item."""
        return self._timed(item)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._operator, name)


def _time_parts(plan: ReportMetrics) -> None:
    """Has all parts of a plan, which has not been started, timed."""
    for node in plan.graph.nodes:
        if node.group is not None:
            node.group.factories = [partial(_timed_object, node.name, make) for make in node.group.factories]
        if isinstance(node, Gather) and node.stages:
            node.source.group.actor_class = _TimedSource
        if isinstance(node.trains, LearnerActor):
            node.trains.factory = partial(_timed_object, node.name, node.trains.factory)
        elif node.trains is not None:
            node.trains.get_weights = here().timed(_READ, node.trains.get_weights)  # type: ignore[method-assign]
        if isinstance(node, ReplaySource):
            node.memory.sample = here().timed(node.name, node.memory.sample)  # type: ignore[method-assign]
        elif needs_costs(node) and node.beside is None and node.group is None:
            _time_operator(node)


def _time_operator(node: Operator) -> None:
    own = node.process

    def process(envelope: Envelope) -> Pulled:
        with here().timing(node.name) as tally:
            tally.rows += rows_of(envelope.payload)
            item = own(envelope)
            _finish(getattr(getattr(item, "payload", None), "metrics", None))
        return item

    node.work_as(process)


class TimedEngine:
    """An engine, where calls are timed by method, and which asks its actors what they timed.

    Args:
        engine: Where actors live.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine, self.name, self.in_process = engine, engine.name, engine.in_process
        self._actors: list[tuple[Any, tuple[str, ...]]] = []
        """Each actor, and the call that asks it."""
        self.wait, self.fetch, self.kill, self.capacity = engine.wait, engine.fetch, engine.kill, engine.capacity
        self.put = here().timed(_PUT, engine.put)

    def create_actors(self, factories: Sequence[Callable[[], Any]], resources: Resources | None = None) -> list[Any]:
        """Makes actors."""
        actors = self._engine.create_actors(factories, resources)
        for factory, actor in zip(factories, actors, strict=True):
            kind = getattr(factory, "func", None)
            wraps = isinstance(kind, type) and issubclass(kind, SourceActor)
            self._actors.append((actor, ("ask", "told_costs") if wraps else ("told_costs",)))
        return actors

    def call(self, actor: Any, method: str, *arguments: Any) -> Any:
        """Starts a call."""
        with here().timing(_CALL + method):
            return self._engine.call(actor, method, *arguments)

    def call_in_parts(self, actor: Any, method: str, parts: int, *arguments: Any) -> Any:
        """Starts a call whose result comes in parts."""
        with here().timing(_CALL + method):
            return self._engine.call_in_parts(actor, method, parts, *arguments)

    def told(self) -> list[Told]:
        """What was timed so far, in the driver and in each actor; actors in the driver's process tell nothing."""
        if self.in_process:
            return [here().told()]
        calls = [self._engine.call(actor, *question) for actor, question in self._actors]
        wait_for_all(self._engine, SystemClock(), calls, ANSWER_SECONDS)
        return [here().told(), *[call.result() for call in calls]]


# -- measuring -------------------------------------------------------------------------------------------------------


class Run(NamedTuple):
    """What a training took.

    Attributes:
        parts: What was timed, by name, in all processes together.
        driver: Processor seconds of the driver that were not timed.
        actors: Those of all actors together.
        calls: Calls that actors answered.
        sent: Names of what the driver sends to actors.
        names: Of operators that need costs.
    """

    parts: Mapping[str, Timed]
    driver: float
    actors: float
    calls: float
    sent: set[str]
    names: Sequence[str]

    def of(self, name: str) -> Timed:
        """What was timed under a name."""
        return self.parts.get(name, Timed())


def measure_costs(algorithm: Algorithm, configs: Sequence[Any], engine: Engine, seconds: float = 4.0) -> Costs:
    """The costs of a training, of short trainings.

    Args:
        algorithm: The algorithm.
        configs: Settings of a training each, of different numbers of workers with agents of their own: an operator's
            time for a row is what it takes more where its items are larger.
        engine: Where workers live. In this process messages cost nothing, so that typical costs stand for them.
        seconds: Length of each training, after everything was compiled.

    Raises:
        ConfigError: The settings contradict each other.
        PlanError: The training fails.
    """
    runs = [_run(algorithm, config, engine, seconds) for config in configs]
    all_of = functools.partial(_all_of, runs)
    operators = {name: _fitted([run.of(name) for run in runs]) for name in _operators(runs)}
    weights = WeightCosts(
        bytes=all_of(_READ).bytes, write=all_of(_WRITE).mean,
        read=(all_of(_READ).alone + all_of(_PUT).alone) / max(1, all_of(_READ).items),
    )  # fmt: skip
    if engine.in_process:
        return Costs(operators=operators, weights=weights, messages=TYPICAL)
    asking = all_of(_CALL + "next_items").plus(all_of(_CALL + "next_apart")).mean
    for name in runs[0].sent & operators.keys():
        methods = [name.partition("/")[2]] if "/" in name else ["update", "apply_gradients"]
        sending = functools.reduce(Timed.plus, (all_of(_CALL + method) for method in methods)).mean
        operators[name] = operators[name].model_copy(update={"send": max(0.0, sending - asking)})
    calls = sum(run.calls for run in runs)
    messages = TYPICAL.model_copy(
        update={
            "call": asking,
            "result": max(0.0, sum(run.driver for run in runs) / calls),
            "actor": max(0.0, sum(run.actors for run in runs) / calls),
        }
    )
    return Costs(operators=operators, weights=weights, messages=messages)


def _all_of(runs: Sequence[Run], name: str) -> Timed:
    return functools.reduce(Timed.plus, (run.of(name) for run in runs))


def _operators(runs: Sequence[Run]) -> list[str]:
    """Names of operators, and of methods of their actors."""
    timed = [name for run in runs for name in run.parts if not name.startswith(("weights/", _CALL))]
    return list(dict.fromkeys([*runs[0].names, *timed]))


def _run(algorithm: Algorithm, config: Any, engine: Engine, seconds: float) -> Run:
    """A short training."""
    here.cache_clear()  # what another training took stands in the one before
    parts = algorithm.parts(config)
    plan = parts.plan()
    _time_parts(plan)
    set_threads(config, parts.agent)
    timed = TimedEngine(engine)
    with plan.start(timed):
        if parts.remote is not None:
            parts.remote.begin(plan)
        seeds = [(derived_seed(config.seed, f"measured worker {number}"),) for number in range(len(parts.workers))]
        plan.ask_workers("start", seeds)
        plan.advance(lambda counters: counters.updates >= _WARM_UPDATES)
        before = timed.told()
        until, least = time.perf_counter() + seconds, plan.counters.updates + _LEAST_UPDATES
        plan.advance(lambda counters: counters.updates >= least and time.perf_counter() >= until)
        after = timed.told()
    return _between(before, after, plan)


def _between(before: Sequence[Told], after: Sequence[Told], plan: ReportMetrics) -> Run:
    """What the processes took from one moment to another; the driver is the first of them."""
    parts: dict[str, Timed] = {}
    rest = []
    for (began, earlier), (ended, later) in zip(before, after, strict=True):
        own = {name: timed.since(earlier.get(name, Timed())) for name, timed in later.items()}
        spent = sum(timed.seconds - earlier.get(name, Timed()).seconds for name, timed in later.items())
        rest.append(ended - began - spent)
        for name, timed in own.items():
            parts[name] = parts.get(name, Timed()).plus(timed)
    answered = sum(
        timed.items for name, timed in parts.items() if name.startswith(_CALL) and name != f"{_CALL}get_weights"
    )
    sent: set[str] = set()
    for node in plan.graph.nodes:
        if isinstance(node, Gather) and node.stages:  # what the last operator beside the workers makes is sent
            source, last = node.source.name, node.stages[-1].name
            parts[source] = parts[source]._replace(bytes=parts[last].bytes)
        if isinstance(node, ShardSource):
            sent.add(f"{node.name}/update_priorities")
            if not any(stands_for(store.inputs[0].item_type) for store in node.stores):  # those go from actor to actor
                sent.add(f"{node.name}/insert")
        if isinstance(node.trains, LearnerActor):
            sent.add(node.name)
    named = [node.name for node in plan.graph.nodes if needs_costs(node)]
    return Run(parts, rest[0], sum(rest[1:]), answered, sent, named)


def _fitted(runs: Sequence[Timed]) -> OperatorCosts:
    """Costs for an item and for a row of it, as far as the runs tell them apart."""
    few, many = runs[0], runs[-1]
    rows = [own.rows / max(1, own.items) for own in (few, many)]
    per_row = 0.0
    if rows[1] > 1.2 * rows[0] > 0:
        per_row = min(max(0.0, (many.mean - few.mean) / (rows[1] - rows[0])), few.mean / rows[0])
    left = sum(own.alone - per_row * own.rows for own in runs) / max(1, sum(own.items for own in runs))
    return OperatorCosts(
        per_item=max(0.0, left), per_row=per_row, rows=round(rows[0]), bytes=max(own.bytes for own in runs)
    )
