"""Population-based training (Jaderberg et al. 2017, arXiv:1711.09846) as a plan of plans."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from rlweave.agents.model_files import Model
from rlweave.algorithms.algorithm import Algorithm
from rlweave.algorithms.config import TrainConfig, resolve_config
from rlweave.algorithms.environments import evaluate_player
from rlweave.algorithms.parts import Events
from rlweave.algorithms.placement import RolloutWorkers, close_engine, make_engine
from rlweave.algorithms.placements import OnError, spell_out
from rlweave.algorithms.registry import get_algorithm
from rlweave.algorithms.saving import check_same_training
from rlweave.algorithms.trainer import PlanTrainer
from rlweave.envs import Evaluation
from rlweave.envs.seeding import derived_seed
from rlweave.errors import ConfigError
from rlweave.extras.population import Population
from rlweave.extras.trials import PlanNeeds, TrialFactory, TrialWorker
from rlweave.flow import ReportMetrics, TrainOneStep, WorkerGroup
from rlweave.runs.checkpoint import open_model
from rlweave.runs.run_directory import RunDirectory
from rlweave.settings.config import setting
from rlweave.settings.ranges import POSITIVE
from rlweave.settings.sources import PresetFile, merge_settings

#: Settings of the population that its trials take over, unless they have their defaults.
_SHARED = (
    "env_options", "image_layout", "text_tokens", "text_buckets", "info_mask", "info_metrics", "vectorization",
    "env_timeout", "threads", "object_store_mb", "warn_after",
)  # fmt: skip
#: Settings of a trial that follow from those of the population.
_DERIVED = (
    "env",
    "backend",
    "num_envs",
    "seed",
    "steps",
    "schedule_steps",
    "checkpoint_every",
    "evaluate_every",
    *_SHARED,
)


class PBTTrainConfig(TrainConfig):
    """Settings of a population-based training. `steps` counts those of all trials together."""

    default_on_error: ClassVar[OnError] = "replace"  # a trial that fails goes on from the best of the others

    trial_algorithm: str = setting("ppo", "algorithm of each trial")
    trial: dict[str, Any] = setting(
        {}, "nested settings of each trial over those tuned for the environment, such as {agent: {epochs: 4}}"
    )
    population: int = setting(4, "number of trainings", ge=2, unit="trials")
    hyper_parameters: dict[str, list[float]] = setting(
        {"agent.lr": [1e-4, 1e-2]},
        "search space: lowest and highest value by dotted key; whole numbers stay whole",
    )
    ready_every: int = setting(
        8_192, "interval between two comparisons of a trial with the others", ge=1, unit="environment steps of a trial"
    )
    truncation: float = setting(
        0.25,
        "share of the population that is replaced by copies, and of the best that are copied",
        gt=0.0,
        le=0.5,
    )
    factors: list[float] = setting(
        [0.8, 1.2],
        "factors of which one, drawn at random, multiplies each copied hyper-parameter",
        min_length=1,
        within=POSITIVE,
    )


def check_population(config: PBTTrainConfig) -> None:
    """Checks settings that depend on each other.

    Raises:
        ConfigError: A setting is given twice, or to the wrong level; bounds are invalid.
    """
    if config.placement.workers != 1 or config.placement.name != "local":
        raise ConfigError(
            "the workers of a population are its trials",
            where="placement",
            received=f"{config.placement.workers} workers, placement {config.placement.name}",
            fix="--set population=4 for the trials; "
            "--set 'trial={placement: {workers: 2}, engine: ray}' for the workers of each",
        )
    if config.on_error == "shrink":
        raise ConfigError(
            "a population stays as large as it is",
            where="placement.on_error",
            received=config.on_error,
            fix="--set placement.on_error=replace, or stop",
        )
    twice = [key for key in config.trial if key in _DERIVED]
    if twice:
        raise ConfigError(
            f"{twice[0]} of a trial follows from that of the population",
            where="trial",
            received=f"{twice[0]}: {config.trial[twice[0]]!r}",
            fix=f"set {twice[0]} beside trial, not in it",
        )
    for key, bounds in config.hyper_parameters.items():
        if len(bounds) != 2 or not bounds[0] <= bounds[1]:
            raise ConfigError(
                "a hyper-parameter needs its lowest and its highest value",
                where=f"hyper_parameters, {key}",
                received=repr(bounds),
                fix=f"{key}: [0.0001, 0.01]",
            )


def trial_config(config: PBTTrainConfig, number: int, settings: Mapping[str, float]) -> TrainConfig:
    """The settings of one trial's training.

    Args:
        config: Settings of the population.
        number: Number of the trial: each has a seed of its own.
        settings: Its hyper-parameters, by dotted key.
    """
    algorithm = get_algorithm(config.trial_algorithm)
    fields = type(config).model_fields
    own: dict[str, Any] = {"env": config.env, "backend": config.backend, "num_envs": config.num_envs}
    own |= {key: value for key in _SHARED if (value := getattr(config, key)) != fields[key].default}
    derived = {
        "seed": derived_seed(config.seed, f"trial {number}"),
        "steps": max(1, config.steps // config.population),
        "schedule_steps": max(1, config.schedule_length // config.population),
        "checkpoint_every": 0,
        "evaluate_every": 0,
    }
    presets = algorithm.preset_of(config.env)
    file = merge_settings(own, spell_out(config.trial))
    return resolve_config(algorithm.config_class, presets=presets, file=file, sets={**settings, **derived})


def make_trial_trainer(config: PBTTrainConfig, number: int, settings: Mapping[str, float]) -> PlanTrainer:
    """The training of one trial, in the process that calls this."""
    trainer = get_algorithm(config.trial_algorithm).make_trainer(trial_config(config, number, settings), None)
    if not isinstance(trainer, PlanTrainer):
        raise ConfigError(
            "only trainings that are plans can be trials", where="trial_algorithm", received=config.trial_algorithm
        )
    return trainer


def make_trial(config: PBTTrainConfig, number: int) -> TrialWorker:
    """One trial, in its process."""
    return TrialWorker(
        number,
        functools.partial(make_trial_trainer, config),
        config.ready_every,
        config.evaluation_episodes,
        config.seed,
        config.hyper_parameters,
        config.factors,
    )


def pbt_plan(trials: RolloutWorkers, population: Population) -> ReportMetrics:
    """Each trial trains for a while; then the population decides whether it goes on, or copies another trial."""
    results = trials.rollouts().gather("async")
    return ReportMetrics(results.for_each(TrainOneStep(population, trials)), trials)


class PopulationParts(NamedTuple):
    """The parts of a population-based training, before it starts.

    Attributes:
        population: Decides which trial copies which.
        workers: The trials.
        plan: Composes the plan.
        first: Settings of the first trial.
    """

    population: Population
    workers: WorkerGroup
    plan: Callable[[], ReportMetrics]
    first: TrainConfig


def make_parts(config: PBTTrainConfig) -> PopulationParts:
    """Population, trials and plan of a training.

    Raises:
        ConfigError: Settings that depend on each other do not fit.
    """
    check_population(config)
    population = Population(
        config.population,
        config.hyper_parameters,
        config.truncation,
        config.factors,
        derived_seed(config.seed, "population"),
    )
    first = trial_config(config, 0, population.members[0]["settings"])  # a wrong setting is an error here
    makers = [functools.partial(make_trial, config, number) for number in range(config.population)]
    plan_needs = PlanNeeds(get_algorithm(config.trial_algorithm), first)
    trials = WorkerGroup([TrialFactory(first, make, config.worker_cpus, plan_needs) for make in makers])
    return PopulationParts(population, trials, lambda: pbt_plan(RolloutWorkers(trials, config), population), first)


class PopulationTrainer(PlanTrainer):
    """Trains a population: its plan's workers are trials, its learner decides which trial copies which.

    Args:
        config: Settings of the population.
        run: Where checkpoints go; None writes nothing.
    """

    config: PBTTrainConfig

    def __init__(self, config: PBTTrainConfig, run: RunDirectory | None) -> None:
        self.config, self.run = config, run
        self._begin_telling()
        made = make_parts(config)
        self.population, self._trials, self._first = made.population, made.workers, made.first
        self._shown: PlanTrainer | None = None
        self._shown_of: tuple[Any, Any] = None, None
        self._shown_is_loaded = False
        plan, trials = made.plan(), get_algorithm(config.trial_algorithm)
        plan.warn_after = config.warn_after
        if trials.has_plan:
            trials.compose(made.first)  # errors of a trial's plan, before there are processes
        self.engine = make_engine(config)
        # holds the cluster that trials with workers on Ray share
        self._inner_engine = make_engine(made.first)
        try:
            self.plan = plan.start(self.engine, episode_window=config.return_window)
        except BaseException:
            self._close_engines()
            raise
        self.events = Events(config)
        self.best_return = -np.inf

    def _composed(self) -> ReportMetrics:
        plan = pbt_plan(RolloutWorkers(self._trials, self.config), self.population)
        return plan.start(self.engine, episode_window=self.config.return_window)

    def _evaluation_row(self) -> dict[str, float]:
        """The best of the last scores of all trials; a new record is kept as the best checkpoint."""
        best = self.population.best()
        if best is None:
            return {}
        score = float(self.population.members[best]["score"])
        if score >= self.best_return:
            self.best_return = score
            self._keep_best()
        return {"evaluation_return": score, "best_evaluation_return": self.best_return}

    def _best_member(self) -> dict[str, Any]:
        best = self.population.best()
        return self.population.members[0 if best is None else best]

    def _identity(self) -> dict[str, Any]:
        settings = dict(self._best_member()["settings"])
        return {"algorithm": pbt.name, "backend": self.config.backend, "env": self.config.env, "settings": settings}

    def _pause_at(self, steps: int) -> None:
        """Nothing: trials take whole items."""

    def _memory_bytes(self) -> int:
        """All trials' together; trials that copied a state share its memory."""
        if not hasattr(self._first, "save_memory"):
            return 0
        return self.config.population * self._best_trainer()._memory_bytes()

    def state_dict(self, copy: bool = True) -> dict[str, Any]:
        """Population, trials, and weights and items in flight; arrays that do not change are not copied."""
        plan = self.plan.state_dict()
        return {
            **self._identity(),
            "variables": {},
            "plan": plan,
            "trials": [
                standing or {key: member[key] for key in ("generation", "settings", "state")}  # a lost trial's
                for standing, member in zip(self.plan.ask_workers("standing"), self.population.members, strict=True)
            ],
            "events": self.events.state_dict(),
            "population": self.population.state_dict(),
            "best_return": self._finite_best(),
            "env_steps": self.env_steps,
        }

    def load_state_dict(self, state: Mapping[str, Any], where: str = "load_state_dict") -> None:
        """Takes over what `state_dict` gave.

        Raises:
            CheckpointError: It is of another algorithm, backend or environment.
        """
        check_same_training(pbt.name, self.config, state, where)
        self.population.load_state_dict(state["population"])
        self.plan.close()
        self.plan = self._composed()
        # first: what a trial is to copy, and has not yet received, comes with the plan's weights
        self.plan.ask_workers("resume", [(standing,) for standing in state["trials"]])
        self.plan.load_state_dict(state["plan"])
        if self.engine.in_process:
            self.plan.recall_weights(state["plan"])
        self.best_return = -np.inf if state["best_return"] is None else float(state["best_return"])
        self.events.load_state_dict(state["events"])

    # -- inspection ----------------------------------------------------------------------------------------------

    def _best_trainer(self) -> PlanTrainer:
        """A training in this process with the state of the best trial; a new one before the first score."""
        if self._shown is not None and self._shown_is_loaded:
            return self._shown
        member = self._best_member()
        settings, state = member["settings"], member["state"]
        shown_settings, shown_state = self._shown_of
        if self._shown is None or shown_settings != settings or shown_state is not state:
            shown = self._show(settings)
            if state is not None:
                shown.load_agent(state)
            self._shown_of = settings, state
        assert self._shown is not None
        return self._shown

    def _show(self, settings: Mapping[str, float]) -> PlanTrainer:
        """A new training of a trial in this process."""
        self._close_shown()
        here: dict[str, Any] = {"engine": "local"}
        if self._first.engine != "local":  # its workers have agents of their own here too, as settings may require
            here["placement"] = {"name": "single_learner_coarse"}
        local = self.config.model_copy(update={"trial": merge_settings(spell_out(self.config.trial), here)})
        self._shown = make_trial_trainer(local, 0, settings)
        return self._shown

    def evaluate(self, episodes: int, seed: int) -> Evaluation:
        """Plays episodes greedily with the agent of the best trial."""
        return self._best_trainer().evaluate(episodes, seed)

    def model(self) -> Model:
        """The model of the best trial's agent."""
        return self._best_trainer().model()

    def load_model(self, path: Path) -> None:
        """Takes over the model of the trial that was the best; see `PlanTrainer.load_model`."""
        model, meta = open_model(path)
        self._show(meta["settings"]).agent.import_model(model)
        self._shown_is_loaded = True

    def find_method(self, method: str | None) -> tuple[Any, str | None]:
        """The executor of the best trial's agent, and the method."""
        return self._best_trainer().find_method(method)

    def explain(self) -> str:
        """The phases of the build of a trial's agent, as text."""
        return self._best_trainer().explain()

    def _close_shown(self) -> None:
        if self._shown is not None:
            self._shown.close()
            self._shown = None

    def _close_engines(self) -> None:
        close_engine(self._inner_engine)
        close_engine(self.engine)

    def close(self) -> None:
        """Ends all trials, and closes the engines."""
        self._close_shown()
        self.plan.close()
        self._close_engines()


pbt = Algorithm(
    "pbt",
    "population-based training: trials that are trainings, the worse ones go on from the better ones",
    PBTTrainConfig,
    make_parts=make_parts,
    trainer=PopulationTrainer,
    evaluate=evaluate_player,
    presets=PresetFile(__file__),
)
