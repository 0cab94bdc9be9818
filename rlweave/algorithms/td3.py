"""TD3, the algorithm: DQN with another agent."""

from __future__ import annotations

import dataclasses

from rlweave.agents.td3 import TD3, TD3Config
from rlweave.algorithms.dqn import ReplayTrainConfig, dqn
from rlweave.settings.config import setting
from rlweave.settings.sources import PresetFile


class TD3TrainConfig(ReplayTrainConfig):
    """Settings of a training of TD3."""

    agent: TD3Config = setting(TD3Config(), "the agent")


td3 = dataclasses.replace(
    dqn,
    name="td3",
    summary="twin delayed deep deterministic policy gradient",
    config_class=TD3TrainConfig,
    agent=TD3,
    fused="rlweave.agents.td3:FusedTD3",
    presets=PresetFile(__file__),
)
