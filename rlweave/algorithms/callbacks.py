"""Callbacks: a user's code that a training calls in the driver's process, on every engine."""

from __future__ import annotations

import sys
import traceback
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np

from rlweave.algorithms.config import TrainConfig
from rlweave.errors import ConfigError, ExecutionError, nearest
from rlweave.plugins import import_named
from rlweave.runs.metrics import Report


class TrainingRun(Protocol):
    """The argument of callbacks: the `rlweave.algorithms.run.Run` of the training.

    Attributes:
        config: Settings of the training.
        trainer: The trainer.
        ended: Why the training is over; None while it is not.
    """

    config: TrainConfig
    trainer: Any
    ended: str | None

    @property
    def env_steps(self) -> int:
        """Environment steps so far."""

    @property
    def path(self) -> Path | None:
        """The run directory; None where nothing is written."""

    def stop(self, reason: str) -> None:
        """Ends the training after the current report."""


class Callback:
    """The methods that a training calls; each is optional, and so is this base class.

    Each gets the `Run`: its `config`, `env_steps`, `path`, `trainer`, and `stop(reason)`, which ends the training
    after the current report.
    """

    def on_report(self, run: TrainingRun, report: Report) -> Report | None:
        """A row of metrics was made, and is not written yet; returned metrics are added to it."""

    def on_evaluation(self, run: TrainingRun, report: Report) -> Report | None:
        """The agent was evaluated: `report` has `evaluation_return`; returned metrics are added to the next row."""

    def on_checkpoint(self, run: TrainingRun, path: Path) -> None:
        """A checkpoint was written (`path.name` is "best" for the one of the best evaluation)."""

    def on_end(self, run: TrainingRun) -> None:
        """The training has ended; `run.ended` has the reason."""


HOOKS = ("on_report", "on_evaluation", "on_checkpoint", "on_end")


class Callbacks:
    """The callbacks of a training, called in order.

    Args:
        callbacks: Objects with one or more of the methods of `Callback`.
    """

    def __init__(self, callbacks: Sequence[Any] = ()) -> None:
        self._callbacks = tuple(callbacks)
        self._run: weakref.ref[TrainingRun] | None = None  # the run holds the trainer, which holds this

    def of(self, run: TrainingRun) -> Self:
        """Attaches them to a run."""
        self._run = weakref.ref(run)
        return self

    def on_report(self, report: Report) -> dict[str, float | int]:
        """The report, with metrics that callbacks add."""
        return self._extended("on_report", report)

    def on_evaluation(self, report: Report) -> dict[str, float | int]:
        """The metrics of an evaluation, with those that callbacks add."""
        return self._extended("on_evaluation", report)

    def on_checkpoint(self, path: Path) -> None:
        """Calls them after a checkpoint."""
        for callback in self._callbacks:
            self._call(callback, "on_checkpoint", path)

    def on_end(self) -> None:
        """Calls them at the end."""
        for callback in self._callbacks:
            self._call(callback, "on_end")

    def _extended(self, hook: str, report: Report) -> dict[str, float | int]:
        extended = dict(report)
        for callback in self._callbacks:
            added = self._call(callback, hook, dict(extended))
            if added is None:
                continue
            where = f"{name_of(callback)}.{hook}"
            if not isinstance(added, Mapping) or not all(map(_is_metric, added.items())):
                raise ExecutionError(
                    "a callback returned something that is no metrics",
                    where=where,
                    received=repr(added)[:200],
                    fix="return a dict of names to numbers, or None",
                )
            taken = sorted(extended.keys() & added.keys())
            if taken:
                raise ExecutionError(
                    "a callback added a metric that exists already", where=where, received=repr(taken[0]),
                    fix="choose another name",
                )  # fmt: skip
            extended.update(added)
        return extended

    def _call(self, callback: Any, hook: str, *arguments: Any) -> Any:
        method = getattr(callback, hook, None)
        run = None if self._run is None else self._run()
        if method is None or run is None:
            return None
        try:
            return method(run, *arguments)
        except Exception as error:
            raise ExecutionError(
                f"a callback failed: {type(error).__name__}: {error}",
                where=f"{name_of(callback)}.{hook}, at {run.env_steps:,} environment steps",
                received="".join(traceback.format_exception(error)[-3:]).rstrip(),
                fix="correct it, or leave it out",
            ) from error


def _is_metric(item: tuple[Any, Any]) -> bool:
    name, value = item
    if not (isinstance(name, str) and isinstance(value, int | float | np.integer | np.floating)):
        return False
    return not isinstance(value, int) or abs(value) <= sys.float_info.max


def name_of(callback: Any) -> str:
    """`module:Class` of a callback, or of its class."""
    kind = callback if isinstance(callback, type) else type(callback)
    return f"{kind.__module__}:{kind.__qualname__}"


def make_callback(given: Any) -> Any:
    """A callback from its name (`"module:Class"`) or class, which is called without arguments, or from an object.

    Raises:
        ConfigError: There is none of this name, or it has no method that a training calls.
    """
    made = _found(given) if isinstance(given, str) else given
    if isinstance(made, type):
        try:
            made = made()
        except Exception as error:
            raise ConfigError(
                f"a callback cannot be made: {type(error).__name__}: {error}",
                where="callbacks",
                received=name_of(made),
                fix="let its class need no arguments; or pass an object, from Python",
            ) from error
    if not any(callable(getattr(made, hook, None)) for hook in HOOKS):
        raise ConfigError(
            "a callback has one or more of the methods " + ", ".join(HOOKS),
            where="callbacks",
            received=name_of(made),
            fix="write a class with one, see rlweave.algorithms.callbacks.Callback",
        )
    return made


def _found(name: str) -> Any:
    module_name, _, attribute = name.partition(":")
    if not (module_name and attribute):
        raise ConfigError("a callback is named as module:Class", where="callbacks", received=repr(name))
    fix = "install it, put it into the current directory, or correct the part before the colon"
    what = "the module of a callback"
    module = import_named(module_name, ConfigError, what, where="callbacks", received=repr(name), fix=fix)
    found = getattr(module, attribute, None)
    if found is None:
        known = [known for known in dir(module) if not known.startswith("_")]
        raise ConfigError(
            f"the module {module_name!r} has no {attribute!r}",
            where="callbacks",
            received=repr(name),
            fix=nearest(attribute, known),
        )
    return found


class StopAtReturn:
    """The setting `stop_at_return`: ends the training when an evaluation reaches a return.

    Where nothing is evaluated (`evaluate_every` 0), the mean return of the latest episodes of the training counts.

    Args:
        threshold: The return.
    """

    def __init__(self, threshold: float) -> None:
        self.threshold = threshold

    def on_evaluation(self, run: TrainingRun, report: Report) -> None:
        """Stops if the evaluation reaches the return."""
        self._look(run, report, "evaluation_return")

    def on_report(self, run: TrainingRun, report: Report) -> None:
        """Stops if the latest episodes reach the return, where there are no evaluations."""
        if not run.config.evaluate_every:
            self._look(run, report, "episode_return")

    def _look(self, run: TrainingRun, report: Report, name: str) -> None:
        if report.get(name, -np.inf) >= self.threshold:
            run.stop(f"{name} {report[name]:g} has reached stop_at_return={self.threshold:g}")
