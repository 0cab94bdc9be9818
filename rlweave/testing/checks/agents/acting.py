"""How an agent acts: within its space, row by row, from a new state in each episode, and without learning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from rlweave.agents.agent import Agent
from rlweave.spaces import Box, FloatBox
from rlweave.testing.checks.agents.subject import AgentSubject
from rlweave.testing.checks.axes import differs
from rlweave.testing.checks.findings import Cause, Finding
from rlweave.testing.checks.rows import listed
from rlweave.tree import flatten_tree, tree_map

State = Mapping[str, np.ndarray]
#: Observations that are acted on at once.
MANY = 1_000
#: Seeds of large weights, with which policies go to the bounds of their actions.
EXTREMES = (0, 1, 2, 3)
#: Share of a range that may be left out at either side.
MARGIN = 0.1


def actions_in_space(subject: AgentSubject) -> Iterator[Finding]:
    """A thousand actions, explored and greedy, lie in the action space, and are not all the same while it explores."""
    agent = subject.fresh()
    batch = subject.sampled_observations(MANY, np.random.default_rng(0))
    for explore in (True, False):
        actions = _actions(agent, batch, explore)
        for path, leaf in agent.action_space.flatten().items():
            assert isinstance(leaf, Box)
            yield from _leaf_in_space(agent, path, leaf, actions[path], explore)
    explored = [_actions(agent, batch, explore=True) for _ in range(2)]
    if not _differ(*explored) and _differ(explored[0], _actions(agent, batch, explore=False)):
        yield Finding(
            "actions in space",
            f"{agent.name}.act(explore=True)",
            f"{MANY:,} observations were acted on twice, and all actions were the same both times",
            Cause.NOT_RANDOM,
            "draw random numbers from the graph, and seed nothing where the agent acts",
        )
    yield from _bounds_are_reached(agent, batch)


def _actions(agent: Agent, observations: Any, explore: bool) -> dict[str, np.ndarray]:
    """Actions of the environment, by path."""
    own, _, _ = agent.act(observations, explore=explore)
    return {path: np.asarray(leaf) for path, leaf in flatten_tree(agent.env_actions(own)).items()}


def _leaf_in_space(agent: Agent, path: str, leaf: Box, array: np.ndarray, explore: bool) -> Iterator[Finding]:
    low, high = leaf.low, leaf.high
    name = f"action {path!r}" if path else "the action"
    if not np.isfinite(array.astype(np.float64)).all() or (
        low is not None and high is not None and not ((array >= low) & (array <= high)).all()
    ):
        bad = array[~((array >= low) & (array <= high))].reshape(-1)
        yield Finding(
            "actions in space",
            f"{agent.name}.act(explore={explore})",
            f"{name} was {bad[0] if bad.size else 'not finite'}, the space is {leaf!r}",
            Cause.ACTION_OUTSIDE,
            "have Agent.env_actions turn what the policy gives into the environment's action, once",
        )
    elif explore and leaf.flat_dim and array.size and (array == array[:1]).all() and _has_choice(leaf):
        yield Finding(
            "actions in space",
            f"{agent.name}.act(explore=True)",
            f"{name} was the same for {len(array):,} observations: {array[0]}",
            Cause.NOT_RANDOM,
            "explore: sample from the policy, or draw an epsilon or noise for each row",
        )


def _has_choice(leaf: Box) -> bool:
    low, high = leaf.low, leaf.high
    return low is None or high is None or bool(np.any(np.asarray(high) > np.asarray(low)))


def _bounds_are_reached(agent: Agent, batch: Any) -> Iterator[Finding]:
    """With large weights of the policy its actions go to both bounds of each dimension that has them."""
    boxes = {path: leaf for path, leaf in agent.action_space.flatten().items() if isinstance(leaf, FloatBox)}
    if not boxes:
        return
    weights = agent.get_weights()
    cells = agent.executor.store.cells
    taken: dict[str, list[np.ndarray]] = {path: [] for path in boxes}
    for seed in EXTREMES:
        rng = np.random.default_rng(seed)
        large = {p: (10 * rng.normal(size=x.shape)).astype(x.dtype) for p, x in weights.items() if cells[p].trainable}
        agent.set_weights({**weights, **large})
        for path, actions in _actions(agent, batch, explore=False).items():
            if path in taken:
                taken[path].append(actions)
    for path, leaf in boxes.items():
        low, high = (
            np.broadcast_to(np.asarray(bound, np.float64), leaf.feature_shape) for bound in (leaf.low, leaf.high)
        )
        lowest, highest = (by(np.concatenate(taken[path]), axis=0) for by in (np.min, np.max))
        bounded = np.isfinite(low) & np.isfinite(high)
        margin = np.where(bounded, MARGIN * (high - low), np.inf)
        if ((lowest > low + margin) | (highest < high - margin)).any():
            yield Finding(
                "actions in space",
                f"{agent.name}.act(explore=False)",
                f"{f'action {path!r}' if path else 'the action'} with very large weights of the policy lay between "
                f"{lowest} and {highest}, the space is {leaf!r}",
                Cause.ACTION_OUTSIDE,
                "have Agent.env_actions scale what the policy gives to the bounds of the environment's action, once",
            )


def episodes_begin_anew(subject: AgentSubject) -> Iterator[Finding]:
    """Where an episode starts, the state of recurrent networks is that of the beginning; elsewhere it counts."""
    agent = subject.fresh()
    if not agent.recurrent:
        return
    rng = np.random.default_rng(0)
    rows, observations = subject.rows, subject.observations
    fresh = agent.initial_state(rows)
    used = tree_map(lambda leaf: (leaf + rng.uniform(0.3, 0.9, leaf.shape)).astype(leaf.dtype), fresh)
    start, middle = np.ones(rows, np.bool_), np.zeros(rows, np.bool_)
    began, begun_again, went_on = (
        _after(agent, observations, state, flags) for state, flags in ((fresh, start), (used, start), (used, middle))
    )
    if _differ(began, begun_again):
        yield Finding(
            "episodes begin anew",
            f"{agent.name}.act(episode_start=True)",
            "the recurrent state before the start of an episode was another one, and the action or the state after it "
            "moved",
            Cause.STATE_NOT_RESET,
            "hand episode_start on to the networks, which take the initial state where it is set",
        )
    elif not _differ(began, went_on):
        yield Finding(
            "episodes begin anew",
            f"{agent.name}.act(episode_start=False)",
            "the recurrent state within an episode was another one, and neither action nor state after it moved",
            Cause.UNUSED_INPUT,
            "hand the recurrent state on to the networks, and reset it only where an episode starts",
        )


def _after(agent: Agent, observations: Any, state: Any, start: np.ndarray) -> dict[str, np.ndarray]:
    own, _, after = agent.act(observations, state, start, explore=False)
    return {path: np.asarray(leaf) for path, leaf in flatten_tree({"action": own, "state": after}).items()}


def _differ(one: State, other: State) -> bool:
    return any(bool(differs(leaf, other[path], 1e-5).any()) for path, leaf in one.items())


def evaluation_changes_nothing(subject: AgentSubject) -> Iterator[Finding]:
    """Acting greedily leaves every variable as it is: normalizers, counters, random numbers."""
    agent = subject.fresh()
    before = {**agent.executor.state_dict(), **agent.acting.state_dict()}
    counters = agent.counters()
    player = agent.greedy_player()
    for _ in range(3):
        player(subject.observations, np.ones(subject.rows, np.bool_))
    after = {**agent.executor.state_dict(), **agent.acting.state_dict()}
    moved = [path for path in before if not np.array_equal(before[path], after[path], equal_nan=True)]
    moved += [name for name, count in agent.counters().items() if count != counters[name]]
    if moved:
        yield Finding(
            "evaluation changes nothing",
            f"{agent.name}.act(explore=False)",
            f"it moved {listed(moved)}",
            Cause.EVALUATION_LEARNS,
            "update statistics where the agent learns, in update(batch), not where it acts",
        )


def acts_row_by_row(subject: AgentSubject) -> Iterator[Finding]:
    """Greedy actions for a batch are those for its rows, one by one."""
    agent = subject.fresh()
    observations = subject.sampled_observations(7, np.random.default_rng(1))
    together, _, _ = agent.act(observations, explore=False)
    for row in range(7):
        alone, _, _ = agent.act(tree_map(lambda x, row=row: x[row : row + 1], observations), explore=False)
        pairs = zip(flatten_tree(alone).values(), flatten_tree(together).values(), strict=True)
        if any(differs(np.asarray(one)[0], np.asarray(all_)[row], 1e-4).any() for one, all_ in pairs):
            yield Finding(
                "acts row by row",
                f"{agent.name}.act(explore=False)",
                f"row {row} of 7 observations has another action alone than with the others",
                Cause.BATCH_SIZE_COUNTS,
                "let nothing in the policy depend on the other rows or on their number",
            )
            return
