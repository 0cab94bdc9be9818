"""The conversion between environment and artefact: the environment's numbers, in the dtypes of the artefact."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np

from rlweave.agents.trained_policy import TrainedPolicy
from rlweave.envs.infos import MASK
from rlweave.spaces.gymnasium_json import gymnasium_from_json
from rlweave.spaces.gymnasium_spaces import Tokens, starts_of, value_to_gymnasium


class Boundary:
    """The spaces of an artefact, and observations as both sides have them.

    Args:
        policy: The exported policy.

    Attributes:
        observation_space: Gymnasium's space of one observation, its mask included where that came in the infos.
        action_space: Gymnasium's space of one action.
        observation_starts: First number of categories, by leaf.
        action_starts: Likewise.
        texts: Leaves of hashed words: the numbers of words, and of hashes.
    """

    def __init__(self, policy: TrainedPolicy) -> None:
        self._agent, self._info_mask = policy.agent, policy.info_mask
        self.observation_space: gymnasium.Space[Any] = policy.observation_space
        if policy.info_mask is not None:
            self.observation_space = gymnasium_from_json(policy.environment["observation_space"])
        self.action_space = policy.action_space
        self.observation_starts, self.action_starts = starts_of(self.observation_space), starts_of(self.action_space)
        self.texts = dict(_texts(self.observation_space))

    def observation(self, flat: Mapping[str, np.ndarray]) -> Any:
        """The inputs of the artefact, nested, for observations of the agent by leaf (B, ...)."""
        starts = self.observation_starts
        return self._agent.observation_space.unflatten(
            {p: x + starts[p] if p in starts else x for p, x in flat.items()}
        )

    def of_environment(self, flat: Mapping[str, np.ndarray]) -> tuple[Any, Any]:
        """The environment's batch of observations, and of masks (or None), for observations of the agent."""
        values = value_to_gymnasium(self.observation_space, self._agent.observation_space.unflatten(flat))
        return (values, None) if self._info_mask is None else (values["observation"], values[MASK])


def _texts(space: gymnasium.Space[Any], path: str = "") -> list[tuple[str, dict[str, int]]]:
    if isinstance(space, gymnasium.spaces.Dict):
        children: Any = space.spaces.items()
    elif isinstance(space, gymnasium.spaces.Tuple):
        children = enumerate(space.spaces)
    else:
        return [(path, {"words": space.shape[0], "numbers": space.number})] if isinstance(space, Tokens) else []
    return [found for key, child in children for found in _texts(child, f"{path}/{key}" if path else str(key))]
