"""DQN, the algorithm: settings, memories as a plan sees them, and a plan of two branches in a fixed ratio."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from rlweave.agents.dqn import DQN, DQNConfig
from rlweave.agents.replay_agent import DrawnBatch, ReplayAgent
from rlweave.algorithms.algorithm import Algorithm
from rlweave.algorithms.config import TrainConfig
from rlweave.algorithms.placement import RolloutWorkers
from rlweave.algorithms.rollout_workers import TransitionWorker, acting_state
from rlweave.algorithms.schedule_lengths import updates_from_memory
from rlweave.envs import VectorEnv
from rlweave.flow import (
    Prefetch,
    Replay,
    ReportMetrics,
    SampleBatch,
    StoreToBuffer,
    Stream,
    TrainOneStep,
    Union,
    Workers,
)
from rlweave.flow.replay import RateLimit
from rlweave.settings.config import setting
from rlweave.settings.sources import PresetFile


class ReplayTrainConfig(TrainConfig):
    """Settings of trainings that learn from a replay memory."""

    num_envs: int = setting(1, "number of environments", ge=1, unit="environments")
    steps_per_item: int = setting(
        32,
        "steps that a worker takes for one item, over its environments: on Ray so many (a call costs about as much as "
        "10 steps); in this process a single worker takes at most so many, and none after the next update is due, "
        "several take one step of each environment",
        ge=1,
        unit="environment steps",
    )
    save_memory: bool = setting(
        True, "checkpoints hold the replay memory; without it a run that is resumed fills it anew before it learns"
    )

    @property
    def optimizer_steps(self) -> int:
        """`samples_per_step / batch_size` for every environment step but the first `learning_starts`."""
        return updates_from_memory(self)


class DQNTrainConfig(ReplayTrainConfig):
    """Settings of a DQN training."""

    agent: DQNConfig = setting(DQNConfig(), "the agent")


class DrawInGraph:
    """A token for a batch that the graph draws itself; it only has the number of transitions."""

    def __init__(self, num_steps: int) -> None:
        self.num_steps = num_steps

    @staticmethod
    def concat(batches: Sequence[DrawInGraph], /) -> DrawInGraph:
        """Several draws as one."""
        return DrawInGraph(sum(batch.num_steps for batch in batches))


class GraphMemory:
    """The memory in an agent's graph, as a plan sees it. Drawing happens inside the update, so a sample is a token.

    Args:
        agent: The agent.
        counts: Whether it counts environment steps, because the workers have agents of their own.
    """

    def __init__(self, agent: ReplayAgent, counts: bool = False) -> None:
        self.agent, self.counts = agent, counts
        self.capacity, self.batch_size = agent.config.memory_capacity, agent.config.batch_size

    def insert(self, batch: SampleBatch) -> None:
        """Stores transitions."""
        if self.counts:
            self.agent.count_steps(batch.num_steps)
        if batch.data:  # nothing is complete in the first steps of a window
            self.agent.insert(batch.data)

    def ready(self, minimum: int) -> bool:
        """Whether an update can draw."""
        return self.agent.env_steps - self.agent.memory_began_at >= minimum and self.agent.ready()

    def sample(self) -> DrawInGraph:
        """A token with the number of transitions that the update will draw."""
        return DrawInGraph(self.batch_size)


class HostMemory(GraphMemory):
    """The memory of an agent that samples ahead of its updates: a sample is the transitions themselves."""

    def sample(self) -> SampleBatch:  # type: ignore[override]
        """Draws transitions."""
        records, indices, weights = self.agent.draw()
        return SampleBatch({"records": records, "indices": indices, "weights": weights})


class GraphLearner:
    """The agent as a learner that samples its own memory, or gets samples that were drawn and staged before.

    Args:
        agent: The agent.
        counts: As in `GraphMemory`.
    """

    def __init__(self, agent: ReplayAgent, counts: bool = False) -> None:
        self.agent, self.counts = agent, counts

    def memory(self) -> GraphMemory:
        """Its memory, for a plan that fills it."""
        return (HostMemory if self.agent.config.prefetch else GraphMemory)(self.agent, self.counts)

    def update(self, batch: DrawInGraph | DrawnBatch) -> dict[str, Any]:
        """One update from the memory, or from a batch drawn before."""
        return self.agent.update(batch if isinstance(batch, DrawnBatch) else None)

    def stage(self, batch: SampleBatch) -> DrawnBatch:
        """Starts to copy drawn transitions to the device."""
        return self.agent.stage((batch["records"], batch["indices"], batch["weights"]))

    def get_weights(self) -> Any:
        """The weights and counters that acting needs."""
        return acting_state(self.agent)


def transition_worker(config: ReplayTrainConfig, agent: ReplayAgent, env: VectorEnv) -> TransitionWorker:
    """A worker that collects transitions: alone on the learner's own agent, those between two updates.

    Where several act on it by turns, an item is one vector step: so it does not depend on where the training pauses
    whose turn is next.
    """
    accumulator = functools.partial(agent.make_accumulator, env.num_envs)
    steps = max(1, config.steps_per_item // (config.num_envs // config.placement.workers))
    if config.has_remote_actors:
        return TransitionWorker(agent, env, steps, accumulator)
    if config.placement.workers > 1 or config.alternating_sampling:
        return TransitionWorker(agent, env, 1, accumulator)
    return TransitionWorker(agent, env, steps, accumulator, agent.steps_to_update)


def dqn_plan(workers: RolloutWorkers, learner: GraphLearner) -> ReportMetrics:
    """Learns from the transitions of all workers, as they come."""
    return ReportMetrics(dqn_branch(workers.rollouts().gather("async"), workers, learner), workers)


def dqn_branch(transitions: Stream, workers: Workers, learner: GraphLearner, name: str = "train_one_step") -> Stream:
    """Stores transitions, and updates from the memory in a fixed ratio; with `prefetch` on batches staged ahead."""
    memory, own = learner.memory(), learner.agent.config
    store = transitions.for_each(StoreToBuffer(memory))
    samples: Stream = Replay(memory)
    if own.prefetch:
        samples = samples.for_each(Prefetch(own.prefetch, learner.stage))
    train = samples.for_each(TrainOneStep(learner, workers)).named(name)
    limit = RateLimit(train.port, own.samples_per_step, own.learning_starts, error_buffer=0.0)
    learner.agent.missing_steps = limit.missing
    return Union(store, Stream(limit.outputs[0]))


dqn = Algorithm(
    "dqn",
    "deep Q-learning: double, dueling, prioritized, n-step",
    DQNTrainConfig,
    agent=DQN,
    worker=transition_worker,
    learner=GraphLearner,
    plan=dqn_plan,
    fused="rlweave.agents.fused_dqn:FusedDQN",
    presets=PresetFile(__file__),
)
