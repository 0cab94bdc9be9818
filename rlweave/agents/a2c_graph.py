"""The component graph of advantage actor-critic, with and without recurrent networks."""

from __future__ import annotations

from typing import Any

from rlweave import graph
from rlweave.agents.ppo_graph import PPOGraph
from rlweave.agents.recurrent_ppo_graph import RecurrentPPOGraph
from rlweave.graph import api


class A2CGraph(PPOGraph):
    """PPO's networks, advantages and optimizer; one optimizer step on all of a rollout, with another loss.

    Args:
        arguments: Those of `PPOGraph`, with an `ActorCriticLoss`, one epoch and one minibatch.
    """

    @api
    def update(self, batch: Any) -> None:
        """Learns from a rollout (T, B, ...): one optimizer step."""
        rows = self.postprocess(batch)
        self._report_fit(rows["value_targets"], rows["values"])
        self._step(rows)
        if self.normalization is not None:
            self.normalization.update(batch["observations"])

    @api
    def rollout_gradients(self, batch: Any) -> Any:
        """Gradients of the loss on a rollout (T, B, ...), by variable path; changes nothing."""
        return self.gradients(self.postprocess(batch))

    def _minibatch_loss(self, rows: Any) -> Any:
        log_probs, entropies, values = self._predictions(rows)
        loss, metrics = self.loss.loss(log_probs, rows["advantages"], values, rows["value_targets"], entropies)
        graph.metrics(metrics)
        return loss


class RecurrentA2CGraph(A2CGraph, RecurrentPPOGraph):
    """The same with networks that carry a state from step to step: whole sequences, as in `RecurrentPPOGraph`."""
