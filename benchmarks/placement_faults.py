"""What placements promise when a process gets kill -9 at a random moment, many times over.

For each role (an environment's process; a worker of a server; a rank, which ends or shrinks its group; a shard of the
parameters, which ends the training or is restarted; the driver) a training is begun, one process of that role is killed
at a random moment, and then: where the rule is to go on, the training goes on, counts one replacement, and all counters
of environment steps agree; where it is to stop, the error names the role, and a new training goes on from the last
checkpoint, which is whole. In the end no process is left. The driver is that of each placement in turn; its run is
resumed from the command line.

    python benchmarks/placement_faults.py [--roles environment rank-stop] [--runs 20]

The last line is JSON: runs, and failures with what was expected.
"""

# ruff: noqa: E402 (threads are set before libraries are imported)

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_name] = "1"

import psutil

from rlweave.algorithms.config import resolve_config
from rlweave.algorithms.registry import get_algorithm
from rlweave.errors import EnvWarning, RlweaveError
from rlweave.runs.checkpoint import latest_good, load_checkpoint
from rlweave.runs.run_directory import RunDirectory

SMALL = {
    "env": "CartPole-v1",
    "backend": "torch",
    "num_envs": 4,
    "agent.network": [{"type": "dense", "units": 8}],
    "agent.acting_backend": "numpy",
    "agent.rollout_steps": 8,
    "evaluate_every": 0,
    "final_episodes": 0,
    "checkpoint_every": 320,
    "report_every": 320,
    "tensorboard": False,
    "steps": 1 << 40,
}
RAY = {"engine": "ray", "object_store_mb": 80, "worker_cpus": 0.5}
RANKS = {**RAY, "placement.name": "multi_learner", "placement.learners": 2, "placement.rank_timeout": 60}
SHARDS = {**RAY, "placement.name": "parameter_server", "placement.workers": 2, "placement.shards": 2}
SERVER = {**RAY, "placement.name": "single_learner_fine", "placement.workers": 2}
#: Algorithm, settings, and whether the training goes on.
ROLES = {
    "environment": ("a2c", {"placement": "environments_apart"}, True),
    "worker": ("a2c", {**SERVER, "worker_failure": "replace"}, True),
    "rank-stop": ("a2c", RANKS, False),
    "rank-shrink": ("a2c", {**RANKS, "placement.rank_failure": "shrink"}, True),
    "shard-stop": ("a3c", SHARDS, False),
    "shard-replace": ("a3c", {**SHARDS, "placement.shard_failure": "replace"}, True),
}
DRIVERS = {
    "environments_apart": ("a2c", {"placement": "environments_apart"}),
    "multi_learner": ("a2c", RANKS),
    "single_learner_fine": ("a2c", SERVER),
    "parameter_server": ("a3c", SHARDS),
}


def processes_of(role, trainer):
    """Process numbers of a role."""
    if role == "environment":
        return [process.pid for process in trainer.parts.workers[0].env._processes]
    if role.startswith("rank"):
        return trainer.plan.ask_workers("process")
    if role.startswith("shard"):
        return [trainer.plan.ask_learner(shard, "process") for shard in trainer.parts.remote.shards]
    return actors_below(psutil.Process())


def actors_below(process):
    """The actors of a driver."""
    return [own.pid for own in process.children(recursive=True) if own.name().startswith("ray::RayHost")]


def left_of(pids, seconds):
    """Which of these processes are still there after so many seconds."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and any(map(is_there, pids)):
        time.sleep(0.1)
    return [pid for pid in pids if is_there(pid)]


def is_there(pid):
    """Whether a process runs."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def made(algorithm, sets, directory):
    """A trainer, and its run directory."""
    spec = get_algorithm(algorithm)
    config = resolve_config(spec.config_class, sets={**SMALL, **sets})
    run = RunDirectory(directory) if directory.exists() else RunDirectory.create(
        spec.name, config.to_data(), path=directory
    )  # fmt: skip
    return spec.make_trainer(config, run)


def train(trainer, stop):
    """Trains until it is told to stop, with reports and checkpoints."""
    for _ in trainer.train():
        if stop.is_set():
            return


def counters_agree(trainer):
    """Whether plan and agent have counted the same environment steps."""
    trainer.model()  # brings the agent here to what was learned
    counted = trainer.plan.counters.env_steps_sampled
    return trainer.env_steps == counted == trainer.agent.env_steps, (counted, trainer.agent.env_steps)


def kill_in_training(role, number, directory):
    """One run of a role in this process; what was wrong."""
    algorithm, sets, goes_on = ROLES[role]
    trainer = made(algorithm, {**sets, "seed": number}, directory)
    pids = processes_of(role, trainer)
    stop, found = threading.Event(), []
    dice = random.Random(number)
    victim, delay = dice.choice(pids), dice.uniform(0.05, 3.0)

    def strike():
        time.sleep(delay)
        os.kill(victim, signal.SIGKILL)
        time.sleep(2.0 if goes_on else 120.0)
        stop.set()

    threading.Thread(target=strike, daemon=True).start()
    try:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always", EnvWarning)
            train(trainer, stop)
            steps = trainer.env_steps
            trainer.run_to(steps + 640)  # it still moves
        agree, counts = counters_agree(trainer)
        if not goes_on:
            found.append("the training went on")
        if not agree:
            found.append(f"counters differ: {counts}")
        replaced = sum(trainer.plan.counters.replacements.values())
        if role == "environment":
            replaced = sum("another process takes its place" in str(own.message) for own in told)
        if role != "rank-shrink" and replaced != 1:
            found.append(f"{replaced} replacements")
    except RlweaveError as error:
        if goes_on:
            found.append(f"it ended: {error}")
    finally:
        pids = {*pids, *actors_below(psutil.Process())}
        trainer.close()
    found += [f"{len(left)} processes are left"] if (left := left_of(pids, 30.0)) else []
    if goes_on:
        return found
    checkpoint = latest_good(directory / "checkpoints")
    again = made(algorithm, {**sets, "seed": number}, directory)
    try:
        if checkpoint is not None:
            again.restore(checkpoint)
        steps = again.env_steps
        again.run_to(steps + 640)
        agree, counts = counters_agree(again)
        if not agree or again.env_steps < steps + 640:
            found.append(f"after the resume: {counts}")
    finally:
        again.close()
    return found


def kill_driver(number, directory):
    """One run whose driver is killed; what was wrong."""
    placement = list(DRIVERS)[number % len(DRIVERS)]
    algorithm, sets = DRIVERS[placement]
    words = [f"{key}={json.dumps(value)}" for key, value in {**SMALL, **sets, "seed": number}.items()]
    rlweave = [sys.executable, "-c", "from rlweave.cli import main; main()"]
    command = [*rlweave, "train", algorithm, "--run-dir", str(directory)]
    for word in words:
        command += ["--set", word]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, **quiet, start_new_session=True)
    until = time.monotonic() + 180
    while latest_good(directory / "checkpoints") is None and time.monotonic() < until and process.poll() is None:
        time.sleep(0.1)
    if process.poll() is not None:
        return [f"{placement}: it ended by itself, with {process.returncode}"]
    time.sleep(random.Random(number).uniform(0.0, 2.0))
    below = [own.pid for own in psutil.Process(process.pid).children(recursive=True)]
    process.kill()
    process.wait()
    # Ray's own agents try for a minute to tell their head that it is gone
    found = [f"{placement}: {len(left)} processes are left"] if (left := left_of(below, 100.0)) else []
    _, before = load_checkpoint(latest_good(directory / "checkpoints"))
    goal = before["env_steps"] + 640
    done = subprocess.run(
        [*rlweave, "resume", str(directory), "--steps", str(goal)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        return [*found, f"{placement}: resume failed: {done.stderr[-500:]}"]
    _, after = load_checkpoint(latest_good(directory / "checkpoints"))
    counted = after["plan"]["counters"]["env_steps_sampled"]
    if not after["env_steps"] == counted == after["agent"]["env_steps"] >= goal:
        found.append(f"{placement}: after the resume {after['env_steps']}, {counted}, {after['agent']['env_steps']}")
    return found


def main():
    """Runs, and prints one JSON object as the last line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    roles = [*ROLES, "driver"]
    parser.add_argument("--roles", nargs="+", choices=roles, default=roles)
    parser.add_argument("--runs", type=int, default=20)
    options = parser.parse_args()
    failures, counts = [], {}
    for role in options.roles:
        for number in range(options.runs):
            with tempfile.TemporaryDirectory() as folder:
                begun = time.monotonic()
                directory = Path(folder, "run")
                found = (
                    kill_driver(number, directory) if role == "driver" else kill_in_training(role, number, directory)
                )
            counts[role] = counts.get(role, 0) + (not found)
            failures += [f"{role} {number}: {what}" for what in found]
            print(
                f"{role} {number}: {'; '.join(found) or 'as promised'} ({time.monotonic() - begun:.0f} s)", flush=True
            )
    print(json.dumps({"name": "placement_faults", "as_promised": counts, "runs": options.runs, "failures": failures}))


if __name__ == "__main__":
    main()
