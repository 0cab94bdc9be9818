"""An agent's graph as the subject of the checks of components: its methods, with the inputs of a real training."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np

from rlweave.agents.agent import Agent
from rlweave.agents.replay_agent import ReplayAgent
from rlweave.agents.rollout_agent import RolloutAgent
from rlweave.extensions.eager import EagerExecutor
from rlweave.graph import GraphExecutor
from rlweave.spaces import Dim
from rlweave.testing.checks.agents.trial import ENVIRONMENTS, Call, Capture, Trial
from rlweave.testing.checks.subject import ROWS, Situation, Subject
from rlweave.testing.descriptors import Descriptor
from rlweave.tree import flatten_tree, tree_leaves, tree_map, unflatten_like

#: Updates of the training whose calls are looked at.
UPDATES = 3


class AgentSubject(Subject):
    """The graph of an agent. Its situations are the last calls of a short training, instead of sampled ones.

    Args:
        trial: Makes the agent, and plays with it.
    """

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        #: An agent that is not built: what it is and has, by its settings.
        self.unbuilt = agent = trial.make_agent(0)
        spaces: Any = agent.input_spaces()
        root = type(agent.make_root())
        static = agent.static_arguments
        super().__init__(
            Descriptor(agent.name, root, agent.make_root, spaces, static=static, reference=agent.backend, gradients=())
        )

    @cached_property
    def eager(self) -> EagerExecutor:
        executor = self.trial.agent(mode="eager").executor
        assert isinstance(executor, EagerExecutor)
        return executor

    @cached_property
    def compiled(self) -> GraphExecutor:
        return self.trial.agent().executor

    @cached_property
    def fast(self) -> GraphExecutor:
        return self.compiled

    @cached_property
    def second_round(self) -> list[Situation]:
        return self.situations()

    @cached_property
    def captured(self) -> list[list[Call]]:
        """The last two calls of a short training, of each method and static variant."""
        return list(self._played[1].calls.values())

    @cached_property
    def batches(self) -> list[Any]:
        """Two batches that it learned from."""
        return self._played[2]

    @cached_property
    def observations(self) -> Any:
        """Observations that it acted on, (ROWS, ...)."""
        acting = next(calls for calls in self.captured if calls[-1].method.startswith("act"))
        return _two_of(acting)[0].arguments["observations"]

    @property
    def rows(self) -> int:
        """Rows of `observations`."""
        return ROWS

    @cached_property
    def _played(self) -> tuple[Agent, Capture, list[Any]]:
        agent = self.trial.agent()
        capture = Capture(agent)
        stored: list[Any] = []
        if isinstance(agent, ReplayAgent):
            _keep(agent, stored)
        self.trial.play(agent, UPDATES)
        agent.act(self.trial.last_observations, explore=False)
        if isinstance(agent, ReplayAgent):
            while len(stored) < 2 * ROWS:
                self.trial.play(agent, 1, seed=len(stored))
            kept = [tree_map(lambda *rows: np.concatenate(rows)[:ROWS], *stored[start::2]) for start in (0, 1)]
            for records in kept:
                agent.learn(records)
            return agent, capture, kept
        kept = [call.arguments["batch"] for call in capture.calls["update", "{}"]][-2:]
        for batch in kept:
            if hasattr(agent, "postprocess"):
                agent.compute_gradients(agent.postprocess(batch))  # type: ignore[attr-defined]
        return agent, capture, kept

    def fresh(self) -> Agent:
        """The agent as it was before the last of these updates, in compiled mode."""
        agent = self.trial.agent()
        last = self.calls_of("update")[-1]
        agent.load_state_dict(last.state)
        agent.load_counters(self._played[0].counters())
        return agent

    def calls_of(self, method: str) -> list[Call]:
        """The last calls of a method."""
        return next(calls for calls in self.captured if calls[-1].method == method)

    def sampled_observations(self, rows: int, rng: np.random.Generator) -> Any:
        """Observations like those of the training, (rows, ...): each leaf near one that was seen."""
        chosen = rng.integers(0, ROWS, rows)
        space = self.unbuilt.observation_space

        def near(leaf: np.ndarray) -> np.ndarray:
            taken = leaf[chosen]
            if taken.dtype.kind != "f":
                return taken
            return (taken + rng.normal(size=taken.shape) * (0.1 + np.abs(taken))).astype(taken.dtype)

        sampled = tree_map(near, self.observations)
        clipped = {}
        for path, leaf in space.flatten().items():
            array = flatten_tree(sampled)[path]
            bounded = leaf.low is not None and leaf.high is not None
            clipped[path] = np.clip(array, leaf.low, leaf.high).astype(array.dtype) if bounded else array
        return unflatten_like(sampled, clipped)

    @cached_property
    def observations_vary(self) -> bool:
        """Whether the batches have more than one observation: not those of a bandit."""
        leading = 2 if isinstance(self.unbuilt, RolloutAgent) else 1
        first, second = (tree_leaves(batch["observations"]) for batch in self.batches)
        for one, two in zip(first, second, strict=True):
            rows = [np.reshape(x, (int(np.prod(x.shape[:leading])), -1)) for x in (one, two) if np.size(x)]
            if rows and np.any(np.concatenate(rows) != rows[0][:1]):
                return True
        return False

    def other(self, path: str, array: np.ndarray) -> np.ndarray:
        """Another array for a leaf of a batch: values that were seen elsewhere, and if they are all one, others."""
        second = np.asarray(flatten_tree(self.batches[1])[path])
        if second.shape == array.shape and not np.array_equal(second, array):
            return second
        return np.logical_not(array) if array.dtype == np.bool_ else array + np.ones_like(array)

    def _situations(self, rows: int = ROWS, seed: int = 0) -> list[Situation]:
        found = []
        for calls in self.captured:
            situation = self._situation(*_two_of(calls))
            resized = situation if rows == ROWS else self._resized(situation, rows)
            if resized is not None:
                found.append(resized)
        return found

    def round(self, rows: int = ROWS, seed: int = 0, state: dict[str, np.ndarray] | None = None) -> Iterator[Situation]:
        yield from self._situations(rows)

    def _situation(self, call: Call, other: Call) -> Situation:
        sizes = {"B": ENVIRONMENTS, "T": 0}
        situation = Situation(self, call.method, call.arguments, other.arguments, call.static, call.state, sizes)
        for path, space in situation.inputs.items():
            for axis, dim in enumerate(space.axes):
                if isinstance(dim, Dim) and dim.symbols in (("B",), ("T",)):
                    sizes[dim.symbols[0]] = np.shape(situation.flat[path])[axis]
                elif isinstance(dim, Dim) and len(dim.symbols) == 1:
                    sizes[dim.symbols[0][0]] = dim.evaluate({})
        same = [np.shape(x) for x in situation.flat.values()] == [np.shape(x) for x in situation.flat_others.values()]
        if call is other or not same:
            turned = tree_map(lambda leaf: np.roll(leaf, 1, axis=0) if np.ndim(leaf) else leaf, call.arguments)
            situation.others = turned
            situation.__dict__.pop("flat_others", None)
        return situation

    def _resized(self, situation: Situation, rows: int) -> Situation | None:
        """A situation with another number of rows; None where that is fixed."""
        leaves = situation.inputs.values()
        if not leaves or any(space.axes[:1] != (Dim(("B",)),) for space in leaves):
            return None
        chosen = np.arange(rows) % situation.sizes["B"]
        one, other = (tree_map(operator.itemgetter(chosen), x) for x in (situation.arguments, situation.others))
        return Situation(
            self, situation.method, one, other, situation.static, situation.state, {**situation.sizes, "B": rows}
        )


def _two_of(calls: list[Call]) -> tuple[Call, Call]:
    """The most varied call (not one at which all episodes begin, say), and another one."""

    def variety(call: Call) -> int:
        return sum(len(np.unique(leaf)) for leaf in tree_leaves(call.arguments))

    most = max(calls, key=variety)
    return most, next((call for call in reversed(calls) if call is not most), most)


def _keep(agent: ReplayAgent, stored: list[Any]) -> None:
    """Has a list get all that an agent stores."""
    insert = agent.insert

    def keep(records: Any) -> None:
        stored.append(tree_map(np.array, records))
        insert(records)

    agent.insert = keep  # type: ignore[method-assign]
