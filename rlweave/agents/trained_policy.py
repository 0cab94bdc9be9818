"""`TrainedPolicy`: acts in the environment's own terms, with a model and nothing else."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces as gym

from rlweave.agents.agent import Agent
from rlweave.agents.deployed_policy import build_deployed
from rlweave.agents.model_files import Weights
from rlweave.agents.stepping import rows_from
from rlweave.envs.batching import batch_codec
from rlweave.envs.infos import MASK
from rlweave.errors import EnvError, ExecutionError
from rlweave.spaces import Space
from rlweave.spaces.gymnasium_json import gymnasium_from_json
from rlweave.spaces.gymnasium_spaces import Tokens, to_gymnasium
from rlweave.spaces.text_hashing import hash_text


class TrainedPolicy:
    """A policy that was trained: observations of the environment in, actions of the environment out.

    Observations go the way that they went in training: dtypes are converted and checked, words are hashed, running
    normalization is applied. It needs neither the environment nor a framework besides its backend's.

    Any number of threads may act at a time. A recurrent policy keeps its state for each thread apart (see `act`);
    `act_with_state` takes and returns it instead. Seeded draws (`deterministic=False`) are repeatable as long as one
    thread draws.

    Made by `rlweave.load`.

    Args:
        agent: The agent that the model is of; it only describes, and is not built.
        weights: Those of the model.
        backend: What computes.
        seed: Seeds what is drawn.

    Attributes:
        backend: What computes.
        observation_space: Gymnasium's space of one observation.
        action_space: Gymnasium's space of one action.
        environment: Id and options of the environment that it was trained in, and its spaces; empty where unknown.
        recurrent: Whether it carries a state from step to step.
    """

    def __init__(self, agent: Agent, weights: Weights, backend: str, seed: int = 0) -> None:
        self.agent, self.weights, self.backend, self.recurrent = agent, weights, backend, agent.recurrent
        self._executor = build_deployed(agent, weights, backend, plays=True, seed=seed)
        self._entries: dict[bool, Callable[..., Any]] = {}
        # where training ended; nothing where a distribution is drawn from
        self._epsilon = np.array(getattr(agent, "epsilon", 0.0), np.float32)
        self._masked = agent.config.mask_leaf is not None
        made_for = agent.made_for or {}
        self.environment: Mapping[str, Any] = dict(made_for)
        whole: Any = _space_of(made_for, "observation_space", agent.observation_space)
        self.action_space = _space_of(made_for, "action_space", agent.action_space)
        #: The key of the environment's infos under which masks came in training; None where none came so.
        self.info_mask: str | None = made_for.get("info_mask")
        self.observation_space: gymnasium.Space[Any] = whole if self.info_mask is None else whole["observation"]
        self._codec, self._action_codec = batch_codec(whole), batch_codec(self.action_space)
        self._whole, self._has_text = whole, _has_text(whole)
        self._first_keys, self._first_rank = _first_leaf(whole)
        self._of_thread = threading.local()

    # -- acting --------------------------------------------------------------------------------------------------

    def act(self, observation: Any, *, deterministic: bool = True, mask: Any = None) -> Any:
        """The action for an observation, or the actions for a batch of them.

        A recurrent policy takes each call as the next step of the episode, or of the episodes of the batch; say where
        new ones begin with `reset`.

        Args:
            observation: A value of `observation_space`, or a batch of them: nested alike, with one axis more in front
                of each leaf. Lists and other dtypes of the same kind will do.
            deterministic: True takes the likeliest (or best) action, as evaluations do; False draws from the
                distribution, or explores as at the end of training; noise that drifts is drawn as at the beginning
                of an episode.
            mask: Which actions are allowed, bool (N,) or (B, N); only of a policy that was trained with the setting
                `info_mask`, from the infos of the environment.

        Returns:
            What `env.step` takes: a value of `action_space`, or a batch as Gymnasium's vector environments take it.

        Raises:
            ExecutionError: The observation does not lie in its space.
        """
        observations, rows = self._observations(observation, mask)
        if not self.recurrent:
            return self._env_action(self._act(observations, (), deterministic)[0], rows)
        count = 1 if rows is None else rows
        actions, self._of_thread.state = self._act(observations, self._kept_state(count), deterministic)
        self._of_thread.start = np.zeros(count, np.bool_)
        return self._env_action(actions, rows)

    def act_with_state(
        self, observation: Any, state: Any, *, episode_start: Any = None, deterministic: bool = True, mask: Any = None
    ) -> tuple[Any, Any]:
        """As `act`, with the recurrent state taken and returned; nothing is kept inside.

        Args:
            observation: As in `act`.
            state: What the call for the step before returned; None at the beginning of an episode.
            episode_start: Bool (B,): where the episode of a row begins with this observation; None: nowhere.
            deterministic: As in `act`.
            mask: As in `act`.

        Returns:
            The action as `act` returns it, and the state after the step (None of a policy that carries none).
        """
        observations, rows = self._observations(observation, mask)
        if not self.recurrent:
            return self._env_action(self._act(observations, (), deterministic)[0], rows), None
        count = 1 if rows is None else rows
        before = self.initial_state(count) if state is None else state
        start = np.zeros(count, np.bool_) if episode_start is None else np.asarray(episode_start, np.bool_)
        actions, after = self._act(observations, (before, start.reshape(count)), deterministic)
        return self._env_action(actions, rows), after

    def player(self) -> Callable[..., Any]:
        """What plays greedily with observations and actions as rlweave's environments have them; see `Act`.

        It carries a recurrent state of its own; if a third argument, bool (B,), says which rows act, that of the others
        stays.
        """
        state: Any = None

        def play(observations: Any, episode_start: Any, acting: Any = None) -> Any:
            nonlocal state
            if not self.recurrent:
                return self._act(observations, (), True)[0]
            before = self.initial_state(len(episode_start)) if state is None else state
            actions, after = self._act(observations, (before, episode_start), True)
            state = after if acting is None else rows_from(acting, after, before)
            return actions

        return play

    def _act(self, observations: Any, recurrent: tuple[Any, ...], deterministic: bool) -> Any:
        """Actions (B, ...) for observations, and the recurrent state after the step.

        Args:
            observations: Nested (B, ...).
            recurrent: The state before the step, nested (B, ...), and episode starts, (B,); of others nothing.
            deterministic: As in `act`.
        """
        if self._masked:
            self.agent.check_masks(observations)
        entry = self._entries.get(deterministic)
        if entry is None:
            static = {"explores": not deterministic}
            entry = self._executor.program("play", static).entry
            self._entries[deterministic] = entry
        return entry(observations, *recurrent, self._epsilon)

    def initial_state(self, rows: int) -> Any:
        """The recurrent state at the start of an episode, of so many rows: zeros, nested (B, ...)."""
        space: Space = self._executor.root.policy.recurrent_space
        return space.with_batch_rank().zeros(rows)

    def reset(self, ended: Any = None) -> None:
        """Says that the next observation is the first of an episode; a policy without a state ignores it.

        Args:
            ended: Bool (B,): in which rows of the batch; None: in all.
        """
        kept = self._of_thread
        if ended is None or getattr(kept, "state", None) is None:
            kept.state = None
        else:
            kept.start = kept.start | np.asarray(ended, np.bool_)

    def seed(self, seed: int) -> None:
        """Begins what is drawn with `deterministic=False` anew."""
        self._executor.reseed(seed)

    def _kept_state(self, rows: int) -> tuple[Any, Any]:
        """This thread's state before the step, nested (B, ...), and where episodes begin, (B,)."""
        kept = self._of_thread
        if getattr(kept, "state", None) is None:
            return self.initial_state(rows), np.zeros(rows, np.bool_)
        if len(kept.start) != rows:
            raise ExecutionError(
                "a recurrent policy was given another number of observations than at the step before",
                where="act",
                received=f"{rows}, before {len(kept.start)}",
                fix="call reset() where new episodes begin, or pass observations yourself with act_with_state()",
            )
        return kept.state, kept.start

    # -- the boundary --------------------------------------------------------------------------------------------

    def _observations(self, observation: Any, mask: Any) -> tuple[Any, int | None]:
        """Observations as the graph takes them, nested (B, ...), and B; None for a single one (of which B is 1)."""
        if mask is not None or self.info_mask is not None:
            observation = self._with_mask(observation, mask)
        codec = self._codec
        try:
            if self._has_text:
                observation = _hashed(self._whole, observation)
            rows = self._batch_size(observation)
            if rows is None:
                observations = codec.allocate(1)
                codec.write(observations, 0, observation)
                codec.check_range(observations)
            else:
                observations = codec.from_vector(observation, rows)
            wrong = codec.find_nonfinite(observations)
        except EnvError as error:
            raise self._refused(error.what.replace("the value", "the observation", 1), error.received) from None
        except (TypeError, ValueError) as error:  # nothing that NumPy makes an array of
            raise self._refused("the observation is no array of numbers", str(error)) from None
        if wrong is not None:
            row, path = wrong
            leaf = f"leaf {path!r} of the observation" if path else "the observation"
            raise self._refused(f"{leaf} holds NaN or infinity", "" if rows is None else f"in row {row}")
        return observations, rows

    def _batch_size(self, value: Any) -> int | None:
        """How many values there are in a batch; None for a single value (or for what is neither)."""
        for key in self._first_keys:
            try:
                value = value[key]
            except (KeyError, IndexError, TypeError):  # another nesting, which the codec explains
                return None
        ranks = value.ndim if isinstance(value, np.ndarray) else np.ndim(value)
        return len(value) if ranks == self._first_rank + 1 else None

    def _refused(self, what: str, received: str) -> ExecutionError:
        fix = f"pass a value of {self.observation_space}, or a batch of them"
        return ExecutionError(what, where="act", received=received, fix=fix)

    def _with_mask(self, observation: Any, mask: Any) -> dict[str, Any]:
        """The observation with its mask, as the environment's wrapper put them together in training."""
        if self.info_mask is None:
            raise ExecutionError(
                "this policy takes no mask",
                where="act",
                received="mask=...",
                fix="leave it out: it was trained without masks, or with those in its observations",
            )
        if mask is None:
            raise ExecutionError(
                "this policy acts among allowed actions, and was not told which are",
                where="act",
                received="mask=None",
                fix=f"pass mask=info[{self.info_mask!r}] of the environment",
            )
        return {MASK: np.asarray(mask) != 0, "observation": observation}

    def _env_action(self, actions: Any, rows: int | None) -> Any:
        if rows is None:
            return self._action_codec.split(actions, 1)[0]
        return self._action_codec.to_vector(actions, rows)

    def __repr__(self) -> str:
        of = self.environment.get("id", "")
        return f"TrainedPolicy({self.agent.name}{f' of {of}' if of else ''}, backend={self.backend!r})"


def _space_of(made_for: Mapping[str, Any], key: str, space: Space) -> gymnasium.Space[Any]:
    return gymnasium_from_json(made_for[key]) if key in made_for else to_gymnasium(space)


def _first_leaf(space: gymnasium.Space[Any]) -> tuple[tuple[Any, ...], int]:
    """Keys that lead to the first leaf of a space, and the number of axes of a single value there."""
    keys: list[Any] = []
    while isinstance(space, gym.Dict | gym.Tuple) and len(space.spaces):
        keys.append(next(iter(space.spaces)) if isinstance(space, gym.Dict) else 0)
        space = space[keys[-1]]
    return tuple(keys), len(space.shape or ())


def _has_text(space: gymnasium.Space[Any]) -> bool:
    if isinstance(space, gym.Dict):
        return any(map(_has_text, space.spaces.values()))
    return any(map(_has_text, space.spaces)) if isinstance(space, gym.Tuple) else isinstance(space, Tokens)


def _hashed(space: gymnasium.Space[Any], value: Any) -> Any:
    """A value, or a batch, with the numbers of words in place of text; what fits nowhere stays."""
    if isinstance(space, gym.Dict) and isinstance(value, Mapping):
        return {key: _hashed(space[key], child) if key in space.spaces else child for key, child in value.items()}
    if isinstance(space, gym.Tuple) and isinstance(value, tuple | list) and len(value) == len(space.spaces):
        return tuple(_hashed(child, item) for child, item in zip(space.spaces, value, strict=True))
    if isinstance(space, Tokens) and np.asarray(value).dtype.kind in "UO":
        return hash_text(value, space.shape[0], space.number)
    return value
