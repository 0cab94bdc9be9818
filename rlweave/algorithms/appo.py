"""APPO, the algorithm: PPO's settings, with IMPALA's plan."""

from __future__ import annotations

from rlweave.agents.appo import APPO, APPOConfig
from rlweave.agents.ppo import fill_minibatches
from rlweave.algorithms.algorithm import Algorithm
from rlweave.algorithms.impala import OffPolicyTrainConfig, check_off_policy, columns, impala_plan
from rlweave.algorithms.rollout_workers import trajectory_worker
from rlweave.algorithms.schedule_lengths import fill_schedules
from rlweave.settings.config import setting
from rlweave.settings.sources import PresetFile


class APPOTrainConfig(OffPolicyTrainConfig):
    """Settings of an APPO training."""

    agent: APPOConfig = setting(APPOConfig(), "the agent")


def complete(config: APPOTrainConfig) -> APPOTrainConfig:
    """The settings, checked, with a number of minibatches, and schedules that count optimizer steps."""
    agent = fill_minibatches(config.agent, **columns(config))
    config = config.model_copy(update={"agent": agent})
    check_off_policy(config)
    return fill_schedules(config, config.updates * agent.epochs * (agent.minibatches or 1))


appo = Algorithm(
    "appo",
    "asynchronous PPO: V-trace and a target policy",
    APPOTrainConfig,
    agent=APPO,
    agent_arguments=columns,
    worker=trajectory_worker,
    plan=impala_plan,
    complete=complete,
    presets=PresetFile(__file__),
)
