"""Cold start: seconds from the command `rlweave train ppo --env CartPole-v1` to the end of its first update.

Each measurement is a process of its own. The import of the framework is measured in processes beside them, in turns,
and taken off. Policies act on NumPy. The bars: 3 s on torch, 4 s on JAX. Seconds differ from machine to machine, and
from hour to hour; so `--peers` starts Stable-Baselines3 (torch) and SBX (JAX) with equal settings in turns with ours.

    python benchmarks/cold_start.py [--backends torch jax] [--rounds 5] [--peers]

The last line is JSON: medians in seconds by backend, and the peer's over ours.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

FRAMEWORKS = {"torch": "import torch", "jax": "import jax, jax.numpy"}
BARS = {"torch": 3.0, "jax": 4.0}

TRAINING = """
import os, sys, time
from rlweave.agents.ppo import PPO
update = PPO.update
def first(self, batch=None):
    metrics = update(self, batch)
    assert metrics["gradient_steps"] > 0
    print("updated", time.time(), time.process_time(), flush=True)
    os._exit(0)
PPO.update = first
from rlweave.cli import main
main(sys.argv[1:])
"""

PEERS = {"torch": "stable_baselines3", "jax": "sbx"}
#: The peer with the settings that `rlweave train ppo` has for CartPole-v1.
PEER = """
import os, sys, time
sys.modules["tensorflow"] = None  # which SBX would import in a version that another of its libraries does not know
import {peer}
from stable_baselines3.common.env_util import make_vec_env
train = {peer}.PPO.train
def first(self):
    train(self)
    print("updated", time.time(), time.process_time(), flush=True)
    os._exit(0)
{peer}.PPO.train = first
environments = make_vec_env("CartPole-v1", n_envs=8)
{peer}.PPO("MlpPolicy", environments, n_steps=128, batch_size=256, n_epochs=10).learn(1024)
"""


def run(code: str, *arguments: str) -> tuple[float, float]:
    """Wall-clock and processor seconds of a new process until it says that it is done."""
    # modules are compiled once, as they are for users, also where the environment says not to keep them
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-c", code, *arguments]
    started = time.time()
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    _, ended, cpu = done.stdout.strip().splitlines()[-1].split()
    return float(ended) - started, float(cpu)


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backends", nargs="+", default=list(FRAMEWORKS), choices=list(FRAMEWORKS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peers", action="store_true")
    options = parser.parse_args()
    results = {}
    for backend in options.backends:
        imports, starts, peers = [], [], []
        for _ in range(options.rounds + 1):  # the first one fills the caches of files
            done = "import time; print('done', time.time(), time.process_time())"
            imports.append(run(f"{FRAMEWORKS[backend]}; {done}"))
            with tempfile.TemporaryDirectory() as folder:
                words = ("train", "ppo", "--env", "CartPole-v1", "--backend", backend, "--run-dir", f"{folder}/run")
                starts.append(run(TRAINING, *words, "--set", "agent.acting_backend=numpy"))
            if options.peers:
                peers.append(run(PEER.format(peer=PEERS[backend])))
        (import_s, import_cpu), (start_s, start_cpu) = (
            map(statistics.median, zip(*rounds[1:], strict=True)) for rounds in (imports, starts)
        )
        results[backend] = {
            "import_s": round(import_s, 2),
            "to_first_update_s": round(start_s, 2),
            "own_s": round(start_s - import_s, 2),
            "own_cpu_s": round(start_cpu - import_cpu, 2),
            "bar_s": BARS[backend],
        }
        if options.peers:
            peer_s = statistics.median(seconds for seconds, _ in peers[1:]) - import_s
            results[backend] |= {"peer": PEERS[backend], "peer_s": round(peer_s, 2)}
            results[backend]["peer / ours"] = round(peer_s / results[backend]["own_s"], 2)
        print(f"{backend}: {results[backend]}")
    print(json.dumps(results))


if __name__ == "__main__":
    main()
