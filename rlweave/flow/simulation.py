"""Runs a plan in simulated time: how fast it will be, and what limits it.

The graph, its operators and the scheduler are the plan's own; what works (workers, learners, memories) are stand-ins.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rlweave.errors import PlanError
from rlweave.flow.costs import Costs
from rlweave.flow.envelope import END, NOT_READY
from rlweave.flow.plan import ReportMetrics
from rlweave.flow.simulated_engine import SimulatedEngine
from rlweave.flow.sources import RolloutSource, ShardSource
from rlweave.flow.stand_ins import stand_in

_LEAST_ITEMS = 200
"""Items in the measured stretch."""
_FULL = 0.9
"""Part of the time from which on something counts as busy all the time."""
_MOST_STEPS = 5_000_000
"""Steps of the scheduler in which a simulation has to come to an end."""


@dataclasses.dataclass(frozen=True)
class Prediction:
    """What a simulation has found, over its measured stretch.

    Attributes:
        workers: Number of workers.
        machines: Number of machines.
        steps_per_second: Environment steps per second.
        updates_per_second: Learner updates per second.
        learner_busy: Part of the time in which the learner works; of several, the busiest.
        driver_busy: Part of the time in which the driver works, a learner in it included.
        workers_busy: Part of the time in which a worker works, on average.
        lag: Mean weight lag of what is trained on (of items at their gather, where that is not known), in updates; None
            where nothing tells it.
        shares: Part of the time that each thing takes: what the driver does, actors (the busiest of each operator),
            the cores of the driver's machine, its connection.
        bottleneck: What limits the speed, in words.
    """

    workers: int
    machines: int
    steps_per_second: float
    updates_per_second: float
    learner_busy: float
    driver_busy: float
    workers_busy: float
    lag: float | None
    shares: Mapping[str, float]
    bottleneck: str


def simulate(plan: ReportMetrics, costs: Costs, cores: float) -> Prediction:
    """Runs a plan in simulated time; it is used up.

    Args:
        plan: The plan, composed and not started. Its workers are factories, so that each is a process.
        costs: Of all its operators.
        cores: Of each machine.

    Raises:
        PlanError: Costs are missing, or the plan cannot be simulated.
    """
    engine = SimulatedEngine(costs, cores)
    stand_in(plan.graph, engine)
    plan.warn_after = 0.0
    with plan.start(engine, engine.clock):
        return _predicted(plan, engine)


def _predicted(plan: ReportMetrics, engine: SimulatedEngine) -> Prediction:
    """Lets a plan run until it is in its stride, and then a stretch that is measured."""
    sources = [node for node in plan.graph.nodes if isinstance(node, RolloutSource) and node.counts]
    sources = [node for node in sources if not isinstance(node, ShardSource)]
    workers = sum(len(source.group) for source in sources)
    trains = any(node.trains is not None for node in plan.graph.nodes)
    counters = plan.counters

    def items() -> int:
        return sum(source.timer.items for source in sources)

    def run(more_items: int, more_updates: int) -> None:
        enough_items, enough_updates = items() + more_items, counters.updates + (more_updates if trains else 0)
        for _ in range(_MOST_STEPS):
            updates = counters.updates
            if not _moved(plan):
                return
            ended_well = counters.updates > updates or not trains  # a stretch of whole rounds
            if ended_well and items() >= enough_items and counters.updates >= enough_updates:
                return
        raise PlanError(
            "the simulation comes to no end",
            where="simulate",
            received=f"{items()} items and {counters.updates} updates in {_MOST_STEPS:,} steps of the scheduler",
            fix="look at agent.learning_starts, and at how many steps make an item",
        )

    run(workers, 2)
    begin = _Moment.of(plan, engine)
    run(-(-_LEAST_ITEMS // workers) * workers, 2)  # as many items of each
    return _between(begin, _Moment.of(plan, engine), workers, plan, engine)


def _moved(plan: ReportMetrics) -> bool:
    """Moves an item, or lets time pass; returns whether the plan goes on."""
    item = plan.step()
    if item is NOT_READY:
        plan.wait()
    return item is not END


class _Moment(NamedTuple):
    """What was counted until a moment."""

    time: float
    env_steps: int
    updates: int
    lags: Mapping[int, int]
    driver: Mapping[str, float]
    actors: Mapping[str, list[float]]
    cores: float
    network: float

    @classmethod
    def of(cls, plan: ReportMetrics, engine: SimulatedEngine) -> _Moment:
        """The present."""
        report, here = plan.report(), engine.machines[0]
        actors: dict[str, list[float]] = {}
        for process in engine.processes:
            made = process.made
            name = getattr(made, "worker", made).operator
            actors.setdefault(name, []).append(process.busy_for(engine.events.now))
        counters = plan.counters
        return cls(
            engine.events.now, counters.env_steps_sampled, counters.updates,
            dict(report.train_lag or report.gather_lag), dict(engine.driver_seconds), actors,
            here.core_seconds, max(here.sending_seconds, here.receiving_seconds),
        )  # fmt: skip


def _between(begin: _Moment, end: _Moment, workers: int, plan: ReportMetrics, engine: SimulatedEngine) -> Prediction:
    seconds = end.time - begin.time
    part = 1.0 / seconds if seconds > 0 else 0.0
    driver = {name: (spent - begin.driver.get(name, 0.0)) * part for name, spent in end.driver.items()}
    actors = {
        name: [(now - then) * part for now, then in zip(busy, begin.actors[name], strict=True)]
        for name, busy in end.actors.items()
    }
    lags = {lag: count - begin.lags.get(lag, 0) for lag, count in end.lags.items()}
    items = sum(lags.values())
    learners = {node.name for node in plan.graph.nodes if node.trains is not None}
    samplers = [node.name for node in plan.graph.nodes if type(node) is RolloutSource]
    shares = {
        **{f"driver: {name}": share for name, share in driver.items()},
        **{name: max(busy) for name, busy in actors.items() if name not in samplers},
        **{name: sum(busy) / len(busy) for name, busy in actors.items() if name in samplers},
        "cores of the driver's machine": (end.cores - begin.cores) * part / engine.cores,
        "network of the driver's machine": (end.network - begin.network) * part,
    }
    busy = [shares.get(name, 0.0) + driver.get(name, 0.0) for name in learners]
    return Prediction(
        workers=workers,
        machines=len(engine.machines),
        steps_per_second=(end.env_steps - begin.env_steps) * part,
        updates_per_second=(end.updates - begin.updates) * part,
        learner_busy=max(busy, default=0.0),
        driver_busy=sum(driver.values()),
        workers_busy=max((shares[name] for name in samplers), default=0.0),
        lag=sum(lag * count for lag, count in lags.items()) / items if items else None,
        shares=shares,
        bottleneck=_in_words(driver, shares, samplers),
    )


def _in_words(driver: Mapping[str, float], shares: Mapping[str, float], samplers: Sequence[str]) -> str:
    """The busiest part; where none is busy all the time, the two between which time passes."""
    parts = {name: share for name, share in shares.items() if not name.startswith(("driver: ", "cores"))}
    named = {("workers" if name in samplers else name): share for name, share in parts.items()}
    most = max(driver, key=lambda name: driver[name], default="")
    if most:
        named[f"the driver, most of it {most}"] = sum(driver.values())
    ranked = sorted(named, key=lambda name: -named[name])
    if not ranked:
        return "nothing takes time"
    text = ranked[0]
    if named[ranked[0]] < _FULL:
        text = " and ".join(f"{name} ({named[name]:.0%})" for name in ranked[:2]) + " take turns"
    if shares["cores of the driver's machine"] >= _FULL:
        text += "; the cores of the driver's machine are full"
    return text
