"""PPO, the algorithm: settings, and a plan of rounds."""

from __future__ import annotations

from typing import Any

from rlweave.agents.ppo import PPO, PPOConfig, fill_minibatches
from rlweave.algorithms.algorithm import Algorithm
from rlweave.algorithms.config import TrainConfig
from rlweave.algorithms.learners import AgentLearner
from rlweave.algorithms.placement import RolloutWorkers
from rlweave.algorithms.rollout_workers import trajectory_worker
from rlweave.algorithms.schedule_lengths import fill_schedules, updates_of_batches
from rlweave.envs import VectorEnv
from rlweave.flow import ConcatBatches, ReportMetrics, TrainOneStep
from rlweave.settings.config import setting
from rlweave.settings.sources import PresetFile


class PPOTrainConfig(TrainConfig):
    """Settings of a PPO training."""

    agent: PPOConfig = setting(PPOConfig(), "the agent")

    @property
    def batch_steps(self) -> int:
        """Environment steps of an update: a rollout of every environment."""
        return self.agent.rollout_steps * self.num_envs


def complete(config: PPOTrainConfig) -> PPOTrainConfig:
    """The settings with a number of minibatches, and schedules that count optimizer steps."""
    agent = fill_minibatches(config.agent, config.num_envs)
    updates = updates_of_batches(config, config.batch_steps)
    config = config.model_copy(update={"agent": agent})
    return fill_schedules(config, updates * agent.epochs * (agent.minibatches or 1))


def columns(config: TrainConfig, env: VectorEnv) -> dict[str, Any]:
    """An update has a column for each environment, of whichever worker."""
    return {"num_envs": config.num_envs}


def ppo_plan(workers: RolloutWorkers, learner: AgentLearner[PPO], *, batch_steps: int) -> ReportMetrics:
    """Rollouts of all workers, then one update on them."""
    batches = workers.rollouts().gather("sync").for_each(ConcatBatches(min_steps=batch_steps))
    return ReportMetrics(batches.for_each(TrainOneStep(learner, workers)), workers)


ppo = Algorithm(
    "ppo",
    "proximal policy optimization, clipped, with GAE",
    PPOTrainConfig,
    agent=PPO,
    agent_arguments=columns,
    worker=trajectory_worker,
    plan=ppo_plan,
    complete=complete,
    fused="rlweave.agents.fused_ppo:FusedPPO",
    presets=PresetFile(__file__),
)
