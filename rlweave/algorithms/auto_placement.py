"""Placement `auto`: measures a short stretch of a training in each possible placement, and takes the fastest."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

from rlweave.algorithms.placements import AUTO_PLACEMENT, PLACEMENTS, Placement
from rlweave.algorithms.trainer import PlanTrainer
from rlweave.errors import BackendError, ConfigError, EnvError, PlanError
from rlweave.flow import Counters
from rlweave.flow.plan_graph import table

if TYPE_CHECKING:
    from rlweave.algorithms.algorithm import Algorithm

#: A placement is not measured further once another one is this much faster.
_FAR_BEHIND = 2.0
#: Into how many pieces the time of each placement is divided.
_PIECES = 3


@dataclasses.dataclass
class Measurement:
    """The speed of a training in one placement.

    Attributes:
        config: Its settings.
        steps: Environment steps, after the first update.
        seconds: Time that they took.
        refusal: Why it was not measured; empty where it was.
        limit: The operator that took most of the time, and its share.
    """

    config: Any
    steps: int = 0
    seconds: float = 0.0
    refusal: str = ""
    limit: str = ""

    @property
    def speed(self) -> float:
        """Environment steps per second; 0.0 where nothing was measured."""
        return self.steps / self.seconds if self.seconds else 0.0


def settle_placement(algorithm: Algorithm, config: Any, tell: Callable[[str], None]) -> Any:
    """The settings of a training with a placement in the place of `auto`: the fastest one here.

    Those with processes on Ray are measured with `engine=ray` only; without it everything stays in this process and its
    children. The number of workers and learners is the greatest that the cores have room for and that divides the
    environments, unless it is given. Placements in which something else is learned (gradients that are older than the
    weights they are applied to) are not tried.

    Args:
        algorithm: What is trained.
        config: Its settings; they are returned as they are if the placement is not `auto`.
        tell: Called with the table of what was measured, and the choice.

    Raises:
        ConfigError: No placement is possible.
    """
    if config.placement.name != AUTO_PLACEMENT:
        return config
    measurements = measure(algorithm, list(candidates(algorithm, config)), config.placement.measure_seconds)
    best = max(measurements, key=lambda own: (own.speed, not own.refusal))
    if best.refusal:
        raise ConfigError(
            "no placement of this training is possible",
            where="placement.name",
            received="; ".join(f"{own.config.placement.name}: {own.refusal}" for own in measurements),
            fix="--placement local says what is wrong with it",
        )
    tell(_told(measurements, best))
    return best.config


def candidates(algorithm: Algorithm, config: Any) -> Iterator[Any]:
    """The settings of each placement that a training may have and in which it learns the same."""
    for placement in PLACEMENTS.values():
        if not placement.fits(algorithm) or not placement.learns_alike:
            continue
        if placement.name == "local" or not placement.on_ray:
            yield _placed(config, placement, "local")
        elif config.engine != "local":
            yield _placed(config, placement, config.engine)


def _placed(config: Any, placement: Placement, engine: str) -> Any:
    own = config.placement
    update: dict[str, Any] = {"name": placement.name}
    if not placement.takes_workers:
        update["workers"] = 1
    elif engine != "local":
        many = "learners" if placement.takes_learners else "workers"
        if many not in own.model_fields_set:
            update[many] = max(n for n in range(1, _cores() + 1) if config.num_envs % n == 0)
    return config.model_copy(update={"engine": engine, "placement": own.model_copy(update=update)})


def _cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def measure(algorithm: Algorithm, configs: list[Any], seconds: float) -> list[Measurement]:
    """Trains in each placement for a while, with updates; one after the other, as each takes the cores for itself.

    Args:
        algorithm: What is trained.
        configs: The settings of each placement. A single one is not measured.
        seconds: How long in each, after its first update.
    """
    found = [Measurement(config) for config in configs]
    if len(found) == 1:
        return found
    for own in found:
        try:
            trainer = algorithm.make_trainer(_in_short(own.config), None)
        except (BackendError, ConfigError, EnvError, PlanError) as error:
            own.refusal = error.what
            continue
        with closing(trainer):
            if isinstance(trainer, PlanTrainer):
                _measure(own, trainer, seconds, max(other.speed for other in found))
            else:
                own.limit = "not measured: its trainer runs no plan"
    return found


def _measure(own: Measurement, trainer: PlanTrainer, seconds: float, best: float) -> None:
    """Trains for some seconds after the first update; for a part of them where another placement is far ahead."""
    _advance(trainer, lambda counters: counters.updates > 0)  # compiles what is compiled
    before = _busy(trainer)
    for _ in range(_PIECES):
        _measure_piece(own, trainer, seconds / _PIECES)
        if own.speed * _FAR_BEHIND < best:
            break
    busy = _busy(trainer)
    name = max(busy, key=lambda operator: busy[operator] - before[operator])
    own.limit = f"{name}, {(busy[name] - before[name]) / own.seconds:.0%} of the time"


def _busy(trainer: PlanTrainer) -> dict[str, float]:
    """Seconds that each operator of a training has worked, or waited for its workers."""
    return {node.name: node.timer.seconds for node in trainer.plan.graph.nodes}


def _measure_piece(own: Measurement, trainer: PlanTrainer, seconds: float) -> None:
    """Trains for some seconds and to the end of an update."""
    steps, updates, begun = trainer.env_steps, trainer.plan.counters.updates, time.perf_counter()
    _advance(trainer, lambda now: now.updates > updates and time.perf_counter() - begun >= seconds)
    own.steps += trainer.env_steps - steps
    own.seconds += time.perf_counter() - begun


def _advance(trainer: PlanTrainer, until: Callable[[Counters], bool]) -> None:
    trainer.plan.advance(until)
    if trainer.plan.stopped:  # by a Ctrl-C
        raise KeyboardInterrupt


def _in_short(config: Any) -> Any:
    """Settings with which learning begins at once."""
    update: dict[str, Any] = {"steps": 1 << 40, "schedule_steps": config.schedule_length, "callbacks": []}
    agent: Any = getattr(config, "agent", None)
    if hasattr(agent, "learning_starts"):
        update["agent"] = agent.model_copy(update={"learning_starts": min(agent.learning_starts, agent.batch_size)})
    return config.model_copy(update=update)


def _told(measurements: list[Measurement], best: Measurement) -> str:
    rows = [("placement", "engine", "workers", "learners", "steps/s", "what takes most")]
    for own in measurements:
        place = own.config.placement
        speed = f"{own.speed:,.0f}" if own.seconds else "-"
        said = own.limit or own.refusal or "the only one"
        rows.append((place.name, own.config.engine, str(place.workers), str(place.learners), speed, said))
    return f"{table(rows)}\nplacement {best.config.placement.name} is taken (--placement names another)"
