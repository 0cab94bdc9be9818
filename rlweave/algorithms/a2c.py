"""A2C, the algorithm: settings, and a plan of rounds, with micro-batches for devices with little memory."""

from __future__ import annotations

from typing import Any

from rlweave.agents.a2c import A2C, A2CConfig
from rlweave.algorithms.algorithm import Algorithm
from rlweave.algorithms.config import RolloutTrainConfig
from rlweave.algorithms.learners import AgentLearner
from rlweave.algorithms.placement import RolloutWorkers
from rlweave.algorithms.ppo import agent_num_envs
from rlweave.algorithms.rollout_workers import trajectory_worker
from rlweave.errors import ConfigError
from rlweave.flow import (
    ApplyGradients,
    ComputeGradients,
    ConcatBatches,
    Gradients,
    ReportMetrics,
    SampleBatch,
    TrainOneStep,
)
from rlweave.settings.config import setting
from rlweave.settings.sources import PresetFile


class A2CTrainConfig(RolloutTrainConfig):
    """Settings of an A2C training."""

    microbatch_size: int | None = setting(
        None, "steps whose gradients are computed at a time, and averaged over the rollout, where it does not fit into "
        "memory; a multiple of agent.rollout_steps; null: all", ge=1, unit="environment steps",
    )  # fmt: skip
    agent: A2CConfig = setting(A2CConfig(), "the agent")


def checked(config: A2CTrainConfig) -> A2CTrainConfig:
    """The settings, whose micro-batches are possible.

    Raises:
        ConfigError: Micro-batches would be cut within trajectories, or statistics of observations are to be kept.
    """
    size, own = config.microbatch_size, config.agent
    if size is not None and size % own.rollout_steps:
        raise ConfigError(
            "micro-batches are whole trajectories",
            where="microbatch_size",
            received=f"{size}, with agent.rollout_steps {own.rollout_steps}",
            fix=f"choose a multiple of {own.rollout_steps}",
        )
    if size is not None and own.normalize_observations:
        raise ConfigError(
            "micro-batches give the learner gradients, and no observations to keep statistics of",
            where="microbatch_size",
            received=f"{size}, with agent.normalize_observations",
            fix="leave one of them out",
        )
    return config


def gradients_of(agent: A2C, batch: SampleBatch) -> Gradients:
    """The gradients that an agent's loss has on a rollout (T, B, ...), at its present weights."""
    values, metrics = agent.rollout_gradients(batch.data)
    return Gradients(values, batch.num_steps, metrics)


class ActorCriticLearner(AgentLearner[A2C]):
    """The agent as a plan's learner: takes rollouts, or gradients."""

    def compute_gradients(self, batch: SampleBatch) -> Gradients:
        """The gradients of a rollout, or of some of its columns."""
        return gradients_of(self.agent, batch)

    def apply_gradients(self, gradients: Gradients) -> dict[str, Any]:
        """One optimizer step with gradients of each environment step once."""
        self._count(gradients.num_steps)
        self.agent.apply_gradients(gradients.values)
        return {}


def a2c_plan(
    workers: RolloutWorkers, learner: ActorCriticLearner, *, batch_steps: int, microbatch_size: int | None
) -> ReportMetrics:
    """Rollouts of all workers, then one optimizer step on them."""
    batches = workers.rollouts().gather("sync").for_each(ConcatBatches(min_steps=batch_steps))
    if microbatch_size is None:
        return ReportMetrics(batches.for_each(TrainOneStep(learner, workers)), workers)
    gradients = batches.for_each(ComputeGradients(learner, microbatch_size))
    return ReportMetrics(gradients.for_each(ApplyGradients(learner, workers)), workers)


a2c = Algorithm(
    "a2c",
    "advantage actor-critic, in rounds; also with micro-batches",
    A2CTrainConfig,
    agent=A2C,
    agent_arguments=agent_num_envs,
    worker=trajectory_worker,
    learner=ActorCriticLearner,
    plan=a2c_plan,
    complete=checked,
    fused="rlweave.agents.fused_a2c:FusedA2C",
    presets=PresetFile(__file__),
)
