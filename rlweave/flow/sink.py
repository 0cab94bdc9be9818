"""The end of a plan."""

from __future__ import annotations

from rlweave.flow.envelope import END, Pulled, Signal
from rlweave.flow.operator import Operator, Port, check_input


class Sink(Operator):
    """The end of a plan: counts what arrives."""

    on_error_choices = ()

    def __init__(self, upstream: Port) -> None:
        check_input(upstream, "report_metrics")
        self.enter([upstream], "report_metrics")
        self.connect()

    def pull(self, output: int = 0) -> Pulled:
        """The next item of the plan."""
        item = self.take()
        if isinstance(item, Signal):
            self.ended = item is END
        else:
            self._counters.items += 1
            self.timer.items += 1
        return item
