"""DDPG as something to train: DQN's plan and workers, another agent."""

from __future__ import annotations

from rlweave.agents.td3 import DDPG, DDPGConfig, FusedDDPG
from rlweave.algorithms.algorithm import Algorithm
from rlweave.algorithms.dqn import GraphLearner, ReplayTrainConfig, dqn_plan, transition_worker
from rlweave.algorithms.schedule_lengths import fill_replay_schedules
from rlweave.settings.config import setting
from rlweave.settings.sources import PresetFile


class DDPGTrainConfig(ReplayTrainConfig):
    """Settings of a training of DDPG."""

    agent: DDPGConfig = setting(DDPGConfig(), "the agent")


ddpg = Algorithm(
    "ddpg",
    "deep deterministic policy gradient",
    DDPGTrainConfig,
    agent=DDPG,
    worker=transition_worker,
    learner=GraphLearner,
    plan=dqn_plan,
    complete=fill_replay_schedules,
    fused=FusedDDPG,
    presets=PresetFile(__file__),
)
