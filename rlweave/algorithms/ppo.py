"""PPO as something to train: agent, plan, defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
from rlweave.algorithms.registry import AlgorithmSpec
from rlweave.algorithms.rollout_workers import TrajectoryWorker
from rlweave.algorithms.run_directory import RunDirectory
from rlweave.algorithms.trainer import Parts, PlanTrainer
from rlweave.components.network import mlp
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


def _mujoco(agent: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that the zoo of Stable-Baselines3 publishes for an environment, with what it has for all of them.

    Its value loss is twice ours, so `value_coefficient` is twice its `vf_coef`.
    """
    shared = {
        "acting_backend": "numpy",
        "normalize_observations": True,
        "normalize_rewards": True,
        "optimizer": {"type": "adam", "epsilon": 1e-5},
    }
    return {"num_envs": 1, "steps": 1_000_000, "agent": {**shared, **agent}}


def _mujoco_large(agent: Mapping[str, Any]) -> dict[str, Any]:
    """The same for those with two layers of 256 and little noise at the start."""
    return _mujoco({"network": mlp([256, 256], "relu"), "initial_log_std": -2.0, "rollout_steps": 512, **agent})


#: Tuned settings by environment, found on other seeds than those of `benchmarks/learning.py`.
PRESETS: dict[str, dict[str, Any]] = {
    "CartPole-v1": {
        "num_envs": 8,
        "steps": 59_392,  # 58 rollouts: the most that fit into 60,000
        "evaluate_every": 5_000,
        "evaluation_episodes": 20,
        "agent": {
            "acting_backend": "numpy",
            "rollout_steps": 128,
            "epochs": 10,
            "minibatches": 4,
            "lr": {"type": "linear", "start": 2e-3, "end": 0.0},
        },
    },
    "Pendulum-v1": {
        "num_envs": 8,
        "steps": 299_008,  # 146 rollouts: the most that fit into 300,000
        "agent": {
            "acting_backend": "numpy",
            "normalize_observations": True,
            "rollout_steps": 256,
            "epochs": 10,
            "minibatches": 16,
            "discount": 0.9,
            "lr": {"type": "linear", "start": 1e-3, "end": 0.0},
        },
    },
    "InvertedPendulum-v5": {
        "num_envs": 8,
        "steps": 59_392,  # 58 rollouts: the most that fit into 60,000
        "evaluate_every": 5_000,
        "evaluation_episodes": 20,
        "agent": {"acting_backend": "numpy", "lr": {"type": "linear", "start": 1e-3, "end": 0.0}},
    },
    "Hopper-v5": _mujoco_large(
        {
            "minibatches": 16,
            "epochs": 5,
            "lr": 9.80828e-5,
            "discount": 0.999,
            "gae_lambda": 0.99,
            "clip": 0.2,
            "entropy_coefficient": 0.00229519,
            "value_coefficient": 1.671342,
            "max_grad_norm": 0.7,
        }
    ),
    "Walker2d-v5": _mujoco_large(
        {
            "minibatches": 16,
            "epochs": 20,
            "lr": 5.05041e-5,
            "discount": 0.99,
            "gae_lambda": 0.95,
            "clip": 0.1,
            "entropy_coefficient": 0.000585045,
            "value_coefficient": 1.743846,
            "max_grad_norm": 1.0,
        }
    ),
    "HalfCheetah-v5": _mujoco_large(
        {
            "minibatches": 8,
            "epochs": 20,
            "lr": 2.0633e-5,
            "discount": 0.98,
            "gae_lambda": 0.92,
            "clip": 0.1,
            "entropy_coefficient": 0.000401762,
            "value_coefficient": 1.16192,
            "max_grad_norm": 0.8,
        }
    ),
    "Reacher-v5": _mujoco(
        {
            "rollout_steps": 512,
            "minibatches": 16,
            "epochs": 5,
            "lr": 1.04019e-4,
            "discount": 0.9,
            "gae_lambda": 1.0,
            "clip": 0.3,
            "entropy_coefficient": 7.52585e-8,
            "value_coefficient": 1.900736,
            "max_grad_norm": 0.9,
        }
    ),
    # the zoo has Stable-Baselines3's defaults here
    "Ant-v5": _mujoco({"rollout_steps": 2048, "minibatches": 32, "epochs": 10, "value_coefficient": 1.0}),
    # Schulman et al. 2017, as OpenAI's baselines have it
    "ALE/*": {
        "num_envs": 8,
        "steps": 10_000_000,
        "report_every": 10_000,
        "evaluate_every": 500_000,
        "checkpoint_every": 500_000,
        "agent": {
            "shared_network": True,
            "rollout_steps": 128,
            "epochs": 4,
            "minibatches": 4,
            "clip": 0.1,
            "entropy_coefficient": 0.01,
            "value_coefficient": 0.5,
            "max_grad_norm": 0.5,
            "discount": 0.99,
            "gae_lambda": 0.95,
            "optimizer": {"type": "adam", "epsilon": 1e-5},
            "lr": {"type": "linear", "start": 2.5e-4, "end": 0.0},
        },
    },
    "rlweave/Catch-v0": {
        "num_envs": 8,
        "steps": 147_456,
        "evaluate_every": 5_000,
        "evaluation_episodes": 50,
        "image_layout": "channels_last",
        "agent": {
            "image_network": [
                {"type": "conv2d", "filters": 16, "kernel_size": 3, "stride": 1, "activation": "relu"},
                {"type": "conv2d", "filters": 32, "kernel_size": 3, "stride": 2, "activation": "relu"},
            ],
            "network": [{"type": "dense", "units": 64, "activation": "relu"}],
            "shared_network": False,
            "acting_backend": "numpy",
            "rollout_steps": 64,
            "epochs": 4,
            "minibatches": 4,
            "entropy_coefficient": 0.03,
            "lr": {"type": "linear", "start": 1e-3, "end": 0.0},
        },
    },
    "rlweave/CueRecall-v0": {
        "num_envs": 8,
        "steps": 20_480,
        "evaluate_every": 2_000,
        "evaluation_episodes": 50,
        "agent": {
            "network": [{"type": "lstm", "units": 16}],
            "acting_backend": "numpy",
            "rollout_steps": 40,
            "epochs": 4,
            "minibatches": 2,
            "entropy_coefficient": 0.01,
            "lr": {"type": "linear", "start": 3e-3, "end": 0.0},
        },
    },
}

PPO = AlgorithmSpec(
    "ppo",
    "proximal policy optimization, clipped, with GAE",
    PPOTrainConfig,
    make_trainer,
    presets=PRESETS,
    make_parts=make_parts,
    evaluate=evaluate_player,
)
