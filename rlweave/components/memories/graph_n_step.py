"""n-step transitions inside the graph."""

from __future__ import annotations

from typing import Any

from rlweave import graph, ops
from rlweave.errors import BuildError
from rlweave.graph import Component, api, graph_fn
from rlweave.graph.variable import Variable
from rlweave.spaces import Space
from rlweave.tree import tree_map

Array = Any


class NStepWindow(Component):
    """The last n steps of some environments; each step completes the transition that began n - 1 steps before.

    `NStepAccumulator` in the graph. A transition ends where its episode does, and then spans fewer steps; as every
    step completes exactly one transition of every environment, nothing is left over when an episode ends. The first
    n - 1 results are of a window that is not filled, and to be thrown away.

    Args:
        n_step: Steps that a transition spans at most, n.
        discount: Discount of future rewards, g.
        num_envs: Environments, N.
        scope: Name within the owner.

    Raises:
        BuildError: No positive number of steps or environments.
    """

    def __init__(self, n_step: int, discount: float, num_envs: int, scope: str = "n-step") -> None:
        super().__init__(scope)
        for name, number in (("n_step", n_step), ("num_envs", num_envs)):
            if isinstance(number, bool) or not isinstance(number, int) or number < 1:
                raise BuildError(f"{name} is a whole number above zero", where=scope, received=repr(number))
        self.n_step, self.discount, self.num_envs = n_step, float(discount), num_envs

    def create_variables(self, steps: Space) -> None:
        leaves = steps.strip_ranks().flatten()
        self.nesting = steps.strip_ranks().unflatten({path: path for path in leaves})
        self.window: dict[str, Variable] = {
            path: self.variable(
                path, (self.n_step, self.num_envs, *leaf.feature_shape), 0, trainable=False, dtype=leaf.dtype
            )
            for path, leaf in leaves.items()
        }

    @api
    def push(self, steps: Any) -> Any:
        """Takes one step of every environment in.

        Args:
            steps: A dict of nested arrays (N, ...): `observations`, `actions`, `rewards`, `terminated`, `truncated`,
                `next_observations` (final observations where an episode ended).

        Returns:
            The transitions that it completes, as `DQN.record_space` has them: `observations`, `actions`, `rewards`
            (their discounted sum), `terminated`, `discounts` (g to the number of steps; 0 where terminated),
            `next_observations`.
        """
        return graph.batch_rank(self._push(steps))

    @graph_fn(differentiable=False, returns=1)
    def _push(self, steps: Any) -> Any:
        window: dict[str, Array] = {}

        def shift(path: str, new: Array) -> None:
            cell = self.window[path]
            window[path] = ops.concat([cell.value[1:], ops.expand_dims(new, 0)], axis=0)
            cell.assign(window[path])

        tree_map(shift, self.nesting, steps)
        ended = ops.logical_or(window["terminated"], window["truncated"])
        # which steps of the window belong to the episode of its first one
        alive = [ops.ones_like(ended[0])]
        for k in range(1, self.n_step):
            alive.append(ops.logical_and(alive[-1], ops.logical_not(ended[k - 1])))

        def of_last(path: str) -> Array:
            rows = window[path]
            found = rows[0]
            for k in range(1, self.n_step):
                mask = ops.reshape(alive[k], (self.num_envs, *(1 for _ in rows.shape[2:])))
                found = ops.where(mask, rows[k], found)
            return found

        rewards, discounts = window["rewards"][0], ops.full((self.num_envs,), self.discount)
        for k in range(1, self.n_step):
            rewards = rewards + ops.where(alive[k], self.discount**k * window["rewards"][k], 0.0)
            discounts = ops.where(alive[k], self.discount ** (k + 1), discounts)
        terminated = of_last("terminated")
        return {
            "observations": tree_map(lambda path: window[path][0], self.nesting["observations"]),
            "actions": tree_map(lambda path: window[path][0], self.nesting["actions"]),
            "rewards": rewards,
            "terminated": terminated,
            "discounts": ops.where(terminated, 0.0, discounts),
            "next_observations": tree_map(of_last, self.nesting["next_observations"]),
        }
