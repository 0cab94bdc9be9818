"""IMPALA, the algorithm: settings, and a plan from workers through a bounded queue to the learner."""

from __future__ import annotations

from typing import Any, Literal, TypeVar

from rlweave.agents.impala import IMPALA, IMPALAConfig
from rlweave.algorithms.algorithm import Algorithm
from rlweave.algorithms.config import TrainConfig
from rlweave.algorithms.learners import AgentLearner
from rlweave.algorithms.placement import RolloutWorkers
from rlweave.algorithms.placements import OnError
from rlweave.algorithms.rollout_workers import trajectory_worker
from rlweave.envs import VectorEnv
from rlweave.errors import ConfigError
from rlweave.flow import ConcatBatches, LearnerActor, MixInReplay, ReportMetrics, TrainOneStep
from rlweave.settings.config import setting
from rlweave.settings.sources import PresetFile


class OffPolicyTrainConfig(TrainConfig):
    """Settings that IMPALA and APPO share: how trajectories come to the learner, and weights to the workers."""

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

    @property
    def new_trajectories(self) -> int:
        """New trajectories in the batch of an update."""
        return self.rollouts_per_update * self.num_envs // self.placement.workers

    @property
    def batch_steps(self) -> int:
        """New environment steps in the batch of an update."""
        return self.new_trajectories * self.agent.rollout_steps  # type: ignore[attr-defined]

    @property
    def optimizer_steps(self) -> int:
        """Updates of the whole training."""
        return max(1, self.schedule_length // self.batch_steps)


ConfigT = TypeVar("ConfigT", bound=OffPolicyTrainConfig)


class IMPALATrainConfig(OffPolicyTrainConfig):
    """Settings of an IMPALA training."""

    agent: IMPALAConfig = setting(IMPALAConfig(), "the agent")


def agent_num_envs(config: OffPolicyTrainConfig, env: VectorEnv | None = None) -> dict[str, Any]:
    """Passes `num_envs` to the agent: one batch column per trajectory, replayed ones included.

    Raises:
        ConfigError: The number is not whole, or replay and statistics of observations are combined.
    """
    if config.replay_proportion and config.agent.normalize_observations:  # type: ignore[attr-defined]
        raise ConfigError(
            "replayed trajectories would count again in the statistics of observations",
            where="replay_proportion",
            received=f"{config.replay_proportion:g}, with agent.normalize_observations",
            fix="leave one of them out",
        )
    new = config.new_trajectories
    trajectories = new * (1.0 + config.replay_proportion)
    if not trajectories.is_integer():
        raise ConfigError(
            "batches of an update differ in size",
            where="replay_proportion",
            received=f"{config.replay_proportion:g} replayed trajectories for each of {new} new ones",
            fix=f"choose a multiple of {1 / new:g}",
        )
    return {"num_envs": int(trajectories)}


def checked(config: ConfigT) -> ConfigT:
    """The settings, which do not contradict each other.

    Raises:
        ConfigError: They contradict each other.
    """
    if config.broadcast_interval > 1 and not config.has_remote_actors:
        raise ConfigError(
            "workers that act on the learner's own agent always have the newest weights",
            where="broadcast_interval",
            received=f"{config.broadcast_interval} with engine {config.engine}, placement {config.placement.name}",
            fix="--placement single_learner_coarse gives them agents of their own; or leave it out",
        )
    if config.learner == "actor" and not config.has_remote_actors:
        raise ConfigError(
            "workers cannot act on the agent of a learner in an actor",
            where="learner",
            received=f"actor with engine {config.engine}, placement {config.placement.name}",
            fix="--placement single_learner_coarse gives them agents of their own, as does local with --engine ray",
        )
    if config.learner_cpus and config.learner == "here":
        raise ConfigError(
            "a learner in the driver's process holds no cores of its own",
            where="learner_cpus",
            received=f"{config.learner_cpus:g} with learner here",
            fix="--set learner=actor gives it a process; or leave learner_cpus out",
        )
    if config.on_error == "shrink" and config.learner == "actor":
        raise ConfigError(
            "without the learner nothing goes on",
            where="placement.on_error",
            received="shrink with learner actor",
            fix="--set placement.on_error=replace, or stop; or leave learner out",
        )
    if config.rollouts_ahead > 1 and config.gather == "sync":
        raise ConfigError(
            "items gathered in rounds are not requested ahead",
            where="rollouts_ahead",
            received=f"{config.rollouts_ahead} with gather sync",
            fix="leave one of them out",
        )
    return config


def impala_plan(
    workers: RolloutWorkers,
    learner: AgentLearner[Any] | LearnerActor,
    *,
    batch_steps: int,
    rollouts_ahead: int,
    replay_proportion: float,
    replay_capacity: int,
    seed: int,
    learner_queue: int,
    queue_policy: Literal["block", "drop_oldest", "drop_newest"],
    broadcast_interval: int,
    on_error: OnError,
    learner_timeout: float,
) -> ReportMetrics:
    """Rollouts as they come, some replayed ones mixed in, through a bounded queue to the learner."""
    apart = isinstance(learner, LearnerActor) and not replay_proportion  # what is replayed is kept here
    rollouts = workers.rollouts().gather("async", rollouts_ahead, by_reference=apart)
    batches = rollouts.for_each(ConcatBatches(min_steps=batch_steps))
    if replay_proportion:
        batches = batches.for_each(MixInReplay(replay_capacity, replay_proportion, seed))
    queued = batches.queue(learner_queue, queue_policy)
    train = queued.for_each(TrainOneStep(learner, workers, publish_every=broadcast_interval))
    if isinstance(learner, LearnerActor):
        train.on_error("replace" if on_error == "replace" else "stop", learner_timeout)
    return ReportMetrics(train, workers)


impala = Algorithm(
    "impala",
    "importance-weighted actor-learners: V-trace",
    IMPALATrainConfig,
    agent=IMPALA,
    agent_arguments=agent_num_envs,
    worker=trajectory_worker,
    plan=impala_plan,
    complete=checked,
    presets=PresetFile(__file__),
)
