"""What becomes of steps that an agent observes one by one, on their way to an update."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import numpy as np

from rlweave.testing.checks.agents.learning import of_ends, same, whole_state
from rlweave.testing.checks.agents.subject import AgentSubject
from rlweave.testing.checks.findings import Cause, Finding
from rlweave.tree import tree_map

#: Steps of each environment in which episodes end.
LONG = 100
#: Most steps of each environment until an update.
MOST_STEPS = 2_000
#: Different observations; they are observed again and again.
DIFFERENT = 64


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
            now = self._observations(start)
            actions = agent.get_actions(now, range(self.rows))
            after = self._observations(start + self.rows + shift)
            for row in range(self.rows):
                pick = operator.itemgetter(row)
                one, action, following = (tree_map(pick, x) for x in (now, actions, after))
                agent.observe(one, action, np.float32((start + row) % 7), terminated, truncated, following, row)
            if agent.ready():  # type: ignore[attr-defined]  # all that learn from single steps have it
                break
        metrics = agent.update()
        state = agent.executor.state_dict()
        trained = {path: state[path] for path, cell in agent.executor.store.cells.items() if cell.trainable}
        return trained | {name: np.asarray(value) for name, value in metrics.items()}

    def _observations(self, start: int) -> Any:
        chosen = np.arange(start, start + self.rows) % DIFFERENT
        return tree_map(operator.itemgetter(chosen), self.observations)
