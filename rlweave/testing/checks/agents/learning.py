"""What an agent learns: what belongs to a batch counts in the right direction, and what is rewarded is done more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from rlweave.agents.agent import Agent
from rlweave.agents.replay_agent import ReplayAgent
from rlweave.agents.rollout_agent import RolloutAgent
from rlweave.spaces import Box
from rlweave.testing.checks.agents.subject import AgentSubject
from rlweave.testing.checks.findings import Cause, Finding
from rlweave.testing.checks.inputs import shaken
from rlweave.tree import flatten_tree, tree_map, unflatten_like

State = Mapping[str, np.ndarray]
#: Updates on one batch, in which the loss has to fall.
REPEATED = 60
#: Share of the first loss below which it has to come, with a small learning rate, too.
FALL = 0.998
#: Rewards that are changed one by one.
SINGLE = 16
#: Weight of the entropy, besides which no other term of a loss counts, and the updates in which it has to rise.
HEAVY, RISING = 1e6, 10
#: A learning rate that overshoots nowhere, and one that moves nothing; 0 is refused.
SMALL_RATE, NO_RATE = 1e-5, 1e-20
#: Settings that weight the entropy.
ENTROPY_WEIGHTS = ("entropy_coefficient", "temperature")


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


def entropy_rises(subject: AgentSubject) -> Iterator[Finding]:
    """Updates in which the entropy weighs far more than all else raise the entropy of the policy."""
    fields = type(subject.unbuilt.config).model_fields
    names = [name for name in ENTROPY_WEIGHTS if name in fields]
    if not names:
        return
    settings = {names[0]: HEAVY, "lr": SMALL_RATE, "temperature_lr": NO_RATE}
    agent = subject.trial.agent(settings={name: value for name, value in settings.items() if name in fields})
    weights = shaken(subject, agent.get_weights(), seed=0)
    cells = agent.executor.store.cells
    agent.set_weights({path: x for path, x in weights.items() if path in cells})
    # random numbers, and statistics of observations, which move with every update
    the_same = {path: x for path, x in weights.items() if path in cells and not cells[path].trainable}

    def entropy() -> float | None:
        agent.executor.set_weights(the_same)
        found = agent.learn(subject.batches[0]).get("entropy")
        return None if found is None else float(found)

    found = [entropy() for _ in range(RISING)]
    before, after = found[0], found[-1]
    if before is not None and after is not None and after < before - 1e-5:
        yield Finding(
            "entropy rises",
            f"{agent.name}.learn",
            f"with {names[0]}={HEAVY:g}, {RISING} updates changed the entropy of the policy from {before:.4g} to "
            f"{after:.4g}",
            Cause.ENTROPY_SIGN,
            "take the weighted entropy away from the loss: loss - coefficient * entropy; or add the weighted "
            "log-probabilities",
        )


def whole_state(agent: Agent) -> dict[str, np.ndarray]:
    """What an agent saves, and what its graph holds besides: an agent that saves too little is another finding."""
    return {**agent.executor.state_dict(), **agent.state_dict()}


class Updates:
    """Updates from one state on one batch, with some of it changed.

    Args:
        subject: The agent.
    """

    def __init__(self, subject: AgentSubject) -> None:
        self.agent, self.batch = subject.fresh(), subject.batches[0]
        self.state, self.counters = whole_state(self.agent), self.agent.counters()
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


def batch_counts(subject: AgentSubject) -> Iterator[Finding]:
    """What was observed, what was done, and how likely it was: each leaf, changed in the batch, changes the update."""
    updates = Updates(subject)
    plain = updates.learned()
    fields = type(subject.unbuilt.config).model_fields
    again = plain["gradient_steps"] > 1 or ("epochs" in fields and fields["epochs"].default > 1)
    ratios = again or "off_policy" in plain
    for path, array in updates.flat.items():
        name = path.split("/")[0]
        if name not in ("observations", "actions", *(("log_probs",) if ratios else ())) or not array.size:
            continue
        other = _another(subject, path, array)
        if not np.array_equal(other, array) and same(plain, updates.learned(**{path: other})):
            fix = "see where this leaf is lost: in a preprocessor, a network that takes other leaves, a mask"
            if name == "log_probs":
                fix = (
                    "a batch that is learned from more than once, or by a later policy, needs the ratio of the "
                    "probability now to that stored with the action, which no update may compute again"
                )
            yield _unseen(subject, path, Cause.UNUSED_INPUT, fix)


def _another(subject: AgentSubject, path: str, array: np.ndarray) -> np.ndarray:
    """Other values of a leaf of a batch; the same where there is no choice."""
    if not path.startswith("actions"):
        return subject.other(path, array)
    leaf = subject.unbuilt.own_action_space.flatten()[path.removeprefix("actions").lstrip("/")]
    assert isinstance(leaf, Box)
    if array.dtype.kind in "iu":  # the next of those that there are
        return ((array + 1) % np.asarray(leaf.high)).astype(array.dtype)
    return np.logical_not(array) if array.dtype == np.bool_ else (array * 0.5 + 0.1).astype(array.dtype)


def rewards_count(subject: AgentSubject) -> Iterator[Finding]:
    """Rewards that are changed in the batch change what is learned: all, and each one, of a last step, too."""
    updates = Updates(subject)
    rewards, in_rollouts = updates.flat["rewards"], isinstance(subject.unbuilt, RolloutAgent)
    changed = rewards + 1.0 + np.arange(rewards.size, dtype=np.float32).reshape(rewards.shape)
    if same(updates.learned(), updates.learned(rewards=changed)):
        yield _unseen(subject, "rewards", Cause.REWARD_IGNORED, "see what becomes of them on the way to the loss")
        return
    for end in ("", *updates.on):
        ends = {end: np.ones_like(updates.on[end])} if end else {}
        plain = updates.learned(**ends)
        for row in range(min(len(rewards), SINGLE)):
            other = rewards.copy()
            other[(row, row % rewards.shape[1]) if in_rollouts else row] += 1.0
            if same(plain, updates.learned(**ends, rewards=other)):
                seen = f"the reward of {'step' if in_rollouts else 'row'} {row} of a batch was changed, "
                seen += f"where all were {end or 'neither terminated nor truncated'}, and the update was the same"
                fix = "every step has a reward, the last one of an episode, too: only the value after it falls away"
                yield Finding("rewards count", f"{subject.descriptor.name}.learn", seen, Cause.REWARD_IGNORED, fix)
                return


def ends_count(subject: AgentSubject) -> Iterator[Finding]:
    """A terminal state has no value, so what is observed after it does not count; a cut episode has one."""
    if not subject.observations_vary:  # and neither does the value, which may be 0
        return
    updates = Updates(subject)
    flat, plain = updates.flat, updates.learned()
    following = {p: subject.other(p, x) for p, x in flat.items() if p.split("/")[0] == "next_observations"}
    if following and same(plain, updates.learned(**following)):
        fix = "bootstrap from the value of next_observations"
        yield _unseen(subject, "next_observations of rows that did not end", Cause.WRONG_BOOTSTRAP, fix)
    everywhere = np.ones_like(flat["terminated"])
    ended = updates.learned(terminated=everywhere)
    if same(plain, ended):
        yield of_ends(subject, "all rows were terminated, and the update was the same", Cause.TERMINATION_IGNORED)
    elif following and not same(ended, updates.learned(terminated=everywhere, **following)):
        seen = "next_observations of terminated rows were changed, and the update was another one"
        yield of_ends(subject, seen, Cause.TERMINATION_IGNORED)
    if "truncated" not in flat:
        return
    cut = updates.learned(truncated=everywhere)
    if same(cut, ended) or (following and same(cut, updates.learned(truncated=everywhere, **following))):
        seen = "rows were truncated, and the value of their next_observations did not count"
        yield of_ends(subject, seen, Cause.TRUNCATION_AS_TERMINATION)


def _unseen(subject: AgentSubject, what: str, cause: Cause, fix: str) -> Finding:
    seen = f"{what} in all rows of a batch were changed, and the update was the same"
    return Finding("batch counts", f"{subject.descriptor.name}.learn", seen, cause, fix)


def of_ends(subject: AgentSubject, seen: str, cause: Cause, method: str = "learn") -> Finding:
    """A finding of ends of episodes."""
    fix = "value targets are rewards + discount * (1 - terminated) * next value; truncated rows keep their next value"
    return Finding("ends count", f"{subject.descriptor.name}.{method}", seen, cause, fix)


def same(one: State, other: State) -> bool:
    """Whether two updates left the same state, optimizers and random state among it, and reported the same."""
    return all(np.array_equal(one[path], other[path], equal_nan=True) for path in one)


def probabilities_fit(subject: AgentSubject) -> Iterator[Finding]:
    """Where log-probabilities are stored with actions, the policy that has not learned since gives the same."""
    fields = type(subject.unbuilt.config).model_fields
    agent = subject.trial.agent(settings={"lr": NO_RATE} if "lr" in fields else {})  # the policy stays in all passes
    metrics = subject.trial.play(agent, 1)[0]
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
