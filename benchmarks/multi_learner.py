"""Several learners on equal parts of a batch: time of all-reduces in an update, and rows learned from per second.

    python benchmarks/multi_learner.py                       # PPO and A2C, one rank and two, a core each
    python benchmarks/multi_learner.py --backend jax --cases ppo

Each rank is a process on a core of its own, which learns from one made-up rollout again and again. `scaling` is rows
per second of two ranks over those of one; `scaling_by_cpu` is the same of processor time: what two free cores give, as
far as ranks do not wait for each other. On a machine that is not idle only the latter says something.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
CASES = {
    # environments of a rank, length of a rollout, layers, further settings
    "ppo": {"envs": 16, "steps": 128, "units": [256, 256], "agent": {"epochs": 4, "minibatches": 4}},
    "a2c": {"envs": 64, "steps": 32, "units": [256, 256], "agent": {}},
}
FEATURES, ACTIONS = 32, 4
SIZES = (10_000, 1_000_000)
BAR = 1.6


def make_agent(case: str, backend: str):
    """The agent of a case, not built."""
    from rlweave.agents.a2c import A2C
    from rlweave.agents.ppo import PPO
    from rlweave.spaces import FloatBox, IntBox

    chosen = CASES[case]
    layers = [{"type": "dense", "units": units, "activation": "tanh"} for units in chosen["units"]]
    config = {"network": layers, "rollout_steps": chosen["steps"], **chosen["agent"]}
    kind = {"ppo": PPO, "a2c": A2C}[case]
    spaces = FloatBox(shape=(FEATURES,)), IntBox(ACTIONS)
    return kind(*spaces, config, num_envs=chosen["envs"], backend=backend, seed=1)


def rollout(case: str, rank: int) -> dict[str, np.ndarray]:
    """What a rank learns from, made up."""
    rng, chosen = np.random.default_rng(rank), CASES[case]
    shape = chosen["steps"], chosen["envs"]
    return {
        "observations": rng.normal(size=(*shape, FEATURES)).astype(np.float32),
        "next_observations": rng.normal(size=(*shape, FEATURES)).astype(np.float32),
        "actions": rng.integers(0, ACTIONS, shape).astype(np.int32),
        "log_probs": np.full(shape, -np.log(ACTIONS), np.float32),
        "rewards": rng.normal(size=shape).astype(np.float32),
        "terminated": rng.random(shape) < 0.02,
        "truncated": np.zeros(shape, np.bool_),
    }


def run_rank(case: str, backend: str, rank: int, size: int, updates: int) -> dict[str, float]:
    """One process: what an update takes, and the all-reduces in it."""
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[rank % os.cpu_count()]})
    agent, spent = make_agent(case, backend), []
    if size > 1:
        from rlweave.flow.collective_gloo import GlooCollective, open_store

        if rank == 0:
            store, port = open_store(timeout=300.0)
            print(port, flush=True)
            collective = GlooCollective(0, size, store, 300.0)
        else:
            collective = GlooCollective(rank, size, f"127.0.0.1:{sys.stdin.readline().strip()}", 300.0)
        reduce = collective.all_reduce

        def timed(tree, weight=None):
            began = time.perf_counter()
            result = reduce(tree, weight)
            spent.append(time.perf_counter() - began)
            return result

        collective.all_reduce = timed
        agent.join(collective)
    agent.build()
    batch = rollout(case, rank)
    for _ in range(5):
        agent.learn(batch)
    spent.clear()
    began, cpu = time.perf_counter(), time.process_time()
    for _ in range(updates):
        agent.learn(batch)
    found = {
        "seconds": (time.perf_counter() - began) / updates,
        "cpu_seconds": (time.process_time() - cpu) / updates,
        "reduce_seconds": sum(spent) / updates,
        "reduces": len(spent) / updates,
    }
    if size > 1:
        for numbers in SIZES:
            tree, times = {"x": np.ones(numbers, np.float32)}, []
            for _ in range(20):
                began = time.perf_counter()
                reduce(tree, 1.0)
                times.append(time.perf_counter() - began)
            found[f"reduce_{numbers}_seconds"] = statistics.median(times)
    return found


def run_ranks(case: str, backend: str, size: int, updates: int) -> dict[str, float]:
    """All ranks of a run; means over them."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    if backend == "jax":
        environment["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    processes, port = [], ""
    for rank in range(size):
        command = [sys.executable, __file__, "--cases", case, "--backend", backend, "--updates", str(updates)]
        command += ["--rank", str(rank), "--size", str(size)]
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment)
        processes.append(process)
        if size > 1 and rank == 0:
            port = process.stdout.readline()
        elif size > 1:
            process.stdin.write(port)
            process.stdin.flush()
    results = [json.loads(process.communicate()[0].splitlines()[-1]) for process in processes]
    return {name: statistics.mean(result[name] for result in results) for name in results[0]}


def main() -> None:
    """Runs the cases; ranks call it in their processes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--backend", default="torch")
    parser.add_argument("--updates", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--size", type=int, default=1, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank is not None:
        found = run_rank(options.cases[0], options.backend, options.rank, options.size, options.updates)
        print(json.dumps(found))
        return
    report = {}
    for case in options.cases:
        rows = CASES[case]["steps"] * CASES[case]["envs"]
        ones, twos = [], []
        for _ in range(options.rounds):  # they alternate
            ones.append(run_ranks(case, options.backend, 1, options.updates))
            twos.append(run_ranks(case, options.backend, 2, options.updates))
        one, two = ({name: statistics.median(run[name] for run in runs) for name in runs[0]} for runs in (ones, twos))
        report[case] = {
            "rows_of_a_rank": rows,
            "update_ms": 1e3 * one["seconds"],
            "update_in_two_ranks_ms": 1e3 * two["seconds"],
            "all_reduce_ms": 1e3 * two["reduce_seconds"],
            "all_reduces": two["reduces"],
            "scaling": 2.0 * one["seconds"] / two["seconds"],
            "scaling_by_cpu": 2.0 * one["cpu_seconds"] / two["cpu_seconds"],
            **{f"all_reduce_of_{n}_ms": 1e3 * two[f"reduce_{n}_seconds"] for n in SIZES},
        }
        print(case, json.dumps({name: round(value, 3) for name, value in report[case].items()}))
    print(json.dumps({"benchmark": "multi_learner", "backend": options.backend, "bar": BAR, "cases": report}))


if __name__ == "__main__":
    main()
