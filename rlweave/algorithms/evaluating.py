"""Evaluation of trained policies, by their model alone where the algorithm allows it."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlweave.agents.agent import AUTO
from rlweave.agents.model_files import Model
from rlweave.agents.trained_policy import TrainedPolicy
from rlweave.algorithms.algorithm import Algorithm
from rlweave.algorithms.config import TrainConfig
from rlweave.algorithms.environments import making_options
from rlweave.algorithms.loading import load, policy_of
from rlweave.backends import is_installed
from rlweave.envs import Evaluation, evaluate, resolve
from rlweave.envs.atari import is_atari
from rlweave.envs.seeding import derived_seed
from rlweave.envs.watching import Show, make_watched_env, shows_observations
from rlweave.errors import CheckpointError, ConfigError
from rlweave.runs.checkpoint import read_checkpoint_model


def evaluate_model(
    algorithm: Algorithm, config: TrainConfig, model: Model, where: str | Path, episodes: int, seed: int
) -> Evaluation:
    """Plays episodes greedily with a model, on the backend that acted in training, or else on NumPy.

    Args:
        algorithm: The algorithm.
        config: Settings of the training, which say what the environment is.
        model: The model.
        where: Where it comes from, for errors.
        episodes: How many episodes.
        seed: Seed of the environments.

    Raises:
        CheckpointError: The model is of another environment than the settings.
    """
    play = algorithm.evaluator()
    if play is None:
        trainer: Any = algorithm.make_trainer(config, None)
        try:
            trainer.take_model(model, where)
            return trainer.evaluate(episodes, seed)
        finally:
            trainer.close()
    its = _environment_of(model)
    if its not in (None, config.env):
        raise CheckpointError(
            "the checkpoint is of another environment",
            where=str(where),
            received=f"{its!r}, where the configuration has {config.env!r}",
            fix=f"evaluate it with the settings of its run, whose env is {its!r}",
        )
    policies = policy_of(model, where, acting_backend(config))
    if isinstance(policies, Mapping):
        return play(config, {name: policy.player() for name, policy in policies.items()}, episodes, seed)
    return play(config, policies.player(), episodes, seed)


def evaluate_checkpoint(
    algorithm: Algorithm, config: TrainConfig, checkpoint: Path, episodes: int, seed: int
) -> Evaluation:
    """As `evaluate_model`, with the model of a checkpoint; through a trainer where only that can evaluate."""
    if algorithm.evaluator() is not None:
        return evaluate_model(algorithm, config, read_checkpoint_model(checkpoint), checkpoint, episodes, seed)
    trainer = algorithm.make_trainer(config, None)
    try:
        trainer.load_model(checkpoint)
        return trainer.evaluate(episodes, seed)
    finally:
        trainer.close()


def _environment_of(model: Model) -> str | None:
    """Id of the environment that a model was trained in; None where it is unknown."""
    policies = model.description.get("policies")
    description = model.description if policies is None else next(iter(policies.values()))
    return (description["environment"] or {}).get("id")


def watch_checkpoint(
    algorithm: Algorithm, config: TrainConfig, checkpoint: Path, episodes: int, seed: int, show: Show | None
) -> Evaluation:
    """As `evaluate_checkpoint`, in one environment that is watched.

    Args:
        algorithm: The algorithm.
        config: Settings of the training.
        checkpoint: The checkpoint.
        episodes: How many episodes, one after the other.
        seed: Seed of the environment.
        show: Called with its frames; None: it draws on the screen.

    Raises:
        ConfigError: Several policies play, or the policy has to be adapted first.
    """
    policy = load(checkpoint, acting_backend(config)) if algorithm.evaluator() is not None else None
    if not isinstance(policy, TrainedPolicy):
        raise ConfigError(
            "only one policy in one environment can be watched",
            where="--video, --render",
            received=f"a run of {algorithm.name}",
            fix="evaluate it without",
        )
    player = policy.player()
    if show is not None and is_atari(resolve(config.env)):
        player = shows_observations(player, show)
    apart = ("env_kwargs", "vectorization", "timeout_s", "on_loss")
    making = {key: value for key, value in making_options(config).items() if key not in apart}
    factory = functools.partial(make_watched_env, config.env, show, config.env_options, **making)
    return evaluate(player, factory, episodes, seed)


def acting_backend(config: Any) -> str:
    """The backend that acted in training, if it is installed here, or else NumPy."""
    named = getattr(getattr(config, "agent", None), "acting_backend", None)
    chosen = config.backend if named in (None, AUTO) else named
    return chosen if is_installed(chosen) else "numpy"


def final_evaluation_seed(seed: int) -> int:
    """The seed of the evaluation after training, derived from the run's."""
    return derived_seed(seed, "final evaluation")
