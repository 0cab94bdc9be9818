"""Predicted / measured environment steps per second, of trainings on Ray with one and with two workers.

`rlweave plan ALGO --simulate` predicts from costs that a short training measures. Here each prediction is compared with
a training of the same settings on Ray, driver and all workers on this machine. A row's ratio is how close they are,
1 - |predicted / measured - 1|: the bar of 0.85 is a prediction within 15 %. Every round measures the costs anew. Costs
are processor time, speeds are wall time: where others use the machine, trainings are slower than predicted.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

ALGORITHMS = ("ppo", "impala", "ape-x", "dqn")
WORKERS = (1, 2)
BAR = 0.85
ROOT = Path(__file__).resolve().parents[1]


def settings(algorithm, backend):
    """Those tuned for CartPole, on one backend."""
    from rlweave.algorithms.config import resolve_config
    from rlweave.algorithms.registry import get_algorithm

    chosen = get_algorithm(algorithm)
    sets = {"env": "CartPole-v1", "backend": backend, "agent.acting_backend": "numpy", "object_store_mb": 128}
    sets |= {"steps": 10**9, "evaluate_every": 0}
    return chosen, resolve_config(chosen.config_class, presets=chosen.preset_of("CartPole-v1"), sets=sets)


def measure(chosen, config, seconds):
    """Steps per second of a training, after its updates were compiled and its memory was ready."""
    trainer = chosen.make_trainer(config)
    try:
        counters = trainer.plan.counters
        trainer.plan.advance(lambda counters: counters.updates >= 10)
        began, steps, updates = time.perf_counter(), counters.env_steps_sampled, counters.updates

        def enough(counters):
            return counters.updates > updates and time.perf_counter() - began >= seconds

        trainer.plan.advance(enough)
        return (counters.env_steps_sampled - steps) / (time.perf_counter() - began)
    finally:
        trainer.close()


def contestant(algorithm, backend, seconds):
    """One round of an algorithm: predicted and measured, for each number of workers."""
    from rlweave.algorithms.scaling import measured, predicted, with_workers

    chosen, config = settings(algorithm, backend)
    costs = measured(chosen, config)
    print(json.dumps(costs.to_data()), file=sys.stderr)
    speeds = [prediction.steps_per_second for prediction in predicted(chosen, config, costs, WORKERS)]
    return [
        (speed, measure(chosen, with_workers(config, n), seconds)) for speed, n in zip(speeds, WORKERS, strict=True)
    ]


def run(algorithm, options):
    """A round in a process of its own."""
    command = [sys.executable, __file__, "--contestant", algorithm]
    command += ["--backend", options.backend, "--seconds", str(options.seconds)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode:
        raise RuntimeError(f"{algorithm} failed:\n{done.stderr[-4000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def main():
    """Prints a table, and one JSON object as the last line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="*", choices=ALGORITHMS, default=list(ALGORITHMS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0, help="length of a training that is measured")
    parser.add_argument("--backend", default="jax")
    parser.add_argument("--contestant", choices=ALGORITHMS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.contestant:
        print(json.dumps(contestant(options.contestant, options.backend, options.seconds)))
        return
    from alternating import judged, report

    found = {}
    for _ in range(options.rounds):
        for algorithm in options.cases:
            for n, (predicted, measured) in zip(WORKERS, run(algorithm, options), strict=True):
                found.setdefault((algorithm, n), []).append((predicted, measured))
                print(f"{algorithm}, {n} workers: predicted {predicted:,.0f}, measured {measured:,.0f}", flush=True)
    rows = []
    for (algorithm, n), pairs in found.items():
        close = [1.0 - abs(predicted / measured - 1.0) for predicted, measured in pairs]
        middle = sorted(pairs)[len(pairs) // 2]
        speeds = {"predicted": round(middle[0]), "measured": round(middle[1])}
        rows.append({"case": f"{algorithm}, {n} workers", **speeds, **judged(close, BAR)})
    report("simulate", rows, f"{os.cpu_count()} cores, {options.backend}, CartPole-v1 on Ray")


if __name__ == "__main__":
    main()
