"""What the parts of a training cost on this machine: a short training in one process, timed part by part."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from rlweave.algorithms.algorithm import Algorithm
from rlweave.algorithms.placement import set_threads
from rlweave.envs.seeding import derived_seed
from rlweave.flow import LearnerActor, LocalEngine, Operator, ReportMetrics, Resources
from rlweave.flow.costs import Costs, OperatorCosts, WeightCosts
from rlweave.flow.envelope import Envelope, Pulled, stands_for
from rlweave.flow.gather import Gather
from rlweave.flow.sources import ReplaySource, ShardSource
from rlweave.flow.stand_ins import needs_costs, rows_of

#: Updates in which everything is compiled, and those that are measured at least.
_WARM_UPDATES, _LEAST_UPDATES = 3, 5
#: Methods of actors that are sent items, or parts of them.
_SENT = ("update", "apply_gradients", "insert", "update_priorities")
#: Names of what is no operator's.
_READ, _WRITE = "weights/read", "weights/write"


class Tally:
    """What was timed under one name: how often, how many rows, how many bytes, how long."""

    def __init__(self) -> None:
        self.items = self.rows = 0
        self.seconds = 0.0
        self.example: Any = None
        """The first result."""
        self.sent: tuple[Any, ...] = ()
        """What a method of another actor took first."""
        self.by_reference = False
        """Whether that does not pass through the driver."""

    @property
    def bytes(self) -> int:
        """Size of the example on its way to another process; 0 if it cannot travel."""
        try:
            return len(pickle.dumps(self.example, protocol=5))
        except Exception:
            return 0

    def per_item(self) -> tuple[float, float]:
        """Rows and seconds of an item."""
        return self.rows / max(1, self.items), self.seconds / max(1, self.items)


class Stopwatch:
    """Processor time of this process by name; what is timed inside of something else counts there alone.

    Processor time, because others may use the machine as well.
    """

    def __init__(self) -> None:
        self.tallies: dict[str, Tally] = {}
        self._inner = [0.0]

    def of(self, name: str) -> Tally:
        """What was timed under a name."""
        return self.tallies.setdefault(name, Tally())

    @contextmanager
    def timing(self, name: str) -> Iterator[Tally]:
        """Times what happens inside, as one item."""
        tally, began = self.of(name), time.process_time()
        self._inner.append(0.0)
        try:
            yield tally
        finally:
            elapsed = time.process_time() - began
            tally.items += 1
            tally.seconds += elapsed - self._inner.pop()
            self._inner[-1] += elapsed

    def timed(self, name: str, function: Callable[..., Any], sent: bool = False) -> Callable[..., Any]:
        """A function that is timed under a name; rows are those of its result, or else of its first argument."""

        def call(*arguments: Any) -> Any:
            with self.timing(name) as tally:
                result = function(*arguments)
                _finish(result)
                tally.rows += rows_of(result) or sum(map(rows_of, arguments[:1]))
            if tally.items == 1:
                tally.example, tally.sent = result, arguments if sent else ()
            return result

        return call


class TimedEngine(LocalEngine):
    """The local engine, where operators beside workers are timed.

    Args:
        stopwatch: Where times are kept.
    """

    def __init__(self, stopwatch: Stopwatch) -> None:
        self._stopwatch = stopwatch

    def create_actors(self, factories: Sequence[Callable[[], Any]], resources: Resources | None = None) -> list[Any]:
        """Makes the objects."""
        actors = super().create_actors(factories, resources)
        for actor in actors:
            stages = getattr(actor, "stages", ())
            actor.stages = [(name, self._stopwatch.timed(name, operator)) for name, operator in stages]
        return actors


def _timed_object(made: Any, operator: str, stopwatch: Stopwatch) -> Any:
    """A worker, shard, learner or memory whose methods are timed, as those of an operator or of the weights."""
    names = {
        "sample": operator, "update": operator, "apply_gradients": operator,
        "insert": f"{operator}/insert", "update_priorities": f"{operator}/update_priorities",
        "get_weights": _READ, "set_weights": _WRITE,
    }  # fmt: skip
    for method, name in names.items():
        own = getattr(made, method, None)
        if own is not None:
            setattr(made, method, stopwatch.timed(name, own, method in _SENT))
    return made


def _time_parts(plan: ReportMetrics, stopwatch: Stopwatch) -> None:
    """Has all parts of a plan, which has not been started, timed."""
    for node in plan.graph.nodes:
        if node.group is not None:
            node.group.factories = [partial(_make_timed, make, node.name, stopwatch) for make in node.group.factories]
        if isinstance(node.trains, LearnerActor):
            node.trains.factory = partial(_make_timed, node.trains.factory, node.name, stopwatch)
        elif node.trains is not None:
            node.trains.get_weights = stopwatch.timed(_READ, node.trains.get_weights)  # type: ignore[method-assign]
        if isinstance(node, ReplaySource):
            node.memory.sample = stopwatch.timed(node.name, node.memory.sample)  # type: ignore[method-assign]
        elif needs_costs(node) and node.beside is None and node.group is None:
            _time_operator(node, stopwatch)


def _make_timed(make: Callable[[], Any], operator: str, stopwatch: Stopwatch) -> Any:
    return _timed_object(make(), operator, stopwatch)


def _time_operator(node: Operator, stopwatch: Stopwatch) -> None:
    own = node.process

    def process(envelope: Envelope) -> Pulled:
        with stopwatch.timing(node.name) as tally:
            tally.rows += rows_of(envelope.payload)
            item = own(envelope)
            _finish(getattr(getattr(item, "payload", None), "metrics", None))
        return item

    node.work_as(process)


def _finish(result: Any) -> None:
    """Waits for what is still computed of an update's metrics."""
    for value in result.values() if isinstance(result, dict) else ():
        if hasattr(value, "__float__") and getattr(value, "shape", ()) == ():
            float(value)


class Measured(NamedTuple):
    """The costs of a training, without those of messages, and what is sent.

    Attributes:
        costs: The costs.
        item: An item of its workers.
        weights: Those of its learner.
        sent: Calls of other actors than workers, by name.
    """

    costs: Costs
    item: Any
    weights: Any
    sent: dict[str, Tally]


def measure_costs(algorithm: Algorithm, configs: Sequence[Any], seconds: float = 2.0) -> Measured:
    """The costs of a training, of short trainings in this process.

    Args:
        algorithm: The algorithm.
        configs: Settings of a training each, of different numbers of workers with agents of their own: an operator's
            time for a row is what it takes more where its items are larger.
        seconds: Processor time of each training, after everything was compiled.

    Raises:
        ConfigError: The settings contradict each other.
        PlanError: The training fails.
    """
    runs = [_tallies(algorithm, config, seconds) for config in configs]
    tallies = {
        name: [run[name] for run in runs if name in run] for name in dict.fromkeys(n for run in runs for n in run)
    }
    read, write = tallies.pop(_READ, []), tallies.pop(_WRITE, [])
    weights = WeightCosts(bytes=max((own.bytes for own in read), default=0), read=_mean(read), write=_mean(write))
    costs = Costs(operators={name: _fitted(own) for name, own in tallies.items()}, weights=weights)
    source = next(iter(tallies.values()))  # workers come first in a plan
    sent = {name: own[0] for name, own in tallies.items() if own[0].sent}
    return Measured(costs, source[0].example, read[0].example if read else None, sent)


def _tallies(algorithm: Algorithm, config: Any, seconds: float) -> dict[str, Tally]:
    """What a short training takes, by the names of operators."""
    parts = algorithm.parts(config)
    plan = parts.plan()
    stopwatch = Stopwatch()
    _time_parts(plan, stopwatch)
    set_threads(config, parts.agent)
    with plan.start(TimedEngine(stopwatch)):
        if parts.remote is not None:
            parts.remote.begin(plan)
        seeds = [(derived_seed(config.seed, f"measured worker {number}"),) for number in range(len(parts.workers))]
        plan.ask_workers("start", seeds)
        plan.advance(lambda counters: counters.updates >= _WARM_UPDATES)
        stopwatch.tallies.clear()
        begun, least = time.process_time(), plan.counters.updates + _LEAST_UPDATES
        plan.advance(lambda counters: counters.updates >= least and time.process_time() - begun >= seconds)
    for node in plan.graph.nodes:
        if isinstance(node, Gather) and node.stages:  # what the last operator beside the workers makes is sent
            stopwatch.of(node.source.name).example = stopwatch.of(node.stages[-1].name).example
        if isinstance(node, ShardSource):
            stopwatch.of(f"{node.name}/insert").by_reference = any(
                stands_for(store.inputs[0].item_type) for store in node.stores
            )
    return {node.name: stopwatch.of(node.name) for node in plan.graph.nodes if needs_costs(node)} | stopwatch.tallies


def _mean(tallies: Sequence[Tally]) -> float:
    return sum(own.seconds for own in tallies) / max(1, sum(own.items for own in tallies))


def _fitted(tallies: Sequence[Tally]) -> OperatorCosts:
    """Costs for an item and for a row of it, as far as the runs tell them apart."""
    (few, least), (many, most) = tallies[0].per_item(), tallies[-1].per_item()
    per_row = 0.0
    if many > 1.2 * few:
        per_row = min(max(0.0, (most - least) / (many - few)), least / few if few else 0.0)
    per_item = sum(own.seconds - per_row * own.rows for own in tallies) / max(1, sum(own.items for own in tallies))
    return OperatorCosts(
        per_item=max(0.0, per_item), per_row=per_row, rows=round(few), bytes=max(own.bytes for own in tallies)
    )
