"""Fair comparison of two ways to do the same: alternating runs, medians, ratios, one thread, one pinned core.

Times are wall time. On a machine that others use as well, `BENCHMARK_CLOCK=cpu` counts the processor time of this
process instead, which nobody else can lengthen (but for the caches).
"""

from __future__ import annotations

import gc
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Rows = list[dict[str, Any]]
clock = time.process_time if os.environ.get("BENCHMARK_CLOCK") == "cpu" else time.perf_counter


def one_thread() -> None:
    """Pins this process to one core and all libraries to one thread; call it before frameworks are imported."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = "1"
    os.environ["XLA_FLAGS"] = (
        os.environ.get("XLA_FLAGS", "") + " --xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    ).strip()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    sys.dont_write_bytecode = True


def seconds_per_call(function: Callable[[], Any], target: float = 0.05) -> float:
    """Mean seconds of a call over about `target` seconds of calls."""
    calls = 1
    while True:
        start = clock()
        for _ in range(calls):
            function()
        elapsed = clock() - start
        if elapsed >= target:
            return elapsed / calls
        calls = max(calls + 1, int(calls * min(10.0, 1.2 * target / max(elapsed, 1e-9))))


def compare(
    case: str,
    ours: Callable[[], Any],
    peer: Callable[[], Any],
    bar: float | None,
    *,
    rounds: int = 15,
    target: float = 0.05,
) -> dict[str, Any]:
    """Speed of ours over the peer's: the median of ratios of neighbouring runs, which alternate.

    Args:
        case: Name of the row.
        ours: Called again and again.
        peer: Likewise.
        bar: What the ratio should reach at least; None: whatever it is.
        rounds: Pairs of runs.
        target: Seconds of one run.
    """
    for function in (ours, peer):
        for _ in range(3):
            function()
    ratios, ours_seconds, peer_seconds = [], [], []
    gc.collect()
    gc.disable()
    try:
        for index in range(rounds):
            first, second = (ours, peer) if index % 2 else (peer, ours)
            a, b = seconds_per_call(first, target), seconds_per_call(second, target)
            mine, other = (a, b) if index % 2 else (b, a)
            ours_seconds.append(mine)
            peer_seconds.append(other)
            ratios.append(other / mine)
    finally:
        gc.enable()
    return {
        "case": case,
        "ours_us": round(statistics.median(ours_seconds) * 1e6, 2),
        "peer_us": round(statistics.median(peer_seconds) * 1e6, 2),
        **judged(ratios, bar),
    }


def judged(ratios: Sequence[float], bar: float | None) -> dict[str, Any]:
    """What a row says of the ratios of several rounds: their median, the bar, and the quartiles as spread."""
    ratio = statistics.median(ratios)
    several = [*ratios, *ratios] if len(ratios) == 1 else ratios  # of a single round, which has no spread
    low, _, high = statistics.quantiles(several, n=4, method="inclusive")
    return {
        "ratio": round(ratio, 3),
        "bar": bar,
        "ok": bar is None or ratio >= bar,
        "spread": [round(low, 3), round(high, 3)],
    }


def alternating(
    pieces: Mapping[str, Callable[[], Any]], rounds: int, clock: Callable[[], float] = clock
) -> dict[str, list[float]]:
    """Seconds of each piece in each round, the order turned round every time.

    Args:
        pieces: Functions by name; one call of each before the clock runs.
        rounds: How many.
        clock: Tells the time.
    """
    for piece in pieces.values():
        piece()
    seconds: dict[str, list[float]] = {name: [] for name in pieces}
    for index in range(rounds):
        for name in list(pieces) if index % 2 else list(pieces)[::-1]:
            start = clock()
            pieces[name]()
            seconds[name].append(clock() - start)
            print(f"{index:<4}{name:<22}{seconds[name][-1]:8.2f} s", flush=True)
    return seconds


def row(
    case: str, seconds: Mapping[str, Sequence[float]], ours: str, peer: str, bar: float | None, steps: int | None = None
) -> dict[str, Any]:
    """A row of the report: how much faster ours is than the peer, by the median of the rounds' ratios.

    Args:
        case: Name of the row.
        seconds: What `alternating` gave.
        ours: Name of our piece.
        peer: Name of the peer's.
        bar: What the ratio should reach at least; None: whatever it is.
        steps: Environment steps of a piece; with them the row has steps per second.
    """
    ratios = [other / own for own, other in zip(seconds[ours], seconds[peer], strict=True)]
    speeds = {}
    if steps is not None:
        pairs = (("ours", ours), ("peer", peer))
        speeds = {key: round(steps / statistics.median(seconds[name])) for key, name in pairs}
    return {"case": case, **speeds, **judged(ratios, bar)}


def report(name: str, rows: Rows, note: str = "") -> None:
    """Prints a table, and one JSON object as the last line."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    texts = [[str(row.get(key, "")) for key in columns] for row in rows]
    widths = [max(len(key), *(len(text[i]) for text in texts)) for i, key in enumerate(columns)]
    print("  ".join(key.ljust(width) for key, width in zip(columns, widths, strict=True)))
    for text in texts:
        print("  ".join(item.ljust(width) for item, width in zip(text, widths, strict=True)))
    if note:
        print(note)
    keep = ("case", "ratio", "bar", "ok", "spread")
    print(
        json.dumps(
            {"name": name, "rows": [{key: row[key] for key in keep} for row in rows], "ok": all(r["ok"] for r in rows)}
        )
    )
