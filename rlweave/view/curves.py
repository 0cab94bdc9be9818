"""Learning curves: the return of one or many runs over environment steps, as a PNG or SVG file."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlweave.errors import ConfigError, install_command, nearest

# Dark enough on white to read, and told apart by most colour-blind readers.
_COLOURS = ("#1f5fa8", "#d1670c", "#2a8a57", "#a8324f", "#6b4fa0", "#7a6a2f", "#3b9ab2", "#555555")


@dataclasses.dataclass(frozen=True)
class Curve:
    """One run.

    Attributes:
        group: What it is drawn with: runs of one group (seeds of one setting) share a line and a band.
        steps: Environment steps, rising, shape (n,).
        values: The metric, shape (n,); NaN where there is none.
    """

    group: str
    steps: np.ndarray
    values: np.ndarray


def is_installed() -> bool:
    """Whether pictures can be drawn (without importing anything)."""
    return importlib.util.find_spec("matplotlib") is not None


def draw_curves(
    curves: Sequence[Curve],
    path: str | os.PathLike[str],
    *,
    title: str = "",
    label: str = "return (mean of the latest training episodes)",
    smoothing: float = 0.06,
    threshold: float | None = None,
) -> Path:
    """Draws learning curves into a file.

    A group with one run shows its raw values pale behind the smoothed line; a group of several shows the mean of their
    smoothed lines, and the range from the lowest to the highest as a band. Where some runs of a group have no values
    any more, the others go on as thin lines of their own.

    Args:
        curves: The runs; groups get their colours in the order of their first run.
        path: The picture; its ending says which format (`.png`, `.svg`, `.pdf`).
        title: Above the picture.
        label: What is drawn, at the vertical axis.
        smoothing: Width of the moving average as a share of the horizontal axis; 0 draws raw values.
        threshold: A level to mark, such as the return at which an environment counts as solved.

    Returns:
        The path.

    Raises:
        ConfigError: When matplotlib is not installed, there is nothing to draw, the format is unknown, or the file
            cannot be written.
    """
    if not is_installed():
        raise ConfigError("pictures need matplotlib, which is not installed", fix=install_command("plot"))
    drawable = [_finite(curve) for curve in curves]
    drawable = [curve for curve in drawable if len(curve.steps)]
    if not drawable:
        raise ConfigError("there is nothing to draw: no run has a value yet", where=str(path))
    # The figure is made without pyplot: no window system, no global state.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    path = Path(path)
    formats = FigureCanvasAgg.get_supported_filetypes()
    if path.suffix.lower().lstrip(".") not in formats:
        fix = nearest(path.suffix, [f".{name}" for name in formats])
        raise ConfigError("no picture format has this ending", where=str(path), received=repr(path.suffix), fix=fix)
    figure = Figure(figsize=(8.0, 4.8), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    groups: dict[str, list[Curve]] = {}
    for curve in drawable:
        groups.setdefault(curve.group, []).append(curve)
    width = smoothing * max(float(curve.steps[-1]) for curve in drawable)
    for index, (group, members) in enumerate(groups.items()):
        _draw_group(axes, group, members, width, _COLOURS[index % len(_COLOURS)])
    if threshold is not None:
        axes.axhline(threshold, color="#888888", linewidth=1.0, linestyle="--", zorder=1)
        beside: Any = {"xycoords": ("axes fraction", "data"), "xytext": (5, 0), "textcoords": "offset points"}
        axes.annotate(f"solved\n{threshold:g}", (1.0, threshold), va="center", fontsize=8, color="#666666", **beside)
    axes.set_xlabel("environment steps")
    axes.set_ylabel(label)
    axes.set_title(title, loc="left", fontsize=11)
    axes.xaxis.set_major_formatter(lambda x, _: _short(x))
    axes.grid(color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.margins(x=0.01)
    axes.set_xlim(left=0)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.legend(frameon=False, loc="best", fontsize=9)
    try:
        figure.savefig(path)
    except OSError as error:
        raise ConfigError("cannot write the picture", where=str(path), received=str(error)) from error
    return path


def smooth(steps: np.ndarray, values: np.ndarray, width: float) -> np.ndarray:
    """A moving average over a window of the horizontal axis, which lies around each point.

    Args:
        steps: Rising, shape (n,).
        values: Finite, shape (n,).
        width: Of the window, in steps.

    Returns:
        Shape (n,).

    >>> smooth(np.array([0., 1., 2., 3.]), np.array([0., 3., 6., 0.]), width=2.0)
    array([1.5, 3. , 3. , 3. ])
    """
    sums = np.concatenate([[0.0], np.cumsum(values)])
    first = np.searchsorted(steps, steps - width / 2, side="left")
    last = np.searchsorted(steps, steps + width / 2, side="right")
    return (sums[last] - sums[first]) / (last - first)


def _draw_group(axes: Any, group: str, members: list[Curve], width: float, colour: str) -> None:
    lines = [smooth(curve.steps, curve.values, width) for curve in members]
    if len(members) == 1:
        (curve,), (line,) = members, lines
        axes.plot(curve.steps, curve.values, color=colour, alpha=0.25, linewidth=1.0)
        axes.plot(curve.steps, line, color=colour, linewidth=2.0, label=group, marker="o" if len(line) == 1 else None)
        return
    # Mean and band only where all runs have values: over fewer of them they would jump where one ends.
    start, end = max(c.steps[0] for c in members), min(c.steps[-1] for c in members)
    grid = np.linspace(start, end, 400) if end > start else np.array([start])
    stacked = np.stack([np.interp(grid, c.steps, line) for c, line in zip(members, lines, strict=True)])
    axes.fill_between(grid, stacked.min(0), stacked.max(0), color=colour, alpha=0.18, linewidth=0)
    axes.plot(grid, stacked.mean(0), color=colour, linewidth=2.0, label=f"{group}  ({len(members)} runs)")
    for curve, line in zip(members, lines, strict=True):
        for part in (curve.steps <= start, curve.steps >= end):
            if np.count_nonzero(part) > 1:
                axes.plot(curve.steps[part], line[part], color=colour, linewidth=1.0, alpha=0.6)


def _finite(curve: Curve) -> Curve:
    keep = np.isfinite(curve.values) & np.isfinite(curve.steps)
    return Curve(curve.group, curve.steps[keep], curve.values[keep])


def _short(x: float) -> str:
    for unit, letter in ((1e6, "M"), (1e3, "k")):
        if abs(x) >= unit:
            return f"{x / unit:g}{letter}"
    return f"{x:g}"
