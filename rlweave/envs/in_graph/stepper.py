"""`EnvironmentStepper`: rollouts inside the graph."""

from __future__ import annotations

from typing import Any

from rlweave import graph, ops
from rlweave.components.scopes import scope_of_path
from rlweave.envs.in_graph.environment import GraphEnvironment
from rlweave.envs.in_graph.external import ExternalEnvironment
from rlweave.errors import EnvError
from rlweave.graph import Component, api, graph_fn, shared
from rlweave.spaces import Box, Space, Tuple
from rlweave.tree import flatten_tree, tree_map


class EnvironmentStepper(Component):
    """Steps environments with a policy: a rollout is one scan in the graph, without a call from the host in between.

    With an `ExternalEnvironment` the scan is unrolled: the policy's program and a step on the host in turn, all in one
    call. Each of the T steps is compiled by itself on JAX and TensorFlow, so T should be small there.

    After RLgraph's component of that name (Schaarschmidt et al. 2019, section 4).

    Args:
        environment: The environments to step.
        policy: Has `act(observations, recurrent_state, episode_start)`, which returns actions, their log-probabilities
            (() if nothing asks for them) and the state after the step, and `env_actions(actions)`; owned elsewhere. The
            state of a recurrent one, which has a `recurrent_space`, stays here from one rollout to the next.
        steps: Length T of a rollout.
        preprocessor: Has `call(observations)`, which the policy's inputs go through. Owned elsewhere.
        scope: Name within the owner.

    Raises:
        EnvError: No positive number of steps.
    """

    def __init__(
        self,
        environment: GraphEnvironment | ExternalEnvironment,
        policy: Component,
        steps: int,
        preprocessor: Component | None = None,
        scope: str = "stepper",
    ) -> None:
        super().__init__(scope)
        if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
            raise EnvError("a rollout needs a whole number of steps", where=scope, received=f"steps={steps!r}")
        self.environment, self.policy, self.steps = environment, shared(policy), steps
        self.preprocessor = None if preprocessor is None else shared(preprocessor)
        self.recurrent_space: Space = policy.recurrent_space if hasattr(type(policy), "recurrent_space") else Tuple()

    def create_variables(self) -> None:
        """For a recurrent policy: its state in all environments, (N, ...) per leaf, and the flags of first steps."""
        envs, leaves = self.environment.num_envs, self.recurrent_space.flatten()
        if not leaves:
            return
        assert all(isinstance(leaf, Box) for leaf in leaves.values())
        self.recurrent_state = {
            path: self.variable(scope_of_path("recurrent_state", path), (envs, *leaf.feature_shape), trainable=False)
            for path, leaf in leaves.items()
        }
        self.episode_start = self.variable("episode_start", (envs,), True, trainable=False, dtype="bool")

    @api
    def rollout(self) -> Any:
        """T steps of every environment.

        Returns:
            A dict of nested arrays (T, N, ...): `observations`, `actions`, `log_probs`, and what
            `GraphEnvironment.step` returns: `next_observations`, `rewards`, `terminated`, `truncated`,
            `episode_returns`, `episode_steps`. With a recurrent policy also `episode_start` (T, N), True where
            `observations` is the first of an episode, and `initial_state`, the recurrent state before the first step,
            (N, ...).
        """
        before = self._carried()
        batch = graph.time_rank(self._unrolled() if self.environment.on_host else self._scanned())
        return {**batch, "initial_state": before[0]} if before else batch

    def _scanned(self) -> Any:
        def step(carry: Any, _: Any) -> Any:
            return carry, self.step()

        return graph.scan(step, (), length=self.steps)[1]

    def _unrolled(self) -> Any:
        """Step after step, unrolled: a loop of the graph cannot call the host."""
        return self._stacked([self.step() for _ in range(self.steps)])

    @graph_fn(returns=1, differentiable=False)
    def _stacked(self, steps: list[Any]) -> Any:
        return tree_map(lambda *rows: ops.stack(rows, axis=0), *steps)

    @api
    def step(self) -> Any:
        """One step of every environment; as `rollout`, without the time rank and `initial_state`."""
        observations = self.environment.observations()
        seen = observations if self.preprocessor is None else self.preprocessor.call(observations)
        carried = self._carried()
        actions, log_probs, after = self.policy.act(seen, *carried)
        taken = self.environment.step(self.policy.env_actions(actions))
        row = {"observations": observations, "actions": actions, **taken}
        if not isinstance(log_probs, tuple):
            row["log_probs"] = log_probs
        if not carried:
            return row
        self._keep(after, taken["terminated"], taken["truncated"])
        return {**row, "episode_start": carried[1]}

    @api
    def begin_episodes(self) -> Any:
        """Begins new episodes everywhere, and returns their first observations, nested (N, ...)."""
        if self.recurrent_space.flatten():
            self._begin()
        return self.environment.reset()

    def _carried(self) -> tuple[Any, ...]:
        """The policy's state before the step, and which environments begin an episode; () without memory."""
        if not self.recurrent_space.flatten():
            return ()
        return graph.batch_rank(self._recurrent_state()), graph.batch_rank(self._episode_start())

    @graph_fn(returns=1, differentiable=False)
    def _recurrent_state(self) -> Any:
        return self.recurrent_space.unflatten({path: variable.value for path, variable in self.recurrent_state.items()})

    @graph_fn(differentiable=False)
    def _episode_start(self) -> Any:
        return self.episode_start.value

    @graph_fn(differentiable=False)
    def _keep(self, state: Any, terminated: Any, truncated: Any) -> None:
        """Takes over the state after a step; where an episode ended the next step begins one."""
        for path, value in flatten_tree(state).items():
            self.recurrent_state[path].assign(value)
        self.episode_start.assign(ops.logical_or(terminated, truncated))

    @graph_fn(differentiable=False)
    def _begin(self) -> None:
        self.episode_start.assign(ops.ones((self.environment.num_envs,), dtype="bool"))
