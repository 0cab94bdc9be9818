"""SAC, the algorithm: DQN with another agent."""

from __future__ import annotations

import dataclasses

from rlweave.agents.sac import SAC, SACConfig
from rlweave.algorithms.dqn import ReplayTrainConfig, dqn
from rlweave.settings.config import setting
from rlweave.settings.sources import PresetFile


class SACTrainConfig(ReplayTrainConfig):
    """Settings of a training of SAC."""

    agent: SACConfig = setting(SACConfig(), "the agent")


sac = dataclasses.replace(
    dqn,
    name="sac",
    summary="soft actor-critic: maximum entropy with a learned temperature",
    config_class=SACTrainConfig,
    agent=SAC,
    fused="rlweave.agents.sac:FusedSAC",
    presets=PresetFile(__file__),
)
