"""What an agent comes to do: more of what is rewarded, and with the entropy that it aims at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from rlweave.agents.agent import Agent
from rlweave.agents.replay_agent import ReplayAgent
from rlweave.testing.checks.agents.subject import AgentSubject
from rlweave.testing.checks.findings import Cause, Finding
from rlweave.tree import flatten_tree, tree_map, unflatten_like

#: Updates after which an agent does more of what is rewarded, and its learning rate meanwhile.
BANDIT, QUICK_RATE = 120, 3e-3
#: Records that an agent with a memory learns from, and how often each observation is acted on to see what it does.
RECORDS, ACTED = 64, 40
#: How much less a number has to be to have fallen.
LESS = 0.02


def rewarded_actions_grow(subject: AgentSubject) -> Iterator[Finding]:
    """Where larger actions have larger rewards, and every episode has one step, actions become no smaller."""
    fields = type(subject.unbuilt.config).model_fields
    agent = subject.trial.agent(settings={"lr": QUICK_RATE} if "lr" in fields else {})
    if agent.recurrent and isinstance(agent, ReplayAgent):
        return  # sequences of several steps are no such episodes
    batch = _records(agent, subject) if isinstance(agent, ReplayAgent) else subject.batches[0]
    done = _first(batch["actions"], batch["rewards"].ndim).astype(np.float64)
    if not done.std() > 0:
        return
    rewards = (5.0 * (done - done.mean()) / done.std()).astype(np.float32)
    ends = {"terminated": np.ones_like(batch["terminated"])}
    before = _size(agent, subject)
    for _ in range(BANDIT):
        agent.learn({**batch, **ends, "rewards": rewards})
    after = _size(agent, subject)
    if after < before - LESS * done.std():
        yield Finding(
            "rewarded actions grow",
            f"{agent.name}.learn",
            f"in {BANDIT} updates larger actions had larger rewards, and the mean action fell from {before:.4g} to "
            f"{after:.4g}",
            Cause.LOSS_SIGN,
            "look at the sign of the policy's loss (minus log-probability times advantage, minus the value), and of "
            "advantages",
        )


def _size(agent: Agent, subject: AgentSubject) -> float:
    """Mean of the first component of actions, drawn with the same random numbers each time; greedy without chances."""
    agent.set_weights({p: x for p, x in subject.random_state(0).items() if p in agent.executor.store.cells})
    many = tree_map(lambda leaf: np.concatenate([leaf] * ACTED), subject.observations)
    own, _, _ = agent.act(many, explore=not isinstance(agent, ReplayAgent))
    return float(np.mean(_first(own).astype(np.float64)))


def _first(actions: Any, ranks: int = 1) -> np.ndarray:
    """The first component of the first leaf of actions with so many ranks before its own."""
    leaf = np.asarray(next(iter(flatten_tree(actions).values())))
    return leaf.reshape(*leaf.shape[:ranks], -1)[..., 0]


def _records(agent: ReplayAgent, subject: AgentSubject) -> dict[str, Any]:
    """Transitions of any actions: of numbers those in their middle range, of others what is explored."""
    rng = np.random.default_rng(0)
    observations, following = (subject.sampled_observations(RECORDS, rng) for _ in range(2))
    own, _, _ = agent.act(observations)
    flat = {
        path: rng.uniform(-1, 1, leaf.shape).astype(leaf.dtype) if leaf.dtype.kind == "f" else leaf
        for path, leaf in ((path, np.asarray(leaf)) for path, leaf in flatten_tree(own).items())
    }
    return {
        "observations": observations,
        "actions": unflatten_like(own, flat),
        "rewards": np.zeros(RECORDS, np.float32),
        "terminated": np.ones(RECORDS, np.bool_),
        "discounts": np.full(RECORDS, 0.99, np.float32),
        "next_observations": following,
    }


def temperature_follows(subject: AgentSubject) -> Iterator[Finding]:
    """A temperature that is learned rises where the entropy is below its target, and falls where it is above."""
    fields = type(subject.unbuilt.config).model_fields
    if not {"target_entropy", "learn_temperature"} <= set(fields):
        return
    for target in (1e3, -1e3):
        agent = subject.trial.agent(settings={"target_entropy": target, "learn_temperature": True})
        found = [agent.learn(subject.batches[0]).get("temperature") for _ in range(5)]
        if found[0] is not None and (found[-1] - found[0]) * target < 0:
            yield Finding(
                "temperature follows",
                f"{agent.name}.learn",
                f"with a target entropy of {target:g} the temperature went from {found[0]:.4g} to {found[-1]:.4g}",
                Cause.LOSS_SIGN,
                "the loss of the temperature is -log(alpha) * (log-probability + target entropy)",
            )
            return
