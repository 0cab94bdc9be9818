"""What holds for every agent that learns, in the order in which it is checked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from rlweave.agents.agent import Agent
from rlweave.testing.checks.agents.acting import (
    actions_in_space,
    acts_row_by_row,
    episodes_begin_anew,
    evaluation_changes_nothing,
)
from rlweave.testing.checks.agents.learning import (
    batch_counts,
    ends_count,
    entropy_rises,
    loss_falls,
    probabilities_fit,
    rewarded_actions_grow,
    rewards_count,
    temperature_follows,
)
from rlweave.testing.checks.agents.stepwise import observed_ends_count, steps_are_counted, steps_are_stored
from rlweave.testing.checks.agents.subject import AgentSubject
from rlweave.testing.checks.agents.weights import own_rates_hold, weights_move
from rlweave.testing.checks.findings import Cause, Finding
from rlweave.testing.checks.rows import listed
from rlweave.tree import flatten_tree

#: Makes one TD error larger than all others.
HUGE_REWARD = 1e4
#: Steps after which schedules are under way.
LATER = 3_000
#: Observations that both agents act on.
ACTED_ON = 50


def resumes_exactly(subject: AgentSubject) -> Iterator[Finding]:
    """A second agent that loads the state of the first goes on as that does, bit for bit; schedules do, too."""
    agent, twin = subject.fresh(), subject.trial.agent(seed=7)
    for batch in subject.batches:
        agent.learn(batch)
    agent.count_steps(LATER)
    twin.load_state_dict(agent.state_dict())
    twin.load_counters(agent.counters())
    observations = subject.sampled_observations(ACTED_ON, np.random.default_rng(0))
    for what in ("counters", "act", "learn", "act"):
        one, other = (_one_step(each, what, subject, observations) for each in (agent, twin))
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


def _one_step(agent: Agent, what: str, subject: AgentSubject, observations: Any) -> dict[str, np.ndarray]:
    if what == "counters":
        return {name: np.asarray(count) for name, count in agent.counters().items()}
    if what == "act":
        own, stored, _ = agent.act(observations)
        return {"actions": _joined(own), **{name: _joined(leaf) for name, leaf in stored.items()}}
    metrics = agent.learn(subject.batches[-1])
    return {name: np.asarray(value) for name, value in {**metrics, **agent.executor.state_dict()}.items()}


def _joined(structure: Any) -> np.ndarray:
    leaves = [np.asarray(leaf, np.float64).reshape(-1) for leaf in flatten_tree(structure).values() if leaf is not None]
    return np.concatenate(leaves) if leaves else np.zeros(0)


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


#: Every law, in the order in which they are checked.
LAWS = (
    loss_falls,
    entropy_rises,
    temperature_follows,
    rewarded_actions_grow,
    weights_move,
    own_rates_hold,
    batch_counts,
    rewards_count,
    ends_count,
    observed_ends_count,
    probabilities_fit,
    priorities_go_to_their_rows,
    actions_in_space,
    acts_row_by_row,
    episodes_begin_anew,
    evaluation_changes_nothing,
    resumes_exactly,
    steps_are_counted,
    steps_are_stored,
)
