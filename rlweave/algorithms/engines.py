"""Where a training computes: its engine, what each worker gets of it, and the threads of kernels."""

from __future__ import annotations

from typing import TypeVar

from rlweave.agents.acting import candidates
from rlweave.agents.agent import AUTO, Agent, AgentConfig
from rlweave.algorithms.config import TrainConfig
from rlweave.backends import get_backend
from rlweave.envs.seeding import derived_seed
from rlweave.errors import ConfigError
from rlweave.flow import Engine, FailureRule, LocalEngine, Resources

#: Numbers in an observation up to which networks are taken to be small.
_SMALL_OBSERVATION = 1024

ConfigT = TypeVar("ConfigT", bound=TrainConfig)


def check_engine(config: TrainConfig) -> None:
    """Checks settings that depend on each other.

    Raises:
        ConfigError: Environments cannot be shared out evenly, a fused training is to have workers or to alternate, or
            workers elsewhere are to act on a backend that is measured here.
    """
    if config.num_envs % config.workers:
        raise ConfigError(
            "the environments cannot be shared out evenly",
            where="workers",
            received=f"{config.num_envs} environments for {config.workers} workers",
            fix=f"--num-envs {-(-config.num_envs // config.workers) * config.workers}",
        )
    if config.alternating_sampling and config.num_envs // config.workers % 2:
        raise ConfigError(
            "the environments of a worker have no two equal halves to step by turns",
            where="alternating_sampling",
            received=f"{config.num_envs} environments for {config.workers} workers",
            fix=f"--num-envs {config.num_envs + config.workers}",
        )
    agent = getattr(config, "agent", None)  # several agents have settings of their own
    if config.has_remote_actors and agent is not None and agent.acting_backend == AUTO:
        raise ConfigError(
            "who acts fastest is measured on the agent that learns, and workers have agents of their own",
            where="agent.acting_backend",
            received=f"{AUTO!r} with engine {config.engine!r}, placement {config.placement!r}",
            fix="name a backend: --set agent.acting_backend=numpy (or onnx)",
        )
    if config.placement == "fused" and (config.workers > 1 or config.engine != "local"):
        raise ConfigError(
            "a fused training has no workers: rollout and update are one program",
            where="placement",
            received=f"fused, with engine {config.engine} and {config.workers} workers",
            fix="use placement local; or --engine local --workers 1, for an algorithm with a fused form",
        )
    gathering = {"gather": config.gather, "max_lag": config.max_lag}
    given = [name for name, value in gathering.items() if value is not None]
    if config.placement == "fused" and given:
        raise ConfigError(
            "a fused training gathers nothing: there are no workers",
            where=given[0],
            received=f"{gathering[given[0]]!r}, with placement fused",
            fix="leave it out",
        )
    if config.placement == "fused" and config.alternating_sampling:
        raise ConfigError(
            "environments of a fused training are part of its program, and do not step by turns",
            where="alternating_sampling",
            received="true, with placement fused",
            fix="leave it out, or use placement local",
        )
    if config.placement == "fused" and config.info_metrics:
        raise ConfigError(
            "environments of a fused training have no infos",
            where="info_metrics",
            received=f"{config.info_metrics!r}, with placement fused",
            fix="leave it out, or use placement local",
        )
    if config.placement == "fused" and config.vectorization == "async":
        raise ConfigError(
            "environments of a fused training are part of its program, and have no processes",
            where="vectorization",
            received="'async', with placement fused",
            fix="leave it out, or use placement local",
        )


def make_engine(config: TrainConfig) -> Engine:
    """The engine that the settings ask for; a Ray cluster is begun or joined here.

    Raises:
        BackendError: Ray is not installed, or cannot be reached.
    """
    if config.engine == "local":
        return LocalEngine()
    from rlweave.flow.ray_engine import RayEngine  # needed for this engine only

    return RayEngine(config.address, object_store_memory=config.object_store_mb * 2**20)


def close_engine(engine: Engine) -> None:
    """Ends what was begun for an engine."""
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
    """The seed of what a worker draws: each its own."""
    return derived_seed(config.seed, f"worker {number}")


def worker_failure(config: TrainConfig) -> FailureRule:
    """The rule for workers that fail. Workers in this process cannot be restarted."""
    return FailureRule("stop" if config.engine == "local" else config.worker_failure, config.worker_timeout)


def worker_resources(config: TrainConfig) -> Resources:
    """What each worker holds on a cluster."""
    return Resources(cpus=config.worker_cpus)


def set_threads(config: TrainConfig, agent: Agent) -> None:
    """Gives small networks one thread: several that wait for each other take longer than one that works."""
    threads = config.threads
    if threads is None:
        numbers = agent.state_space.flat_dim
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
