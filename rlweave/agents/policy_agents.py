"""Several agents that learn side by side, each for the agents of an environment that its policy plays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

import numpy as np

from rlweave.agents.agent import Agent
from rlweave.agents.model_files import Model, read_model, require_equal, write_model
from rlweave.errors import ConfigError, nearest


class PolicyAgents(Mapping[str, Agent]):
    """Agents by policy name, saved and restored as one.

    Args:
        agents: By policy name.

    Attributes:
        joint_steps: Steps of environments, all agents together; each agent counts its own steps besides.
    """

    name: ClassVar[str] = "multi-agent"

    def __init__(self, agents: Mapping[str, Agent]) -> None:
        self._agents = dict(agents)
        self.joint_steps = 0

    def __getitem__(self, policy: str) -> Agent:
        """The agent of a policy."""
        return self._agents[policy]

    def __iter__(self) -> Iterator[str]:
        """Names of policies."""
        return iter(self._agents)

    def __len__(self) -> int:
        """Number of policies."""
        return len(self._agents)

    @property
    def env_steps(self) -> int:
        """Steps of all agents together."""
        return sum(agent.env_steps for agent in self._agents.values())

    def check_components(self) -> None:
        """Composes the components of all agents; see `Agent.check_components`."""
        for agent in self._agents.values():
            agent.check_components()

    def greedy_players(self) -> dict[str, Callable[..., Any]]:
        """What plays greedily, by policy: see `Agent.greedy_player`."""
        return {policy: agent.greedy_player() for policy, agent in self._agents.items()}

    def state_dict(self, memory: bool = True) -> dict[str, np.ndarray]:
        """Everything that training needs to go on, of all agents: paths begin with the policy."""
        return self._by_path(lambda agent: agent.state_dict(memory))

    def memory_state(self) -> dict[str, np.ndarray]:
        """What `state_dict(memory=False)` leaves out; see `Agent.memory_state`."""
        return self._by_path(lambda agent: agent.memory_state())

    def _by_path(self, arrays: Callable[[Agent], dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
        return {
            f"{policy}/{path}": value for policy, agent in self._agents.items() for path, value in arrays(agent).items()
        }

    def memory_bytes(self) -> int:
        """Size of all replay memories when they are full."""
        return sum(agent.memory_bytes() for agent in self._agents.values())

    def refill_memory(self) -> None:
        """Goes on without what was in the memories; see `Agent.refill_memory`."""
        for agent in self._agents.values():
            agent.refill_memory()

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        """Takes over what `state_dict` gave."""
        for policy, agent in self._agents.items():
            prefix = f"{policy}/"
            agent.load_state_dict({k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)})

    def model(self) -> Model:
        """What acts of all agents; paths of weights begin with the policy (see `prefix_of`)."""
        models = {policy: agent.model() for policy, agent in self._agents.items()}
        weights = {
            f"{prefix_of(policy)}{path}": value for policy, own in models.items() for path, value in own.weights.items()
        }
        policies = {policy: own.description for policy, own in models.items()}
        return Model(weights, {"agent": self.name, "policies": policies})

    def export_model(self, path: str | Path) -> Path:
        """Writes what acts of all agents into a directory, and nothing else."""
        return write_model(path, self.model())

    def import_model(self, path: str | Path) -> None:
        """Takes what `export_model` wrote of policies of the same names; see `Agent.import_model`.

        Raises:
            CheckpointError: As there, or of other policies.
        """
        self.take_model(read_model(path), path)

    def take_model(self, model: Model, where: str | Path) -> None:
        """As `import_model`, of a model that was read already."""
        models = models_of(model)
        require_equal(sorted(self), sorted(models), "the model has other policies", where, "name them alike")
        for policy, agent in self._agents.items():
            agent.take_model(models[policy], f"{where}, policy {policy}")

    def counters(self) -> dict[str, Any]:
        """Absolute counters, as plain data for a checkpoint."""
        counters = {policy: agent.counters() for policy, agent in self._agents.items()}
        return {"policies": counters, "joint_steps": self.joint_steps}

    def load_counters(self, counters: Mapping[str, Any]) -> None:
        """Takes over what `counters` gave."""
        self.joint_steps = int(counters["joint_steps"])
        for policy, agent in self._agents.items():
            agent.load_counters(counters["policies"][policy])

    def find(self, path: str) -> tuple[Agent, str]:
        """Takes ``"policy/method"`` apart.

        Returns:
            The policy's agent, and the method.

        Raises:
            ConfigError: If there is no such policy.
        """
        policy, slash, method = path.partition("/")
        if policy not in self._agents or not slash:
            raise ConfigError(
                "each policy has a component graph of its own",
                where="method",
                received=repr(path),
                fix=f"write policy/method, as in {next(iter(self._agents))}/update; {nearest(policy, self._agents)}",
            )
        return self._agents[policy], method


def prefix_of(policy: str) -> str:
    """What paths of a policy's weights begin with in a model of several: its name, quoted as in a URL."""
    return f"{quote(policy, safe='')}/"


def models_of(model: Model) -> dict[str, Model]:
    """The models of the policies that are in one model of several, by policy; none of a model of one."""
    return {
        policy: Model(
            {
                path.removeprefix(prefix_of(policy)): value
                for path, value in model.weights.items()
                if path.startswith(prefix_of(policy))
            },
            description,
        )
        for policy, description in model.description.get("policies", {}).items()
    }
