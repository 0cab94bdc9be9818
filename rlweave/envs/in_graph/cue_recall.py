"""Cue recall in ops."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlweave import ops
from rlweave.envs.in_graph.environment import Array, GraphEnvironment, State
from rlweave.errors import EnvError
from rlweave.graph import register
from rlweave.spaces import FloatBox, IntBox


@register("cue_recall")
class CueRecall(GraphEnvironment):
    """`rlweave.envs.CueRecall` as a component, without noise: the last action has to name the cue shown at first.

    Args:
        num_envs: See `GraphEnvironment`.
        length: Steps of an episode.
        max_length: Where given, each episode takes a random number of steps from `length` to this.
        cues: How many different cues there are, and actions.
        scope: Name within the owner.

    Raises:
        EnvError: A number makes no sense.
    """

    def __init__(
        self,
        num_envs: int,
        length: int = 10,
        max_length: int | None = None,
        cues: int = 2,
        scope: str = "environment",
    ) -> None:
        super().__init__(num_envs, None, scope)
        if length < 1 or cues < 2 or (max_length is not None and max_length < length):
            raise EnvError(
                "cue recall needs length >= 1, max_length >= length and cues >= 2",
                where=scope,
                received=f"length={length!r}, max_length={max_length!r}, cues={cues!r}",
            )
        self.shortest, self.longest, self.cues = length, max_length or length, cues
        self.observation_space = FloatBox(0.0, 1.0, shape=(cues,))
        self.action_space = IntBox(cues)

    def state_variables(self) -> dict[str, tuple[tuple[int, ...], str, Any]]:
        cues, shortest, longest = self.cues, self.shortest, self.longest

        def cue(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
            return rng.integers(cues, size=shape)

        def length(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
            return rng.integers(shortest, longest + 1, size=shape)

        return {"cue": ((), "int32", cue), "steps_left": ((), "int32", length), "shown": ((), "int32", 0)}

    def initial(self) -> State:
        n = self.num_envs
        return {
            "cue": ops.random.randint((n,), 0, self.cues),
            "steps_left": ops.random.randint((n,), self.shortest, self.longest + 1),
            "shown": ops.zeros((n,), dtype="int32"),
        }

    def transition(self, state: State, actions: Any) -> tuple[State, Array, Array]:
        steps_left = state["steps_left"] - 1
        terminated = ops.equal(steps_left, 0)
        right = ops.logical_and(terminated, ops.equal(actions, state["cue"]))
        after = {"cue": state["cue"], "steps_left": steps_left, "shown": ops.ones_like(state["shown"])}
        return after, ops.astype(right, "float32"), terminated

    def observe(self, state: State) -> Any:
        return ops.where(ops.equal(state["shown"], 0)[:, None], ops.one_hot(state["cue"], self.cues), 0.0)
