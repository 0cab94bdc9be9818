"""The display of a training, with a clock that is set by hand."""

import io
import math

from rich.console import Console

from rlweave.cli.progress import Rate, TrainingProgress, format_seconds


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_the_rate_looks_back_over_the_latest_reports_only():
    clock = Clock()
    rate = Rate(window=3, clock=clock)
    rate.update(0)
    assert math.isnan(rate.per_second)
    assert math.isnan(rate.seconds_left(100))
    for clock.now, steps in ((10.0, 10), (11.0, 110), (12.0, 210)):
        rate.update(steps)
    assert rate.per_second == 100.0
    assert rate.seconds_left(710) == 5.0
    assert rate.seconds_left(10) == 0.0


def test_plain_lines_come_now_and_then_and_at_the_end():
    clock, stream = Clock(), io.StringIO()
    console = Console(file=stream, width=200)
    with TrainingProgress(console, "ppo X", total=1000, clock=clock, quiet_seconds=2.0) as progress:
        for steps in range(100, 1001, 100):
            clock.now += 0.5
            progress.update(
                {"env_steps_sampled": steps} if steps < 500 else {"env_steps_sampled": steps, "episode_return": 12.34}
            )
            if steps == 600:
                progress.update({"env_steps_sampled": steps, "episode_return": 12.34, "evaluation_return": 56.78})
    lines = stream.getvalue().splitlines()
    assert lines[0] == "ppo X: 1,000 environment steps"
    assert lines[1].split() == ["100", "steps", "return", "...", "200", "steps/s", "0:04", "left"]
    assert lines[2].split() == ["500", "steps", "return", "12.3", "200", "steps/s", "0:02", "left"]
    # an evaluation between two lines is in the next one, with its step, and in no other
    assert "return    12.3  evaluation    56.8 at 600      200 steps/s" in lines[3]
    assert lines[-1].split() == ["1,000", "steps", "return", "12.3", "200", "steps/s", "0:00", "left"]
    assert len(lines) == 5


def test_a_terminal_shows_one_live_line():
    stream = io.StringIO()
    console = Console(file=stream, width=80, force_terminal=True, color_system=None)
    clock = Clock()
    with TrainingProgress(console, "ppo X", total=60_000, clock=clock) as progress:
        clock.now = 1.0
        progress.update({"env_steps_sampled": 12_000, "episode_return": 475.0})
    title, *frames = stream.getvalue().splitlines()
    assert title == "ppo X: 60,000 environment steps"
    shown = [frame for frame in frames if "12,000 steps  return   475.0   12,000 steps/s  0:04 left" in frame]
    assert shown
    assert "\u2501" in shown[-1]


def test_seconds():
    assert [format_seconds(s) for s in (0, 59.4, 60, 3599, 3600)] == ["0:00", "0:59", "1:00", "59:59", "1:00:00"]
