"""PQN: parallelised Q-learning without replay and target network (Gallici et al. 2024, arXiv:2407.04811).

Environments in parallel act epsilon-greedily for T steps. Targets are Q(lambda) by the present network, once for each
rollout; then epochs x minibatches of optimizer steps on the squared error. Layer normalization keeps it stable, as a
target network does otherwise. The paper's optimizer is RAdam; here it is Adam.
"""

from __future__ import annotations

from typing import Any, ClassVar

from rlweave import graph
from rlweave.agents.epochs import EpochsAgent, EpochsConfig, EpochsGraph
from rlweave.agents.epsilon_greedy import EpsilonGreedyAgent, EpsilonGreedyGraph
from rlweave.agents.minibatches import RowMinibatches
from rlweave.agents.networks import IMAGE_NETWORK_HELP, with_layer_norm
from rlweave.components import EpsilonGreedy, QLambdaLoss, QPolicy
from rlweave.components.network import mlp
from rlweave.graph import Component, api
from rlweave.graph.assembly import InputSpace
from rlweave.settings.config import setting
from rlweave.settings.ranges import NOT_NEGATIVE, POSITIVE, PROBABILITY
from rlweave.spaces import Dict, FloatBox
from rlweave.tree import flatten_tree


class PQNConfig(EpochsConfig):
    """Settings of PQN."""

    normalizes_layers: ClassVar[bool] = True
    default_network: ClassVar[list[dict[str, Any]]] = with_layer_norm(mlp([128, 128], "relu"))
    network: list[dict[str, Any]] | None = setting(
        None, "layers of the Q network; null: two of 128 units with layer normalization and relu, or none behind the "
        "default image network",
    )  # fmt: skip
    image_network: list[dict[str, Any]] | None = setting(None, IMAGE_NETWORK_HELP)
    discount: float = setting(0.99, "discount of future rewards", ge=0, le=1)
    q_lambda: float = setting(0.65, "lambda of Q(lambda): 0, one-step targets; 1, returns of the rollout", ge=0, le=1)
    rollout_steps: int = setting(32, "steps of each environment between two updates", ge=1, unit="steps")
    epochs: int = setting(2, "passes over the rollout in an update", ge=1)
    epsilon: float | dict[str, Any] = setting(
        {"type": "linear", "start": 1.0, "end": 0.05, "steps": 20_000},
        "share of random actions, or a schedule over environment steps", within=PROBABILITY,
    )  # fmt: skip
    optimizer: dict[str, Any] = setting({"type": "adam"}, "optimizer spec, learning rate apart; the paper's is RAdam")
    lr: float | dict[str, Any] = setting(
        2.5e-4, "learning rate, or a schedule over optimizer steps", within=NOT_NEGATIVE
    )
    max_grad_norm: float | None = setting(
        10.0, "global norm that gradients are clipped to; null: not clipped", within=POSITIVE
    )


class PQNGraph(EpsilonGreedyGraph, EpochsGraph):
    """The component graph of PQN.

    Args:
        policy: The Q network.
        loss: Targets, and the loss on them.
        optimizer: Moves the Q network.
        exploration: Epsilon-greedy choice.
        minibatches: How a rollout is cut.
        arguments: Those of `EpochsGraph`.
    """

    normalization: ClassVar[None] = None

    def __init__(
        self,
        *,
        policy: QPolicy,
        loss: QLambdaLoss,
        optimizer: Component,
        exploration: EpsilonGreedy,
        minibatches: RowMinibatches,
        scope: str = "pqn",
        **arguments: Any,
    ) -> None:
        super().__init__(scope=scope, **arguments)
        self.policy, self.loss, self.optimizer = policy, loss, optimizer
        self.exploration, self.minibatches = exploration, minibatches

    @api
    def postprocess(self, batch: Any) -> Any:
        """Training rows from a rollout (T, B, ...), with the targets of the taken actions; see `minibatches`."""
        memory = batch.get("initial_state", ()), batch.get("episode_start")
        _, q_next = self.policy.look_ahead_q_values(batch["observations"], batch["next_observations"], *memory)
        targets = self.loss.targets(q_next, batch["rewards"], batch["terminated"], batch["truncated"])
        columns = {"observations": batch["observations"], "actions": batch["actions"], "targets": targets}
        return self.minibatches.arranged(columns, batch)

    @api
    def gradients(self, rows: Any) -> Any:
        """Gradients of the loss on post-processed rows, by variable path."""
        return graph.gradients(self._loss(rows), self.trained())

    @api
    def apply(self, gradients: Any) -> None:
        """One optimizer step with given gradients, by variable path."""
        graph.metrics(self.optimizer.apply(gradients, self.trained()))

    def trained(self) -> Any:
        """Variables that the optimizer moves."""
        return self.policy.variables()

    def _rows(self, batch: Any) -> Any:
        return self.postprocess(batch)

    def _column(self, rows: Any) -> Any:
        return next(iter(flatten_tree(rows["targets"]).values()))

    def _step(self, rows: Any) -> None:
        graph.metrics(self.optimizer.step(self._loss(rows), self.trained()))

    def _loss(self, rows: Any) -> Any:
        memory = rows.get("initial_state", ()), rows.get("episode_start")
        q_values = self.policy.q_values(rows["observations"], *memory)
        loss, mean_q = self.loss.loss(q_values, rows["actions"], rows["targets"])
        graph.metric("loss", loss)
        graph.metric("mean_q", mean_q)
        return loss


class PQN(EpsilonGreedyAgent, EpochsAgent):
    """PQN for all actions that can be counted: discrete, multi-discrete, multi-binary, and nests of them.

    Args:
        observation_space: Space of one observation.
        action_space: Space of one action.
        config: `PQNConfig` or its data.
        num_envs: Environments whose rollouts make one update.
        backend: As in `Agent`.
        seed: As in `Agent`.
    """

    name: ClassVar[str] = "pqn"
    config_class = PQNConfig
    graph_class: ClassVar[type[PQNGraph]] = PQNGraph

    def graph_arguments(self) -> dict[str, Any]:
        config = self.config
        return {
            **self.epochs_arguments(),
            "policy": QPolicy(**self.encoder_arguments(), action_space=self.action_space, mask_leaf=config.mask_leaf),
            "loss": QLambdaLoss(config.discount, config.q_lambda),
            "optimizer": Component.from_spec(
                {"max_grad_norm": config.max_grad_norm, **config.optimizer, "learning_rate": config.lr}
            ),
            "exploration": EpsilonGreedy(action_space=self.action_space),
        }

    def row_space(self) -> Dict:
        own = self.own_action_space
        targets = own.map(lambda leaf: FloatBox(shape=leaf.shape))
        return Dict(observations=self.observation_space, actions=own, targets=targets)

    def input_spaces(self) -> dict[str, InputSpace]:
        return super().input_spaces() | {"epsilon": FloatBox(add_batch_rank=True)}

    def learn(self, batch: Any) -> dict[str, Any]:
        return {**super().learn(batch), "epsilon": self.epsilon}
