"""PQN, the algorithm: settings, and PPO's plan of rounds."""

from __future__ import annotations

from rlweave.agents.epochs import fill_minibatches
from rlweave.agents.pqn import PQN, PQNConfig
from rlweave.algorithms.algorithm import Algorithm
from rlweave.algorithms.config import RolloutTrainConfig
from rlweave.algorithms.ppo import agent_num_envs, ppo_plan
from rlweave.algorithms.rollout_workers import trajectory_worker
from rlweave.settings.config import setting
from rlweave.settings.sources import PresetFile


class PQNTrainConfig(RolloutTrainConfig):
    """Settings of a PQN training."""

    num_envs: int = setting(32, "number of environments", ge=1, unit="environments")
    agent: PQNConfig = setting(PQNConfig(), "the agent")

    @property
    def optimizer_steps(self) -> int:
        """Those of all updates: epochs x minibatches in each."""
        agent = fill_minibatches(self.agent, self.num_envs)
        return super().optimizer_steps * agent.epochs * (agent.minibatches or 1)


pqn = Algorithm(
    "pqn",
    "Q-learning in parallel, without replay and target network",
    PQNTrainConfig,
    agent=PQN,
    agent_arguments=agent_num_envs,
    worker=trajectory_worker,
    plan=ppo_plan,
    fused="rlweave.agents.fused_pqn:FusedPQN",
    presets=PresetFile(__file__),
)
