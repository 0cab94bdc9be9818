"""The live display of a training: return, steps per second, time left."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task
from rich.table import Column
from rich.text import Text

from rlweave.runs.metrics import EVALUATION_COLUMN, RETURN_COLUMN, STEP_COLUMN, Report


class Rate:
    """Steps per second over the latest reports.

    Args:
        window: Number of reports for the average.
        clock: Seconds, rising.
    """

    def __init__(self, window: int = 20, clock: Callable[[], float] = time.monotonic) -> None:
        self._points: deque[tuple[float, float]] = deque(maxlen=window)
        self._clock = clock

    def update(self, steps: float) -> None:
        """Notes the progress of the training."""
        self._points.append((self._clock(), steps))

    @property
    def per_second(self) -> float:
        """Steps per second; NaN before the second report."""
        if len(self._points) < 2:
            return math.nan
        (t0, s0), (t1, s1) = self._points[0], self._points[-1]
        return (s1 - s0) / (t1 - t0) if t1 > t0 else math.nan

    def seconds_left(self, total: float) -> float:
        """Time until `total` steps; NaN while it is unknown."""
        rate = self.per_second
        if not rate > 0:
            return math.nan
        return max(total - self._points[-1][1], 0.0) / rate


class TrainingProgress:
    """Shows the progress of a training: a live line on a terminal, a plain line now and then elsewhere.

    Args:
        console: Where to.
        title: For example `"ppo CartPole-v1 jax seed 0"`.
        total: Length of the training in environment steps.
        start: Steps done already.
        clock: Seconds, rising.
        quiet_seconds: Least time between two plain lines.
    """

    def __init__(
        self,
        console: Console,
        title: str,
        total: int,
        start: int = 0,
        clock: Callable[[], float] = time.monotonic,
        quiet_seconds: float = 2.0,
    ) -> None:
        self._console, self._total, self._clock, self._quiet_seconds = console, total, clock, quiet_seconds
        self._rate = Rate(clock=clock)
        self._rate.update(start)
        self._last_line, self._evaluation = -math.inf, ""
        self._live: Progress | None = None
        console.print(f"{title}: {total:,} environment steps")
        if console.is_terminal:
            bar = BarColumn(bar_width=None, table_column=Column(ratio=1, min_width=6))
            self._live = Progress(SpinnerColumn(), bar, _Figures(), console=console, expand=True)
            self._task = self._live.add_task(title, total=total, completed=start, figures="starting ...")

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def update(self, report: Report) -> None:
        """Shows a report."""
        steps = int(report[STEP_COLUMN])
        self._rate.update(steps)
        if math.isfinite(evaluation := float(report.get(EVALUATION_COLUMN, math.nan))):
            self._evaluation = f"evaluation {evaluation:7.1f} at {steps:,}"
        described = describe(report, self._rate, self._total, self._evaluation)
        figures = f"{steps:>{len(f'{self._total:,}')},} steps  {described}"
        if self._live is not None:
            self._live.update(self._task, completed=min(steps, self._total), figures=figures)
        elif self._clock() - self._last_line >= self._quiet_seconds or steps >= self._total:
            self._last_line = self._clock()
            self._console.print(f"  {figures}")
            self._evaluation = ""  # another line with it would look like another evaluation


def describe(report: Report, rate: Rate, total: int, evaluation: str = "") -> str:
    """The figures of a report in one line.

    Args:
        report: The report.
        rate: The speed of the training.
        total: Length of the training in environment steps.
        evaluation: The latest greedy evaluation, in words; empty while there is none.
    """
    mean = float(report.get(RETURN_COLUMN, math.nan))
    parts = [f"return {mean:7.1f}" if math.isfinite(mean) else "return     ..."]
    if evaluation:
        parts.append(evaluation)
    per_second = rate.per_second
    parts.append(f"{per_second:>7,.0f} steps/s" if math.isfinite(per_second) else "    ... steps/s")
    left = rate.seconds_left(total)
    parts.append(f"{format_seconds(left)} left" if math.isfinite(left) else "... left")
    return "  ".join(parts)


def format_seconds(seconds: float) -> str:
    """Minutes and seconds, with hours when there are any.

    >>> format_seconds(75.2), format_seconds(3675)
    ('1:15', '1:01:15')
    """
    whole = round(seconds)
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02d}:{whole % 60:02d}" if hours else f"{minutes}:{whole % 60:02d}"


class _Figures(ProgressColumn):
    def __init__(self) -> None:
        super().__init__(table_column=Column(no_wrap=True))

    def render(self, task: Task) -> Text:
        return Text(str(task.fields.get("figures", "")))
