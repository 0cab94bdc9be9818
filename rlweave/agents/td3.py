"""TD3 (Fujimoto et al. 2018, arXiv:1802.09477), and DDPG (Lillicrap et al. 2016, arXiv:1509.02971) as its ancestor."""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar

from rlweave import graph, ops
from rlweave.agents.continuous import ContinuousAgent, ContinuousConfig
from rlweave.agents.fused_replay import FusedReplayAgent, FusedReplayGraph
from rlweave.agents.replay_agent import ReplayGraph
from rlweave.components import CriticLoss, Critics, DeterministicPolicy, GaussianNoise
from rlweave.components.action_noise import make_noise
from rlweave.components.schedules import Constant
from rlweave.graph import Component, api, graph_fn
from rlweave.settings.config import setting
from rlweave.settings.ranges import NOT_NEGATIVE, POSITIVE
from rlweave.spaces import Space
from rlweave.tree import flatten_tree


class DDPGConfig(ContinuousConfig):
    """Settings of DDPG."""

    noise: float | dict[str, Any] = setting(
        0.1,
        "noise that explores: the standard deviation of independent normal noise, where [-1, 1] is the box of an "
        "action; or a spec, such as {type: ornstein_uhlenbeck_noise, deviation: 0.2, rate: 0.15}, which drifts",
        within=NOT_NEGATIVE,
    )
    lr: float | dict[str, Any] = setting(
        1e-3, "learning rate of policy and critics, or a schedule over optimizer steps", within=NOT_NEGATIVE
    )


class TD3Config(DDPGConfig):
    """Settings of TD3."""

    policy_delay: int = setting(2, "updates of the critics for one of the policy and the targets", ge=1, unit="updates")
    target_noise: float = setting(0.2, "standard deviation of the noise on the actions of targets", ge=0)
    target_noise_limit: float | None = setting(
        0.5, "that noise is clipped to plus and minus this; null: not clipped", within=POSITIVE
    )


class DeterministicGraph(ReplayGraph):
    """The component graph of TD3, and of DDPG.

    Args:
        policy: A deterministic policy.
        critics: Action values: twins, or a single one.
        policy_optimizer: Moves the policy.
        critics_optimizer: Moves the critics.
        tau: Share by which targets move at an update of the policy.
        smoothing: Noise on the actions of targets; None: none.
        policy_delay: Updates of the critics for one of policy and targets.
        memory: See `ReplayGraph`.
        prefetch: See `ReplayGraph`.
    """

    def __init__(
        self,
        policy: DeterministicPolicy,
        critics: Critics,
        policy_optimizer: Component,
        critics_optimizer: Component,
        tau: float,
        smoothing: GaussianNoise | None = None,
        policy_delay: int = 1,
        memory: Component | None = None,
        prefetch: bool = False,
        scope: str = "td3",
    ) -> None:
        super().__init__(memory, prefetch, scope)
        self.policy, self.critics, self.smoothing = policy, critics, smoothing
        self.policy_optimizer, self.critics_optimizer = policy_optimizer, critics_optimizer
        self.tau, self.policy_delay, self.loss = tau, policy_delay, CriticLoss()
        self.target_policy = policy.copy(scope="target-policy", trainable=False)
        self.target_critics = critics.copy(scope="target-critics", trainable=False)

    def create_variables(self) -> None:
        """How many updates of the critics there were, where the policy's are delayed."""
        self.updates = self.variable("updates", (), 0, trainable=False, dtype="int32")

    @api
    def act(self, observations: Any, recurrent_state: Any = (), episode_start: Any = None) -> Any:
        """Actions (B, ...) with noise for observations (B, ...), and the state of the noise after the step."""
        return self.policy.explore(observations, recurrent_state, episode_start)

    @api
    def act_greedily(self, observations: Any) -> Any:
        """Actions without noise."""
        return self.policy.mode(observations)

    def learn(self, records: Any, weights: Any) -> Any:
        targets = self._targets(records)
        values = self.critics.call(records["observations"], records["actions"])
        loss = self.loss.loss(values, targets, weights)
        graph.metrics(self.critics_optimizer.step(loss, self.critics.variables()))
        if self.policy_delay == 1:
            self._improve(records["observations"])
        elif self.policy_optimizer.ranks is None:
            graph.cond(self._is_due(), lambda: self._improve(records["observations"]), lambda: None)
        else:  # ranks cannot meet in a branch: they average the policy's gradients at each update of the critics
            due, variables = self._is_due(), self.policy.variables()
            slopes = graph.gradients(self._loss_of_policy(records["observations"]), variables)
            averaged = self.policy_optimizer.ranks.mean(slopes)
            graph.cond(due, lambda: self._improve_by(averaged), lambda: None)
        return loss, self.loss.sizes(values, targets)

    def _targets(self, records: Any) -> Any:
        actions = self.target_policy.mode(records["next_observations"])
        if self.smoothing is not None:
            actions, _ = self.smoothing.call(actions)
        values = self.target_critics.call(records["next_observations"], actions)
        return self.loss.targets(records["rewards"], records["terminated"], records["discounts"], values)

    def _improve(self, observations: Any) -> None:
        """Moves the policy up the first critic, and the targets."""
        loss = self._loss_of_policy(observations)
        self.policy_optimizer.step(loss, self.policy.variables(), self._count())
        self._move_targets()

    def _improve_by(self, slopes: Any) -> None:
        """As `_improve`, with gradients by path."""
        self.policy_optimizer.apply(slopes, self.policy.variables(), self._count())
        self._move_targets()

    def _loss_of_policy(self, observations: Any) -> Any:
        return self._policy_loss(self.critics.call(observations, self.policy.mode(observations)))

    def _count(self) -> Any:
        """What a schedule of the policy's learning rate counts: updates of the critics, of which there are more."""
        scheduled = self.policy_delay > 1 and not isinstance(self.policy_optimizer.learning_rate, Constant)
        return self._updates_before() if scheduled else None

    def _move_targets(self) -> None:
        self.target_critics.sync(self.critics, self.tau)
        self.target_policy.sync(self.policy, self.tau)

    @graph_fn
    def _policy_loss(self, values: Any) -> Any:
        """Minus the mean value by the first critic, of values (B, critics)."""
        return -ops.mean(values[:, 0])

    @graph_fn(differentiable=False)
    def _is_due(self) -> Any:
        """Whether this update is one of the policy, too; counts."""
        updates = self.updates.value + 1
        self.updates.assign(updates)
        return updates % self.policy_delay == 0

    @graph_fn(differentiable=False)
    def _updates_before(self) -> Any:
        """How many updates there were before this one."""
        return self.updates.value - 1


class DDPG(ContinuousAgent):
    """DDPG: one critic, whose gradient with respect to the action moves the policy at every update."""

    name: ClassVar[str] = "ddpg"
    learns_in_ranks = True
    config_class = DDPGConfig
    config: DDPGConfig

    graph_class: ClassVar[type[DeterministicGraph]] = DeterministicGraph
    #: How many critics there are.
    critics: ClassVar[int] = 1

    @cached_property
    def recurrent_space(self) -> Space:
        return make_noise(self.config.noise, self.action_space).recurrent_space

    def graph_arguments(self) -> dict[str, Any]:
        config, encoder = self.config, self.encoder_arguments()
        return super().graph_arguments() | {
            "policy": DeterministicPolicy(**encoder, action_space=self.action_space, noise=config.noise),
            "critics": Critics(**encoder, count=self.critics),
            "policy_optimizer": self.make_optimizer(scope="policy-optimizer"),
            "critics_optimizer": self.make_optimizer(scope="critics-optimizer"),
            "tau": config.tau,
            "scope": self.name,
        }


class TD3(DDPG):
    """TD3: DDPG with twin critics, smoothed targets, and delayed updates of the policy."""

    name: ClassVar[str] = "td3"
    config_class = TD3Config
    config: TD3Config

    critics: ClassVar[int] = 2

    def graph_arguments(self) -> dict[str, Any]:
        config, space = self.config, self.action_space
        noise = GaussianNoise(space, config.target_noise, config.target_noise_limit, scope="smoothing")
        return super().graph_arguments() | {"smoothing": noise, "policy_delay": config.policy_delay}


class FusedDeterministicGraph(FusedReplayGraph, DeterministicGraph):
    """The component graph of TD3, and of DDPG, with its environments."""

    def create_variables(self) -> None:
        """What is kept of the noise of each environment, besides."""
        super().create_variables()
        environments, space = self.environment.num_envs, self.policy.distribution.noise.recurrent_space
        self.noise_state = {
            path: self.variable(f"noise/{path}".rstrip("/"), (environments, *leaf.shape), trainable=False)
            for path, leaf in space.flatten().items()
        }

    def explore(self, observations: Any) -> Any:
        if not self.policy.distribution.noise.keeps_state:
            return self.act(observations)[0]
        actions, after = self.act(observations, graph.batch_rank(self._noise()), self.environment.begins())
        self._keep_noise(flatten_tree(after))
        return actions

    @graph_fn(differentiable=False, returns=1)
    def _noise(self) -> Any:
        return self.policy.action_space.unflatten({path: cell.value for path, cell in self.noise_state.items()})

    @graph_fn(differentiable=False)
    def _keep_noise(self, noise: dict[str, Any]) -> None:
        for path, cell in self.noise_state.items():
            cell.assign(noise[path])


class FusedDDPG(FusedReplayAgent, DDPG):
    """DDPG on environments that are components; see `FusedReplayAgent`."""

    graph_class: ClassVar[type[FusedDeterministicGraph]] = FusedDeterministicGraph


class FusedTD3(FusedReplayAgent, TD3):
    """TD3 on environments that are components; see `FusedReplayAgent`."""

    graph_class: ClassVar[type[FusedDeterministicGraph]] = FusedDeterministicGraph
