"""`train` and its `Run`: a training in progress, advanced by iterating over it, and its results."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from gymnasium.envs.registration import EnvSpec

from rlweave.agents.model_files import Model
from rlweave.algorithms.algorithm import Algorithm
from rlweave.algorithms.auto_placement import settle_placement
from rlweave.algorithms.callbacks import Callbacks, StopAtReturn, make_callback, name_of
from rlweave.algorithms.config import TrainConfig, check_backend, check_keys, resolve_config
from rlweave.algorithms.evaluating import evaluate_checkpoint, evaluate_model, final_evaluation_seed
from rlweave.algorithms.loading import find_playing, load, policy_of
from rlweave.algorithms.parts import Trainer
from rlweave.algorithms.registry import get_algorithm
from rlweave.envs import Evaluation
from rlweave.envs.registration import name_environment
from rlweave.errors import CheckpointError, ConfigError, RlweaveError
from rlweave.runs.metrics import MetricsLog, Report
from rlweave.runs.run_directory import RunDirectory
from rlweave.settings.config import Config

#: Origin of a model without a directory, for errors.
_HERE = "this training"


class Run(Iterator[Report]):
    """A training: iterating over it trains, and yields a report every `report_every` environment steps.

    After the last report the run is saved, its callbacks are called for the end, and environments and processes are
    closed. Leaving the loop earlier pauses the training; another loop continues it, `close` ends it.

    Made by `rlweave.train`, and by the command line.

    Args:
        algorithm: The algorithm.
        config: Settings of the training.
        trainer: Trains; new, or restored from a checkpoint.
        directory: Where checkpoints and metrics go; None writes nothing.
        callbacks: See `make_callback`; beside those in the settings.

    Attributes:
        reports: All reports so far.
        checkpoint: The last checkpoint, written at the end; None without a directory.
        ended: Why the training is over: "complete", the reason given to `stop`, or the error; None before.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        config: TrainConfig,
        trainer: Trainer,
        directory: RunDirectory | None = None,
        callbacks: Sequence[Any] = (),
    ) -> None:
        self.algorithm, self.trainer, self.directory = algorithm, trainer, directory
        self.config: TrainConfig = getattr(trainer, "config", config)  # it may have chosen the acting backend
        self.reports: list[Report] = []
        self.checkpoint: Path | None = None
        #: Notes from before there was a trainer.
        self.notes_before: Sequence[str] = ()
        self._metrics: MetricsLog | None = None
        self._callbacks = Callbacks(all_callbacks(config, callbacks)).of(self)
        trainer.callbacks = self._callbacks
        self._training: Iterator[Report] | None = None
        self._stopped: str | None = None
        self._model: Model | None = None
        self.ended: str | None = None  # last: a run that could not be made needs no close

    # -- training ------------------------------------------------------------------------------------------------

    @property
    def path(self) -> Path | None:
        """The run directory; None where nothing is written."""
        return None if self.directory is None else self.directory.path

    @property
    def env_steps(self) -> int:
        """Environment steps so far."""
        return self.trainer.env_steps

    @property
    def notes(self) -> list[str]:
        """Notes for the user, a line each."""
        return [*self.notes_before, *getattr(self.trainer, "notes", ())]

    @property
    def metrics(self) -> dict[str, np.ndarray]:
        """All reports as columns, float64 (reports,); NaN where a report has no value."""
        names = dict.fromkeys(name for report in self.reports for name in report)
        return {name: np.array([report.get(name, np.nan) for report in self.reports], np.float64) for name in names}

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Report:
        if self.ended is not None:
            raise StopIteration
        try:
            report = None if self._stopped is not None else self._next_report()
            if report is not None:
                return report
            if self.directory is not None:
                self.checkpoint = self.trainer.save()
        except BaseException as error:
            self._end(f"{type(error).__name__}: {error}", error)
            raise
        self._end(self._stopped or "complete")
        raise StopIteration

    def _next_report(self) -> Report | None:
        if self._training is None:
            if self.directory is not None:
                self._metrics = self.directory.open_metrics(self.config.tensorboard)
                if self.directory.metrics_file.exists():  # of a training that is resumed
                    self._metrics.rewind(self.env_steps)
            self._training = iter(self.trainer.train())
        report = next(self._training, None)
        if report is None:
            return None
        report = self._callbacks.on_report(report)
        if self._metrics is not None:
            self._write(self._metrics, report)
        self.reports.append(report)
        return report

    def _write(self, metrics: MetricsLog, report: Report) -> None:
        try:
            metrics.write(report)
        except CheckpointError as error:
            if self.config.disk_failure == "stop":
                raise
            getattr(self.trainer, "tell", warnings.warn)(f"{error}; the training goes on")

    def stop(self, reason: str) -> None:
        """Ends the training after the current report.

        Args:
            reason: Why; it becomes `ended`.
        """
        self._stopped = self._stopped or reason or "stopped"

    def stop_now(self, reason: str) -> None:
        """Ends the training as soon as its state is consistent, without another report. Safe in a signal handler.

        Args:
            reason: As in `stop`.
        """
        self.stop(reason)
        stop = getattr(self.trainer, "stop", None)
        if stop is not None:
            stop()

    def finish(self) -> Self:
        """Trains to the end."""
        for _ in self:
            pass
        return self

    def close(self) -> None:
        """Ends the training now, saved if there is a directory; does nothing once it is over."""
        self.stop("closed")
        self.finish()

    def _end(self, why: str, error: BaseException | None = None) -> None:
        if self.ended is not None:
            return
        self.ended = why
        try:
            if error is None and self.directory is None and hasattr(self.trainer, "model"):
                self._model = self._present_model()
            self._callbacks.on_end()
        except RlweaveError:
            if error is None:
                raise
        finally:
            if self._metrics is not None:
                with contextlib.suppress(OSError):
                    self._metrics.close()
            self.trainer.close()
            if error is not None and self.directory is not None:
                self.directory.discard()  # unless there is something in it

    # -- results -------------------------------------------------------------------------------------------------

    def load(self, backend: str | None = None, *, seed: int = 0) -> Any:
        """The trained policy, see `rlweave.load`: of the best evaluation so far, or else with the present weights.

        A training that has not begun runs to its end first.
        """
        found = self._what_acts()
        if isinstance(found, Path):
            return load(found, backend, seed=seed)
        return policy_of(found, _HERE, backend, seed)

    def evaluate(self, episodes: int = 20, seed: int | None = None) -> Evaluation:
        """Plays episodes greedily with the policy of `load`, in environments of their own.

        Args:
            episodes: How many episodes.
            seed: Seed of the environments; None: one derived from the run's, which training does not use.
        """
        found = self._what_acts()
        seed = final_evaluation_seed(self.config.seed) if seed is None else seed
        if isinstance(found, Path):
            return evaluate_checkpoint(self.algorithm, self.config, found, episodes, seed)
        return evaluate_model(self.algorithm, self.config, found, _HERE, episodes, seed)

    def _what_acts(self) -> Path | Model:
        """The checkpoint to play with, or the model of a run without a directory."""
        if self._training is None and self.ended is None:
            self.finish()
        if self.directory is not None and (self.checkpoint or (self.directory.checkpoints / "best").is_dir()):
            return find_playing(self.directory.path)
        return self._model or self._present_model()

    def _present_model(self) -> Model:
        trainer: Any = self.trainer
        if not hasattr(trainer, "model"):
            raise ConfigError(
                "the trainer of this algorithm gives no model",
                where=self.algorithm.name,
                fix="give the training a run_dir, whose checkpoints it loads",
            )
        best: Model | None = getattr(trainer, "best_model", None)
        return best or trainer.model()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self._end(f"{type(error).__name__}: {error}", error)

    def __del__(self) -> None:
        if getattr(self, "ended", "") is None:
            if self._training is None:
                warnings.warn("a training was made and never begun: iterate over it, or call finish()", stacklevel=2)
            with contextlib.suppress(Exception):
                self.trainer.close()


def all_callbacks(config: TrainConfig, given: Sequence[Any]) -> list[Any]:
    """The callbacks of a training: those that settings imply, those that they name, and those given as arguments."""
    made: list[Any] = [] if config.stop_at_return is None else [StopAtReturn(config.stop_at_return)]
    return [*made, *map(make_callback, (*config.callbacks, *given))]


def train(
    algorithm: str | Algorithm,
    env: str | EnvSpec | Callable[..., Any],
    *,
    run_dir: str | os.PathLike[str] | None = None,
    callbacks: Sequence[Any] = (),
    presets: bool = True,
    **settings: Any,
) -> Run:
    """Makes a training, which runs while one iterates over it.

        run = rlweave.train("ppo", "CartPole-v1", steps=20_000, agent={"lr": 1e-3})
        for report in run:
            print(report["env_steps_sampled"], report.get("episode_return"))
        policy = run.load()

    `run.finish()` trains without a loop, and so does a request for its results.

    Args:
        algorithm: Name of the algorithm (`rlweave list algorithms`), or your own `Algorithm`.
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
    chosen = algorithm if isinstance(algorithm, Algorithm) else get_algorithm(algorithm)
    kept, objects = _sorted_out(callbacks)
    given = {key: value.to_data() if isinstance(value, Config) else value for key, value in settings.items()}
    env_id = name_environment(env)
    given |= {"env": env_id, "callbacks": [*given.get("callbacks", ()), *kept]}
    check_keys(chosen.config_class, given, _as_keyword)
    preset: Mapping[str, Any] | None = chosen.preset_of(env_id) if presets else None
    config = resolve_config(chosen.config_class, presets=preset, file=given)
    chosen.check_environment(config.env)
    check_backend(config.backend)
    chosen.check_learns_on(config.backend)
    told: list[str] = []
    config = settle_placement(chosen, config, told.append)
    directory = None if run_dir is None else RunDirectory.create(chosen.name, config.to_data(), path=run_dir)
    run = begin(chosen, config, directory, objects)
    run.notes_before = told
    return run


def begin(algorithm: Algorithm, config: Any, directory: RunDirectory | None, callbacks: Sequence[Any] = ()) -> Run:
    """A new training with resolved settings; if it cannot be made, an empty directory is removed.

    Args:
        algorithm: The algorithm.
        config: Its settings.
        directory: Where checkpoints and metrics go.
        callbacks: Beside those in the settings.
    """
    trainer = None
    try:
        trainer = algorithm.make_trainer(config, directory)
        return Run(algorithm, config, trainer, directory, callbacks)
    except BaseException:
        if trainer is not None:
            trainer.close()
        if directory is not None:
            directory.discard()
        raise


def _sorted_out(callbacks: Sequence[Any]) -> tuple[list[str], list[Any]]:
    """Names of the callbacks that another process can make again, and the others."""
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
