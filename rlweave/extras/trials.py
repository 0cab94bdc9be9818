"""Trials: whole trainings, each a plan of its own, as the workers of another plan."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rlweave.algorithms.algorithm import Algorithm
from rlweave.algorithms.config import TrainConfig
from rlweave.algorithms.environments import ShipsEnvironment
from rlweave.algorithms.placement import make_engine
from rlweave.algorithms.trainer import PlanTrainer
from rlweave.envs.seeding import derived_seed
from rlweave.extras.population import Bounds, explore
from rlweave.flow import Episode, PlanItem, Resources

Settings = Mapping[str, float]
MakeTrainer = Callable[[int, Settings], PlanTrainer]


class TrialWorker:
    """One trial of a population: a training whose items hold its score after some more environment steps.

    Each item contains the state of the trial, so a trial that goes on and one that is made
    again from that state are the same.

    Args:
        number: Which trial.
        make_trainer: Makes the training of a trial with some settings.
        ready_every: Environment steps of one item.
        episodes: Length of the greedy evaluation that gives the score.
        seed: Seed of the population; the evaluations of all trials share one that is derived from it.
        bounds: Of the hyper-parameters.
        factors: By which they are perturbed if this trial replaces a lost one.
    """

    shares_weights = False

    def __init__(
        self,
        number: int,
        make_trainer: MakeTrainer,
        ready_every: int,
        episodes: int,
        seed: int,
        bounds: Bounds,
        factors: Sequence[float],
    ) -> None:
        self.number, self.ready_every, self.episodes, self.seed = number, ready_every, episodes, seed
        self._make_trainer, self._bounds, self._factors = make_trainer, bounds, factors
        self._trainer: PlanTrainer | None = None
        self._standing: dict[str, Any] | None = None
        self._replaced = 0
        self._episodes: list[Episode] = []

    def replacing(self, number: int) -> None:
        """Notes how many failed trials this one replaces."""
        self._replaced = number

    def set_weights(self, weights: Mapping[str, Any], version: int) -> None:
        """Copies a state, if `Population.get_weights` says so."""
        member = weights["members"][self.number]
        if self._standing is None:
            self._stand(member if member["owed"] else self._inherited(weights, member))
        elif member["owed"] and member["generation"] > self._standing["generation"]:
            self._stand(member)

    def _inherited(self, weights: Mapping[str, Any], member: Mapping[str, Any]) -> Mapping[str, Any]:
        """The initial state of a replacement: the best of the other trials, with settings perturbed."""
        others = [spare for spare in weights["spares"] if spare["trial"] != self.number]
        if not others:
            return {**member, "state": None}
        rng = np.random.default_rng(derived_seed(self.seed, f"trial {self.number}, replacement {self._replaced}"))
        settings = explore(others[0]["settings"], self._bounds, self._factors, rng)
        return {**member, "settings": settings, "state": others[0]["state"]}

    def _stand(self, standing: Mapping[str, Any]) -> None:
        self._standing = {key: standing[key] for key in ("generation", "settings", "state")}
        self._end_training()  # settings are part of what was built

    def _training(self) -> PlanTrainer:
        if self._trainer is None:
            assert self._standing is not None, "every worker gets weights before its first item"
            self._trainer = self._make_trainer(self.number, self._standing["settings"])
            if self._standing["state"] is not None:
                self._trainer.load_state_dict(self._standing["state"], f"trial {self.number}")
        return self._trainer

    def sample(self) -> PlanItem:
        """Trains for `ready_every` steps more, and evaluates."""
        trainer = self._training()
        counters = trainer.plan.counters
        before = counters.env_steps_sampled, counters.trained_samples, counters.gradient_steps
        report = trainer.run_to(before[0] + self.ready_every)
        if report is not None:
            self._episodes += report.episodes
        score = trainer.evaluate(self.episodes, derived_seed(self.seed, "evaluation")).mean_return
        state = trainer.state_dict()
        assert self._standing is not None
        self._standing["state"] = state
        numbers = {
            "score": float(score),
            "trained_samples": counters.trained_samples - before[1],
            "gradient_steps": counters.gradient_steps - before[2],
        }
        return PlanItem(
            counters.env_steps_sampled - before[0],
            numbers,
            {"trial": self.number, "settings": dict(self._standing["settings"]), "state": state},
        )

    def standing(self) -> dict[str, Any] | None:
        """Its state: settings, state and generation of the training, and episodes not yet reported."""
        episodes = [episode.to_data() for episode in self._episodes]
        return None if self._standing is None else {**self._standing, "episodes": episodes}

    def resume(self, standing: Mapping[str, Any]) -> None:
        """Continues from a `standing`."""
        self._stand(standing)
        self._episodes = [Episode.from_data(episode) for episode in standing.get("episodes", ())]

    def episode_stats(self) -> Sequence[Episode]:
        """Episodes of the training since the last call."""
        episodes, self._episodes = self._episodes, []
        return episodes

    def _end_training(self) -> None:
        if self._trainer is not None:
            self._trainer.close()
            self._trainer = None

    def close(self) -> None:
        """Ends the training with all of its workers."""
        self._end_training()


class PlanNeeds:
    """The actors of a trial's plan, composed once for all trials, which differ in numbers only.

    Args:
        algorithm: That of the trials.
        config: Settings of a trial's training.
    """

    def __init__(self, algorithm: Algorithm, config: TrainConfig) -> None:
        self._algorithm, self._config = algorithm, config

    @functools.cached_property
    def actors(self) -> list[tuple[int, Resources]]:
        """How many, and what each of them holds: workers, shards of a memory, a learner."""
        return self._algorithm.compose(self._config).graph.needs()


class TrialFactory(ShipsEnvironment):
    """Makes a trial in its process, and knows its resources.

    Args:
        config: Settings of a trial's training.
        make: Makes the trial.
        cpus: Cores that a trial holds if it has its workers in its own process.
        plan_needs: The actors of its plan.
    """

    makes = TrialWorker

    def __init__(
        self, config: TrainConfig, make: Callable[[], TrialWorker], cpus: float, plan_needs: PlanNeeds
    ) -> None:
        self.config, self.make, self.cpus, self.plan_needs = config, make, cpus, plan_needs

    @property
    def resources(self) -> Resources:
        """None if it only drives a plan with workers in other processes."""
        return Resources(cpus=self.cpus if self.config.engine == "local" else 0.0)

    def needs(self) -> list[tuple[int, Resources]]:
        """All actors of its training."""
        return [] if self.config.engine == "local" else self.plan_needs.actors

    def capacity(self) -> Mapping[str, float] | None:
        """Capacity of their engine."""
        return make_engine(self.config).capacity()

    def __call__(self) -> TrialWorker:
        """The trial; its training is built when it begins."""
        return self.make()
