"""One rank of a training with several learners: an agent, its workers and the algorithm's plan, in one actor."""

from __future__ import annotations

import os
import socket
import uuid
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from rlweave.agents.agent import Agent, Batch, Metrics
from rlweave.algorithms.environments import ShipsEnvironment
from rlweave.algorithms.placement import place, set_threads
from rlweave.algorithms.rollout_workers import EnvWorker
from rlweave.envs.seeding import derived_seed
from rlweave.errors import PlanError
from rlweave.flow import Collective, Episode, LocalEngine, LostRankError, ReportMetrics
from rlweave.flow.codec import saved_as
from rlweave.flow.collective import agree
from rlweave.flow.spread import spread
from rlweave.runs.states import Large

if TYPE_CHECKING:
    from rlweave.algorithms.algorithm import Algorithm


@saved_as("rank_report")
@dataclass(slots=True)
class RankReport:
    """What a rank did in a round, up to an update of all ranks. No data of the training is in it.

    Attributes:
        num_steps: Environment steps that it took.
        trained_samples: Samples that it trained on.
        gradient_steps: Optimizer steps, which all ranks take together.
        metrics: Of the update, means over its samples.
        interrupted: Whether another rank was lost, so that nothing was learned.
    """

    num_steps: int
    trained_samples: int = 0
    gradient_steps: int = 0
    metrics: dict[str, float] = field(default_factory=dict)
    interrupted: bool = False

    @staticmethod
    def concat(reports: Sequence[RankReport], /) -> RankReport:
        """Several ranks as one: steps and samples are summed, metrics averaged over samples.

        >>> RankReport.concat([RankReport(8, 8, 1, {"loss": 1.0}), RankReport(8, 24, 1, {"loss": 3.0})])
        RankReport(num_steps=16, trained_samples=32, gradient_steps=1, metrics={'loss': 2.5}, interrupted=False)
        """
        samples = sum(report.trained_samples for report in reports)
        names = dict.fromkeys(name for report in reports for name in report.metrics)
        return RankReport(
            sum(report.num_steps for report in reports),
            samples,
            max(report.gradient_steps for report in reports),
            {name: sum(r.metrics.get(name, 0.0) * r.trained_samples for r in reports) / samples for name in names},
            any(report.interrupted for report in reports),
        )

    def state_dict(self) -> dict[str, Any]:
        """JSON-able data."""
        names = ("num_steps", "trained_samples", "gradient_steps", "metrics", "interrupted")
        return {name: getattr(self, name) for name in names}


class Rank:
    """One of several learners, with its own workers, as a worker of the plan in the driver.

    Its items are reports on rounds: the algorithm's own plan runs in it up to the next update, which all ranks make
    together. Rollouts and memories stay here.

    Args:
        config: Settings of the training, of this rank's share.
        number: Number of the rank.
        algorithm: What is trained.
        shrinks: Whether it goes on where another rank is lost.
        timeout: Seconds that a rank may be late.
    """

    shares_weights = True

    def __init__(self, config: Any, number: int, algorithm: Algorithm, shrinks: bool, timeout: float) -> None:
        self.config, self.number, self.algorithm = config, number, algorithm
        self.shrinks, self.timeout = shrinks, timeout
        workers = config.placement.workers
        agent, made = place(config, algorithm.make_agent, algorithm.worker, first=number * workers)  # type: ignore[arg-type]
        self.agent: Agent = agent
        self.workers: list[EnvWorker] = made  # type: ignore[assignment]
        self.collective: Collective | None = None
        self._lost: LostRankError | None = None
        self._failed = False
        self._checked = False
        self._store: Any = None
        self._episodes: list[Episode] = []

    def process(self) -> int:
        """Number of its process."""
        return os.getpid()

    # -- meeting the others --------------------------------------------------------------------------------------

    def is_there(self) -> bool:
        """Whether it works."""
        return not self._failed

    def machine(self) -> tuple[str, int]:
        """What tells its machine from others."""
        return socket.gethostname(), uuid.getnode()

    @spread("all")
    def open(self, apart: bool) -> str:
        """Begins the place where ranks of other processes meet.

        Args:
            apart: Whether ranks are on several machines; otherwise none but this one can connect.

        Returns:
            Its address.
        """
        from rlweave.flow.collective_gloo import LOOPBACK, open_store  # needed between processes only

        self._store, port = open_store("0.0.0.0" if apart else LOOPBACK, timeout=self.timeout)
        host = socket.gethostbyname(socket.gethostname()) if apart else LOOPBACK
        return f"{host}:{port}"

    def join(self, meeting: Any, rank: int, size: int, env_steps: int) -> None:
        """Meets the other ranks, and takes over what the first of them has learned.

        Args:
            meeting: The address where they meet, or the collective itself.
            rank: Its number among those that are there.
            size: How many they are.
            env_steps: Environment steps that all have taken; a rank that was lost has not taken those of its round.
        """
        if isinstance(meeting, str):
            from rlweave.flow.collective_gloo import GlooCollective

            meeting = GlooCollective(rank, size, self._store or meeting, self.timeout)
            self._store = None
        self.collective = meeting
        for worker in self.workers:
            for half in getattr(worker, "halves", (worker,)):
                half.workers = size  # the agent counts the steps of all ranks, which take as many
        if self.agent.share is None:
            self.agent.join(meeting)
            self.agent.build()
            set_threads(self.config, self.agent)
            if self.shrinks:
                self._learn, self.agent.learn = self.agent.learn, self._learn_or_note  # type: ignore[method-assign]
            self._begin_plan()
        else:
            self.agent.share.collective = meeting
        self.agent.env_steps = env_steps
        agree(meeting, self.config.to_data())
        self.agent.set_weights(meeting.broadcast(self.learned_state()))

    def _learn_or_note(self, batch: Batch) -> Metrics:
        """As the agent's `learn`; where another rank is lost, nothing is learned."""
        try:
            return self._learn(batch)
        except LostRankError as error:
            self._lost = error
            return {"trained_samples": 0, "gradient_steps": 0}

    # -- rounds --------------------------------------------------------------------------------------------------

    def _begin_plan(self) -> None:
        memory = () if self.algorithm.memory is None else (self.algorithm.memory(self.config, self.agent),)
        learner = self.algorithm.learner(self.agent, counts=False)
        plan = self.algorithm.plan_of(self.config, self.workers, learner, *memory)
        self.plan: ReportMetrics = plan.start(LocalEngine())

    def sample(self) -> RankReport:
        """Runs up to the next update.

        Raises:
            PlanError: Something failed; the other ranks do not wait for this one.
        """
        try:
            return self._round()
        except BaseException as error:
            self._failed = True
            if self.collective is not None:
                self.collective.leave(f"{type(error).__name__}: {error}".splitlines()[0])
            raise

    def _round(self) -> RankReport:
        counters, self._lost = self.plan.counters, None
        names = ("env_steps_sampled", "trained_samples", "gradient_steps", "updates")
        before = {name: getattr(counters, name) for name in names}
        self.plan.advance(lambda now: now.updates > before["updates"])
        steps, samples, gradient_steps, updates = (getattr(counters, name) - before[name] for name in names)
        if not updates:
            raise PlanError(
                "a rank has nothing more to learn from",
                where=f"rank {self.number}",
                received="the sources of its plan have ended, or it was stopped",
                fix="see its workers",
            )
        report = self.plan.report()
        self._episodes += report.episodes
        if not (self._checked or self._is_alone()):
            self._check_or_note()
        if self._is_alone():
            return RankReport(steps, samples, gradient_steps, interrupted=True)
        metrics = {name.partition("/")[2]: float(value) for name, value in report.metrics.items()}
        return RankReport(steps, samples, gradient_steps, metrics)

    def _check_or_note(self) -> None:
        """As `_check_equal`; where another rank is lost meanwhile, it is left to the next update."""
        try:
            self._check_equal()
        except LostRankError as error:
            if not self.shrinks:
                raise
            self._lost = error

    def _check_equal(self) -> None:
        """Checks after the first update that it is one of all ranks; an agent may move weights in ways of its own.

        Raises:
            PlanError: They have learned different things.
        """
        assert self.collective is not None
        sums = {path: zlib.crc32(value.tobytes()) for path, value in self.learned_state().items()}
        agree(
            self.collective,
            sums,
            "weights after an update",
            "move weights by Optimizer.step, which averages gradients, or use another placement",
        )
        self._checked = True

    def _is_alone(self) -> bool:
        """Whether another rank was lost in this round."""
        return self._lost is not None

    def episode_stats(self) -> Sequence[Episode]:
        """Episodes that ended since the last call."""
        episodes, self._episodes = self._episodes, []
        return episodes

    def set_weights(self, weights: Any, version: int) -> None:
        """Does nothing: it acts on the weights that it trains."""

    # -- state ---------------------------------------------------------------------------------------------------

    def start(self, seed: int) -> None:
        """Starts with new episodes and random numbers of its own."""
        self.agent.reseed(derived_seed(seed, "rank"))
        for worker, own in zip(self.workers, self._seeds(seed), strict=True):
            worker.start(own)

    def begin_episodes(self, seed: int) -> None:
        """Begins new episodes everywhere."""
        for worker, own in zip(self.workers, self._seeds(seed), strict=True):
            worker.begin_episodes(own)

    def _seeds(self, seed: int) -> list[int]:
        return [derived_seed(seed, f"worker {number}") for number in range(len(self.workers))]

    @spread("all")
    def learned_state(self) -> dict[str, np.ndarray]:
        """What is equal on all ranks, by path: weights, optimizer, statistics."""
        state = self.agent.state_dict(memory=False)
        return {path: value for path, value in state.items() if self.agent.is_of_all_ranks(path)}

    @spread("all")
    def take_learned(self, learned: Mapping[str, np.ndarray], counters: Mapping[str, Any]) -> None:
        """Takes over what `learned_state` gave, and the agent's counters; the random state and memories stay."""
        self.agent.set_weights(learned)
        self.agent.load_counters(counters)

    @spread("all")
    def counters(self) -> dict[str, Any]:
        """The agent's counters."""
        return self.agent.counters()

    def state_dict(self, environments: bool, weights: bool) -> dict[str, Any]:
        """All that its next items depend on, but for what is equal on all ranks.

        Args:
            environments: Whether episodes under way are included.
            weights: As in `Worker.state_dict`; workers here have none of their own.
        """
        state = self.agent.state_dict(memory=False)
        saves_memory = getattr(self.config, "save_memory", True)
        return {
            "own": {path: value for path, value in state.items() if not self.agent.is_of_all_ranks(path)},
            "memory": Large(_copied(self.agent.memory_state())) if saves_memory else None,
            "counters": self.agent.counters(),
            "plan": self.plan.state_dict(),
            "workers": [worker.state_dict(environments, weights) for worker in self.workers],
            "episodes": [episode.to_data() for episode in self._episodes],
        }

    def load_state_dict(self, state: Mapping[str, Any] | None, seed: int) -> str:
        """Takes over what `state_dict` gave; None of a rank that was lost.

        Returns:
            Why new episodes began; empty if episodes go on.
        """
        if state is None:
            self.start(seed)
            return "a rank was lost with its process"
        memory = state["memory"]
        kept = self.learned_state()
        self.agent.load_state_dict({**kept, **state["own"], **(memory or {})})
        self.agent.load_counters(state["counters"])
        if memory is None:
            self.agent.refill_memory()
        self.plan.close()
        self._begin_plan()
        self.plan.load_state_dict(state["plan"])
        self._episodes = [Episode.from_data(episode) for episode in state["episodes"]]
        reasons = [
            worker.load_state_dict(own, new)
            for worker, own, new in zip(self.workers, state["workers"], self._seeds(seed), strict=True)
        ]
        return next((reason for reason in reasons if reason), "")

    def close(self) -> None:
        """Closes environments and connections."""
        if self.collective is not None:
            self.collective.close()
        for worker in self.workers:
            worker.close()


class RankFactory(ShipsEnvironment):
    """Makes a rank in its process.

    Args:
        config: Settings of the training, of this rank's share.
        arguments: Further arguments of `Rank`.
    """

    makes = Rank

    def __init__(self, config: Any, *arguments: Any) -> None:
        self.config, self.arguments = config, arguments

    def __call__(self) -> Rank:
        """The rank."""
        return Rank(self.config, *self.arguments)


def _copied(memory: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {path: np.array(value) for path, value in memory.items()}
