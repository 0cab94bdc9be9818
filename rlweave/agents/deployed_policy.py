"""The part of an agent's graph that leaves the house: observations of the environment to its actions, greedily."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlweave import ops
from rlweave.agents.agent import Agent
from rlweave.agents.model_files import Weights
from rlweave.components import QPolicy
from rlweave.errors import CheckpointError, ExecutionError
from rlweave.graph import Component, GraphExecutor, api, build, graph_fn
from rlweave.graph.ir import RANDOM_PATHS
from rlweave.spaces import BoolBox, FloatBox, Space

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
    def act(self, observation: Any, recurrent_state: Any = (), episode_start: Any = None) -> Any:
        """The likeliest action.

        Args:
            observation: As the environment gives it, nested (B, ...).
            recurrent_state: Of a recurrent policy, before the step, nested (B, ...).
            episode_start: Bool (B,): the observation is the first of its episode, and the state starts anew.

        Returns:
            `action`, as the environment takes it, nested (B, ...); the `parameters` of the distribution that it is the
            mode of (or the Q-values of which it has the largest), see `Joint` and `QPolicy`; and of a recurrent policy
            the `next_recurrent_state`.
        """
        parameters, after = self._parameters(observation, recurrent_state, episode_start)
        found = {"action": self._greedy(parameters), "parameters": parameters}
        return found | ({"next_recurrent_state": after} if self.policy.is_recurrent else {})

    @api(static=("explores",))
    def play(
        self,
        observation: Any,
        recurrent_state: Any = (),
        episode_start: Any = None,
        epsilon: Any = 0.0,
        explores: bool = False,
    ) -> Any:
        """The action alone, and the recurrent state after the step; what is only in the parameters is not computed.

        Args:
            observation: As in `act`.
            recurrent_state: As in `act`.
            episode_start: As in `act`.
            epsilon: Share of random actions where Q-values explore.
            explores: Static. Draws from the distribution, or explores by Q-values, as in training.
        """
        parameters, after = self._parameters(observation, recurrent_state, episode_start)
        return self._action(parameters, epsilon, explores), after

    def _action(self, parameters: Any, epsilon: Any, explores: bool) -> Any:
        policy = self.policy
        if not explores:
            return self._greedy(parameters)
        if isinstance(policy, QPolicy):
            return self._of_environment(self.agent.exploration.select(parameters, epsilon))
        return self._of_environment(policy.distribution.sample(parameters))

    def _parameters(self, observation: Any, recurrent_state: Any, episode_start: Any) -> Any:
        """What the action is chosen by, and the recurrent state after the step."""
        seen = self._observations(observation)
        features, after = self.policy.features(seen, recurrent_state, episode_start)
        return self.policy.parameters_of(features, seen), after

    def _observations(self, observation: Any) -> Any:
        observations = self._counted_from_zero(observation) if self.observation_starts else observation
        normalization = getattr(self.agent, "normalization", None)
        return observations if normalization is None else normalization.call(observations)

    def _greedy(self, parameters: Any) -> Any:
        policy = self.policy
        q_values = isinstance(policy, QPolicy)
        return self._of_environment(policy.greedy_of(parameters) if q_values else policy.distribution.mode(parameters))

    def _of_environment(self, own_actions: Any) -> Any:
        """The environment's actions for the policy's own."""
        actions = self.policy.env_actions(own_actions)
        return self._counted_from_starts(actions) if self.action_starts else actions

    @graph_fn(split=True, with_key=True)
    def _counted_from_zero(self, path: str, leaf: Any) -> Any:
        return ops.subtract(leaf, self.observation_starts[path]) if path in self.observation_starts else leaf

    @graph_fn(split=True, with_key=True)
    def _counted_from_starts(self, path: str, leaf: Any) -> Any:
        return ops.add(leaf, self.action_starts[path]) if path in self.action_starts else leaf


def build_deployed(
    agent: Agent,
    weights: Weights,
    backend: str,
    observation_starts: Mapping[str, Any] | None = None,
    action_starts: Mapping[str, Any] | None = None,
    *,
    plays: bool = False,
    seed: int = 0,
    torch_compile: bool = False,
) -> GraphExecutor:
    """The deployed policy of an agent on a backend: no critic, no optimizer, no memory.

    Args:
        agent: Any agent; nothing of it has to be built.
        weights: Those of a model of it (see `Agent.model`).
        backend: Name of the backend.
        observation_starts: See `DeployedPolicy`.
        action_starts: See `DeployedPolicy`.
        plays: Whether it is to give actions alone, explored ones, too.
        seed: Seeds what is drawn.
        torch_compile: As in `build`: its runs are functions on torch, too.

    Raises:
        CheckpointError: The weights are not those of the agent.
    """
    root = DeployedPolicy(agent.make_root(), observation_starts or {}, action_starts or {})
    spaces: dict[str, Space] = {
        "observation": agent.observation_space.with_batch_rank(),
        "epsilon": FloatBox(),
    }
    if agent.recurrent:
        spaces["recurrent_state"] = root.policy.recurrent_space.with_batch_rank()
        spaces["episode_start"] = BoolBox(add_batch_rank=True)
    executor = build(
        root,
        spaces,
        backend=backend,
        seed=seed,
        methods=("play" if plays else "act",),
        torch_compile=torch_compile,
    )
    below = len(root.agent.path) + 1
    # others, which need no inputs to be made, are there and nothing reads them
    inner = {path: path[below:] for path in executor.store.cells if path not in RANDOM_PATHS}
    needed = {path: name for path, name in inner.items() if name.split("/")[0] in agent.model_parts}
    missing = sorted(name for name in needed.values() if name not in weights)
    try:
        if missing:
            raise ExecutionError("a variable is missing", received=repr(missing[0]))
        executor.set_weights({path: weights[name] for path, name in needed.items()})
    except ExecutionError as error:
        raise CheckpointError("the weights of a model do not fit its description", received=str(error)) from error
    return executor
