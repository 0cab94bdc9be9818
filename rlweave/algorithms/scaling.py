"""How a training scales: its plan for any number of workers, in simulated time."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator, Sequence
from typing import Any

from rlweave.algorithms.algorithm import Algorithm
from rlweave.algorithms.config import TrainConfig
from rlweave.algorithms.measured_costs import measure_costs
from rlweave.algorithms.placement import close_engine, make_engine
from rlweave.errors import ConfigError
from rlweave.flow import LocalEngine, WorkerGroup
from rlweave.flow.costs import Costs
from rlweave.flow.simulation import Prediction, simulate


def with_workers(config: TrainConfig, workers: int) -> Any:
    """Settings of a training with so many workers as processes, each with as many environments as one has now.

    Raises:
        ConfigError: It has another placement than workers around one learner.
    """
    name = config.placement.name
    if name not in ("local", "single_learner_coarse") or config.has_environments_apart:
        raise ConfigError(
            "what is simulated is workers around one learner, each a process",
            where="placement.name" if name not in ("local", "single_learner_coarse") else "vectorization",
            received=name if name not in ("local", "single_learner_coarse") else f"{config.vectorization}",
            fix="--placement single_learner_coarse, with environments in their worker's process",
        )
    placement = config.placement.model_copy(update={"name": "single_learner_coarse", "workers": workers})
    envs = config.num_envs // config.placement.workers * workers
    return config.model_copy(update={"engine": "ray", "placement": placement, "num_envs": envs})


def measured(algorithm: Algorithm, config: TrainConfig, seconds: float = 4.0) -> Costs:
    """The costs of a training on this machine.

    Of short trainings with one and with two workers on Ray; where Ray is not installed, in this process, and with
    typical costs of messages.

    Args:
        algorithm: The algorithm.
        config: Its settings.
        seconds: Length of each training.

    Raises:
        ConfigError: It cannot be simulated as the settings say, or has a trainer of its own.
        BackendError: Ray is installed, and cannot be begun.
    """
    if algorithm.make_parts is not None or algorithm.trainer is not None or not algorithm.has_plan:
        raise ConfigError(
            f"the costs of {algorithm.name} cannot be measured here: it has a trainer of its own",
            where=f"Algorithm {algorithm.name!r}",
            received="make_parts or trainer, in place of an agent, a worker and a plan",
            fix="give a file with the costs: --costs FILE",
        )
    configs = [with_workers(config, number) for number in (1, 2)]
    if importlib.util.find_spec("ray") is None:
        return measure_costs(algorithm, configs, LocalEngine(), seconds)
    engine = make_engine(configs[0])
    try:
        return measure_costs(algorithm, configs, engine, seconds)
    finally:
        close_engine(engine)


def predicted(
    algorithm: Algorithm, config: TrainConfig, costs: Costs, workers: Sequence[int], cores: float | None = None
) -> Iterator[Prediction]:
    """Simulates a training with each number of workers.

    Args:
        algorithm: The algorithm.
        config: Its settings; each worker keeps its number of environments.
        costs: Of its operators.
        workers: Numbers of workers.
        cores: Of each machine; None: as this one.

    Raises:
        ConfigError: It cannot be simulated as the settings say, or its plan cannot be composed.
        PlanError: The costs of an operator are missing.
    """
    for number in workers:
        own = with_workers(config, number)
        parts = algorithm.parts(own)
        if not isinstance(parts.workers, WorkerGroup):
            raise ConfigError(
                f"the plan of {algorithm.name} has no workers that could be processes",
                where=f"Algorithm {algorithm.name!r}",
                received="worker objects",
                fix="simulate an algorithm whose workers have agents of their own: rlweave list algorithms",
            )
        yield simulate(parts.plan(), costs, cores or os.cpu_count() or 1)
