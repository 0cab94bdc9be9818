"""Exploration of agents that act by values of actions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlweave import ops
from rlweave.components.action_leaves import as_space
from rlweave.components.distributions import MASKED
from rlweave.components.optimizers import ScheduleLike
from rlweave.components.schedules import make_schedule
from rlweave.graph import Component, api, graph_fn, register
from rlweave.settings.ranges import AT_LEAST_ONE, NOT_NEGATIVE, PROBABILITY
from rlweave.spaces import BoolBox, Space

_LAST_INT32 = 2**31 - 1


@register("epsilon_greedy")
class EpsilonGreedy(Component):
    """With probability epsilon a uniformly random action, else the one of the largest value.

    Whether to explore is drawn once per row (environment). Actions of several components (and leaves) then get a
    random category in each of them, so that all combinations are equally likely. Masked categories (see
    `rlweave.components.distributions.MASKED`) are never drawn, unless all of them are masked.

    Args:
        epsilon: A number in [0, 1], or a schedule of the absolute counter that `get_action` gets.
        action_space: Says which leaves are booleans, so that their actions are bool; None: all are integers.
        scope: Name within the owner.

    Raises:
        ConfigError: Epsilon, or a value of its schedule, is no probability.
    """

    def __init__(
        self,
        epsilon: ScheduleLike = 0.1,
        action_space: Space | Mapping[str, Any] | None = None,
        scope: str = "exploration",
    ) -> None:
        super().__init__(scope)
        self.epsilon = make_schedule(epsilon)
        PROBABILITY.check_schedule("epsilon", self.epsilon, scope)
        leaves = {} if action_space is None else as_space(action_space).flatten()
        self.booleans = frozenset(path for path, leaf in leaves.items() if isinstance(leaf, BoolBox))

    def create_variables(self, q_values: Any) -> None:
        # how many axes of each leaf belong to its action: those of its components, and the categories
        self.action_axes = {path: len(leaf.shape) for path, leaf in q_values.flatten().items()}

    @api
    def get_action(self, q_values: Any, time_step: Any) -> Any:
        """Actions by the epsilon of the configuration.

        Args:
            q_values: (B, *action_shape, A), or (T, B, ...); nested like the action space.
            time_step: The absolute counter, a scalar (or one per row, (B,)).

        Returns:
            Actions, (B, *action_shape), int32 (or bool), nested alike.
        """
        return self.select(q_values, self._epsilon_at(time_step))

    @api
    def select(self, q_values: Any, epsilon: Any) -> Any:
        """Actions by a given epsilon.

        Args:
            q_values: (B, *action_shape, A), or (T, B, ...); nested like the action space.
            epsilon: Probability to explore, a scalar or one per row, (B,) (workers of Ape-X, see `ape_x_epsilons`).

        Returns:
            Actions, (B, *action_shape), int32 (or bool), nested alike.
        """
        return self._choose(q_values, self._explore(q_values, epsilon))

    @graph_fn(split=True, with_key=True)
    def greedy(self, path: str, q_values: Any) -> Any:
        """The actions of the largest values (evaluation), as `select`; of equal ones the first."""
        return self._typed(path, ops.argmax(q_values, -1))

    @graph_fn
    def _epsilon_at(self, time_step: Any) -> Any:
        return self.epsilon.in_graph(time_step, ops)

    @graph_fn(flatten=True)
    def _explore(self, q_values: Any, epsilon: Any) -> Any:
        path, q = next(iter(q_values.items()))
        rows = q.shape[: len(q.shape) - self.action_axes[path]]
        return ops.random.uniform(rows) < epsilon[""]

    @graph_fn(split=True, with_key=True)
    def _choose(self, path: str, q_values: Any, explore: Any) -> Any:
        # the largest of evenly distributed numbers: every category that is not masked is equally likely
        lots = ops.where(q_values > MASKED / 2, ops.random.uniform(q_values.shape, 1.0, 2.0), 0.0)
        for _ in range(self.action_axes[path]):
            explore = ops.expand_dims(explore, -1)
        return self._typed(path, ops.argmax(ops.where(explore, lots, q_values), -1))

    def _typed(self, path: str, actions: Any) -> Any:
        return ops.astype(actions, "bool") if path in self.booleans else actions


class EpsilonOfSteps(Component):
    """The share of random actions of a schedule over environment steps, which it counts.

    Args:
        epsilon: The schedule.
        num_envs: Environments, which all step at once.
        scope: Name within the owner.
    """

    def __init__(self, epsilon: ScheduleLike, num_envs: int, scope: str = "epsilon") -> None:
        super().__init__(scope)
        self.epsilon, self.num_envs = make_schedule(epsilon), num_envs
        PROBABILITY.check_schedule("epsilon", self.epsilon, scope)

    def create_variables(self) -> None:
        """How many environment steps there have been; the count stops where int32 ends."""
        self.env_steps = self.variable("env_steps", (), 0, trainable=False, dtype="int32")

    @graph_fn(differentiable=False)
    def next(self) -> Any:
        """The present share, (num_envs,); counts a step of each environment."""
        steps, last = self.env_steps.value, _LAST_INT32
        self.env_steps.assign(ops.where(steps > last - self.num_envs, last, steps + self.num_envs))
        return ops.broadcast_to(self.epsilon.in_graph(steps, ops), (self.num_envs,))


def ape_x_epsilons(num_workers: int, base: float = 0.4, alpha: float = 7.0) -> tuple[float, ...]:
    """The epsilon of each worker of Ape-X: base^(1 + alpha * i / (num_workers - 1)) (Horgan et al. 2018).

    Args:
        num_workers: At least 1.
        base: Of worker 0.
        alpha: The last worker has base^(1 + alpha).

    Returns:
        One probability per worker.

    Raises:
        ConfigError: There is no worker, or `base` is no probability.

    >>> [round(epsilon, 6) for epsilon in ape_x_epsilons(3)]
    [0.4, 0.016191, 0.000655]
    """
    AT_LEAST_ONE.check("num_workers", num_workers)
    PROBABILITY.check("base", base)
    NOT_NEGATIVE.check("alpha", alpha)
    return tuple(base ** (1.0 + alpha * i / max(num_workers - 1, 1)) for i in range(num_workers))
