"""How long one action of a trained policy takes, against the bare network and against Stable-Baselines3's `predict`.

Each policy gets single observations as an environment gives them, and gives actions that the environment takes: a
loaded model of rlweave on NumPy, the same weights written out by hand (observation to argmax or mean, nothing checked),
and a policy of Stable-Baselines3 with equal layers. Runs of calls alternate; the figures are medians over all calls.

    python benchmarks/act_latency.py [--rounds 60]

Needs stable-baselines3. Bars: at most 20 us above the bare network, at least 5 times as fast as Stable-Baselines3.
"""

import argparse
import gc
import json
import tempfile
from collections.abc import Callable
from typing import Any

from alternating import clock, one_thread

one_thread()

import gymnasium  # noqa: E402
import numpy as np  # noqa: E402
import stable_baselines3  # noqa: E402
import torch  # noqa: E402

import rlweave  # noqa: E402
from rlweave.agents import PPO  # noqa: E402
from rlweave.spaces.gymnasium_spaces import from_gymnasium  # noqa: E402

CALLS = 200
ABOVE_BAR, RATIO_BAR = 20.0, 5.0
CASES = {"4-64-64-2, discrete": "CartPole-v1", "3-64-64-1, box": "Pendulum-v1"}


def bare_network(weights: dict[str, Any], discrete: bool) -> Callable[[Any], Any]:
    """The policy's network by hand."""
    names = ("network/dense-0", "network/dense-1", "head")
    (w0, b0), (w1, b1), (w2, b2) = (
        (weights[f"policy/{name}/kernel"], weights[f"policy/{name}/bias"]) for name in names
    )

    def act(observation: Any) -> Any:
        hidden = np.tanh(np.tanh(observation[None] @ w0 + b0) @ w1 + b1)
        outputs = hidden @ w2 + b2
        return outputs[0].argmax() if discrete else outputs[0]

    return act


def policies(env_id: str) -> tuple[dict[str, Callable[[], Any]], Any]:
    """Calls of each policy for the observation that it looks at, and that observation."""
    env = gymnasium.make(env_id)
    observation, _ = env.reset(seed=0)
    discrete = isinstance(env.action_space, gymnasium.spaces.Discrete)
    agent = PPO(from_gymnasium(env.observation_space), from_gymnasium(env.action_space), backend="numpy")
    with tempfile.TemporaryDirectory() as directory:
        policy = rlweave.load(agent.export_model(f"{directory}/model"))
    bare = bare_network(dict(policy.weights), discrete)
    peer = stable_baselines3.PPO("MlpPolicy", env, policy_kwargs={"net_arch": [64, 64]}, device="cpu", n_steps=64)
    assert env.action_space.contains(policy.act(observation))
    if discrete:
        assert policy.act(observation) == bare(observation)
    return {
        "rlweave": lambda: policy.act(observation),
        "bare": lambda: bare(observation),
        "stable-baselines3": lambda: peer.predict(observation, deterministic=True),
    }, observation


def measured(calls: dict[str, Callable[[], Any]], rounds: int) -> dict[str, np.ndarray]:
    """Microseconds of every call, by policy; runs of calls alternate."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        for _ in range(CALLS):
            call()
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            for name, call in calls.items():
                for _ in range(CALLS):
                    start = clock()
                    call()
                    times[name].append(1e6 * (clock() - start))
    finally:
        gc.enable()
    return {name: np.array(taken) for name, taken in times.items()}


def main() -> None:
    """Prints a table, and one JSON object as the last line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=60, help=f"runs of {CALLS} calls of each policy")
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    rows = []
    for case, env_id in CASES.items():
        calls, _ = policies(env_id)
        times = measured(calls, rounds)
        p50 = {name: float(np.median(taken)) for name, taken in times.items()}
        above, ratio = p50["rlweave"] - p50["bare"], p50["stable-baselines3"] / p50["rlweave"]
        rows.append(
            {
                "case": case,
                "p50_us": {name: round(value, 1) for name, value in p50.items()},
                "p99_us": {name: round(float(np.quantile(taken, 0.99)), 1) for name, taken in times.items()},
                "above_bare_us": round(above, 1),
                "above_bar": ABOVE_BAR,
                "ratio": round(ratio, 2),
                "bar": RATIO_BAR,
                "ok": above <= ABOVE_BAR and ratio >= RATIO_BAR,
            }
        )
        print(f"{case}: p50 {rows[-1]['p50_us']}, {above:.1f} us above the bare network, {ratio:.1f} x as fast as SB3")
    print(json.dumps({"name": "act_latency", "rows": rows, "ok": all(row["ok"] for row in rows)}))


if __name__ == "__main__":
    main()
