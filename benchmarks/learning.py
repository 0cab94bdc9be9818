"""Trains every task with every seed on every backend, and shows whether it was learned.

    python benchmarks/learning.py --output docs                                   # everything, as `make learning` does
    python benchmarks/learning.py --output docs --tasks ppo-cartpole --seeds 0 1  # a part; the other rows stay
    python benchmarks/learning.py --output docs --engines ray --seeds 0 1 2 --jobs 1 --until-clear     # on Ray

On Ray there are two workers. With `--until-clear` a run ends at the first report that leaves no doubt; its row says so.

Writes `learning.json` (a row for each run, with the command that repeats it), `learning.md` (a table), and a picture of
the learning curves of each task. Seeds are those of the agent; nothing was tuned on them, and none is left out. Ends
with 1 if a task was not learned.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import json
import multiprocessing
import os
import shlex
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlweave.algorithms.config import resolve_config
from rlweave.algorithms.registry import get_algorithm
from rlweave.algorithms.trainer import PlanTrainer
from rlweave.envs.seeding import derived_seed
from rlweave.extras.maml import MetaTrainer
from rlweave.runs.metrics import RETURN_COLUMN, STEP_COLUMN, read_metrics
from rlweave.runs.run_directory import RunDirectory

SEEDS = (0, 1, 2, 3, 4)
BACKENDS = ("jax", "torch")
#: Trained on request: `--backends tensorflow`.
SECOND_TIER = ("tensorflow",)
#: What is set beside the tuned settings on each engine.
ENGINES: Mapping[str, Mapping[str, Any]] = {
    "local": {},
    "ray": {"engine": "ray", "placement.workers": 2, "object_store_mb": 80},
}


@dataclasses.dataclass(frozen=True)
class Task:
    """Something to be learned within a number of steps.

    Attributes:
        algorithm: What learns.
        env: Gymnasium id; the settings tuned for it are used.
        budget: Most environment steps that the training may take.
        measure: Gives the result of a finished training.
        what: Says what the result is.
        threshold: What the result has to reach.
        higher_is_better: Whether the result must be at least the threshold, or below it.
        settings: Dotted settings besides the tuned ones.
        backends: Where it is trained unless asked otherwise.
        on_ray: Dotted settings there, where those for one process cannot be.
        clear: Column and value of a report that leave no doubt that the threshold is reached; None: only the end tells.
        seeds: How many seeds on each backend; those not named have `SEEDS`.
        alone: What a single seed has to reach where the threshold is one for the interquartile mean over the seeds of
            a backend (20 episodes of Pendulum differ by where they begin); None: each has to reach the threshold.
    """

    algorithm: str
    env: str
    budget: int
    measure: Callable[[PlanTrainer], float]
    what: str
    threshold: float
    higher_is_better: bool = True
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    clear: tuple[str, float] | None = None
    backends: tuple[str, ...] = BACKENDS
    on_ray: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    seeds: Mapping[str, int] = dataclasses.field(default_factory=dict)
    alone: float | None = None

    def reached(self, result: float) -> bool:
        """Whether a result is good enough; NaN never is."""
        return result >= self.threshold if self.higher_is_better else result < self.threshold

    def reached_by_seed(self, result: float) -> bool:
        """Whether the result of a single seed is good enough."""
        return self.reached(result) if self.alone is None else result >= self.alone

    def command(self, backend: str, seed: int, engine: str = "local") -> str:
        """The command line that trains the same."""
        where = "" if engine == "local" else f" --engine {engine} --workers {ENGINES[engine]['placement.workers']}"
        settings = self.settings if engine == "local" else {**self.settings, **self.on_ray}
        sets = "".join(f" --set {shlex.quote(f'{key}={_yaml(value)}')}" for key, value in settings.items())
        return f"rlweave train {self.algorithm} --env {self.env} --backend {backend} --seed {seed}{where}{sets}"


def _yaml(value: Any) -> str:
    """A setting as `--set` reads it."""
    return value if isinstance(value, str) else json.dumps(value)


def greedy_return(episodes: int) -> Callable[[PlanTrainer], float]:
    """Measures the best checkpoint, which was chosen on other episodes, on episodes whose seeds chose nothing."""

    def measure(trainer: PlanTrainer) -> float:
        assert trainer.run is not None
        trainer.load_model(trainer.run.checkpoints / "best")
        return trainer.evaluate(episodes, derived_seed(trainer.config.seed, "final evaluation")).mean_return

    return measure


def interquartile_mean(values: Sequence[float]) -> float:
    """Mean of the middle half (Agarwal et al. 2021); of three values each end counts a quarter of the middle one.

    >>> interquartile_mean([0.0, 1.0, 2.0, 100.0])
    1.5
    """
    share = np.arange(len(values) + 1) / len(values)
    weights = np.diff(np.clip(share, 0.25, 0.75)) * 2.0
    return float(weights @ np.sort(np.asarray(values, np.float64)))


def worst_policy_return(episodes: int) -> Callable[[PlanTrainer], float]:
    """Measures the best checkpoint as `greedy_return` does; the policy whose agents do worst counts."""

    def measure(trainer: PlanTrainer) -> float:
        assert trainer.run is not None
        trainer.load_model(trainer.run.checkpoints / "best")
        evaluation = trainer.evaluate(episodes, derived_seed(trainer.config.seed, "final evaluation"))
        return min(own.mean_return for own in evaluation.policies.values())

    return measure


def last_training_episodes(episodes: int) -> Callable[[PlanTrainer], float]:
    """Measures the mean return of the last episodes of the training itself, exploration included."""

    def measure(trainer: PlanTrainer) -> float:
        last = trainer.plan.state_dict()["episodes"]["last"][-episodes:]
        return float(np.mean([episode_return for episode_return, _ in last])) if len(last) == episodes else np.nan

    return measure


def loss_left_by_adaptation(tasks: int) -> Callable[[PlanTrainer], float]:
    """Measures the mean loss after one gradient step over that before it, on the same points of new tasks."""

    def measure(trainer: PlanTrainer) -> float:
        before, after = _best_on_new_tasks(trainer, tasks)
        return float(after.mean() / before.mean())

    return measure


def gained_by_adaptation(tasks: int) -> Callable[[PlanTrainer], float]:
    """Measures by how much one gradient step raises the mean return in new tasks."""

    def measure(trainer: PlanTrainer) -> float:
        before, after = _best_on_new_tasks(trainer, tasks)
        return float(after.mean() - before.mean())

    return measure


def _best_on_new_tasks(trainer: PlanTrainer, tasks: int) -> tuple[np.ndarray, np.ndarray]:
    assert isinstance(trainer, MetaTrainer)
    assert trainer.run is not None
    trainer.load_model(trainer.run.checkpoints / "best")
    return trainer.evaluate_tasks(tasks, derived_seed(trainer.config.seed, "final evaluation"))


#: Optimal values of the 2x2 grid world, discount 0.98: states 0 and 1; actions up, right, down, left.
GRID_WORLD_VALUES = ((0.7624, -5.0, 0.88, 0.7624), (0.7624, 1.0, 0.88, 0.88))


def largest_value_error(trainer: PlanTrainer) -> float:
    """Measures how far the learned Q values are from the optimal ones."""
    values, _ = trainer.agent.executor.q_values(np.arange(2))
    return float(np.abs(values - GRID_WORLD_VALUES).max())


_BEST = "mean return of the best checkpoint"
TASKS = {
    "ppo-cartpole": Task(
        "ppo", "CartPole-v1", 60_000, greedy_return(20), f"{_BEST}, 20 greedy episodes", 475.0,
        clear=("best_evaluation_return", 499.0),
    ),
    "dqn-cartpole": Task(
        "dqn", "CartPole-v1", 100_000, greedy_return(20), f"{_BEST}, 20 greedy episodes", 475.0,
        clear=("best_evaluation_return", 499.0),
    ),
    "pqn-cartpole": Task(
        "pqn", "CartPole-v1", 100_000, greedy_return(20), f"{_BEST}, 20 greedy episodes", 475.0,
        clear=("best_evaluation_return", 499.0),
    ),
    "a2c-cartpole": Task(
        "a2c", "CartPole-v1", 300_000, greedy_return(20), f"{_BEST}, 20 greedy episodes", 450.0,
        clear=("best_evaluation_return", 499.0), backends=("jax",),
    ),
    "a3c-cartpole": Task(
        "a3c", "CartPole-v1", 300_000, greedy_return(20), f"{_BEST}, 20 greedy episodes", 450.0,
        clear=("best_evaluation_return", 499.0), backends=("torch",),
    ),
    "ape-x-cartpole": Task(
        "ape-x", "CartPole-v1", 200_000, greedy_return(20), f"{_BEST}, 20 greedy episodes", 450.0,
        clear=("best_evaluation_return", 490.0),
    ),
    "es-cartpole": Task(
        "es", "CartPole-v1", 2_000_000, greedy_return(20), f"{_BEST}, 20 greedy episodes", 450.0,
        clear=("best_evaluation_return", 499.0),
    ),
    "maml-sine": Task(
        "maml", "rlweave/SineTasks-v0", 15_000_000, loss_left_by_adaptation(2000),
        "mean loss after one gradient step over that before it, 2000 new tasks", 0.1, higher_is_better=False,
        clear=("best_evaluation_return", -0.25), backends=("jax",), on_ray={"num_envs": 24},  # 25 by two workers
    ),
    "maml-point": Task(
        "maml", "rlweave/PointNavigation-v0", 1_000_000, gained_by_adaptation(100),
        "gain in mean return by one gradient step, 100 new tasks", 1.5, clear=("best_evaluation_return", -1.8),
        backends=("jax",),
    ),
    "impala-cartpole": Task(
        "impala", "CartPole-v1", 300_000, greedy_return(20), f"{_BEST}, 20 greedy episodes", 450.0,
        clear=("best_evaluation_return", 499.0),
    ),
    "impala-catch": Task(
        "impala", "rlweave/Catch-v0", 200_000, greedy_return(100), f"{_BEST}, 100 greedy episodes", 0.9,
        clear=("best_evaluation_return", 0.99), backends=("jax",),
    ),
    "appo-cartpole": Task(
        "appo", "CartPole-v1", 200_000, greedy_return(20), f"{_BEST}, 20 greedy episodes", 450.0,
        clear=("best_evaluation_return", 499.0),
    ),
    "ppo-pendulum": Task(
        "ppo",
        "Pendulum-v1",
        300_000,
        last_training_episodes(20),
        "mean return of the last 20 training episodes",
        -300.0,
        clear=("episode_return", -250.0),  # the mean of the last 20 episodes
    ),
    **{
        f"{algorithm}-pendulum": Task(
            algorithm, "Pendulum-v1", 20_000, greedy_return(20), f"{_BEST}, 20 greedy episodes", -165.0,
            clear=("best_evaluation_return", -200.0), seeds={"jax": 10}, alone=-300.0,
        )
        for algorithm in ("sac", "td3", "ddpg")
    },
    **{
        f"{algorithm}-inverted-pendulum": Task(
            algorithm, "InvertedPendulum-v5", 50_000, greedy_return(20), f"{_BEST}, 20 greedy episodes", 950.0,
            clear=("best_evaluation_return", 999.0), backends=("jax",),
        )
        for algorithm in ("sac", "td3")
    },
    "ppo-catch": Task(
        "ppo",
        "rlweave/Catch-v0",
        200_000,
        greedy_return(100),
        f"{_BEST}, 100 greedy episodes",
        0.9,
        clear=("best_evaluation_return", 0.99),
    ),
    # a step is one of a single agent: four of them share the budget
    "multi-agent-cartpole": Task(
        "multi-agent", "rlweave/MultiCartPole-v0", 400_000, worst_policy_return(20),
        f"{_BEST} of the worst of 2 PPO and 2 DQN policies, 20 greedy episodes", 400.0,
        clear=("best_evaluation_return", 490.0),
    ),
    "dqn-gridworld": Task(
        "dqn",
        "rlweave/GridWorld-v0",
        2_000,
        largest_value_error,
        "largest error of the Q values of the 2x2 world",
        0.05,
        higher_is_better=False,
        settings={"env_options.world": "2x2"},
    ),
    **{
        f"{algorithm}-cue-{layer}": Task(
            algorithm, "rlweave/CueRecall-v0", 20_480, greedy_return(500), f"{_BEST}, 500 greedy episodes", 0.9,
            settings={"agent.network": [{"type": layer, "units": 16}]}, clear=("best_evaluation_return", 1.0),
            backends=BACKENDS if (algorithm, layer) == ("ppo", "lstm") else ("jax",),
        )
        for algorithm in ("ppo", "dqn")
        for layer in ("lstm", "gru")
    },
    # masks, a memory and several leaves of observations together: without one of them at most 0.75, see `MaskedRecall`
    **{
        f"{algorithm}-masked-recall": Task(
            algorithm, "rlweave/MaskedRecall-v0", budget, greedy_return(500), f"{_BEST}, 500 greedy episodes", 0.9,
            clear=("best_evaluation_return", 1.0), backends=("jax",), seeds={"jax": 3},
        )
        for algorithm, budget in (("ppo", 41_000), ("a2c", 100_000), ("impala", 100_000), ("dqn", 20_000))
    },
    # controls: nobody without a memory does better than guess, or the task would show nothing
    **{
        f"{algorithm}-cue-feedforward": Task(
            algorithm, "rlweave/CueRecall-v0", 20_480, greedy_return(500), f"{_BEST}, 500 greedy episodes", 0.6,
            higher_is_better=False, settings={"agent.network": [{"type": "dense", "units": 64, "activation": "tanh"}]},
            backends=("jax",),
        )
        for algorithm in ("ppo", "dqn")
    },
}  # fmt: skip

#: Trained on Ray too, unless tasks are named: one or two for each algorithm that has a plan of its own.
ON_RAY = (*(name for name in TASKS if name.endswith("-cartpole")), "impala-catch", "maml-sine", "maml-point")


def train_task(
    name: str,
    backend: str,
    seed: int,
    directory: str | os.PathLike[str],
    settings: Mapping[str, Any] | None = None,
    until_clear: bool = False,
) -> dict[str, Any]:
    """Trains one task and measures the result.

    Args:
        name: One of `TASKS`.
        backend: What computes.
        seed: Seed of the run.
        directory: A directory for the run, which must be new or empty.
        settings: Further dotted settings, for experiments.
        until_clear: Stops where a report leaves no doubt, before the end of the training; the result is measured there.

    Returns:
        A row of `learning.json`.
    """
    task = TASKS[name]
    spec = get_algorithm(task.algorithm)
    sets = {**task.settings, "env": task.env, "backend": backend, "seed": seed, **(settings or {})}
    config = resolve_config(spec.config_class, presets=spec.presets[task.env], sets=sets)
    run = RunDirectory.create(spec.name, config.to_data(), path=directory)
    trainer = spec.make_trainer(config, run)
    assert isinstance(trainer, PlanTrainer)
    metrics = run.open_metrics(tensorboard=False)
    try:
        for report in trainer.train():
            metrics.write(report)
            if until_clear and task.clear is not None and report.get(task.clear[0], -np.inf) >= task.clear[1]:
                break
        steps = trainer.env_steps
        result = task.measure(trainer)
    finally:
        metrics.close()
        trainer.close()
    columns = read_metrics(run.metrics_file)
    # who meets no episodes in training, as in regression, is known by evaluations alone
    returns = columns[RETURN_COLUMN if RETURN_COLUMN in columns else "evaluation_return"]
    curve = {
        "steps": [int(step) for step in columns[STEP_COLUMN]],
        "returns": [round(float(value), 3) if np.isfinite(value) else None for value in returns],
    }
    versions = json.loads(run.versions_file.read_text(encoding="utf-8"))
    wanted = ("python", "rlweave", "numpy", "gymnasium", backend)
    return {
        "task": name,
        "backend": backend,
        "engine": config.engine,
        "seed": seed,
        "steps": steps,
        "budget": task.budget,
        "what": task.what,
        "result": round(result, 4),
        "threshold": task.threshold,
        "ok": bool(task.reached_by_seed(result) and steps <= task.budget),
        **({"until_clear": True} if until_clear and task.clear is not None else {}),  # the command trains on
        "command": task.command(backend, seed, config.engine),
        "versions": {package: versions[package] for package in wanted if package in versions},
        "curve": curve,
    }


def settings_on(engine: str, name: str) -> dict[str, Any]:
    """What is set beside the tuned settings of a task on an engine."""
    return {**ENGINES[engine], **(TASKS[name].on_ray if engine == "ray" else {})}


def _train_in_process(job: tuple[str, str, int, dict[str, Any], bool]) -> dict[str, Any]:
    name, backend, seed, settings, until_clear = job
    with tempfile.TemporaryDirectory(prefix="rlweave-learning-") as directory:
        return train_task(name, backend, seed, Path(directory) / "run", settings, until_clear)


def draw(rows: list[dict[str, Any]], output: Path) -> list[Path]:
    """Draws the learning curves of each task: a line for each backend, and a band over the seeds."""
    from rlweave.view.curves import Curve, draw_curves

    paths = []
    for name, task in TASKS.items():
        mine = [row for row in rows if row["task"] == name]
        if not mine:
            continue
        curves = [
            Curve(
                row["backend"] + (f" ({row['engine']})" if _engine(row) != "local" else ""),
                np.array(row["curve"]["steps"], np.float64),
                np.array([np.nan if value is None else value for value in row["curve"]["returns"]]),
            )
            for row in mine
        ]
        threshold = task.threshold if task.higher_is_better else None
        title = f"{task.algorithm.upper()} on {task.env}"
        paths.append(draw_curves(curves, output / f"{name}.png", title=title, threshold=threshold))
    return paths


def table(rows: list[dict[str, Any]]) -> str:
    """All rows as a page: a line for each task, backend and engine, with the result of each seed."""
    lines = [
        "# What was learned",
        "",
        "Made by `make learning` (`benchmarks/learning.py`) from `learning.json`, which has the curves, versions and",
        "a command for each run as well. Settings were chosen on other seeds. A result is measured once, on episodes",
        "(for MAML, tasks) whose seeds chose nothing. On Ray there are two workers. There, and where a row of the JSON",
        "says `until_clear`, a run ends at its first clear result.",
        "",
        "| task | backend | engine | needed | result of seeds 0, 1, ... | steps of the budget | curve |",
        "|---|---|---|---|---|---|---|",
    ]
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["task"], row["backend"], _engine(row)), []).append(row)
    for (name, backend, engine), runs in groups.items():
        runs.sort(key=lambda row: int(row["seed"]))
        task = TASKS[name]
        needed = f"{'at least' if task.higher_is_better else 'below'} {task.threshold:g}"
        results = ", ".join(f"{row['result']:.4g}" + ("" if row["ok"] else " (**no**)") for row in runs)
        if task.alone is not None:
            mean = interquartile_mean([row["result"] for row in runs])
            results += f"; interquartile mean {mean:.4g}" + ("" if task.reached(mean) else " (**no**)")
        steps = f"{max(row['steps'] for row in runs):,} of {task.budget:,}"
        lines.append(f"| {name} | {backend} | {engine} | {needed} | {results} | {steps} | [curve]({name}.png) |")
    shown = {name for name, _, _ in groups}
    results_of = [f"* {name}: {task.what}." for name, task in TASKS.items() if name in shown]
    return "\n".join([*lines, "", "The result of", "", *results_of, ""])


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("docs"), help="directory of the results (default: docs)")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=None, help="default: all; on Ray, most")
    parser.add_argument(
        "--backends",
        nargs="+",
        choices=(*BACKENDS, *SECOND_TIER),
        default=None,
        help="default: jax and torch, or what the task says",
    )
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=["local"], help="default: local")
    parser.add_argument("--seeds", nargs="+", type=int, help="default: 0 to 4, or what the task says")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="runs at a time (default: one per core)")
    parser.add_argument(
        "--until-clear", action="store_true", help="a run ends where its result is beyond doubt, and is measured there"
    )
    parser.add_argument("--settings", type=json.loads, default={}, help="further settings as JSON, for experiments")
    arguments = parser.parse_args()
    jobs = [
        (name, backend, seed, {**settings_on(engine, name), **arguments.settings}, arguments.until_clear)
        for engine in arguments.engines
        for name in arguments.tasks or (TASKS if engine == "local" else ON_RAY)
        for backend in arguments.backends or TASKS[name].backends
        for seed in arguments.seeds or range(TASKS[name].seeds.get(backend, len(SEEDS)))
    ]
    arguments.output.mkdir(parents=True, exist_ok=True)
    file = arguments.output / "learning.json"
    rows = json.loads(file.read_text(encoding="utf-8"))["rows"] if file.exists() else []
    # A process for each run, one thread each: nothing of one run can reach another.
    os.environ["OMP_NUM_THREADS"] = "1"
    pool = concurrent.futures.ProcessPoolExecutor(
        arguments.jobs, multiprocessing.get_context("spawn"), max_tasks_per_child=1
    )
    print(f"{'task':<21}{'backend':<9}{'engine':<7}{'seed':>4}{'steps':>9}{'result':>10}{'needed':>9}  ok", flush=True)
    new, failed = [], []
    with pool:
        futures = {pool.submit(_train_in_process, job): job for job in jobs}
        for future in concurrent.futures.as_completed(futures):
            try:
                row = future.result()
            except Exception as error:  # the others go on
                failed.append(futures[future])
                print(*futures[future], "FAILED:", error, flush=True)
                continue
            new.append(row)
            print(
                f"{row['task']:<21}{row['backend']:<9}{row['engine']:<7}{row['seed']:>4}{row['steps']:>9,}"
                f"{row['result']:>10.4g}{row['threshold']:>9.4g}  {'yes' if row['ok'] else 'NO'}",
                flush=True,
            )
            rows = [other for other in rows if _key(other) != _key(row)] + [row]
            _write(file, rows)
    page = arguments.output / "learning.md"
    page.write_text(table(rows), encoding="utf-8")
    for path in [*draw(rows, arguments.output), page, file]:
        print(path)
    return 0 if not failed and all(row["ok"] for row in new) and all_reached(new) else 1


def all_reached(rows: Sequence[dict[str, Any]]) -> bool:
    """Whether each task judged by the mean over its seeds has reached its threshold, wherever it was trained."""
    groups: dict[tuple[Any, ...], list[float]] = {}
    for row in rows:
        if TASKS[row["task"]].alone is not None:
            groups.setdefault((row["task"], row["backend"], _engine(row)), []).append(row["result"])
    return all(TASKS[task].reached(interquartile_mean(results)) for (task, _, _), results in groups.items())


def _engine(row: dict[str, Any]) -> str:
    return str(row.get("engine", "local"))  # the first rows were all of the local one, and do not say so


def _key(row: dict[str, Any]) -> tuple[int, int, int, int]:
    backend = (*BACKENDS, *SECOND_TIER).index(row["backend"])
    return list(TASKS).index(row["task"]), backend, list(ENGINES).index(_engine(row)), row["seed"]


def _write(file: Path, rows: list[dict[str, Any]]) -> None:
    rows.sort(key=_key)
    lines = ",\n".join("  " + json.dumps(row) for row in rows)
    ok = all(row["ok"] for row in rows) and all_reached(rows)
    text = f'{{"ok": {json.dumps(ok)}, "rows": [\n{lines}\n]}}\n'
    partial = file.with_name(file.name + ".partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(file)


if __name__ == "__main__":
    sys.exit(main())
