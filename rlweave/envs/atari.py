"""Atari games with the usual preprocessing, by ALE's own vector environment in C++."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.envs.registration import EnvSpec

from rlweave.envs.batching import Batch
from rlweave.envs.gymnasium_vector import GymnasiumVectorEnv, GymVectorEnv
from rlweave.envs.steps import StepResult
from rlweave.errors import ConfigError
from rlweave.spaces.box import FRAMES_FIRST

#: Options that belong to learning, and not to the game; ALE's own are off.
_LEARNING = {"episodic_life": True, "reward_clipping": True}


def is_atari(spec: EnvSpec) -> bool:
    """Whether an environment is one of ALE's, with the vector environment that ALE registers for it."""
    return spec.namespace == "ALE" and str(spec.vector_entry_point).startswith("ale_py")


class AtariEnv(GymnasiumVectorEnv):
    """Atari games: frames in grey of 84 x 84, four of them stacked, an action for four frames, no-ops at the start.

    Observations are uint8 (4, 84, 84), oldest frame first: the layout is ``"frames_first"``. As the ids of version 5
    have it, actions are sticky (``repeat_action_probability=0.25``; the first published results had 0).

    A learner gets modified rewards and ends: in training, rewards are clipped to -1, 0 and 1, and a lost life is
    `terminated`, so that values stop there. The episode goes on: returns, in training too, are
    the game's own score over whole games, and recurrent state is kept. The fire button is not pressed after a lost
    life (only at the start of a game, where a game needs it): a policy learns to do so itself, and does in evaluation.

    Args:
        env: ALE's vector environment, without episodic lives and clipped rewards of its own.
        training: Whether rewards and ends are what a learner gets, or those of the game.
        episodic_life: Whether a lost life is `terminated` in training.
        reward_clipping: Whether rewards are clipped in training.
        common: As in `GymnasiumVectorEnv`.
    """

    image_layout = FRAMES_FIRST

    def __init__(
        self, env: GymVectorEnv, *, training: bool, episodic_life: bool, reward_clipping: bool, **common: Any
    ) -> None:
        self.training, self.episodic_life, self.reward_clipping = training, episodic_life, reward_clipping
        super().__init__(env, **common)
        self._lives = np.zeros(self.num_envs, np.int32)

    def finish_step(self) -> StepResult:
        before = self._lives
        result = super().finish_step()
        if not self.training:
            return result
        rewards, terminated = result.rewards, result.terminated
        if self.reward_clipping:
            rewards = np.sign(rewards)
        if self.episodic_life:
            terminated = terminated | ((self._lives < before) & ~result.episode_start)
        return result._replace(rewards=rewards, terminated=terminated)

    def _call_reset(self, seed: Any, options: dict[str, Any] | None) -> tuple[Batch, dict[str, Any]]:
        observations, infos = super()._call_reset(seed, options)
        self._lives = np.array(infos["lives"])
        return observations, infos

    def _begin(self, gym_actions: Any) -> None:
        super()._begin(gym_actions)
        with self._telling_failures("step", gym_actions):
            self._env.send(gym_actions)  # type: ignore[attr-defined]

    def _receive(self) -> Any:
        result = self._env.recv()  # type: ignore[attr-defined]
        self._lives = np.array(result[-1]["lives"])
        return result


def learning_options(options: dict[str, Any]) -> dict[str, bool]:
    """Takes the options of `AtariEnv` out of those for ALE's vector environment.

    Raises:
        ConfigError: One is no boolean, or is the autoreset mode, which cannot be chosen.
    """
    if "autoreset_mode" in options:
        raise ConfigError(
            "the autoreset mode of an Atari environment is no option",
            where="env_options",
            received=repr(options["autoreset_mode"]),
            fix="leave it out: every mode yields the same transitions",
        )
    chosen = {name: options.pop(name, default) for name, default in _LEARNING.items()}
    for name, value in chosen.items():
        if not isinstance(value, bool):
            raise ConfigError(f"{name} is true or false", where="env_options", received=repr(value))
    return chosen
