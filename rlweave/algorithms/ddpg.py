"""DDPG, the algorithm: DQN with another agent."""

from __future__ import annotations

import dataclasses

from rlweave.agents.td3 import DDPG, DDPGConfig
from rlweave.algorithms.dqn import ReplayTrainConfig, dqn
from rlweave.settings.config import setting
from rlweave.settings.sources import PresetFile


class DDPGTrainConfig(ReplayTrainConfig):
    """Settings of a training of DDPG."""

    agent: DDPGConfig = setting(DDPGConfig(), "the agent")


ddpg = dataclasses.replace(
    dqn,
    name="ddpg",
    summary="deep deterministic policy gradient",
    config_class=DDPGTrainConfig,
    agent=DDPG,
    fused="rlweave.agents.td3:FusedDDPG",
    presets=PresetFile(__file__),
)
