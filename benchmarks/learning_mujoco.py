"""What PPO's presets learn on MuJoCo: InvertedPendulum-v5, and Hopper-v5 beside Stable-Baselines3's PPO.

    python benchmarks/learning_mujoco.py [--seeds 0 1 2] [--tasks inverted-pendulum hopper] [--jobs 2]

Each training is a process of its own, with one thread. Stable-Baselines3 has the settings that its zoo publishes for
Hopper. Policies act greedily for 20 episodes in environments that training has not seen: on InvertedPendulum those of
the best checkpoint, on Hopper the last weights of both. The bars, on interquartile means: at least 950 after 60,000
steps of InvertedPendulum; after 100,000 steps of Hopper no less than Stable-Baselines3. The last line is JSON.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from learning import interquartile_mean

EPISODES = 20

ZOO = """
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


def run(*command: str) -> str:
    """What a process printed."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stdout


def rlweave(env: str, steps: int, best: bool, backend: str, seed: int) -> float:
    """Mean return of what `rlweave train ppo` learns with the preset of an environment."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["train", "ppo", "--env", env, "--backend", backend, "--seed", str(seed), "--run-dir", f"{folder}/run"]
        settings = [f"steps={steps}", f"final_episodes={EPISODES}", "checkpoint_every=0", "tensorboard=false"]
        settings += [] if best else ["evaluate_every=0"]
        run(sys.executable, "-m", "rlweave", *words, *(word for one in settings for word in ("--set", one)))
        return float(json.loads(Path(folder, "run", "evaluation.json").read_text(encoding="utf-8"))["mean_return"])


def stable_baselines3(env: str, steps: int, seed: int) -> float:
    """Mean return of what Stable-Baselines3 learns with the zoo's settings."""
    text = run(sys.executable, "-W", "ignore", "-c", ZOO, env, str(steps), str(seed), str(EPISODES))
    return float(text.split()[-1])


def main() -> None:
    """Trains and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--tasks", nargs="+", default=["inverted-pendulum", "hopper"])
    parser.add_argument("--backend", default="torch")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    pendulum = functools.partial(rlweave, "InvertedPendulum-v5", 60_000, True, options.backend)
    hopper = functools.partial(rlweave, "Hopper-v5", 100_000, False, options.backend)
    rows = {
        "inverted-pendulum": {"rlweave": pendulum},
        "hopper": {"rlweave": hopper, "stable-baselines3": functools.partial(stable_baselines3, "Hopper-v5", 100_000)},
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
            mean = round(interquartile_mean(returns), 1)
            results.setdefault(task, {})[who] = {"returns": returns, "interquartile_mean": mean}
            print(f"{task}, {who}: {returns}, interquartile mean {mean}", flush=True)
    print(json.dumps({"seeds": options.seeds, "backend": options.backend, **results}))


if __name__ == "__main__":
    main()
