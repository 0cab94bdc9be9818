"""Any rlweave training as a trainable of Ray Tune (extra ``rlweave[tune]``).

Example::

    from ray import tune
    from rlweave.extras.tune import TuneTraining

    tuner = tune.Tuner(
        tune.with_resources(TuneTraining, {"cpu": 1}),
        param_space={
            "algorithm": "ppo",
            "env": "CartPole-v1",
            "backend": "torch",
            "agent.lr": tune.loguniform(1e-4, 1e-2),
        },
        tune_config=tune.TuneConfig(num_samples=8, metric="evaluation_return", mode="max"),
    )
    best = tuner.fit().get_best_result()

``param_space`` holds ``algorithm``, and settings as ``--set`` takes them, over those tuned for the
environment. One iteration of Tune goes to the next greedy evaluation (``evaluate_every``), since Tune wants its metric
in every result; without evaluations, to the next line of metrics (``report_every``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rlweave.algorithms.algorithm import Algorithm
from rlweave.algorithms.config import TrainConfig, resolve_config
from rlweave.algorithms.registry import get_algorithm
from rlweave.algorithms.saving import write_training
from rlweave.algorithms.trainer import PlanTrainer
from rlweave.errors import BackendError, CheckpointError, ConfigError, install_command
from rlweave.runs.checkpoint import list_checkpoints
from rlweave.runs.metrics import Report
from rlweave.settings.sources import dotted

try:
    from ray.tune import Trainable
except ImportError as missing:
    raise BackendError("Ray Tune is not installed", where=__name__, fix=install_command("tune")) from missing

#: Settings of `TrainConfig` that Tune decides on.
_TUNES_OWN = {"checkpoint_every": "CheckpointConfig(checkpoint_frequency=...)"}


def settings_of(config: Mapping[str, Any]) -> tuple[Algorithm, TrainConfig]:
    """The algorithm and the settings of a sample of a ``param_space``.

    Args:
        config: ``"algorithm"``, and settings by dotted key or nested.

    Raises:
        ConfigError: There is no algorithm, a setting is wrong, or it is Tune's to say.

    >>> sample = {"algorithm": "ppo", "env": "CartPole-v1", "agent.lr": 0.1, "agent": {"epochs": 3}}
    >>> algorithm, config = settings_of(sample)
    >>> algorithm.name, config.agent.lr, config.agent.epochs
    ('ppo', 0.1, 3)
    """
    given = dict(config)
    name = given.pop("algorithm", None)
    if not isinstance(name, str):
        raise ConfigError(
            "param_space names no algorithm", received=repr(name), fix='{"algorithm": "ppo", "env": "CartPole-v1", ...}'
        )
    for key, instead in _TUNES_OWN.items():
        if key in given:
            raise ConfigError(f"Tune decides on {key}", received=repr(given[key]), fix=f"use {instead}")
    algorithm = get_algorithm(name)
    presets = algorithm.preset_of(given.get("env"))
    return algorithm, resolve_config(
        algorithm.config_class,
        presets=presets,
        sets={**dict(dotted(given, TrainConfig.model_fields)), "checkpoint_every": 0},
    )


class TuneTraining(Trainable):
    """A training that Tune starts, stops, saves and restores; see the module for how to use it.

    A result has the names of the metrics file, with ``timesteps_total`` beside ``env_steps_sampled``, and ``done`` when
    the training has its length. A restored trial continues exactly like one that was not stopped.
    """

    def setup(self, config: dict[str, Any]) -> None:
        """Makes the training; Tune calls it in the trial's process."""
        self._spec, self._settings = settings_of(config)
        self._begin()

    def _begin(self) -> None:
        trainer = self._spec.make_trainer(self._settings, None)
        if not isinstance(trainer, PlanTrainer):
            raise ConfigError("only trainings that are plans can be tuned", received=self._spec.name)
        self._training = trainer
        self._rows: Iterator[Report] = trainer.train()

    def step(self) -> dict[str, Any]:
        """Trains until the next evaluation, or without evaluations until the next line of metrics."""
        row: Report = {}
        for row in self._rows:
            if "evaluation_return" in row or not self._settings.evaluate_every:
                break
        steps = self._training.env_steps
        return {**row, "env_steps_sampled": steps, "timesteps_total": steps, "done": steps >= self._settings.steps}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Writes all of the state as one of rlweave's checkpoints: data only, checked when it is read."""
        write_training(self._training, Path(checkpoint_dir))

    def load_checkpoint(self, checkpoint_dir: Any) -> None:
        """Takes over what `save_checkpoint` wrote."""
        found = list_checkpoints(checkpoint_dir)
        if not found:
            raise CheckpointError("no checkpoint of rlweave there", where=str(Path(checkpoint_dir)))
        self._training.restore(found[-1])
        self._rows = self._training.train()

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Goes on with other settings in the same process, as Tune's population-based schedulers do."""
        self._spec, self._settings = settings_of(new_config)
        self._training.close()
        self._begin()
        return True

    def cleanup(self) -> None:
        """Ends the training with all of its workers."""
        self._training.close()
