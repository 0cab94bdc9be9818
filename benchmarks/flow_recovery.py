"""Time to recover from each fault of a process on Ray: from the fault to the first item that needs who was replaced.

Two workers and a learner in an actor; the plan goes on meanwhile, and says what was lost. A hanging actor is noticed
after its time-out (3 seconds here), which is part of its row. What making a process takes (importing what it needs) is
part of every row, and most of it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from functools import partial

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import ray

from rlweave.flow import (
    Envelope,
    LearnerActor,
    ParallelRollouts,
    ReportMetrics,
    Resources,
    SampleBatch,
    TrainOneStep,
    WorkerGroup,
)
from rlweave.flow.ray_engine import RayEngine

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


def recovery(engine: RayEngine, who: str, how: str) -> tuple[float, dict[str, int]]:
    """Seconds to recover, and what was lost."""
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
    cases = [(who, how) for who in ("worker", "learner") for how in ("killed", "hangs")]
    found: dict[str, list[float]] = {}
    losses: dict[str, dict[str, int]] = {}
    with RayEngine(num_cpus=2, object_store_memory=80 * 2**20) as engine:
        for _ in range(arguments.rounds):
            for who, how in cases:
                seconds, lost = recovery(engine, who, how)
                found.setdefault(f"{who} {how}", []).append(seconds)
                losses[f"{who} {how}"] = lost
    print(f"{'fault':16}{'seconds':>10}   lost (items, updates)")
    medians = {name: statistics.median(values) for name, values in found.items()}
    for name, seconds in medians.items():
        print(f"{name:16}{seconds:10.2f}   {losses[name]['items']}, {losses[name]['updates']}")
    print(json.dumps({"benchmark": "flow_recovery", "seconds": medians, "timeout": TIMEOUT}))


if __name__ == "__main__":
    main()
