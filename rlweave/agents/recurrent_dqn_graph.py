"""The component graph of DQN with recurrent networks (R2D2: Kapturowski et al. 2019, stored state with burn-in)."""

from __future__ import annotations

from typing import Any

from rlweave import graph, ops
from rlweave.agents.dqn_graph import DQNGraph
from rlweave.components import SequenceDQNLoss
from rlweave.graph import api, graph_fn
from rlweave.spaces import Space


class RecurrentDQNGraph(DQNGraph):
    """DQN whose Q network carries a state from step to step; its memory holds sequences.

    Each sequence has the state that the agent acted from at its first step. Both networks start there and run through
    the `burn_in` steps without a gradient, so that their states become those of the present weights; what follows is
    trained on. (The stored state is the online network's also for the target network, as in the paper.)

    Args:
        burn_in: Steps of a sequence that are not trained on.
        arguments: Those of `DQNGraph`; the loss is a `SequenceDQNLoss`.
    """

    loss: SequenceDQNLoss

    def __init__(self, burn_in: int, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.burn_in = burn_in

    @property
    def recurrent_space(self) -> Space:
        """Space of the recurrent state of one environment, without ranks."""
        space: Space = self.policy.recurrent_space
        return space

    @api
    def act(self, observations: Any, epsilon: Any, recurrent_state: Any, episode_start: Any) -> Any:
        """Epsilon-greedy actions for observations (B, ...), and the recurrent state after the step."""
        q_values, after = self.policy.recurrent_q_values(observations, recurrent_state, episode_start)
        return self.exploration.select(q_values, epsilon), after

    @api
    def act_greedily(self, observations: Any, recurrent_state: Any, episode_start: Any) -> Any:
        """Actions of the largest Q value, and the recurrent state after the step."""
        q_values, after = self.policy.recurrent_q_values(observations, recurrent_state, episode_start)
        return self.policy.greedy_of(q_values), after

    @api
    def q_values(self, observations: Any, recurrent_state: Any, episode_start: Any) -> Any:
        """Q values (B, ..., actions), and the recurrent state after the step."""
        return self.policy.recurrent_q_values(observations, recurrent_state, episode_start)

    def _loss(self, records: Any, weights: Any) -> Any:
        sequences = {name: value for name, value in records.items() if name != "initial_state"}
        observations = self._burned_in(sequences, records["initial_state"])
        steps = graph.time_rank(self._trained_steps(sequences))
        start, state, target_state = steps["episode_start"], *observations
        if self.loss.double:
            q_values, online_q_next = self.policy.look_ahead_q_values(
                steps["observations"], steps["next_observations"], state, start
            )
            online_q_next = graph.stop_gradient(online_q_next)
        else:
            (q_values, _), online_q_next = self.policy.recurrent_q_values(steps["observations"], state, start), None
        _, target_q_next = self.target_policy.look_ahead_q_values(
            steps["observations"], steps["next_observations"], target_state, start
        )
        return self.loss.sequence_loss(
            q_values,
            steps["actions"],
            steps["rewards"],
            steps["terminated"],
            steps["truncated"],
            target_q_next,
            online_q_next,
            weights,
            steps["mask"],
        )

    def _burned_in(self, sequences: Any, initial_state: Any) -> tuple[Any, Any]:
        """States of policy and target policy (B, ...) before the steps that are trained on."""
        if not self.burn_in:
            return initial_state, initial_state
        names = ("observations", "episode_start")
        steps = graph.time_rank(self._burn_in_steps({name: sequences[name] for name in names}))
        after = [
            policy.recur(steps["observations"], initial_state, steps["episode_start"])[1]
            for policy in (self.policy, self.target_policy)
        ]
        return graph.stop_gradient(after[0]), graph.stop_gradient(after[1])

    @graph_fn(flatten=True, differentiable=False)
    def _burn_in_steps(self, sequences: Any) -> Any:
        return {path: _time_major(leaf[:, : self.burn_in]) for path, leaf in sequences.items()}

    @graph_fn(flatten=True, differentiable=False)
    def _trained_steps(self, sequences: Any) -> Any:
        return {path: _time_major(leaf[:, self.burn_in :]) for path, leaf in sequences.items()}


def _time_major(x: Any) -> Any:
    """(B, T, ...) to (T, B, ...)."""
    return ops.permute_dims(x, (1, 0, *range(2, len(x.shape))))
