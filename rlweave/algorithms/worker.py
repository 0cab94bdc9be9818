"""`Worker`: the base of all workers of trainings, and their state in checkpoints."""

from __future__ import annotations

import abc
import copy
from collections.abc import Mapping, Sequence
from typing import Any

from rlweave.agents.agent import Agent
from rlweave.flow import Episode
from rlweave.flow.codec import decode, encode

#: Why new episodes begin after a resume.
NOT_WANTED = "save_env_state is false, so the checkpoint does not hold the environments"


class Worker(abc.ABC):
    """Environments, the episodes that ended there, and the state of both for checkpoints.

    Attributes:
        env: The environments.
        shares_weights: Whether it acts on the learner's own weights.
        workers: How many workers there are where each has agents of its own: steps of the others are counted as many
            as its own until the next weights say how many they were. (Schedules depend on the sum.)
    """

    def __init__(self, env: Any) -> None:
        self.env = env
        self.shares_weights = True
        self.workers = 1
        self._episodes: list[Episode] = []

    @abc.abstractmethod
    def sample(self) -> Any:
        """The next item."""

    @abc.abstractmethod
    def start(self, seed: int | None = None) -> None:
        """Starts with new episodes everywhere.

        Args:
            seed: Of the environments, and of the worker's own random numbers: exploration, where it has an agent of
                its own.
        """

    @abc.abstractmethod
    def begin_episodes(self, seed: int | None = None) -> None:
        """Begins new episodes everywhere, and changes nothing else; abandoned episodes do not count.

        Args:
            seed: Of the environments.
        """

    # -- checkpoints ---------------------------------------------------------------------------------------------

    def state_dict(self, environments: bool = True, weights: bool = True) -> dict[str, Any]:
        """All that its next items depend on, as nested plain data and arrays.

        Args:
            environments: Whether episodes under way are included, where environments can be saved.
            weights: Whether weights of an agent of its own are included.
        """
        saved = self.env.save_state() if environments else None
        return {
            "episodes": [episode.to_data() for episode in self._episodes],
            "environments": saved,
            "unsaved_because": "" if saved is not None else self.env.unsaved_because if environments else NOT_WANTED,
            "acting": None if saved is None else encode(self._acting_state(), "worker"),
            "agent": None if self.shares_weights else self._agent_state(weights),
        }

    def load_state_dict(self, state: Mapping[str, Any] | None, seed: int) -> str:
        """Takes over what `state_dict` gave.

        Args:
            state: The state; None of a worker that was lost.
            seed: Of new episodes, if the state has no environments.

        Returns:
            Why new episodes began; empty if episodes go on.
        """
        if state is None:
            self.start(seed)
            return "a worker was lost with its process"
        state = copy.deepcopy(state)  # it may be shared, or read-only
        self._episodes = [Episode.from_data(episode) for episode in state["episodes"]]
        if state["agent"] is not None:
            self._load_agent_state(state["agent"])
        if state["environments"] is None:
            self.begin_episodes(seed)
            return str(state["unsaved_because"])
        self.env.load_state(state["environments"])
        self._load_acting_state(decode(state["acting"]))
        return ""

    @abc.abstractmethod
    def _agent_state(self, weights: bool) -> dict[str, Any]:
        """The acting state of agents of its own."""

    @abc.abstractmethod
    def _load_agent_state(self, state: Mapping[str, Any]) -> None:
        """Takes over what `_agent_state` gave."""

    @abc.abstractmethod
    def _acting_state(self) -> dict[str, Any]:
        """The state of the episodes under way, beside the environments."""

    @abc.abstractmethod
    def _load_acting_state(self, state: Mapping[str, Any]) -> None:
        """Takes over what `_acting_state` gave; the environments are restored already."""

    def episode_stats(self) -> Sequence[Episode]:
        """Episodes that ended since the last call."""
        episodes, self._episodes = self._episodes, []
        return episodes

    def close(self) -> None:
        """Closes the environments."""
        self.env.close()


def own_agent_state(agent: Agent, weights: bool) -> dict[str, Any]:
    """The acting state of a worker's own agent: random state, step count, and with `weights` those, too."""
    variables = agent.state_dict()
    if not weights:
        variables = {path: value for path, value in variables.items() if path.startswith(("random", "acting:random"))}
    return {"variables": variables, "env_steps": agent.env_steps}


def load_own_agent_state(agent: Agent, state: Mapping[str, Any]) -> None:
    """Takes over what `own_agent_state` gave; weights that it lacks stay."""
    agent.load_state_dict({**agent.state_dict(), **state["variables"]})
    agent.env_steps = int(state["env_steps"])
