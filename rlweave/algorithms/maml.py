"""Model-agnostic meta-learning as something to train: settings, a plan of tasks, and evaluation on new ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

from rlweave.agents.maml import MAML, MAMLConfig
from rlweave.algorithms.algorithm import Algorithm
from rlweave.algorithms.config import TrainConfig
from rlweave.algorithms.environments import making_options
from rlweave.algorithms.learners import AgentLearner
from rlweave.algorithms.placement import RolloutWorkers
from rlweave.algorithms.rollout_workers import EnvWorker
from rlweave.algorithms.schedule_lengths import fill_schedules, updates_of_batches
from rlweave.algorithms.task_workers import NavigationWorker, RegressionWorker, draw_tasks
from rlweave.algorithms.trainer import PlanTrainer
from rlweave.envs import Episode, Evaluation, VectorEnv, make_env, resolve
from rlweave.envs.seeding import EVALUATION_WORKER
from rlweave.errors import ConfigError
from rlweave.flow import ReportMetrics, SampleBatch, TrainOneStep
from rlweave.runs.run_directory import RunDirectory
from rlweave.settings.config import setting
from rlweave.settings.sources import PresetFile


class MAMLTrainConfig(TrainConfig):
    """Settings of a MAML training. `num_envs` is the number of tasks in a batch; each has an environment."""

    agent: MAMLConfig = setting(MAMLConfig(), "the agent")


def kind_of(env_id: str) -> Any:
    """The class, or the function, that makes an environment."""
    entry = resolve(env_id).entry_point
    return gymnasium.envs.registration.load_env_creator(entry) if isinstance(entry, str) else entry


def check_tasks(env_id: str) -> None:
    """Checks that an environment says it has tasks: others silently ignore the request for a new one.

    Raises:
        ConfigError: It does not say so.
    """
    if not (getattr(kind_of(env_id), "metadata", None) or {}).get("new_task"):
        raise ConfigError(
            "this environment does not say that it is a distribution of tasks",
            where="env",
            received=env_id,
            fix="use rlweave/PointNavigation-v0 or rlweave/SineTasks-v0; one of your own draws another task at "
            "reset(options={'new_task': True}), keeps it until the next time, and says so in metadata['new_task']",
        )


def draw_of(env_id: str) -> Callable[..., Any]:
    """What draws regression tasks: the class method `draw` of an environment.

    Raises:
        ConfigError: It has none.
    """
    kind = kind_of(env_id)
    draw = getattr(kind, "draw", None)
    if draw is None:
        raise ConfigError(
            "this environment is no distribution of regression tasks",
            where="agent.problem",
            received=f"regression, with {env_id}",
            fix="use rlweave/SineTasks-v0 or a class with a method `draw` as its, or agent.problem=reinforcement",
        )
    found: Callable[..., Any] = draw
    return found


def complete(config: MAMLTrainConfig) -> MAMLTrainConfig:
    """The settings, checked, with schedules that count optimizer steps."""
    if config.agent.problem == "reinforcement":
        check_tasks(config.env)
    updates = updates_of_batches(config, 2 * config.agent.shots * config.num_envs)
    return fill_schedules(config, updates * config.agent.epochs)


def tasks(config: MAMLTrainConfig, env: VectorEnv) -> dict[str, Any]:
    """Each environment is in a task of its own."""
    return {"tasks": env.num_envs}


def task_worker(config: MAMLTrainConfig, agent: MAML, env: VectorEnv) -> EnvWorker:
    """A worker that meets new tasks."""
    if config.agent.problem == "regression":
        return RegressionWorker(agent, env, draw_of(config.env))
    return NavigationWorker(agent, env)


def maml_plan(workers: RolloutWorkers, learner: AgentLearner[MAML]) -> ReportMetrics:
    """Every worker meets new tasks, adapts to them and meets them again; one update through all adaptations."""
    met = workers.rollouts().per_worker_shares().for_each(SampleBatch.concat)
    return ReportMetrics(met.for_each(TrainOneStep(learner, workers)), workers)


class MetaTrainer(PlanTrainer):
    """Evaluates on tasks that are met for the first time: after adaptation, and before it for comparison."""

    agent: MAML
    config: MAMLTrainConfig
    evaluation_changes_nothing = False
    _unadapted_return = float("nan")

    def __init__(self, config: MAMLTrainConfig, run: RunDirectory | None) -> None:
        super().__init__(config, run, maml.parts)

    def evaluate(self, episodes: int, seed: int) -> Evaluation:
        """Adapts to `episodes` new tasks.

        The return of each is the mean of its episodes after adaptation; of a regression, minus the mean squared error.
        """
        before, after = self.evaluate_tasks(episodes, seed)
        self._unadapted_return = float(before.mean())
        steps = self.config.agent.shots
        return Evaluation(tuple(Episode(index, float(value), steps, False) for index, value in enumerate(after)))

    def evaluate_tasks(self, tasks: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns (tasks,) before and after adaptation to new tasks, by the same weights.

        Args:
            tasks: How many.
            seed: Seed of the tasks.
        """
        if self.config.agent.problem == "regression":
            generator = np.random.default_rng(seed)
            batch = draw_tasks(draw_of(self.config.env), generator, tasks, self.config.agent.shots)
            before, after = self.agent.losses(batch)
            return -before, -after
        return self._play_tasks(tasks, seed)

    def _play_tasks(self, tasks: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        config = self.config
        env = make_env(
            config.env,
            self.agent.tasks,
            seed=seed,
            worker=EVALUATION_WORKER,
            **making_options(config),
        )
        actor = self.agent.actor
        random_state = {path: value for path, value in actor.state_dict().items() if path.startswith("random")}
        with env:
            worker = NavigationWorker(self.agent, env)
            worker.workers = 0  # what is played here counts nowhere
            found = []
            for _ in range(-(-tasks // env.num_envs)):
                worker.sample()
                found.append(worker.task_returns)
        actor.set_weights(random_state)  # training goes on as if nothing had been drawn
        before, after = (np.concatenate(parts)[:tasks] for parts in zip(*found, strict=True))
        return before, after

    def _evaluation_row(self) -> dict[str, float]:
        return {**super()._evaluation_row(), "unadapted_return": self._unadapted_return}


maml = Algorithm(
    "maml",
    "model-agnostic meta-learning, of regression and reinforcement",
    MAMLTrainConfig,
    agent=MAML,
    agent_arguments=tasks,
    worker=task_worker,
    plan=maml_plan,
    complete=complete,
    trainer=MetaTrainer,
    presets=PresetFile(__file__),
)
