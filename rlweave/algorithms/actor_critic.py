"""What A2C and A3C share: the agent as learner and as worker of a plan."""

from __future__ import annotations

from typing import Any, TypeVar

from rlweave.agents.a2c import A2C
from rlweave.algorithms.config import TrainConfig
from rlweave.algorithms.rollout_workers import TrajectoryWorker, acting_state
from rlweave.algorithms.schedule_lengths import linear_schedule
from rlweave.algorithms.trainer import mask_leaf_of, state_space_of
from rlweave.envs import VectorEnv
from rlweave.errors import ConfigError
from rlweave.flow import Gradients, SampleBatch

ConfigT = TypeVar("ConfigT", bound=TrainConfig)
AgentT = TypeVar("AgentT", bound=A2C)


def gradients_of(agent: A2C, batch: SampleBatch) -> Gradients:
    """The gradients that an agent's loss has on a rollout (T, B, ...), at its present weights."""
    values, metrics = agent.rollout_gradients(batch.data)
    return Gradients(values, batch.num_steps, metrics)


class ActorCriticLearner:
    """The agent as a plan's learner: takes rollouts, or gradients.

    Args:
        agent: The agent.
        counts: Whether it counts environment steps, because the workers do not do so on this very agent.
    """

    def __init__(self, agent: A2C, counts: bool = False) -> None:
        self.agent, self.counts = agent, counts

    def update(self, batch: SampleBatch) -> dict[str, Any]:
        """One optimizer step on a rollout (T, B, ...)."""
        self._count(batch.num_steps)
        return self.agent.update(batch.data)

    def compute_gradients(self, batch: SampleBatch) -> Gradients:
        """The gradients of a rollout, or of some of its columns."""
        return gradients_of(self.agent, batch)

    def apply_gradients(self, gradients: Gradients) -> dict[str, Any]:
        """One optimizer step with gradients of each environment step once."""
        self._count(gradients.num_steps)
        self.agent.apply_gradients(gradients.values)
        return {}

    def _count(self, steps: int) -> None:
        if self.counts:
            self.agent.count_steps(steps)

    def get_weights(self) -> dict[str, Any]:
        """What workers need."""
        return acting_state(self.agent)


class GradientWorker(TrajectoryWorker):
    """Collects rollouts, and computes gradients of them with the weights that it acted with."""

    agent: A2C

    def compute_gradients(self, batch: SampleBatch) -> Gradients:
        """The gradients of one of its rollouts."""
        return gradients_of(self.agent, batch)


def make_agent_of(agent_class: type[AgentT], config: Any, env: VectorEnv, seed: int) -> AgentT:
    """An agent for an environment; not built yet."""
    return agent_class(
        state_space_of(config, env, config.agent.image_network),
        env.action_space,
        config.agent,
        num_envs=config.num_envs,
        backend=config.backend,
        seed=seed,
    )


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
    agent: Any = config.agent  # type: ignore[attr-defined]
    steps = max(1, -(-config.steps // steps_per_update))
    update = {"lr": linear_schedule(agent.lr, steps), "mask_leaf": mask_leaf_of(config, agent)}
    return config.model_copy(update={"agent": agent.model_copy(update=update)})
