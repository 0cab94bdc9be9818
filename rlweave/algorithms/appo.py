"""APPO, the algorithm: PPO's settings, with IMPALA's plan."""

from __future__ import annotations

from rlweave.agents.appo import APPO, APPOConfig
from rlweave.agents.epochs import fill_minibatches
from rlweave.algorithms.algorithm import Algorithm
from rlweave.algorithms.impala import OffPolicyTrainConfig, agent_num_envs, checked, impala_plan
from rlweave.algorithms.rollout_workers import trajectory_worker
from rlweave.settings.config import setting
from rlweave.settings.sources import PresetFile


class APPOTrainConfig(OffPolicyTrainConfig):
    """Settings of an APPO training."""

    agent: APPOConfig = setting(APPOConfig(), "the agent")

    @property
    def optimizer_steps(self) -> int:
        """Those of all updates: epochs x minibatches in each."""
        agent = fill_minibatches(self.agent, **agent_num_envs(self))
        return super().optimizer_steps * agent.epochs * (agent.minibatches or 1)


appo = Algorithm(
    "appo",
    "asynchronous PPO: V-trace and a target policy",
    APPOTrainConfig,
    agent=APPO,
    agent_arguments=agent_num_envs,
    worker=trajectory_worker,
    plan=impala_plan,
    complete=checked,
    presets=PresetFile(__file__),
)
