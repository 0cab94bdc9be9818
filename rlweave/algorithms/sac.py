"""SAC as something to train: DQN's plan and workers, another agent."""

from __future__ import annotations

from rlweave.agents.sac import SAC, FusedSAC, SACConfig
from rlweave.algorithms.algorithm import Algorithm
from rlweave.algorithms.dqn import GraphLearner, ReplayTrainConfig, dqn_plan, transition_worker
from rlweave.algorithms.schedule_lengths import fill_replay_schedules
from rlweave.settings.config import setting
from rlweave.settings.sources import PresetFile


class SACTrainConfig(ReplayTrainConfig):
    """Settings of a training of SAC."""

    agent: SACConfig = setting(SACConfig(), "the agent")


sac = Algorithm(
    "sac",
    "soft actor-critic: maximum entropy with a learned temperature",
    SACTrainConfig,
    agent=SAC,
    worker=transition_worker,
    learner=GraphLearner,
    plan=dqn_plan,
    complete=fill_replay_schedules,
    fused=FusedSAC,
    presets=PresetFile(__file__),
)
