"""What steps of an environment with several agents hand out."""

from __future__ import annotations

from typing import NamedTuple

from rlweave.envs.agent_groups import GroupStep
from rlweave.envs.info_metrics import InfoNumbers


class AgentEpisode(NamedTuple):
    """One agent's part in an episode that is over.

    Attributes:
        env: Index of the copy.
        agent: The agent.
        episode_return: Undiscounted sum of all its rewards, those from before its first and after its last action too.
        length: How often it acted.
        terminated: Whether it reached a terminal state; False if it was cut off, or its end was never told.
        info: Numbers of its last info that are to be metrics, by leaf.
    """

    env: int
    agent: str
    episode_return: float
    length: int
    terminated: bool
    info: InfoNumbers = ()


class MultiAgentStep(NamedTuple):
    """What one step of all copies gave.

    Attributes:
        groups: By name of the group.
        episodes: The parts of all agents in the episodes that this step finished.
    """

    groups: dict[str, GroupStep]
    episodes: tuple[AgentEpisode, ...]
