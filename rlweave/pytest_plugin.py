"""The fixture `rlweave_check`, which pytest finds by itself: a component, agent or environment checked in one line.

def test_my_loss(rlweave_check):
rlweave_check(MyLoss, {"values": FloatBox(add_batch_rank=True), "targets": FloatBox(add_batch_rank=True)})
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from rlweave.testing.checks.findings import Report


class Checker:
    """Checks something, and fails the test with the report where it finds something."""

    def __call__(
        self, target: Any, input_spaces: Mapping[str, Any] | None = None, *, backends: Sequence[str] | None = None
    ) -> Report:
        """A component, its class or a descriptor; see `rlweave.testing.check`."""
        from rlweave.testing import check

        return self._passed(lambda: check(target, input_spaces, backends=backends))

    def agent(self, agent: Any, env: Any, settings: Mapping[str, Any] | None = None) -> Report:
        """An algorithm by name, or a class of agents; see `rlweave.testing.check_agent`."""
        from rlweave.testing import check_agent

        return self._passed(lambda: check_agent(agent, env, settings))

    def env(self, env: Any, seed: int = 0, steps: int = 1_000) -> Report:
        """An environment; see `rlweave.testing.check_env`."""
        from rlweave.testing import check_env

        return self._passed(lambda: check_env(env, seed, steps))

    def _passed(self, made: Callable[[], Report]) -> Report:
        from rlweave.errors import RlweaveError

        __tracebackhide__ = True
        try:
            report = made()
        except RlweaveError as error:  # what cannot be checked: its text says all
            pytest.fail(str(error), pytrace=False)
        if not report.ok:
            pytest.fail(str(report), pytrace=False)
        return report


@pytest.fixture(name="rlweave_check", scope="session")
def checker() -> Checker:
    """Checks a component, an agent or an environment; a finding fails the test."""
    return Checker()
