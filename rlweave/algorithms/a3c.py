"""A3C, the algorithm: workers compute gradients, the learner applies them as they come."""

from __future__ import annotations

from typing import ClassVar

from rlweave.agents.a2c import A2C, A3C, A3CConfig
from rlweave.algorithms.a2c import ActorCriticLearner, gradients_of
from rlweave.algorithms.algorithm import Algorithm
from rlweave.algorithms.config import TrainConfig
from rlweave.algorithms.placement import RolloutWorkers
from rlweave.algorithms.placements import PlacementConfig
from rlweave.algorithms.ppo import agent_num_envs
from rlweave.algorithms.rollout_workers import TrajectoryWorker
from rlweave.envs import VectorEnv
from rlweave.flow import ApplyGradients, AverageGradients, ComputeGradients, Gradients, ReportMetrics, SampleBatch
from rlweave.settings.config import setting
from rlweave.settings.sources import PresetFile


class A3CPlacementConfig(PlacementConfig):
    """The placement of an A3C training."""

    workers: int = setting(
        2, "workers that share num_envs; each computes gradients of its own rollouts, while others are applied", ge=1
    )


class A3CTrainConfig(TrainConfig):
    """Settings of an A3C training."""

    placement: A3CPlacementConfig = setting(A3CPlacementConfig(), "where it runs")
    agent: A3CConfig = setting(A3CConfig(), "the agent")

    @property
    def optimizer_steps(self) -> int:
        """One for each rollout of a worker, or for each round."""
        envs = self.num_envs if self.gather == "sync" else self.num_envs // self.placement.workers
        return self.updates_of_batches(self.agent.rollout_steps * envs)


class GradientWorker(TrajectoryWorker):
    """Collects rollouts, and computes gradients of them with the weights that it acted with."""

    agent: A2C
    computes_gradients: ClassVar[bool] = True

    def compute_gradients(self, batch: SampleBatch) -> Gradients:
        """The gradients of one of its rollouts."""
        return gradients_of(self.agent, batch)


def gradient_worker(config: A3CTrainConfig, agent: A3C, env: VectorEnv) -> GradientWorker:
    """A worker that collects rollouts and computes gradients of them."""
    return GradientWorker(agent, env, config.agent.rollout_steps)


def a3c_plan(workers: RolloutWorkers, learner: ActorCriticLearner) -> ReportMetrics:
    """Gradients of every worker's rollouts, applied one by one as they come; of rounds their average, without a lag."""
    gradients = workers.rollouts().par_for_each(ComputeGradients()).gather("async")
    if workers.gather == "sync":
        gradients = gradients.batch_rounds().for_each(AverageGradients())
    return ReportMetrics(gradients.for_each(ApplyGradients(learner, workers)), workers)


a3c = Algorithm(
    "a3c",
    "asynchronous advantage actor-critic: workers send gradients",
    A3CTrainConfig,
    agent=A3C,
    agent_arguments=agent_num_envs,
    worker=gradient_worker,
    learner=ActorCriticLearner,
    plan=a3c_plan,
    presets=PresetFile(__file__),
)
