"""Vector environments, Gymnasium's, rlweave's own and those written in ops, for the checks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from rlweave.envs.gymnasium_vector import autoreset_mode
from rlweave.envs.in_graph import GraphEnvironment
from rlweave.envs.object_state import NotData
from rlweave.envs.vector_env import VectorEnv
from rlweave.graph import build
from rlweave.spaces.gymnasium_spaces import to_gymnasium
from rlweave.testing.checks.environments.players import Drawing, Outcome, Part, Player, calling

_ARRAYS = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


def _leaf_spaces(space: gymnasium.Space[Any]) -> Iterator[gymnasium.Space[Any]]:
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        children = space.values() if isinstance(space, spaces.Dict) else space
        for child in children:
            yield from _leaf_spaces(child)
    else:
        yield space


class GymVectorPlayer(Player):
    """A vector environment of Gymnasium; where its autoreset is disabled, ended rows are reset before the next step.

    Args:
        env: The vector environment.
    """

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        with calling("construction"):
            self.mode = autoreset_mode(env)
        self.rows = int(env.num_envs)
        self._ended = np.zeros(self.rows, np.bool_)

    @property
    def has_arrays(self) -> bool:
        """Whether the observations and actions of all rows are arrays, with a row for each."""
        singles = (self.env.single_observation_space, self.env.single_action_space)
        return all(isinstance(leaf, _ARRAYS) for space in singles for leaf in _leaf_spaces(space))

    def reset(self, seed: int | None) -> Outcome:
        self._ended = np.zeros(self.rows, np.bool_)
        with calling("reset"):
            observation, info = self.env.reset(seed=seed)
        return Outcome(observation, info)

    def step(self, action: Any) -> Outcome:
        with calling("step"):
            if self.mode is AutoresetMode.DISABLED and self._ended.any():
                self.env.reset(options={"reset_mask": self._ended.copy()})
            observation, reward, terminated, truncated, info = self.env.step(action)
        ended = np.asarray(terminated) | np.asarray(truncated)
        self._ended = ended if ended.shape == (self.rows,) and ended.dtype == np.bool_ else np.zeros_like(self._ended)
        return Outcome(observation, info, reward, terminated, truncated)

    def parts(self, outcome: Outcome) -> Iterator[Part]:
        yield Part("", outcome, self.env.observation_space, self.env.single_action_space, self.rows)

    def draw(self, draw: Drawing, outcome: Outcome) -> Any:
        draw.next_step()
        return draw.action("", self.env.action_space)

    def ended(self, outcome: Outcome) -> bool:
        return False  # rows are reset one by one


class RowsPlayer(Player):
    """Environments of rlweave, of several rows.

    Args:
        env: The environment.
    """

    def __init__(self, env: VectorEnv | GraphEnvironment) -> None:
        super().__init__(env)
        self.rows = env.num_envs
        self._observations, self._actions = (batched(s, self.rows) for s in (env.observation_space, env.action_space))
        self._action = to_gymnasium(env.action_space)

    def parts(self, outcome: Outcome) -> Iterator[Part]:
        yield Part("", outcome, self._observations, self._action, self.rows)

    def draw(self, draw: Drawing, outcome: Outcome) -> Any:
        draw.next_step()
        return draw.action("", self._actions)

    def ended(self, outcome: Outcome) -> bool:
        return False


class OwnVectorPlayer(RowsPlayer):
    """One of rlweave's own vector environments.

    Args:
        env: The vector environment.
    """

    def reset(self, seed: int | None) -> Outcome:
        with calling("reset"):
            return Outcome(self.env.reset(seed=seed), {})

    def step(self, action: Any) -> Outcome:
        with calling("step"):
            result = self.env.step(action)
        rest = {
            "next_observations": result.next_observations,
            "valid": result.valid,
            "episode_start": result.episode_start,
            "infos": list(result.infos),
        }
        return Outcome(result.observations, rest, result.rewards, result.terminated, result.truncated)

    def save(self) -> Any:
        with calling("save_state"):
            state = self.env.save_state()
        if state is None:
            raise NotData(self.env.unsaved_because)
        return state

    def load(self, state: Any) -> None:
        with calling("load_state"):
            self.env.load_state(state)


class GraphPlayer(RowsPlayer):
    """An environment that steps inside the graph: built alone, on NumPy.

    Args:
        env: The component.
    """

    written_in: Mapping[str, str] = {"step": "transition", "reset": "initial", "get_state": "state_variables"}

    def __init__(self, env: GraphEnvironment) -> None:
        super().__init__(env)
        with calling("construction"):
            self._executor = build(env, {"actions": env.action_space.with_batch_rank(self.rows)}, backend="numpy")

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

    def save(self) -> Any:
        return self._executor.state_dict()

    def load(self, state: Any) -> None:
        self._executor.load_state_dict(state)

    def close(self) -> None:
        """There is nothing to close."""


def batched(space: Any, rows: int) -> gymnasium.Space[Any]:
    """Gymnasium's space of rows of one of rlweave's spaces."""
    return batch_space(to_gymnasium(space), rows)
