"""The component graph of DQN: acting and learning."""

from __future__ import annotations

from typing import Any

from rlweave import graph
from rlweave.agents.replay_agent import ReplayGraph
from rlweave.components import DQNLoss, EpsilonGreedy
from rlweave.graph import Component, api


class DQNGraph(ReplayGraph):
    """The component graph of DQN.

    Args:
        policy: The Q network.
        loss: The DQN loss.
        optimizer: Moves the Q network.
        exploration: Epsilon-greedy choice.
        memory: See `ReplayGraph`.
        prefetch: See `ReplayGraph`.
    """

    def __init__(
        self,
        policy: Component,
        loss: DQNLoss,
        optimizer: Component,
        exploration: EpsilonGreedy,
        memory: Component | None = None,
        prefetch: bool = False,
        scope: str = "dqn",
    ) -> None:
        super().__init__(memory, prefetch, scope)
        self.policy, self.loss, self.optimizer = policy, loss, optimizer
        self.exploration = exploration
        self.target_policy = policy.copy(scope="target-policy", trainable=False)

    @api
    def act(self, observations: Any, epsilon: Any) -> Any:
        """Epsilon-greedy actions for observations (B, ...)."""
        return self.exploration.select(self.policy.q_values(observations), epsilon)

    @api
    def act_greedily(self, observations: Any) -> Any:
        """Actions of the largest Q value."""
        return self.policy.greedy(observations)

    @api
    def q_values(self, observations: Any) -> Any:
        """Q values (B, ..., actions)."""
        return self.policy.q_values(observations)

    @api
    def gradients(self, records: Any) -> Any:
        """Gradients of the loss on transitions, by variable path."""
        loss, _ = self._loss(records, None)
        return graph.gradients(loss, self.policy.variables())

    @api
    def apply(self, gradients: Any) -> None:
        """One optimizer step with given gradients, by variable path."""
        graph.metrics(self.optimizer.apply(gradients, self.policy.variables()))

    @api
    def sync_target(self) -> None:
        """Copies the Q network to the target network."""
        self.target_policy.sync(self.policy)

    def learn(self, records: Any, weights: Any) -> Any:
        loss, td_errors = self._loss(records, weights)
        graph.metrics(self.optimizer.step(loss, self.policy.variables()))
        return loss, td_errors

    def _loss(self, records: Any, weights: Any) -> Any:
        return self.loss.td_loss(
            self.policy.q_values(records["observations"]),
            records["actions"],
            records["rewards"],
            records["terminated"],
            self.target_policy.q_values(records["next_observations"]),
            graph.stop_gradient(self.policy.q_values(records["next_observations"])) if self.loss.double else None,
            weights,
            records["discounts"],
        )
