"""Placement `auto` against the best fixed placement: environment steps per second of what it takes / of the best.

Four tasks that differ in what costs: CartPole (nothing), Pong (the network), CartPole whose step sleeps 5 ms (the
environment), and Catch, whose environments can be part of the program. All learn. `auto` chooses first, in its usual
time; then each fixed placement is measured for longer, and the ratio is that of the choice to
the fastest. On Ray (`--engine ray`) placements with workers are measured, too.

    python benchmarks/auto_placement.py [--engine ray] [--seconds 20] [--tasks cartpole pong sleep catch]

The last line is JSON.
"""

from __future__ import annotations

import argparse
import time

from alternating import judged, report
from gymnasium.envs.classic_control import CartPoleEnv

from rlweave.algorithms.auto_placement import candidates, measure, settle_placement
from rlweave.algorithms.config import resolve_config
from rlweave.algorithms.registry import get_algorithm

BAR = 0.95
LATENCY = 0.005


class SleepingCartPole(CartPoleEnv):
    """CartPole whose step takes 5 ms in which it computes nothing."""

    def step(self, action):
        """As CartPole's, later."""
        time.sleep(LATENCY)
        return super().step(action)


TASKS = {
    "cartpole": {"env": "CartPole-v1", "backend": "torch", "agent.acting_backend": "numpy"},
    "pong": {"env": "ALE/Pong-v5", "backend": "torch", "agent.acting_backend": "onnx"},
    "sleep": {"env": "auto_placement:SleepingCartPole", "backend": "torch", "agent.acting_backend": "numpy"},
    "catch": {"env": "rlweave/Catch-v0", "backend": "jax"},
}


def compared(task: str, engine: str, seconds: float) -> dict[str, object]:
    """The row of a task."""
    algorithm = get_algorithm("ppo")
    sets = {**TASKS[task], "placement": "auto", "engine": engine, "evaluate_every": 0, "checkpoint_every": 0}
    config = resolve_config(algorithm.config_class, presets=algorithm.preset_of(sets["env"]), sets=sets)
    taken = settle_placement(algorithm, config, print)
    found = measure(algorithm, list(candidates(algorithm, config)), seconds)
    speeds = {(own.config.placement.name, own.config.engine): own.speed for own in found}
    ours, best = speeds[taken.placement.name, taken.engine], max(speeds.values())
    print({name: round(speed) for name, speed in speeds.items()})
    case = f"{task}: {taken.placement.name} / {max(speeds, key=lambda name: speeds[name])[0]}"
    return {"case": case, "ours": round(ours), "peer": round(best), **judged([ours / best], BAR)}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engine", default="local", choices=["local", "ray"])
    parser.add_argument("--seconds", type=float, default=20.0, help="time of each fixed placement (default: 20)")
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    options = parser.parse_args()
    rows = [compared(task, options.engine, options.seconds) for task in options.tasks]
    report("auto_placement", rows, f"PPO, learning on, engine {options.engine}")
