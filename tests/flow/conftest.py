from collections.abc import Callable

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
