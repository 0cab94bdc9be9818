"""Time to recover from each fault of a process on Ray: from the fault to the first item that needs who was replaced.

Two workers and a learner in an actor, or two workers and two shards of a replay memory; the plan goes on meanwhile,
and says what was lost. A hanging actor is noticed after its time-out (3 seconds here), which is part of its row. What
making a process takes (importing what it needs) is part of every row, and most of it.

The last row is a whole training, PPO on CartPole: its driver gets kill -9, and `rlweave resume` goes on from the last
checkpoint. Its time is that from the command to the first step after the checkpoint: a new cluster, new actors, the
graph built again. What was lost are the environment steps since the checkpoint.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import ray

from rlweave.flow import (
    Envelope,
    LearnerActor,
    ParallelReplay,
    ParallelRollouts,
    ReplayShards,
    ReportMetrics,
    Resources,
    SampleBatch,
    StoreToBuffer,
    TrainOneStep,
    Union,
    WorkerGroup,
)
from rlweave.flow.ray_engine import RayEngine
from rlweave.runs.checkpoint import latest_good, load_checkpoint

TIMEOUT = 3.0  # above what making a process takes, which would count as hanging otherwise


class Worker:
    """Makes small fragments, a hundred per second."""

    replaced = 0

    def replacing(self, number):
        """Stands in for others."""
        self.replaced = number

    def sample(self) -> SampleBatch:
        """A fragment, unless it was told to fail."""
        time.sleep(0.01)
        return SampleBatch({"replaced": np.full(4, self.replaced)})

    def hang(self):
        """Does not answer."""
        time.sleep(600)

    def set_weights(self, weights, version):
        """Needs none."""

    def episode_stats(self):
        """None."""
        return []


class Learner:
    """Counts."""

    def __init__(self):
        self.updates = 0

    def update(self, batch):
        """Trains."""
        self.updates += 1
        return {"replaced": float(batch["replaced"].max())}

    def hang(self):
        """Does not answer."""
        time.sleep(600)

    def get_weights(self):
        """Its count."""
        return {"w": np.array(self.updates)}

    def state_dict(self):
        """Its count."""
        return {"updates": self.updates}

    def load_state_dict(self, state):
        """Takes it over."""
        self.updates = state["updates"]


class Shard:
    """Keeps the last batch only: what is measured is how long it takes to have one again."""

    replaced = 0

    def __init__(self):
        self.batch = None

    def replacing(self, number):
        """Stands in for others."""
        self.replaced = number

    def insert(self, batch):
        """Keeps it."""
        self.batch = batch

    def sample(self) -> SampleBatch:
        """Says who it is."""
        return SampleBatch({"replaced": np.full(4, self.replaced)})

    def update_priorities(self, indices, priorities):
        """Has none."""
        return 0

    def state_dict(self):
        """Nothing."""
        return {}

    def load_state_dict(self, state):
        """Nothing."""


def shard_recovery(engine: RayEngine) -> tuple[float, dict[str, int]]:
    """Seconds until a killed shard of a replay memory serves samples again, and what was lost."""
    workers = WorkerGroup([partial(Worker) for _ in range(2)], Resources(cpus=0.25))
    shards = ReplayShards([partial(Shard) for _ in range(2)], 4, resources=Resources(cpus=0.25))
    store = ParallelRollouts(workers).gather_async().for_each(StoreToBuffer(shards))
    samples = ParallelReplay(shards, 8).on_error("replace", timeout=TIMEOUT, first_delay=0.05).gather_async()
    train = samples.for_each(TrainOneStep(Learner())).rate_limit(1.0, 8)
    with ReportMetrics(Union(store, train), workers) as plan:
        plan.start(engine)
        items = plan.items()
        for _ in range(50):
            next(items)
        context = plan._context
        assert context is not None
        began = time.monotonic()
        ray.kill(context.actors(shards)[0].handle, no_restart=True)
        while not getattr(next(items).payload, "metrics", {}).get("replaced"):
            pass
        seconds = time.monotonic() - began
        assert plan.counters.replacements == {"parallel_replay": 1}
        lost = plan.report().measures["parallel_replay/lost_steps"]
        return seconds, {"items": sum(plan.counters.lost_items.values()), "updates": 0, "steps": int(lost)}


def driver_recovery() -> tuple[float, dict[str, int]]:
    """Seconds from `rlweave resume` to the first step after the checkpoint of a training whose driver was killed."""
    main = [sys.executable, "-c", "from rlweave.cli import main; main()"]
    settings = ["agent.acting_backend=numpy", "object_store_mb=80", "evaluate_every=0", "checkpoint_every=4096"]
    train = ["train", "ppo", "--env", "CartPole-v1", "--backend", "jax", "--engine", "ray", "--workers", "2"]
    train += ["--run-dir", "run", "--steps", "100000000"]
    train += [word for setting in [*settings, "report_every=256"] for word in ("--set", setting)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "start_new_session": True}
    with tempfile.TemporaryDirectory(prefix="rlweave-recovery-") as directory:
        checkpoints, metrics = Path(directory, "run/checkpoints"), Path(directory, "run/metrics.csv")

        def steps() -> int:
            with metrics.open() as file:
                return max((int(float(row["env_steps_sampled"] or 0)) for row in csv.DictReader(file)), default=0)

        process = subprocess.Popen([*main, *train], cwd=directory, **quiet)
        while latest_good(checkpoints) is None or steps() < 6_000:
            assert process.poll() is None, "the training ended before it was killed"
            time.sleep(0.05)
        process.kill()
        process.wait()
        reached = steps()
        saved = load_checkpoint(latest_good(checkpoints))[1]["env_steps"]
        began = time.monotonic()
        process = subprocess.Popen([*main, "resume", "run", "--steps", str(saved + 4_096)], cwd=directory, **quiet)
        while process.poll() is None and not saved < steps() < reached:  # lines after the checkpoint are written anew
            time.sleep(0.05)
        seconds = time.monotonic() - began
        assert process.wait() == 0, "the training was not resumed"
        return seconds, {"items": 0, "updates": 0, "steps": reached - saved}


def recovery(engine: RayEngine, who: str, how: str) -> tuple[float, dict[str, int]]:
    """Seconds to recover, and what was lost."""
    if who == "shard":
        return shard_recovery(engine)
    workers = WorkerGroup([partial(Worker) for _ in range(2)], Resources(cpus=0.5))
    learner = LearnerActor(Learner, Resources(cpus=0.5), save_every=10)
    rollouts = ParallelRollouts(workers).on_error("replace", timeout=TIMEOUT, first_delay=0.05)
    train = rollouts.gather_async().queue(4, "drop_oldest").for_each(TrainOneStep(learner, workers))
    with ReportMetrics(train.on_error("replace", timeout=TIMEOUT, first_delay=0.05), workers) as plan:
        plan.start(engine)
        items = plan.items()
        for _ in range(50):
            next(items)
        assert not plan.counters.replacements, "a process took longer to be made than the time-out"
        context = plan._context
        assert context is not None
        actor = context.actors(workers)[1] if who == "worker" else context.learner(learner).actor
        began = time.monotonic()
        if how == "killed":
            ray.kill(actor.handle, no_restart=True)
        else:
            actor.invoke("ask", "hang") if who == "worker" else actor.invoke("hang")
        operator = "parallel_rollouts" if who == "worker" else "train_one_step"
        while True:
            item = next(items)
            assert isinstance(item, Envelope)
            there = plan.counters.replacements.get(operator)
            if there and (who == "learner" or item.payload.metrics["replaced"]):
                break
        seconds = time.monotonic() - began
        lost = {"items": sum(plan.counters.lost_items.values()), "updates": sum(plan.counters.lost_updates.values())}
        return seconds, lost


def main() -> None:
    """Measures every fault in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    cases = [
        ("worker", "killed"),
        ("worker", "hangs"),
        ("learner", "killed"),
        ("learner", "hangs"),
        ("shard", "killed"),
    ]
    found: dict[str, list[float]] = {}
    losses: dict[str, dict[str, int]] = {}
    with RayEngine(num_cpus=2, object_store_memory=80 * 2**20) as engine:
        for _ in range(arguments.rounds):
            for who, how in cases:
                seconds, lost = recovery(engine, who, how)
                found.setdefault(f"{who} {how}", []).append(seconds)
                losses[f"{who} {how}"] = lost
    for _ in range(arguments.rounds):
        seconds, lost = driver_recovery()
        found.setdefault("driver killed", []).append(seconds)
        losses["driver killed"] = lost
    print(f"{'fault':16}{'seconds':>10}   lost (items, updates, environment steps)")
    medians = {name: statistics.median(values) for name, values in found.items()}
    for name, seconds in medians.items():
        lost = losses[name]
        print(f"{name:16}{seconds:10.2f}   {lost['items']}, {lost['updates']}, {lost.get('steps', 0)}")
    print(json.dumps({"benchmark": "flow_recovery", "seconds": medians, "timeout": TIMEOUT}))


if __name__ == "__main__":
    main()
