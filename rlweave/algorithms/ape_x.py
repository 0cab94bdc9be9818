"""Ape-X, the algorithm: settings, and a plan with a memory in shards.

Horgan et al. 2018, https://arxiv.org/abs/1803.00933.
"""

from __future__ import annotations

import functools
from typing import Any, TypeVar

import numpy as np

from rlweave.agents.ape_x import ApeX, ApeXConfig
from rlweave.algorithms.algorithm import Algorithm
from rlweave.algorithms.config import TrainConfig
from rlweave.algorithms.learners import AgentLearner
from rlweave.algorithms.placement import RolloutWorkers
from rlweave.algorithms.replay_shard import ShardFactory
from rlweave.algorithms.rollout_workers import TransitionWorker
from rlweave.algorithms.schedule_lengths import updates_from_memory
from rlweave.envs import VectorEnv
from rlweave.envs.seeding import derived_seed
from rlweave.flow import (
    ComputePriorities,
    ItemReference,
    ParallelReplay,
    ReplayShards,
    ReportMetrics,
    Resources,
    SampleBatch,
    StoreToBuffer,
    TrainOneStep,
    Union,
    UpdatePriorities,
    UpdateWeights,
)
from rlweave.settings.config import setting
from rlweave.settings.sources import PresetFile

Item = TypeVar("Item", SampleBatch, ItemReference[SampleBatch])


class ApeXTrainConfig(TrainConfig):
    """Settings of an Ape-X training."""

    steps_per_item: int = setting(
        64, "steps that a worker with an agent of its own takes per item, over its environments", ge=1,
        unit="environment steps",
    )  # fmt: skip
    shards: int = setting(2, "parts of the replay memory; on Ray each is a process", ge=1)
    shard_cpus: float = setting(0.0, "cores that each shard holds on Ray: it mostly waits", ge=0.0, unit="cores")
    items_ahead: int = setting(
        2,
        "items that each worker on Ray is asked for ahead, so that it acts while the learner is busy",
        ge=1,
        unit="items",
    )
    batches_ahead: int = setting(1, "batches requested ahead from each shard", ge=1, unit="batches")
    batches_per_call: int = setting(
        1,
        "batches that a shard on Ray draws per call, to train on in turn: worth it where a batch is trained on faster "
        "than Ray brings it. Those drawn together know nothing of each other's new priorities",
        ge=1,
        unit="batches",
    )
    weight_interval: int = setting(
        400,
        "steps of one worker between two times that it gets weights; 0: with every item. Means nothing where workers "
        "act on the learner's own agent (engine local, placement local), and so on the newest ones",
        ge=0,
        unit="environment steps",
    )  # fmt: skip
    save_memory: bool = setting(
        True, "checkpoints hold the memory; without it a run that is resumed begins with an empty one"
    )
    agent: ApeXConfig = setting(ApeXConfig(), "the agent")

    @property
    def optimizer_steps(self) -> int:
        """`samples_per_step / batch_size` for every environment step but the first `learning_starts`."""
        return updates_from_memory(self)

    @property
    def items_asked_ahead(self) -> int:
        """As `items_ahead`; in one process, workers do not act while the learner is busy."""
        return 1 if self.engine == "local" else self.items_ahead

    @property
    def batches_drawn_together(self) -> int:
        """As `batches_per_call`; in this process a call costs nothing."""
        return 1 if self.engine == "local" else self.batches_per_call


class ApeXWorker(TransitionWorker):
    """Collects n-step transitions; every environment of the whole training explores by an epsilon of its own.

    Args:
        agent: The agent that acts.
        env: The environments.
        steps: Vector steps in one item.
        total: Environments of all workers.
    """

    def __init__(self, agent: ApeX, env: VectorEnv, steps: int, total: int) -> None:
        super().__init__(agent, env, steps, functools.partial(agent.make_accumulator, env.num_envs))
        self.agent: ApeX = agent
        self.epsilons = agent.epsilons(env.worker * env.num_envs, env.num_envs, total)

    def act(self, observations: Any, recurrent_state: Any, episode_start: Any) -> tuple[Any, dict[str, Any], Any]:
        return self.agent.act_with(observations, self.epsilons), {}, ()

    def compute_priorities(self, batch: SampleBatch) -> np.ndarray:
        """Absolute TD errors of transitions, (N,), for `ComputePriorities`."""
        return self.agent.priorities(batch.data)


class ApeXLearner(AgentLearner[ApeX]):
    """The agent as a plan's learner. Environment steps are counted as items arrive, not by updates."""

    def update(self, batch: SampleBatch) -> dict[str, Any]:
        """One update on a shard's sample; gives its new priorities."""
        metrics, errors = self.agent.learn_weighted(batch["records"], batch["weights"])
        return {**metrics, "priorities": (batch["numbers"], errors)}

    def count_steps(self, item: Item) -> Item:
        """Counts the steps of an item."""
        self._count(item.num_steps)
        return item


def ape_x_worker(config: ApeXTrainConfig, agent: ApeX, env: VectorEnv) -> ApeXWorker:
    """A worker that collects transitions: of one vector step on the learner's own agent, else of several."""
    steps = (
        max(1, config.steps_per_item // (config.num_envs // config.placement.workers))
        if config.has_remote_actors
        else 1
    )
    return ApeXWorker(agent, env, steps, config.num_envs)


def make_shards(config: ApeXTrainConfig, agent: ApeX) -> ReplayShards:
    """The replay memory, in shards that an engine makes when the plan starts."""
    memory, records, size = agent.memory_factory(config.shards), agent.record_space(), config.agent.batch_size
    factories = [
        ShardFactory(memory, records, size, derived_seed(config.seed, f"shard {number}"))
        for number in range(config.shards)
    ]
    return ReplayShards(factories, size, config.agent.memory_capacity, Resources(cpus=config.shard_cpus))


def ape_x_plan(
    workers: RolloutWorkers,
    learner: ApeXLearner,
    shards: ReplayShards,
    *,
    items_asked_ahead: int,
    weight_interval: int,
    save_memory: bool,
    batches_ahead: int,
    batches_drawn_together: int,
) -> ReportMetrics:
    """Stores transitions with priorities in shards; samples of shards train, and their new priorities go back there."""
    own, failure = learner.agent.config, workers.failure
    made = workers.rollouts().par_for_each(ComputePriorities())
    items = made.gather("async", items_asked_ahead, by_reference=True)  # from worker to shard, not through the driver
    stored = items.for_each(StoreToBuffer(shards)).for_each(learner.count_steps)
    every = weight_interval if learner.counts else 0  # on the learner's own agent, weights are always the newest
    store_op = stored.for_each(UpdateWeights(learner, workers, every_steps=every))

    samples = ParallelReplay(shards, own.learning_starts, save_memory, batches_drawn_together)
    drawn = samples.on_error(failure.on_error, failure.timeout).gather_async(batches_ahead)
    # the slides' listing sets priorities before it trains; there are no TD errors before that
    trained = drawn.for_each(TrainOneStep(learner)).for_each(UpdatePriorities(shards))
    replay_op = trained.rate_limit(own.samples_per_step, min_size=own.learning_starts)
    return ReportMetrics(Union(store_op, replay_op), workers)


ape_x = Algorithm(
    "ape-x",
    "distributed prioritized replay: DQN with a memory in shards, priorities from the workers",
    ApeXTrainConfig,
    agent=ApeX,
    worker=ape_x_worker,
    learner=ApeXLearner,
    memory=make_shards,
    plan=ape_x_plan,
    presets=PresetFile(__file__),
)
