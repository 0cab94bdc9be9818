"""Placement `multi_learner`: several learners with workers of their own, which learn as one from the batches of all."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rlweave.agents.epochs import EpochsConfig, fill_minibatches
from rlweave.agents.replay_agent import ReplayAgent
from rlweave.algorithms.environments import make_training_env
from rlweave.algorithms.multi_learner_rank import RankFactory, RankReport
from rlweave.algorithms.parts import Parts
from rlweave.algorithms.placement import worker_resources
from rlweave.algorithms.placements import PlacementConfig
from rlweave.errors import ConfigError, PlanError
from rlweave.flow import LostRankError, ParallelRollouts, ReportMetrics, Stream, TrainOneStep, WorkerGroup
from rlweave.flow.collective import local_collectives
from rlweave.flow.engine import ActorLost
from rlweave.flow.gather_modes import GatherSync
from rlweave.flow.spread import AsOne

if TYPE_CHECKING:
    from rlweave.algorithms.algorithm import Algorithm


def multi_learner_parts(config: Any, algorithm: Algorithm) -> Parts:
    """Agent, ranks and plan of a training with several learners.

    Args:
        config: Settings of the training.
        algorithm: What is trained.

    Raises:
        ConfigError: What it learns from cannot be divided among them.
    """
    own = rank_config(config)
    placement = config.placement
    with make_training_env(own) as env:
        agent = algorithm.make_agent(config, env, config.seed)
    if isinstance(agent, ReplayAgent):
        agent.has_memory = False  # each rank has a part of it
    shrinks = config.on_error == "shrink"
    factories = [
        RankFactory(own, number, algorithm, shrinks, placement.rank_timeout) for number in range(placement.learners)
    ]
    ranks = Ranks(agent, WorkerGroup(factories, worker_resources(config)), config)
    return Parts(agent, ranks.group, ranks.compose, ranks)


class Ranks:
    """The ranks of a training, as the driver sees them: their meeting, and what they have learned.

    Args:
        agent: The agent here, which is evaluated and saved in their place.
        group: Makes the ranks.
        config: Settings of the training.
    """

    def __init__(self, agent: Any, group: WorkerGroup, config: Any) -> None:
        self.agent, self.group, self.config = agent, group, config
        self._plan: ReportMetrics | None = None
        #: Numbers of the ranks that are there.
        self.there: list[int] = []

    def compose(self) -> ReportMetrics:
        """The plan in the driver: rounds of one update each, of which all ranks report."""
        reports = ParallelRollouts(self.group)
        timeout = self.config.worker_timeout
        if self.config.on_error == "shrink":
            reports.on_error("replace", timeout, attempts=1)  # which gives up a rank at its first failure
        else:
            reports.on_error("stop", timeout)
        rounds = Stream(GatherSync(reports.port, concat=True).outputs[0])
        return ReportMetrics(rounds.for_each(TrainOneStep(self)), self.group)

    def update(self, report: RankReport) -> dict[str, Any]:
        """The metrics of an update that all ranks have made; where one was lost, the others meet anew."""
        if report.interrupted:
            assert self._plan is not None
            self.begin(self._plan)
        counts = {"trained_samples": report.trained_samples, "gradient_steps": report.gradient_steps}
        return {**report.metrics, **counts, "ranks": len(self.there)}

    def get_weights(self) -> dict[str, Any]:
        """Nothing: no worker of the driver's plan acts on weights from here."""
        return {}

    def begin(self, plan: ReportMetrics) -> None:
        """Has the ranks that are there meet."""
        self._plan = plan
        for _ in self.group.factories:  # a rank may be lost while they meet
            with self._survived():
                self._meet(plan)
                return
        self._meet(plan)

    def _meet(self, plan: ReportMetrics) -> None:
        answers = plan.ask_workers("is_there")
        self.there = [number for number, answer in enumerate(answers) if answer]
        if not self.there:
            raise PlanError(
                "all ranks are lost",
                where="multi_learner",
                received=f"{len(answers)} ranks, none of which answers",
                fix="resume from the last checkpoint",
            )
        size = len(self.there)
        if self.config.engine == "local":
            meetings: list[Any] = list(local_collectives(size, self.config.placement.rank_timeout))
        else:
            machines = plan.ask_workers("machine", members=self.there)
            meetings = [AsOne(plan, self.there[:1]).open(len(set(machines)) > 1)] * size
        steps = plan.counters.env_steps_sampled
        plan.ask_workers("join", [(met, rank, size, steps) for rank, met in enumerate(meetings)], self.there)

    @contextlib.contextmanager
    def _survived(self) -> Iterator[None]:
        """Passes over the loss of a rank where the group is to shrink: the plan finds it at the next round."""
        try:
            yield
        except PlanError as error:
            if self.config.on_error != "shrink" or not isinstance(error.__cause__, ActorLost | LostRankError):
                raise

    def fetch(self, plan: ReportMetrics) -> None:
        """Brings the agent here to what the ranks have learned: between two rounds, all the same."""
        for number in self.there[:-1]:
            with self._survived():
                self._fetch_from(AsOne(plan, [number]))
                return
        self._fetch_from(AsOne(plan, self.there[-1:]))

    def _fetch_from(self, rank: AsOne) -> None:
        learned, counters = rank.learned_state(), rank.counters()
        self.agent.set_weights(learned)
        self.agent.load_counters(counters)

    def push(self, plan: ReportMetrics) -> None:
        """Brings the ranks to what the agent here has learned."""
        state = self.agent.state_dict(memory=False)
        learned = {path: value for path, value in state.items() if self.agent.is_of_all_ranks(path)}
        AsOne(plan, self.there).take_learned(learned, self.agent.counters())


def rank_config(config: Any) -> Any:
    """The settings of one rank: its share of environments and batches.

    Raises:
        ConfigError: Something cannot be divided.
    """
    learners, own = config.placement.learners, config.agent
    update: dict[str, Any] = {}
    if isinstance(own, EpochsConfig):  # as many minibatches as one learner of all environments would have
        own = fill_minibatches(own, config.num_envs)
    if hasattr(own, "batch_size"):
        update = {
            "batch_size": _share(own.batch_size, learners, "agent.batch_size", "transitions"),
            "memory_capacity": math.ceil(own.memory_capacity / learners),
            "learning_starts": math.ceil(own.learning_starts / learners),
        }
    return config.model_copy(
        update={
            "num_envs": _share(config.num_envs, learners * config.placement.workers, "num_envs", "environments")
            * config.placement.workers,
            "placement": PlacementConfig(name="local", workers=config.placement.workers),
            "engine": "local",
            "agent": own.model_copy(update=update),
        }
    )


def _share(number: int, parts: int, where: str, what: str) -> int:
    if number % parts:
        raise ConfigError(
            f"{what} cannot be divided evenly among the learners and their workers",
            where=where,
            received=f"{number} {what} in {parts} parts",
            fix=f"--set {where}={-(-number // parts) * parts}",
        )
    return number // parts
