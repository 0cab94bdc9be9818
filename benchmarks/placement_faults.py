"""What placements promise when a process gets kill -9 at a random moment, many times over.

For each role a training is begun, and one process of that role is killed at a random moment. Where the rule is to go
on, the training goes on, and counts one replacement (a group of ranks: one rank less). Where it is to stop, the error
names the one that was killed, and a new training goes on from the last checkpoint. Of a driver, the run is resumed from
the command line. In each case all counters of environment steps agree (of shards: of updates, too), and no process is
left.

Roles are an environment's process, a worker of a server, a rank, a shard of the parameters, and the driver of each
placement; the server that acts for workers is in the driver. Trainings in this process share one Ray; a driver has its
own, whose helper processes take about a minute to see that it is gone: those are looked for in the end.

    python benchmarks/placement_faults.py [--roles environment rank-stop] [--runs 20]

The last line is JSON: runs, and failures with what was expected.
"""

# ruff: noqa: E402 (threads are set before libraries are imported)

from __future__ import annotations

import argparse
import contextlib
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
from rlweave.flow.ray_engine import RayEngine
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
SHARDS = {**RAY, "placement.name": "parameter_server", "placement.shards": 2}
SERVER = {**RAY, "placement.name": "single_learner_fine", "placement.workers": 2}
#: Algorithm, settings, and whether the training goes on.
ROLES = {
    "environment": ("a2c", {"placement": "environments_apart"}, True),
    "worker": ("a2c", {**SERVER, "placement.on_error": "replace"}, True),
    "rank-stop": ("a2c", RANKS, False),
    "rank-shrink": ("a2c", {**RANKS, "placement.on_error": "shrink"}, True),
    "shard-stop": ("a3c", SHARDS, False),
    "shard-replace": ("a3c", {**SHARDS, "placement.workers": 2, "placement.on_error": "replace"}, True),
}
DRIVERS = {
    "driver-environments_apart": ("a2c", {"placement": "environments_apart"}),
    "driver-single_learner_coarse": ("a2c", {**RAY, "placement.name": "single_learner_coarse", "placement.workers": 2}),
    "driver-single_learner_fine": ("a2c", SERVER),
    "driver-multi_learner": ("a2c", RANKS),
    "driver-parameter_server": ("a3c", SHARDS),
}


def processes_of(role, trainer):
    """Process numbers of a role, and what errors call each."""
    if role == "environment":
        return {process.pid: "environment" for process in trainer.parts.workers[0].env._processes}
    if role.startswith("rank"):
        pids = trainer.plan.ask_workers("process")
        return {pid: f"parallel_rollouts/{rank}|rank {rank} did not take part" for rank, pid in enumerate(pids)}
    if role.startswith("shard"):
        pids = [trainer.plan.ask_learner(shard, "process") for shard in trainer.parts.remote.shards]
        return {pid: f"apply_gradients{'-1' if shard else ''}" for shard, pid in enumerate(pids)}
    return {process.pid: "worker" for process in below(psutil.Process()) if is_actor(process)}


def below(process):
    """All processes that a process began."""
    return process.children(recursive=True)


def is_actor(process):
    """Whether it is one of our processes on Ray."""
    return is_there(process) and process.name().startswith("ray::RayHost")


def is_ours(process):
    """Whether it is no helper process of Ray."""
    with contextlib.suppress(psutil.NoSuchProcess):
        of_ray = process.name().startswith(("ray::", "raylet", "gcs_server")) or "/ray/" in " ".join(process.cmdline())
        return is_actor(process) or not of_ray
    return False


def left_of(processes, seconds):
    """Which of these are still there after so many seconds."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and any(map(is_there, processes)):
        time.sleep(0.1)
    return [process for process in processes if is_there(process)]


def is_there(process):
    """Whether a process runs."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
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


def wrong_counts(trainer):
    """What plan, agent and shards have counted differently."""
    trainer.model()  # brings the agent here to what was learned
    counted, counters = trainer.plan.counters.env_steps_sampled, trainer.plan.counters
    if not trainer.env_steps == counted == trainer.agent.env_steps:
        return [f"environment steps: plan {counted}, agent {trainer.agent.env_steps}"]
    found = []
    for number, shard in enumerate(getattr(trainer.parts.remote, "shards", ())):
        name = f"apply_gradients{f'-{number}' if number else ''}"
        variables = trainer.plan.ask_learner(shard, "state_dict")["variables"]
        steps = next(int(value) for path, value in variables.items() if path.endswith("/optimizer/steps"))
        lost = counters.lost_updates.get(name, 0) + counters.lost_items.get(name, 0)
        if steps != counters.updates - lost:
            found.append(f"{name}: {steps} optimizer steps, {counters.updates} updates, {lost} lost")
    return found


def kill_in_training(role, number, directory):
    """One run of a role in this process; what was wrong."""
    algorithm, sets, goes_on = ROLES[role]
    trainer = made(algorithm, {**sets, "seed": number}, directory)
    names = processes_of(role, trainer)
    stop, found = threading.Event(), []
    dice = random.Random(number)
    victim, delay = dice.choice(list(names)), dice.uniform(0.05, 3.0)

    def strike():
        time.sleep(delay)
        os.kill(victim, signal.SIGKILL)
        time.sleep(2.0 if goes_on else 120.0)
        stop.set()

    threading.Thread(target=strike, daemon=True).start()
    processes = [own for own in below(psutil.Process()) if is_ours(own)]
    try:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always", EnvWarning)
            train(trainer, stop)
            trainer.run_to(trainer.env_steps + 640)  # it still moves
        found += wrong_counts(trainer) if goes_on else ["the training went on"]
        replaced = sum(trainer.plan.counters.replacements.values())
        if role == "environment":
            replaced = sum("another process takes its place" in str(own.message) for own in told)
        if role == "rank-shrink":
            replaced = len(names) - len(trainer.parts.remote.there)
        if replaced != 1:
            found.append(f"{replaced} were replaced or given up")
    except RlweaveError as error:
        if goes_on or not any(name in str(error) for name in names[victim].split("|")):
            found.append(f"it ended: {error}; {error.__cause__}")
    finally:
        processes += [own for own in below(psutil.Process()) if is_ours(own)]
        trainer.close()
    if left := left_of(processes, 30.0):
        found.append(f"{len(left)} processes are left")
    return found if goes_on else found + resumed(algorithm, {**sets, "seed": number}, directory)


def resumed(algorithm, sets, directory):
    """Goes on from the last checkpoint, if there was one; what was wrong."""
    checkpoint = latest_good(directory / "checkpoints")
    trainer = made(algorithm, sets, directory)
    try:
        if checkpoint is not None:
            trainer.restore(checkpoint)
        goal = trainer.env_steps + 640
        trainer.run_to(goal)
        late = [] if trainer.env_steps >= goal else [f"resumed, it came to {trainer.env_steps} steps"]
        return late + [f"resumed: {what}" for what in wrong_counts(trainer)]
    finally:
        trainer.close()


def kill_driver(role, number, directory, helpers):
    """One run whose driver is killed; what was wrong. Processes of Ray's own are added to helpers."""
    algorithm, sets = DRIVERS[role]
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
        return [f"it ended by itself, with {process.returncode}"]
    time.sleep(random.Random(number).uniform(0.0, 2.0))
    processes = below(psutil.Process(process.pid))
    ours = [own for own in processes if is_ours(own)]
    process.kill()
    process.wait()
    helpers += [own for own in processes if own not in ours]
    found = [f"{len(left)} processes are left"] if (left := left_of(ours, 30.0)) else []
    _, before = load_checkpoint(latest_good(directory / "checkpoints"))
    goal = before["env_steps"] + 640
    done = subprocess.run(
        [*rlweave, "resume", str(directory), "--steps", str(goal)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        return [*found, f"resume failed: {done.stderr[-500:]}"]
    _, after = load_checkpoint(latest_good(directory / "checkpoints"))
    counted = after["plan"]["counters"]["env_steps_sampled"]
    if not after["env_steps"] == counted == after["agent"]["env_steps"] >= goal:
        found.append(f"after the resume {after['env_steps']}, {counted}, {after['agent']['env_steps']}")
    return found


def main():
    """Runs, and prints one JSON object as the last line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    roles = [*ROLES, *DRIVERS]
    parser.add_argument("--roles", nargs="+", choices=roles, default=roles)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="number, and seed, of the first run")
    options = parser.parse_args()
    failures, counts, helpers = [], {}, []
    with contextlib.ExitStack() as stack:
        if any(ROLES.get(role, ("", {}))[1].get("engine") for role in options.roles):
            stack.enter_context(RayEngine(object_store_memory=80 * 2**20))
        for role in options.roles:
            for number in range(options.first, options.first + options.runs):
                begun = time.monotonic()
                with tempfile.TemporaryDirectory() as folder:
                    run = Path(folder, "run")
                    in_driver = role in DRIVERS
                    found = (
                        kill_driver(role, number, run, helpers) if in_driver else kill_in_training(role, number, run)
                    )
                counts[role] = counts.get(role, 0) + (not found)
                failures += [f"{role} {number}: {what}" for what in found]
                words = "; ".join(found) or "as promised"
                print(f"{role} {number}: {words} ({time.monotonic() - begun:.0f} s)", flush=True)
    if left := left_of(helpers, 100.0):
        failures.append(f"{len(left)} helper processes of Ray are left")
    print(json.dumps({"name": "placement_faults", "as_promised": counts, "runs": options.runs, "failures": failures}))


if __name__ == "__main__":
    main()
