"""What A2C and A3C share: the agent as learner and as worker of a plan."""

from __future__ import annotations

from typing import Any, TypeVar

from rlweave.agents.a2c import A2C
from rlweave.algorithms.agent_learner import AgentLearner
from rlweave.algorithms.agent_making import completed
from rlweave.algorithms.config import TrainConfig
from rlweave.algorithms.rollout_workers import TrajectoryWorker
from rlweave.envs import VectorEnv
from rlweave.errors import ConfigError
from rlweave.flow import Gradients, SampleBatch

ConfigT = TypeVar("ConfigT", bound=TrainConfig)


def gradients_of(agent: A2C, batch: SampleBatch) -> Gradients:
    """The gradients that an agent's loss has on a rollout (T, B, ...), at its present weights."""
    values, metrics = agent.rollout_gradients(batch.data)
    return Gradients(values, batch.num_steps, metrics)


class ActorCriticLearner(AgentLearner[A2C]):
    """The agent as a plan's learner: takes rollouts, or gradients."""

    def compute_gradients(self, batch: SampleBatch) -> Gradients:
        """The gradients of a rollout, or of some of its columns."""
        return gradients_of(self.agent, batch)

    def apply_gradients(self, gradients: Gradients) -> dict[str, Any]:
        """One optimizer step with gradients of each environment step once."""
        self._count(gradients.num_steps)
        self.agent.apply_gradients(gradients.values)
        return {}


class GradientWorker(TrajectoryWorker):
    """Collects rollouts, and computes gradients of them with the weights that it acted with."""

    agent: A2C

    def compute_gradients(self, batch: SampleBatch) -> Gradients:
        """The gradients of one of its rollouts."""
        return gradients_of(self.agent, batch)


def make_trajectory_worker(config: Any, agent: A2C, env: VectorEnv) -> TrajectoryWorker:
    """A worker that collects rollouts."""
    return TrajectoryWorker(agent, env, config.agent.rollout_steps)


def with_schedules(config: ConfigT, steps_per_update: int) -> ConfigT:
    """Settings whose schedules have the length of the training, and whose agent knows its masks.

    Raises:
        ConfigError: The training is to be fused, which this algorithm cannot be.
    """
    if config.placement == "fused":
        raise ConfigError(
            "this algorithm has no fused form",
            where="placement",
            received="fused",
            fix="use local or single_learner_coarse; ppo and dqn can be fused",
        )
    return completed(config, max(1, -(-config.schedule_length // steps_per_update)))
