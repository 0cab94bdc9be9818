#!/usr/bin/env python3
"""Records what trainings do, bit for bit, and compares it with what was recorded: a net under a restructuring.

    python tools/net.py compare                    # everything; what differs, exit status 1 if anything does
    python tools/net.py compare --only ppo,dqn     # these algorithms; --kinds code,plan: these kinds
    python tools/net.py record --only ppo          # writes what is now into tools/net.json
    python tools/net.py show code/ppo/jax/update   # the text behind a hash, to be diffed with that of another checkout

Kinds: `train` (metrics and weights of short trainings on the local engine, on JAX and torch, and a cut and resumed one,
which has to equal them), `code` (the generated code of each API method, by backend), `plan` (`plan.explain()`),
`settings` (`rlweave train ALGORITHM --settings`). Recorded numbers hold for one machine: elsewhere, record first.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = (
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true "
    "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
)

import argparse
import contextlib
import csv
import hashlib
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from safetensors.numpy import load_file

sys.path.insert(0, str(Path(__file__).parents[1]))  # the code beside this file, whichever is installed

import rlweave
from rlweave.algorithms.config import resolve_config
from rlweave.algorithms.registry import get_algorithm
from rlweave.cli.main import main as rlweave_command
from rlweave.errors import RlweaveError
from rlweave.graph.component import api_methods

DATA = Path(__file__).with_suffix(".json")
KINDS = ("train", "code", "plan", "settings")
LEARNING, LOWERED = ("jax", "torch"), ("jax", "numpy", "tensorflow", "torch")

SHARED: dict[str, Any] = {"env": "CartPole-v1", "num_envs": 2, "seed": 3, "report_every": 100, "tensorboard": False}
SHARED |= {"evaluate_every": 0, "checkpoint_every": 0}
NETWORK = [{"type": "dense", "units": 8, "activation": "tanh"}]
LSTM = [{"type": "dense", "units": 8}, {"type": "lstm", "units": 6}]
DECAY = {"type": "linear", "start": 1e-2, "end": 0.0}
ROLLOUT = {"network": NETWORK, "rollout_steps": 8, "lr": DECAY}
PPO = {**ROLLOUT, "rollout_steps": 16, "epochs": 2, "minibatches": 2}
DQN = {"network": NETWORK, "learning_starts": 40, "memory_capacity": 150, "batch_size": 16, "lr": DECAY}
DQN |= {"samples_per_step": 4.0}
TRIAL = {"network": NETWORK, "rollout_steps": 16, "epochs": 1, "minibatches": 2}

#: Name of a case -> (algorithm, settings).
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "a2c": ("a2c", {"placement": {"workers": 2}, "steps": 300, "agent": ROLLOUT}),
    "a3c": ("a3c", {"placement": {"workers": 2}, "steps": 300, "agent": ROLLOUT}),
    "ape-x": ("ape-x", {"steps": 400, "steps_per_item": 8, "weight_interval": 20, "agent": DQN}),
    "appo": ("appo", {"steps": 1500, "agent": {**ROLLOUT, "minibatches": 2}}),
    "dqn": ("dqn", {"steps": 400, "agent": {**DQN, "target_update_interval": 50}}),
    "dqn-lstm": ("dqn", {"steps": 300, "agent": {**DQN, "network": LSTM, "unroll": 4, "burn_in": 2}}),
    "es": ("es", {"num_envs": 4, "steps": 600, "agent": {"network": NETWORK, "pairs": 4, "noise_size": 1000}}),
    "impala": ("impala", {"steps": 1500, "agent": ROLLOUT}),
    "maml": (
        "maml",
        {"env": "rlweave/SineTasks-v0", "num_envs": 4, "steps": 400, "agent": {"network": NETWORK}},
    ),
    "maml-rl": (
        "maml",
        {"env": "rlweave/PointNavigation-v0", "num_envs": 4, "steps": 400, "agent": {"network": NETWORK, "shots": 8}},
    ),
    "multi-agent": (
        "multi-agent",
        {
            "env": "rlweave/MultiCartPole-v0",
            "env_options": {"num_agents": 3},
            "steps": 400,
            "steps_per_item": 4,
            "policies": {"pair": {"algorithm": "ppo", "agent": PPO}, "single": {"algorithm": "dqn", "agent": DQN}},
            "mapping": {"*": "pair", "cart_2": "single"},
        },
    ),
    "pbt": (
        "pbt",
        {
            "population": 2,
            "truncation": 0.5,
            "steps": 400,
            "ready_every": 100,
            "trial_algorithm": "ppo",
            "trial": {"agent": TRIAL},
        },
    ),
    "ppo": ("ppo", {"steps": 300, "agent": {**PPO, "normalize_observations": True}}),
    "ppo-pendulum": ("ppo", {"env": "Pendulum-v1", "steps": 300, "agent": {**PPO, "acting_backend": "numpy"}}),
    "ppo-lstm": ("ppo", {"steps": 300, "agent": {**PPO, "network": LSTM}}),
    "ppo-fused": ("ppo", {"placement": "fused", "steps": 300, "agent": PPO}),
    "dqn-fused": ("dqn", {"placement": "fused", "steps": 1500, "agent": DQN}),
}
# These say nothing of settings that they lack.
CASES["maml"][1]["agent"] |= {"problem": "regression", "shots": 5, "inner_lr": 0.01}
CASES["maml-rl"][1]["env_options"] = {"horizon": 4}


def settings_of(name: str, backend: str) -> dict[str, Any]:
    """The settings of a case, nested."""
    return {**SHARED, "backend": backend, **CASES[name][1]}


def digest(text: str) -> str:
    """A hash of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def weights_hash(run: Path) -> str:
    """Of the weights of the newest checkpoint, by path."""
    newest = max((run / "checkpoints").glob("step-*"))
    found = hashlib.sha256()
    for file in sorted(newest.glob("**/weights.safetensors")) or sorted(newest.glob("*.safetensors")):
        for path, value in sorted(load_file(file).items()):
            found.update(f"{path} {value.dtype} {value.shape}".encode() + value.tobytes())
    return found.hexdigest()


def metrics_rows(run: Path) -> list[dict[str, str]]:
    """The metrics of a run without measured times, as written: floats with all their digits."""
    with (run / "metrics.csv").open(newline="") as stream:
        rows = csv.DictReader(stream)
        return [{key: value for key, value in row.items() if "second" not in key and value} for row in rows]


def train(name: str, backend: str) -> dict[str, Any]:
    """A training in one go, and one that is cut in the middle and resumed by the command line."""
    algorithm, settings = CASES[name][0], settings_of(name, backend)
    env = settings.pop("env")
    with tempfile.TemporaryDirectory() as folder:
        whole, cut = Path(folder, "whole"), Path(folder, "cut")
        rlweave.train(algorithm, env, run_dir=whole, presets=False, **settings).finish()
        run = rlweave.train(algorithm, env, run_dir=cut, presets=False, **settings)
        for _ in run:
            if run.env_steps >= settings["steps"] // 2:
                run.stop("cut")
        command("resume", str(cut))
        rows, weights = metrics_rows(whole), weights_hash(whole)
        resumed = "equal" if (rows, weights) == (metrics_rows(cut), weights_hash(cut)) else "differs"
        return {"last": rows[-1], "rows": digest(json.dumps(rows)), "weights": weights, "resumed": resumed}


def command(*words: str) -> str:
    """What a command of the command line prints."""
    with tempfile.TemporaryFile("w+") as out, contextlib.redirect_stdout(out):
        try:
            rlweave_command(words)
        except SystemExit as end:
            if end.code:
                raise
        out.seek(0)
        return out.read()


def codes(name: str, backend: str) -> Iterator[tuple[str, str]]:
    """(API method, generated code) of the graphs that learn and act."""
    spec = get_algorithm(CASES[name][0])
    try:
        trainer: Any = spec.make_trainer(resolve_config(spec.config_class, file=settings_of(name, backend)), None)
    except RlweaveError:
        if backend == "numpy":  # not everyone can be looked at without gradients
            return
        raise
    try:
        agents = trainer.agent if isinstance(trainer.agent, Mapping) else {"": trainer.agent}
        for policy, agent in agents.items():
            graphs = {"": agent.executor} | ({} if agent.acting is agent.executor else {"actor.": agent.acting})
            for where, graph in graphs.items():
                for method in sorted(api_methods(type(graph.root))):
                    with contextlib.suppress(RlweaveError):  # not in this graph, or needs static arguments
                        yield f"{policy and policy + '.'}{where}{method}", graph.code(method)
    finally:
        trainer.close()


def entries(only: list[str], kinds: list[str]) -> Iterator[tuple[str, Any, str]]:
    """(key, what is recorded, text behind it)."""

    def text(key: str, made: str) -> tuple[str, Any, str]:
        return key, digest(made), made

    for name, (algorithm, _) in CASES.items():
        if only and name not in only and algorithm not in only:
            continue
        if "settings" in kinds and name == algorithm:
            yield text(f"settings/{name}", command("train", name, "--settings"))
        if "plan" in kinds:
            spec = get_algorithm(algorithm)
            config = resolve_config(spec.config_class, file=settings_of(name, "torch"))
            with contextlib.suppress(RlweaveError):  # no plan to be looked at
                yield text(f"plan/{name}", spec.compose(config).explain())
        for backend in LOWERED if "code" in kinds and name != "pbt" else ():  # its trials are in processes
            if backend != "tensorflow" or name in ("ppo", "dqn"):
                for method, code in codes(name, backend):
                    yield text(f"code/{name}/{backend}/{method}", code)
        for backend in LEARNING if "train" in kinds else ():
            made = train(name, backend)
            yield f"train/{name}/{backend}", made, json.dumps(made, indent=1)


def difference(key: str, before: Any, now: Any) -> str:
    """What differs, in a line per metric."""
    if not isinstance(before, dict) or not isinstance(now, dict):
        return f"{key}: {'is new' if before is None else 'differs'}"
    lines = [f"{key}: {part} differs" for part in before if part != "last" and before[part] != now[part]]
    old, new = before["last"], now["last"]
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    return "\n".join([*lines, *(f"  {name}: {old.get(name)} -> {new.get(name)}" for name in names)])


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["record", "compare", "show"])
    parser.add_argument("key", nargs="?", default="")
    parser.add_argument("--only", default="", help=f"algorithms or cases, of {', '.join(CASES)}")
    parser.add_argument("--kinds", default=",".join(KINDS))
    options = parser.parse_args()
    only = [name for name in options.only.split(",") if name]
    kinds = options.kinds.split(",")
    if options.action == "show":
        kind, name, *_ = options.key.split("/")
        print(next(text for key, _, text in entries([name], [kind]) if key == options.key))
        return 0
    recorded = json.loads(DATA.read_text()) if DATA.exists() else {}
    found, differ, started = 0, 0, time.monotonic()
    try:
        for key, value, _ in entries(only, kinds):
            found += 1
            if options.action == "record":
                recorded[key] = value
            elif recorded.get(key) != value:
                differ += 1
                print(difference(key, recorded.get(key), value), flush=True)
    finally:
        if options.action == "record":
            DATA.write_text(json.dumps(recorded, indent=1, sort_keys=True) + "\n")
    print(f"{options.action}: {found} entries, {differ} differ, {time.monotonic() - started:.0f} s", file=sys.stderr)
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
