"""Environments written in ops, for the checks: built alone, on NumPy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rlweave.envs.in_graph import GraphEnvironment
from rlweave.graph import build
from rlweave.spaces.gymnasium_spaces import to_gymnasium
from rlweave.testing.checks.environments.players import Drawing, Outcome, Part, Player, calling
from rlweave.testing.checks.environments.vectors import batched


class GraphPlayer(Player):
    """An environment that steps inside the graph.

    Args:
        env: The component.
    """

    written_in: Mapping[str, str] = {"step": "transition", "reset": "initial", "get_state": "state_variables"}

    def __init__(self, env: GraphEnvironment) -> None:
        super().__init__(env)
        self.rows = env.num_envs
        with calling("construction"):
            self._executor = build(env, {"actions": env.action_space.with_batch_rank(self.rows)}, backend="numpy")
        self._observations = batched(env.observation_space, self.rows)
        self._actions = batched(env.action_space, self.rows)
        self._action = to_gymnasium(env.action_space)

    def reset(self, seed: int | None) -> Outcome:
        with calling("reset"):
            if seed is not None:
                self._executor.reseed(seed)
            return Outcome(self._executor.reset(), {})

    def step(self, action: Any) -> Outcome:
        with calling("step"):
            result = dict(self._executor.step(action))
            return Outcome(
                self._executor.observations(),
                result,
                result.pop("rewards"),
                result.pop("terminated"),
                result.pop("truncated"),
            )

    def parts(self, outcome: Outcome) -> Iterator[Part]:
        yield Part("", outcome, self._observations, self._action, self.rows)

    def draw(self, draw: Drawing, outcome: Outcome) -> Any:
        draw.next_step()
        return draw.action("", self._actions)

    def ended(self, outcome: Outcome) -> bool:
        return False

    def save(self) -> Any:
        return self._executor.state_dict()

    def load(self, state: Any) -> None:
        self._executor.load_state_dict(state)

    def close(self) -> None:
        """There is nothing to close."""
