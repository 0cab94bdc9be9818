"""The end of a plan."""

from __future__ import annotations

from rlweave.flow.context import Context
from rlweave.flow.envelope import END, Pulled, Signal
from rlweave.flow.node import Node, Port
from rlweave.flow.transforms import check_input


class Sink(Node):
    """The end of a plan: counts what arrives."""

    def __init__(self, upstream: Port) -> None:
        super().__init__("report_metrics", [upstream])
        check_input(upstream, self.name)
        self.connect()

    def start(self, context: Context) -> None:
        """Binds its upstream."""
        self._upstream = self.puller(self.inputs[0])
        self._counters = context.counters

    def pull(self, output: int = 0) -> Pulled:
        """The next item of the plan."""
        item = self._upstream()
        if isinstance(item, Signal):
            self.ended = item is END
        else:
            self._counters.items += 1
            self.timer.items += 1
        return item
