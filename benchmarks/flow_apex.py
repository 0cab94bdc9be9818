"""Ape-X with learning on: env steps/s of the plan on Ray / a hand-written loop of `ray.wait` / RLlib 2.60's DQN.

CartPole and Pong-shaped observations (84 x 84 x 4 bytes, an environment that costs nothing); 1 and 2 workers, two
shards, the learner in the driver. Plan and loop have the same agent, workers, shards, batch, weights interval and
trained samples per environment step; the loop passes items from worker to shard by reference. What both really trained
per step is printed. Rounds alternate; a row says the median of the ratios of neighbouring runs.

    python benchmarks/flow_apex.py                                        # plan and loop
    python benchmarks/flow_apex.py --rllib /path/to/venv/bin/python      # also RLlib, in an environment of its own

RLlib's row trains on 32 samples per step (one update of 32 per step), with the same network; so does the plan then. The
plan's shards draw eight batches per call; RLlib's memory is in its driver.
RLlib's environment needs `ray[rllib]==2.60.*`, torch and gymnasium.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import time
import warnings

os.environ["OMP_NUM_THREADS"] = "1"
warnings.filterwarnings("ignore")

import gymnasium  # noqa: E402
import numpy as np  # noqa: E402
import ray  # noqa: E402
from alternating import judged, report  # noqa: E402

from rlweave.algorithms.ape_x import (  # noqa: E402
    ApeXLearner,
    ApeXTrainConfig,
    ape_x,
    make_shards,
)
from rlweave.algorithms.config import resolve_config  # noqa: E402
from rlweave.algorithms.placement import place, set_threads  # noqa: E402
from rlweave.flow.ray_engine import RayEngine  # noqa: E402

SHARE = 0.1  # of a core: the actors of both systems live at the same time, and those that nobody asks do nothing
COMMON = {
    "backend": "torch",
    "engine": "ray",
    "shards": 2,
    "worker_cpus": SHARE,
    "weight_interval": 400,
    "agent.acting_backend": "numpy",
    "agent.learning_starts": 500,
    "agent.target_update_samples": 8000,
    "agent.memory_capacity": 4000,
}
CASES = {
    "CartPole": {"num_envs": 8, "agent.batch_size": 64, "agent.samples_per_step": 16.0},
    "CartPole, one update per step": {
        "num_envs": 8,
        "agent.batch_size": 32,
        "agent.samples_per_step": 32.0,
        "batches_per_call": 8,  # a batch is trained on faster than a call of Ray takes
    },
    "Pong-shaped": {
        "num_envs": 4,
        "agent.batch_size": 32,
        "agent.samples_per_step": 1.0,
        "image_layout": "channels_last",
        "agent.memory_capacity": 2000,
        "agent.network": [{"type": "dense", "units": 256, "activation": "relu"}],
        "agent.image_network": [
            {"type": "conv2d", "filters": 16, "kernel_size": 8, "stride": 4, "activation": "relu"},
            {"type": "conv2d", "filters": 32, "kernel_size": 4, "stride": 2, "activation": "relu"},
        ],
    },
}


class PongShaped(gymnasium.Env):
    """Random images; episodes of 200 steps. Costs nothing."""

    def __init__(self, **_):
        self.observation_space = gymnasium.spaces.Box(0, 255, (84, 84, 4), np.uint8)
        self.action_space = gymnasium.spaces.Discrete(6)
        self.images = np.random.default_rng(0).integers(0, 256, (8, 84, 84, 4), np.uint8)
        self.clock = 0

    def reset(self, *, seed=None, options=None):
        """Begins an episode."""
        super().reset(seed=seed)
        self.clock = 0
        return self.images[0], {}

    def step(self, action):
        """The next image."""
        self.clock += 1
        return self.images[self.clock % 8], float(action == self.clock % 6), self.clock >= 200, False, {}


def config_of(case, workers):
    """Settings of a case."""
    config = resolve_config(
        ApeXTrainConfig, sets={"env": "CartPole-v1", **COMMON, **CASES[case], "placement.workers": workers, "seed": 100}
    )
    return config.model_copy(update={"env": PongShaped}) if case.startswith("Pong") else config


class Parts:
    """What both systems have."""

    def __init__(self, config):
        self.config = config
        self.agent, self.group = place(config, ape_x.make_agent, ape_x.worker)
        set_threads(config, self.agent)
        self.agent.build()
        self.learner = ApeXLearner(self.agent, counts=True)
        self.shards = make_shards(config, self.agent)


class Plan(Parts):
    """Ours."""

    def __init__(self, engine, config):
        super().__init__(config)
        self.plan = ape_x.plan_of(config, self.group, self.learner, self.shards).start(engine)

    def run(self, steps):
        """Runs for so many environment steps; what was stepped and trained."""
        counters = self.plan.counters
        steps_before, trained_before = counters.env_steps_sampled, counters.trained_samples
        for _ in self.plan.run(until=lambda c: c.env_steps_sampled >= steps_before + steps, every_steps=1 << 60):
            pass
        return counters.env_steps_sampled - steps_before, counters.trained_samples - trained_before

    def close(self):
        """Ends the actors."""
        self.plan.close()


class BareWorker:
    """A worker as an actor."""

    def __init__(self, factory):
        self.worker = factory()

    def sample(self, weights=None):
        """An item with priorities, and its number of steps."""
        if weights is not None:
            self.worker.set_weights(weights, 0)
        batch = self.worker.sample()
        if batch.data:
            batch.data["priorities"] = self.worker.compute_priorities(batch)
        return batch, batch.num_steps


class BareShard:
    """A shard as an actor."""

    def __init__(self, factory):
        self.shard = factory()

    def insert(self, batch):
        """Stores."""
        self.shard.insert(batch)

    def sample(self):
        """Draws."""
        return self.shard.sample()

    def update_priorities(self, numbers, priorities):
        """Sets priorities."""
        self.shard.update_priorities(numbers, priorities)


class Bare(Parts):
    """A hand-written loop: as many items ahead per worker, one batch ahead per shard, the same replay ratio."""

    def __init__(self, _, config):
        super().__init__(config)
        worker, shard = ray.remote(num_cpus=SHARE)(BareWorker), ray.remote(num_cpus=0)(BareShard)
        self.workers = [worker.remote(factory) for factory in self.group.factories]
        self.replay = [shard.remote(factory) for factory in self.shards.factories]
        self.since = dict.fromkeys(self.workers, 1 << 30)
        self.pending = {}
        self.idle = list(self.replay)
        self.waiting = []
        self.turn = self.stored = self.asked = self.trained = self.version = 0
        self.put_version, self.weights = -1, None
        for each in self.workers * config.items_ahead:
            self.ask_worker(each)

    def ask_worker(self, worker):
        """Asks for an item; sends weights where it is time."""
        arguments = []
        if self.since[worker] >= self.config.weight_interval:
            if self.put_version != self.version:
                self.put_version, self.weights = self.version, ray.put(self.learner.get_weights())
            arguments, self.since[worker] = [self.weights], 0
        item, steps = worker.sample.options(num_returns=2).remote(*arguments)
        self.pending[steps] = (worker, item)

    def owed(self):
        """Samples that may be asked for."""
        agent = self.config.agent
        return agent.samples_per_step * (self.stored - agent.learning_starts) - self.asked

    def run(self, steps):
        """Runs for so many environment steps; what was stepped and trained."""
        size, stored_before, trained_before = self.config.agent.batch_size, self.stored, self.trained
        while self.stored < stored_before + steps:
            while self.idle and self.owed() >= size:
                shard = self.idle.pop(0)
                self.pending[shard.sample.remote()] = (shard, None)
                self.asked += size
            if self.waiting and self.owed() < size:
                self.store(*self.waiting.pop(0))
                continue
            (ready,), _ = ray.wait(list(self.pending), num_returns=1)
            actor, item = self.pending.pop(ready)
            if item is None:
                batch = ray.get(ready)
                result = self.learner.update(batch)
                actor.update_priorities.remote(*result["priorities"])
                self.trained += size
                self.version += 1
                self.idle.append(actor)
            else:
                self.waiting.append((actor, item, ray.get(ready)))
        return self.stored - stored_before, self.trained - trained_before

    def store(self, worker, item, steps):
        """Gives an item to the next shard, and asks its worker for another one."""
        self.replay[self.turn].insert.remote(item)
        self.turn = (self.turn + 1) % len(self.replay)
        self.stored += steps
        self.since[worker] += steps
        self.ask_worker(worker)

    def close(self):
        """Ends the actors."""
        for actor in [*self.workers, *self.replay]:
            ray.kill(actor)


RLLIB = r"""
import json, os, sys, time, warnings
os.environ["OMP_NUM_THREADS"] = "1"
warnings.filterwarnings("ignore")
import ray
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
workers, seconds = int(sys.argv[1]), float(sys.argv[2])
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR",
         object_store_memory=80 * 2**20)
config = (
    DQNConfig()
    .environment("CartPole-v1")
    .env_runners(num_env_runners=workers, num_envs_per_env_runner=8 // workers, num_cpus_per_env_runner=0.1,
                 rollout_fragment_length=4)
    # RLlib divides the intensity by the steps of one worker more than there are
    .training(train_batch_size_per_learner=32, training_intensity=32 * workers / (workers + 1), n_step=3,
              double_q=True, dueling=True,
              num_steps_sampled_before_learning_starts=500, lr=1e-3,
              replay_buffer_config={"type": "PrioritizedEpisodeReplayBuffer", "capacity": 4000,
                                    "alpha": 0.6, "beta": 0.4})
    .rl_module(model_config=DefaultModelConfig(fcnet_hiddens=[64, 64], fcnet_activation="relu"))
    .learners(num_learners=0)
)
algorithm = config.build_algo()
def counts(result):
    sampled = result["num_env_steps_sampled_lifetime"]
    trained = result["learners"].get("__all_modules__", {}).get("num_env_steps_trained_lifetime", 0)
    return float(sampled), float(trained)
result = algorithm.train()
while counts(result)[0] < 600:
    result = algorithm.train()
begin, (steps, trained) = time.perf_counter(), counts(result)
while time.perf_counter() - begin < seconds:
    result = algorithm.train()
elapsed = time.perf_counter() - begin
more, more_trained = counts(result)
print(json.dumps({"steps_per_second": (more - steps) / elapsed,
                  "samples_per_step": (more_trained - trained) / max(1.0, more - steps)}))
algorithm.stop()
ray.shutdown()
"""


def rllib_rate(python, workers, seconds):
    """Env steps/s and trained samples per step of RLlib, in its own environment."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [python, "-c", RLLIB, str(workers), str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment, check=False)
    if done.returncode:
        raise RuntimeError(f"RLlib failed:\n{done.stderr[-3000:]}")
    found = json.loads(done.stdout.strip().splitlines()[-1])
    return found["steps_per_second"], found["samples_per_step"]


def rate(system, steps):
    """Env steps/s, and trained samples per step."""
    begin = time.perf_counter()
    stepped, trained = system.run(steps)
    return stepped / (time.perf_counter() - begin), trained / stepped


def warmed(make, engine, config):
    """A system that trains."""
    system = make(engine, config)
    system.run(config.agent.learning_starts + 400)
    return system


def compare(engine, case, workers, rounds, seconds):
    """One row: plan against loop."""
    config = config_of(case, workers)
    systems = {"plan": warmed(Plan, engine, config), "loop": warmed(Bare, engine, config)}
    steps = max(200, int(seconds * rate(systems["loop"], 400)[0]))
    found = {name: [] for name in systems}
    for index in range(rounds):
        for name in ("plan", "loop") if index % 2 else ("loop", "plan"):
            found[name].append(rate(systems[name], steps))
    for system in systems.values():
        system.close()
    pairs = zip(found["plan"], found["loop"], strict=True)
    return {
        "case": f"env steps/s / loop, {case}, {workers} workers",
        "ours": round(statistics.median(run[0] for run in found["plan"]), 1),
        "peer": round(statistics.median(run[0] for run in found["loop"]), 1),
        "ours_samples_per_step": round(statistics.mean(run[1] for run in found["plan"]), 2),
        "peer_samples_per_step": round(statistics.mean(run[1] for run in found["loop"]), 2),
        **judged([ours[0] / theirs[0] for ours, theirs in pairs], 0.95),
    }


def against_rllib(python, workers, rounds, seconds):
    """One row: the plan against RLlib, in turns, at RLlib's ratio. Each has the machine for itself."""
    case, found = "CartPole, one update per step", []
    for _ in range(rounds):
        peer = rllib_rate(python, workers, seconds)
        with RayEngine(num_cpus=2, object_store_memory=80 * 2**20) as engine:
            system = warmed(Plan, engine, config_of(case, workers))
            steps = max(200, int(seconds * rate(system, 400)[0]))
            found.append((rate(system, steps), peer))
            system.close()
    return {
        "case": f"env steps/s / RLlib, {case}, {workers} workers",
        "ours": round(statistics.median(ours[0] for ours, _ in found), 1),
        "peer": round(statistics.median(peer[0] for _, peer in found), 1),
        "ours_samples_per_step": round(statistics.mean(ours[1] for ours, _ in found), 2),
        "peer_samples_per_step": round(statistics.mean(peer[1] for _, peer in found), 2),
        **judged([ours[0] / peer[0] for ours, peer in found], 5.0),
    }


def main():
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=4.0, help="of one run")
    parser.add_argument("--cases", nargs="*", default=["CartPole", "Pong-shaped"], choices=list(CASES))
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--rllib", help="the Python of an environment with RLlib 2.60")
    options = parser.parse_args()
    rows = []
    with RayEngine(num_cpus=2, object_store_memory=256 * 2**20) as engine:
        rows += [
            compare(engine, case, workers, options.rounds, options.seconds)
            for case in options.cases
            for workers in options.workers
        ]
    if options.rllib:
        rows += [
            against_rllib(options.rllib, workers, min(3, options.rounds), 3 * options.seconds)
            for workers in options.workers
        ]
    report("flow_apex", rows, "two cores, shared by driver, workers and shards; learner in the driver, on torch")


if __name__ == "__main__":
    main()
