"""PPO as something to train: agent, plan, defaults."""

from __future__ import annotations

from rlweave.agents.config import setting
from rlweave.agents.fused_ppo import FusedPPO
from rlweave.agents.ppo import PPO as PPOAgent  # noqa: N811 - a class of that name
from rlweave.agents.ppo import PPOConfig, fill_minibatches
from rlweave.algorithms.agent_learner import AgentLearner
from rlweave.algorithms.agent_making import completed, make_agent_of
from rlweave.algorithms.config import TrainConfig
from rlweave.algorithms.environments import evaluate_player
from rlweave.algorithms.fused import FusedLearner, describe_fused, fused_plan
from rlweave.algorithms.placement import gathered, place, rollouts
from rlweave.algorithms.presets import PresetFile
from rlweave.algorithms.registry import AlgorithmSpec
from rlweave.algorithms.rollout_workers import TrajectoryWorker
from rlweave.algorithms.run_directory import RunDirectory
from rlweave.algorithms.trainer import Parts, PlanTrainer
from rlweave.envs import VectorEnv
from rlweave.envs.in_graph import make_graph_environment
from rlweave.flow import (
    ConcatBatches,
    ReportMetrics,
    TrainOneStep,
    Workers,
)


class PPOTrainConfig(TrainConfig):
    """Settings of a PPO training."""

    agent: PPOConfig = setting(PPOConfig(), "the agent")


def make_agent(config: PPOTrainConfig, env: VectorEnv, seed: int) -> PPOAgent:
    """The agent for an environment; not built yet."""
    return make_agent_of(PPOAgent, config, env, seed, num_envs=config.num_envs)


def make_worker(config: PPOTrainConfig, agent: PPOAgent, env: VectorEnv) -> TrajectoryWorker:
    """A worker that collects rollouts."""
    return TrajectoryWorker(agent, env, config.agent.rollout_steps)


def ppo_plan(config: PPOTrainConfig, workers: Workers, learner: AgentLearner[PPOAgent]) -> ReportMetrics:
    """Rollouts of all workers, then one update on them."""
    steps = config.agent.rollout_steps * config.num_envs
    batches = gathered(config, rollouts(config, workers), "sync").for_each(ConcatBatches(min_steps=steps))
    return ReportMetrics(batches.for_each(TrainOneStep(learner, workers)), workers)


def make_parts(config: PPOTrainConfig) -> Parts:
    """Agent, workers and plan of a training."""
    updates = -(-config.schedule_length // (config.agent.rollout_steps * config.num_envs))
    config = config.model_copy(update={"agent": fill_minibatches(config.agent, config.num_envs)})
    config = completed(config, max(1, updates * config.agent.epochs * (config.agent.minibatches or 1)))
    if config.placement == "fused":
        environment = make_graph_environment(config.env, config.num_envs, config.env_options)
        fused = FusedPPO(environment, config.agent, backend=config.backend, seed=config.seed)
        fused.made_for = describe_fused(config, environment)
        learner = FusedLearner(fused)
        return Parts(fused, [learner], lambda: fused_plan(learner))
    agent, workers, elsewhere = place(config, make_agent, make_worker)
    return Parts(agent, workers, lambda: ppo_plan(config, workers, AgentLearner(agent, counts=elsewhere)))


def make_trainer(config: PPOTrainConfig, run: RunDirectory | None) -> PlanTrainer:
    """A trainer."""
    return PlanTrainer(config, run, make_parts)


PPO = AlgorithmSpec(
    "ppo",
    "proximal policy optimization, clipped, with GAE",
    PPOTrainConfig,
    make_trainer,
    presets=PresetFile(__file__),
    make_parts=make_parts,
    evaluate=evaluate_player,
)
