"""Model-agnostic meta-learning (Finn et al. 2017, arXiv:1703.03400), of regression and of reinforcement learning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np

from rlweave.agents.agent import Agent, AgentConfig, Batch, Metrics
from rlweave.agents.maml_graph import MAMLGraph, RegressionMAMLGraph, ReinforcementMAMLGraph
from rlweave.agents.networks import IMAGE_NETWORK_HELP
from rlweave.agents.trajectories import add_axis, first_row, is_single
from rlweave.components import LinearBaseline, Policy, SquaredErrorLoss, SurrogateLoss
from rlweave.components.network import mlp
from rlweave.errors import ConfigError, ExecutionError
from rlweave.graph import Component
from rlweave.graph.building import InputSpace
from rlweave.settings.config import setting
from rlweave.settings.ranges import FINITE, NOT_NEGATIVE, POSITIVE
from rlweave.spaces import BoolBox, Dict, FloatBox, Space


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


class MAML(Agent):
    """MAML for any observations and actions.

    Regression is seen as acting: the observation is the input, the likeliest action the prediction.

    Args:
        state_space: Space of one observation.
        action_space: Space of one action.
        config: `MAMLConfig` or its data.
        tasks: How many policies are adapted at a time, see `adapt`.
        backend: "torch" or "jax"; also acting needs gradients here, in order to adapt.
        seed: As in `Agent`.

    Raises:
        ConfigError: There is a recurrent layer, or a backend without the gradients that adaptation needs.
    """

    name: ClassVar[str] = "maml"
    config_class = MAMLConfig
    config: MAMLConfig

    def __init__(
        self,
        state_space: Space,
        action_space: Space,
        config: MAMLConfig | Mapping[str, Any] | None = None,
        *,
        tasks: int = 1,
        backend: str = "jax",
        seed: int = 0,
    ) -> None:
        super().__init__(state_space, action_space, config, backend=backend, seed=seed)
        self.tasks = tasks
        if self.recurrent:
            raise ConfigError(
                "recurrent networks cannot be adapted here",
                where="network",
                received=str(self.config.network),
                fix="use layers without a state, such as dense",
            )
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
                config.network,
                self.action_space,
                image_network=config.image_network or None,
                state_space=self.state_space,
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
        """Space of what one task is adapted to or learned from, without ranks."""
        if self.config.problem == "regression":
            return Dict(states=self.state_space, targets=self.action_space)
        return Dict(states=self.state_space, actions=self.own_action_space, log_probs=FloatBox(), advantages=FloatBox())

    def input_spaces(self) -> dict[str, InputSpace]:
        shots = self.config.shots
        rows = self.rows_space().with_time_rank(shots)
        spaces: dict[str, InputSpace] = {
            "states": self.state_space.with_batch_rank(),
            "act_adapted.states": self.state_space.with_batch_rank(self.tasks),
            "support": rows.with_batch_rank(self.tasks),
            "batch": Dict(support=rows.with_batch_rank(), query=rows.with_batch_rank()),
            "gradients": lambda root: root.policy.variables(),
        }
        if self.config.problem == "reinforcement":
            rollout = Dict(
                states=self.state_space,
                actions=self.own_action_space,
                log_probs=FloatBox(),
                rewards=FloatBox(),
                terminated=BoolBox(),
                truncated=BoolBox(),
            )
            spaces["rollout"] = rollout.with_batch_rank(self.tasks).with_time_rank(shots)
        return spaces

    # -- acting --------------------------------------------------------------------------------------------------

    def get_actions(
        self, states: Any, env_ids: Sequence[Any] | None = None, explore: bool = True, preprocess: bool = True
    ) -> Any:
        """Actions of the policy before adaptation."""
        single = is_single(self.state_space, states)
        actions, _ = self.act(add_axis(states) if single else states, explore)
        actions = self.env_actions(actions)
        return first_row(actions) if single else actions

    def act(self, states: Any, explore: bool = True) -> tuple[Any, np.ndarray]:
        """Actions (B, ...) of the policy before adaptation, and their log-probabilities (B,)."""
        self.check_masks(states)
        actions, log_probs = self.actor.act(states, explore=explore)
        return actions, log_probs

    def act_adapted(self, states: Any, explore: bool = True) -> tuple[Any, np.ndarray]:
        """Actions (N, ...) of the adapted policies, each for the observation of its task, and log-probabilities."""
        self.check_masks(states)
        actions, log_probs = self.actor.act_adapted(states, explore=explore)
        return actions, log_probs

    def adapt(self, support: Batch) -> None:
        """Adapts the policy to each of `tasks` tasks; from now on `act_adapted` acts so.

        Args:
            support: Rows (T, N, ...) as `rows_space` says, T being `shots`.
        """
        self.actor.adapt(support)

    def observe(
        self,
        state: Any,
        action: Any,
        reward: Any,
        terminated: Any,
        truncated: Any,
        next_state: Any = None,
        env_id: Any = 0,
    ) -> None:
        """Nothing can be learned from steps that do not say which task they belong to.

        Raises:
            ExecutionError: Always.
        """
        raise ExecutionError(
            "meta-learning needs batches of tasks, before and after adaptation",
            where="maml.observe",
            fix="collect rollouts with act(), adapt() and act_adapted(), as rlweave.algorithms does, and pass them to "
            "update()",
        )

    # -- learning ------------------------------------------------------------------------------------------------

    def update(self, batch: Batch | None = None) -> Metrics:
        """Learns from a batch of tasks.

        Args:
            batch: "support" and "query", rows (T, N, ...) each as `rows_space` says, T being `shots`.

        Raises:
            ExecutionError: There is no batch.
        """
        if batch is None:
            raise ExecutionError("there are no tasks to learn from", where="maml.update", fix="pass a batch")
        _, metrics = self.executor.update(batch, with_metrics=True)
        self._copy_to_actor()
        rows = _rows(batch["support"]) + _rows(batch["query"])
        counts = {"gradient_steps": self.config.epochs, "trained_samples": self.config.epochs * rows}
        return {**self._checked(metrics), **counts}

    def losses(self, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
        """The loss of each task's query before and after adaptation, (N,) twice."""
        before, after = self.executor.losses(batch)
        return before, after

    def postprocess(self, batch: Batch) -> Batch:
        """Rows (T, N, ...) of a rollout of N tasks; those of a regression as they are."""
        return batch if self.config.problem == "regression" else self.actor.postprocess(batch)

    def compute_gradients(self, batch: Batch) -> dict[str, np.ndarray]:
        """The meta-gradient of a batch of tasks, by variable path."""
        gradients: dict[str, np.ndarray] = self.executor.gradients(batch)
        return gradients

    def apply_gradients(self, gradients: Mapping[str, np.ndarray]) -> None:
        self.executor.apply(dict(gradients))
        self._copy_to_actor()


def _rows(structure: Any) -> int:
    """How many rows there are in nested arrays (T, N, ...), T of each of N tasks."""
    while isinstance(structure, dict | tuple | list):
        structure = next(iter(structure.values() if isinstance(structure, dict) else structure))
    return int(structure.shape[0] * structure.shape[1])
