"""DQN as something to train: agent, plan, defaults."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from rlweave.agents.config import setting
from rlweave.agents.dqn import DQN as DQNAgent  # noqa: N811 - a class of that name
from rlweave.agents.dqn import DQNConfig, DrawnBatch
from rlweave.agents.fused_dqn import FusedDQN
from rlweave.algorithms.agent_making import completed, make_agent_of
from rlweave.algorithms.config import TrainConfig
from rlweave.algorithms.engines import acts_elsewhere
from rlweave.algorithms.environments import evaluate_player
from rlweave.algorithms.fused import FusedLearner, describe_fused, fused_plan
from rlweave.algorithms.placement import gathered, place, rollouts
from rlweave.algorithms.presets import PresetFile
from rlweave.algorithms.registry import AlgorithmSpec
from rlweave.algorithms.rollout_workers import TransitionWorker, acting_state
from rlweave.algorithms.run_directory import RunDirectory
from rlweave.algorithms.schedule_lengths import replay_updates
from rlweave.algorithms.trainer import Parts, PlanTrainer
from rlweave.envs import VectorEnv
from rlweave.envs.in_graph import make_graph_environment
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


class DQNTrainConfig(TrainConfig):
    """Settings of a DQN training."""

    num_envs: int = setting(1, "number of environments", ge=1, unit="environments")
    steps_per_item: int = setting(
        32, "steps that a worker on Ray takes per call, over its environments: a call costs about as much as 10 steps",
        ge=1, unit="environment steps",
    )  # fmt: skip
    save_memory: bool = setting(
        True, "checkpoints hold the replay memory; without it a run that is resumed fills it anew before it learns"
    )
    agent: DQNConfig = setting(DQNConfig(), "the agent")


class DrawInGraph:
    """Stands for a batch that the graph draws itself: says only how many transitions that are."""

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
        counts: Whether it counts environment steps, because the workers do not do so on this very agent.
    """

    def __init__(self, agent: DQNAgent, counts: bool = False) -> None:
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
        """Says how many transitions the update will draw."""
        return DrawInGraph(self.batch_size)


class HostMemory(GraphMemory):
    """The memory of an agent that draws ahead of its updates: a sample is the drawn transitions themselves."""

    def sample(self) -> SampleBatch:  # type: ignore[override]
        """Draws transitions."""
        records, indices, weights = self.agent.draw()
        return SampleBatch({"records": records, "indices": indices, "weights": weights})


class GraphLearner:
    """The agent as a learner that draws from its own memory, or is given what was drawn and staged before."""

    def __init__(self, agent: DQNAgent) -> None:
        self.agent = agent

    def update(self, batch: DrawInGraph | DrawnBatch) -> dict[str, Any]:
        """One update from the memory, or from a batch drawn before."""
        return self.agent.update(batch if isinstance(batch, DrawnBatch) else None)

    def stage(self, batch: SampleBatch) -> DrawnBatch:
        """Starts to copy drawn transitions to the device."""
        return self.agent.stage((batch["records"], batch["indices"], batch["weights"]))

    def get_weights(self) -> Any:
        """What acting needs."""
        return acting_state(self.agent)


def make_agent(config: DQNTrainConfig, env: VectorEnv, seed: int) -> DQNAgent:
    """The agent for an environment; not built yet."""
    return make_agent_of(DQNAgent, config, env, seed)


def make_worker(config: DQNTrainConfig, agent: DQNAgent, env: VectorEnv) -> TransitionWorker:
    """A worker that collects transitions: of one vector step on the learner's own agent, else of several."""
    steps = max(1, config.steps_per_item // (config.num_envs // config.workers)) if acts_elsewhere(config) else 1
    return TransitionWorker(agent, env, steps, functools.partial(agent.make_accumulator, env.num_envs))


def dqn_plan(config: DQNTrainConfig, workers: Workers, agent: DQNAgent, counts: bool = False) -> ReportMetrics:
    """Rollouts of all workers, as they come, to learn from."""
    transitions = gathered(config, rollouts(config, workers), "async")
    return ReportMetrics(dqn_branch(transitions, workers, GraphLearner(agent), counts), workers)


def dqn_branch(
    transitions: Stream,
    workers: Workers,
    learner: GraphLearner,
    counts: bool = False,
    name: str = "train_one_step",
) -> Stream:
    """Transitions into the memory, and updates from it in a fixed ratio; with `prefetch` on batches under way."""
    agent = learner.agent
    ahead = agent.config.prefetch
    memory = (HostMemory if ahead else GraphMemory)(agent, counts)
    store = transitions.for_each(StoreToBuffer(memory))
    samples = Replay(memory)
    staged = samples.for_each(Prefetch(ahead, learner.stage)) if ahead else samples
    train = staged.for_each(TrainOneStep(learner, workers)).named(name)
    limited = train.rate_limit(agent.config.samples_per_step, min_size=agent.config.learning_starts)
    return Union(store, limited)


def make_parts(config: DQNTrainConfig) -> Parts:
    """Agent, workers and plan of a training.

    A schedule of the learning rate without a length of its own counts the updates of the training: `samples_per_step /
    batch_size` for every environment step after the first `learning_starts`, which make none.
    """
    own = config.agent
    updates = replay_updates(config.schedule_length, own.learning_starts, own.samples_per_step, own.batch_size)
    config = completed(config, updates)
    if config.placement == "fused":
        environment = make_graph_environment(config.env, config.num_envs, config.env_options)
        fused = FusedDQN(environment, config.agent, backend=config.backend, seed=config.seed)
        fused.made_for = describe_fused(config, environment)
        learner = FusedLearner(fused, fused.iterations_per_call)
        return Parts(fused, [learner], lambda: fused_plan(learner))
    agent, workers, elsewhere = place(config, make_agent, make_worker)
    return Parts(agent, workers, lambda: dqn_plan(config, workers, agent, counts=elsewhere))


def make_trainer(config: DQNTrainConfig, run: RunDirectory | None) -> PlanTrainer:
    """A trainer."""
    return PlanTrainer(config, run, make_parts)


DQN = AlgorithmSpec(
    "dqn",
    "deep Q-learning: double, dueling, prioritized, n-step",
    DQNTrainConfig,
    make_trainer,
    presets=PresetFile(__file__),
    make_parts=make_parts,
    evaluate=evaluate_player,
)
