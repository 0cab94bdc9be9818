"""TD3 as something to train: DQN's plan and workers, another agent."""

from __future__ import annotations

from rlweave.agents.td3 import TD3, FusedTD3, TD3Config
from rlweave.algorithms.algorithm import Algorithm
from rlweave.algorithms.dqn import GraphLearner, ReplayTrainConfig, dqn_plan, transition_worker
from rlweave.algorithms.schedule_lengths import fill_replay_schedules
from rlweave.settings.config import setting
from rlweave.settings.sources import PresetFile


class TD3TrainConfig(ReplayTrainConfig):
    """Settings of a training of TD3."""

    agent: TD3Config = setting(TD3Config(), "the agent")


td3 = Algorithm(
    "td3",
    "twin delayed deep deterministic policy gradient",
    TD3TrainConfig,
    agent=TD3,
    worker=transition_worker,
    learner=GraphLearner,
    plan=dqn_plan,
    complete=fill_replay_schedules,
    fused=FusedTD3,
    presets=PresetFile(__file__),
)
