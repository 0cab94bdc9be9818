"""Copies of an environment with several agents, behind one contract: PettingZoo's parallel API in, batches out."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import numpy as np

from rlweave.envs.agent_groups import AgentEpisode, AgentGroup, GroupStep, MultiAgentStep, check_groups
from rlweave.envs.batching import Batch
from rlweave.envs.contract import LARGEST_REWARD
from rlweave.envs.failures import NOT_FINITE, describe, environment_failure, step_phase
from rlweave.envs.infos import InfoMetrics, InfoNumbers
from rlweave.envs.object_state import NotData, capture, only_data
from rlweave.envs.ownership import Ownership, own
from rlweave.envs.parallel_api import ParallelEnv, first_observations, five_mappings, flag_of, reward_of
from rlweave.envs.restoring import restore
from rlweave.envs.saving import CANNOT_BE_SAVED, check_number, does_not_fit, load_environments, save_environments
from rlweave.envs.seeding import sub_env_seeds
from rlweave.errors import ConfigError, EnvError

Grouping = Callable[[Sequence[str]], Mapping[str, Sequence[str]]]
"""Sorts the possible agents of an environment into groups by name."""


MAX_IDLE_STEPS = 10_000
"""Steps of a copy without an acting agent after which it counts as stuck."""


class MultiAgentEnv:
    """Copies of an environment with PettingZoo's parallel API, stepped in turn in this process.

    A copy is reset when none of its agents is left. An agent acts when it has an observation and is neither
    terminated nor truncated. So agents may come late, end early, or be asked in some steps only:

    * A transition is complete at the agent's next observation or at its end, with all rewards until then.
    * An agent whose end is reported after its last action, or because the episode is over, still gets the reward
      that came with it. If an episode ends and an agent's end was not reported, the agent is truncated.
    * Where all agents have ended, the episode is over, also if `agents` still names them.
    * An agent that never acts has no transitions; its rewards count in its return.
    * Rows of agents that are not there are never transitions.

    Args:
        factories: Makes each copy.
        grouping: Sorts the possible agents into groups.
        seed: Seed of the run; None takes fresh entropy, which `seed` then holds.
        worker: Number of the worker that owns the copies; different workers get different seeds.
        check_finite: Whether a NaN or infinite observation or reward is an error.
        info_metrics: Leaves of the agents' last infos that are handed out with their episodes.

    Attributes:
        agents: All agents there can be.
        groups: By name.
        num_envs: Number of copies.
        joint_steps: Steps of copies so far, all agents of a copy together.
        unsaved_because: Why the last `save_state` gave none.

    Raises:
        EnvError: If a copy cannot be made, or has other agents than the first.
        ConfigError: If the groups do not have every agent once.
    """

    def __init__(
        self,
        factories: Sequence[Callable[[], ParallelEnv]],
        grouping: Grouping,
        *,
        seed: int | None = None,
        worker: int = 0,
        check_finite: bool = True,
        info_metrics: Sequence[str] = (),
    ) -> None:
        if not factories:
            raise ConfigError("there must be a copy", where="factories", received="none", fix="pass at least one")
        self.num_envs = len(factories)
        self._envs: list[ParallelEnv] = []
        self._closed = self._started = False
        self._ownership: Ownership | None = None
        self.unsaved_because = ""
        self.agents: tuple[str, ...] = ()
        try:
            for index, factory in enumerate(factories):
                self._envs.append(self._make_copy(index, factory))
            grouped = grouping(self.agents)
            check_groups(self.agents, grouped)
            self._ownership = own(self._envs, "copy")
            self.groups = {name: self._make_group(name, members) for name, members in grouped.items()}
        except BaseException:
            self._abort()
            raise
        entropy = np.random.SeedSequence(seed).entropy
        assert isinstance(entropy, int)
        self.seed, self.worker = entropy, worker
        self._check_finite = check_finite
        self._reseed = True
        self.joint_steps = 0
        #: Rows by agent, by copy; the copy is the index of the outer list.
        self._places = [
            {agent: (group, group.row(agent, copy)) for group in self.groups.values() for agent in group.agents}
            for copy in range(self.num_envs)
        ]
        self._episode_steps = [0] * self.num_envs
        self._returns: list[dict[str, float]] = [{} for _ in range(self.num_envs)]
        self._lengths: list[dict[str, int]] = [{} for _ in range(self.num_envs)]
        self._terminal: list[set[str]] = [set() for _ in range(self.num_envs)]
        self._info_metrics = InfoMetrics(info_metrics)
        self._infos: list[dict[str, Mapping[str, Any]]] = [{} for _ in range(self.num_envs)]
        #: The agents that have ended in the episode, and the number of steps without an acting agent.
        self._gone: list[set[str]] = [set() for _ in range(self.num_envs)]
        self._idle_steps = [0] * self.num_envs

    # -- playing -------------------------------------------------------------------------------------------------

    def reset(self, seed: int | None = None) -> None:
        """Begins an episode in every copy; episodes in progress are abandoned and do not count.

        Only the first reset, and one with a seed, seeds the copies; any other goes on with their random streams.

        Raises:
            EnvError: If a copy fails, or the environment is closed.
        """
        self._require_open()
        if seed is not None:
            self.seed, self._reseed = seed, True
        seeds: Sequence[int | None] = [None] * self.num_envs
        if self._reseed:
            seeds = sub_env_seeds(self.seed, self.worker, self.num_envs)
        try:
            for group in self.groups.values():
                group.reset()
                group.begin_step()
            self._episode_steps = [0] * self.num_envs
            for copy, own in enumerate(seeds):
                self._begin_episode(copy, own)
            self._finish_step()
        except BaseException:
            self._abort()
            raise
        self._reseed, self._started = False, True

    def step(self, actions: Mapping[str, Batch]) -> MultiAgentStep:
        """Steps every copy, and resets those in which no agent is left.

        Args:
            actions: By name of the group, nested (rows, *shape); only rows that are `acting` are used. A group
                in which no agent acts may be left out.

        Raises:
            EnvError: If a copy fails, or returns a value that its space or the finiteness check refuses; it names copy,
                step and agent, and all copies are closed then. If actions are missing or do not fit; nothing was
                stepped then.
        """
        self._require_started()
        given = self._given(actions)
        episodes: list[AgentEpisode] = []
        try:
            for group in self.groups.values():
                group.begin_step()
            ended = []
            for copy in range(self.num_envs):
                self._step_copy(copy, given[copy])
                if not self._remaining(copy):
                    episodes += self._end_episode(copy)
                    self._begin_episode(copy, None)
                    ended.append(copy)
            finished = self._finish_step()
            for copy in ended:  # only now: an error about a last observation names its step
                self._episode_steps[copy] = 0
        except BaseException:
            self._abort()
            raise
        self.joint_steps += self.num_envs
        return MultiAgentStep(finished, tuple(episodes))

    def _given(self, actions: Mapping[str, Batch]) -> list[dict[str, Any]]:
        """The actions of those that act, by agent, for each copy."""
        given: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for name, group in self.groups.items():
            rows = group.acting.nonzero()[0]
            if not len(rows):
                continue
            if name not in actions:
                raise EnvError(
                    f"the agents of group {name!r} act, and got no actions", received=f"actions of {sorted(actions)}"
                )
            values = group.split_actions(actions[name])
            for row in rows.tolist():
                agent, copy = divmod(row, self.num_envs)
                given[copy][group.agents[agent]] = values[row]
        return given

    def _step_copy(self, copy: int, actions: dict[str, Any]) -> None:
        """Steps one copy; errors name the copy, the step and the actions."""
        self._episode_steps[copy] += 1
        for agent in actions:
            self._lengths[copy][agent] = self._lengths[copy].get(agent, 0) + 1
        try:
            result = self._envs[copy].step(actions)
            self._take_in(copy, *five_mappings(result))
            self._require_progress(copy)
        except (Exception, SystemExit) as error:
            what, trace = describe(error)
            phase = step_phase(self._episode_steps[copy])
            raise environment_failure(what, env=copy, phase=phase, action=actions, trace=trace) from error

    def _take_in(
        self,
        copy: int,
        observations: Mapping[str, Any],
        rewards: Mapping[str, Any],
        terminated: Mapping[str, Any],
        truncated: Mapping[str, Any],
        infos: Mapping[str, Any],
    ) -> None:
        if self._info_metrics:
            self._infos[copy].update({agent: info for agent, info in infos.items() if agent in self._places[copy]})
        places, returns = self._places[copy], self._returns[copy]
        there = self._there(copy)
        for agent, reward in rewards.items():
            if agent in places:  # there may be other keys, such as one for all agents together
                group, row = places[agent]
                value = reward_of(agent, reward)
                if self._check_finite and not abs(value) <= LARGEST_REWARD:
                    large = f", beyond {LARGEST_REWARD:.1e}, the largest number of float32"
                    what = f"the reward of agent {agent!r} is {value}{large if math.isfinite(value) else ''}"
                    raise EnvError(what, fix=NOT_FINITE)
                group.reward(row, value)
                returns[agent] = returns.get(agent, 0.0) + value
        for agent, observation in observations.items():
            if agent in places:
                group, row = places[agent]
                group.observe(row, observation)
        for agent, (group, row) in places.items():
            is_end = flag_of(agent, "terminated", terminated.get(agent, False))
            is_cut = flag_of(agent, "truncated", truncated.get(agent, False))
            if is_end or is_cut:
                returns.setdefault(agent, 0.0)
                self._gone[copy].add(agent)
                if is_end:
                    self._terminal[copy].add(agent)
                group.end(row, is_end, is_cut)
            elif agent in observations and agent in there:
                returns.setdefault(agent, 0.0)
                group.ask(row)

    def _end_episode(self, copy: int) -> list[AgentEpisode]:
        """Truncates agents whose end was not reported, and returns the episodes of all agents."""
        for group, row in self._places[copy].values():
            if group.waits(row):
                group.end(row, False, True)
        lengths, terminal = self._lengths[copy], self._terminal[copy]
        return [
            AgentEpisode(copy, agent, total, lengths.get(agent, 0), agent in terminal, self._info_of(copy, agent))
            for agent, total in sorted(self._returns[copy].items())
        ]

    def _info_of(self, copy: int, agent: str) -> InfoNumbers:
        if not self._info_metrics:
            return ()
        try:
            return self._info_metrics.of(self._infos[copy].get(agent, {}))
        except EnvError as error:
            what = f"agent {agent!r}: {describe(error)[0]}"
            raise environment_failure(what, env=copy, phase=step_phase(self._episode_steps[copy])) from error

    def _begin_episode(self, copy: int, seed: int | None) -> None:
        self._lengths[copy], self._terminal[copy], self._gone[copy] = {}, set(), set()
        self._infos[copy] = {}
        self._idle_steps[copy] = 0
        places = self._places[copy]
        try:
            observations = first_observations(self._envs[copy].reset(seed=seed))
            there = self._there(copy)
            if not there:
                raise EnvError("an episode begins without any agent")
            self._returns[copy] = dict.fromkeys(there, 0.0)
            for agent in there:
                if agent in observations:
                    group, row = places[agent]
                    group.begin(row, observations[agent])
        except (Exception, SystemExit) as error:
            what, trace = describe(error)
            raise environment_failure(what, env=copy, phase="reset", trace=trace) from error

    def _finish_step(self) -> dict[str, GroupStep]:
        for group in self.groups.values():
            for begun in (False, True):
                found = group.find_wrong(begun, self._check_finite)
                if found is not None:
                    copy, what, fix = found
                    phase = "reset" if begun else step_phase(self._episode_steps[copy])
                    raise environment_failure(what, env=copy, phase=phase, fix=fix)
        return {name: group.finish_step() for name, group in self.groups.items()}

    # -- saving --------------------------------------------------------------------------------------------------

    def save_state(self) -> dict[str, Any] | None:
        """All that later steps depend on, as nested plain data and arrays; see `VectorEnv.save_state`.

        Returns:
            The state; None where a copy cannot be saved: `unsaved_because` says why then.

        Raises:
            EnvError: If a copy fails, or was not reset yet.
        """
        self._require_started()
        self.unsaved_because = ""
        try:
            envs = save_environments(self._envs)
            common = capture(self._common_state())
        except NotData as error:
            self.unsaved_because = CANNOT_BE_SAVED.format(error)
            return None
        return {"num_envs": self.num_envs, "envs": envs, "common": common}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Takes over a state that `save_state` of an equal environment gave; nothing in it is executed.

        Raises:
            EnvError: If it is of another environment; a reset is needed then.
        """
        self._require_open()
        self.reset()
        self._started = False
        try:
            check_number(state, self.num_envs)
            load_environments(self._envs, state["envs"])
            common = restore(state["common"], self._common_state())
        except NotData as error:
            raise does_not_fit(error) from error
        for name, rows in common.pop("groups").items():
            vars(self.groups[name]).update(rows)
        vars(self).update(common)
        self._started, self._reseed = True, False

    def _common_state(self) -> dict[str, Any]:
        mine = ["seed", "joint_steps", "_episode_steps", "_idle_steps", "_returns", "_lengths", "_terminal", "_gone"]
        return {
            **{name: vars(self)[name] for name in mine},
            "_infos": [{agent: only_data(info) for agent, info in infos.items()} for infos in self._infos],
            "groups": {name: group.state() for name, group in self.groups.items()},
        }

    # -- the end -------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Closes every copy; does nothing the second time."""
        if self._closed:
            return
        self._closed = True
        self._release()
        for index, env in enumerate(self._envs):
            try:
                env.close()
            except Exception as error:
                what, trace = describe(error)
                raise environment_failure(what, env=index, phase="close", trace=trace) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _abort(self) -> None:
        self._closed = True
        self._release()
        for env in self._envs:
            with contextlib.suppress(Exception):  # there is an error already
                env.close()

    def _release(self) -> None:
        if self._ownership is not None:
            self._ownership.release()

    # -- checks --------------------------------------------------------------------------------------------------

    def _make_copy(self, index: int, factory: Callable[[], ParallelEnv]) -> ParallelEnv:
        try:
            env = factory()
            agents = tuple(getattr(env, "possible_agents", None) or ())
            if not agents or not all(isinstance(agent, str) for agent in agents):
                raise EnvError(
                    "an environment with several agents names them all",
                    received=f"possible_agents={agents}",
                    fix="have a list of strings `possible_agents`, always the same; what is PettingZoo's AEC API is "
                    "made parallel by pettingzoo.utils.conversions",
                )
            if index and agents != self.agents:
                raise EnvError("it has other agents than the first copy", received=f"{agents}, not {self.agents}")
        except (Exception, SystemExit) as error:
            what, trace = describe(error)
            raise environment_failure(what, env=index, phase="construction", trace=trace) from error
        self.agents = agents
        return env

    def _remaining(self, copy: int) -> list[str]:
        """Agents that have not ended: an environment may still name others."""
        return [agent for agent in self._envs[copy].agents if agent not in self._gone[copy]]

    def _require_progress(self, copy: int) -> None:
        """Refuses an episode in which no agent acts any more and which does not end."""
        if any(group.acting[row] for group, row in self._places[copy].values()):
            self._idle_steps[copy] = 0
            return
        self._idle_steps[copy] += 1
        if self._idle_steps[copy] >= MAX_IDLE_STEPS and (agents := self._remaining(copy)):
            raise EnvError(
                f"nobody has had an observation to act on for {MAX_IDLE_STEPS:,} steps, and the episode goes on",
                received=f"agents={agents}",
                fix="give an observation to an agent that is to act, and remove from `agents` who has ended",
            )

    def _there(self, copy: int) -> list[str]:
        """The agents that are there."""
        agents: list[str] = list(self._envs[copy].agents)
        for agent in agents:
            if agent not in self._places[copy]:
                raise EnvError(
                    f"agent {agent!r} is none of the possible agents", fix="name all that may come in possible_agents"
                )
        return agents

    def _require_open(self) -> None:
        if self._closed:
            raise EnvError("the environment is closed", fix="make a new one; an environment that failed is closed")

    def _require_started(self) -> None:
        self._require_open()
        if not self._started:
            raise EnvError("the environment was not reset yet", fix="call reset() before the first step")

    def _make_group(self, name: str, members: Sequence[str]) -> AgentGroup:
        first = self._envs[0]
        try:
            spaces = [(first.observation_space(agent), first.action_space(agent)) for agent in members]
        except Exception as error:
            what, trace = describe(error)
            raise environment_failure(what, env=0, phase="construction", trace=trace) from error
        return AgentGroup(name, members, [s for s, _ in spaces], [a for _, a in spaces], self.num_envs)
