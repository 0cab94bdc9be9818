"""Items per second and driver CPU per item: a plan on Ray / a bare `ray.wait` loop / RLlib Flow's own iterators.

The policy is one number; fragments of 10, 50 and 200 steps of CartPole; 1 and 2 workers. All three fetch one fragment
per call from the same kind of worker, and count its steps. Workers and fragments are of classes in a module
(`one_number.py`), as those of libraries are: of a class in a script, every item carries the definition, whoever fetches
it. RLlib Flow's iterators are `ray.util.iter`, which Ray still ships: its plans were made of them. The last row is what
a plan costs that waits for actors which are busy with nothing.

Two rows more per case show a plan whose workers make five fragments per call, a setting of `ParallelRollouts` for
items that cost less than a call does. By default a plan asks for an item only after the one before has gone through it,
so that no weights are older than they must be: then it does more per call than the loop, which knows of no weights.

Rounds alternate; a row says the median of the ratios of neighbouring runs. They are many, since the speed of a shared
machine changes from second to second, and not so short that each begins with a cold cache. Driver CPU is that of the
whole process, Ray's threads included.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
import warnings
from functools import partial

os.environ["OMP_NUM_THREADS"] = "1"
warnings.filterwarnings("ignore")

import ray  # noqa: E402
import ray.util.iter  # noqa: E402
from alternating import judged, report  # noqa: E402
from one_number import BusyWithNothing, Worker  # noqa: E402

from rlweave.flow import NOT_READY, ParallelRollouts, ReportMetrics, Resources, WorkerGroup  # noqa: E402
from rlweave.flow.ray_engine import RayEngine  # noqa: E402

SHARE = 0.1  # of a core: all actors of a case live at the same time, and those that nobody asks do nothing
IDLE_SECONDS = 5.0


class FlowWorker(ray.util.iter.ParallelIteratorWorker):
    """A worker as RLlib Flow had them: an endless iterator in an actor."""

    def __init__(self, steps):
        worker = Worker(steps)

        def endless():
            while True:
                yield worker.sample()

        super().__init__(endless, False)


class Plan:
    """Ours."""

    def __init__(self, engine, steps, workers, fragments=1):
        group = WorkerGroup([partial(Worker, steps)] * workers, Resources(cpus=SHARE))
        self.plan = ReportMetrics(ParallelRollouts(group, fragments=fragments).gather_async(), group)
        self.items = self.plan.start(engine).items()

    def run(self, n):
        """Takes n items."""
        before = self.plan.counters.env_steps_sampled
        for _ in range(n):
            next(self.items)
        return self.plan.counters.env_steps_sampled - before

    def close(self):
        """Ends the actors."""
        self.plan.close()


class Bare:
    """A hand-written loop."""

    def __init__(self, steps, workers):
        self.actors = [ray.remote(num_cpus=SHARE)(Worker).remote(steps) for _ in range(workers)]
        self.pending = {actor.sample.remote(): actor for actor in self.actors}

    def run(self, n):
        """Takes n items."""
        steps = 0
        for _ in range(n):
            (ready,), _ = ray.wait(list(self.pending), num_returns=1)
            actor = self.pending.pop(ready)
            steps += ray.get(ready).num_steps
            self.pending[actor.sample.remote()] = actor
        return steps

    def close(self):
        """Ends the actors."""
        for actor in self.actors:
            ray.kill(actor)


class FlowIterators:
    """RLlib Flow's."""

    def __init__(self, steps, workers):
        self.actors = [ray.remote(num_cpus=SHARE)(FlowWorker).remote(steps) for _ in range(workers)]
        self.items = iter(ray.util.iter.from_actors(self.actors).gather_async())

    def run(self, n):
        """Takes n items."""
        steps = 0
        for _ in range(n):
            steps += next(self.items).num_steps
        return steps

    def close(self):
        """Ends the actors."""
        for actor in self.actors:
            ray.kill(actor)


def measured(system, n, steps):
    """Wall seconds and driver CPU seconds per item."""
    wall, cpu = time.perf_counter(), time.process_time()
    assert system.run(n) == n * steps
    return (time.perf_counter() - wall) / n, (time.process_time() - cpu) / n


def compare(engine, steps, workers, rounds, seconds):
    """Four rows: items and CPU, against the loop and against Flow's iterators."""
    systems = {
        "plan": Plan(engine, steps, workers),
        "five": Plan(engine, steps, workers, fragments=5),
        "loop": Bare(steps, workers),
        "flow": FlowIterators(steps, workers),
    }
    for system in systems.values():
        system.run(20)
    items = max(20, int(seconds / measured(systems["loop"], 50, steps)[0]))
    found = {name: [] for name in systems}
    order = list(systems)
    for index in range(rounds):
        for name in order[index % 4 :] + order[: index % 4]:
            found[name].append(measured(systems[name], items // 5 * 5, steps))
    for system in systems.values():
        system.close()
    rows = []
    cases = (
        ("plan", "loop", 0.95, round(1 / 1.05, 3)),
        ("plan", "flow", 1.0, 1.0),
        ("five", "loop", 0.95, round(1 / 1.05, 3)),
    )
    for mine, peer, items_bar, cpu_bar in cases:
        for what, column, bar in (("items/s", 0, items_bar), ("driver CPU", 1, cpu_bar)):
            pairs = zip(found[mine], found[peer], strict=True)
            setting = ", 5 fragments per call" if mine == "five" else ""
            rows.append(
                {
                    "case": f"{what} / {peer}, {steps} steps, {workers} workers{setting}",
                    "ours_us": round(statistics.median(run[column] for run in found[mine]) * 1e6, 1),
                    "peer_us": round(statistics.median(run[column] for run in found[peer]) * 1e6, 1),
                    **judged([theirs[column] / ours[column] for ours, theirs in pairs], bar),
                }
            )
    return rows


def process_seconds(pid):
    """Processor time of a process so far."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def idle(engine, seconds):
    """CPU of a plan that waits for two actors, less that of the same actors without a plan, as a share of a core."""

    def share(wait, pids):
        processes = [os.getpid(), *pids]
        before, began = sum(map(process_seconds, processes)), time.perf_counter()
        wait()
        return (sum(map(process_seconds, processes)) - before) / (time.perf_counter() - began)

    group = WorkerGroup([partial(BusyWithNothing, 1)] * 2, Resources(cpus=SHARE))
    plan = ReportMetrics(ParallelRollouts(group).gather_async(), group).start(engine)
    pids = plan.ask_workers("pid")
    shares = {"plan": [], "bare": []}

    def wait_in_plan():
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            assert plan.step() is NOT_READY
            plan.wait()

    for _ in range(3):
        shares["bare"].append(share(lambda: time.sleep(seconds), pids))
        shares["plan"].append(share(wait_in_plan, pids))
    plan.close()
    extra = [max(0.0, mine - bare) for mine, bare in zip(shares["plan"], shares["bare"], strict=True)]
    more = statistics.median(extra)
    return {
        "case": "idle plan with 2 actors: more than the same actors, % of a core (bar: at most)",
        "ratio": round(100 * more, 3),
        "bar": 2.0,
        "ok": more < 0.02,
        "spread": [round(100 * min(extra), 3), round(100 * max(extra), 3)],
    }


def main():
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.5, help="of one run; at least 20 items")
    parser.add_argument("--steps", type=int, nargs="*", default=[10, 50, 200])
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2])
    options = parser.parse_args()
    rows = []
    with RayEngine(num_cpus=2, object_store_memory=80 * 2**20) as engine:
        for steps in options.steps:
            for workers in options.workers:
                rows += compare(engine, steps, workers, options.rounds, options.seconds)
        rows.append(idle(engine, IDLE_SECONDS))
    report("flow_items", rows, "two cores, shared by driver and workers; ratios above 1: ours is better")


if __name__ == "__main__":
    main()
