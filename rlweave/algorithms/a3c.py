"""A3C as something to train: workers compute gradients, the learner applies them as they come."""

from __future__ import annotations

from rlweave.agents.a2c import A3C as A3CAgent  # noqa: N811 - a class of that name
from rlweave.agents.a2c import A3CConfig
from rlweave.agents.config import setting
from rlweave.algorithms.actor_critic import ActorCriticLearner, GradientWorker, with_schedules
from rlweave.algorithms.agent_making import make_agent_of
from rlweave.algorithms.config import TrainConfig
from rlweave.algorithms.engines import gradients_config
from rlweave.algorithms.environments import evaluate_player
from rlweave.algorithms.placement import gathered, place, rollouts
from rlweave.algorithms.presets import PresetFile
from rlweave.algorithms.registry import AlgorithmSpec
from rlweave.algorithms.run_directory import RunDirectory
from rlweave.algorithms.trainer import Parts, PlanTrainer
from rlweave.envs import VectorEnv
from rlweave.flow import ApplyGradients, AverageGradients, ComputeGradients, ReportMetrics, Workers


class A3CTrainConfig(TrainConfig):
    """Settings of an A3C training."""

    workers: int = setting(
        2, "workers that share num_envs; each computes gradients of its own rollouts, while others are applied", ge=1
    )
    agent: A3CConfig = setting(A3CConfig(), "the agent")


def make_agent(config: A3CTrainConfig, env: VectorEnv, seed: int) -> A3CAgent:
    """The agent for an environment; not built yet."""
    return make_agent_of(A3CAgent, config, env, seed, num_envs=config.num_envs)


def make_worker(config: A3CTrainConfig, agent: A3CAgent, env: VectorEnv) -> GradientWorker:
    """A worker that collects rollouts and computes gradients of them."""
    return GradientWorker(agent, env, config.agent.rollout_steps)


def a3c_plan(config: A3CTrainConfig, workers: Workers, learner: ActorCriticLearner) -> ReportMetrics:
    """Gradients of every worker's rollouts, applied one by one as they come; of rounds their average, without a lag."""
    grads = gathered(config, rollouts(config, workers).par_for_each(ComputeGradients()), "async")
    if config.gather == "sync":
        grads = grads.batch_rounds().for_each(AverageGradients())
    return ReportMetrics(grads.for_each(ApplyGradients(learner, workers)), workers)


def make_parts(config: A3CTrainConfig) -> Parts:
    """Agent, workers and plan of a training."""
    envs = config.num_envs if config.gather == "sync" else config.num_envs // config.workers
    config = with_schedules(config, config.agent.rollout_steps * envs)
    agent, workers, elsewhere = place(config, make_agent, make_worker, gradients_config)
    return Parts(agent, workers, lambda: a3c_plan(config, workers, ActorCriticLearner(agent, counts=elsewhere)))


def make_trainer(config: A3CTrainConfig, run: RunDirectory | None) -> PlanTrainer:
    """A trainer."""
    return PlanTrainer(config, run, make_parts)


A3C = AlgorithmSpec(
    "a3c",
    "asynchronous advantage actor-critic: workers send gradients",
    A3CTrainConfig,
    make_trainer,
    presets=PresetFile(__file__),
    make_parts=make_parts,
    evaluate=evaluate_player,
)
