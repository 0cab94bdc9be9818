"""`train`: what `rlweave train` does, from Python."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gymnasium.envs.registration import EnvSpec

from rlweave.algorithms.algorithm import Algorithm
from rlweave.algorithms.callbacks import name_of
from rlweave.algorithms.config import resolve_config
from rlweave.algorithms.config_checks import check_backend, check_environment, check_keys, check_learning_backend
from rlweave.algorithms.registry import get_algorithm
from rlweave.algorithms.run import Run
from rlweave.envs.registration import name_environment
from rlweave.errors import ConfigError
from rlweave.runs.run_directory import RunDirectory
from rlweave.settings.config import Config


def train(
    algorithm: str | Algorithm,
    env: str | EnvSpec | Callable[..., Any],
    *,
    run_dir: str | os.PathLike[str] | None = None,
    callbacks: Sequence[Any] = (),
    presets: bool = True,
    **settings: Any,
) -> Run:
    """Makes a training, which runs as one iterates over it.

        run = rlweave.train("ppo", "CartPole-v1", steps=20_000, agent={"lr": 1e-3})
        for report in run:
            print(report["env_steps_sampled"], report.get("episode_return"))
        policy = run.load()

    `run.finish()` trains without a loop, and so does whatever asks for the result first.

    Args:
        algorithm: Name of the algorithm (`rlweave list algorithms`), or a spec of one's own.
        env: An id of Gymnasium; a class or function that makes the environment; or the name of one, "module:Class".
            On Ray it travels to the workers.
        run_dir: A new directory for settings, metrics and checkpoints; None writes nothing at all.
        callbacks: What the training calls, see `rlweave.algorithms.callbacks.Callback`: classes or "module:Class",
            which the run's settings keep, so that `rlweave resume` calls them again; or objects, which it cannot.
        presets: Whether to start from the settings tuned for the environment, if there are any.
        settings: Settings as `rlweave train ALGORITHM --settings` shows them, nested ones as dicts: `backend="torch"`,
            `seed=1`, `steps=100_000`, `num_envs=8`, `engine="ray"`, `agent={"lr": 3e-4}`.

    Returns:
        The run: iterate over it; then `load()`, `evaluate()`, `metrics`, `path`.

    Raises:
        BackendError: The backend is not installed, or cannot learn.
        ConfigError: A wrong setting or environment.
    """
    spec = algorithm if isinstance(algorithm, Algorithm) else get_algorithm(algorithm)
    kept, objects = _sorted_out(callbacks)
    given = {key: value.to_data() if isinstance(value, Config) else value for key, value in settings.items()}
    env_id = name_environment(env)
    given |= {"env": env_id, "callbacks": [*given.get("callbacks", ()), *kept]}
    check_keys(spec.config_class, given, _as_keyword)
    preset: Mapping[str, Any] | None = spec.preset_of(env_id) if presets else None
    config = resolve_config(spec.config_class, presets=preset, file=given)
    check_environment(spec, config.env)
    check_backend(config.backend)
    check_learning_backend(spec, config.backend)
    directory = None if run_dir is None else RunDirectory.create(spec.name, config.to_data(), path=run_dir)
    return begin(spec, config, directory, objects)


def begin(spec: Algorithm, config: Any, directory: RunDirectory | None, callbacks: Sequence[Any] = ()) -> Run:
    """A new training with settings that are resolved; a directory in which nothing came to be is removed.

    Args:
        spec: The algorithm.
        config: Its settings.
        directory: Where checkpoints and metrics go.
        callbacks: Beside those in the settings.
    """
    trainer = None
    try:
        trainer = spec.make_trainer(config, directory)
        return Run(spec, config, trainer, directory, callbacks)
    except BaseException:
        if trainer is not None:
            trainer.close()
        if directory is not None:
            directory.discard()
        raise


def _sorted_out(callbacks: Sequence[Any]) -> tuple[list[str], list[Any]]:
    """Names of the callbacks that another process can make anew, and the others."""
    if isinstance(callbacks, str) or not isinstance(callbacks, Sequence):
        raise ConfigError(
            "callbacks are a list", where="callbacks", received=repr(callbacks), fix="callbacks=[...], also of one"
        )
    kept, objects = [], []
    for callback in callbacks:
        if isinstance(callback, str):
            kept.append(callback)
        elif isinstance(callback, type) and callback.__module__ != "__main__" and "." not in callback.__qualname__:
            kept.append(name_of(callback))
        else:
            objects.append(callback)
    return kept, objects


def _as_keyword(key: str) -> str:
    """A dotted key as arguments of Python.

    >>> _as_keyword("agent.lr")
    "agent={'lr': ...}"
    """
    first, _, rest = key.partition(".")
    return f"{first}={{{rest!r}: ...}}" if rest else f"{first}=..."
