"""A small agent in its environments, which acts and learns for a while, so that checks can look at its calls."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from rlweave.agents.agent import Agent
from rlweave.agents.elements import fitted
from rlweave.backends import LEARNING, backend_names, is_installed
from rlweave.envs import VectorEnv
from rlweave.errors import BackendError, install_command
from rlweave.graph import GraphExecutor
from rlweave.graph.component import api_methods
from rlweave.tree import has_leaf, tree_map

#: Environments of a trial: a number that is no feature size of small agents.
ENVIRONMENTS = 5
#: Calls of a method that are kept.
KEPT = 6
#: Settings that make an agent small, where it has them; all else stays as it is.
SMALL: Mapping[str, Any] = {
    "rollout_steps": 6,
    "epochs": 1,
    "minibatches": 1,
    "memory_capacity": 64,
    "batch_size": 12,
    "learning_starts": 20,
    "prefetch": 0,
    "burn_in": 2,
    "unroll": 4,
    "overlap": 0,
}
NO_SETTINGS: Mapping[str, Any] = MappingProxyType({})
#: Settings that every agent is checked with: its calls are watched in one graph.
FIXED: Mapping[str, Any] = {"acting_backend": None}


@dataclass(frozen=True)
class Call:
    """A call of an API method of the agent's graph.

    Args:
        method: The API method.
        arguments: Its inputs, by name.
        static: Its static arguments.
        state: What the executor held before, by path.
    """

    method: str
    arguments: dict[str, Any]
    static: dict[str, Any]
    state: dict[str, np.ndarray]


class Trial:
    """An agent and environments for it, both made anew as often as a check needs them.

    Args:
        make_agent: From a seed to an agent that is not built yet.
        make_env: From a seed to environments.
    """

    def __init__(self, make_agent: Callable[[int], Agent], make_env: Callable[[int], VectorEnv]) -> None:
        self.make_agent, self.make_env = make_agent, make_env
        #: Environment steps of the last `play`, and the observations after it.
        self.steps_made, self.last_observations = 0, None

    def agent(self, seed: int = 0, mode: str = "compiled", settings: Mapping[str, Any] = NO_SETTINGS) -> Agent:
        """A new agent, built in portable random mode, with some of its settings changed."""
        agent = self.make_agent(seed)
        agent.config = agent.config.model_copy(update=settings)
        return agent.build({"mode": mode, "rng": "portable"})

    def play(self, agent: Agent, updates: int, seed: int = 0, most_steps: int = 2_000) -> list[dict[str, Any]]:
        """Acts and learns step by step until so many updates are made.

        Args:
            agent: The agent.
            updates: How many.
            seed: Of the environments.
            most_steps: Steps of each environment after which it ends without.

        Returns:
            The metrics of each update.
        """
        metrics: list[dict[str, Any]] = []
        self.steps_made = 0
        env = self.make_env(seed)
        try:
            env.reset()
            names = range(env.num_envs)
            for _ in range(most_steps):
                observations = env.observations
                actions = agent.get_actions(observations, names)
                for row in names:  # an environment may take what lies outside, or fail with an error of its own
                    action = tree_map(operator.itemgetter(row), actions)
                    fitted(agent.action_space, action, f"environment {row}, action", within=True)
                result = env.step(actions)
                self.steps_made += env.num_envs
                for row in names:
                    pick = operator.itemgetter(row)
                    agent.observe(
                        tree_map(pick, observations),
                        tree_map(pick, actions),
                        result.rewards[row],
                        result.terminated[row],
                        result.truncated[row],
                        tree_map(pick, result.next_observations),
                        row,
                    )
                if agent.ready():  # type: ignore[attr-defined]  # all that learn from single steps have it
                    metrics.append(agent.update())
                    if len(metrics) == updates:
                        break
            self.last_observations = env.observations
        finally:
            env.close()
        return metrics


class Capture:
    """Notes the calls of an agent's graph from now on: of each method and static variant the last ones.

    Args:
        agent: It is built; it acts on the graph that learns.
    """

    def __init__(self, agent: Agent) -> None:
        self.calls: dict[tuple[str, str], list[Call]] = {}
        executor = agent.executor
        for name in dict.fromkeys(method for method, _ in executor.graphs):
            object.__setattr__(executor, name, self._noted(executor, name))

    def _noted(self, executor: GraphExecutor, name: str) -> Callable[..., Any]:
        method = getattr(executor, name)
        declared = api_methods(type(executor.root))[name]

        def call(*args: Any, as_numpy: bool = True, with_metrics: bool = False, **kwargs: Any) -> Any:
            arguments = declared.bind(executor.root, args, kwargs)
            static = {parameter: arguments.pop(parameter) for parameter in declared.static}
            given = {name: value for name, value in arguments.items() if has_leaf(value, np.ndarray)}
            noted = Call(name, tree_map(_copied, given), static, executor.state_dict())
            known = self.calls.setdefault((name, str(static)), [])
            known[:] = [*known[1 - KEPT :], noted]
            nonlocal method
            try:
                return method(*args, as_numpy=as_numpy, with_metrics=with_metrics, **kwargs)
            finally:
                if vars(executor)[name] is not call:  # a method puts generated code in its place at its first call
                    method = vars(executor)[name]
                    object.__setattr__(executor, name, call)

        return call


def _copied(leaf: Any) -> Any:
    return np.array(leaf) if isinstance(leaf, np.ndarray) else leaf


def learning_backend(wanted: str | None) -> str:
    """The backend that agents are checked on: torch, whose eager mode is the fastest, where it is installed.

    Raises:
        BackendError: None is installed that learns.
    """
    order = [wanted] if wanted is not None else ["torch", *(name for name in LEARNING if name != "torch")]
    for name in order:
        if name in backend_names() and is_installed(name):
            return name
    raise BackendError(
        "an agent is checked on a backend that learns, and none is installed",
        received=f"looked for {', '.join(order)}",
        fix=install_command("torch"),
    )
