from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rlweave.flow import FakeClock, LocalEngine, ReportMetrics
from tests.flow.fakes import SimulatedEngine

Start = Callable[[ReportMetrics], ReportMetrics]


@pytest.fixture(params=["local", "simulated"])
def start(request: pytest.FixtureRequest) -> Start:
    """Starts a plan on each engine in turn, with a fake clock."""

    def on_engine(plan: ReportMetrics) -> ReportMetrics:
        clock = FakeClock()
        engine = LocalEngine() if request.param == "local" else SimulatedEngine(clock)
        return plan.start(engine, clock)

    return on_engine


@pytest.fixture(scope="session")
def ray_engine() -> Iterator[Any]:
    """One small Ray cluster on this machine for all tests of a process."""
    from rlweave.flow.ray_engine import RayEngine

    with RayEngine(num_cpus=2, object_store_memory=80 * 2**20) as engine:
        yield engine
