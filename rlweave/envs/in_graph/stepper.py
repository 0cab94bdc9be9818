"""`EnvironmentStepper`: rollouts inside the graph."""

from __future__ import annotations

from typing import Any

from rlweave import graph
from rlweave.envs.in_graph.environment import GraphEnvironment
from rlweave.errors import EnvError
from rlweave.graph import Component, api, shared


class EnvironmentStepper(Component):
    """Steps environments with a policy: a rollout is one scan in the graph, without a call from the host in between.

    After RLgraph's component of that name (Schaarschmidt et al. 2019, section 4).

    Args:
        environment: What is stepped.
        policy: Has `act(states)`, which returns actions and their log-probabilities, and `env_actions(actions)`;
            owned elsewhere.
        steps: Length T of a rollout.
        preprocessor: Has `call(states)`; what the policy sees of observations. Owned elsewhere.
        scope: Name within the owner.

    Raises:
        EnvError: No positive number of steps.
    """

    def __init__(
        self,
        environment: GraphEnvironment,
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

    @api
    def rollout(self) -> Any:
        """T steps of every environment.

        Returns:
            A dict of nested arrays (T, N, ...): `states`, `actions`, `log_probs`, and what `GraphEnvironment.step`
            hands out: `next_states`, `rewards`, `terminated`, `truncated`, `episode_returns`, `episode_steps`.
        """

        def step(carry: Any, _: Any) -> Any:
            return carry, self.step()

        _, batch = graph.scan(step, (), length=self.steps)
        return graph.time_rank(batch)

    @api
    def step(self) -> Any:
        """One step of every environment; as `rollout`, without the time rank."""
        states = self.environment.observations()
        seen = states if self.preprocessor is None else self.preprocessor.call(states)
        actions, log_probs = self.policy.act(seen)
        taken = self.environment.step(self.policy.env_actions(actions))
        return {"states": states, "actions": actions, "log_probs": log_probs, **taken}
