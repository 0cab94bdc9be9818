"""The environments of a training: made with one set of options, shipped to other processes, described in models."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium

from rlweave.agents.agent import AgentConfig
from rlweave.algorithms.config import TrainConfig
from rlweave.envs import Evaluation, TextHashing, VectorEnv, evaluate, make_env
from rlweave.envs.agent_groups import AgentGroup
from rlweave.envs.evaluation import Act
from rlweave.envs.infos import MASK
from rlweave.envs.registration import receive_registration, registration_to_ship
from rlweave.errors import ConfigError, EnvError, RlweaveError
from rlweave.plugins import import_modules
from rlweave.spaces import Space
from rlweave.spaces.gymnasium_json import gymnasium_to_json
from rlweave.spaces.gymnasium_spaces import from_gymnasium


def evaluate_player(config: TrainConfig, player: Act, episodes: int, seed: int) -> Evaluation:
    """Plays episodes in environments of their own."""
    copies = min(episodes, max(config.num_envs, 1))
    factory = functools.partial(make_env, config.env, copies, **making_options(config))
    return evaluate(player, factory, episodes, seed)


def observation_space_of(config: TrainConfig, env: VectorEnv | AgentGroup) -> Space:
    """The space of observations, with images declared as such: by the settings, or by what is known of the environment.

    Raises:
        SpaceError: There is a layout, and no image.
    """
    return from_gymnasium(env.gym_observation_space, config.image_layout or env.image_layout)


def making_options(config: TrainConfig) -> dict[str, Any]:
    """Arguments of `make_env` for all environments of a training, including its evaluations."""
    return {
        "env_kwargs": config.env_options,
        "vectorization": "async" if config.has_environments_apart else config.vectorization,
        "timeout_s": config.env_timeout if config.has_environments_apart else None,
        "on_loss": config.env_failure if config.has_environments_apart else None,
        "text": TextHashing(config.text_tokens, config.text_buckets),
        "info_mask": config.info_mask,
        "running_statistics": False,
        "info_metrics": config.info_metrics,
    }


def mask_leaf_of(config: TrainConfig, agent: AgentConfig) -> str | None:
    """The leaf of the observations with the mask of actions: as the agent's settings say, or from the infos."""
    return MASK if agent.mask_leaf is None and config.info_mask is not None else agent.mask_leaf


def make_training_envs(config: TrainConfig, worker: int) -> list[VectorEnv]:
    """The environments of one worker, its share of `num_envs`: all in one, or two halves that step by turns."""
    parts = _parts(config)
    return [make_training_env(config, number) for number in range(parts * worker, parts * (worker + 1))]


def _parts(config: TrainConfig) -> int:
    return 2 if config.alternating_sampling else 1


def make_training_env(config: TrainConfig, number: int = 0) -> VectorEnv:
    """A vector environment of a worker.

    Args:
        config: Settings of the training.
        number: Number of the vector environment among those of all workers: its random streams are its own.

    Raises:
        ConfigError: The environment does not take the `env_options`.
        EnvError: It cannot be made for any other reason.
    """
    with options_checked(config):
        return make_env(
            config.env,
            config.num_envs // config.placement.workers // _parts(config),
            seed=config.seed,
            worker=number,
            training=True,
            **making_options(config),
        )


@contextlib.contextmanager
def options_checked(config: TrainConfig) -> Iterator[None]:
    """A context in which options that an environment does not take raise errors about settings.

    Raises:
        ConfigError: The environment does not take the `env_options`.
        EnvError: It cannot be made for any other reason.
    """
    try:
        yield
    except EnvError as error:
        cause = error.__cause__
        if config.env_options and isinstance(cause, RlweaveError):  # an error of rlweave explains itself
            raise ConfigError(cause.what, where="env_options", received=cause.received, fix=cause.fix) from error
        unknown = [key for key in config.env_options if f"unexpected keyword argument '{key}'" in str(cause)]
        if unknown:
            raise ConfigError(
                f"{config.env} does not take this option",
                where="env_options",
                received=repr(unknown[0]),
                fix="env_options are keyword arguments of the environment",
            ) from error
        raise  # with its traceback: a fault inside the environment


def describe_environment(
    config: TrainConfig, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]
) -> dict[str, Any]:
    """The description of the environment in a model, as plain data."""
    return {
        "id": config.env,
        "options": config.env_options,
        "info_mask": config.info_mask,
        "observation_space": gymnasium_to_json(observation_space),
        "action_space": gymnasium_to_json(action_space),
    }


class ShipsEnvironment:
    """Base of factories with a ``config`` that travel with the registration of the environment's id.

    The modules of the setting ``imports`` are imported there, too.
    """

    config: Any

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_registration": registration_to_ship(self.config.env)}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        kept = dict(state)
        import_modules(kept["config"].imports)
        registration = kept.pop("_registration")
        if registration is not None:
            receive_registration(registration)
        self.__dict__.update(kept)
