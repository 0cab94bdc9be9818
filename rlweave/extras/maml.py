"""Model-agnostic meta-learning, the algorithm: settings, workers that meet new tasks, a plan, evaluation."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np

from rlweave.algorithms.algorithm import Algorithm
from rlweave.algorithms.config import TrainConfig
from rlweave.algorithms.environments import making_options
from rlweave.algorithms.learners import AgentLearner
from rlweave.algorithms.placement import RolloutWorkers
from rlweave.algorithms.rollout_workers import EnvWorker
from rlweave.algorithms.trainer import PlanTrainer
from rlweave.envs import Episode as PlayedEpisode
from rlweave.envs import Evaluation, VectorEnv, make_env, resolve
from rlweave.envs.seeding import EVALUATION_WORKER, derived_seed
from rlweave.errors import ConfigError, EnvError
from rlweave.extras.maml_agent import MAML, MAMLConfig
from rlweave.flow import Episode, ReportMetrics, SampleBatch, TrainOneStep
from rlweave.runs.run_directory import RunDirectory
from rlweave.settings.config import setting
from rlweave.settings.sources import PresetFile
from rlweave.tree import tree_map

Act = Callable[[Any], tuple[Any, dict[str, Any], Any]]


class MAMLTrainConfig(TrainConfig):
    """Settings of a MAML training. `num_envs` is the number of tasks in a batch; each has an environment."""

    agent: MAMLConfig = setting(MAMLConfig(), "the agent")

    @property
    def optimizer_steps(self) -> int:
        """Those of all updates, each on the rollouts before and after adaptation."""
        return self.updates_of_batches(2 * self.agent.shots * self.num_envs) * self.agent.epochs

    steps: int = setting(
        100_000, "length of the training; the item that reaches it is finished first: for maml the episodes of all its "
        "tasks", ge=0, unit="environment steps",
    )  # fmt: skip


class NavigationWorker(EnvWorker):
    """Acts in tasks, one per environment: adapts to what it saw in each, and acts in the same tasks again.

    Environments have tasks as `rlweave.envs.PointNavigation` does: `reset(options={"new_task": True})` begins another.

    Args:
        agent: The agent that acts; its `tasks` are the environments.
        env: The environments.
    """

    def __init__(self, agent: MAML, env: VectorEnv) -> None:
        super().__init__(agent, env)
        self.agent: MAML = agent
        #: Mean returns of the episodes in each task, before and after adaptation, of the last item.
        self.task_returns: tuple[np.ndarray, np.ndarray] = (np.zeros(0), np.zeros(0))

    def sample(self) -> SampleBatch:
        """Rows (T, N, ...) of N new tasks, "support" before and "query" after adaptation."""
        agent = self.agent
        self.env.reset(options={"new_task": True})
        support, before = self._rollout(agent.act)
        agent.adapt(support)
        self.env.reset()
        query, after = self._rollout(agent.act_adapted)
        self.task_returns = before, after
        steps = 2 * agent.config.shots * self.env.num_envs
        return SampleBatch({"support": support, "query": query}, "trajectories", env_steps=steps)

    def _rollout(self, act: Act) -> tuple[Any, np.ndarray]:
        """Rows with advantages, and the mean return of each environment's episodes."""
        rows: list[dict[str, Any]] = []
        returns: list[list[float]] = [[] for _ in range(self.env.num_envs)]
        observations = self.env.observations
        for _ in range(self.agent.config.shots):
            actions, extra, _ = act(observations)
            result = self.env.step(self.agent.env_actions(actions))
            if self._count(result.valid) < self.env.num_envs:
                raise EnvError(
                    "a vector step without a transition in some environment cannot be a row of a task",
                    where="NavigationWorker",
                    received="an environment that resets in a step of its own",
                    fix="make it from an id or a function, so that rlweave resets it",
                )
            for episode in result.episodes:
                returns[episode.env].append(episode.episode_return)
                self._episodes.append(Episode(episode.episode_return, episode.length, info=episode.info))
            rows.append(
                {
                    "observations": observations,
                    "actions": actions,
                    **extra,
                    "rewards": result.rewards,
                    "terminated": result.terminated,
                    "truncated": result.truncated,
                }
            )
            observations = result.observations
        unfinished = self.env.tracker.current_returns
        means = [np.mean(ended) if ended else unfinished[index] for index, ended in enumerate(returns)]
        return self.agent.postprocess(tree_map(lambda *steps: np.stack(steps), *rows)), np.array(means)


class RegressionWorker(EnvWorker):
    """Draws tasks and their points by the `draw` of an environment class, such as `rlweave.envs.SineTasks`.

    Args:
        agent: The agent; it does not act, because predictions do not change the points.
        env: As many environments as tasks are drawn.
        draw: Draws (generator, tasks, points) to inputs and targets, (T, N, ...) each.
    """

    def __init__(self, agent: MAML, env: VectorEnv, draw: Callable[..., Any]) -> None:
        super().__init__(agent, env)
        self.agent: MAML = agent
        self._draw = draw
        self._generator = np.random.default_rng(derived_seed(agent.seed, f"tasks of worker {env.worker}"))

    def start(self, seed: int | None = None) -> None:
        super().start(seed)
        if seed is not None:
            self._generator = np.random.default_rng(derived_seed(seed, "tasks"))

    def state_dict(self, environments: bool = True, weights: bool = True) -> dict[str, Any]:
        generator = copy.deepcopy(self._generator.bit_generator.state)
        return {**super().state_dict(environments, weights), "generator": generator}

    def load_state_dict(self, state: Mapping[str, Any] | None, seed: int) -> str:
        begun = super().load_state_dict(state, seed)
        if state is not None:
            self._generator.bit_generator.state = state["generator"]
        return begun

    def sample(self) -> SampleBatch:
        """Rows (T, N, ...) of N new tasks; each point counts as a step."""
        shots, tasks = self.agent.config.shots, self.env.num_envs
        batch = draw_tasks(self._draw, self._generator, tasks, shots)
        self.agent.count_steps(2 * shots * tasks * self.workers)
        return SampleBatch(batch, "trajectories", env_steps=2 * shots * tasks)


def draw_tasks(draw: Callable[..., Any], generator: np.random.Generator, tasks: int, shots: int) -> dict[str, Any]:
    """A batch of new regression tasks: "support" and "query", rows (T, N, ...) each, T being `shots`."""
    inputs, targets = draw(generator, tasks, 2 * shots)
    rows = {"observations": inputs, "targets": targets}
    return {
        "support": {name: values[:shots] for name, values in rows.items()},
        "query": {name: values[shots:] for name, values in rows.items()},
    }


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
    """The class method `draw` of an environment, which draws regression tasks.

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


def checked(config: MAMLTrainConfig) -> MAMLTrainConfig:
    """The settings, whose environment is one of tasks where the problem needs that."""
    if config.agent.problem == "reinforcement":
        check_tasks(config.env)
    return config


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
        return Evaluation(tuple(PlayedEpisode(index, float(value), steps, False) for index, value in enumerate(after)))

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
        acting = self.agent.acting
        random_state = {path: value for path, value in acting.state_dict().items() if path.startswith("random")}
        with env:
            worker = NavigationWorker(self.agent, env)
            worker.workers = 0  # these steps do not count
            found = []
            for _ in range(-(-tasks // env.num_envs)):
                worker.sample()
                found.append(worker.task_returns)
        acting.set_weights(random_state)  # training goes on as if nothing had been drawn
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
    complete=checked,
    trainer=MetaTrainer,
    presets=PresetFile(__file__),
)
