"""Environment steps per second: eight environments in processes of their own / Gymnasium's AsyncVectorEnv.

Both have shared memory, one process per environment, and random actions; rounds alternate. CartPole costs next to
nothing, so that it shows the price of a step itself; of Pong (`ALE/Pong-v5`, 210 x 160 in colour, four frames a step)
the emulator takes most. `--clock cpu` counts processor seconds of all processes in place of wall time: on a machine
that others use as well, wall time says little.
"""

from __future__ import annotations

import argparse
import os
import time
from functools import partial

os.environ["OMP_NUM_THREADS"] = "1"

import gymnasium
from alternating import alternating, report, row

from rlweave.envs import make_env

ENVIRONMENTS = 8
CASES = {"cartpole": ("CartPole-v1", 1.3), "pong": ("ALE/Pong-v5", 1.3)}


def make(env):
    """One environment."""
    if env.startswith("ALE/"):
        import ale_py

        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
        gymnasium.register_envs(ale_py)
    return gymnasium.make(env)


def processor_seconds(processes):
    """Of this process, and of others."""
    total = time.process_time()
    for process in processes:
        with open(f"/proc/{process}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def compare(case, rounds, steps, clock):
    """The row of a case."""
    env, bar = CASES[case]
    ours = make_env(partial(make, env), ENVIRONMENTS, "async", seed=0)
    theirs = gymnasium.vector.AsyncVectorEnv(
        [partial(make, env)] * ENVIRONMENTS, shared_memory=True, context="forkserver"
    )
    processes = [process.pid for process in (*ours._processes, *theirs.processes)]
    actions = theirs.action_space.sample()

    def run(vector):
        for _ in range(steps):
            vector.step(actions)

    try:
        ours.reset()
        theirs.reset(seed=0)
        pieces = {"rlweave": partial(run, ours), "gymnasium": partial(run, theirs)}
        tell = partial(processor_seconds, processes) if clock == "cpu" else time.perf_counter
        seconds = alternating(pieces, rounds, tell)
    finally:
        ours.close()
        theirs.close()
    return row(f"{case}, {clock} time", seconds, "rlweave", "gymnasium", bar, steps * ENVIRONMENTS)


def main():
    """Prints a table, and one JSON object as the last line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="*", choices=CASES, default=list(CASES))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=300, help="vector steps in a round")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    options = parser.parse_args()
    rows = [compare(case, options.rounds, options.steps, options.clock) for case in options.cases]
    report("environments_apart", rows, f"{os.cpu_count()} cores, {ENVIRONMENTS} environments")


if __name__ == "__main__":
    main()
