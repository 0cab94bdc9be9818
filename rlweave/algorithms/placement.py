"""Where the workers of a training live: beside the learner on its own agent, or elsewhere with agents of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, Literal, NamedTuple, TypeVar, cast

from rlweave.agents.agent import Agent
from rlweave.algorithms.config import TrainConfig
from rlweave.algorithms.engines import acting_config, acts_elsewhere, worker_failure, worker_resources, worker_seed
from rlweave.algorithms.environments import make_training_env, make_training_envs
from rlweave.algorithms.rollout_workers import AlternatingWorker, EnvWorker, build_acting
from rlweave.algorithms.shipping import ShipsEnvironment
from rlweave.algorithms.threads import set_threads
from rlweave.envs import VectorEnv
from rlweave.errors import ConfigError
from rlweave.flow import ParallelRollouts, Stream, WorkerGroup, Workers
from rlweave.flow.item_types import signature_of

ConfigT = TypeVar("ConfigT", bound=TrainConfig)
AgentT = TypeVar("AgentT", bound=Agent)

#: Makes an agent for an environment and a seed; it is not built yet.
MakeAgent = Callable[[ConfigT, VectorEnv, int], AgentT]
#: Makes the worker that acts with an agent in an environment. Its return annotation says which kind.
MakeWorker = Callable[[ConfigT, AgentT, VectorEnv], EnvWorker]


class WorkerFactory(ShipsEnvironment, Generic[ConfigT, AgentT]):
    """Makes a worker in the process where it is to live, with an agent of its own of which only acting is built.

    Args:
        config: Settings of the training.
        number: Number of the worker.
        make_agent: Makes its agent.
        make_worker: Makes the worker.
        worker_config: What the settings are for its agent.
    """

    def __init__(
        self,
        config: ConfigT,
        number: int,
        make_agent: MakeAgent[ConfigT, AgentT],
        make_worker: MakeWorker[ConfigT, AgentT],
        worker_config: Callable[[ConfigT], ConfigT] = acting_config,
    ) -> None:
        self.config, self.number = config, number
        self.make_agent, self.make_worker, self.worker_config = make_agent, make_worker, worker_config

    @property
    def makes(self) -> Any:
        """The kind of worker."""
        return signature_of(self.make_worker).gives

    def __call__(self) -> EnvWorker:
        """The worker."""
        envs = make_training_envs(self.config, self.number)
        agent = self.make_agent(self.worker_config(self.config), envs[0], worker_seed(self.config, self.number))
        build_acting(agent)
        set_threads(self.config, agent)
        worker = worker_in(envs, self.config, agent, self.make_worker)
        worker.shares_weights = False
        return worker


def worker_in(
    envs: Sequence[VectorEnv], config: ConfigT, agent: AgentT, make_worker: MakeWorker[ConfigT, AgentT]
) -> EnvWorker:
    """A worker in one vector environment, or in two halves of its environments."""
    workers = [make_worker(config, agent, env) for env in envs]
    if acts_elsewhere(config):
        for worker in workers:
            worker.workers = config.workers
    if len(workers) == 2:
        first, second = cast(list[AlternatingWorker], workers)
        first.other_half = second
    return workers[0]


class Placed(NamedTuple, Generic[AgentT]):
    """What was put in its place.

    Attributes:
        agent: The agent that learns; not built yet.
        workers: Worker objects that act on this very agent, or a group of factories.
        elsewhere: Whether workers have agents of their own: then the learner counts environment steps, and its weights
            travel.
    """

    agent: AgentT
    workers: list[EnvWorker] | WorkerGroup
    elsewhere: bool


def place(
    config: ConfigT,
    make_agent: MakeAgent[ConfigT, AgentT],
    make_worker: MakeWorker[ConfigT, AgentT],
    worker_config: Callable[[ConfigT], ConfigT] = acting_config,
) -> Placed[AgentT]:
    """Makes the agent that learns, and workers where the settings have them.

    Args:
        config: Settings of the training.
        make_agent: Makes an agent.
        make_worker: Makes a worker. Both travel to other processes, so they are functions of a module.
        worker_config: Makes the settings of a worker's agent elsewhere; `gradients_config` where it is to learn, too.

    Raises:
        ConfigError: The placement is fused: who has one does not come here for it. Or environments are to step by turns
            where workers have no halves.
    """
    kind = signature_of(make_worker).gives
    if config.alternating_sampling and not (isinstance(kind, type) and issubclass(kind, AlternatingWorker)):
        raise ConfigError(
            "workers of this algorithm do not step their environments by turns",
            where="alternating_sampling",
            received="true",
            fix="leave it out; workers that collect rollouts or transitions have it",
        )
    if config.placement == "fused":
        raise ConfigError(
            "this algorithm has no fused form: its environments step outside of the graph",
            where="placement",
            received="fused",
            fix="leave it out, or use single_learner_coarse",
        )
    if acts_elsewhere(config):
        with make_training_env(config) as env:
            agent = make_agent(config, env, config.seed)
        factories = [WorkerFactory(config, n, make_agent, make_worker, worker_config) for n in range(config.workers)]
        return Placed(agent, WorkerGroup(factories, worker_resources(config)), True)
    envs = [make_training_envs(config, number) for number in range(config.workers)]
    agent = make_agent(config, envs[0][0], config.seed)
    return Placed(agent, [worker_in(own, config, agent, make_worker) for own in envs], False)


def rollouts(config: TrainConfig, workers: Workers, fragments: int = 1) -> Stream:
    """What the workers sample, as a parallel stream that treats failures as the settings say."""
    failure = worker_failure(config)
    return ParallelRollouts(workers, fragments=fragments).on_error(failure.on_error, failure.timeout)


def gathered(
    config: TrainConfig,
    stream: Stream,
    default: Literal["sync", "async"],
    num_async: int = 1,
    by_reference: bool = False,
) -> Stream:
    """Gathers a parallel stream as the settings say, or else as the algorithm has it.

    Args:
        config: Settings of the training.
        stream: The stream.
        default: ``"sync"``, a barrier, or ``"async"``, items as they come.
        num_async: Items that an asynchronous gather asks each worker for ahead.
        by_reference: Whether it leaves items where they are made.

    Raises:
        ConfigError: A bound on the lag of a barrier, whose items are made with the same weights.
    """
    if (config.gather or default) == "sync":
        if config.max_lag is not None:
            raise ConfigError(
                "items gathered in rounds have no lag to be bounded",
                where="max_lag",
                received=f"{config.max_lag}, with gather {config.gather or default}",
                fix="--set gather=async, or leave max_lag out",
            )
        return stream.gather_sync()
    return stream.gather_async(num_async, config.max_lag, by_reference=by_reference)


def shared_out(config: TrainConfig, stream: Stream) -> Stream:
    """Lists of the items that the workers made between two updates, where each does its share of the work for one.

    A list is what a round brought: the shares of all workers that are there. Gathered asynchronously, it has as many
    items as there are workers.

    Args:
        config: Settings of the training.
        stream: The workers' shares, as a parallel stream.
    """
    items = gathered(config, stream, "sync")
    return items.batch(config.workers) if config.gather == "async" else items.batch_rounds()
