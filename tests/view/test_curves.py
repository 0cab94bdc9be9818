"""Learning curves: what is drawn, read from the picture itself where that is possible."""

import re

import numpy as np
import pytest

from rlweave.errors import ConfigError, install_command
from rlweave.view import curves
from rlweave.view.curves import Curve, draw_curves, smooth


def curve(group="ppo", n=50, level=0.0):
    steps = np.arange(1, n + 1) * 1000.0
    return Curve(group, steps, level + np.linspace(0, 100, n))


def test_smoothing_is_the_mean_of_a_window():
    rng = np.random.default_rng(0)
    steps, values = np.sort(rng.uniform(0, 100, 60)), rng.normal(size=60)
    expected = [values[np.abs(steps - step) <= 5.0].mean() for step in steps]
    np.testing.assert_allclose(smooth(steps, values, 10.0), expected)
    np.testing.assert_allclose(smooth(steps, values, 0.0), values)


def test_a_picture_is_written_in_the_format_of_its_name(tmp_path):
    assert draw_curves([curve()], tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in draw_curves([curve()], tmp_path / "a.svg").read_text()


def test_runs_of_one_group_share_a_line_and_a_band(tmp_path, monkeypatch):
    figures = []
    from matplotlib.figure import Figure

    monkeypatch.setattr(Figure, "savefig", lambda self, path: figures.append(self))
    runs = [curve("ppo", level=0), curve("ppo", n=40, level=20), curve("dqn", level=5)]
    draw_curves(runs, tmp_path / "a.png", threshold=90.0, title="title")
    axes = figures[0].axes[0]
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels == ["ppo  (2 runs)", "dqn"]
    lines = {line.get_label(): line for line in axes.lines}
    mean = lines["ppo  (2 runs)"]
    assert mean.get_xdata()[[0, -1]].tolist() == [1000.0, 40000.0]
    (band,) = axes.collections
    edges = band.get_paths()[0].vertices
    middle = np.interp(20_000.0, mean.get_xdata(), mean.get_ydata())
    assert edges[:, 1].min() < middle < edges[:, 1].max()
    assert any(np.all(np.asarray(line.get_ydata()) == 90.0) for line in axes.lines)
    # the longer run of the group goes on to its end
    assert max(line.get_xdata()[-1] for line in axes.lines if line.get_color() == mean.get_color()) == 50_000.0


def test_missing_values_are_left_out_and_nothing_at_all_is_said(tmp_path):
    nothing = Curve("a", np.arange(5.0), np.full(5, np.nan))
    one = Curve("b", np.array([5.0, 6.0]), np.array([np.nan, 3.0]))
    draw_curves([nothing, one], tmp_path / "a.png")
    with pytest.raises(ConfigError, match="nothing to draw"):
        draw_curves([nothing], tmp_path / "b.png")


def test_one_seed_that_stopped_early_and_short_runs_are_drawn(tmp_path):
    draw_curves([curve(n=1), curve(n=1)], tmp_path / "a.png")
    text = draw_curves([curve(n=2), curve(n=30)], tmp_path / "a.svg").read_text()
    assert not re.search(r"nan", text, re.IGNORECASE)


def test_without_matplotlib_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(curves, "is_installed", lambda: False)
    with pytest.raises(ConfigError, match=re.escape(install_command("plot"))):
        draw_curves([curve()], tmp_path / "a.png")
