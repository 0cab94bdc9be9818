"""What V-trace is worth: IMPALA on old trajectories, with the correction and without it.

    python benchmarks/off_policy.py --output docs         # all seeds, as committed

The learner trains on trajectories that are many updates old, on the local engine, where the lag of every item is exact:
`rollouts_ahead` is asked for ahead of one worker. The two runs of a seed differ in `off_policy_correction` alone. The
result of a run is the mean of its training returns over all reports: the area under its learning curve. Writes
`off-policy.json`; ends with 1 if the corrected runs are not better in the mean, or nothing was off policy.

The task is the 4x4 grid world, whose holes make what old policies did look bad that a newer one does safely. It is no
law: on CartPole-v1 with a lag of 40 updates the uncorrected runs were the better ones (seeds 100 and 101, 80,000 steps,
mean greedy returns of 286 and 313 against 95 and 155). There an advantage under old policies is a good guide, and
V-trace's small weights make learning slow.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import multiprocessing
import os
import statistics
import sys
from pathlib import Path
from typing import Any

SEEDS = (0, 1, 2, 3, 4)
CORRECTIONS = ("vtrace", "none")
#: What both runs have in common; a constant learning rate, so that policies go on to differ.
SETTINGS: dict[str, Any] = {
    "env": "rlweave/GridWorld-v0",
    "env_options.world": "4x4",
    "backend": "torch",
    "num_envs": 4,
    "steps": 16_000,
    "report_every": 1_000,
    "evaluate_every": 0,
    "rollouts_ahead": 41,
    "agent.acting_backend": "numpy",
    "agent.discount": 0.98,
    "agent.entropy_coefficient": 0.02,
    "agent.lr": 3e-3,
}


def train(correction: str, seed: int, settings: dict[str, Any]) -> dict[str, Any]:
    """One run.

    Returns:
        A row of `off-policy.json`.
    """
    from rlweave.algorithms.config import resolve_config
    from rlweave.algorithms.registry import get_algorithm

    spec = get_algorithm("impala")
    sets = {**SETTINGS, **settings, "seed": seed, "agent.off_policy_correction": correction}
    config = resolve_config(spec.config_class, presets=spec.presets.get(sets["env"]), sets=sets)
    trainer = spec.make_trainer(config, None)
    returns, distances = [], []
    try:
        for report in trainer.train():
            if "train_one_step/off_policy" in report:
                distances.append(float(report["train_one_step/off_policy"]))
            if "episode_return" in report:
                returns.append(round(float(report["episode_return"]), 3))
        lags = trainer.plan.report().train_lag  # type: ignore[attr-defined]
    finally:
        trainer.close()
    return {
        "correction": correction,
        "seed": seed,
        "result": round(statistics.mean(returns), 3),
        "usual_lag": max(lags, key=lambda lag: lags[lag]),
        "largest_lag": max(lags),
        "mean_distance_of_ratios_from_1": round(statistics.mean(distances), 4),
        "returns": returns,
    }


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("docs"), help="directory of the result (default: docs)")
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS), help="default: 0 to 4")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time (default: 1)")
    parser.add_argument("--settings", type=json.loads, default={}, help="further settings as JSON, for experiments")
    arguments = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    pool = concurrent.futures.ProcessPoolExecutor(arguments.jobs, multiprocessing.get_context("spawn"))
    rows = []
    with pool:
        waiting = [
            pool.submit(train, correction, seed, arguments.settings)
            for seed in arguments.seeds
            for correction in CORRECTIONS
        ]
        for future in concurrent.futures.as_completed(waiting):
            rows.append(future.result())
            print({key: value for key, value in rows[-1].items() if key != "returns"}, flush=True)
    rows.sort(key=lambda row: (CORRECTIONS.index(row["correction"]), row["seed"]))
    means = {
        correction: statistics.mean(row["result"] for row in rows if row["correction"] == correction)
        for correction in CORRECTIONS
    }
    off_policy = all(row["usual_lag"] >= 1 and row["mean_distance_of_ratios_from_1"] > 0 for row in rows)
    ok = off_policy and means["vtrace"] > means["none"]
    arguments.output.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join("  " + json.dumps(row) for row in rows)
    shared = json.dumps({**SETTINGS, **arguments.settings})
    text = f'{{"ok": {json.dumps(ok)}, "means": {json.dumps(means)}, "settings": {shared}, "rows": [\n{lines}\n]}}\n'
    (arguments.output / "off-policy.json").write_text(text, encoding="utf-8")
    print(means)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
