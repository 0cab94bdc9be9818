"""The component graph of model-agnostic meta-learning."""

from __future__ import annotations

from typing import Any

from rlweave import graph, ops
from rlweave.components import LinearBaseline, Policy, Population, SquaredErrorLoss, SurrogateLoss
from rlweave.graph import Component, api, graph_fn


class MAMLGraph(Component):
    """Weights from which a step or two of gradient descent lead to a policy for a task.

    Batches hold, of each task, what is adapted to ("support") and what is learned from after that ("query"): nested
    (T, N, ...), T items of each of N tasks.

    Args:
        policy: The policy that is adapted.
        optimizer: Moves its weights.
        inner_lr: Step size of the adaptation.
        inner_steps: Gradient steps of the adaptation.
        first_order: Leaves out second derivatives: the gradients of the inner steps count as constants.
        epochs: Optimizer steps on each batch.
    """

    def __init__(
        self,
        policy: Policy,
        optimizer: Component,
        inner_lr: float,
        inner_steps: int = 1,
        first_order: bool = False,
        epochs: int = 1,
        scope: str = "maml",
    ) -> None:
        super().__init__(scope)
        self.policy, self.population, self.optimizer = policy, Population(policy), optimizer
        self.inner_lr, self.inner_steps, self.first_order, self.epochs = inner_lr, inner_steps, first_order, epochs

    @api(static=("explore",))
    def act(self, states: Any, explore: bool = True) -> Any:
        """Actions of the policy before adaptation, and their log-probabilities, for observations (B, ...)."""
        return self.policy.act(states, explore=explore)

    @api(static=("explore",))
    def act_adapted(self, states: Any, explore: bool = True) -> Any:
        """Actions of the policies that `adapt` made, each for the observation of its task, (N, ...)."""
        return self.population.act(states, explore=explore)

    @api
    def adapt(self, support: Any) -> None:
        """Makes a policy for each of N tasks."""
        self.population.assign(graph.vmap(self._adapted, in_axes=1)(support))

    @api
    def update(self, batch: Any) -> None:
        """Steps down the loss of the adapted policies, through their adaptation."""
        graph.repeat(self.epochs, lambda: self._step(batch))

    @api
    def losses(self, batch: Any) -> Any:
        """The loss of each task's query before and after adaptation, (N,) twice."""

        def of_task(support: Any, query: Any) -> Any:
            before = self.query_loss(self.policy.variables().read(), query)
            return before, self.query_loss(self._adapted(support), query)

        return graph.vmap(of_task, in_axes=1)(batch["support"], batch["query"])

    @api
    def gradients(self, batch: Any) -> Any:
        """The meta-gradient, by variable path."""
        return graph.gradients(self._meta_loss(batch), self.policy.variables(), allow_unused=True)

    @api
    def apply(self, gradients: Any) -> None:
        """One optimizer step with given gradients, by variable path."""
        graph.metrics(self.optimizer.apply(gradients, self.policy.variables()))

    def _step(self, batch: Any) -> None:
        graph.metrics(self.optimizer.step(self._meta_loss(batch), self.policy.variables()))

    def _meta_loss(self, batch: Any) -> Any:
        """The mean of the adapted policies' losses over tasks (Finn et al. 2017, algorithms 2 and 3, line 10)."""
        before, after = self.losses(batch)
        graph.metric("unadapted_loss", self._mean(before))
        loss = self._mean(after)
        graph.metric("adapted_loss", loss)
        return loss

    def _adapted(self, support: Any) -> Any:
        """Weights by path after the steps of the inner loop (line 6)."""
        weights = self.policy.variables().read()
        for _ in range(self.inner_steps):
            # a regression learns the mean alone, and nothing of the policy's spread
            gradients = graph.gradients(self.support_loss(weights, support), weights, allow_unused=True)
            weights = self._descend(weights, gradients)
        return weights

    def support_loss(self, weights: Any, rows: Any) -> Any:
        """What one task is adapted by, as a function of weights by path; rows are nested (T, ...)."""
        raise NotImplementedError

    def query_loss(self, weights: Any, rows: Any) -> Any:
        """What adapted weights are measured by."""
        raise NotImplementedError

    @graph_fn
    def _descend(self, weights: Any, gradients: Any) -> Any:
        if self.first_order:
            gradients = {path: ops.stop_gradient(gradient) for path, gradient in gradients.items()}
        return {path: value - self.inner_lr * gradients[path] for path, value in weights.items()}

    @graph_fn
    def _mean(self, losses: Any) -> Any:
        return ops.mean(losses)


class RegressionMAMLGraph(MAMLGraph):
    """MAML for regression: rows are "states" and "targets", and the policy's likeliest actions are predictions.

    Errors are those of the policy's own numbers: where targets are bounded on both sides, [-1, 1] is their range.

    Args:
        loss: The loss of predictions.
        arguments: Those of `MAMLGraph`.
    """

    def __init__(self, loss: SquaredErrorLoss, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.loss = loss

    def support_loss(self, weights: Any, rows: Any) -> Any:
        """The squared error."""
        predictions = graph.substitute(self.policy, weights).mode(rows["states"])
        return self.loss.loss(predictions, self.policy.own_actions(rows["targets"]))

    def query_loss(self, weights: Any, rows: Any) -> Any:
        """The squared error."""
        return self.support_loss(weights, rows)


class ReinforcementMAMLGraph(MAMLGraph):
    """MAML for reinforcement learning: rows are "states", "actions", "log_probs" and "advantages".

    Args:
        inner_loss: The surrogate of the inner loop.
        outer_loss: The surrogate of the outer loop.
        baseline: Makes advantages.
        arguments: Those of `MAMLGraph`.
    """

    def __init__(
        self, inner_loss: SurrogateLoss, outer_loss: SurrogateLoss, baseline: LinearBaseline, **arguments: Any
    ) -> None:
        super().__init__(**arguments)
        self.inner_loss, self.outer_loss, self.baseline = inner_loss, outer_loss, baseline

    @api
    def postprocess(self, rollout: Any) -> Any:
        """Rows (T, N, ...) with advantages, of a rollout (T, N, ...) of N tasks."""
        advantages = self.baseline.advantages(
            rollout["states"], rollout["rewards"], rollout["terminated"], rollout["truncated"]
        )
        kept = {name: rollout[name] for name in ("states", "actions", "log_probs")}
        return {**kept, "advantages": advantages}

    def support_loss(self, weights: Any, rows: Any) -> Any:
        """The surrogate of the policy gradient."""
        return self._surrogate(self.inner_loss, weights, rows)

    def query_loss(self, weights: Any, rows: Any) -> Any:
        """The surrogate of the policy gradient."""
        return self._surrogate(self.outer_loss, weights, rows)

    def _surrogate(self, loss: SurrogateLoss, weights: Any, rows: Any) -> Any:
        log_probs, _ = graph.substitute(self.policy, weights).log_prob_and_entropy(rows["states"], rows["actions"])
        return loss.loss(log_probs, rows["log_probs"], rows["advantages"])
