"""Resident memory of driver, actors and object store over 2,000 iterations of a plan on Ray, and open references: flat.

Two workers make fragments of 250 kB; a learner in an actor of its own trains on them, and its weights of 250 kB go to
the workers with every update. After a warm-up, memory is read at ten places; what grows is the slope of a line through
them. Flat means: less than 0.5 % of the first reading, plus 2 MB for an allocator's steps, over all iterations; and no
more references at the end than at the beginning, but for those on their way.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
from functools import partial
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import ray
from ray._private.worker import global_worker

from rlweave.flow import (
    Envelope,
    Episode,
    LearnerActor,
    ParallelRollouts,
    ReportMetrics,
    Resources,
    SampleBatch,
    TrainOneStep,
    WorkerGroup,
)
from rlweave.flow.ray_engine import RayEngine

NUMBERS = 62_500  # of float32: 250 kB


class Worker:
    """Makes fragments of zeros, and an episode with each."""

    def sample(self) -> SampleBatch:
        """A fragment."""
        return SampleBatch({"observations": np.zeros((50, NUMBERS // 50), np.float32)})

    def pid(self):
        """Its process."""
        return os.getpid()

    def set_weights(self, weights, version):
        """Keeps the newest."""
        self.weights = weights["w"].copy()

    def episode_stats(self):
        """One episode per fragment."""
        return [Episode(1.0, 50)]


class Learner:
    """Adds to its weights; keeps nothing else."""

    def __init__(self):
        self.weights = np.zeros(NUMBERS, np.float32)

    def update(self, batch):
        """Trains."""
        self.weights += batch["observations"].reshape(-1) + 1.0
        return {"pid": float(os.getpid())}

    def get_weights(self):
        """A copy."""
        return {"w": self.weights.copy()}

    def state_dict(self):
        """A copy."""
        return self.get_weights()

    def load_state_dict(self, state):
        """Takes it over."""
        self.weights = state["w"].copy()


def resident(pid: int) -> float:
    """Memory in MB that a process has for itself: without what it shares, the object store above all."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(fields["RssAnon"].split()[0]) / 1024


def store_used() -> float:
    """MB in the object store."""
    total, free = ray.cluster_resources(), ray.available_resources()
    return (total.get("object_store_memory", 0.0) - free.get("object_store_memory", 0.0)) / 2**20


def main() -> None:
    """Runs the plan, and judges."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, default=2_000)
    arguments = parser.parse_args()
    every = max(1, arguments.iterations // 10)
    readings: dict[str, list[float]] = {}
    with RayEngine(num_cpus=2, object_store_memory=80 * 2**20) as engine:
        workers = WorkerGroup([partial(Worker) for _ in range(2)], Resources(cpus=0.5))
        learner = LearnerActor(Learner, Resources(cpus=0.5), save_every=10)
        rollouts = ParallelRollouts(workers).gather_async().queue(4)
        train = rollouts.for_each(TrainOneStep(learner, workers)).on_error("replace")
        with ReportMetrics(train, workers) as plan:
            plan.start(engine)
            learner_pid, worker_pids = 0, []
            warm = max(20, every)
            for number, item in enumerate(plan.items()):
                assert isinstance(item, Envelope)
                learner_pid = int(item.payload.metrics["pid"])
                if number % 20 == 0:
                    plan.report()
                if number == warm:
                    worker_pids = plan.ask_workers("pid")
                if number >= warm and (number - warm) % every == 0:
                    gc.collect()
                    row = {"driver": resident(os.getpid()), "learner": resident(learner_pid)}
                    row |= {f"worker {n}": resident(pid) for n, pid in enumerate(worker_pids)}
                    row |= {"object store": store_used()}
                    row |= {"references": len(global_worker.core_worker.get_all_reference_counts())}
                    for name, value in row.items():
                        readings.setdefault(name, []).append(value)
                if number >= warm + arguments.iterations:
                    break
    growth = {name: grown(values) for name, values in readings.items()}
    flat = True
    print(f"MB, and number of references, over {arguments.iterations} iterations")
    print(f"{'':14}{'first':>10}{'last':>10}{'growth':>10}")
    for name, values in readings.items():
        allowed = 8.0 if name == "references" else 0.005 * values[0] + 2.0
        good = growth[name] <= allowed
        flat &= good
        print(f"{name:14}{values[0]:10.1f}{values[-1]:10.1f}{growth[name]:10.2f}   {'flat' if good else 'GROWS'}")
    print(
        json.dumps({"benchmark": "flow_memory", "growth": growth, "iterations": arguments.iterations, "passed": flat})
    )
    sys.exit(not flat)


def grown(values: list[float]) -> float:
    """What a straight line through the readings grows by from the first to the last."""
    return float(np.polyfit(np.linspace(0.0, 1.0, len(values)), values, 1)[0])


if __name__ == "__main__":
    main()
