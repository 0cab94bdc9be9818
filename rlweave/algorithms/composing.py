"""A training's plan without the training: composed to be looked at, and nothing is started."""

from __future__ import annotations

import contextlib

from rlweave.algorithms.config import TrainConfig
from rlweave.algorithms.engines import check_engine
from rlweave.algorithms.registry import AlgorithmSpec
from rlweave.errors import ConfigError
from rlweave.flow import ReportMetrics, WorkerGroup


def compose_plan(spec: AlgorithmSpec, config: TrainConfig) -> ReportMetrics:
    """Composes the plan of a training, whatever engine it is for; it is not started, and cannot be.

    Environments are made to learn their spaces, and closed again. None is stepped, no agent is built, no engine begun.

    Args:
        spec: The algorithm.
        config: Settings of the training.

    Raises:
        ConfigError: The algorithm does not say what it is made of, or settings contradict each other.
        PlanError: The plan is wrongly composed.
    """
    if spec.make_parts is None:
        raise ConfigError(
            f"{spec.name} does not say what it is made of",
            where=f"AlgorithmSpec of {spec.name!r}",
            received="make_parts=None",
            fix="give the AlgorithmSpec make_parts, the function that PlanTrainer gets",
        )
    check_engine(config)
    parts = spec.make_parts(config)
    with contextlib.ExitStack() as stack:
        if not isinstance(parts.workers, WorkerGroup):
            for worker in parts.workers:
                stack.callback(worker.close)
        plan: ReportMetrics = parts.plan()
        plan.close()
    return plan
