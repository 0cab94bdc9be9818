"""The loss of deep Q-learning over sequences."""

from __future__ import annotations

from typing import Any

from rlweave import ops
from rlweave.components.losses.dqn import DQNLoss
from rlweave.components.losses.ppo import mean
from rlweave.components.returns import n_step_returns
from rlweave.graph import api, graph_fn, register
from rlweave.settings.ranges import PROBABILITY


@register("sequence_dqn_loss")
class SequenceDQNLoss(DQNLoss):
    """`DQNLoss` at every step of sequences, with n-step targets inside of them (R2D2: Kapturowski et al. 2019).

    The target of step t is `r_t + ... + g^(m-1) r_{t+m-1} + g^m Q(s_{t+m})`, m = n, or less where the episode or the
    sequence ends before: R2D2 takes n further steps instead, which are there to bootstrap only. Rewards and values are
    not rescaled.

    The priority of a sequence is `eta * max |error| + (1 - eta) * mean |error|` over its steps (R2D2, section 2.3).

    Args:
        discount: See `DQNLoss`, also for the others.
        n_step: Longest window.
        double: Next actions are chosen by `online_q_next` and valued by `target_q_next`.
        huber_delta: Errors above it count linearly; None: squared error throughout.
        reduce_components: How several components of an action are reduced.
        priority_eta: Weight of the largest error against the mean, in [0, 1].
        scope: Name within the owner.

    Raises:
        ConfigError: A setting is out of range.
    """

    #: Where the part of the steps that counts becomes that of all ranks of a training; None: there is one.
    ranks: Any = None

    def __init__(
        self,
        discount: float = 0.99,
        n_step: int = 1,
        double: bool = True,
        huber_delta: float | None = 1.0,
        reduce_components: str = "loss",
        priority_eta: float = 0.9,
        scope: str = "sequence-dqn-loss",
    ) -> None:
        super().__init__(discount, n_step, double, huber_delta, reduce_components, scope)
        PROBABILITY.check("priority_eta", priority_eta, scope)
        self.priority_eta = float(priority_eta)

    @api
    def sequence_loss(
        self,
        q_values: Any,
        actions: Any,
        rewards: Any,
        terminated: Any,
        truncated: Any,
        target_q_next: Any,
        online_q_next: Any = None,
        weights: Any = None,
        mask: Any = None,
    ) -> Any:
        """The mean loss over all steps, and a priority for each sequence.

        Args:
            q_values: Of the observations, by the network that is trained, (T, B, *action_shape, A); nested like the
                action space.
            actions: Taken ones, (T, B, *action_shape), nested alike.
            rewards: Float, (T, B), of single steps.
            terminated: Bool, (T, B): nothing comes after the step.
            truncated: Bool, (T, B): the episode was cut after the step; the target bootstraps there.
            target_q_next: Of what each step led to, by the target network, (T, B, *action_shape, A); the final
                observation where an episode ended, by the state of that episode.
            online_q_next: The same by the network that is trained; for double Q-learning only.
            weights: Importance weights of the sequences, (B,); None: 1.
            mask: Bool, (T, B): False steps (padding) count nowhere, and no window reaches into them. None: all count.

        Returns:
            The loss, a scalar: the mean over the steps that count; and priorities (B,), at least 0 and unweighted.

        Raises:
            BuildError: `online_q_next` is missing for double Q-learning, or given without.
        """
        cut = truncated if mask is None else self._cut(truncated, mask)
        chosen, targets = self._pairs(
            q_values,
            actions,
            rewards,
            target_q_next,
            online_q_next,
            lambda target, online: self._sequence_target(rewards, terminated, cut, target, online),
        )
        losses = self._losses(chosen, targets, rewards, weights)
        loss = self._mean(losses, mask)
        if mask is not None and self.ranks is not None:
            part = self._part(mask)
            loss = self._of_all_ranks(loss, part, self.ranks.mean(part))
        return loss, self._priorities(self._sizes(chosen, targets, rewards), mask)

    @graph_fn(differentiable=False, looks_ahead=True)
    def _cut(self, truncated: Any, mask: Any) -> Any:
        """Windows end before the padding, too."""
        padding_follows = ops.concat([ops.logical_not(mask[1:]), ops.zeros_like(mask[:1])], axis=0)
        return ops.logical_or(truncated, padding_follows)

    @graph_fn(differentiable=False, looks_ahead=True)
    def _sequence_target(
        self, rewards: Any, terminated: Any, truncated: Any, target_q_next: Any, online_q_next: Any
    ) -> Any:
        q_next = self._next_values(target_q_next, online_q_next, rewards)
        if len(q_next.shape) > len(rewards.shape):
            rewards, terminated, truncated = (ops.expand_dims(x, -1) for x in (rewards, terminated, truncated))
        return n_step_returns(rewards, q_next, terminated, truncated, self.discount, self.n_step)

    @graph_fn
    def _mean(self, losses: Any, mask: Any) -> Any:
        return mean(losses, mask)

    @graph_fn(differentiable=False)
    def _part(self, mask: Any) -> Any:
        """The part of the steps that counts."""
        return ops.mean(ops.astype(mask, "float32"))

    @graph_fn
    def _of_all_ranks(self, loss: Any, part: Any, of_all: Any) -> Any:
        """The loss of a rank such that the mean over ranks, by their sequences, is that over all steps that count."""
        return loss * part / ops.maximum(of_all, 1e-6)

    @graph_fn(differentiable=False)
    def _priorities(self, sizes: Any, mask: Any) -> Any:
        if mask is None:
            largest, average = ops.max(sizes, axis=0), ops.mean(sizes, axis=0)
        else:
            sizes, count = ops.where(mask, sizes, 0.0), ops.sum(ops.astype(mask, "float32"), axis=0)
            largest, average = ops.max(sizes, axis=0), ops.sum(sizes, axis=0) / ops.maximum(count, 1.0)
        return self.priority_eta * largest + (1.0 - self.priority_eta) * average
