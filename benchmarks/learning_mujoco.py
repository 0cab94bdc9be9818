"""What is learned on MuJoCo: InvertedPendulum-v5 by PPO's preset, and Hopper-v5 beside Stable-Baselines3's PPO and SAC.

    python benchmarks/learning_mujoco.py [--seeds 0 1 2] [--tasks inverted-pendulum hopper hopper-sac] [--jobs 2]

Each training is a process of its own, with one thread. Stable-Baselines3's PPO has the settings that its zoo publishes
for Hopper; both SACs have its defaults, and layers and batches of the sizes that are asked for. Policies act greedily
for 20 episodes in environments that training has not seen: on InvertedPendulum those of the best checkpoint, on Hopper
the last weights of both. The bars: an interquartile mean of at least 950 after 60,000 steps of InvertedPendulum; after
100,000 steps of Hopper no less than Stable-Baselines3, for PPO by interquartile means, for SAC by means. The last line
is JSON. (SAC and TD3 on InvertedPendulum are tasks of learning.py.)
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from learning import interquartile_mean

EPISODES = 20

PPO = """
import sys
import gymnasium
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

env_id, steps, seed, episodes = sys.argv[1], *map(int, sys.argv[2:])
torch.set_num_threads(1)
training = VecNormalize(DummyVecEnv([lambda: gymnasium.make(env_id)]), gamma=0.999)
hidden = {"pi": [256, 256], "vf": [256, 256]}
model = PPO(
    "MlpPolicy", training, seed=seed, device="cpu", n_steps=512, batch_size=32, n_epochs=5, learning_rate=9.80828e-5,
    gamma=0.999, gae_lambda=0.99, clip_range=0.2, ent_coef=0.00229519, vf_coef=0.835671, max_grad_norm=0.7,
    policy_kwargs={"log_std_init": -2, "ortho_init": False, "activation_fn": torch.nn.ReLU, "net_arch": hidden},
)
model.learn(steps)
fresh = VecNormalize(DummyVecEnv([lambda: gymnasium.make(env_id)]), training=False, norm_reward=False)
fresh.obs_rms = training.obs_rms
fresh.seed(1_000_000 + seed)
print(evaluate_policy(model, fresh, episodes, warn=False)[0])
"""

SAC = """
import sys
import gymnasium
import torch
from stable_baselines3 import SAC
from stable_baselines3.common.evaluation import evaluate_policy

env_id, steps, seed, episodes, units, batch = sys.argv[1], *map(int, sys.argv[2:])
torch.set_num_threads(1)
model = SAC(
    "MlpPolicy", gymnasium.make(env_id), seed=seed, device="cpu", batch_size=batch,
    policy_kwargs={"net_arch": [units, units]},
)
model.learn(steps)
fresh = gymnasium.make(env_id)
fresh.reset(seed=1_000_000 + seed)
print(evaluate_policy(model, fresh, episodes, warn=False)[0])
"""


def run(*command: str) -> str:
    """What a process printed."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stdout


def rlweave(
    algorithm: str, env: str, steps: int, best: bool, backend: str, seed: int, agent: Mapping[str, Any] | None = None
) -> float:
    """Mean return of what `rlweave train` learns with the preset of an environment, and further settings."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["train", algorithm, "--env", env, "--backend", backend, "--seed", str(seed)]
        settings = [f"steps={steps}", f"final_episodes={EPISODES}", "checkpoint_every=0", "tensorboard=false"]
        settings += [] if best else ["evaluate_every=0"]
        settings += [f"agent.{key}={json.dumps(value)}" for key, value in (agent or {}).items()]
        sets = [word for setting in settings for word in ("--set", setting)]
        run(sys.executable, "-m", "rlweave", *words, "--run-dir", f"{folder}/run", *sets)
        return float(json.loads(Path(folder, "run", "evaluation.json").read_text(encoding="utf-8"))["mean_return"])


def stable_baselines3(program: str, env: str, steps: int, seed: int, *more: int) -> float:
    """Mean return of what a program with Stable-Baselines3 learns."""
    words = [str(word) for word in (env, steps, seed, EPISODES, *more)]
    return float(run(sys.executable, "-W", "ignore", "-c", program, *words).split()[-1])


def main() -> None:
    """Trains and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--tasks", nargs="+", default=["inverted-pendulum", "hopper", "hopper-sac"])
    parser.add_argument("--backend", default="torch")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--units", type=int, default=256, help="of each of SAC's two layers (default: 256)")
    parser.add_argument("--batch", type=int, default=256, help="transitions in an update of SAC (default: 256)")
    options = parser.parse_args()
    own = functools.partial(rlweave, backend=options.backend)
    layers = [{"type": "dense", "units": options.units, "activation": "relu"}] * 2
    sac = {"network": layers, "batch_size": options.batch, "samples_per_step": options.batch}
    hopper = ("Hopper-v5", 100_000)
    rows: dict[str, dict[str, Callable[[int], float]]] = {
        "inverted-pendulum": {"rlweave": lambda seed: own("ppo", "InvertedPendulum-v5", 60_000, True, seed=seed)},
        "hopper": {
            "rlweave": lambda seed: own("ppo", *hopper, False, seed=seed),
            "stable-baselines3": lambda seed: stable_baselines3(PPO, *hopper, seed),
        },
        "hopper-sac": {
            "rlweave": lambda seed: own("sac", *hopper, False, seed=seed, agent=sac),
            "stable-baselines3": lambda seed: stable_baselines3(SAC, *hopper, seed, options.units, options.batch),
        },
    }
    results: dict[str, dict[str, object]] = {}
    with ThreadPoolExecutor(options.jobs) as pool:
        waiting = {
            (task, who): [pool.submit(train, seed) for seed in options.seeds]
            for task in options.tasks
            for who, train in rows[task].items()
        }
        for (task, who), trainings in waiting.items():
            returns = [round(training.result(), 1) for training in trainings]
            middle, mean = round(interquartile_mean(returns), 1), round(sum(returns) / len(returns), 1)
            results.setdefault(task, {})[who] = {"returns": returns, "interquartile_mean": middle, "mean": mean}
            print(f"{task}, {who}: {returns}, interquartile mean {middle}, mean {mean}", flush=True)
    asked = {"seeds": options.seeds, "backend": options.backend, "units": options.units, "batch": options.batch}
    print(json.dumps({**asked, **results}))


if __name__ == "__main__":
    main()
