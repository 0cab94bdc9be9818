"""Placement `parameter_server`: workers compute gradients, shards of the parameters apply them."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from rlweave.algorithms.a3c import gradient_worker
from rlweave.algorithms.config import RolloutTrainConfig
from rlweave.algorithms.learners import load_state, state_of
from rlweave.algorithms.parameter_shard import ParameterShardFactory, shard_factories, whole_state
from rlweave.algorithms.parts import Parts
from rlweave.algorithms.placement import RolloutWorkers, place
from rlweave.envs import VectorEnv
from rlweave.errors import ConfigError
from rlweave.flow import AverageGradients, ComputeGradients, LearnerActor, ReportMetrics, Resources, Stream, WorkerGroup
from rlweave.flow.item_types import signature_of
from rlweave.flow.parameter_shards import ApplyAtShard, InParts

if TYPE_CHECKING:
    from rlweave.algorithms.algorithm import Algorithm


def parameter_server_parts(config: Any, algorithm: Algorithm) -> Parts:
    """Agent, workers and plan of a training whose parameters are in shards; the agent is built.

    Args:
        config: Settings of the training.
        algorithm: What is trained.

    Raises:
        ConfigError: There are more shards than variables.
    """
    assert algorithm.worker is not None
    computes = getattr(signature_of(algorithm.worker).gives, "computes_gradients", False)
    make_worker = algorithm.worker if computes else gradient_worker
    agent, workers = place(config, functools.partial(_make_agent, algorithm), make_worker)
    agent.build()
    assert isinstance(workers, WorkerGroup)
    server = ParameterServer(config, agent, workers)
    return Parts(agent, workers, server.compose, server)


def _make_agent(algorithm: Algorithm, config: Any, env: VectorEnv, seed: int) -> Any:
    """An agent that a worker acts and computes gradients with."""
    agent = algorithm.make_agent(config, env, seed)
    agent.worker_methods = (*agent.acting_methods, "rollout_gradients")
    return agent


class ParameterServer:
    """The shards of a training, as the driver sees them: its plan, and the agent that is evaluated and saved.

    Args:
        config: Settings of the training.
        agent: The agent here.
        workers: Makes the workers.

    Raises:
        ConfigError: There are more shards than variables.
    """

    def __init__(self, config: Any, agent: Any, workers: WorkerGroup) -> None:
        self.config, self.agent, self.workers = config, agent, workers
        number = config.placement.shards
        self.factories: list[ParameterShardFactory] = shard_factories(agent, number)
        variables = sum(len(factory.values) for factory in self.factories)
        if number > variables:
            raise ConfigError(
                "there are more shards than variables to hold",
                where="placement.shards",
                received=f"{number} shards, {variables} variables",
                fix=f"--set placement.shards={variables} or less",
            )
        held = Resources(cpus=0.0)  # a shard mostly waits
        self.shards = [LearnerActor(own, held, config.placement.shard_snapshots) for own in self.factories]

    def compose(self) -> ReportMetrics:
        """The plan: each worker's gradients by themselves, or the means of rounds, through all shards."""
        config, workers = self.config, RolloutWorkers(self.workers, self.config)
        computed = workers.rollouts().par_for_each(ComputeGradients(None, getattr(config, "microbatch_size", None)))
        in_parts = InParts(*self.division())
        stream: Stream
        if config.gather == "sync" or isinstance(config, RolloutTrainConfig):  # an update is of all workers
            stream = computed.per_worker_shares().for_each(AverageGradients()).for_each(in_parts)
        else:  # from worker to shard, not through the driver
            stream = computed.par_for_each(in_parts).gather("async", by_reference=True)
        for number, shard in enumerate(self.shards):
            stream = stream.for_each(ApplyAtShard(shard, number, workers))
            if number:
                stream.named(f"apply_gradients-{number}")
            stream.on_error(config.on_error, config.worker_timeout)
        return ReportMetrics(stream, workers)

    def division(self) -> tuple[list[list[str]], float | None]:
        """The paths of each shard, and the norm to clip to before; a single shard clips by itself."""
        paths = [list(factory.values) for factory in self.factories]
        return paths, self.agent.make_root().optimizer.max_grad_norm if len(paths) > 1 else None

    def begin(self, plan: ReportMetrics) -> None:
        """Does nothing: shards are made with the values of the agent here."""

    def fetch(self, plan: ReportMetrics) -> None:
        """Brings the agent here to the state of the shards."""
        states = [plan.ask_learner(shard, "state_dict") for shard in self.shards]
        load_state(self.agent, whole_state(self.agent, states))

    def push(self, plan: ReportMetrics) -> None:
        """Brings the shards to the state of the agent here."""
        state = state_of(self.agent)
        for shard, factory in zip(self.shards, self.factories, strict=True):
            plan.ask_learner(shard, "load_state_dict", factory.part_of(state))
