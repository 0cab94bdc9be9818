"""What holds for every agent that learns: of its updates, of what it saves, and of how it acts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from rlweave.agents.agent import Agent
from rlweave.testing.checks.agents.subject import AgentSubject
from rlweave.testing.checks.axes import differs
from rlweave.testing.checks.findings import Cause, Finding
from rlweave.testing.checks.rows import listed
from rlweave.tree import flatten_tree, tree_map, unflatten_like

State = Mapping[str, np.ndarray]
#: Updates on one batch, in which the loss has to fall.
REPEATED = 60
#: Steps of each environment in which episodes end.
LONG = 100
#: Makes one TD error larger than all others.
HUGE_REWARD = 1e4
#: Share of the first loss below which it has to come.
FALL = 0.95


def loss_falls(subject: AgentSubject) -> Iterator[Finding]:
    """Many updates on one batch of last steps: the loss (of an actor-critic that of its value function) falls.

    Targets of last steps are rewards: nothing is bootstrapped from what is learned.
    """
    agent = subject.fresh()
    batch = {**subject.batches[0], "terminated": np.ones_like(subject.batches[0]["terminated"])}
    losses = []
    for _ in range(REPEATED):
        metrics = agent.learn(batch)
        losses.append(metrics["value_loss"] if "value_loss" in metrics else metrics["loss"])
    last = float(np.mean(losses[-REPEATED // 6 :]))
    if not last < FALL * losses[0] and losses[0] > 1e-6:
        yield Finding(
            "loss falls",
            f"{agent.name}.learn",
            f"{REPEATED} updates on one batch: the loss went from {losses[0]:.4g} to {last:.4g}",
            Cause.LOSS_STAYS,
            "look at the sign of the loss, at what the optimizer moves, and whether the learning rate is too large",
        )


def weights_move(subject: AgentSubject) -> Iterator[Finding]:
    """Updates move every trainable variable; a target network moves only towards the network that it follows."""
    agent = subject.fresh()
    cells = agent.executor.store.cells
    states = [agent.executor.state_dict()]
    for batch in subject.batches * 2:
        agent.learn(batch)
        states.append(agent.executor.state_dict())
    still = [path for path, cell in cells.items() if cell.trainable and _equal(states[0][path], states[-1][path])]
    if still:
        yield Finding(
            "weights move",
            listed(still),
            f"{len(states) - 1} updates left {len(still)} trainable variables as they were",
            Cause.WEIGHTS_STAY,
            "pass them to the optimizer: optimizer.step(loss, component.variables()), of all components that learn; a "
            "component that is not to learn has trainable=False",
        )
    for path in cells:
        online = path.replace("target-", "", 1)
        if online == path or online not in cells or not cells[online].trainable:
            continue
        if any(not _follows(one[path], two[path], two[online]) for one, two in pairwise(states)):
            yield Finding(
                "weights move",
                path,
                f"it moved in an update, and not towards {online}, which it is a copy of",
                Cause.WRONG_WEIGHTS_MOVE,
                "leave the target network out of the optimizer's variables: only sync(source, tau) moves it",
            )


def _equal(one: np.ndarray, other: np.ndarray) -> bool:
    return bool(np.array_equal(one, other, equal_nan=one.dtype.kind == "f"))


def _follows(before: np.ndarray, after: np.ndarray, online: np.ndarray) -> bool:
    """Whether all entries of a copy went the same share of the way to what it follows, up to rounding."""
    way, gone = online - before, after - before
    far = np.abs(way) > 1e-5
    if not far.any():
        return bool(np.all(np.abs(gone) <= np.abs(way) + 1e-6))
    share = float(np.median(gone[far] / way[far]))
    return -1e-3 <= share <= 1 + 1e-3 and bool(np.all(np.abs(gone - share * way) <= 1e-6 + 0.02 * np.abs(way)))


def actions_in_space(subject: AgentSubject) -> Iterator[Finding]:
    """A thousand actions, explored and greedy, lie in the action space, and are not all the same while it explores."""
    agent = subject.fresh()
    rng = np.random.default_rng(0)
    batch = subject.sampled_observations(1_000, rng)
    for explore in (True, False):
        own, _, _ = agent.act(batch, explore=explore)
        actions = agent.env_actions(own)
        for path, leaf in agent.action_space.flatten().items():
            array = np.asarray(flatten_tree(actions)[path])
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
            elif explore and leaf.flat_dim and array.size and (array == array[:1]).all() and _has_choice(low, high):
                yield Finding(
                    "actions in space",
                    f"{agent.name}.act(explore=True)",
                    f"{name} was the same for 1,000 observations: {array[0]}",
                    Cause.NOT_RANDOM,
                    "explore: sample from the policy, or draw an epsilon or noise for each row",
                )


def _has_choice(low: Any, high: Any) -> bool:
    return low is None or high is None or bool(np.any(np.asarray(high) > np.asarray(low)))


def resumes_exactly(subject: AgentSubject) -> Iterator[Finding]:
    """A second agent that loads the state of the first goes on as that does, bit for bit."""
    agent, twin = subject.fresh(), subject.trial.agent(seed=7)
    for batch in subject.batches:
        agent.learn(batch)
    twin.load_state_dict(agent.state_dict())
    twin.load_counters(agent.counters())
    for what in ("act", "learn", "act"):
        one, other = (_one_step(each, what, subject) for each in (agent, twin))
        wrong = [name for name in one if not np.array_equal(one[name], other[name], equal_nan=True)]
        if wrong:
            yield Finding(
                "resumes exactly",
                f"{agent.name}.{what}",
                f"after state_dict and load_state_dict, {listed(wrong)} differ{'s' if len(wrong) == 1 else ''}",
                Cause.RESUME_DIFFERS,
                "keep what an agent remembers in variables of its graph, or save it: state_dict, counters",
            )
            return


def _one_step(agent: Agent, what: str, subject: AgentSubject) -> dict[str, np.ndarray]:
    if what == "act":
        own, stored, _ = agent.act(subject.observations)
        return {"actions": _joined(own), **{name: _joined(leaf) for name, leaf in stored.items()}}
    metrics = agent.learn(subject.batches[-1])
    return {name: np.asarray(value) for name, value in {**metrics, **agent.executor.state_dict()}.items()}


def _joined(structure: Any) -> np.ndarray:
    leaves = [np.asarray(leaf, np.float64).reshape(-1) for leaf in flatten_tree(structure).values() if leaf is not None]
    return np.concatenate(leaves) if leaves else np.zeros(0)


def evaluation_changes_nothing(subject: AgentSubject) -> Iterator[Finding]:
    """Acting greedily leaves every variable as it is: normalizers, counters, random numbers."""
    agent = subject.fresh()
    before = {**agent.executor.state_dict(), **agent.actor.state_dict()}
    counters = agent.counters()
    player = agent.greedy_player()
    for _ in range(3):
        player(subject.observations, np.ones(subject.rows, np.bool_))
    after = {**agent.executor.state_dict(), **agent.actor.state_dict()}
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


class _Updates:
    """Updates from one state on one batch, with some of it changed.

    Args:
        subject: The agent.
    """

    def __init__(self, subject: AgentSubject) -> None:
        self.agent, self.batch = subject.fresh(), subject.batches[0]
        self.state, self.counters = self.agent.state_dict(), self.agent.counters()
        self.flat = {path: np.asarray(x) for path, x in flatten_tree(self.batch).items()}
        #: No row ends.
        self.on: dict[str, Any] = {
            name: np.zeros_like(self.flat[name]) for name in ("terminated", "truncated") if name in self.flat
        }

    def learned(self, **changed: Any) -> dict[str, np.ndarray]:
        """All variables after the update, and its metrics, where no row ends but as is said."""
        self.agent.load_state_dict(self.state)
        self.agent.load_counters(self.counters)
        metrics = self.agent.learn(unflatten_like(self.batch, {**self.flat, **self.on, **changed}))
        return self.agent.executor.state_dict() | {name: np.asarray(value) for name, value in metrics.items()}


def rewards_and_ends_count(subject: AgentSubject) -> Iterator[Finding]:
    """A reward, an end or an observation leaf that is changed in the batch changes what is learned.

    Of an end: a terminal state has no value, so what is observed after it does not count; a cut episode has one.
    """
    updates = _Updates(subject)
    flat, plain = updates.flat, updates.learned()
    rewards = flat["rewards"] + 1.0 + np.arange(flat["rewards"].size, dtype=np.float32).reshape(flat["rewards"].shape)
    if _same(plain, updates.learned(rewards=rewards)):
        yield _unseen(subject, "rewards", Cause.REWARD_IGNORED, "see what becomes of them on the way to the loss")
    for path, array in flat.items():
        is_seen = path.split("/")[0] == "observations" and array.size
        if is_seen and _same(plain, updates.learned(**{path: subject.other(path, array)})):
            fix = "see where this leaf is lost: in a preprocessor, a network that takes other leaves, a mask"
            yield _unseen(subject, path, Cause.UNUSED_INPUT, fix)
    following = {p: subject.other(p, x) for p, x in flat.items() if p.split("/")[0] == "next_observations"}
    if following and _same(plain, updates.learned(**following)):
        fix = "bootstrap from the value of next_observations"
        yield _unseen(subject, "next_observations of rows that did not end", Cause.WRONG_BOOTSTRAP, fix)
    everywhere = np.ones_like(flat["terminated"])
    ended = updates.learned(terminated=everywhere)
    if _same(plain, ended):
        yield _of_ends(subject, "all rows were terminated, and the update was the same", Cause.TERMINATION_IGNORED)
    elif following and not _same(ended, updates.learned(terminated=everywhere, **following)):
        seen = "next_observations of terminated rows were changed, and the update was another one"
        yield _of_ends(subject, seen, Cause.TERMINATION_IGNORED)
    if "truncated" not in flat:
        return
    cut = updates.learned(truncated=everywhere)
    if _same(cut, ended) or (following and _same(cut, updates.learned(truncated=everywhere, **following))):
        seen = "rows were truncated, and the value of their next_observations did not count"
        yield _of_ends(subject, seen, Cause.TRUNCATION_AS_TERMINATION)


def _unseen(subject: AgentSubject, what: str, cause: Cause, fix: str) -> Finding:
    seen = f"{what} in all rows of a batch were changed, and the update was the same"
    return Finding("rewards and ends count", f"{subject.descriptor.name}.learn", seen, cause, fix)


def _of_ends(subject: AgentSubject, seen: str, cause: Cause) -> Finding:
    fix = "value targets are rewards + discount * (1 - terminated) * next value; truncated rows keep their next value"
    return Finding("rewards and ends count", f"{subject.descriptor.name}.learn", seen, cause, fix)


def _same(one: State, other: State) -> bool:
    """Whether two updates left the same state, optimizers and random state among it, and reported the same."""
    return all(np.array_equal(one[path], other[path], equal_nan=True) for path in one)


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


def probabilities_fit(subject: AgentSubject) -> Iterator[Finding]:
    """Where log-probabilities are stored with actions, the policy that has not learned since gives the same."""
    metrics = subject.first_metrics
    for name in ("approx_kl", "off_policy"):
        if abs(metrics.get(name, 0.0)) > 1e-4:
            yield Finding(
                "probabilities fit",
                f"{subject.descriptor.name}.learn",
                f"{name} is {metrics[name]:.3g} in an update on steps of the very policy that learns",
                Cause.PROBABILITIES_DIFFER,
                "store the log-probability that the policy gave the action when it was drawn: of the action before it "
                "is clipped or scaled, with the same normalization of observations",
            )


def priorities_go_to_their_rows(subject: AgentSubject) -> Iterator[Finding]:
    """One of the drawn records gets a huge reward: its row of the TD errors, and no other, has to be the largest."""
    situation = next((s for s in subject.situations() if s.method == "update" and s.static), None)
    reward_paths = [path for path in situation.state if path.endswith("/rewards")] if situation is not None else []
    if situation is None or len(reward_paths) != 1:
        return
    step = next((s for s in situation.base.steps if s.node.label.endswith(".update_priorities")), None)
    if step is None or "indices" not in step.inputs:
        return
    indices = step.inputs["indices"].array
    lonely = [index for index in indices if (indices == index).sum() == 1]
    for index in lonely[:3]:
        rewards = situation.state[reward_paths[0]].copy()
        rewards[index] += HUGE_REWARD
        again = situation.run({}, {**situation.state, reward_paths[0]: rewards})
        step = next(s for s in again.steps if s.node.label.endswith(".update_priorities"))
        given = step.inputs["indices"].array
        errors = next(leaf.array for name, leaf in step.inputs.items() if name != "indices")
        largest = given[int(np.argmax(np.abs(errors)))]
        if largest != index:
            yield Finding(
                "priorities go to their rows",
                step.where,
                f"record {index} got a huge reward, and the largest TD error went to record {largest}",
                Cause.PRIORITY_OF_ANOTHER_ROW,
                "give update_priorities the indices that sample gave, and the TD errors in the order of these records",
            )
            return


def steps_are_counted(subject: AgentSubject) -> Iterator[Finding]:
    """Each step of each environment counts once, where episodes end, too."""
    agent, trial = subject.trial.agent(), subject.trial
    trial.play(agent, updates=LONG, most_steps=LONG)
    counted, made = agent.env_steps, trial.steps_made
    if counted != made:
        yield Finding(
            "steps are counted",
            f"{subject.descriptor.name}.env_steps",
            f"{made} steps were observed, {counted} were counted",
            Cause.COUNTED_TWICE,
            "count a step where it is taken in, once; a reset is no step",
        )


#: Every law, in the order in which they are checked.
LAWS = (
    loss_falls,
    weights_move,
    rewards_and_ends_count,
    probabilities_fit,
    priorities_go_to_their_rows,
    actions_in_space,
    acts_row_by_row,
    evaluation_changes_nothing,
    resumes_exactly,
    steps_are_counted,
)
