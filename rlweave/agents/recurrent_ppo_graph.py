"""The component graph of PPO with recurrent networks."""

from __future__ import annotations

from typing import Any

from rlweave import graph, ops
from rlweave.agents.ppo_graph import PPOGraph
from rlweave.components import Policy, ValueFunction
from rlweave.graph import Component, api, graph_fn, shared
from rlweave.spaces import Dict, IntBox


class RecurrentActorCritic(Component):
    """Acts, and carries the recurrent states of policy and value function along with each other.

    The value function is not asked for values while acting, but its state has to be known where a rollout begins.

    Args:
        policy: A recurrent one, owned elsewhere.
        value_function: A recurrent one, owned elsewhere.
        scope: Name within the owner.
    """

    def __init__(self, policy: Policy, value_function: ValueFunction, scope: str = "actor-critic") -> None:
        super().__init__(scope)
        self.policy, self.value_function = shared(policy), shared(value_function)

    @property
    def recurrent_space(self) -> Dict:
        """Space of both states of one environment, without ranks: `policy` and `value_function`."""
        return Dict(policy=self.policy.recurrent_space, value_function=self.value_function.recurrent_space)

    @api(static=("explore",))
    def recurrent_act(self, observations: Any, recurrent_state: Any, episode_start: Any, explore: bool = True) -> Any:
        """As `Policy.recurrent_act`, with both states."""
        actions, log_probs, policy_state = self.policy.recurrent_act(
            observations, recurrent_state["policy"], episode_start, explore=explore
        )
        _, value_state = self.value_function.recur(observations, recurrent_state["value_function"], episode_start)
        return actions, log_probs, {"policy": policy_state, "value_function": value_state}

    @api
    def env_actions(self, actions: Any) -> Any:
        """Actions as the environment takes them."""
        return self.policy.env_actions(actions)


class RecurrentPPOGraph(PPOGraph):
    """PPO whose policy and value function carry a state from step to step.

    Minibatches are whole sequences: the columns (T, B) of some environments, run through from the state that each had
    when the rollout began, with resets where episodes start. So at the first minibatch of an update all states, and
    with them all probabilities, are those of acting. Gradients reach back to the beginning of the rollout.

    Two arrays of flags, which must not be confused: `episode_start` resets the state, after terminated and truncated
    steps alike; `terminated` alone says which steps have no next value. The value of the observation after each step
    is taken with the state after that step, so with that of the episode that ended where it was truncated.

    Args:
        arguments: Those of `PPOGraph`; `minibatches` divides the number of environments.
    """

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.actor_critic = RecurrentActorCritic(self.policy, self.value_function)

    @property
    def actor(self) -> Component:
        return self.actor_critic

    @property
    def recurrent_space(self) -> Dict:
        """Space of the recurrent state of one environment, without ranks."""
        return self.actor_critic.recurrent_space

    @api(static=("explore", "preprocess"))
    def act(
        self, observations: Any, recurrent_state: Any, episode_start: Any, explore: bool = True, preprocess: bool = True
    ) -> Any:
        """Actions, their log-probabilities, and the recurrent state after the step, for observations (B, ...)."""
        observations = self._normalized(observations) if preprocess else observations
        return self.actor_critic.recurrent_act(observations, recurrent_state, episode_start, explore=explore)

    @api
    def postprocess(self, batch: Any) -> Any:
        """Columns (T, B, ...) with advantages and value targets from a rollout (T, B, ...).

        `next_observations` are the true next observations: the final one where an episode ended. `initial_state` is the
        recurrent state before the first step, (B, ...).
        """
        observations, next_observations = (
            self._normalized(batch["observations"]),
            self._normalized(batch["next_observations"]),
        )
        values, next_values = self.value_function.look_ahead_values(
            observations, next_observations, batch["initial_state"]["value_function"], batch["episode_start"]
        )
        log_probs, advantages, targets = self._estimates(batch, observations, values, next_values)
        return {
            "observations": observations,
            "actions": batch["actions"],
            "log_probs": log_probs,
            "values": graph.stop_gradient(values),
            "advantages": advantages,
            "value_targets": targets,
            "episode_start": batch["episode_start"],
            "initial_state": batch["initial_state"],
        }

    def _predictions(self, rows: Any) -> Any:
        observations, start, initial = rows["observations"], rows["episode_start"], rows["initial_state"]
        log_probs, entropies = self.policy.recurrent_log_prob_and_entropy(
            observations, rows["actions"], initial["policy"], start
        )
        values, _ = self.value_function.recurrent_values(observations, initial["value_function"], start)
        return log_probs, entropies, values

    @graph_fn(spaces="_shuffle_spaces")
    def _shuffle(self, rows: Any) -> Any:
        """Random indices (M, B // M) of B environments for M minibatches."""
        size = rows.shape[1] // self.minibatches
        return ops.reshape(ops.random.permutation(rows.shape[1])[: self.minibatches * size], (self.minibatches, size))

    def _shuffle_spaces(self, rows: Any) -> Any:
        size = rows.concrete_shape({})[1] // self.minibatches
        return IntBox(shape=(self.minibatches, size))

    def _take(self, rows: Any, indices: Any) -> Any:
        sequences = {name: value for name, value in rows.items() if name != "initial_state"}
        return {
            **graph.time_rank(self._take_columns(sequences, indices)),
            "initial_state": graph.batch_rank(self._take_rows(rows["initial_state"], indices)),
        }

    @graph_fn(flatten=True, differentiable=False)
    def _take_columns(self, rows: Any, indices: Any) -> Any:
        chosen = next(iter(indices.values()))
        return {key: ops.take(leaf, chosen, axis=1) for key, leaf in rows.items()}
