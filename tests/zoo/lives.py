"""One life of an agent in the zoo: it is built, acts, learns once, is saved and loaded, and acts as before."""

import dataclasses
import math
import operator
from typing import Any

import numpy as np

from rlweave.agents.a2c import A2C, A3C
from rlweave.agents.ape_x import ApeX
from rlweave.agents.appo import APPO
from rlweave.agents.dqn import DQN
from rlweave.agents.elements import stack
from rlweave.agents.impala import IMPALA
from rlweave.agents.ppo import PPO
from rlweave.agents.pqn import PQN
from rlweave.agents.sac import SAC
from rlweave.agents.stepping import rows_from
from rlweave.agents.td3 import DDPG, TD3
from rlweave.components.action_leaves import ANY_KIND, COUNTABLE, FLOATS
from rlweave.extras.es_agent import ES, Generation
from rlweave.extras.maml_agent import MAML
from rlweave.runs.checkpoint import load_checkpoint, save_checkpoint
from rlweave.spaces import BoolBox, Dict, IntBox
from rlweave.tree import tree_leaves, tree_map
from tests.zoo.spaces import Refused

ENVS, STEPS = 2, 4
MASK = "allowed"

FEED_FORWARD = [{"type": "dense", "units": 4, "activation": "tanh"}]
RECURRENT = [{"type": "lstm", "units": 4}]
SMALL_CONVOLUTION = [{"type": "conv2d", "filters": 2, "kernel_size": 3, "activation": "tanh"}]

ROLLOUT = {"rollout_steps": STEPS}
SEVERAL_EPOCHS = {**ROLLOUT, "epochs": 1, "minibatches": 1}
REPLAY = {"n_step": 1, "learning_starts": 4, "batch_size": 4, "memory_capacity": 32}
SEQUENCES = {"unroll": 2, "burn_in": 1}


@dataclasses.dataclass(frozen=True)
class Kind:
    """An agent, and which of the zoo's variants it takes.

    Attributes:
        agent: Its class.
        settings: The settings that keep it small.
        actions: Kinds of leaves that its actions may have.
        recurrent: Whether it takes recurrent networks.
        options: Arguments of the constructor.
    """

    agent: type
    settings: dict[str, Any]
    actions: frozenset[str] = ANY_KIND
    recurrent: bool = True
    options: dict[str, Any] = dataclasses.field(default_factory=lambda: {"num_envs": ENVS})


KINDS: dict[str, Kind] = {
    "ppo": Kind(PPO, {**SEVERAL_EPOCHS, "normalize_observations": True}),
    "a2c": Kind(A2C, ROLLOUT),
    "a3c": Kind(A3C, ROLLOUT),
    "impala": Kind(IMPALA, ROLLOUT),
    "appo": Kind(APPO, SEVERAL_EPOCHS),
    "pqn": Kind(PQN, {**SEVERAL_EPOCHS, "epsilon": 0.5}, COUNTABLE),
    "dqn": Kind(DQN, {**REPLAY, **SEQUENCES, "epsilon": 0.5}, COUNTABLE, options={}),
    "ape-x": Kind(ApeX, {"batch_size": 4, "learning_starts": 4, "n_step": 1}, COUNTABLE, recurrent=False, options={}),
    "sac": Kind(SAC, REPLAY, FLOATS, recurrent=False, options={}),
    "td3": Kind(TD3, {**REPLAY, "policy_delay": 1}, FLOATS, recurrent=False, options={}),
    "ddpg": Kind(DDPG, REPLAY, FLOATS, recurrent=False, options={}),
    "es": Kind(ES, {"pairs": 1, "noise_size": 4096}, recurrent=False),
    "maml": Kind(MAML, {"shots": STEPS}, recurrent=False, options={"tasks": ENVS}),
}


@dataclasses.dataclass(frozen=True)
class Cell:
    """An agent, the spaces it lives with, and how."""

    kind: str
    observations: Any
    actions: Any
    recurrent: bool = False
    masked: bool = False

    @property
    def observation_space(self):
        """What is observed: in masked cells also which actions are allowed."""
        if not self.masked:
            return self.observations
        leaf = self.actions.flatten().get("")
        numbers = int(leaf.high - leaf.low) if isinstance(leaf, IntBox) and not leaf.shape else 2
        return Dict({MASK: BoolBox(shape=(numbers,)), "seen": self.observations})

    def make(self, backend="torch", seed=0):
        """The agent, built."""
        agent = self.construct(backend, seed)
        agent.check_components()
        return agent.build()

    def construct(self, backend="torch", seed=0):
        """The agent; where it acts only on the backend that learns, as it does by default, else on NumPy."""
        kind = KINDS[self.kind]
        settings = {**kind.settings, "network": RECURRENT if self.recurrent else FEED_FORWARD}
        if any(leaf.is_image for leaf in self.observations.flatten().values()):
            settings["image_network"] = SMALL_CONVOLUTION
        if kind.agent is not MAML:
            settings["acting_backend"] = "numpy"
        if self.masked:
            settings["mask_leaf"] = MASK
        return kind.agent(self.observation_space, self.actions, settings, backend=backend, seed=seed, **kind.options)

    def observe(self, rows, rng):
        """Observations (rows, ...); masks allow some actions, at least one."""
        seen = self.observation_space.with_batch_rank().sample(rows, rng=rng)
        if self.masked:
            mask = seen[MASK]
            mask[np.arange(rows), rng.integers(mask.shape[1], size=rows)] = True
        return seen


def live(cell, backend, directory):
    """The whole life of one agent."""
    agent, rng = cell.make(backend), np.random.default_rng(0)
    before = learned_state(agent)
    metrics = learn_once(cell, agent, rng)
    assert all(np.isfinite(value) for value in metrics.values())
    after = learned_state(agent)
    assert any(not np.array_equal(before[path], after[path]) for path in before), "an update has moved nothing"
    path = save_checkpoint(directory, agent.env_steps, agent.state_dict(), agent.counters())
    seen = [cell.observe(3, rng) for _ in range(2)]
    acted = acts(cell, agent, seen)
    again = cell.make(backend, seed=1)
    state, counters = load_checkpoint(path)
    again.load_state_dict(state)
    again.load_counters(counters)
    for one, other in zip(tree_leaves(acted), tree_leaves(acts(cell, again, seen)), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


def learned_state(agent):
    """What an update may move: all but random numbers and memories."""
    return {path: value for path, value in agent.state_dict(memory=False).items() if "random" not in path}


def acts(cell, agent, seen):
    """Greedy actions and explored ones, of several steps of an episode, with all that is stored of them."""
    steps = []
    for explore in (False, True):
        memory, start = agent.initial_state(3), np.ones(3, np.bool_)
        for observations in seen:
            own, extra, memory = agent.act(observations, memory, start, explore=explore)
            check_actions(cell, agent, observations, agent.env_actions(own))
            steps.append((own, extra, memory))
            start = np.zeros(3, np.bool_)
    return tree_map(np.asarray, tuple(steps))


def check_actions(cell, agent, observations, actions):
    """Actions (B, ...) lie in the space, and are allowed."""
    assert agent.action_space.with_batch_rank().why_not(actions) is None
    if cell.masked:
        assert observations[MASK][np.arange(len(actions)), actions - cell.actions.low].all()


def learn_once(cell, agent, rng):
    """One update from experience of its own."""
    if isinstance(agent, ES):
        generation = Generation(agent.draw_offsets(rng, 1), ENVS)
        agent.perturb(generation)
        observations = cell.observe(ENVS, rng)
        check_actions(cell, agent, observations, agent.act_perturbed(observations))
        return agent.update({"offsets": generation.offsets, "returns": rng.normal(size=(1, 2))})
    if isinstance(agent, MAML):
        support = agent.postprocess(rollout(cell, agent, agent.act, rng))
        agent.adapt(support)
        return agent.update(
            {"support": support, "query": agent.postprocess(rollout(cell, agent, agent.act_adapted, rng))}
        )
    if isinstance(agent, ApeX):
        records = agent.record_space().with_batch_rank().sample(4, rng=rng)
        records["observations"], records["next_observations"] = cell.observe(4, rng), cell.observe(4, rng)
        return agent.update(records)
    return learn_step_by_step(cell, agent, rng)


def rollout(cell, agent, act, rng):
    """A rollout (T, B, ...) of tasks."""
    rows = []
    for _ in range(STEPS):
        observations = cell.observe(ENVS, rng)
        own, extra, _ = act(observations)
        check_actions(cell, agent, observations, agent.env_actions(own))
        ends = {"terminated": rng.random(ENVS) < 0.3, "truncated": rng.random(ENVS) < 0.3}
        rewards = rng.normal(size=ENVS).astype(np.float32)
        rows.append({"observations": observations, "actions": own, **extra, "rewards": rewards, **ends})
    return stack(rows)


def learn_step_by_step(cell, agent, rng):
    """Acts in two environments whose episodes end at different steps, observes what it leads to, and learns."""
    observations = cell.observe(ENVS, rng)
    for step in range(STEPS):
        actions = agent.get_actions(observations, env_ids=range(ENVS))
        check_actions(cell, agent, observations, actions)
        following, anew = cell.observe(ENVS, rng), cell.observe(ENVS, rng)
        ends = (step + np.arange(ENVS)) % 3 == 2
        for row in range(ENVS):
            one, action, then = tree_map(operator.itemgetter(row), (observations, actions, following))
            agent.observe(one, action, rng.normal(), bool(ends[row]), False, then, env_id=row)
        observations = rows_from(ends, anew, following)
    return agent.update()


def refusal(cell):
    """Why an agent cannot live in this cell, as a `Refused`; None if it can."""
    kind, leaves = KINDS[cell.kind], cell.actions.flatten()
    for path, leaf in leaves.items():
        if _kind_of(leaf) not in kind.actions:
            why = "actions that can be counted" if kind.actions == COUNTABLE else "floats only"
            return Refused(cell.actions, f"action {path!r}" if path else "action", why, "PPO")
    if kind.actions == COUNTABLE and not any(math.prod(leaf.shape) for leaf in leaves.values()):
        return Refused(cell.actions, "action", "at least one component", "PPO")
    if cell.recurrent and not kind.recurrent:
        return Refused(cell.actions, "network", "recurrent" if cell.kind in ("ape-x", "maml") else "state", "or ")
    (path, leaf), *others = leaves.items()
    if cell.masked and (others or _kind_of(leaf) != "categorical" or leaf.shape):
        return Refused(cell.actions, repr(path), "where one of N is chosen", "IntBox(n)")
    return None


def _kind_of(leaf):
    return "bernoulli" if isinstance(leaf, BoolBox) else "categorical" if isinstance(leaf, IntBox) else "normal"
