"""`GraphEnvironment`: many copies of an environment as a component, stepped inside the graph."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from rlweave import graph, ops
from rlweave.errors import EnvError
from rlweave.graph import Component, api, graph_fn
from rlweave.spaces import Space

Array = Any
State = dict[str, Any]


class GraphEnvironment(Component):
    """Environments written in ops: their state is in variables, and a step is a graph function on every backend.

    A sub-class defines one step for arrays over all environments: `state_variables`, `initial`, `transition`,
    `observe`. Ended episodes are reset in the same step, as in Gymnasium's SAME_STEP mode: `step` returns
    the final observation, `observations` the one to act on next.

    Args:
        num_envs: How many environments step side by side, N.
        max_episode_steps: Steps after which an episode is truncated; None: never.
        scope: Name within the owner.

    Raises:
        EnvError: A number is not positive.
    """

    #: Its steps are operators of the graph.
    on_host = False

    #: Spaces of one observation and one action, without ranks; set by sub-classes.
    observation_space: Space
    action_space: Space

    def __init__(self, num_envs: int, max_episode_steps: int | None = None, scope: str = "environment") -> None:
        super().__init__(scope)
        for name, number in (("num_envs", num_envs), ("max_episode_steps", max_episode_steps)):
            if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 1):
                raise EnvError(f"{name} must be a whole number above zero", where=scope, received=repr(number))
        self.num_envs, self.max_episode_steps = num_envs, max_episode_steps

    # -- the environment -----------------------------------------------------------------------------------------

    @abstractmethod
    def state_variables(self) -> dict[str, tuple[tuple[int, ...], str, Any]]:
        """(feature shape, dtype, initializer) of each part of the state of one environment."""

    @abstractmethod
    def initial(self) -> State:
        """States of N episodes that begin, drawn with `ops.random` (inside a graph function): name to (N, ...)."""

    @abstractmethod
    def transition(self, state: State, actions: Any) -> tuple[State, Array, Array]:
        """One step (inside a graph function): new states, rewards (N,), and which are terminal, (N,) bool."""

    @abstractmethod
    def observe(self, state: State) -> Any:
        """Nested observations (N, ...) of states (inside a graph function)."""

    # -- the component -------------------------------------------------------------------------------------------

    def create_variables(self) -> None:
        """The state of all environments, and lengths and returns of their episodes so far."""
        self.state = {
            name: self.variable(name, (self.num_envs, *shape), initializer, trainable=False, dtype=dtype)
            for name, (shape, dtype, initializer) in self.state_variables().items()
        }
        self.episode_steps = self.variable("episode_steps", (self.num_envs,), trainable=False, dtype="int32")
        self.episode_returns = self.variable("episode_returns", (self.num_envs,), trainable=False)

    @api
    def reset(self) -> Any:
        """Begins new episodes everywhere, and returns their first observations, nested (N, ...)."""
        self._reset()
        return self.observations()

    @api
    def observations(self) -> Any:
        """The observations to act on: nested (N, ...)."""
        return graph.batch_rank(self._observations())

    @api
    def begins(self) -> Any:
        """Which of these observations are the first of their episodes, bool (N,)."""
        return graph.batch_rank(self._begins())

    @api
    def step(self, actions: Any) -> Any:
        """Steps every environment.

        Args:
            actions: Nested actions of `action_space`, (N, ...).

        Returns:
            A dict: `next_observations`, nested (N, ...), the final observation where an episode ended; `rewards`,
            `terminated` and `truncated`, (N,); `episode_returns` and `episode_steps`, (N,), of the episodes so far,
            this step included.
        """
        return graph.batch_rank(self._step(actions))

    @graph_fn
    def _reset(self) -> None:
        for name, value in self.initial().items():
            self.state[name].assign(value)
        self.episode_steps.assign(ops.zeros((self.num_envs,), dtype="int32"))
        self.episode_returns.assign(ops.zeros((self.num_envs,)))

    @graph_fn(returns=1)
    def _observations(self) -> Any:
        return self.observe({name: variable.value for name, variable in self.state.items()})

    @graph_fn
    def _begins(self) -> Any:
        return self.episode_steps.value == 0

    @graph_fn(returns=1)
    def _step(self, actions: Any) -> Any:
        state, rewards, terminated = self.transition(
            {name: variable.value for name, variable in self.state.items()}, actions
        )
        steps, returns = self.episode_steps.value + 1, self.episode_returns.value + rewards
        truncated = ops.zeros_like(terminated)
        if self.max_episode_steps is not None:
            truncated = ops.logical_and(steps >= self.max_episode_steps, ops.logical_not(terminated))
        ended = ops.logical_or(terminated, truncated)
        next_observations = self.observe(state)
        for name, begun in self.initial().items():
            mask = ops.reshape(ended, (self.num_envs, *(1 for _ in begun.shape[1:])))
            self.state[name].assign(ops.where(mask, begun, state[name]))
        self.episode_steps.assign(ops.where(ended, 0, steps))
        self.episode_returns.assign(ops.where(ended, 0.0, returns))
        return {
            "next_observations": next_observations,
            "rewards": rewards,
            "terminated": terminated,
            "truncated": truncated,
            "episode_returns": returns,
            "episode_steps": steps,
        }
