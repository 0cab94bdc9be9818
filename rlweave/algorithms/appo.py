"""APPO as something to train: agent, plan, defaults."""

from __future__ import annotations

from rlweave.agents.appo import APPO as APPOAgent  # noqa: N811 - a class of that name
from rlweave.agents.appo import APPOConfig
from rlweave.agents.config import setting
from rlweave.agents.ppo import fill_minibatches
from rlweave.algorithms.agent_making import make_agent_of
from rlweave.algorithms.environments import evaluate_player
from rlweave.algorithms.impala import (
    OffPolicyTrainConfig,
    impala_plan,
    parts_of,
    scheduled,
    trajectories_of_a_batch,
    updates_of,
)
from rlweave.algorithms.presets import PresetFile
from rlweave.algorithms.registry import AlgorithmSpec
from rlweave.algorithms.rollout_workers import TrajectoryWorker
from rlweave.algorithms.run_directory import RunDirectory
from rlweave.algorithms.trainer import Parts, PlanTrainer
from rlweave.envs import VectorEnv


class APPOTrainConfig(OffPolicyTrainConfig):
    """Settings of an APPO training."""

    agent: APPOConfig = setting(APPOConfig(), "the agent")


def make_agent(config: APPOTrainConfig, env: VectorEnv, seed: int) -> APPOAgent:
    """The agent for an environment; not built yet."""
    return make_agent_of(APPOAgent, config, env, seed, num_envs=trajectories_of_a_batch(config))


def make_worker(config: APPOTrainConfig, agent: APPOAgent, env: VectorEnv) -> TrajectoryWorker:
    """A worker that collects trajectories."""
    return TrajectoryWorker(agent, env, config.agent.rollout_steps)


def make_parts(config: APPOTrainConfig) -> Parts:
    """Agent, workers and plan of a training."""
    agent = fill_minibatches(config.agent, trajectories_of_a_batch(config))
    config = config.model_copy(update={"agent": agent})
    optimizer_steps = updates_of(config) * agent.epochs * (agent.minibatches or 1)
    config = scheduled(config, optimizer_steps)
    return parts_of(config, make_agent, make_worker, impala_plan)  # the same one


def make_trainer(config: APPOTrainConfig, run: RunDirectory | None) -> PlanTrainer:
    """A trainer."""
    return PlanTrainer(config, run, make_parts)


APPO = AlgorithmSpec(
    "appo",
    "asynchronous PPO: V-trace and a target policy",
    APPOTrainConfig,
    make_trainer,
    presets=PresetFile(__file__),
    make_parts=make_parts,
    evaluate=evaluate_player,
)
