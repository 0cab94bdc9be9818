"""PPO, the algorithm: settings, and a plan of rounds."""

from __future__ import annotations

from typing import Any

from rlweave.agents.epochs import fill_minibatches
from rlweave.agents.ppo import PPO, PPOConfig
from rlweave.algorithms.algorithm import Algorithm
from rlweave.algorithms.config import RolloutTrainConfig, TrainConfig
from rlweave.algorithms.learners import AgentLearner
from rlweave.algorithms.placement import RolloutWorkers
from rlweave.algorithms.rollout_workers import trajectory_worker
from rlweave.envs import VectorEnv
from rlweave.flow import ConcatBatches, ReportMetrics, TrainOneStep
from rlweave.settings.config import setting
from rlweave.settings.sources import PresetFile


class PPOTrainConfig(RolloutTrainConfig):
    """Settings of a PPO training."""

    agent: PPOConfig = setting(PPOConfig(), "the agent")

    @property
    def optimizer_steps(self) -> int:
        """Those of all updates: epochs x minibatches in each."""
        agent = fill_minibatches(self.agent, self.num_envs)
        return super().optimizer_steps * agent.epochs * (agent.minibatches or 1)


def agent_num_envs(config: TrainConfig, env: VectorEnv) -> dict[str, Any]:
    """Passes `num_envs` to the agent: one batch column per environment, of whichever worker."""
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
    agent_arguments=agent_num_envs,
    worker=trajectory_worker,
    plan=ppo_plan,
    fused="rlweave.agents.fused_ppo:FusedPPO",
    presets=PresetFile(__file__),
)
