"""Plans: a finished graph of operators, and the scheduler that moves its items one by one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

from rlweave.errors import PlanError
from rlweave.flow.branching import Queue, Sink
from rlweave.flow.codec import decode, encode
from rlweave.flow.context import Context
from rlweave.flow.counters import Counters, Every
from rlweave.flow.engine import ActorLost, Call, Clock, Engine, LocalEngine, SystemClock, answers_of
from rlweave.flow.envelope import ABSORBED, END, NOT_READY, Envelope, Pulled
from rlweave.flow.interrupt import stopping_on_interrupt
from rlweave.flow.learner import LearnerActor
from rlweave.flow.plan_graph import PlanGraph, explain
from rlweave.flow.progress import ProgressWatch, StepsWatch
from rlweave.flow.protocols import TellsEpisodes
from rlweave.flow.reports import EpisodeWindow, Report, UnreportedEpisodes
from rlweave.flow.running import report_of, restore_plan, running_context, saved_plan
from rlweave.flow.stream import Stream
from rlweave.flow.workers import WorkerGroup, Workers


class ReportMetrics:
    """The end of a plan, which makes it runnable: the whole graph is checked here, and nothing has started yet.

    `run` iterates over reports. `step` and `pull` move single items, for tests and for custom schedulers::

        def ppo(workers, learner):
            rollouts = ParallelRollouts(workers).gather_sync()
            train = rollouts.for_each(ConcatBatches(min_steps=256)).for_each(TrainOneStep(learner, workers))
            return ReportMetrics(train, workers)

        for report in ppo(workers, learner).run(until=lambda counters: counters.env_steps_sampled >= 60_000):
            print(report.env_steps_sampled, report.episode_return)

    Args:
        stream: What the plan ends with.
        workers: Whose episodes are reported; None reports none.

    Raises:
        PlanError: If the plan is wrongly composed.
    """

    wait_limit = 1.0
    """Longest sleep of the scheduler, in seconds, before it checks whether it was stopped."""
    warn_after = 60.0
    """Seconds in which items may move without one of them reaching the end, before a `PlanWarning` says so, and names
    the operators that absorb them (ten times as many if these make one item of many). The same for environment steps,
    where ``run`` reports by these. 0 for no warning."""

    def __init__(self, stream: Stream, workers: Workers | None = None) -> None:
        self._sink = Sink(stream.port)
        self.group = None if workers is None else WorkerGroup.of(workers, self._sink.name, TellsEpisodes)
        self.graph = PlanGraph(self._sink)
        if self.group is not None:
            self.graph.check_group(self.group, self._sink.name)
        self.counters = Counters()
        self.stopped = False
        """Whether ``stop`` was called, or Ctrl-C was pressed in ``run``."""
        self._queues = [node for node in self.graph.nodes if isinstance(node, Queue)]
        self._waiting_nodes = [node for node in self.graph.nodes if node.may_wait]
        self._episodes = EpisodeWindow()
        self._context: Context | None = None
        self._seconds_before = 0.0
        self._last_report = (0.0, 0)
        self._closed = False
        self._failure: PlanError | None = None
        self._arriving = ProgressWatch(self._sink.name, self.graph.nodes, "none has reached the end")
        self._stepping = StepsWatch(self._sink.name, self.graph.nodes, "no environment step was counted")

    # -- looking ------------------------------------------------------------------------------------------------

    def explain(self, engine: str | None = None) -> str:
        """Operators, item types, edges, placement, messages and resources as text, for an engine or the one it has."""
        return explain(self.graph, engine or (self._context.engine.name if self._context else LocalEngine.name))

    def draw(self, form: str = "mermaid") -> str:
        """A picture, ``"mermaid"`` or ``"svg"``: see `flow.drawing`. A running plan shows rates, fill and lag."""
        from rlweave.flow.drawing import draw  # pictures need the layout engine; running a plan does not

        return draw(self.graph, form, None if self._context is None else self.seconds)

    @property
    def ended(self) -> bool:
        """Whether all streams have ended, so that ``run`` has nothing left to do."""
        return self._sink.ended

    # -- running ------------------------------------------------------------------------------------------------

    def start(
        self, engine: Engine | None = None, clock: Clock | None = None, episode_window: int = 20
    ) -> ReportMetrics:
        """Makes the actors and gives them the learners' weights. The first step does so if this was not called before.

        Args:
            engine: Where actors live; by default in this process.
            clock: Source of the time; by default the system's.
            episode_window: Number of latest episodes over which reports average return and length.

        Raises:
            PlanError: If the plan has been started already; if it needs more than the engine has; if an actor cannot
                be made.
        """
        if self._context is not None or self._closed:
            raise PlanError(
                "a plan is started once",
                where=f"plan {self._sink.name!r}",
                received="a plan that " + ("is closed" if self._closed else "runs"),
                fix="compose a new plan, and load_state_dict() into it to go on where this one was",
            )
        engine = engine or LocalEngine()
        context = running_context(self.graph, engine, clock or SystemClock(), self.counters, self._sink.name)
        self._context = context
        self._episodes = EpisodeWindow(episode_window)
        self._started_at = context.clock.now()
        return self

    def _running(self) -> Context:
        if self._context is None:
            self.start()
        assert self._context is not None
        return self._context

    def step(self) -> Pulled:
        """Moves one item from its source as far as it goes.

        Returns:
            The item's envelope if it reached the end of the plan; ABSORBED if it stays inside; NOT_READY if nothing
            can move now; END if the plan is over. Never waits.

        Raises:
            PlanError: If an operator fails, naming operator and item; the original error is its cause.
        """
        return self._step(0.0)

    def _step(self, patience: float) -> Pulled:
        """A step that may wait so many seconds for an item if nothing else could move meanwhile."""
        context = self._context or self._running()
        if self._failure is not None:
            raise PlanError(
                "the plan has failed before",
                where=self._failure.where,
                received=self._failure.received,
                fix="mend the cause, compose a new plan and load the last checkpoint into it",
            ) from self._failure
        turn = context.turn
        turn.number += 1
        turn.patience, turn.waits_until = patience if turn.only_source else 0.0, None
        moved = False
        try:
            for queue in self._queues:
                moved |= queue.fill()
            item = self._sink.pull()
        except PlanError as error:
            self._failure = error
            raise
        if item is ABSORBED or (moved and item is NOT_READY):
            self._arriving.moved(context.clock.now(), self.warn_after)
            return ABSORBED
        if item is not NOT_READY:
            self._arriving.since = None
        return item

    def pull(self) -> Pulled:
        """Steps until an item reaches the end of the plan: its envelope, NOT_READY or END."""
        while (item := self.step()) is ABSORBED:
            pass
        return item

    def items(self) -> Iterator[Envelope]:
        """Iterates over the items that reach the end of the plan, waiting for them, until the plan is over."""
        while (item := self._step(self.wait_limit)) is not END:
            if item is NOT_READY:
                self.wait()
            elif item is not ABSORBED:
                yield item

    def run(self, until: Callable[[Counters], bool] | None = None, every_steps: int = 0) -> Iterator[Report]:
        """Runs the plan and gives reports, until it is over, ``until`` holds, or it is stopped.

        Ctrl-C ends the iteration after the current item; a second Ctrl-C interrupts at once.
        May be called again to go on with a larger ``until``.

        Args:
            until: Predicate of the absolute counters, called after every step.
            every_steps: Environment steps from one report to the next; 0 reports each item that reaches the end.
                The end of the run is reported as well. At most 10,000 episodes, the newest, are in a report.

        Raises:
            PlanError: If an operator fails; if nothing can move any more; or if the plan was stopped before.
        """
        self._refuse_stopped()
        counters = self.counters
        every = Every(every_steps, counters.env_steps_sampled)
        unreported = False
        for item in self._moved(until, steps_count=bool(every_steps)):
            unreported = True
            if every(counters.env_steps_sampled) if every_steps else item is not ABSORBED:
                unreported = False
                yield self.report()
        if unreported and not self._closed:
            yield self.report()

    def advance(self, until: Callable[[Counters], bool] | None = None) -> None:
        """Runs the plan as ``run`` does, without reports: the next report covers it.

        Args:
            until: Predicate of the absolute counters, called after every step.

        Raises:
            PlanError: As ``run``.
        """
        self._refuse_stopped()
        for _ in self._moved(until, steps_count=True):
            pass

    def _moved(self, until: Callable[[Counters], bool] | None, steps_count: bool) -> Iterator[Pulled]:
        """Yields the result of each step that moved something, and waits while nothing can move.

        Args:
            until: As in ``run``.
            steps_count: Whether a plan that samples no environment steps counts as making no progress.
        """
        counters = self.counters
        steps = counters.env_steps_sampled
        with stopping_on_interrupt(self.stop, lambda: self.stopped):
            while not self.stopped and not (until is not None and until(counters)):
                item = self._step(self.wait_limit)
                if item is END:
                    return
                if item is NOT_READY:
                    if not self.stopped:
                        self.wait()
                    continue
                if not steps_count or counters.env_steps_sampled != steps:
                    steps, self._stepping.since = counters.env_steps_sampled, None
                else:
                    self._stepping.moved(self._running().clock.now(), self.warn_after)
                yield item

    def _refuse_stopped(self) -> None:
        if self.stopped:
            raise PlanError(
                "the plan was stopped",
                where=f"plan {self._sink.name!r}",
                received="run() after stop() or Ctrl-C",
                fix="check plan.stopped after run(); compose a new plan and load_state_dict() to go on",
            )

    def wait(self) -> None:
        """After a NOT_READY step, waits until something can move, without using processor time.

        Returns after at most ``wait_limit`` seconds, so that ``stop`` takes effect.

        Raises:
            PlanError: If there is nothing to wait for; lists what each operator lacks.
        """
        context = self._running()
        calls: list[Call] = []
        wakes = math.inf
        for node in self._waiting_nodes:
            calls.extend(node.waits_on())
            if (at := node.wakes_at()) is not None and at < wakes:
                wakes = at
        limit = max(0.0, min(self.wait_limit, wakes - context.clock.now()))
        if calls:
            context.engine.wait(calls, limit or 1e-3)  # 0 would only look
            return
        if wakes < math.inf:
            context.clock.sleep(limit)
            return
        obstacles = [f"{node.name}: {node.obstacle()}" for node in self.graph.nodes if node.obstacle()]
        raise PlanError(
            "the plan has stalled: nothing can move, and nothing is being waited for",
            where=f"plan {self._sink.name!r}",
            received="; ".join(obstacles) or "no operator says why",
            fix="give the branch that everything waits for a place in the union, or a larger capacity",
        )

    def stop(self) -> None:
        """Has ``run`` end after the current item. Safe in a signal handler and from other threads."""
        self.stopped = True

    def close(self) -> None:
        """Ends all actors. The plan cannot run after that; its counters can still be read."""
        self.stopped = self._closed = True
        if self._context is not None:
            self._context.kill_actors()

    def __enter__(self) -> ReportMetrics:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # -- reports ------------------------------------------------------------------------------------------------

    @property
    def seconds(self) -> float:
        """Running time of the plan, including earlier parts of a resumed run."""
        if self._context is None:
            return self._seconds_before
        return self._seconds_before + self._context.clock.now() - self._started_at

    def report(self) -> Report:
        """Reports the counters so far, and the episodes and means since the last report."""
        context, counters = self._running(), self.counters
        episodes = self._new_episodes()
        self._episodes.add(episodes.newest, episodes.earlier)
        seconds, steps = self.seconds, counters.env_steps_sampled
        last_seconds, last_steps = self._last_report
        elapsed = seconds - last_seconds
        self._last_report = (seconds, steps)
        speed = (steps - last_steps) / elapsed if elapsed > 0 else 0.0
        return report_of(context, self.graph.nodes, self._episodes, episodes.newest, seconds, speed)

    def _new_episodes(self) -> UnreportedEpisodes:
        if self.group is None or self._closed:
            return UnreportedEpisodes()
        return self._running().new_episodes(self.group)

    def ask_workers(
        self, method: str, arguments: Sequence[tuple[Any, ...]] | None = None, members: Sequence[int] | None = None
    ) -> list[Any]:
        """Calls a method of every worker of the plan, or of some, and waits for the results.

        Args:
            method: Name of the workers' method.
            arguments: Of each worker's call; none when None.
            members: The numbers of those that are asked, each of which has to answer; None: all.

        Returns:
            Their results, in order; where all are asked, None for a worker that is lost, which its gather deals with.

        Raises:
            PlanError: If the plan has no workers, one of them raises, or of ``members`` is lost, or none answers.
        """
        context = self._running()
        if self.group is None:
            raise PlanError("the plan names no workers", where="ask_workers", fix="ReportMetrics(stream, workers)")
        asked = range(len(self.group)) if members is None else members
        given = arguments or [()] * len(asked)
        actors = context.actors(self.group)
        calls = [context.engine.call(actors[k], "ask", method, *own) for k, own in zip(asked, given, strict=True)]
        source = self.graph.source_of(self.group)
        names = [f"{source.name}/{index}" for index in asked]
        return answers_of(context.engine, context.clock, calls, source.name, method, names, lost=members is None)

    def ask_learner(self, learner: LearnerActor, method: str, *arguments: Any) -> Any:
        """Calls a method of a learner that lives in an actor, and waits for the result.

        An actor carries out its calls in order, so an update that was started before is done when this returns.

        Args:
            learner: The learner.
            method: Name of its method.
            *arguments: Of the call.

        Returns:
            What the method returned.

        Raises:
            PlanError: If it raises, its actor is lost and not to be replaced, or there is no answer.
        """
        context = self._running()
        record, operator = context.learner(learner), self.graph.trainer_of(learner)

        def ask() -> Any:
            call = context.engine.call(record.actor, method, *arguments)
            return answers_of(context.engine, context.clock, [call], operator, method, ["the learner"])[0]

        try:
            return ask()
        except PlanError as error:
            if not isinstance(error.__cause__, ActorLost) or not record.replaceable:
                raise
        record.lost = True  # it died between two calls
        self.drain()
        return ask()

    # -- checkpoints --------------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Waits until all calls under way are done, without consuming their results, so that nothing changes.

        Raises:
            PlanError: If an actor fails meanwhile, and its rule is to stop; if weights or a message that were sent
                before could not be given to a worker.
        """
        context = self._running()
        context.turn.patience = 0.0  # of the step before
        for node in self.graph.nodes:
            node.drain()
        for channel in context.channels():
            channel.check()

    def state_dict(self) -> dict[str, Any]:
        """Counters, timers, versions, operator states and items on their way: JSON-able data and NumPy arrays.

        Learners, memories and workers are not in it: their owners save them. Saving changes nothing.

        Raises:
            CheckpointError: If an operator keeps items of a type that cannot be saved.
            PlanError: As ``drain``.
        """
        context = self._running()
        self.drain()
        return {
            "seconds": self.seconds,
            "last_report": list(self._last_report),
            "episodes": self._episodes.state_dict(),
            "unreported": None if self.group is None else encode(context.episodes[self.group.key], self._sink.name),
            **saved_plan(self.graph, context),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues where the plan was that gave ``state``. Load the learner first: workers get its weights here.

        For workers that were restored with weights of their own, call ``recall_weights`` afterwards.

        Raises:
            CheckpointError: If the state is of another plan.
        """
        context = self._running()
        restore_plan(self.graph, context, state, self._sink.name)
        self._episodes.load_state_dict(state["episodes"])
        if self.group is not None:
            context.episodes[self.group.key] = decode(state["unreported"])
        self._seconds_before = float(state["seconds"])
        self._started_at = context.clock.now()
        seconds, steps = state["last_report"]
        self._last_report = (float(seconds), int(steps))

    def recall_weights(self, state: Mapping[str, Any]) -> None:
        """Notes that workers have, and are still to get, the weights that they had and were to get in ``state``.

        Args:
            state: The plan's, loaded before. The workers have been restored with their weights since.
        """
        for channel, kept in zip(self._running().channels(), state["channels"], strict=True):
            channel.load_state_dict(kept)
