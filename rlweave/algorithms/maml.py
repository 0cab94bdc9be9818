"""Model-agnostic meta-learning as something to train: agent, plan, defaults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

from rlweave.agents.config import setting
from rlweave.agents.maml import MAML as MAMLAgent  # noqa: N811 - a class of that name
from rlweave.agents.maml import MAMLConfig
from rlweave.algorithms.agent_learner import AgentLearner
from rlweave.algorithms.agent_making import completed, make_agent_of
from rlweave.algorithms.config import TrainConfig
from rlweave.algorithms.environments import making_options
from rlweave.algorithms.placement import place, rollouts, shared_out
from rlweave.algorithms.presets import PresetFile
from rlweave.algorithms.registry import AlgorithmSpec
from rlweave.algorithms.rollout_workers import EnvWorker
from rlweave.algorithms.run_directory import RunDirectory
from rlweave.algorithms.task_workers import NavigationWorker, RegressionWorker, draw_tasks
from rlweave.algorithms.trainer import Parts, PlanTrainer
from rlweave.envs import Episode, Evaluation, VectorEnv, make_env, resolve
from rlweave.envs.seeding import EVALUATION_WORKER
from rlweave.errors import ConfigError
from rlweave.flow import ReportMetrics, SampleBatch, TrainOneStep, Workers


class MAMLTrainConfig(TrainConfig):
    """Settings of a MAML training. `num_envs` is the number of tasks in a batch; each has an environment."""

    agent: MAMLConfig = setting(MAMLConfig(), "the agent")


def make_agent(config: MAMLTrainConfig, env: VectorEnv, seed: int) -> MAMLAgent:
    """The agent for an environment; not built yet."""
    return make_agent_of(MAMLAgent, config, env, seed, tasks=env.num_envs)


def make_worker(config: MAMLTrainConfig, agent: MAMLAgent, env: VectorEnv) -> EnvWorker:
    """A worker that meets new tasks."""
    if config.agent.problem == "regression":
        return RegressionWorker(agent, env, draw_of(config.env))
    return NavigationWorker(agent, env)


def kind_of(env_id: str) -> Any:
    """The class, or the function, that makes an environment."""
    entry = resolve(env_id).entry_point
    return gymnasium.envs.registration.load_env_creator(entry) if isinstance(entry, str) else entry


def check_tasks(env_id: str) -> None:
    """Checks that an environment says it has tasks: others ignore the wish for a new one, and nobody would notice.

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


def maml_plan(config: MAMLTrainConfig, workers: Workers, learner: AgentLearner[MAMLAgent]) -> ReportMetrics:
    """Every worker meets new tasks, adapts to them and meets them again; one update through all adaptations."""
    tasks = shared_out(config, rollouts(config, workers))
    train = tasks.for_each(SampleBatch.concat).for_each(TrainOneStep(learner, workers))
    return ReportMetrics(train, workers)


def make_parts(config: MAMLTrainConfig) -> Parts:
    """Agent, workers and plan of a training."""
    if config.agent.problem == "reinforcement":
        check_tasks(config.env)
    updates = -(-config.schedule_length // (2 * config.agent.shots * config.num_envs))
    config = completed(config, max(1, updates * config.agent.epochs))
    agent, workers, elsewhere = place(config, make_agent, make_worker)
    return Parts(agent, workers, lambda: maml_plan(config, workers, AgentLearner(agent, counts=elsewhere)))


class MetaTrainer(PlanTrainer):
    """Evaluates on tasks that are met for the first time: after adaptation, and before it for comparison."""

    agent: MAMLAgent
    config: MAMLTrainConfig
    evaluation_changes_nothing = False
    _unadapted_return = float("nan")

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


def make_trainer(config: MAMLTrainConfig, run: RunDirectory | None) -> MetaTrainer:
    """A trainer."""
    return MetaTrainer(config, run, make_parts)


MAML = AlgorithmSpec(
    "maml",
    "model-agnostic meta-learning, of regression and reinforcement",
    MAMLTrainConfig,
    make_trainer,
    presets=PresetFile(__file__),
    make_parts=make_parts,
)
