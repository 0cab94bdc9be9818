"""Faults whose order of events matters, on a simulated cluster: weights go from actor to actor, and die with either."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from rlweave.errors import PlanError
from rlweave.flow import (
    NOT_READY,
    Envelope,
    FakeClock,
    LearnerActor,
    Operator,
    ParallelRollouts,
    ReportMetrics,
    SampleBatch,
    TrainOneStep,
    WorkerGroup,
)
from tests.flow.fake_cluster import Seconds, SimulatedCluster
from tests.flow.fakes import FakeLearner, FakeWorker


class Restorable(FakeLearner):
    """Its state is its number of updates."""

    def state_dict(self) -> dict[str, int]:
        return {"updates": self.updates}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.updates = state["updates"]


class Acting(FakeWorker):
    """Remembers which weights it acted on."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.acted_on: list[int] = []

    def sample(self) -> SampleBatch:
        self.acted_on.append(self.version)
        return super().sample()


class World:
    """Workers and learners that remember who was made, and a cluster they live on."""

    def __init__(self, n: int, worker_seconds: float = 0.2, update_seconds: float = 0.3) -> None:
        self.clock = FakeClock()
        self.times = {"next_items": worker_seconds, "update": update_seconds, "apply_gradients": update_seconds}
        seconds: Seconds = lambda actor, method: self.times.get(method, 0.0)  # noqa: E731
        self.cluster = SimulatedCluster(self.clock, seconds)
        self.workers: list[Acting] = []
        self.learners: list[Restorable] = []
        self.group = WorkerGroup([partial(self._worker, number) for number in range(n)])
        self.learner = LearnerActor(self._learner, save_every=4)

    def _worker(self, number: int) -> Acting:
        self.workers.append(Acting(number))
        return self.workers[-1]

    def _learner(self) -> Restorable:
        self.learners.append(Restorable())
        return self.learners[-1]

    def start(self, stream: Any) -> ReportMetrics:
        return ReportMetrics(stream, self.group).start(self.cluster, self.clock)

    def run(self, plan: ReportMetrics, until: float, look: Callable[[Any], None] | None = None) -> None:
        """Steps until it is so late."""
        while self.clock.now() < until:
            item = plan.step()
            if item is NOT_READY:
                plan.wait()
            elif look is not None and isinstance(item, Envelope):
                look(item)


@pytest.mark.parametrize("publish_every", [1, 3])
@pytest.mark.parametrize(("worker_seconds", "update_seconds"), [(0.3, 1.0), (0.9, 0.4), (0.7, 1.5)])
def test_weights_are_those_of_the_version_they_are_called(
    worker_seconds: float, update_seconds: float, publish_every: int
) -> None:
    """Also while the learner's actor is busy with the next update, which the workers do not wait for."""
    world = World(2, worker_seconds, update_seconds)
    found: list[tuple[int, int]] = []

    rollouts = ParallelRollouts(world.group).gather_async()
    gather: Any = rollouts.port.node
    deliver = gather._note_lag

    def note(envelope: Envelope) -> None:
        found.append((int(envelope.payload["version"][0]), envelope.weight_version))
        deliver(envelope)

    gather._note_lag = note
    train = rollouts.queue(4).for_each(TrainOneStep(world.learner, world.group, publish_every=publish_every))
    plan = world.start(train)
    world.run(plan, until=60.0)
    assert len(found) > 30
    assert max(version for version, _ in found) > 10, "weights did arrive"
    assert [acted for acted, _ in found] == [called for _, called in found]
    most = 2 * 58.0 / worker_seconds
    assert plan.counters.updates >= 0.95 * min(58.0 / update_seconds, most), "nobody waits for the other's call"


@pytest.mark.parametrize("policy", ["drop_oldest", "block"])
@pytest.mark.parametrize("update_seconds", [0.3, 1.5])
@pytest.mark.parametrize("crash_at", [5.0, 5.25, 5.4, 6.1])
def test_workers_that_wait_for_weights_of_a_learner_that_died_are_not_blamed(
    policy: Any, update_seconds: float, crash_at: float
) -> None:
    """Also where it has been made anew when that is found out, as behind a full queue."""
    world = World(2, 0.2, update_seconds)
    queued = ParallelRollouts(world.group).gather_async().queue(2, policy)
    train = queued.for_each(TrainOneStep(world.learner, world.group))
    plan = world.start(train.on_error("replace", first_delay=0.1))
    world.run(plan, until=crash_at)
    world.clock.advance(0.01)
    world.cluster.crash(world.learners[-1])
    world.run(plan, until=crash_at + 15.0)
    assert plan.counters.replacements == {"train_one_step": 1}
    assert plan.counters.failures == {"train_one_step": 1}
    assert world.workers[0].version >= world.learners[-1].updates - 3 > 3, "weights of the new one arrive"


@pytest.mark.parametrize("gather", ["gather_sync", "gather_async"])
@pytest.mark.parametrize("policy", ["stop", "replace"])
def test_a_driver_that_is_busy_for_long_takes_no_worker_for_hanging(policy: Any, gather: str) -> None:
    """They were done long ago; nobody had looked."""
    world = World(2, 0.5)

    class Slow(FakeLearner):
        def update(self, batch: Any) -> dict[str, Any]:
            world.clock.advance(10.0)
            return super().update(batch)

    rollouts = ParallelRollouts(world.group).on_error(policy, timeout=5.0)
    plan = world.start(getattr(rollouts, gather)().for_each(TrainOneStep(Slow(), world.group)))
    world.run(plan, until=200.0)
    assert plan.counters.failures == {}
    assert plan.counters.updates >= 18, "and is waited for by nobody"


def test_nor_does_a_checkpoint_after_a_long_while() -> None:
    world = World(2, 0.5)
    plan = world.start(ParallelRollouts(world.group).on_error("stop", timeout=5.0).gather_async())
    assert plan.step() is NOT_READY
    assert plan.step() is NOT_READY
    world.clock.advance(60.0)
    plan.graph.nodes[1]._may_skip_look = True  # type: ignore[attr-defined]  # as after asking
    plan.state_dict()
    assert plan.counters.failures == {}


def test_a_worker_is_made_anew_when_there_is_a_learner_to_give_it_weights() -> None:
    world = World(2)
    rollouts = ParallelRollouts(world.group).on_error("replace", first_delay=0.1)
    train = rollouts.gather_async().queue(4, "drop_oldest").for_each(TrainOneStep(world.learner, world.group))
    plan = world.start(train.on_error("replace", first_delay=3.0))
    world.run(plan, until=5.0)
    world.clock.advance(0.01)
    world.cluster.crash(world.learners[-1])
    world.cluster.crash(world.workers[0])
    waits = world.cluster.waits
    world.run(plan, until=7.5)
    assert world.cluster.waits - waits < 200, "nothing spins meanwhile"
    assert plan.counters.failures == {"parallel_rollouts": 1, "train_one_step": 1}
    world.run(plan, until=12.0)
    new = world.workers[-1]
    assert (len(world.workers), new.number) == (3, 0)
    assert new.made > 0
    assert -1 not in new.acted_on


@pytest.mark.parametrize("queued", [True, False])
def test_a_worker_whose_weights_die_on_their_way_to_it_waits_for_the_next_ones(queued: bool) -> None:
    """It was being made when the learner died, which nobody knew yet."""
    world = World(1)
    world.times["get_weights"] = 0.1
    rollouts = ParallelRollouts(world.group).on_error("replace", first_delay=0.0, longest_delay=0.0).gather_async()
    train = (rollouts.queue(4, "drop_oldest") if queued else rollouts).for_each(
        TrainOneStep(world.learner, world.group)
    )
    plan = world.start(train.on_error("replace", first_delay=3.0))
    updates = 0
    while plan.counters.updates < 5 or plan.counters.updates == updates:  # the weights have just been asked for
        updates = plan.counters.updates
        if plan.step() is NOT_READY:
            plan.wait()
    world.clock.advance(0.05)
    world.cluster.crash(world.workers[0])
    world.clock.advance(0.01)
    world.cluster.crash(world.learners[-1])
    waits, now = world.cluster.waits, world.clock.now()
    world.run(plan, until=now + 2.5)
    assert world.cluster.waits - waits < 200, "nothing spins meanwhile"
    world.run(plan, until=now + 10.0)
    assert [worker.acted_on[:1] for worker in world.workers[1:]] == [[4]], "the weights of the learner's last snapshot"
    assert plan.counters.failures == {"parallel_rollouts": 1, "train_one_step": 1}


def test_a_checkpoint_waits_for_a_learner_that_a_gather_found_dead() -> None:
    world = World(1)
    train = ParallelRollouts(world.group).gather_async().for_each(TrainOneStep(world.learner, world.group))
    plan = world.start(train.on_error("replace", first_delay=0.5))
    world.run(plan, until=4.0)
    plan.drain()
    plan.step()  # takes what the learner had done
    world.clock.advance(0.1)
    world.cluster.crash(world.learners[-1])
    plan._context.learner(world.learner).lost = True  # type: ignore[union-attr]
    plan.state_dict()
    assert len(world.learners) == 2
    assert plan.ask_learner(world.learner, "state_dict") == {"updates": 8}


def test_asking_an_idle_learner_that_died_has_it_made_anew_or_names_who_trains_it() -> None:
    for policy in ("replace", "stop"):
        world = World(1)
        train = ParallelRollouts(world.group).gather_async().for_each(TrainOneStep(world.learner, world.group))
        plan = world.start(train.on_error(policy, **({"first_delay": 0.5} if policy == "replace" else {})))  # type: ignore[arg-type]
        world.run(plan, until=4.0)
        plan.drain()
        plan.step()  # takes what the learner had done
        world.clock.advance(0.1)
        world.cluster.crash(world.learners[-1])
        world.clock.advance(0.1)
        if policy == "replace":
            assert plan.ask_learner(world.learner, "state_dict") == {"updates": 8}
            assert plan.counters.replacements == {"train_one_step": 1}
            continue
        with pytest.raises(PlanError, match="operator 'train_one_step' failed: ActorLost: crashed") as caught:
            plan.ask_learner(world.learner, "state_dict")
        assert "state_dict(), asked of it" in str(caught.value)


def test_a_question_that_a_worker_fails_on_names_it() -> None:
    world = World(2)
    plan = world.start(ParallelRollouts(world.group).gather_async())
    world.workers[1].greet = None  # type: ignore[assignment,method-assign]
    with pytest.raises(PlanError, match="operator 'parallel_rollouts' failed: TypeError") as caught:
        plan.ask_workers("greet", [(1, 2)] * 2)
    assert "parallel_rollouts/1" in str(caught.value)
    assert "greet(), asked of it" in str(caught.value)
    assert isinstance(caught.value.__cause__, TypeError)


def test_no_state_left_names_who_trains() -> None:
    world = World(1)
    train = ParallelRollouts(world.group).gather_async().for_each(TrainOneStep(world.learner, world.group))
    plan = world.start(train.on_error("replace", first_delay=0.5))
    plan._context.learner(world.learner)._snapshots.clear()  # type: ignore[union-attr]
    world.cluster.crash(world.learners[-1])
    with pytest.raises(PlanError, match=r"(?s)no snapshot of the learner is left.*operator 'train_one_step'"):
        world.run(plan, until=4.0)


def test_a_learner_that_is_found_dead_too_often_ends_a_checkpoint_with_an_error() -> None:
    world = World(1)
    train = ParallelRollouts(world.group).gather_async().for_each(TrainOneStep(world.learner, world.group))
    plan = world.start(train.on_error("replace", attempts=1))
    world.run(plan, until=4.0)
    plan.drain()
    world.cluster.crash(world.learners[-1])
    with pytest.raises(PlanError, match="operator 'train_one_step' failed: ActorLost"):
        plan.ask_learner(world.learner, "state_dict")


class Host:
    """Holds an object as `RayHost` does: a factory that fails makes every call fail with its error."""

    def __init__(self, factory: Callable[[], Any]) -> None:
        self.held: Any = None
        self.error: Exception | None = None
        try:
            self.held = factory()
        except OSError as error:
            self.error = error

    @property
    def worker(self) -> Any:
        return getattr(self.held, "worker", None)

    def __getattr__(self, method: str) -> Any:
        def fail(*arguments: Any) -> None:
            assert self.error is not None
            raise self.error

        return getattr(self.held, method) if self.error is None else fail


class HostingCluster(SimulatedCluster):
    """Makes actors in hosts."""

    def create_actors(self, factories: Any, resources: Any = None) -> list[Any]:
        return super().create_actors([partial(Host, factory) for factory in factories], resources)


class Counting(Operator):
    """Counts items, at its worker."""

    def __init__(self) -> None:
        self.seen = 0

    def __call__(self, batch: SampleBatch) -> SampleBatch:
        self.seen += 1
        return batch

    def state_dict(self) -> dict[str, Any]:
        return {"seen": self.seen}

    def load_state_dict(self, state: Any) -> None:
        self.seen = state["seen"]


def test_a_checkpoint_asks_nothing_of_an_actor_that_is_being_made_anew() -> None:
    """Its factory fails this once, which is its gather's business; what the others know is in the checkpoint."""
    made: list[int] = []

    def factory() -> FakeWorker:
        made.append(len(made))
        if len(made) == 3:
            raise OSError("port taken, try again")
        return FakeWorker(made[-1])

    clock = FakeClock()
    cluster = HostingCluster(clock, lambda actor, method: 1.0)
    group = WorkerGroup([factory, factory])
    stream = ParallelRollouts(group).on_error("replace", first_delay=0.0).par_for_each(Counting()).gather_async()
    plan = ReportMetrics(stream, group).start(cluster, clock)
    for _ in zip(range(3), plan.items(), strict=False):
        pass
    cluster.crash(cluster.actors[1].worker)
    states = []
    while len(made) < 4 or plan.counters.items < 20:
        if plan.step() is NOT_READY:
            plan.wait()
        if len(made) == 3 and not states:
            states.append(plan.state_dict()["operators"]["counting"]["state"]["at_workers"])
    assert states[0][1] is None
    assert states[0][0]["seen"] > 0
    assert plan.counters.replacements == {"parallel_rollouts": 2}
    assert plan.counters.failures["parallel_rollouts"] >= 2
