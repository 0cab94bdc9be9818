"""IMPALA with learning on, on Ray with two workers: environment steps per second, against RLlib's IMPALA.

    python -m venv rllib && rllib/bin/pip install 'ray[rllib]==2.60.0' torch==2.13.0     # an environment of its own
    python benchmarks/flow_impala.py --peer rllib/bin/python                             # or RLWEAVE_RLLIB_PYTHON
    python benchmarks/flow_impala.py --peer rllib/bin/python --cases pong                # needs ale-py in both

Every run is a process of its own, and contestants alternate. Both have the same networks (policy and value function
apart), environments, rollout length, batch size, optimizer and learning rate, act in two processes, and train once on
every step; what they really trained on per step is printed and has to be 1 to 10 %. Time is wall time after a warm-up
in which everything was compiled and filled. Without a peer, only our numbers are printed.
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

WORKERS = 2
CASES = {
    # environments of each worker, length of a rollout, rollouts in a batch, hidden layers, what acts on our side
    "cartpole": {"env": "CartPole-v1", "envs": 8, "rollout": 50, "rollouts": 1, "hidden": [64, 64], "acting": "numpy"},
    "pong": {"env": "benchmarks.atari_pong:rlweave-benchmarks/Pong-v0", "envs": 4, "rollout": 50, "rollouts": 1,
             "hidden": [256], "acting": "onnx"},
}  # fmt: skip
CONVOLUTIONS = ((16, 8, 4), (32, 4, 2))  # filters, kernel, stride: the small network of the A3C paper
LR, ENTROPY_COEFFICIENT, VALUE_COEFFICIENT, MAX_GRAD_NORM = 6e-4, 0.01, 0.5, 40.0
BARS = {"cartpole": 2.85, "pong": 2.0}
ROOT = Path(__file__).resolve().parents[1]


def rlweave(case: str, seconds: float, warm_up: float, learner: str) -> dict[str, float]:
    """Our plan: steps and samples in a stretch of time, lag and fill of the learner's queue."""
    from rlweave.algorithms.config import resolve_config
    from rlweave.algorithms.impala import IMPALATrainConfig, impala

    chosen = CASES[case]
    images = [
        {"type": "conv2d", "filters": filters, "kernel_size": size, "stride": stride, "activation": "relu"}
        for filters, size, stride in CONVOLUTIONS
    ]
    sets = {
        "env": chosen["env"], "backend": "jax" if case == "cartpole" else "torch", "engine": "ray",
        "placement.workers": WORKERS,
        "num_envs": WORKERS * chosen["envs"], "object_store_mb": 128, "steps": 10**9, "evaluate_every": 0,
        "learner": learner, "rollouts_per_update": chosen["rollouts"], "rollouts_ahead": 2,
        "image_layout": "channels_last" if case == "pong" else None,
        "agent.image_network": images if case == "pong" else [],
        "agent.network": [{"type": "dense", "units": units, "activation": "tanh"} for units in chosen["hidden"]],
        "agent.acting_backend": chosen["acting"], "agent.rollout_steps": chosen["rollout"], "agent.lr": LR,
        "agent.entropy_coefficient": ENTROPY_COEFFICIENT, "agent.value_coefficient": VALUE_COEFFICIENT,
        "agent.max_grad_norm": MAX_GRAD_NORM,
    }  # fmt: skip
    trainer = impala.make_trainer(resolve_config(IMPALATrainConfig, sets=sets))
    try:
        plan, fills = trainer.plan, []
        begin, until = None, time.perf_counter() + warm_up
        while True:
            for _ in plan.run(until=lambda counters, n=plan.counters.updates + 5: counters.updates >= n):
                pass
            fills.append(plan.report().measures["queue/fill"])
            now = time.perf_counter()
            if now >= until and begin is None:
                begin, until = (now, plan.counters.env_steps_sampled, plan.counters.trained_samples), now + seconds
                before = dict(plan.report().train_lag)
                fills.clear()
            elif now >= until:
                break
        elapsed, steps = now - begin[0], plan.counters.env_steps_sampled - begin[1]
        samples = plan.counters.trained_samples - begin[2]
        lags = {lag: count - before.get(lag, 0) for lag, count in plan.report().train_lag.items()}
        mean_lag = sum(lag * count for lag, count in lags.items()) / max(1, sum(lags.values()))
        return {
            "steps_per_second": steps / elapsed, "samples_per_step": samples / steps, "lag": mean_lag,
            "largest_lag": max(lags), "queue_fill": statistics.mean(fills),
        }  # fmt: skip
    finally:
        trainer.close()


def rllib(case: str, seconds: float, warm_up: float) -> dict[str, float]:
    """RLlib's IMPALA on its new API stack, learner in the driver's process; runs in the peer's environment."""
    import ray
    from ray.rllib.algorithms.impala import IMPALAConfig
    from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
    from ray.tune.registry import register_env

    chosen = CASES[case]
    name = "CartPole-v1"
    if case == "pong":
        import gymnasium
        import numpy as np

        sys.path.insert(0, str(ROOT))
        from benchmarks.atari_pong import make_pong

        def pong_in_floats(_: object) -> object:
            """As RLlib's own wrapper for Atari gives frames: its networks take no bytes."""
            space = gymnasium.spaces.Box(-1.0, 1.0, (84, 84, 4), np.float32)
            scaled = gymnasium.wrappers.TransformObservation
            return scaled(make_pong(), lambda frames: frames.astype(np.float32) / 127.5 - 1.0, space)

        name = "pong"
        register_env(name, pong_in_floats)
    ray.init(num_cpus=WORKERS + 1, object_store_memory=256 * 2**20, include_dashboard=False, log_to_driver=False)
    model = DefaultModelConfig(
        fcnet_hiddens=chosen["hidden"],
        fcnet_activation="tanh",
        vf_share_layers=False,
        **({"conv_filters": [list(layer) for layer in CONVOLUTIONS]} if case == "pong" else {}),
    )
    config = (
        IMPALAConfig()
        .environment(name)
        .env_runners(
            num_env_runners=WORKERS,
            num_envs_per_env_runner=chosen["envs"],
            rollout_fragment_length=chosen["rollout"],
        )
        .learners(num_learners=0)
        .training(
            lr=LR,
            train_batch_size_per_learner=chosen["rollouts"] * chosen["envs"] * chosen["rollout"],
            entropy_coeff=ENTROPY_COEFFICIENT,
            vf_loss_coeff=VALUE_COEFFICIENT,
            grad_clip=MAX_GRAD_NORM,
            grad_clip_by="global_norm",
        )
        .rl_module(model_config=model)
        .reporting(min_time_s_per_iteration=1)
    )
    algorithm = config.build_algo()

    def counts() -> tuple[float, float, float]:
        result = algorithm.train()
        sampled = float(result.get("env_runners", {}).get("num_env_steps_sampled_lifetime", 0))
        trained = float(result.get("learners", {}).get("__all_modules__", {}).get("num_env_steps_trained_lifetime", 0))
        return time.perf_counter(), sampled, trained

    until = time.perf_counter() + warm_up
    while (begin := counts())[0] < until or not begin[2]:
        pass
    until = begin[0] + seconds
    while (end := counts())[0] < until:
        pass
    steps, samples = end[1] - begin[1], end[2] - begin[2]
    algorithm.stop()
    ray.shutdown()
    return {"steps_per_second": steps / (end[0] - begin[0]), "samples_per_step": samples / max(1.0, steps)}


def run(contestant: str, python: str, case: str, arguments: argparse.Namespace) -> dict[str, float]:
    """One run in a process of its own."""
    command = [python, __file__, "--contestant", contestant, "--cases", case, "--learner", arguments.learner]
    command += ["--seconds", str(arguments.seconds), "--warm-up", str(arguments.warm_up)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode:
        raise RuntimeError(f"{contestant} failed:\n{done.stderr[-4000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def rows(arguments: argparse.Namespace) -> list[dict[str, object]]:
    """All cases; prints each run."""
    found = []
    for case in arguments.cases:
        runs: dict[str, list[dict[str, float]]] = {"rlweave": [], "rllib": []}
        contestants = {"rlweave": sys.executable, **({"rllib": arguments.peer} if arguments.peer else {})}
        for index in range(arguments.rounds):
            for name in list(contestants)[:: 1 if index % 2 == 0 else -1]:
                result = run(name, contestants[name], case, arguments)
                runs[name].append(result)
                print(case, name, {key: round(value, 3) for key, value in result.items()}, flush=True)
        ours = [result["steps_per_second"] for result in runs["rlweave"]]
        row: dict[str, object] = {"case": f"{case}, steps/s", "ours": round(statistics.median(ours))}
        if not arguments.peer:
            found.append({**row, "ratio": 1.0, "bar": None, "ok": True, "spread": [1.0, 1.0]})
            continue
        peers = [result["steps_per_second"] for result in runs["rllib"]]
        ratios = [mine / other for mine, other in zip(ours, peers, strict=True)]
        judged_row = judged(ratios * 2 if len(ratios) == 1 else ratios, BARS[case])
        samples = [result["samples_per_step"] for results in runs.values() for result in results]
        equal = max(samples) <= 1.1 and min(samples) >= 0.9
        row |= {"peer": round(statistics.median(peers)), **judged_row}
        found.append({**row, "ok": judged_row["ok"] and equal, "samples_per_step": [min(samples), max(samples)]})
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer", default=os.environ.get("RLWEAVE_RLLIB_PYTHON"), help="Python that has ray[rllib]")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=["cartpole"])
    parser.add_argument("--rounds", type=int, default=5, help="runs of each contestant (default: 5)")
    parser.add_argument("--seconds", type=float, default=20.0, help="length of a measurement (default: 20)")
    parser.add_argument("--warm-up", type=float, default=10.0, help="seconds before it (default: 10)")
    parser.add_argument("--learner", choices=("here", "actor"), default="here", help="where our learner lives")
    parser.add_argument("--contestant", choices=("rlweave", "rllib"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.contestant == "rllib":
        print(json.dumps(rllib(arguments.cases[0], arguments.seconds, arguments.warm_up)))
    elif arguments.contestant == "rlweave":
        print(json.dumps(rlweave(arguments.cases[0], arguments.seconds, arguments.warm_up, arguments.learner)))
    else:
        sys.path.insert(0, str(ROOT))
        from benchmarks.alternating import judged, report

        note = f"{WORKERS} workers, learning on, learner {arguments.learner}; {os.cpu_count()} cores"
        report("flow_impala", rows(arguments), note)
