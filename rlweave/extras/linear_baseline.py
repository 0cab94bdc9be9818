"""The linear feature baseline (Duan et al. 2016, arXiv:1604.06778, supplementary material), fitted to each rollout."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rlweave.components.returns import discounted_returns
from rlweave.graph import Component, graph_fn, register
from rlweave.settings.ranges import PROBABILITY
from rlweave.spaces import FloatBox
from rlweave.tree import flatten_tree

#: The ridge: added to the diagonal of the normal equations.
_RIDGE = 1e-5


@register("linear_baseline")
class LinearBaseline(Component):
    """Advantages without a value network: returns minus a linear function of observation and time.

    Each column of a rollout, which belongs to one task, gets a function of its own, by least squares on the rollout
    itself. Its features are the numbers s of the observation, their squares, t, t^2, t^3 and 1, where t is the number
    of steps since the episode began, over 100. It is solved in float64 on the host, with a ridge of 1e-5, and has no
    variables.

    Args:
        discount: Of future rewards.
        normalize: Brings the advantages of each column to mean 0 and deviation 1; to 0 where they are equal.
        scope: Name within the owner.

    Raises:
        ConfigError: The discount is not in [0, 1].
    """

    def __init__(self, discount: float = 0.99, normalize: bool = True, scope: str = "baseline") -> None:
        super().__init__(scope, device="host")
        PROBABILITY.check("discount", discount, scope)
        self.discount, self.normalize = discount, normalize

    @graph_fn(host=True, differentiable=False, mixes_batch=True, spaces="_advantages_space", returns=1)
    def advantages(self, observations: Any, rewards: Any, terminated: Any, truncated: Any) -> Any:
        """Advantages of all steps of a rollout.

        Args:
            observations: Observations before the steps, nested (T, B, *shape).
            rewards: (T, B).
            terminated: Bool (T, B).
            truncated: Bool (T, B). Sums of rewards end here, and at the end of the rollout, as at terminated steps: let
                rollouts hold whole episodes.

        Returns:
            float32 (T, B).
        """
        rewards = np.asarray(rewards, np.float64)
        ended = np.logical_or(terminated, truncated)
        returns = discounted_returns(rewards, np.zeros_like(rewards), ended, np.zeros_like(ended), self.discount)
        features = _features(observations, ended)
        advantages = np.stack([_residuals(features[:, b], returns[:, b]) for b in range(rewards.shape[1])], axis=1)
        if self.normalize:
            deviation = advantages.std(axis=0)
            differs = deviation > 1e-8 * (1.0 + np.abs(returns).max(axis=0))
            centred = advantages - advantages.mean(axis=0)
            advantages = np.where(differs, centred / np.where(differs, deviation, 1.0), 0.0)
        return advantages.astype(np.float32)

    def _advantages_space(self, observations: Any, rewards: Any, terminated: Any, truncated: Any) -> FloatBox:
        return FloatBox(add_batch_rank=rewards.batch, add_time_rank=rewards.time)


def _features(observations: Any, ended: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    """(T, B, F)."""
    steps, columns = ended.shape
    leaves = flatten_tree(observations).values()
    numbers = [np.asarray(leaf, np.float64).reshape(steps, columns, -1) for leaf in leaves]
    time = np.zeros((steps, columns), np.float64)
    for step in range(1, steps):
        time[step] = np.where(ended[step - 1], 0.0, time[step - 1] + 0.01)
    powers = [time**exponent for exponent in range(4)]
    return np.concatenate([*numbers, *(leaf**2 for leaf in numbers), np.stack(powers, axis=-1)], axis=-1)


def _residuals(features: npt.NDArray[np.float64], returns: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Returns (T,) less their least-squares fit by features (T, F)."""
    normal = features.T @ features + _RIDGE * np.eye(features.shape[1])
    # features of very different sizes are singular in spite of the ridge
    return returns - features @ np.linalg.lstsq(normal, features.T @ returns, rcond=None)[0]
