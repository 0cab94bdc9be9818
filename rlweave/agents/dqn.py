"""Deep Q-learning (Mnih et al. 2015, Nature 518).

With double Q-learning (arXiv:1509.06461), dueling streams (1511.06581), prioritized replay (1511.05952) and n-step
returns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from rlweave import graph, ops
from rlweave.agents.agent import Batch, GivesGradients, Metrics, ReplicatedConfig
from rlweave.agents.epsilon_greedy import EpsilonGreedyAgent, EpsilonGreedyGraph
from rlweave.agents.networks import IMAGE_NETWORK_HELP
from rlweave.agents.replay_agent import DrawnBatch, OwnMemoryConfig, ReplayAgent, ReplayConfig, ReplayGraph
from rlweave.components import DQNLoss, DuelingPolicy, EpsilonGreedy, QPolicy, SequenceDQNLoss
from rlweave.components.network import mlp
from rlweave.graph import Component, api, graph_fn
from rlweave.graph.assembly import InputSpace
from rlweave.settings.config import setting
from rlweave.settings.ranges import POSITIVE, PROBABILITY
from rlweave.spaces import FloatBox


class QLearningConfig(ReplayConfig, ReplicatedConfig):
    """Settings that DQN and Ape-X share."""

    default_network: ClassVar[list[dict[str, Any]]] = mlp([64, 64], "relu")
    network: list[dict[str, Any]] | None = setting(
        None, "layers of the Q network; null: two dense relu layers of 64, or none behind the default image network"
    )
    image_network: list[dict[str, Any]] | None = setting(None, IMAGE_NETWORK_HELP)
    dueling: bool = setting(True, "dueling network: separate streams for state value and advantages")
    double: bool = setting(True, "the online network chooses the next action, the target network gives its value")
    huber_delta: float | None = setting(
        1.0, "error above which the loss is linear (Huber); null: squared everywhere", within=POSITIVE
    )
    reduce_components: str = setting("loss", "how several action components are reduced: loss or td")


class DQNConfig(QLearningConfig, OwnMemoryConfig):
    """Settings of DQN."""

    burn_in: int = setting(
        8, "recurrent networks: steps before those trained on, from which the state recovers", ge=0, unit="steps"
    )
    unroll: int = setting(16, "recurrent networks: steps of a sequence that are trained on", ge=1, unit="steps")
    overlap: int = setting(
        0, "recurrent networks: steps that the trained parts of neighbouring sequences share", ge=0, unit="steps"
    )
    priority_eta: float = setting(
        0.9, "recurrent networks: weight of the largest error of a sequence against the mean", ge=0, le=1
    )
    target_update_interval: int = setting(
        500, "interval between two copies to the target network", ge=1, unit="environment steps"
    )
    epsilon: float | dict[str, Any] = setting(
        {"type": "linear", "start": 1.0, "end": 0.05, "steps": 10_000},
        "share of random actions, or a schedule over environment steps",
        within=PROBABILITY,
    )


class DQNGraph(EpsilonGreedyGraph, ReplayGraph):
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
        policy: QPolicy | DuelingPolicy,
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


class SequenceDQNGraph(DQNGraph):
    """DQN of sequences, for Q networks with a memory (R2D2: Kapturowski et al. 2019, stored state with burn-in).

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
            q_values, online_q_next = self.policy.q_values(steps["observations"], state, start), None
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
            policy.features(steps["observations"], initial_state, steps["episode_start"])[1]
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


class DQN(EpsilonGreedyAgent, GivesGradients, ReplayAgent):
    """DQN for all actions that can be counted: discrete, multi-discrete, multi-binary, and nests of them.

    Of several components each has Q-values of its own, see `DQNLoss` (branching: Tavakoli et al. 2018).

    Args:
        observation_space: Space of one observation.
        action_space: Space of one action.
        config: `DQNConfig` or its data.
        backend: As in `Agent`.
        seed: As in `Agent`.
    """

    name: ClassVar[str] = "dqn"
    learns_in_ranks = True
    config_class: ClassVar[type[QLearningConfig]] = DQNConfig
    graph_class: ClassVar[type[DQNGraph]] = DQNGraph

    def make_root(self) -> ReplayGraph:
        if not self.recurrent:
            return super().make_root()
        loss = SequenceDQNLoss(**self._loss_arguments(), priority_eta=self.config.priority_eta)
        return SequenceDQNGraph(burn_in=self.config.burn_in, **self.graph_arguments() | {"loss": loss})

    def graph_arguments(self) -> dict[str, Any]:
        config = self.config
        policy = (DuelingPolicy if config.dueling else QPolicy)(
            **self.encoder_arguments(), action_space=self.action_space, mask_leaf=config.mask_leaf
        )
        return super().graph_arguments() | {
            "policy": policy,
            "loss": DQNLoss(**self._loss_arguments()),
            "optimizer": self.make_optimizer(),
            "exploration": EpsilonGreedy(action_space=self.action_space),
        }

    def _loss_arguments(self) -> dict[str, Any]:
        names = ("discount", "n_step", "double", "huber_delta", "reduce_components")
        return {name: getattr(self.config, name) for name in names}

    def input_spaces(self) -> dict[str, InputSpace]:
        return super().input_spaces() | {
            "epsilon": FloatBox(add_batch_rank=True),
            "gradients": lambda root: root.policy.variables(),
        }

    # -- learning ------------------------------------------------------------------------------------------------

    def learn(self, batch: Batch | DrawnBatch | None) -> Metrics:
        return {**super().learn(batch), "epsilon": self.epsilon}

    #: Copies to the target network that were due so far.
    _syncs = 0

    @property
    def _due_syncs(self) -> int:
        """Copies to the target network that are due by now."""
        return int(self.env_steps // self.config.target_update_interval)

    def _after_update(self) -> None:
        if self._due_syncs > self._syncs:
            self._syncs = self._due_syncs
            self.executor.sync_target()

    def _after_import(self) -> None:
        self.executor.sync_target()
        super()._after_import()

    def counters(self) -> dict[str, int]:
        return {**super().counters(), "syncs": self._syncs}

    def load_counters(self, counters: Mapping[str, int]) -> None:
        super().load_counters(counters)
        self._syncs = int(counters["syncs"])
