"""A3C on CartPole with the parameters in shards, on Ray: environment steps per second, against a loop written by hand.

    python benchmarks/parameter_server.py                         # one shard and two, two workers
    python benchmarks/parameter_server.py --shards 2 --rounds 3

The peer has the same workers and shards as plain Ray actors, and a loop that does nothing but lead gradients from
workers to shards and weights back: no versions, lags, counters, failures or reports. So the ratio is what the plan
costs. Every run is a process of its own, and contestants alternate. Time is wall time after a warm-up; beside it stands
the processor time of the driver for each update, in milliseconds, which other work on the machine changes less.
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
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
WORKERS, ENVS, ROLLOUT = 2, 8, 16
BAR = 0.95


def config_of(shards: int) -> Any:
    """The settings of the training."""
    from rlweave.algorithms.config import resolve_config
    from rlweave.algorithms.registry import get_algorithm

    sets = {
        "env": "CartPole-v1", "backend": "torch", "engine": "ray", "object_store_mb": 128, "steps": 10**9,
        "num_envs": WORKERS * ENVS, "evaluate_every": 0, "worker_cpus": 0.5, "tensorboard": False,
        "placement.name": "parameter_server", "placement.workers": WORKERS, "placement.shards": shards,
        "agent.network": [{"type": "dense", "units": 64, "activation": "tanh"}] * 2,
        "agent.acting_backend": "numpy", "agent.rollout_steps": ROLLOUT,
    }  # fmt: skip
    return resolve_config(get_algorithm("a3c").config_class, sets=sets)


def measured(begun: float, cpu: float, steps: int) -> dict[str, float]:
    """Steps per second since a moment, and processor time of this process for each update."""
    updates = steps / (ENVS * ROLLOUT)
    return {
        "steps_per_second": steps / (time.perf_counter() - begun),
        "driver_ms": 1e3 * (time.process_time() - cpu) / updates,
    }


def plan(shards: int, seconds: float, warm_up: float) -> dict[str, float]:
    """Our placement."""
    from rlweave.algorithms.registry import get_algorithm

    trainer = get_algorithm("a3c").make_trainer(config_of(shards))
    try:
        advance, counters = trainer.plan.advance, trainer.plan.counters

        def run_for(duration: float) -> dict[str, float]:
            begun, cpu, before = time.perf_counter(), time.process_time(), counters.env_steps_sampled
            advance(lambda _: time.perf_counter() - begun >= duration)
            return measured(begun, cpu, counters.env_steps_sampled - before)

        run_for(warm_up)
        found = run_for(seconds)
        lags = trainer.plan.report().train_lag
        mean = sum(lag * count for lag, count in lags.items()) / sum(lags.values())
        return {**found, "lag": mean, "largest_lag": max(lags)}
    finally:
        trainer.close()


def by_hand(shards: int, seconds: float, warm_up: float) -> dict[str, float]:
    """The same actors, led by hand."""
    import ray

    from rlweave.algorithms.parameter_server import parameter_server_parts
    from rlweave.algorithms.registry import get_algorithm

    server = parameter_server_parts(config_of(shards), get_algorithm("a3c")).remote
    ray.init(num_cpus=os.cpu_count(), object_store_memory=128 * 2**20, include_dashboard=False, log_to_driver=False)

    @ray.remote(num_cpus=0.5, enable_task_events=False)
    class Worker:
        def __init__(self, factory: Any, number: int, in_parts: Any) -> None:
            self.worker, self.in_parts = factory(), in_parts
            self.worker.start(number)

        def gradients(self, *weights: Any) -> tuple[Any, ...]:
            for own in weights:
                self.worker.set_weights(own, 0)
            batch = self.worker.sample()
            return batch.num_steps, *self.in_parts(self.worker.compute_gradients(batch)).pieces

    @ray.remote(num_cpus=0.0, enable_task_events=False)
    class Shard:
        def __init__(self, factory: Any) -> None:
            self.shard = factory()

        def update(self, gradients: Any) -> None:
            self.shard.update(gradients)

        def weights(self) -> Any:
            return self.shard.get_weights()

    from rlweave.flow.parameter_shards import InParts

    in_parts = InParts(*server.division())
    holders = [Shard.remote(factory) for factory in server.factories]
    workers = [Worker.remote(own, number, in_parts) for number, own in enumerate(server.workers.factories)]
    under_way = {}

    def ask(worker: Any) -> None:
        weights = [holder.weights.remote() for holder in holders]
        head, *parts = worker.gradients.options(num_returns=1 + shards).remote(*weights)
        under_way[head] = worker, parts

    def run_for(duration: float) -> dict[str, float]:
        begun, cpu, steps = time.perf_counter(), time.process_time(), 0
        while time.perf_counter() - begun < duration:
            (head,), _ = ray.wait(list(under_way), num_returns=1)
            worker, parts = under_way.pop(head)
            steps += ray.get(head)
            for holder, part in zip(holders, parts, strict=True):
                holder.update.remote(part)
            ask(worker)
        return measured(begun, cpu, steps)

    for worker in workers:
        ask(worker)
    run_for(warm_up)
    found = run_for(seconds)
    ray.shutdown()
    return found


def run(contestant: str, shards: int, arguments: argparse.Namespace) -> dict[str, float]:
    """One run in a process of its own."""
    command = [sys.executable, __file__, "--contestant", contestant, "--shards", str(shards)]
    command += ["--seconds", str(arguments.seconds), "--warm-up", str(arguments.warm_up)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode:
        raise RuntimeError(f"{contestant} failed:\n{done.stderr[-4000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def rows(arguments: argparse.Namespace) -> list[dict[str, object]]:
    """A row for each number of shards; prints each run."""
    found = []
    for shards in arguments.shards:
        speeds: dict[str, list[float]] = {"plan": [], "by_hand": []}
        for index in range(arguments.rounds):
            for name in list(speeds)[:: 1 if index % 2 == 0 else -1]:
                result = run(name, shards, arguments)
                speeds[name].append(result["steps_per_second"])
                print(shards, name, {key: round(value, 2) for key, value in result.items()}, flush=True)
        ratios = [mine / other for mine, other in zip(speeds["plan"], speeds["by_hand"], strict=True)]
        medians = {"ours": speeds["plan"], "peer": speeds["by_hand"]}
        row = {key: round(statistics.median(own)) for key, own in medians.items()}
        found.append({"case": f"{shards} shards, steps/s", **row, **judged(ratios, BAR)})
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shards", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=5, help="runs of each contestant (default: 5)")
    parser.add_argument("--seconds", type=float, default=15.0, help="length of a measurement (default: 15)")
    parser.add_argument("--warm-up", type=float, default=5.0, help="seconds before it (default: 5)")
    parser.add_argument("--contestant", choices=("plan", "by_hand"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.contestant is not None:
        contestant = {"plan": plan, "by_hand": by_hand}[arguments.contestant]
        print(json.dumps(contestant(arguments.shards[0], arguments.seconds, arguments.warm_up)))
    else:
        sys.path.insert(0, str(ROOT))
        from benchmarks.alternating import judged, report

        note = f"{WORKERS} workers of {ENVS} environments, rollouts of {ROLLOUT} steps, torch; {os.cpu_count()} cores"
        report("parameter_server", rows(arguments), note)
