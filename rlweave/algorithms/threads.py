"""How many threads the kernels of a backend take in a training."""

from __future__ import annotations

from rlweave.agents.acting import candidates
from rlweave.agents.agent import AUTO, Agent
from rlweave.algorithms.config import TrainConfig
from rlweave.backends import get_backend
from rlweave.errors import ConfigError

#: Numbers in an observation up to which networks are taken to be small.
_SMALL_OBSERVATION = 1024


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
