"""Schedules without a length of their own are as long as the training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from rlweave.algorithms.config import TrainConfig
from rlweave.algorithms.environments import mask_leaf_of
from rlweave.errors import ConfigError

ConfigT = TypeVar("ConfigT", bound=TrainConfig)


def fill_schedules(config: ConfigT) -> ConfigT:
    """The settings with those that an agent cannot know: lengths of schedules, and the leaf with the mask of actions.

    Learning rates that are schedules without a length get `config.optimizer_steps` as theirs.

    Args:
        config: Settings of the training, with a section `agent`.

    Raises:
        ConfigError: A schedule without a length is left; names the setting.
    """
    agent: Any = config.agent  # type: ignore[attr-defined]
    update: dict[str, Any] = {"mask_leaf": mask_leaf_of(config, agent)}
    if config.optimizer_steps is not None:
        rates = [name for name in ("lr", "temperature_lr") if hasattr(agent, name)]
        update |= {name: linear_schedule(getattr(agent, name), config.optimizer_steps) for name in rates}
    agent = agent.model_copy(update=update)
    for name in type(agent).model_fields:
        value = getattr(agent, name)
        if _is_open(value) and {"start", "end"} & value.keys():
            raise ConfigError(
                "a schedule has no length, and the training does not give it one",
                where=f"agent.{name}",
                received=repr(value),
                fix='add "steps" to it'
                + (", or let the settings of the training say their `optimizer_steps`" if name.endswith("lr") else ""),
            )
    return config.model_copy(update={"agent": agent})


def linear_schedule(value: Any, steps: int) -> Any:
    """Gives a schedule spec without a length the length of the whole training.

    >>> linear_schedule({"type": "linear", "start": 0.001, "end": 0.0}, 100)["steps"]
    100
    """
    if _is_open(value):
        if steps < 1:
            raise ConfigError("a schedule over the whole training needs a training", received=f"{steps} steps")
        return {**value, "steps": steps}
    return value


def open_schedules(settings: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """The open schedules (without a length of their own) in nested settings: dotted key, and final value.

    >>> list(open_schedules({"agent": {"lr": {"type": "linear", "start": 0.1, "end": 0.0}, "epsilon": 0.1}}))
    [('agent.lr', 0.0)]
    """
    if _is_open(settings):
        yield key, settings.get("end")
    elif isinstance(settings, dict):
        for name, value in settings.items():
            yield from open_schedules(value, f"{key}.{name}" if key else name)


def _is_open(value: Any) -> bool:
    return isinstance(value, dict) and value.get("type") in ("linear", "polynomial") and "steps" not in value


def kept_schedules(settings: Mapping[str, Any], planned: int, steps: int) -> Iterator[str]:
    """Notes on the schedules of a training that is resumed for another length than planned, a line each.

    Args:
        settings: Nested settings of the training.
        planned: Their length in environment steps.
        steps: New length of the training.

    >>> print(*kept_schedules({"lr": {"type": "linear", "start": 0.1, "end": 0.0}}, 100, 200))
    lr stays as it was planned: it reaches 0.0 at 100 environment steps, and has this value from there on
    """
    for key, end in open_schedules(dict(settings)):
        after = ", and has this value from there on" if steps > planned else ""
        yield f"{key} stays as it was planned: it reaches {end} at {planned:,} environment steps{after}"


def updates_from_memory(config: TrainConfig) -> int:
    """Updates of a training whose agent has a replay memory; see `replay_updates`."""
    own: Any = config.agent  # type: ignore[attr-defined]
    return replay_updates(config.schedule_length, own.learning_starts, own.samples_per_step, own.batch_size)


def replay_updates(steps: int, learning_starts: int, samples_per_step: float, batch_size: int) -> int:
    """Updates from a memory in a training, as its rate limiter allows; at least 1.

    The first `learning_starts` environment steps make none, also later.

    Args:
        steps: Environment steps of the training.
        learning_starts: Environment steps before the first update.
        samples_per_step: Samples that are trained on for each environment step after that.
        batch_size: Samples of an update.

    >>> replay_updates(100_000, 1_000, samples_per_step=8.0, batch_size=32)
    24750
    """
    return max(1, int((steps - learning_starts) * samples_per_step / batch_size))
