"""Whether numbers follow a density: proposals over which it is integrated, and what is compared."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

#: Of a difference, how many times its standard error is too much: p < 1e-8 for one number, and many are compared.
SIGMAS = 6.0
#: Shares that differ by less are taken as equal: rounding at bounds, and the error of the integrals.
SLACK, SLACK_COUNTED = 0.01, 0.003
#: All values are listed where there are no more.
MOST_LISTED = 512
_BINS, _FINE_BINS, _WIDE_SHARE = 20, 256, 0.15


@dataclass(frozen=True)
class Points:
    """Values (M, D), and by what each counts in an integral: 1 / (M g) for points from a density g, 1 for lists."""

    values: np.ndarray
    weights: np.ndarray
    listed: bool


def listed(counts: list[np.ndarray]) -> Points | None:
    """All combinations of the values of each coordinate; None where there are too many."""
    if np.prod([float(len(values)) for values in counts]) > MOST_LISTED:
        return None
    grid = np.meshgrid(*counts, indexing="ij")
    values = np.stack([axis.reshape(-1) for axis in grid], axis=-1).astype(np.float64)
    return Points(values, np.ones(len(values)), True)


def proposed(
    samples: np.ndarray,
    counted: list[np.ndarray | None],
    bounds: list[tuple[float, float]],
    count: int,
    together: bool,
) -> Points:
    """Points around samples, and beyond them: of each coordinate a stratified grid, in random order.

    Args:
        samples: (N, D).
        counted: By coordinate the values that there are, of floats None.
        bounds: By coordinate where to look at least; of unbounded ones (-inf, inf).
        count: How many points.
        together: The coordinates are those of one density; else each has its own.
    """
    rng = np.random.default_rng(0)
    columns, weights = [], []
    for number, values in enumerate(counted):
        own = samples[:, number]
        column, density = _floats(own, *bounds[number], count) if values is None else _counts(own, values, count)
        order = rng.permutation(len(column))
        columns.append(column[order])
        weights.append(1.0 / density[order])
    points, by_column = np.stack(columns, axis=-1), np.stack(weights, axis=-1)
    return Points(points, (by_column.prod(axis=-1) if together else by_column) / count, False)


def _floats(samples: np.ndarray, low: float, high: float, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Points, and the density that they have: mostly that of the samples, the rest even over a wider range."""
    edges = np.unique(np.quantile(samples, np.linspace(0.0, 1.0, _FINE_BINS + 1)))
    first, last = float(edges[0]), float(edges[-1])
    reach = max(last - first, 1e-6)
    if len(edges) < 2:
        edges = np.array([first - 0.5 * reach, first + 0.5 * reach])
    wide_low = min(first, low) if np.isfinite(low) else first - reach
    wide_high = max(last, high) if np.isfinite(high) else last + reach
    wide = int(_WIDE_SHARE * count)
    shares = np.histogram(samples, edges)[0] + 1.0
    shares /= shares.sum()
    cumulated = np.concatenate([[0.0], np.cumsum(shares)])
    narrow_points = np.interp((np.arange(count - wide) + 0.5) / (count - wide), cumulated, edges)
    wide_points = wide_low + (wide_high - wide_low) * (np.arange(wide) + 0.5) / wide
    points = np.concatenate([narrow_points, wide_points])
    place = np.clip(np.searchsorted(edges, points, side="right") - 1, 0, len(shares) - 1)
    inside = (points >= edges[0]) & (points <= edges[-1])
    density = np.where(inside, (shares / np.diff(edges))[place], 0.0) * (1.0 - wide / count)
    return points, density + wide / count / (wide_high - wide_low)


def _counts(samples: np.ndarray, values: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    found = (samples[:, None] == values).mean(axis=0)
    shares = 0.85 * found / max(found.sum(), 1e-9) + 0.15 / len(values)
    ends = np.round(np.cumsum(shares) / shares.sum() * count).astype(int)
    repeats = np.diff(np.concatenate([[0], ends]))
    points = np.repeat(values, repeats).astype(np.float64)
    return points, np.repeat(repeats / count, repeats)


@dataclass(frozen=True)
class Integral:
    """A density over points: `share` of each (M,), their sum `total`, and its standard error."""

    points: np.ndarray
    share: np.ndarray
    total: float
    error: float
    listed: bool

    @property
    def is_sharp(self) -> bool:
        """Enough points count for shares to be compared."""
        return self.listed or bool(self.total**2 > 400 * np.sum(self.share**2))

    def mean(self, x: np.ndarray) -> tuple[float, float]:
        """Mean of a number at each point under the density, and its standard error."""
        shares = self.share / max(self.total, 1e-12)
        mean = float(np.sum(shares * x))
        return mean, 0.0 if self.listed else float(np.sqrt(np.sum((shares * (x - mean)) ** 2)))


def integral(points: np.ndarray, weights: np.ndarray, log_density: np.ndarray, listed: bool) -> Integral:
    """A density over points."""
    share = np.exp(np.clip(log_density, -700.0, 300.0)) * weights
    total = float(share.sum())
    error = 0.0 if listed else float(np.std(share) * np.sqrt(len(share)))
    return Integral(points, share, total, error, listed)


def differing_share(samples: np.ndarray, found: Integral, counted: list[np.ndarray | None]) -> str:
    """Where the samples (N, D) are more or fewer than the density says, in words; "" for nowhere.

    Looks at bins of each coordinate, and at how each moves with the next one.
    """
    worst, words = 0.0, ""
    for number, values in enumerate(counted):
        for name, inside, inside_points in _parts(samples, found.points, number, values):
            excess, text = _excess(inside, inside_points, found, SLACK if values is None else SLACK_COUNTED)
            if excess > worst:
                worst, words = excess, f"{name}: {text}"
    for number in range(samples.shape[1] - 1):
        middle = np.median(samples[:, number : number + 2], axis=0)
        both, both_points = ((x[:, number : number + 2] > middle).all(axis=-1) for x in (samples, found.points))
        excess, text = _excess(both, both_points, found, SLACK)
        if excess > worst:
            worst, words = excess, f"components {number} and {number + 1} above their medians: {text}"
    return words if worst > SIGMAS else ""


def _parts(
    samples: np.ndarray, points: np.ndarray, number: int, values: np.ndarray | None
) -> list[tuple[str, np.ndarray, np.ndarray]]:
    x, y = samples[:, number], points[:, number]
    of = f" of component {number}" if samples.shape[1] > 1 else ""
    if values is not None:
        return [(f"value {value:g}{of}", x == value, y == value) for value in values]
    edges = np.unique(np.quantile(x, np.linspace(0.0, 1.0, _BINS + 1)))
    edges = np.concatenate([[-np.inf], edges[1:-1], [np.inf]])
    found = []
    for a, b in pairwise(edges):
        found.append((f"from {a:.3g} to {b:.3g}{of}", (x > a) & (x <= b), (y > a) & (y <= b)))
    return found


def _excess(inside: np.ndarray, inside_points: np.ndarray, found: Integral, slack: float) -> tuple[float, str]:
    """By how many standard errors a share of samples differs from that of the density, and both in words."""
    drawn = float(np.mean(inside))
    said, error = found.mean(inside_points.astype(np.float64))
    spread = np.sqrt(max(said * (1.0 - said), 4.0 / len(inside)) / len(inside) + error**2)
    return max(abs(drawn - said) - slack, 0.0) / spread, f"drawn {drawn:.3f}, reported {said:.3f}"


# -- log-probabilities that are known for samples alone ----------------------------------------------------------


def counted_alone(values: np.ndarray, log_probs: np.ndarray) -> tuple[str, str]:
    """What is wrong with log-probabilities that were returned with countable values.

    Args:
        values: (N, D).
        log_probs: (N,).

    Returns:
        What is wrong with them as a density, and as frequencies, in words; "" for nothing.
    """
    distinct, place, counts = np.unique(values, axis=0, return_inverse=True, return_counts=True)
    place, count = place.reshape(-1), len(values)
    probabilities = np.exp(np.clip(log_probs, -700.0, 300.0))
    said = np.bincount(place, probabilities) / counts
    spread = np.sqrt(np.maximum(np.bincount(place, probabilities**2) / counts - said**2, 0.0))
    drawn, total = counts / count, float(said.sum())
    if np.any((spread > 0.02) & (counts > 20)):
        worst = int(np.argmax(np.where(counts > 20, spread, 0.0)))
        return "", f"value {_shown(distinct[worst])} came with several probabilities"
    errors = np.sqrt(np.maximum(said * (1.0 - said), 4.0 / count) / count)
    excess = np.maximum(np.abs(drawn - said) - SLACK_COUNTED, 0.0) / np.maximum(errors, 1e-12)
    worst = int(np.argmax(excess))
    if len(distinct) > MOST_LISTED or excess[worst] <= SIGMAS:
        return "", ""
    scaled = np.maximum(np.abs(drawn - said / total) - SLACK_COUNTED, 0.0) / np.maximum(errors, 1e-12)
    if total > 1.02 or scaled.max() <= SIGMAS:
        return f"the probabilities of all values add up to {total:.3f}", ""
    return "", f"value {_shown(distinct[worst])}: drawn {drawn[worst]:.3f}, reported {said[worst]:.3f}"


def floats_alone(values: np.ndarray, log_probs: np.ndarray) -> tuple[str, str]:
    """The same for one float (N,): its density is known at the samples, and so is the space between them."""
    order = np.argsort(values)
    x, density = values[order], np.exp(np.clip(log_probs[order], -700.0, 300.0))
    shares = 0.5 * (density[1:] + density[:-1]) * np.diff(x)
    total = float(shares.sum())
    if abs(total - 1.0) > 0.03:
        return f"the density adds up to {total:.3f} over the samples", ""
    edges = np.linspace(0, len(shares), _BINS + 1).astype(int)
    said = np.add.reduceat(shares, edges[:-1])
    error = np.sqrt(1.0 / _BINS / len(x))
    worst = int(np.argmax(np.abs(said - 1.0 / _BINS)))
    if abs(said[worst] - 1.0 / _BINS) > SLACK + SIGMAS * error:
        part = f"from {x[edges[worst]]:.3g} to {x[edges[worst + 1]]:.3g}"
        return "", f"{part}: drawn {1.0 / _BINS:.3f}, reported {said[worst]:.3f}"
    return "", ""


def _shown(value: np.ndarray) -> str:
    return f"{value[0]:g}" if value.size == 1 else str([float(f"{x:g}") for x in value])
