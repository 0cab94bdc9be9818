"""Environment steps acted for per second: a server of workers on Ray / its network alone, on one batch again and again.

    python benchmarks/single_learner_fine.py
    BENCHMARK_CLOCK=cpu python benchmarks/single_learner_fine.py     # processor time of the server's process

Two workers step 32 environments each, whose observations are pictures as large as Pong's (84 x 84, four frames) and
cost nothing else. The server acts for one worker while the other steps (batches of 32), and collects rollouts that
nobody learns from. The network alone acts on a batch of 32 that is there. Rounds alternate.
"""

from __future__ import annotations

import argparse
import os

os.environ["OMP_NUM_THREADS"] = "1"

import gymnasium
import numpy as np
from alternating import alternating, report, row

from rlweave.algorithms.config import resolve_config
from rlweave.algorithms.placement import set_threads
from rlweave.algorithms.registry import get_algorithm
from rlweave.algorithms.single_learner_fine import ServedWorkers, single_learner_fine_parts
from rlweave.flow import ReportMetrics
from rlweave.flow.ray_engine import RayEngine

WORKERS, ENVIRONMENTS, BAR = 2, 32, 0.8
ENV = "rlweave-benchmarks/Pictures-v0"


class Pictures(gymnasium.Env):
    """Random pictures, of which a few are shown again and again; episodes take 1,000 steps."""

    observation_space = gymnasium.spaces.Box(0, 255, (84, 84, 4), np.uint8)
    action_space = gymnasium.spaces.Discrete(6)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = 0
        self.pictures = self.np_random.integers(0, 256, (8, 84, 84, 4), np.uint8)
        return self.pictures[0], {}

    def step(self, action):
        self.at += 1
        return self.pictures[self.at % 8], 0.0, self.at == 1000, False, {}


def main():
    """Prints a table, and one JSON object as the last line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batches", type=int, default=60, help="batches in a round")
    parser.add_argument("--backend", default="torch")
    options = parser.parse_args()
    gymnasium.register(ENV, Pictures)
    algorithm = get_algorithm("impala")
    settings = {
        "env": ENV,
        "image_layout": "channels_last",
        "num_envs": WORKERS * ENVIRONMENTS,
        "backend": options.backend,
        "threads": 1,
        "agent.acting_backend": None,
        "engine": "ray",
        "placement.name": "single_learner_fine",
        "placement.workers": WORKERS,
        "placement.server.batch_size": ENVIRONMENTS,
    }
    config = resolve_config(algorithm.config_class, sets=settings)
    parts = single_learner_fine_parts(config, algorithm)
    agent = parts.agent.build()
    set_threads(config, agent)
    workers = ServedWorkers(parts.workers, config, agent, algorithm)
    plan = ReportMetrics(workers.rollouts().gather("async"), workers)
    batch = np.random.default_rng(0).integers(0, 256, (ENVIRONMENTS, 84, 84, 4), np.uint8)
    (serve,) = [node for node in plan.graph.nodes if node.name == "serve"]

    def served():
        until = serve.acted_batches + options.batches
        plan.advance(lambda counters: serve.acted_batches >= until)

    def alone():
        for _ in range(options.batches):
            agent.env_actions(agent.act(batch)[0])

    with RayEngine(object_store_memory=80 * 2**20) as engine, plan.start(engine):
        seconds = alternating({"server": served, "network": alone}, options.rounds)
    name = f"{options.backend}, {os.environ.get('BENCHMARK_CLOCK', 'wall')} time"
    rows = [row(name, seconds, "server", "network", BAR, options.batches * ENVIRONMENTS)]
    report("single_learner_fine", rows, f"{os.cpu_count()} cores, {WORKERS} workers x {ENVIRONMENTS} environments")


if __name__ == "__main__":
    main()
