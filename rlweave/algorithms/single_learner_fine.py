"""Placement `single_learner_fine`: workers only step environments; a server beside the learner acts for all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from rlweave.agents.agent import Agent
from rlweave.algorithms.environment_worker import EnvironmentFactory
from rlweave.algorithms.environments import make_training_env
from rlweave.algorithms.inference_server import ANSWERS, ITEMS, Rows, Serve
from rlweave.algorithms.parts import Parts
from rlweave.algorithms.placement import Rollouts, RolloutWorkers, worker_resources
from rlweave.errors import ConfigError
from rlweave.flow import Stream, Union, WorkerGroup

if TYPE_CHECKING:
    from rlweave.algorithms.algorithm import Algorithm


def single_learner_fine_parts(config: Any, algorithm: Algorithm) -> Parts:
    """Agent, workers and plan of a training whose workers only step environments.

    Args:
        config: Settings of the training.
        algorithm: What is trained; a server can act for its workers.

    Raises:
        ConfigError: A batch of the server would never be whole.
    """
    size = config.placement.server.batch_size
    if size is not None and size > config.num_envs:
        raise ConfigError(
            "a batch of the server would never be whole",
            where="placement.server.batch_size",
            received=f"{size} rows of {config.num_envs} environments",
            fix=f"at most {config.num_envs}, or null for all environments",
        )
    with make_training_env(config) as env:
        agent = algorithm.make_agent(config, env, config.seed)
    factories = [EnvironmentFactory(config, number) for number in range(config.placement.workers)]
    group = WorkerGroup(factories, worker_resources(config))
    learner = algorithm.learner(agent, counts=False)

    def plan() -> Any:
        memory = () if algorithm.memory is None else (algorithm.memory(config, agent),)
        return algorithm.plan_of(config, ServedWorkers(group, config, agent, algorithm), learner, *memory)

    return Parts(agent, group, plan, one_seed=True)


class ServedWorkers(RolloutWorkers):
    """Workers of a training that only step environments, with the server that acts for them.

    Args:
        group: The workers.
        config: Settings of the training.
        agent: The agent that acts.
        algorithm: What is trained: its workers collect at the server.
    """

    def __init__(self, group: WorkerGroup, config: Any, agent: Agent, algorithm: Algorithm) -> None:
        super().__init__(group, config)
        self._config, self._agent, self._algorithm = config, agent, algorithm

    def rollouts(self) -> Rollouts:
        return ServedRollouts(super().rollouts(), self)

    def serve(self, offers: Stream, in_rounds: bool) -> Stream:
        """What is collected from the environments of all workers, which get their actions from a server."""
        config, server = self._config, self._config.placement.server
        rows = config.num_envs // len(self)
        assert self._algorithm.worker is not None
        collecting: list[Any] = [
            self._algorithm.worker(config, self._agent, Rows(rows, number))  # type: ignore[arg-type]
            for number in range(len(self))
        ]
        batch_size = config.num_envs if server.batch_size is None else server.batch_size
        serve = Serve(offers.port, self._agent, collecting, batch_size, server.wait, in_rounds)
        answered = Stream(serve.outputs[ANSWERS]).reply(self, "act")
        return Union(Stream(serve.outputs[ITEMS]), answered, output=ITEMS)


class ServedRollouts(Rollouts):
    """The offers of workers that only step environments; gathered, they are what is collected at their server."""

    _workers: ServedWorkers

    def gather(self, default: Literal["sync", "async"], num_async: int = 1, by_reference: bool = False) -> Stream:
        """As in `Rollouts`: with ``"sync"``, workers whose item is complete wait until those of all are."""
        return self._workers.serve(self.gather_async(), (self._workers.gather or default) == "sync")
