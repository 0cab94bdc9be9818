"""Environments to be watched: on the screen, or as frames of a video."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np

from rlweave.envs.atari import is_atari
from rlweave.envs.making import make_env
from rlweave.envs.registration import resolve
from rlweave.envs.vector_env import VectorEnv
from rlweave.errors import ConfigError, EnvError

Show = Callable[[np.ndarray, float], None]
"""Takes a frame, uint8 (height, width, 3), and the number of frames per second."""


class Watched(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Shows a frame of every state.

    Args:
        env: An environment with the render mode `rgb_array`.
        show: Gets the frames.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], show: Show) -> None:
        super().__init__(env)
        self.show = show
        self.pictures_per_second = float(env.metadata.get("render_fps") or 30)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        result = self.env.reset(seed=seed, options=options)
        self._show()
        return result

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        result = self.env.step(action)
        self._show()
        return result

    def _show(self) -> None:
        picture = np.asarray(self.env.render())
        if picture.ndim != 3 or picture.shape[-1] != 3:
            raise EnvError(
                "the environment draws no pictures",
                received=f"render() gave shape {picture.shape}, dtype {picture.dtype}",
                fix="let render() return uint8 (height, width, 3) where render_mode is 'rgb_array'",
            )
        self.show(picture.astype(np.uint8), self.pictures_per_second)


def make_watched_env(
    env_id: str, show: Show | None, options: Mapping[str, Any], *, seed: int | None, worker: int, **making: Any
) -> VectorEnv:
    """One environment whose observations are shown.

    Args:
        env_id: Id of the environment.
        show: Gets the frames; None: the environment draws on the screen itself.
        options: Its keyword arguments.
        seed: As in `make_env`.
        worker: As in `make_env`.
        making: Further arguments of `make_env`.

    Raises:
        ConfigError: The environment has no such render mode.
    """
    spec = resolve(env_id)
    common = {"seed": seed, "worker": worker, **making}
    if is_atari(spec):
        if show is None:
            raise ConfigError(
                "Atari games are played by ALE's vector environment, which has no window",
                where="render",
                received=env_id,
                fix="record a video instead: --video game.mp4",
            )
        return make_env(env_id, 1, env_kwargs=options, **common)
    mode = "human" if show is None else "rgb_array"
    return make_env(functools.partial(_make, spec, mode, show, dict(options)), 1, **common)


def _make(spec: Any, mode: str, show: Show | None, options: dict[str, Any]) -> gymnasium.Env[Any, Any]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a warning about an undeclared mode: the error below says more
            env = gymnasium.make(spec, disable_env_checker=True, **{**options, "render_mode": mode})
    except TypeError as error:
        raise ConfigError(
            f"the environment has no render mode {mode!r}",
            where=spec.id,
            received=str(error),
            fix="let it take the argument render_mode, and name its modes in metadata['render_modes']",
        ) from error
    return env if show is None else Watched(env, show)


def shows_observations(player: Callable[[Any, Any], Any], show: Show) -> Callable[[Any, Any], Any]:
    """A player of Atari games that shows the newest frame of each observation, (1, 4, 84, 84), enlarged."""

    def play(observations: Any, episode_start: Any) -> Any:
        frame = np.kron(observations[0, -1], np.ones((4, 4), np.uint8))
        show(np.repeat(frame[..., None], 3, axis=-1), 15.0)
        return player(observations, episode_start)

    return play
