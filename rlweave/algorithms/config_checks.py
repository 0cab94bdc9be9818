"""What is wrong with settings although they are of the right types, found before anything is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rlweave.algorithms.algorithm import Algorithm
from rlweave.algorithms.config import TrainConfig
from rlweave.backends import BACKENDS, best_backend, get_backend, is_installed
from rlweave.errors import BackendError, ConfigError, EnvError, install_command
from rlweave.settings.config import describe_settings


def check_environment(spec: Algorithm, env_id: str) -> None:
    """Checks that there is an environment of this name for an algorithm.

    Raises:
        ConfigError: Names the nearest one; here it is a wrong setting, not an environment that failed.
    """
    try:
        spec.find_env(env_id)
    except EnvError as error:
        raise ConfigError(error.what, where=error.where, received=error.received, fix=error.fix) from error


def check_backend(name: str) -> None:
    """Checks that a backend exists and is installed, without importing its framework.

    Raises:
        BackendError: Names the nearest backend, or the extra that installs it.
    """
    if name in BACKENDS and is_installed(name):
        return
    instead = best_backend()
    if name not in BACKENDS or instead == "numpy":
        get_backend(name)  # raises the error that says so
    raise BackendError(
        f"backend {name!r} is not installed",
        where="backend",
        received=repr(name),
        fix=f"--backend {instead}, which is installed; or install it: {install_command(BACKENDS[name][1])}",
    )


def check_learning_backend(spec: Algorithm, name: str) -> None:
    """Checks that an algorithm can learn on a backend, which `check_backend` has accepted.

    Raises:
        BackendError: The backend only acts, or the algorithm needs gradients, and the backend has none.
    """
    backend = get_backend(name)
    if backend.acts_only or (spec.needs_gradients and not backend.differentiable):
        best = best_backend()
        learn = (
            f"learn with --backend {best}" if best != "numpy" or not spec.needs_gradients
            else f"install one that learns: {install_command('jax')} or {install_command('torch')}"
        )  # fmt: skip
        raise BackendError(
            f"the {name} backend acts but cannot learn{'' if backend.acts_only else ': it has no gradients'}",
            where="backend",
            received=repr(name),
            fix=f"{learn}; --set agent.acting_backend={name} acts with {name}",
        )


def check_keys(
    config_class: type[TrainConfig], settings: Mapping[str, Any], spelled: Callable[[str], str] = repr
) -> None:
    """Points from the bare name of a nested setting to its dotted key; other unknown keys are found by validation.

    Args:
        config_class: Knows the settings.
        settings: What was given.
        spelled: How a dotted key is written where they come from.
    """
    known = [setting.key for setting in describe_settings(config_class)]
    for key, value in settings.items():
        if key.partition(".")[0] in config_class.model_fields:
            continue
        meant = [dotted for dotted in known if dotted.endswith(f".{key}")]
        if meant:
            raise ConfigError(
                f"unknown setting {key!r}",
                where=config_class.__name__,
                received=repr(value),
                fix="did you mean " + " or ".join(map(spelled, meant)) + "?",
            )
