"""A worker that plays all policies of an environment with several agents, and what each policy learns from."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

from rlweave.agents.agent import Agent
from rlweave.agents.dqn import DQN
from rlweave.agents.policy_agents import PolicyAgents
from rlweave.agents.ppo import PPO
from rlweave.agents.replay_agent import STEP_KEYS
from rlweave.agents.rollout_agent import with_initial_state
from rlweave.agents.stepping import rows_from
from rlweave.algorithms.worker import Worker, load_own_agent_state, own_agent_state
from rlweave.envs.agent_groups import AgentGroup, GroupStep
from rlweave.envs.multi_agent import MultiAgentEnv
from rlweave.envs.seeding import derived_seed
from rlweave.flow import ABSORBED, Envelope, Episode, Operator, PolicyBatches, SampleBatch
from rlweave.flow.envelope import Pulled, merge
from rlweave.flow.item_types import Signature, positive
from rlweave.tree import tree_map

#: Columns that say where a step belongs; they are left out of rollouts.
SLOT, BEGINS = "slot", "begins"


class PackTrajectories(Operator):
    """Packs steps into rollouts (steps, columns, ...), of exactly that shape, as soon as there are enough.

    Agents that end early or are not asked in every step make fewer steps than others, so a column cannot belong to one
    of them. Here the steps of each row of the environments, in order, are laid end to end, and the whole is cut into
    columns. Where steps of two rows meet, the first is marked as truncated: its value bootstraps from the observation
    that it led to, as at the end of a rollout, and nothing flows across. While every row makes all steps, columns are
    rows.

    Steps are taken in the order in which they came; the newest that do not fit any more wait for the next rollout.
    Where items of a source are missing (dropped as too old, lost), its rows do not continue the steps that were kept.

    Args:
        steps: Length T of a rollout.
        columns: Width B of a rollout.
    """

    at_source: ClassVar[bool] = False
    merges: ClassVar[bool] = True
    state = ("_made", "_kept", "_last")

    def __init__(self, steps: int, columns: int) -> None:
        self.steps = positive("steps", steps, "pack_trajectories")
        self.columns = positive("columns", columns, "pack_trajectories")
        self._kept: list[Envelope] = []
        self._last: dict[str, int] = {}
        self._made = 0

    def signature(self) -> Signature:
        """Takes and gives batches."""
        return Signature(SampleBatch, SampleBatch)

    def process(self, envelope: Envelope) -> Pulled:
        """Keeps the steps, and gives a rollout when there are enough."""
        last = self._last.get(envelope.source)
        self._last[envelope.source] = envelope.sequence
        if envelope.payload.num_steps:
            if last is not None and envelope.sequence != last + 1:
                envelope = envelope.carrying(beginning_anew(envelope.payload))
            self._kept.append(envelope)
        return self._next_rollout()

    def _next_rollout(self) -> Pulled:
        """A rollout, if there are enough steps."""
        wanted = self.steps * self.columns
        if sum(kept.payload.num_steps for kept in self._kept) < wanted:
            return ABSORBED
        return self._release(wanted, self.columns)

    def _release(self, wanted: int, columns: int) -> Envelope:
        rows = SampleBatch.concat([kept.payload for kept in self._kept])
        rest = rows.slice(wanted, rows.num_steps)
        return self._handed_on(packed(rows.slice(0, wanted), columns), rest.copy())

    def _handed_on(self, rollout: SampleBatch, rest: SampleBatch) -> Envelope:
        """A rollout of the steps that were kept; the rest of them stays."""
        item = merge(self._kept, rollout, self.name, self._made)
        self._made += 1
        self._kept = [self._kept[-1].carrying(rest)] if rest.num_steps else []
        return item

    def flush(self) -> list[Envelope]:
        """What is left, as a rollout of one column."""
        left = sum(kept.payload.num_steps for kept in self._kept)
        return [self._release(left, 1)] if left else []

    def note(self) -> str:
        """The shape of rollouts."""
        return f"steps={self.steps}, columns={self.columns}"


class PackSequences(PackTrajectories):
    """As `PackTrajectories`, for recurrent networks: each column is T steps of one row of the environments, in order.

    Within a column each step goes on from the recurrent state of the one before, or begins an episode; so two rows
    never share one. A rollout has the B columns that were complete first, of whichever rows. A row that makes fewer
    steps than others hands in its columns later, and learns from actions of somewhat older weights; PPO's ratio
    compares with the policy that acted. Steps that were interrupted (by lost items, or a new start) before they made a
    column are left out.
    """

    def _next_rollout(self) -> Pulled:
        if not self._kept:
            return ABSORBED
        rows = SampleBatch.concat([kept.payload for kept in self._kept])
        complete, rest = whole_columns(rows[SLOT], rows[BEGINS], self.steps)
        if len(complete) < self.columns:
            return ABSORBED
        waiting = np.sort(np.concatenate([*complete[self.columns :], rest]))
        rollout = _at(rows, np.stack(complete[: self.columns], axis=1))
        rollout = {key: value for key, value in rollout.items() if key not in (SLOT, BEGINS)}
        item = SampleBatch(with_initial_state(rollout), "trajectories", ("initial_state",))
        return self._handed_on(item, SampleBatch(_at(rows, waiting)))

    def flush(self) -> list[Envelope]:
        """Nothing: what is left is no whole column."""
        return []


def whole_columns(slots: np.ndarray, begins: np.ndarray, steps: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Which steps make columns of T consecutive steps of one row.

    Args:
        slots: Which row of the environments made each step, int (N,), in the order in which they were made.
        begins: Where a step does not follow the one before of its row, bool (N,).
        steps: T.

    Returns:
        The indices of the steps of each column, (T,), in the order in which they were complete; and of the steps that
        may still become one, (M,).
    """
    complete: list[np.ndarray] = []
    rest: list[np.ndarray] = []
    for slot in np.unique(slots):
        own = np.flatnonzero(slots == slot)
        pieces = np.split(own, np.flatnonzero(begins[own]))
        for piece in pieces:
            complete += list(piece[: len(piece) // steps * steps].reshape(-1, steps))
        last = pieces[-1]
        rest.append(last[len(last) // steps * steps :])
    return sorted(complete, key=lambda column: int(column[-1])), np.concatenate(rest)


def _at(rows: SampleBatch, indices: np.ndarray) -> Rows:
    """Steps at indices of any shape, by name."""
    return {key: tree_map(operator.itemgetter(indices), value) for key, value in rows.data.items()}


def beginning_anew(rows: SampleBatch) -> SampleBatch:
    """The same steps (N, ...), of which the first of each row continues no other."""
    begins = np.array(rows[BEGINS])
    begins[np.unique(rows[SLOT], return_index=True)[1]] = True
    return SampleBatch({**rows.data, BEGINS: begins})


def packed(rows: SampleBatch, columns: int) -> SampleBatch:
    """Steps as rollouts.

    Args:
        rows: Steps in the order in which they were made, (N, ...), N a multiple of `columns`. `slot`, int (N,), says
            which row of the environments made each, and `begins`, bool (N,), where it does not follow the step before
            of its row.
        columns: Width B.

    Returns:
        The same without these two, (N / B, B, ...).
    """
    slots = rows[SLOT]
    order = np.argsort(slots, kind="stable")
    slots, begins = slots[order], rows[BEGINS][order]
    meets = np.append((slots[1:] != slots[:-1]) | begins[1:], False)
    data = {
        key: tree_map(lambda leaf: leaf[order], value) for key, value in rows.data.items() if key not in (SLOT, BEGINS)
    }
    data["truncated"] = data["truncated"] | (meets & ~data["terminated"])
    return SampleBatch(
        {key: tree_map(lambda leaf: _in_columns(leaf, columns), value) for key, value in data.items()},
        "trajectories",
    )


def _in_columns(leaf: np.ndarray, columns: int) -> np.ndarray:
    return np.ascontiguousarray(leaf.reshape(columns, -1, *leaf.shape[1:]).swapaxes(0, 1))


AgentT = TypeVar("AgentT", bound=Agent)
Rows = dict[str, Any]


class Collector(ABC, Generic[AgentT]):
    """Plays one policy, and collects its steps.

    Args:
        agent: The agent that acts.
        group: The rows that it plays.
        first_slot: Number of its first row, unique among the workers of this policy; the other rows follow.
    """

    def __init__(self, agent: AgentT, group: AgentGroup, first_slot: int) -> None:
        self.agent, self.group = agent, group
        self._slots = np.arange(first_slot, first_slot + group.rows, dtype=np.int32)
        self.start()

    def start(self) -> None:
        """Drops the steps of all rows: no row continues an episode."""
        #: The last action of each row, with its observation and more, by name, (rows, ...).
        self._acted: Rows | None = None
        #: What is carried of each row to its next step, nested (rows, ...).
        self._memory: Any = self.agent.initial_state(self.group.rows)
        self._begins = np.ones(self.group.rows, np.bool_)

    def state_dict(self) -> dict[str, Any]:
        """The state of the episodes under way, between two items."""
        return {"acted": self._acted, "begins": self._begins, "memory": self._memory}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over what `state_dict` gave."""
        self.start()
        self._acted, self._begins, self._memory = state["acted"], state["begins"], state["memory"]

    def act(self) -> Any:
        """Actions (rows, ...) for the environment, for all rows that act."""
        observations = self.group.observations_to_act_on()
        chosen = self._choose(observations)
        acted = {"observations": observations, **chosen}
        if self._acted is None:
            self._acted = tree_map(np.array, acted)
        else:
            _write_rows(self._acted, acted, self.group.acting)
        return self.agent.env_actions(chosen["actions"])

    def _choose(self, observations: Any) -> Rows:
        """Actions on observations (rows, ...), and what else to keep of them."""
        actions, extra, after = self.agent.act(observations, self._memory, self.group.episode_start)
        self._memory = rows_from(self.group.acting, after, self._memory)
        return {"actions": actions, **extra}

    def take(self, step: GroupStep) -> int:
        """Takes over the results of a step, and returns how many transitions they completed."""
        rows = step.complete.nonzero()[0]
        if len(rows):
            assert self._acted is not None
            transitions = {
                **tree_map(lambda leaf: leaf[rows], self._acted),
                "rewards": step.rewards[rows],
                "terminated": step.terminated[rows],
                "truncated": step.truncated[rows],
                "next_observations": tree_map(lambda leaf: leaf[rows], step.next_observations),
            }
            self._keep(rows, transitions)
            self._begins[rows] = False
        return len(rows)

    @abstractmethod
    def _keep(self, rows: np.ndarray, transitions: Rows) -> None:
        """Keeps transitions (N, ...) of these rows (N,)."""

    @abstractmethod
    def batch(self) -> SampleBatch:
        """The batch that was collected since the last call."""


class TrajectoryCollector(Collector[PPO]):
    """Collects steps on policy, for `PackTrajectories`."""

    def start(self) -> None:
        super().start()
        self._parts: list[SampleBatch] = []

    def _keep(self, rows: np.ndarray, transitions: Rows) -> None:
        self._parts.append(SampleBatch({**transitions, SLOT: self._slots[rows], BEGINS: self._begins[rows]}))

    def batch(self) -> SampleBatch:
        """Steps in the order in which they were complete, (N, ...)."""
        parts, self._parts = self._parts, []
        return SampleBatch.concat(parts) if parts else SampleBatch({})


class TransitionCollector(Collector[DQN]):
    """Collects n-step transitions off policy, or sequences for recurrent networks."""

    def start(self) -> None:
        super().start()
        # one for each row, because their steps are not complete at the same time
        self._windows = [self.agent.make_accumulator(1) for _ in range(self.group.rows)]
        self._parts: list[SampleBatch] = []
        self._steps = 0

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "windows": [window.state_dict() for window in self._windows]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        for window, own in zip(self._windows, state["windows"], strict=True):
            window.load_state_dict(own)

    def _keep(self, rows: np.ndarray, transitions: Rows) -> None:
        self._steps += len(rows)
        for index, row in enumerate(rows.tolist()):
            one = tree_map(operator.itemgetter(slice(index, index + 1)), transitions)
            memory = {key: value for key, value in one.items() if key not in STEP_KEYS}
            complete = self._windows[row].add(*(one[key] for key in STEP_KEYS), **memory)
            if len(complete["rewards"]):
                self._parts.append(SampleBatch(complete))

    def batch(self) -> SampleBatch:
        """The n-step transitions, or sequences, (N, ...) that became complete."""
        parts, steps = self._parts, self._steps
        self._parts, self._steps = [], 0
        return SampleBatch(SampleBatch.concat(parts).data if parts else {}, env_steps=steps)


class MultiAgentWorker(Worker):
    """Steps copies of an environment with several agents, and gives each policy's steps.

    Args:
        agents: By policy.
        env: The copies; its groups are the policies.
        steps: Joint steps of all copies in one item.
        number: Number of the worker.
    """

    def __init__(self, agents: PolicyAgents, env: MultiAgentEnv, steps: int, number: int = 0) -> None:
        super().__init__(env)
        self.agents, self.steps = agents, steps
        self.collectors: dict[str, Collector[Any]] = {
            name: _collector_for(agents[name])(agents[name], group, number * group.rows)
            for name, group in env.groups.items()
        }
        self._policies = {agent: name for name, group in env.groups.items() for agent in group.agents}
        self._began = False

    def start(self, seed: int | None = None) -> None:
        if seed is not None and not self.shares_weights:
            for name, agent in self.agents.items():
                agent.reseed(derived_seed(seed, f"policy {name}"))
        self.begin_episodes(seed)

    def begin_episodes(self, seed: int | None = None) -> None:
        self.env.reset(seed)
        self._began = True
        for collector in self.collectors.values():
            collector.start()

    def _agent_state(self, weights: bool) -> dict[str, Any]:
        return {name: own_agent_state(agent, weights) for name, agent in self.agents.items()}

    def _load_agent_state(self, state: Mapping[str, Any]) -> None:
        for name, own in state.items():
            load_own_agent_state(self.agents[name], own)

    def _acting_state(self) -> dict[str, Any]:
        return {name: collector.state_dict() for name, collector in self.collectors.items()}

    def _load_acting_state(self, state: Mapping[str, Any]) -> None:
        self._began = True
        for name, own in state.items():
            self.collectors[name].load_state_dict(own)

    def sample(self) -> PolicyBatches:
        """The steps of all policies in some joint steps."""
        if not self._began:
            self.start()
        for _ in range(self.steps):
            acting = [name for name, group in self.env.groups.items() if group.acting.any()]
            result = self.env.step({name: self.collectors[name].act() for name in acting})
            for name, step in result.groups.items():
                complete = self.collectors[name].take(step)
                self.agents[name].count_steps(complete * self.workers)
            self._episodes += [
                Episode(e.episode_return, e.length, self._policies[e.agent], e.info) for e in result.episodes
            ]
        batches = {name: collector.batch() for name, collector in self.collectors.items()}
        return PolicyBatches(batches, self.steps * self.env.num_envs)

    def set_weights(self, weights: Mapping[str, Any] | None, version: int) -> None:
        """Takes over one policy's weights; None when the learners' own are acted on."""
        if weights is not None:
            agent = self.agents[weights["policy"]]
            agent.set_weights(weights["weights"])
            agent.env_steps = weights["env_steps"]

    def replacing(self, number: int) -> None:
        """Begins with seeds of its own, as the replacement of `number` failed workers."""
        self.start(derived_seed(self.env.seed, f"replacement {number} of worker {self.env.worker}"))


COLLECTORS: dict[type[Agent], Any] = {PPO: TrajectoryCollector, DQN: TransitionCollector}
"""The collector for each kind of agent."""


def _collector_for(agent: Agent) -> Any:
    return next(collector for kind, collector in COLLECTORS.items() if isinstance(agent, kind))


def _write_rows(target: Any, source: Any, mask: np.ndarray) -> None:
    """Writes rows of nested arrays (rows, ...) into equally nested ones."""
    tree_map(lambda into, rows: into.__setitem__(mask, rows[mask]), target, source)
