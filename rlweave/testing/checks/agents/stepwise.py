"""What becomes of steps that an agent observes one by one, on their way to an update."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from rlweave.agents.agent import Agent
from rlweave.agents.replay_agent import ReplayAgent
from rlweave.testing.checks.agents.learning import of_ends, same, whole_state
from rlweave.testing.checks.agents.subject import AgentSubject
from rlweave.testing.checks.agents.trial import Capture
from rlweave.testing.checks.findings import Cause, Finding
from rlweave.tree import flatten_tree, tree_map

#: Steps of each environment in which episodes end.
LONG = 100
#: Most steps of each environment until an update.
MOST_STEPS = 2_000
#: Different observations; they are observed again and again.
DIFFERENT = 64
#: A next observation is none of the next step, as where a new episode begins.
APART = 3


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


def observed_ends_count(subject: AgentSubject) -> Iterator[Finding]:
    """As `ends_count`, of steps that are observed one by one and learned from later, through the memory."""
    if not subject.observations_vary:
        return
    steps = _Steps(subject)
    ended = steps.learned(terminated=True)
    if not same(ended, steps.learned(terminated=True, shift=1)):
        seen = "steps that terminated were observed with other next observations, and the update was another one"
        yield of_ends(subject, seen, Cause.TERMINATION_IGNORED, "observe")
        return
    cut = steps.learned(truncated=True)
    if same(ended, cut) or same(cut, steps.learned(truncated=True, shift=1)):
        seen = "steps that were truncated were observed, and the value of their next observations did not count"
        yield of_ends(subject, seen, Cause.TRUNCATION_AS_TERMINATION, "observe")


class _Steps:
    """Updates from one state on episodes of one step each.

    Args:
        subject: The agent.
    """

    def __init__(self, subject: AgentSubject) -> None:
        self.agent, self.rows = subject.fresh(), subject.rows
        self.state, self.counters = whole_state(self.agent), self.agent.counters()
        self.observations = subject.sampled_observations(DIFFERENT, np.random.default_rng(0))

    def learned(self, terminated: bool = False, truncated: bool = False, shift: int = 0) -> dict[str, np.ndarray]:
        """What is trained, and the metrics, after an update.

        Args:
            terminated: All steps are.
            truncated: All steps are.
            shift: Other next observations are observed.
        """
        agent = self.agent
        agent.load_state_dict(self.state)
        agent.load_counters(self.counters)
        agent.refill_memory()
        for step in range(MOST_STEPS):
            start = step * self.rows
            now = self.at(start, self.rows)
            actions = agent.get_actions(now, range(self.rows))
            after = self.at(start + self.rows + shift, self.rows)
            for row in range(self.rows):
                pick = operator.itemgetter(row)
                one, action, following = (tree_map(pick, x) for x in (now, actions, after))
                agent.observe(one, action, np.float32(_reward(start + row)), terminated, truncated, following, row)
            if agent.ready():  # type: ignore[attr-defined]  # all that learn from single steps have it
                break
        metrics = agent.update()
        state = agent.executor.state_dict()
        trained = {path: state[path] for path, cell in agent.executor.store.cells.items() if cell.trainable}
        return trained | {name: np.asarray(value) for name, value in metrics.items()}

    def at(self, start: int, rows: int = 1) -> Any:
        """Some of the observations, (rows, ...)."""
        chosen = np.arange(start, start + rows) % DIFFERENT
        return tree_map(operator.itemgetter(chosen), self.observations)


def steps_are_stored(subject: AgentSubject) -> Iterator[Finding]:
    """What is learned from are the steps that were observed, each with its own next observation and reward.

    A reward may be another number, clipped say, if it is a larger one for a larger one.
    """
    steps = _Steps(subject)
    known = {_key(steps.at(i), 0): i for i in range(DIFFERENT)}
    if len(known) < DIFFERENT:
        return  # observations of few values do not tell which step is which
    capture = Capture(steps.agent)
    steps.learned(terminated=True, shift=APART)
    stored = _stored(steps.agent, capture)
    found: dict[float, set[float]] = {}
    for row in range(len(stored["rewards"]) if stored else 0):
        index = known.get(_key(stored["observations"], row))
        if index is None:
            continue  # of another time, or transformed
        if _key(stored["next_observations"], row) != _key(steps.at(index + subject.rows + APART), 0):
            seen = "a step that was observed was learned from with another next observation than its own"
            fix = "store next_observation as it was observed: at the end of an episode the final one, no reset's"
            yield Finding("steps are stored", f"{subject.descriptor.name}.observe", seen, Cause.WRONG_BOOTSTRAP, fix)
            return
        found.setdefault(_reward(index), set()).add(float(stored["rewards"][row]))
    in_order = [rewards for _, rewards in sorted(found.items())]
    if any(max(one) > min(two) for one, two in pairwise(in_order)) or any(len(rewards) > 1 for rewards in in_order):
        seen = "steps that were observed were learned from with rewards of other steps"
        fix = "keep what belongs to a step in one row, and turn no axis of a rollout on its way"
        yield Finding("steps are stored", f"{subject.descriptor.name}.observe", seen, Cause.WRONG_STEP, fix)


def _rows(array: np.ndarray) -> np.ndarray:
    """Records (T * B, ...) of a rollout (T, B, ...), whose leaves may be empty."""
    return array.reshape(array.shape[0] * array.shape[1], *array.shape[2:])


def _stored(agent: Agent, capture: Capture) -> dict[str, Any]:
    """Rows (N, ...) that an update learned from: of the batch that it was given, or of a memory."""
    for (method, _), calls in capture.calls.items():
        batch = calls[-1].arguments.get("batch")
        if method == "update" and isinstance(batch, dict):
            kept = {name: batch[name] for name in ("observations", "next_observations", "rewards")}
            return {
                name: tree_map(lambda x: x.reshape(x.shape[0] * x.shape[1], *x.shape[2:]), leaf)
                for name, leaf in kept.items()
            }
    flat = {
        path.split("/memory/records/")[1]: x
        for path, x in agent.executor.state_dict().items()
        if "/memory/records/" in path
    }
    whole = agent.record_space() if isinstance(agent, ReplayAgent) and not agent.recurrent else None
    if whole is None or set(flat) != set(whole.flatten()):
        return {}
    return dict(whole.unflatten(flat))


def _key(rows: Any, row: int) -> bytes:
    return b"".join(np.ascontiguousarray(leaf[row]).tobytes() for leaf in flatten_tree(rows).values())


def _reward(index: int) -> float:
    return float(index % DIFFERENT % 7)
