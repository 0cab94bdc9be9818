"""Ape-X as something to train: agent, plan, defaults (Horgan et al. 2018, https://arxiv.org/abs/1803.00933)."""

from __future__ import annotations

import functools
from typing import Any, Literal, TypeVar

import numpy as np

from rlweave.agents.ape_x import ApeX as ApeXAgent
from rlweave.agents.ape_x import ApeXConfig
from rlweave.agents.config import setting
from rlweave.algorithms.agent_learner import AgentLearner
from rlweave.algorithms.agent_making import completed, make_agent_of
from rlweave.algorithms.config import TrainConfig
from rlweave.algorithms.engines import acts_elsewhere, worker_failure
from rlweave.algorithms.environments import evaluate_player
from rlweave.algorithms.placement import gathered, place, rollouts
from rlweave.algorithms.presets import PresetFile
from rlweave.algorithms.registry import AlgorithmSpec
from rlweave.algorithms.replay_shard import ShardFactory
from rlweave.algorithms.rollout_workers import TransitionWorker, derived_seed
from rlweave.algorithms.run_directory import RunDirectory
from rlweave.algorithms.schedule_lengths import replay_updates
from rlweave.algorithms.trainer import Parts, PlanTrainer
from rlweave.envs import VectorEnv
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
    Workers,
)

Item = TypeVar("Item", SampleBatch, ItemReference[SampleBatch])


class ApeXTrainConfig(TrainConfig):
    """Settings of an Ape-X training."""

    placement: Literal["local", "single_learner_coarse"] = setting(
        "local",
        "who acts: local, the learner's own agent; single_learner_coarse, workers with agents of their own (always so "
        "on Ray)",
    )
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


class ApeXWorker(TransitionWorker):
    """Collects n-step transitions; every environment of the whole training explores by an epsilon of its own.

    Args:
        agent: The agent that acts.
        env: The environments.
        steps: Vector steps in one item.
        total: Environments of all workers.
    """

    def __init__(self, agent: ApeXAgent, env: VectorEnv, steps: int, total: int) -> None:
        super().__init__(agent, env, steps, functools.partial(agent.make_accumulator, env.num_envs))
        self.agent: ApeXAgent = agent
        self.epsilons = agent.epsilons(env.worker * env.num_envs, env.num_envs, total)

    def act(self, observations: Any) -> Any:
        return self.agent.act_with(observations, self.epsilons)

    def compute_priorities(self, batch: SampleBatch) -> np.ndarray:
        """Sizes of the TD errors of transitions, (N,), for `ComputePriorities`."""
        return self.agent.priorities(batch.data)


class ApeXLearner(AgentLearner[ApeXAgent]):
    """The agent as a plan's learner. Environment steps are counted as they come, not by updates."""

    def update(self, batch: SampleBatch) -> dict[str, Any]:
        """One update on what a shard drew; finds its new priorities."""
        metrics, errors = self.agent.learn(batch["records"], batch["weights"])
        return {**metrics, "priorities": (batch["numbers"], errors)}

    def count_steps(self, item: Item) -> Item:
        """Counts the steps of an item."""
        self._count(item.num_steps)
        return item


def make_agent(config: ApeXTrainConfig, env: VectorEnv, seed: int) -> ApeXAgent:
    """The agent for an environment; not built yet."""
    return make_agent_of(ApeXAgent, config, env, seed)


def make_worker(config: ApeXTrainConfig, agent: ApeXAgent, env: VectorEnv) -> ApeXWorker:
    """A worker that collects transitions: of one vector step on the learner's own agent, else of several."""
    steps = max(1, config.steps_per_item // (config.num_envs // config.workers)) if acts_elsewhere(config) else 1
    return ApeXWorker(agent, env, steps, config.num_envs)


def make_shards(config: ApeXTrainConfig, agent: ApeXAgent) -> ReplayShards:
    """The replay memory, in shards that an engine makes when the plan starts."""
    memory, records, size = agent.memory_factory(config.shards), agent.record_space(), config.agent.batch_size
    factories = [
        ShardFactory(memory, records, size, derived_seed(config.seed, f"shard {number}"))
        for number in range(config.shards)
    ]
    return ReplayShards(factories, size, config.agent.memory_capacity, Resources(cpus=config.shard_cpus))


def ape_x_plan(config: ApeXTrainConfig, workers: Workers, learner: ApeXLearner, shards: ReplayShards) -> ReportMetrics:
    """Transitions with priorities into shards; samples of shards train, and their new priorities go back there."""
    failure = worker_failure(config)
    made = rollouts(config, workers).par_for_each(ComputePriorities())
    ahead = 1 if config.engine == "local" else config.items_ahead  # in this process nobody acts meanwhile
    items = gathered(config, made, "async", ahead, by_reference=True)  # from worker to shard, and not through here
    stored = items.for_each(StoreToBuffer(shards)).for_each(learner.count_steps)
    every = config.weight_interval if learner.counts else 0  # on the learner's own agent, weights are always the newest
    store_op = stored.for_each(UpdateWeights(learner, workers, every_steps=every))

    drawn_together = 1 if config.engine == "local" else config.batches_per_call  # in this process a call costs nothing
    samples = ParallelReplay(shards, config.agent.learning_starts, config.save_memory, drawn_together)
    drawn = samples.on_error(failure.on_error, failure.timeout).gather_async(config.batches_ahead)
    # the slides' listing sets priorities before it trains; there are no TD errors before that
    trained = drawn.for_each(TrainOneStep(learner)).for_each(UpdatePriorities(shards))
    replay_op = trained.rate_limit(config.agent.samples_per_step, min_size=config.agent.learning_starts)
    return ReportMetrics(Union(store_op, replay_op), workers)


def make_parts(config: ApeXTrainConfig) -> Parts:
    """Agent, workers and plan of a training.

    A schedule of the learning rate without a length of its own counts the updates of the training: `samples_per_step /
    batch_size` for every environment step after the first `learning_starts`, which make none.
    """
    own = config.agent
    updates = replay_updates(config.schedule_length, own.learning_starts, own.samples_per_step, own.batch_size)
    config = completed(config, updates)
    agent, workers, elsewhere = place(config, make_agent, make_worker)
    learner = ApeXLearner(agent, counts=elsewhere)
    return Parts(agent, workers, lambda: ape_x_plan(config, workers, learner, make_shards(config, agent)))


def make_trainer(config: ApeXTrainConfig, run: RunDirectory | None) -> PlanTrainer:
    """A trainer."""
    return PlanTrainer(config, run, make_parts)


APE_X = AlgorithmSpec(
    "ape-x",
    "distributed prioritized replay: DQN with a memory in shards, priorities from the workers",
    ApeXTrainConfig,
    make_trainer,
    presets=PresetFile(__file__),
    make_parts=make_parts,
    evaluate=evaluate_player,
)
