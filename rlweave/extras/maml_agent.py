"""Model-agnostic meta-learning (Finn et al. 2017, arXiv:1703.03400), of regression and of reinforcement learning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np

from rlweave import graph, ops
from rlweave.agents.actor_critic_graph import ReportsDivergence
from rlweave.agents.agent import AgentConfig, Batch, GivesGradients, Metrics
from rlweave.agents.networks import IMAGE_NETWORK_HELP
from rlweave.components import Policy
from rlweave.components.network import mlp
from rlweave.errors import ConfigError
from rlweave.extras.adaptation_losses import SquaredErrorLoss, SurrogateLoss
from rlweave.extras.linear_baseline import LinearBaseline
from rlweave.extras.policy_variants import PolicyVariants
from rlweave.graph import Component, api, graph_fn
from rlweave.graph.assembly import InputSpace
from rlweave.settings.config import setting
from rlweave.settings.ranges import FINITE, NOT_NEGATIVE, POSITIVE
from rlweave.spaces import BoolBox, Dict, FloatBox, Space
from rlweave.tree import tree_leaves


class MAMLConfig(AgentConfig):
    """Settings of MAML."""

    problem: Literal["reinforcement", "regression"] = setting(
        "reinforcement", "what a task is: an environment to act in, or a function to regress on"
    )
    default_network: ClassVar[list[dict[str, Any]]] = mlp([64, 64], "tanh")
    network: list[dict[str, Any]] | None = setting(
        None, "layers of the policy; null: two dense tanh layers of 64, or none behind the default image network"
    )
    image_network: list[dict[str, Any]] | None = setting(None, IMAGE_NETWORK_HELP)
    initial_log_std: float = setting(0.0, "logarithm of the standard deviation of box actions, at first", within=FINITE)
    shots: int = setting(
        400, "steps (or points) of each task to adapt to, and as many to learn from after that", ge=2, unit="steps"
    )
    inner_lr: float = setting(0.1, "step size of the adaptation", gt=0)
    inner_steps: int = setting(1, "gradient steps of the adaptation", ge=1)
    first_order: bool = setting(False, "leave out second derivatives")
    optimizer: dict[str, Any] = setting({"type": "adam"}, "optimizer spec, learning rate apart")
    lr: float | dict[str, Any] = setting(
        1e-3, "learning rate of the outer loop, or a schedule over optimizer steps", within=NOT_NEGATIVE
    )
    max_grad_norm: float | None = setting(
        None, "global norm that meta-gradients are clipped to; null: not clipped", within=POSITIVE
    )
    epochs: int = setting(1, "optimizer steps on each batch of tasks", ge=1)
    clip: float = setting(0.2, "clip range of the outer loop's probability ratio (reinforcement only)", gt=0)
    discount: float = setting(0.99, "discount of future rewards (reinforcement only)", ge=0, le=1)


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
        self.policy, self.adapted, self.optimizer = policy, PolicyVariants(policy, "adapted"), optimizer
        self.inner_lr, self.inner_steps, self.first_order, self.epochs = inner_lr, inner_steps, first_order, epochs

    @api(static=("explore",))
    def act(self, observations: Any, explore: bool = True) -> Any:
        """Actions of the policy before adaptation, and their log-probabilities, for observations (B, ...)."""
        return self.policy.act(observations, explore=explore)

    @api(static=("explore",))
    def act_adapted(self, observations: Any, explore: bool = True) -> Any:
        """Actions of the policies that `adapt` made, each for the observation of its task, (N, ...)."""
        return self.adapted.act(observations, explore=explore)

    @api
    def adapt(self, support: Any) -> None:
        """Adapts the policy to each of N tasks."""
        self.adapted.assign(graph.vmap(self._adapted, in_axes=1)(support))

    @api
    def update(self, batch: Any) -> None:
        """Descends the loss of the adapted policies, through their adaptation."""
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
        """The loss of the inner loop, as a function of weights by path; rows are nested (T, ...)."""
        raise NotImplementedError

    def query_loss(self, weights: Any, rows: Any) -> Any:
        """The loss of the outer loop, of adapted weights."""
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
    """MAML for regression: rows are "observations" and "targets", and the policy's likeliest actions are predictions.

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
        predictions = graph.substitute(self.policy, weights).mode(rows["observations"])
        return self.loss.loss(predictions, self.policy.own_actions(rows["targets"]))

    def query_loss(self, weights: Any, rows: Any) -> Any:
        """The squared error."""
        return self.support_loss(weights, rows)


class ReinforcementMAMLGraph(MAMLGraph, ReportsDivergence):
    """MAML for reinforcement learning: rows are "observations", "actions", "log_probs" and "advantages".

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
            rollout["observations"], rollout["rewards"], rollout["terminated"], rollout["truncated"]
        )
        kept = {name: rollout[name] for name in ("observations", "actions", "log_probs")}
        return {**kept, "advantages": advantages}

    @api
    def update(self, batch: Any) -> None:
        """Descends the loss of the adapted policies, and reports how far the policy was from the one that acted."""
        graph.metric("approx_kl", self._mean(graph.vmap(self._divergence_in, in_axes=1)(batch["support"])))
        super().update(batch)

    def _divergence_in(self, rows: Any) -> Any:
        log_probs, _ = self.policy.log_prob_and_entropy(rows["observations"], rows["actions"])
        return self._divergence(log_probs, rows["log_probs"])

    def support_loss(self, weights: Any, rows: Any) -> Any:
        """The surrogate of the policy gradient."""
        return self._surrogate(self.inner_loss, weights, rows)

    def query_loss(self, weights: Any, rows: Any) -> Any:
        """The surrogate of the policy gradient."""
        return self._surrogate(self.outer_loss, weights, rows)

    def _surrogate(self, loss: SurrogateLoss, weights: Any, rows: Any) -> Any:
        log_probs, _ = graph.substitute(self.policy, weights).log_prob_and_entropy(
            rows["observations"], rows["actions"]
        )
        return loss.loss(log_probs, rows["log_probs"], rows["advantages"])


class MAML(GivesGradients):
    """MAML for any observations and actions.

    Regression is seen as acting: the observation is the input, the likeliest action the prediction.

    Args:
        observation_space: Space of one observation.
        action_space: Space of one action.
        config: `MAMLConfig` or its data.
        tasks: How many policies are adapted at a time, see `adapt`.
        backend: "torch" or "jax"; also acting needs gradients here, in order to adapt.
        seed: As in `Agent`.

    Raises:
        ConfigError: There is a recurrent layer, or a backend without the gradients that adaptation needs.
    """

    name: ClassVar[str] = "maml"
    no_single_steps: ClassVar[tuple[str, str] | None] = (
        "meta-learning needs batches of tasks, before and after adaptation",
        "collect rollouts with act(), adapt() and act_adapted(), as rlweave.extras.maml does; pass them to update()",
    )
    no_recurrent_networks: ClassVar[tuple[str, str] | None] = (
        "recurrent networks cannot be adapted here",
        "use layers without a state, such as dense, or an algorithm that takes recurrent networks, such as PPO",
    )
    config_class = MAMLConfig
    config: MAMLConfig

    def __init__(
        self,
        observation_space: Space,
        action_space: Space,
        config: MAMLConfig | Mapping[str, Any] | None = None,
        *,
        tasks: int = 1,
        backend: str = "jax",
        seed: int = 0,
    ) -> None:
        super().__init__(observation_space, action_space, config, backend=backend, seed=seed)
        self.tasks = tasks
        for where, name in (("backend", backend), ("agent.acting_backend", self.config.acting_backend)):
            if name not in ("torch", "jax", None):
                raise ConfigError(
                    "adaptation takes gradients, and learning those of gradients, which this backend has not",
                    where=where,
                    received=repr(name),
                    fix="use torch or jax",
                )

    @property
    def acting_methods(self) -> tuple[str, ...]:  # type: ignore[override]
        """API methods that an acting graph needs."""
        common = ("act", "act_adapted", "adapt")
        return common if self.config.problem == "regression" else (*common, "postprocess")

    def arguments(self) -> dict[str, Any]:
        return {"tasks": self.tasks}

    def make_root(self) -> MAMLGraph:
        config = self.config
        common: dict[str, Any] = {
            "policy": Policy(
                **self.encoder_arguments(),
                action_space=self.action_space,
                initial_log_std=config.initial_log_std,
                mask_leaf=config.mask_leaf,
            ),
            "optimizer": Component.from_spec(
                {"max_grad_norm": config.max_grad_norm, **config.optimizer, "learning_rate": config.lr}
            ),
            "inner_lr": config.inner_lr,
            "inner_steps": config.inner_steps,
            "first_order": config.first_order,
            "epochs": config.epochs,
        }
        if config.problem == "regression":
            return RegressionMAMLGraph(SquaredErrorLoss(), **common)
        return ReinforcementMAMLGraph(
            inner_loss=SurrogateLoss(),
            outer_loss=SurrogateLoss(config.clip),
            baseline=LinearBaseline(config.discount),
            **common,
        )

    def rows_space(self) -> Dict:
        """Space of the support or query rows of one task, without ranks."""
        if self.config.problem == "regression":
            return Dict(observations=self.observation_space, targets=self.action_space)
        return Dict(
            observations=self.observation_space,
            actions=self.own_action_space,
            log_probs=FloatBox(),
            advantages=FloatBox(),
        )

    def input_spaces(self) -> dict[str, InputSpace]:
        shots = self.config.shots
        rows = self.rows_space().with_time_rank(shots)
        spaces = self.acting_spaces() | {
            "act_adapted.observations": self.observation_space.with_batch_rank(self.tasks),
            "support": rows.with_batch_rank(self.tasks),
            "batch": Dict(support=rows.with_batch_rank(), query=rows.with_batch_rank()),
            "gradients": lambda root: root.policy.variables(),
        }
        if self.config.problem == "reinforcement":
            rollout = Dict(
                observations=self.observation_space,
                actions=self.own_action_space,
                log_probs=FloatBox(),
                rewards=FloatBox(),
                terminated=BoolBox(),
                truncated=BoolBox(),
            )
            spaces["rollout"] = rollout.with_batch_rank(self.tasks).with_time_rank(shots)
        return spaces

    # -- acting --------------------------------------------------------------------------------------------------

    def choose_actions(
        self, observations: Any, carried: dict[str, Any], explore: bool, preprocess: bool
    ) -> tuple[Any, dict[str, Any], Any]:
        """By the policy before adaptation; log-probabilities `log_probs` (B,) are stored."""
        actions, log_probs, after = self.acting.act(observations, explore=explore)
        return actions, {"log_probs": log_probs}, after

    def act_adapted(self, observations: Any, explore: bool = True) -> tuple[Any, dict[str, Any], Any]:
        """As `act`, by the adapted policies, each on the observation (N, ...) of its task."""
        self.check_masks(observations)
        actions, log_probs = self.acting.act_adapted(observations, explore=explore)
        return actions, {"log_probs": log_probs}, ()

    def adapt(self, support: Batch) -> None:
        """Adapts the policy to each of `tasks` tasks; from now on `act_adapted` acts so.

        Args:
            support: Rows (T, N, ...) as `rows_space` says, T being `shots`.
        """
        self.acting.adapt(support)

    # -- learning ------------------------------------------------------------------------------------------------

    def learn(self, batch: Batch) -> Metrics:
        """Learns from a batch of tasks.

        Args:
            batch: "support" and "query", rows (T, N, ...) each as `rows_space` says, T being `shots`.
        """
        _, metrics = self.executor.update(batch, with_metrics=True)
        self._copy_to_acting()
        rows = _rows(batch["support"]) + _rows(batch["query"])
        counts = {"gradient_steps": self.config.epochs, "trained_samples": self.config.epochs * rows}
        return {**self._checked(metrics), **counts}

    def losses(self, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
        """The loss of each task's query before and after adaptation, (N,) twice."""
        before, after = self.executor.losses(batch)
        return before, after

    def postprocess(self, batch: Batch) -> Batch:
        """Rows (T, N, ...) of a rollout of N tasks; those of a regression as they are."""
        return batch if self.config.problem == "regression" else self.acting.postprocess(batch)


def _rows(structure: Any) -> int:
    """The number of rows in nested arrays (T, N, ...), T of each of N tasks."""
    first = tree_leaves(structure)[0]
    return int(first.shape[0] * first.shape[1])
