"""The part of an agent's graph that leaves the house: observations of the environment to its actions, greedily."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlweave import ops
from rlweave.agents.agent import Agent
from rlweave.components import QPolicy
from rlweave.graph import Component, GraphExecutor, api, build, graph_fn
from rlweave.spaces import BoolBox

#: Where the variables of the agent are in the graph of its deployed policy.
_SCOPE = "deployed"


class DeployedPolicy(Component):
    """Normalization, policy, and what makes the environment's action of the policy's.

    Args:
        root: The root component of the agent, which owns the policy.
        observation_starts: Lowest values of integers that observations count from, by leaf; a leaf without one starts
            at 0.
        action_starts: Likewise for actions.
    """

    def __init__(
        self,
        root: Any,
        observation_starts: Mapping[str, Any],
        action_starts: Mapping[str, Any],
        scope: str = _SCOPE,
    ) -> None:
        super().__init__(scope)
        self.agent = root
        self.observation_starts, self.action_starts = dict(observation_starts), dict(action_starts)

    @property
    def policy(self) -> Any:
        """The policy, or Q policy."""
        return self.agent.policy

    @api
    def act(self, observation: Any) -> Any:
        """The likeliest action.

        Args:
            observation: As the environment gives it, nested (B, ...).

        Returns:
            `action`, as the environment takes it, nested (B, ...), and the `parameters` of the distribution that it is
            the mode of (or the Q-values of which it has the largest), see `Joint` and `QPolicy`.
        """
        states = self._states(observation)
        policy = self.policy
        parameters = policy.q_values(states) if isinstance(policy, QPolicy) else policy.parameters(states)
        return {"action": self._greedy(parameters), "parameters": parameters}

    @api
    def act_recurrently(self, observation: Any, recurrent_state: Any, episode_start: Any) -> Any:
        """As `act`, by a recurrent policy.

        Args:
            observation: As the environment gives it, nested (B, ...).
            recurrent_state: Before the step, nested (B, ...).
            episode_start: Bool (B,): the observation is the first of its episode, and the state starts anew.

        Returns:
            As `act`, and the `next_recurrent_state`.
        """
        states = self._states(observation)
        policy = self.policy
        if isinstance(policy, QPolicy):
            parameters, after = policy.recurrent_q_values(states, recurrent_state, episode_start)
        else:
            parameters, after = policy.recurrent_parameters(states, recurrent_state, episode_start)
        return {"action": self._greedy(parameters), "parameters": parameters, "next_recurrent_state": after}

    def _states(self, observation: Any) -> Any:
        states = self._counted_from_zero(observation) if self.observation_starts else observation
        normalization = getattr(self.agent, "normalization", None)
        return states if normalization is None else normalization.call(states)

    def _greedy(self, parameters: Any) -> Any:
        policy = self.policy
        q_values = isinstance(policy, QPolicy)
        actions = policy.greedy_of(parameters) if q_values else policy.distribution.mode(parameters)
        actions = policy.env_actions(actions)
        return self._counted_from_starts(actions) if self.action_starts else actions

    @graph_fn(split=True, with_key=True)
    def _counted_from_zero(self, path: str, leaf: Any) -> Any:
        return ops.subtract(leaf, self.observation_starts[path]) if path in self.observation_starts else leaf

    @graph_fn(split=True, with_key=True)
    def _counted_from_starts(self, path: str, leaf: Any) -> Any:
        return ops.add(leaf, self.action_starts[path]) if path in self.action_starts else leaf


def deployed_method(agent: Agent) -> str:
    """The API method of the deployed policy of an agent."""
    return "act_recurrently" if agent.recurrent else "act"


def build_deployed(
    agent: Agent, backend: str, observation_starts: Mapping[str, Any], action_starts: Mapping[str, Any]
) -> GraphExecutor:
    """The deployed policy of an agent, with its present weights, on a backend.

    Args:
        agent: Any agent.
        backend: Name of the backend; its runs are functions.
        observation_starts: See `DeployedPolicy`.
        action_starts: See `DeployedPolicy`.
    """
    root = DeployedPolicy(agent.make_root(), observation_starts, action_starts)
    spaces = {"observation": agent.state_space.with_batch_rank()}
    if agent.recurrent:
        spaces["recurrent_state"] = root.policy.recurrent_space.with_batch_rank()
        spaces["episode_start"] = BoolBox(add_batch_rank=True)
    executor = build(root, spaces, backend=backend, methods=(deployed_method(agent),), torch_compile=backend == "torch")
    weights = {f"{_SCOPE}/{path}": value for path, value in agent.actor.get_weights().items()}
    executor.set_weights({path: weights[path] for path in executor.store.cells if path in weights})
    return executor
