"""IMPALA as something to train: agent, plan, defaults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar

from rlweave.agents.config import setting
from rlweave.agents.impala import IMPALA as IMPALAAgent  # noqa: N811 - a class of that name
from rlweave.agents.impala import IMPALAConfig
from rlweave.algorithms.agent_learner import AgentLearner
from rlweave.algorithms.agent_making import completed, make_agent_of
from rlweave.algorithms.config import TrainConfig
from rlweave.algorithms.engines import acts_elsewhere
from rlweave.algorithms.environments import evaluate_player
from rlweave.algorithms.placement import gathered, place, rollouts
from rlweave.algorithms.presets import PresetFile
from rlweave.algorithms.registry import AlgorithmSpec
from rlweave.algorithms.remote_learner import RemoteLearner
from rlweave.algorithms.rollout_workers import TrajectoryWorker
from rlweave.algorithms.run_directory import RunDirectory
from rlweave.algorithms.trainer import Parts, PlanTrainer
from rlweave.envs import VectorEnv
from rlweave.errors import ConfigError
from rlweave.flow import ConcatBatches, LearnerActor, MixInReplay, ReportMetrics, TrainOneStep, Workers


class OffPolicyTrainConfig(TrainConfig):
    """What IMPALA and APPO share: how trajectories come to the learner, and weights to the workers."""

    placement: Literal["local", "single_learner_coarse"] = setting(
        "local",
        "who acts: local, the learner's own agent; single_learner_coarse, workers with agents of their own (always so "
        "on Ray)",
    )
    rollouts_per_update: int = setting(
        1, "rollouts (of num_envs / workers trajectories each) that make the batch of an update", ge=1, unit="rollouts"
    )
    rollouts_ahead: int = setting(
        1, "rollouts that each worker is asked for ahead: with engine local and one worker they are this less one "
        "updates old", ge=1, unit="rollouts",
    )  # fmt: skip
    broadcast_interval: int = setting(1, "updates between two broadcasts of weights", ge=1, unit="updates")
    learner_queue: int = setting(4, "batches that may wait for the learner", ge=1, unit="batches")
    queue_policy: Literal["block", "drop_oldest", "drop_newest"] = setting(
        "block", "what happens when the learner's queue is full: rollouts wait, or batches are dropped and counted"
    )
    learner: Literal["here", "actor"] = setting(
        "here",
        "where the learner runs: here, in the driver; actor, in an actor of its own (on Ray: a process)",
    )
    learner_cpus: float = setting(0.0, "cores that a learner in an actor holds on Ray", ge=0.0, unit="cores")
    learner_failure: Literal["stop", "replace"] = setting(
        "stop",
        "what happens when a learner in an actor fails: stop ends the training, replace restarts it in place, from the "
        "last snapshot of its state",
    )
    learner_timeout: float = setting(
        600.0, "when a learner in an actor counts as hanging: longer than its first update", gt=0.0, unit="seconds"
    )
    learner_snapshots: int = setting(
        10, "updates from one snapshot to the next of a learner that may be replaced", ge=1, unit="updates"
    )
    replay_proportion: float = setting(
        0.0, "replayed trajectories for each new one in the batch of an update; 0: none", ge=0
    )
    replay_capacity: int = setting(
        100, "trajectories kept for replay, the newest; unused while replay_proportion is 0", ge=1,
        unit="trajectories",
    )  # fmt: skip


ConfigT = TypeVar("ConfigT", bound=OffPolicyTrainConfig)


class IMPALATrainConfig(OffPolicyTrainConfig):
    """Settings of an IMPALA training."""

    agent: IMPALAConfig = setting(IMPALAConfig(), "the agent")


def impala_plan(
    config: OffPolicyTrainConfig, workers: Workers, learner: AgentLearner[Any] | LearnerActor
) -> ReportMetrics:
    """Rollouts as they come, some replayed ones mixed in, through a bounded queue to the learner."""
    steps = trajectories_per_update(config) * config.agent.rollout_steps  # type: ignore[attr-defined]
    items = gathered(config, rollouts(config, workers), "async", config.rollouts_ahead)
    batches = items.for_each(ConcatBatches(min_steps=steps))
    if config.replay_proportion:
        batches = batches.for_each(MixInReplay(config.replay_capacity, config.replay_proportion, config.seed))
    queued = batches.queue(config.learner_queue, config.queue_policy)
    train = queued.for_each(TrainOneStep(learner, workers, publish_every=config.broadcast_interval))
    if isinstance(learner, LearnerActor):
        train.on_error(config.learner_failure, config.learner_timeout)
    return ReportMetrics(train, workers)


def trajectories_per_update(config: OffPolicyTrainConfig) -> int:
    """New trajectories in the batch of an update."""
    return config.rollouts_per_update * config.num_envs // config.workers


def updates_of(config: OffPolicyTrainConfig) -> int:
    """Updates of a whole training."""
    return max(1, config.schedule_length // (trajectories_per_update(config) * config.agent.rollout_steps))  # type: ignore[attr-defined]


def trajectories_of_a_batch(config: OffPolicyTrainConfig) -> int:
    """Trajectories in the batch of an update, replayed ones included.

    Raises:
        ConfigError: That is no whole number, or replay and statistics of observations are both asked for.
    """
    if config.replay_proportion and config.agent.normalize_observations:  # type: ignore[attr-defined]
        raise ConfigError(
            "replayed trajectories would count again in the statistics of observations",
            where="replay_proportion",
            received=f"{config.replay_proportion:g}, with agent.normalize_observations",
            fix="leave one of them out",
        )
    new = trajectories_per_update(config)
    trajectories = new * (1.0 + config.replay_proportion)
    if not trajectories.is_integer():
        raise ConfigError(
            "batches of an update differ in size",
            where="replay_proportion",
            received=f"{config.replay_proportion:g} replayed trajectories for each of {new} new ones",
            fix=f"choose a multiple of {1 / new:g}",
        )
    return int(trajectories)


def scheduled(config: ConfigT, optimizer_steps: int) -> ConfigT:
    """The settings with schedules as long as the training, and the mask of actions named.

    Raises:
        ConfigError: Settings contradict each other.
    """
    if config.broadcast_interval > 1 and not acts_elsewhere(config):
        raise ConfigError(
            "workers that act on the learner's own agent always have the newest weights",
            where="broadcast_interval",
            received=f"{config.broadcast_interval} with engine local, placement local",
            fix="--placement single_learner_coarse gives them agents of their own; or leave it out",
        )
    if config.learner == "actor" and not acts_elsewhere(config):
        raise ConfigError(
            "workers cannot act on the agent of a learner that lives elsewhere",
            where="learner",
            received="actor with engine local, placement local",
            fix="--placement single_learner_coarse gives them agents of their own, as does --engine ray",
        )
    if config.learner_cpus and config.learner == "here":
        raise ConfigError(
            "a learner in the driver's process holds no cores of its own",
            where="learner_cpus",
            received=f"{config.learner_cpus:g} with learner here",
            fix="--set learner=actor gives it a process; or leave learner_cpus out",
        )
    if config.learner_failure == "replace" and config.learner == "here":
        raise ConfigError(
            "a learner in the driver's process cannot be made anew",
            where="learner_failure",
            received="replace with learner here",
            fix="--set learner=actor gives it a process; or leave learner_failure out",
        )
    if config.rollouts_ahead > 1 and config.gather == "sync":
        raise ConfigError(
            "nothing is asked for ahead in rounds",
            where="rollouts_ahead",
            received=f"{config.rollouts_ahead} with gather sync",
            fix="leave one of them out",
        )
    return completed(config, optimizer_steps)


def parts_of(config: ConfigT, make_agent: Any, make_worker: Any, plan: Callable[..., ReportMetrics]) -> Parts:
    """Agent, workers, learner and plan, each in the place that the settings say.

    Args:
        config: Settings of the training, schedules completed.
        make_agent: Makes an agent; see `place`.
        make_worker: Makes a worker; see `place`.
        plan: Composes the plan of settings, workers and learner.
    """
    agent, workers, elsewhere = place(config, make_agent, make_worker)
    if config.learner == "here":
        learner = AgentLearner(agent, counts=elsewhere)
        return Parts(agent, workers, lambda: plan(config, workers, learner))
    remote = RemoteLearner(config, make_agent, agent, config.learner_cpus, config.learner_snapshots)
    return Parts(agent, workers, lambda: plan(config, workers, remote.actor), remote)


def make_agent(config: IMPALATrainConfig, env: VectorEnv, seed: int) -> IMPALAAgent:
    """The agent for an environment; not built yet."""
    return make_agent_of(IMPALAAgent, config, env, seed, num_envs=trajectories_of_a_batch(config))


def make_worker(config: IMPALATrainConfig, agent: IMPALAAgent, env: VectorEnv) -> TrajectoryWorker:
    """A worker that collects trajectories."""
    return TrajectoryWorker(agent, env, config.agent.rollout_steps)


def make_parts(config: IMPALATrainConfig) -> Parts:
    """Agent, workers and plan of a training."""
    config = scheduled(config, updates_of(config))
    return parts_of(config, make_agent, make_worker, impala_plan)


def make_trainer(config: IMPALATrainConfig, run: RunDirectory | None) -> PlanTrainer:
    """A trainer."""
    return PlanTrainer(config, run, make_parts)


IMPALA = AlgorithmSpec(
    "impala",
    "importance-weighted actor-learners: V-trace",
    IMPALATrainConfig,
    make_trainer,
    presets=PresetFile(__file__),
    make_parts=make_parts,
    evaluate=evaluate_player,
)
