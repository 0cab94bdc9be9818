"""Steps of an environment with several agents: those whose spaces are alike are rows of one batch."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import numpy.typing as npt

from rlweave.envs.batching import Batch, batch_codec
from rlweave.envs.contract import OutOfRange
from rlweave.envs.failures import NOT_FINITE, describe
from rlweave.envs.infos import InfoNumbers
from rlweave.errors import ConfigError, EnvError
from rlweave.spaces import Space
from rlweave.spaces.gymnasium_spaces import from_gymnasium
from rlweave.tree import tree_map

BoolArray = npt.NDArray[np.bool_]


class GroupStep(NamedTuple):
    """The result of one step of all copies for the agents of a group. Rows as in `AgentGroup`.

    Where `complete`, the row has a transition: (observation acted on, action,
    `rewards`, `terminated`, `truncated`, `next_observations`), at the agent's next observation or its end. An
    agent that is not asked in every step is complete in a later step than it acted in, and has all rewards from then
    till now.

    Attributes:
        complete: True where a transition is complete, bool (rows,).
        rewards: Sum of the rewards since the action, float32 (rows,).
        terminated: True where the agent reached a terminal state, bool (rows,).
        truncated: True where the agent was cut off, bool (rows,).
        next_observations: The observations after the actions, nested (rows, *shape). An agent that ended without a last
            observation has the one it acted on.
    """

    complete: BoolArray
    rewards: npt.NDArray[np.float32]
    terminated: BoolArray
    truncated: BoolArray
    next_observations: Batch


class AgentGroup:
    """The agents that one policy plays, in all copies of an environment: row ``i * num_envs + c`` is agent i in copy c.

    Args:
        name: Name of the group.
        agents: The agents.
        observation_spaces: Gymnasium's space of each agent's observations; all alike.
        action_spaces: Gymnasium's space of each agent's actions; all alike.
        num_envs: Number of copies.

    Attributes:
        rows: Number of rows.
        observations: The last observation of every row, nested (rows, *shape); zeros before the first.
        acting: True where there is an observation to act on now, bool (rows,).
        episode_start: True where that observation is the agent's first in its episode, bool (rows,).

    Raises:
        ConfigError: If there is no agent, or the agents' spaces differ.
    """

    #: As of `VectorEnv`: not known.
    image_layout: str | None = None

    def __init__(
        self,
        name: str,
        agents: Sequence[str],
        observation_spaces: Sequence[gymnasium.Space[Any]],
        action_spaces: Sequence[gymnasium.Space[Any]],
        num_envs: int,
    ) -> None:
        _check_alike(name, agents, observation_spaces, action_spaces)
        self.name, self.agents, self.num_envs = name, tuple(agents), num_envs
        self.gym_observation_space, self.gym_action_space = observation_spaces[0], action_spaces[0]
        self.observation_space: Space = from_gymnasium(self.gym_observation_space)
        self.action_space: Space = from_gymnasium(self.gym_action_space)
        self.rows = len(agents) * num_envs
        self._codec = batch_codec(self.gym_observation_space)
        self._action_codec = batch_codec(self.gym_action_space)
        self.reset()

    def reset(self) -> None:
        """Drops all agents: none acts, and no transition is open."""
        self.observations: Batch = self._codec.allocate(self.rows)
        self.acting: BoolArray = np.zeros(self.rows, np.bool_)
        self.episode_start: BoolArray = np.zeros(self.rows, np.bool_)
        self._waiting = np.zeros(self.rows, np.bool_)
        self._rewards = np.zeros(self.rows, np.float64)
        self._lives = np.zeros(self.rows, np.bool_)

    def state(self) -> dict[str, Any]:
        """The attributes that change from step to step."""
        names = ("observations", "acting", "episode_start", "_waiting", "_rewards", "_lives")
        return {name: vars(self)[name] for name in names}

    def row(self, agent: str, copy: int) -> int:
        """The row of an agent in a copy."""
        return self.agents.index(agent) * self.num_envs + copy

    def observations_to_act_on(self) -> Batch:
        """The observations, nested (rows, *shape); rows that do not act hold those of one that does.

        So a policy can act on all rows at once, in batches of one size, and meets no row without an observation, or
        whose mask allows no action.
        """
        if self.acting.all() or not self.acting.any():
            return self.observations
        rows = np.where(self.acting, np.arange(self.rows), int(self.acting.argmax()))
        return tree_map(operator.itemgetter(rows), self.observations)

    def split_actions(self, actions: Batch) -> Sequence[Any]:
        """Each row of a batch of actions in the environment's form.

        Raises:
            EnvError: If they do not fit the action space.
        """
        return self._action_codec.split(actions, self.rows)

    def begin_step(self) -> None:
        """Notes that all acting rows have acted, and opens their transitions."""
        self._waiting |= self.acting
        self._rewards[self.acting] = 0.0
        self.acting = np.zeros(self.rows, np.bool_)
        self.episode_start = np.zeros(self.rows, np.bool_)
        self._complete = np.zeros(self.rows, np.bool_)
        self._terminated = np.zeros(self.rows, np.bool_)
        self._truncated = np.zeros(self.rows, np.bool_)
        self._next = self._codec.copy(self.observations)
        self._seen = np.zeros(self.rows, np.bool_)
        self._first: Batch = None
        self._began = np.zeros(self.rows, np.bool_)

    def reward(self, row: int, reward: float) -> None:
        """Adds a reward to the open transition of a row."""
        self._rewards[row] += reward

    def observe(self, row: int, observation: Any) -> None:
        """Takes over a row's observation after the step.

        Raises:
            EnvError: If it does not fit the space.
        """
        self._write(self._next, row, observation)
        self._seen[row] = True

    def ask(self, row: int) -> None:
        """Lets a row act on its observation; its open transition is complete."""
        self.acting[row] = True
        self._complete[row] = self._waiting[row]
        self._waiting[row] = False
        self.episode_start[row] = not self._lives[row]
        self._lives[row] = True

    def end(self, row: int, terminated: bool, truncated: bool) -> None:
        """Ends a row's episode; its open transition is complete."""
        self._complete[row] = self._waiting[row]
        self._terminated[row], self._truncated[row] = terminated, truncated
        self._waiting[row] = self._lives[row] = False

    def waits(self, row: int) -> bool:
        """Whether a row has an open transition."""
        return bool(self._waiting[row])

    def begin(self, row: int, observation: Any) -> None:
        """Takes over a row's first observation in an episode, and lets it act.

        Raises:
            EnvError: If it does not fit the space.
        """
        if self._first is None:
            self._first = self._codec.allocate(self.rows)
        self._write(self._first, row, observation)
        self._began[row] = self.acting[row] = self.episode_start[row] = self._lives[row] = True

    def _write(self, batch: Batch, row: int, observation: Any) -> None:
        try:
            self._codec.write(batch, row, observation)
        except EnvError as error:
            agent = self.agents[row // self.num_envs]
            raise EnvError(f"agent {agent!r}: {error.what}", received=error.received, fix=error.fix) from error

    def finish_step(self) -> GroupStep:
        """The result of the step; from now on `observations` are those after it."""
        following = self._next
        self.observations = (
            following if self._first is None else self._codec.replace(following, self._first, self._began)
        )
        return GroupStep(self._complete, self._rewards.astype(np.float32), self._terminated, self._truncated, following)

    def find_wrong(self, begun: bool, check_finite: bool) -> tuple[int, str, str] | None:
        """Copy of the first observation that lies outside of its space, what is wrong, and the fix.

        Args:
            begun: Checks first observations of episodes instead of those after the step.
            check_finite: Whether NaN and infinity are wrong.
        """
        batch = self._first if begun else self._next
        if batch is None:
            return None
        if self._codec.is_narrow:
            # Rows of agents that were never there hold zeros, which need not lie in the space.
            rows = (self._began if begun else self._seen).nonzero()[0]
            try:
                self._codec.check_range(tree_map(operator.itemgetter(rows), batch))
            except OutOfRange as error:
                agent, copy = divmod(int(rows[error.row or 0]), self.num_envs)
                return copy, f"agent {self.agents[agent]!r}: {describe(error)[0]}", ""
        found = self._codec.find_nonfinite(batch) if check_finite else None
        if found is None:
            return None
        agent, copy = divmod(found[0], self.num_envs)
        which = f"leaf {found[1]!r} of the observation" if found[1] else "the observation"
        return copy, f"{which} of agent {self.agents[agent]!r} holds NaN or infinity", NOT_FINITE


def _check_alike(
    name: str,
    agents: Sequence[str],
    observation_spaces: Sequence[gymnasium.Space[Any]],
    action_spaces: Sequence[gymnasium.Space[Any]],
) -> None:
    if not agents:
        raise ConfigError("a policy has no agent to play", where=f"policy {name!r}", fix="map an agent to it")
    for kind, spaces in (("observation", observation_spaces), ("action", action_spaces)):
        for agent, space in zip(agents, spaces, strict=True):
            if space != spaces[0]:
                raise ConfigError(
                    f"agents of one policy have different {kind} spaces",
                    where=f"policy {name!r}",
                    received=f"{agent}: {space}, where {agents[0]} has {spaces[0]}",
                    fix="give each kind of agent a policy of its own",
                )


def check_groups(agents: Sequence[str], grouped: Mapping[str, Sequence[str]]) -> None:
    """Checks that each agent is in one group.

    Raises:
        ConfigError: One is in none or several, or does not exist.
    """
    placed = [agent for members in grouped.values() for agent in members]
    if sorted(placed) != sorted(agents):
        raise ConfigError(
            "every agent belongs to one group",
            where="grouping",
            received=f"{dict(grouped)}, for the agents {list(agents)}",
        )


class AgentEpisode(NamedTuple):
    """One agent's part in an episode that is over.

    Attributes:
        env: Index of the copy.
        agent: The agent.
        episode_return: Undiscounted sum of all its rewards, those from before its first and after its last action too.
        length: Number of its actions.
        terminated: Whether it reached a terminal state; False if it was truncated, or its end was not reported.
        info: Numbers of its last info that are to be metrics, by leaf.
    """

    env: int
    agent: str
    episode_return: float
    length: int
    terminated: bool
    info: InfoNumbers = ()


class MultiAgentStep(NamedTuple):
    """The result of one step of all copies.

    Attributes:
        groups: By name of the group.
        episodes: The parts of all agents in the episodes that this step finished.
    """

    groups: dict[str, GroupStep]
    episodes: tuple[AgentEpisode, ...]
