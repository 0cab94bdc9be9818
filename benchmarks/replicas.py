"""An update on one device, and split over two devices of one process: JAX, with devices that XLA makes of the CPU.

    python benchmarks/replicas.py                       # PPO, A2C and DQN
    python benchmarks/replicas.py --cases dqn --updates 50

Each device has one thread. `scaling` is the time of an update on one device over that on two; `scaling_by_cpu` is
twice the processor time of one over that of both: what two free cores give, as far as devices do not wait for each
other. On a machine that is not idle only the latter says something. What both devices do alike (the optimizer's step)
is not divided.
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
FEATURES, ACTIONS, ROWS = 64, 4, 2048
ROLLOUT = {"rollout_steps": 128, "epochs": 4, "minibatches": 4}
CASES = {"ppo": ROLLOUT, "a2c": {"rollout_steps": 128}, "dqn": {"batch_size": ROWS}}
FLAGS = "--xla_force_host_platform_device_count=2 --xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"


def make_agent(case: str, devices: int):
    """The agent of a case, and what it learns from, made up."""
    from rlweave.agents.a2c import A2C
    from rlweave.agents.dqn import DQN
    from rlweave.agents.ppo import PPO
    from rlweave.spaces import FloatBox, IntBox

    layers = [{"type": "dense", "units": 256, "activation": "tanh"}] * 2
    config = {"network": layers, "replicas": devices if devices > 1 else None, **CASES[case]}
    kind = {"ppo": PPO, "a2c": A2C, "dqn": DQN}[case]
    envs = {} if case == "dqn" else {"num_envs": ROWS // config["rollout_steps"]}
    agent = kind(FloatBox(shape=(FEATURES,)), IntBox(ACTIONS), config, backend="jax", seed=1, **envs)
    rng = np.random.default_rng(0)
    if case == "dqn":
        return agent, agent.record_space().with_batch_rank().sample(ROWS, rng=rng)
    batch = agent.batch_space().sample((agent.config.rollout_steps, agent.num_envs), rng=rng)
    rewards = rng.normal(size=batch["rewards"].shape).astype(np.float32)
    return agent, {**batch, "rewards": rewards, "log_probs": np.full_like(rewards, -np.log(ACTIONS))}


def measure(case: str, devices: int, updates: int) -> dict[str, float]:
    """Seconds of an update, in a process of its own."""
    agent, batch = make_agent(case, devices)
    for _ in range(5):
        agent.learn(batch)
    began, cpu = time.perf_counter(), time.process_time()
    for _ in range(updates):
        agent.learn(batch)
    return {"seconds": (time.perf_counter() - began) / updates, "cpu": (time.process_time() - cpu) / updates}


def run(case: str, devices: int, updates: int) -> dict[str, float]:
    """The same, in that process."""
    environment = {**os.environ, "XLA_FLAGS": FLAGS, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, __file__, "--cases", case, "--updates", str(updates), "--devices", str(devices)]
    told = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
    return json.loads(told.splitlines()[-1])


def main() -> None:
    """Runs the cases; a process for each measurement calls it, too."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--updates", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--devices", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.devices is not None:
        print(json.dumps(measure(options.cases[0], options.devices, options.updates)))
        return
    report = {}
    for case in options.cases:
        runs = [[run(case, devices, options.updates) for devices in (1, 2)] for _ in range(options.rounds)]
        one, two = ({name: statistics.median(r[k][name] for r in runs) for name in ("seconds", "cpu")} for k in (0, 1))
        report[case] = {
            "update_ms": 1e3 * one["seconds"],
            "update_on_two_ms": 1e3 * two["seconds"],
            "update_cpu_ms": 1e3 * one["cpu"],
            "update_on_two_cpu_ms": 1e3 * two["cpu"],
            "scaling": one["seconds"] / two["seconds"],
            "scaling_by_cpu": 2.0 * one["cpu"] / two["cpu"],
        }
        print(case, json.dumps({name: round(value, 2) for name, value in report[case].items()}))
    print(json.dumps({"benchmark": "replicas", "cases": report}))


if __name__ == "__main__":
    main()
