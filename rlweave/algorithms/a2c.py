"""A2C as something to train: agent, plan, defaults; with micro-batches where a batch is too large for a device."""

from __future__ import annotations

from rlweave.agents.a2c import A2C as A2CAgent  # noqa: N811 - a class of that name
from rlweave.agents.a2c import A2CConfig
from rlweave.agents.config import setting
from rlweave.algorithms.actor_critic import ActorCriticLearner, make_trajectory_worker, with_schedules
from rlweave.algorithms.agent_making import make_agent_of
from rlweave.algorithms.config import TrainConfig
from rlweave.algorithms.environments import evaluate_player
from rlweave.algorithms.placement import gathered, place, rollouts
from rlweave.algorithms.presets import PresetFile
from rlweave.algorithms.registry import AlgorithmSpec
from rlweave.algorithms.run_directory import RunDirectory
from rlweave.algorithms.trainer import Parts, PlanTrainer
from rlweave.envs import VectorEnv
from rlweave.errors import ConfigError
from rlweave.flow import (
    ApplyGradients,
    ComputeGradients,
    ConcatBatches,
    ReportMetrics,
    TrainOneStep,
    Workers,
)


class A2CTrainConfig(TrainConfig):
    """Settings of an A2C training."""

    microbatch_size: int | None = setting(
        None, "steps whose gradients are computed at a time, and averaged over the rollout, where it does not fit into "
        "memory; a multiple of agent.rollout_steps; null: all", ge=1, unit="environment steps",
    )  # fmt: skip
    agent: A2CConfig = setting(A2CConfig(), "the agent")


def make_agent(config: A2CTrainConfig, env: VectorEnv, seed: int) -> A2CAgent:
    """The agent for an environment; not built yet."""
    return make_agent_of(A2CAgent, config, env, seed, num_envs=config.num_envs)


def a2c_plan(config: A2CTrainConfig, workers: Workers, learner: ActorCriticLearner) -> ReportMetrics:
    """Rollouts of all workers, then one optimizer step on them."""
    steps = config.agent.rollout_steps * config.num_envs
    batches = gathered(config, rollouts(config, workers), "sync").for_each(ConcatBatches(min_steps=steps))
    if config.microbatch_size is None:
        return ReportMetrics(batches.for_each(TrainOneStep(learner, workers)), workers)
    grads = batches.for_each(ComputeGradients(learner, config.microbatch_size))
    return ReportMetrics(grads.for_each(ApplyGradients(learner, workers)), workers)


def check_microbatches(config: A2CTrainConfig) -> None:
    """Checks that rollouts can be cut into micro-batches without changing what is learned.

    Raises:
        ConfigError: They would be cut within trajectories, or statistics of observations are to be kept.
    """
    if config.microbatch_size is None:
        return
    if config.microbatch_size % config.agent.rollout_steps:
        raise ConfigError(
            "micro-batches are whole trajectories",
            where="microbatch_size",
            received=f"{config.microbatch_size}, with agent.rollout_steps {config.agent.rollout_steps}",
            fix=f"choose a multiple of {config.agent.rollout_steps}",
        )
    if config.agent.normalize_observations:
        raise ConfigError(
            "micro-batches give the learner gradients, and no observations to keep statistics of",
            where="microbatch_size",
            received=f"{config.microbatch_size}, with agent.normalize_observations",
            fix="leave one of them out",
        )


def make_parts(config: A2CTrainConfig) -> Parts:
    """Agent, workers and plan of a training."""
    check_microbatches(config)
    config = with_schedules(config, config.agent.rollout_steps * config.num_envs)
    agent, workers, elsewhere = place(config, make_agent, make_trajectory_worker)
    return Parts(agent, workers, lambda: a2c_plan(config, workers, ActorCriticLearner(agent, counts=elsewhere)))


def make_trainer(config: A2CTrainConfig, run: RunDirectory | None) -> PlanTrainer:
    """A trainer."""
    return PlanTrainer(config, run, make_parts)


A2C = AlgorithmSpec(
    "a2c",
    "advantage actor-critic, in rounds; also with micro-batches",
    A2CTrainConfig,
    make_trainer,
    presets=PresetFile(__file__),
    make_parts=make_parts,
    evaluate=evaluate_player,
)
