"""Workers that meet new tasks with every item: what they hand on was made before and after adaptation to each task."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rlweave.agents.maml import MAML
from rlweave.algorithms.rollout_workers import EnvWorker
from rlweave.envs import VectorEnv
from rlweave.envs.seeding import derived_seed
from rlweave.errors import EnvError
from rlweave.flow import Episode, SampleBatch

Act = Callable[[Any], tuple[Any, np.ndarray]]


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
            actions, log_probs = act(observations)
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
                    "states": observations,
                    "actions": actions,
                    "log_probs": log_probs,
                    "rewards": result.rewards,
                    "terminated": result.terminated,
                    "truncated": result.truncated,
                }
            )
            observations = result.observations
        unfinished = self.env.tracker.current_returns
        means = [np.mean(ended) if ended else unfinished[index] for index, ended in enumerate(returns)]
        return self.agent.postprocess(_stacked(rows)), np.array(means)


class RegressionWorker(EnvWorker):
    """Draws tasks and their points from an environment class that has `draw`, as `rlweave.envs.SineTasks` does.

    Args:
        agent: The agent; it predicts nothing here, because what it would predict changes no point.
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
    rows = {"states": inputs, "targets": targets}
    return {
        "support": {name: values[:shots] for name, values in rows.items()},
        "query": {name: values[shots:] for name, values in rows.items()},
    }


def _stacked(rows: list[Any]) -> Any:
    """Nested rows (N, ...) as one nest (T, N, ...)."""
    first = rows[0]
    if isinstance(first, dict):
        return {key: _stacked([row[key] for row in rows]) for key in first}
    if isinstance(first, tuple):
        return tuple(_stacked([row[index] for row in rows]) for index in range(len(first)))
    return np.stack(rows)
