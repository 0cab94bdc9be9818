"""Where a training computes: its engine, its workers and their threads, and how rollouts reach the learner."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar, cast

from rlweave.agents.acting import candidates
from rlweave.agents.agent import AUTO, Agent, AgentConfig
from rlweave.algorithms.config import TrainConfig
from rlweave.algorithms.environments import ShipsEnvironment, make_training_env, make_training_envs
from rlweave.algorithms.placements import ServerConfig, placement_of
from rlweave.algorithms.rollout_workers import AlternatingWorker, EnvWorker, build_acting
from rlweave.backends import get_backend
from rlweave.envs import VectorEnv
from rlweave.envs.seeding import derived_seed
from rlweave.errors import ConfigError
from rlweave.flow import (
    Engine,
    FailureRule,
    LocalEngine,
    Operator,
    ParallelRollouts,
    Resources,
    Stream,
    WorkerGroup,
    Workers,
)
from rlweave.flow.item_types import signature_of
from rlweave.flow.lockstep import LockstepEngine

#: Numbers in an observation up to which networks are taken to be small.
_SMALL_OBSERVATION = 1024

ConfigT = TypeVar("ConfigT", bound=TrainConfig)


def check_engine(config: TrainConfig) -> None:
    """Checks settings that depend on each other.

    Raises:
        ConfigError: Environments cannot be divided evenly, a fused training is to have workers or to alternate, or
            workers elsewhere are to act on a backend that is measured here.
    """
    if config.num_envs % config.placement.workers:
        raise ConfigError(
            "the environments cannot be divided evenly among the workers",
            where="placement.workers",
            received=f"{config.num_envs} environments for {config.placement.workers} workers",
            fix=f"--num-envs {-(-config.num_envs // config.placement.workers) * config.placement.workers}",
        )
    if config.alternating_sampling and config.num_envs // config.placement.workers % 2:
        raise ConfigError(
            "the environments of a worker have no two equal halves to step by turns",
            where="alternating_sampling",
            received=f"{config.num_envs} environments for {config.placement.workers} workers",
            fix=f"--num-envs {config.num_envs + config.placement.workers}",
        )
    agent = getattr(config, "agent", None)  # several agents have settings of their own
    if config.has_remote_actors and agent is not None and agent.acting_backend == AUTO:
        raise ConfigError(
            "the fastest acting backend is measured on the learner's agent, but workers have agents of their own",
            where="agent.acting_backend",
            received=f"{AUTO!r} with engine {config.engine!r}, placement {config.placement.name!r}",
            fix="name a backend: --set agent.acting_backend=numpy (or onnx)",
        )
    placement = placement_of(config)
    if config.placement.workers > 1 and not placement.takes_workers:
        raise ConfigError(
            f"placement {placement.name} has no workers: {placement.summary}",
            where="placement.workers",
            received=f"{config.placement.workers}",
            fix="--workers 1, or --placement single_learner_coarse",
        )
    if config.engine != "local" and not placement.on_ray:
        raise ConfigError(
            f"placement {placement.name} has no workers that could act on a cluster: {placement.summary}",
            where="placement.name",
            received=f"{placement.name}, with engine {config.engine}",
            fix="--engine local, or --placement single_learner_coarse",
        )
    if config.placement.learners > 1 and not placement.takes_learners:
        raise ConfigError(
            f"placement {placement.name} has one learner",
            where="placement.learners",
            received=f"{config.placement.learners}",
            fix="--placement multi_learner, or leave it out",
        )
    if config.placement.shards > 1 and placement.name != "parameter_server":
        raise ConfigError(
            f"placement {placement.name} has no shards of the parameters",
            where="placement.shards",
            received=f"{config.placement.shards}",
            fix="--placement parameter_server, or leave it out",
        )
    if config.placement.server != ServerConfig() and placement.name != "single_learner_fine":
        raise ConfigError(
            f"placement {placement.name} has no server",
            where="placement.server",
            received=f"{config.placement.server.to_data()}",
            fix="--placement single_learner_fine, or leave it out",
        )
    placement.check_settings(config)
    own_processes = config.engine != "local" or {"rank", "shard"} & set(placement.fragments.values())
    in_actor = getattr(config, "learner", "here") == "actor"
    of_population = config.default_on_error == "replace"  # whose trials are replaced in this process, too
    if config.placement.on_error in ("replace", "shrink") and not (own_processes or in_actor or of_population):
        raise ConfigError(
            "what fails in this process ends the training",
            where="placement.on_error",
            received=f"{config.placement.on_error}, with placement {placement.name} and engine local",
            fix="--engine ray gives workers processes (environments with their own have env_failure); or leave it out",
        )
    if placement.name == "local" and config.vectorization == "async" and config.engine == "local":
        raise ConfigError(
            "placement local has everything in this process",
            where="vectorization",
            received="async, with placement local",
            fix="--placement environments_apart gives each environment a process",
        )


def make_engine(config: TrainConfig) -> Engine:
    """The engine that the settings ask for; a Ray cluster is begun or joined here.

    Raises:
        BackendError: Ray is not installed, or cannot be reached.
    """
    if config.engine == "local":
        return LockstepEngine() if config.placement.name == "multi_learner" else LocalEngine()
    from rlweave.flow.ray_engine import RayEngine  # needed for this engine only

    return RayEngine(config.address, object_store_memory=config.object_store_mb * 2**20)


def close_engine(engine: Engine) -> None:
    """Closes an engine, with the cluster that it started."""
    close = getattr(engine, "close", None)
    if close is not None:
        close()


def acting_config(config: ConfigT) -> ConfigT:
    """The settings of a worker whose own agent acts, on one backend and device."""
    backend = config.agent.acting_backend or config.backend  # type: ignore[attr-defined]
    agent = _on_one_device(config.agent).model_copy(update={"acting_backend": None})  # type: ignore[attr-defined]
    return config.model_copy(update={"backend": backend, "agent": agent})


def gradients_config(config: ConfigT) -> ConfigT:
    """The settings of a worker whose own agent computes gradients, on the backend that learns."""
    return config.model_copy(update={"agent": _on_one_device(config.agent)})  # type: ignore[attr-defined]


def _on_one_device(agent: AgentConfig) -> AgentConfig:
    placing = {"device", "replicas"} & set(type(agent).model_fields)
    return agent.model_copy(update=dict.fromkeys(placing))


def worker_seed(config: TrainConfig, number: int) -> int:
    """The seed of a worker's random numbers."""
    return derived_seed(config.seed, f"worker {number}")


def worker_failure(config: TrainConfig) -> FailureRule:
    """The rule for workers that fail. Workers in this process cannot be restarted."""
    rule = "stop" if config.engine == "local" else config.on_error
    if rule == "shrink":
        return FailureRule("replace", config.worker_timeout, attempts=1)  # which gives up a worker at its first failure
    return FailureRule(rule, config.worker_timeout)


def worker_resources(config: TrainConfig) -> Resources:
    """The resources of each worker on a cluster."""
    return Resources(cpus=config.worker_cpus)


def set_threads(config: TrainConfig, agent: Agent) -> None:
    """Gives small networks one thread: several threads would mostly wait for each other."""
    threads = config.threads
    if threads is None:
        numbers = agent.observation_space.flat_dim
        threads = 1 if numbers <= _SMALL_OBSERVATION else None
    if threads is None:
        return
    acting = agent.config.acting_backend or agent.backend
    names = {agent.backend, *(candidates(agent.backend) if acting == AUTO else (acting,))}
    taken = [get_backend(name).set_threads(threads) for name in sorted(names)]
    if config.threads is not None and not any(taken):
        raise ConfigError(
            "the backend does not take a number of threads",
            where="threads",
            received=f"{threads} threads for {config.backend}",
            fix="leave it out; OMP_NUM_THREADS, XLA_FLAGS, TF_NUM_INTRAOP_THREADS hold for processes not begun",
        )


#: Makes an agent for an environment and a seed, of settings; it is not built yet.
MakeAgent = Callable[[Any, VectorEnv, int], Any]
#: Makes the worker that acts with an agent in an environment, of settings. Its return annotation says which kind.
MakeWorker = Callable[[Any, Any, VectorEnv], EnvWorker]


class WorkerFactory(ShipsEnvironment):
    """Makes a worker in its process, with an agent of its own of which only the acting part is built.

    Args:
        config: Settings of the training.
        number: Number of the worker.
        make_agent: Makes its agent.
        make_worker: Makes the worker.
    """

    def __init__(self, config: TrainConfig, number: int, make_agent: MakeAgent, make_worker: MakeWorker) -> None:
        self.config, self.number = config, number
        self.make_agent, self.make_worker = make_agent, make_worker

    @property
    def makes(self) -> Any:
        """The kind of worker."""
        return signature_of(self.make_worker).gives

    def __call__(self) -> EnvWorker:
        """The worker."""
        envs = make_training_envs(self.config, self.number)
        settings = (gradients_config if self.makes.computes_gradients else acting_config)(self.config)
        agent = self.make_agent(settings, envs[0], worker_seed(self.config, self.number))
        build_acting(agent)
        set_threads(self.config, agent)
        worker = worker_in(envs, self.config, agent, self.make_worker)
        worker.shares_weights = False
        return worker


def worker_in(envs: Sequence[VectorEnv], config: TrainConfig, agent: Any, make_worker: MakeWorker) -> EnvWorker:
    """A worker in one vector environment, or in two halves of its environments."""
    workers = [make_worker(config, agent, env) for env in envs]
    if config.has_remote_actors:
        for worker in workers:
            worker.workers = config.placement.workers
    if len(workers) == 2:
        first, second = cast(list[AlternatingWorker], workers)
        first.alternate_with(second)
    return workers[0]


def place(
    config: TrainConfig, make_agent: MakeAgent, make_worker: MakeWorker, first: int = 0
) -> tuple[Any, list[EnvWorker] | WorkerGroup]:
    """Makes the agent that learns, and workers as the settings place them; the agent is not built yet.

    Workers are objects that act on this very agent; or a group of factories of workers with agents of their own: then
    the learner counts environment steps, and its weights travel.

    Args:
        config: Settings of the training.
        make_agent: Makes an agent.
        make_worker: Makes a worker. Both travel to other processes.
        first: Number of the first worker in this process, among those of all learners.

    Raises:
        ConfigError: The workers of this algorithm do not step their environments by turns.
    """
    kind = signature_of(make_worker).gives
    if config.alternating_sampling and not (isinstance(kind, type) and issubclass(kind, AlternatingWorker)):
        raise ConfigError(
            "workers of this algorithm do not step their environments by turns",
            where="alternating_sampling",
            received="true",
            fix="leave it out; workers that collect rollouts or transitions have it",
        )
    if config.has_remote_actors:
        with make_training_env(config) as env:
            agent = make_agent(config, env, config.seed)
        factories = [
            WorkerFactory(config, number, make_agent, make_worker) for number in range(config.placement.workers)
        ]
        return agent, WorkerGroup(factories, worker_resources(config))
    envs = [make_training_envs(config, first + number) for number in range(config.placement.workers)]
    agent = make_agent(config, envs[0][0], config.seed)
    return agent, [worker_in(own, config, agent, make_worker) for own in envs]


class RolloutWorkers(WorkerGroup):
    """The workers of a training, for a plan: the settings decide where they live and how they are gathered.

    Args:
        workers: Worker objects, or a group of factories.
        config: Settings of the training.

    Attributes:
        gather: How to gather by the settings; None: each algorithm's own way.
        failure: The rule for workers that fail.
    """

    def __init__(self, workers: Workers, config: TrainConfig) -> None:
        group = WorkerGroup.of(workers, "parallel_rollouts")
        super().__init__(group.factories, group.resources)
        self.key = group.key
        self.gather, self.max_lag = config.gather, config.max_lag
        self.failure = worker_failure(config)

    def rollouts(self) -> Rollouts:
        """The workers' items as a parallel stream, with the failure rule of the settings."""
        rule = self.failure
        return Rollouts(ParallelRollouts(self).on_error(rule.on_error, rule.timeout, rule.attempts), self)


class Rollouts(Stream):
    """The parallel stream of the workers' items, which is gathered as the settings say.

    Args:
        stream: A parallel stream.
        workers: The workers at its beginning.
    """

    def __init__(self, stream: Stream, workers: RolloutWorkers) -> None:
        super().__init__(stream.port)
        self._workers = workers

    def par_for_each(self, operator: Operator | Callable[[Any], Any]) -> Rollouts:
        """Puts every item through an operator at its worker."""
        return Rollouts(super().par_for_each(operator), self._workers)

    def gather(self, default: Literal["sync", "async"], num_async: int = 1, by_reference: bool = False) -> Stream:
        """Gathers by the `gather` setting; `default` if it is unset.

        Args:
            default: ``"sync"``, a barrier, or ``"async"``, items as they come.
            num_async: Outstanding requests per worker (async gather).
            by_reference: Whether it leaves items where they are made.

        Raises:
            ConfigError: A bound on the lag of a barrier, whose items all have the same weights.
        """
        how, max_lag = self._workers.gather or default, self._workers.max_lag
        if how == "async":
            return self.gather_async(num_async, max_lag, by_reference=by_reference)
        if max_lag is not None:
            raise ConfigError(
                "items gathered in rounds have no weight lag to bound",
                where="max_lag",
                received=f"{max_lag}, with gather {how}",
                fix="--set gather=async, or leave max_lag out",
            )
        return self.gather_sync()

    def per_worker_shares(self) -> Stream:
        """Lists of the items for one update, of which each worker makes its share.

        A list is one round: the shares of all workers that are there. Gathered asynchronously, it has as
        many items as there are workers.
        """
        items = self.gather("sync")
        return items.batch(len(self._workers)) if self._workers.gather == "async" else items.batch_rounds()
