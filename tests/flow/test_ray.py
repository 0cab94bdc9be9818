"""The promises of plans on Ray, with real processes that fail, hang and are slow. One small cluster for all of them."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from rlweave.errors import PlanError
from rlweave.flow import (
    NOT_READY,
    ApplyGradients,
    ComputeGradients,
    Envelope,
    FakeClock,
    LearnerActor,
    ParallelRollouts,
    ReportMetrics,
    Resources,
    StoreToBuffer,
    TrainOneStep,
    Union,
    WorkerGroup,
)
from tests.flow.fakes import FakeMemory, FakeWorker
from tests.flow.ray_workers import (
    ApplyingLearner,
    BrokenAtBirth,
    BrokenLearner,
    ComputingWorker,
    CountingLearner,
    Gate,
    PickyWorker,
    ProcessWorker,
    explode_at_second,
    loaded_frameworks,
)
from tests.processes import alive, gone_within

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.slow

RayEngine = Any
Start = Callable[[ReportMetrics], ReportMetrics]


@pytest.fixture
def start(ray_engine: RayEngine) -> Iterator[Start]:
    """Starts a plan on Ray; all that were started are closed at the end."""
    plans: list[ReportMetrics] = []

    def on_ray(plan: ReportMetrics) -> ReportMetrics:
        plans.append(plan)
        return plan.start(ray_engine)

    yield on_ray
    for plan in plans:
        plan.close()


@pytest.fixture
def gate(tmp_path: Path, start: Start) -> Iterator[Gate]:
    """What a slow worker waits at. It is opened before the plans are closed, which ask their workers to close."""
    gate = Gate(tmp_path / "gate")
    yield gate
    gate.close()


def group(*workers: dict[str, Any]) -> WorkerGroup:
    return WorkerGroup([partial(ProcessWorker, number, **settings) for number, settings in enumerate(workers)])


def trained(workers: WorkerGroup, learner: Any, stream: Any) -> ReportMetrics:
    return ReportMetrics(stream.for_each(TrainOneStep(learner, workers)), workers)


def take(plan: ReportMetrics, n: int, seconds: float = 60.0) -> list[Envelope]:
    """The next n items, or fewer if they take too long."""
    found: list[Envelope] = []
    deadline = time.monotonic() + seconds
    while len(found) < n and time.monotonic() < deadline:
        item = plan.pull()
        if isinstance(item, Envelope):
            found.append(item)
        else:
            plan.wait()
    return found


def take_until(plan: ReportMetrics, holds: Callable[[list[Envelope]], Any]) -> list[Envelope]:
    """Items until something holds of them; what comes of waiting is not decided by the time that it takes."""
    items = take(plan, 1)
    while not holds(items):
        more = take(plan, 1)
        assert more, "no item for a minute"
        items += more
    return items


def by_slow(items: list[Envelope]) -> bool:
    return items[-1].source.endswith("/1")


def fact(item: Envelope, name: str) -> Any:
    return item.payload[name][0].item()


# -- order and lag --------------------------------------------------------------------------------------------------


def test_an_item_is_done_before_the_next_one_of_its_source_is_begun(start: Start) -> None:
    workers = group({}, {})
    done: dict[tuple[str, int], float] = {}
    plan = start(ReportMetrics(ParallelRollouts(workers).gather_async(), workers))
    items = []
    for item in islice(plan.items(), 40):
        items.append(item)
        done[item.source, item.sequence] = time.monotonic()
    for item in items:
        assert fact(item, "made") == item.sequence
        if item.sequence:
            assert fact(item, "started") >= done[item.source, item.sequence - 1]
    assert {item.source for item in items} == {"parallel_rollouts/0", "parallel_rollouts/1"}
    assert plan.counters.env_steps_sampled == 40 * 4


def test_the_lag_of_every_item_is_measured(start: Start, gate: Gate) -> None:
    workers, learner = group({}, {"gate": gate.path}), CountingLearner()
    plan = start(trained(workers, learner, ParallelRollouts(workers).gather_async()))
    items = take(plan, 10)
    gate.let(3)
    items += take_until(plan, by_slow)
    items += take(plan, 10)
    lags: dict[int, int] = {}
    for number, item in enumerate(items):
        lag = number - item.weight_version  # its own update came after
        lags[lag] = lags.get(lag, 0) + 1
    report = plan.report()
    assert report.train_lag == report.gather_lag == lags
    assert max(lags) >= 10, "a slow actor lags"


@pytest.mark.parametrize("when_old", ["drop", "wait"])
def test_lag_is_bounded_where_asked(start: Start, gate: Gate, when_old: str) -> None:
    workers = group({}, {"gate": gate.path})
    gathered = ParallelRollouts(workers).gather_async(max_lag=2, when_old=when_old)  # type: ignore[arg-type]
    plan = start(trained(workers, CountingLearner(), gathered))
    if when_old == "drop":
        take(plan, 10)
        gate.let(1)
        take_until(plan, lambda items: plan.counters.drops)
        assert plan.report().drops == {"gather_async": 1}
    else:
        items = take(plan, 2)  # a third one would leave the slow one's too old
        while not plan.report().measures["gather_async/held_back"]:
            if plan.step() is NOT_READY:
                plan.wait()
        gate.let(1)
        items += take_until(plan, by_slow)
        assert len(items) == 3
        assert plan.report().drops == {}
    assert max(plan.report().train_lag) <= 2


def test_a_barrier_shows_every_round_the_weights_of_the_round_before(start: Start) -> None:
    workers, learner = group({}, {}), CountingLearner()
    seen: list[tuple[int, float]] = []
    stream = ParallelRollouts(workers).gather_sync()
    watched = stream.for_each(lambda batch: (seen.append((batch["version"][0], batch["normalizer"][0])), batch)[1])
    plan = start(trained(workers, learner, watched))
    take(plan, 8)
    assert seen == [(v, 10.0 * v) for v in (0, 0, 2, 2, 4, 4, 6, 6)]
    assert plan.report().gather_lag == {0: 8}


def test_a_quorum_does_not_wait_for_a_slow_worker_whose_item_comes_marked(start: Start, gate: Gate) -> None:
    workers = group({}, {"gate": gate.path})
    plan = start(ReportMetrics(ParallelRollouts(workers).gather_sync(quorum=1, timeout=0.02), workers))
    items = take(plan, 3)
    gate.let(1)
    items += take_until(plan, by_slow)
    assert items[-1].rounds_late >= 3
    own = [item.sequence for item in items if item.source.endswith("/0")]
    assert own == list(range(len(own)))
    assert len(own) >= items[-1].rounds_late, "that many rounds went by without it, and worker 0 was in each"
    assert plan.report().measures["gather_sync/late_items"] == 1


def test_several_fragments_travel_in_one_call(start: Start, ray_engine: RayEngine, monkeypatch: Any) -> None:
    workers = group({}, {})
    calls: list[str] = []
    call = ray_engine.call

    def counted(actor: Any, method: str, *arguments: Any) -> Any:
        calls.append(method)
        return call(actor, method, *arguments)

    monkeypatch.setattr(ray_engine, "call", counted)
    plan = start(ReportMetrics(ParallelRollouts(workers, fragments=5).gather_async(), workers))
    items = take(plan, 50)
    assert sorted(item.sequence for item in items if item.source.endswith("/0")) == list(
        range(sum(item.source.endswith("/0") for item in items))
    )
    assert calls.count("next_items") <= 12
    assert plan.report().episodes_finished == 50, "episodes come with their items"


def test_messages_reach_all_workers_and_their_replacements(start: Start) -> None:
    workers = group({}, {"fails": {3: "exit"}})
    rollouts = ParallelRollouts(workers).on_error("replace")
    stream = rollouts.gather_sync().notify(workers, "greet", every=4, message=lambda batch: "hello")
    plan = start(ReportMetrics(stream, workers))
    items = take(plan, 10)
    assert [fact(item, "replaces") for item in items if item.source.endswith("/1")][-1] == 1
    told = plan.ask_workers("tell")
    assert [message for message, _ in told[0]["messages"]] == ["hello", "hello"]
    assert "hello" in [message for message, _ in told[1]["messages"]]


# -- failures -------------------------------------------------------------------------------------------------------


def notes_of(error: BaseException | None) -> str:
    return "".join(getattr(error, "__notes__", ()))


def test_a_failure_names_operator_actor_and_item_with_the_original_traceback(start: Start) -> None:
    workers = group({}, {"fails": {2: "raise"}})
    plan = start(ReportMetrics(ParallelRollouts(workers).gather_sync(), workers))
    with pytest.raises(PlanError, match="'parallel_rollouts' failed: ZeroDivisionError: worker 1 at 2") as caught:
        take(plan, 20)
    assert "parallel_rollouts/1#2" in str(caught.value)
    assert type(caught.value.__cause__) is ZeroDivisionError
    assert "in sample" in notes_of(caught.value.__cause__)
    assert "ray_workers.py" in notes_of(caught.value.__cause__)


def test_an_operator_at_the_workers_is_named(start: Start) -> None:
    stream = ParallelRollouts(group({})).par_for_each(explode_at_second).gather_async()
    with pytest.raises(PlanError, match="operator 'explode_at_second' failed: LookupError: exploded") as caught:
        take(start(ReportMetrics(stream)), 5)
    assert "parallel_rollouts/0#1" in str(caught.value)


def test_classes_that_no_module_has_are_the_same_when_they_come_back(start: Start) -> None:
    class Fragment(dict[str, Any]):
        num_steps = 1

    class TiredError(Exception):
        pass

    class Worker(FakeWorker):
        def sample(self) -> Any:
            if self.made == 2:
                raise TiredError
            self.made += 1
            return Fragment(made=self.made)

    items = start(ReportMetrics(ParallelRollouts(WorkerGroup([Worker])).gather_async())).items()
    for made in (1, 2):
        payload = next(items).payload
        assert type(payload) is Fragment
        assert payload == {"made": made}
    with pytest.raises(PlanError) as failed:
        next(items)
    assert type(failed.value.__cause__) is TiredError


def test_an_error_that_cannot_travel_comes_as_its_text(start: Start) -> None:
    workers = WorkerGroup([partial(PickyWorker, 0)])
    with pytest.raises(PlanError, match="PickyError: 7: picky") as caught:
        take(start(ReportMetrics(ParallelRollouts(workers).gather_sync())), 1)
    assert "in sample" in notes_of(caught.value.__cause__)


def test_a_worker_that_cannot_be_made_is_an_error_at_the_start(start: Start) -> None:
    workers = WorkerGroup([partial(ProcessWorker, 0), BrokenAtBirth])
    with pytest.raises(FileNotFoundError, match="no such environment"):
        start(ReportMetrics(ParallelRollouts(workers).gather_sync()))


def test_weights_that_cannot_be_read_from_a_learner_elsewhere_name_themselves(start: Start) -> None:
    workers = group({})
    learner = LearnerActor(BrokenLearner, Resources(cpus=0))
    plan = start(trained(workers, learner, ParallelRollouts(workers).gather_sync()))
    with pytest.raises(PlanError, match="weights for parallel_rollouts.*OverflowError: weights are gone"):
        take(plan, 5)


def test_a_process_that_dies_stops_the_plan_unless_it_may_be_replaced(start: Start) -> None:
    workers = group({}, {"fails": {2: "exit"}})
    plan = start(ReportMetrics(ParallelRollouts(workers).gather_sync(), workers))
    with pytest.raises(PlanError, match="operator 'parallel_rollouts' failed: ActorLost") as caught:
        take(plan, 20)
    assert "parallel_rollouts/1#2" in str(caught.value)


def test_a_dead_actor_is_replaced_in_place(start: Start) -> None:
    workers, learner, memory = group({}, {"fails": {5: "exit"}}), CountingLearner(), FakeMemory()
    rollouts = ParallelRollouts(workers).on_error("replace", first_delay=0.05)
    first, second = rollouts.gather_async().split(2, capacity=8)
    train = first.for_each(TrainOneStep(learner, workers))
    plan = start(ReportMetrics(Union(train, second.for_each(StoreToBuffer(memory)), output=1), workers))
    items = take(plan, 8)
    while not any(fact(item, "replaces") for item in items[-4:]):
        items += take(plan, 1)
    items += take(plan, 8)
    mine = [item for item in items if item.source.endswith("/1")]
    dead = [item for item in mine if fact(item, "replaces") == 0]
    new = [item for item in mine if fact(item, "replaces") == 1]
    assert [fact(item, "made") for item in dead] == list(range(5))
    assert new, "the new one works"
    assert mine == dead + new, "nothing of the dead one comes after it"
    assert fact(new[0], "version") > 0, "it has weights before its first item"
    assert fact(new[0], "normalizer") == 10.0 * fact(new[0], "version")
    assert {fact(item, "drawn") for item in dead}.isdisjoint(fact(item, "drawn") for item in new), "a seed of its own"
    assert len({fact(item, "pid") for item in items if item.source.endswith("/0")}) == 1, "the other one went on"
    report = plan.report()
    assert report.replacements == {"parallel_rollouts": 1}
    assert report.lost_items == {"parallel_rollouts": 1}
    assert report.env_steps_sampled == 4 * report.operator_items["parallel_rollouts"]
    assert report.updates == learner.updates
    assert memory.stored == 4 * len(items), "the branches and buffers went on"


def test_a_killed_actor_is_replaced_and_its_results_are_purged(start: Start) -> None:
    workers = group({}, {})
    rollouts = ParallelRollouts(workers, fragments=2).on_error("replace", first_delay=0.05)
    plan = start(ReportMetrics(rollouts.gather_async(num_async=2), workers))
    take(plan, 6)
    killed_at = len(plan._context.actors(workers))  # type: ignore[union-attr]
    ray.kill(plan._context.actors(workers)[1].handle, no_restart=True)  # type: ignore[union-attr]
    assert killed_at == 2
    replaced: list[int] = []
    while not replaced or replaced[-1] == 0:
        replaced += [fact(item, "replaces") for item in take(plan, 4) if item.source.endswith("/1")]
    assert replaced == sorted(replaced)
    assert plan.counters.replacements == {"parallel_rollouts": 1}
    assert 1 <= plan.counters.lost_items["parallel_rollouts"] <= 2 * 2, (
        "what two calls of two items each had not brought"
    )


def test_a_hanging_actor_is_replaced(start: Start) -> None:
    workers = group({}, {"fails": {1: "hang"}})
    rollouts = ParallelRollouts(workers).on_error("replace", timeout=3.0, first_delay=0.05)
    plan = start(ReportMetrics(rollouts.gather_sync(), workers))
    replaces = [fact(item, "replaces") for item in take(plan, 6) if item.source.endswith("/1")]
    assert replaces[0] == 0
    assert replaces[1] >= 1, "on a machine that is busy, a new one may be late as well"
    assert plan.counters.replacements["parallel_rollouts"] >= 1


def test_all_actors_gone_is_an_error_after_a_bounded_wait(start: Start) -> None:
    broken = {"fails": {0: "exit"}, "always": True}
    workers = group(broken, broken)
    rollouts = ParallelRollouts(workers).on_error("replace", attempts=2, first_delay=0.05)
    plan = start(ReportMetrics(rollouts.gather_async(), workers))
    began = time.monotonic()
    with pytest.raises(PlanError, match="all actors of 'parallel_rollouts' are gone"):
        take(plan, 1)
    assert time.monotonic() - began < 30


def test_skipping_an_environment_that_raises(start: Start) -> None:
    workers = group({"fails": {1: "raise", 3: "raise"}})
    plan = start(ReportMetrics(ParallelRollouts(workers).on_error("skip").gather_async(), workers))
    assert [item.sequence for item in take(plan, 4)] == [0, 2, 4, 5]
    assert plan.counters.failures == {"parallel_rollouts": 2}


# -- resources, memory, learner ------------------------------------------------------------------------------------


def test_more_than_there_is_is_refused_with_the_sum(ray_engine: RayEngine) -> None:
    workers = WorkerGroup([partial(ProcessWorker, n) for n in range(3)])
    plan = ReportMetrics(ParallelRollouts(workers).gather_sync(), workers)
    with pytest.raises(PlanError, match="needs more resources than the engine has") as caught:
        plan.start(ray_engine)
    assert "3 CPU in all; there is 2 CPU" in str(caught.value)
    with pytest.raises(PlanError, match="cannot live on engine 'ray'"):
        ReportMetrics(ParallelRollouts([FakeWorker()]).gather_sync()).start(ray_engine, FakeClock())
    unpicklable = WorkerGroup([partial(ProcessWorker, 0, size=(n for n in range(3)))])  # type: ignore[list-item]
    with pytest.raises(PlanError, match="a factory cannot be pickled"):
        ReportMetrics(ParallelRollouts(unpicklable).gather_sync()).start(ray_engine)


def test_items_are_copied_out_of_the_object_store_and_nothing_stays_open(start: Start) -> None:
    from ray._private.worker import global_worker

    workers, learner = group({"size": 250_000}, {"size": 250_000}), CountingLearner()
    plan = start(trained(workers, learner, ParallelRollouts(workers).gather_async()))
    counts: list[int] = []
    stream = iter(plan.items())
    for _ in range(4):
        for _ in range(40):
            next(stream)
        gc.collect()
        counts.append(len(global_worker.core_worker.get_all_reference_counts()))
    assert max(counts[1:]) <= counts[0] + 4, counts


def test_kept_items_do_not_pin_the_object_store(start: Start, ray_engine: RayEngine) -> None:
    workers = group({"size": 250_000})
    plan = start(ReportMetrics(ParallelRollouts(workers).gather_async(), workers))
    kept = take(plan, 120)  # 120 MB in a store of 80 MB
    assert all(item.payload["pixels"].flags.writeable for item in kept)
    from ray._private.internal_api import memory_summary

    del plan
    import ray

    # several clusters may run on this machine: that of each test process
    used = memory_summary(address=ray.get_runtime_context().gcs_address, stats_only=True)
    assert "Spilled" not in used, used


def test_a_learner_in_an_actor_trains_there_and_feeds_the_workers(start: Start) -> None:
    workers = WorkerGroup([partial(ProcessWorker, n) for n in range(2)], Resources(cpus=0.5))
    learner = LearnerActor(CountingLearner, Resources(cpus=1))
    plan = start(trained(workers, learner, ParallelRollouts(workers).gather_async().queue(4)))
    items = take(plan, 30)
    assert [item.payload.version for item in items] == list(range(1, 31))
    pids = {int(item.payload.metrics["pid"]) for item in items}
    assert len(pids) == 1
    assert os.getpid() not in pids
    told = plan.ask_workers("tell")
    assert {told[0]["pid"], told[1]["pid"]}.isdisjoint(pids)
    report = plan.report()
    assert report.updates == 30
    assert sum(report.train_lag.values()) in (30, 31)
    assert max(report.train_lag) >= 1


def test_a_worker_on_numpy_imports_no_framework(start: Start) -> None:
    from rlweave.algorithms.config import resolve_config
    from rlweave.algorithms.dqn import dqn
    from rlweave.algorithms.placement import WorkerFactory
    from rlweave.algorithms.ppo import ppo

    for algorithm in (dqn, ppo):
        sets = {"env": "CartPole-v1", "num_envs": 4, "backend": "torch", "agent.acting_backend": "numpy"}
        config = resolve_config(algorithm.config_class, sets=sets)
        workers = WorkerGroup([WorkerFactory(config, 0, algorithm.make_agent, algorithm.worker)])
        stream = ParallelRollouts(workers).par_for_each(loaded_frameworks).gather_sync()
        plan = start(ReportMetrics(stream, workers))
        assert take(plan, 1)[0].payload == []
        plan.close()


# -- stopping, checkpoints ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["end", "close", "error", "hanging"])
def test_stopping_ends_every_process_within_a_bounded_time(start: Start, how: str) -> None:
    settings: dict[str, Any] = {
        "end": {"items": 3},
        "close": {"pause": 0.3},
        "error": {"fails": {2: "raise"}},
        "hanging": {"fails": {2: "hang"}},
    }[how]
    workers = group(settings, settings)
    pids: list[int] = []
    began = time.monotonic()
    with ReportMetrics(ParallelRollouts(workers).gather_async(), workers) as plan:
        start(plan)
        pids = [told["pid"] for told in plan.ask_workers("tell")]
        if how == "error":
            with pytest.raises(PlanError, match="ZeroDivisionError"):
                list(plan.items())
        elif how == "end":
            assert len(list(plan.items())) == 6
        else:
            take(plan, 4)
            take(plan, 1, seconds=0.2)  # another one is on its way
        assert all(map(alive, pids))
        began = time.monotonic()
    assert not gone_within(pids, 10.0)
    assert time.monotonic() - began < 10.0


def test_a_plan_goes_on_from_a_checkpoint_without_losing_an_item(start: Start) -> None:
    def compose() -> tuple[ReportMetrics, CountingLearner]:
        workers, learner = group({}, {}), CountingLearner()
        return start(trained(workers, learner, ParallelRollouts(workers).gather_async())), learner

    plan, _ = compose()
    before = take(plan, 10)
    state = plan.state_dict()
    plan.close()
    gather = state["operators"]["gather_async"]["state"]
    assert 1 <= len(gather["arrived"]) + len(gather["requested"]) <= 2, "what was on its way was waited for"
    resumed, learner = compose()
    learner.updates = 10
    resumed.load_state_dict(state)
    after = take(resumed, 10)
    for source in ("parallel_rollouts/0", "parallel_rollouts/1"):
        numbers = [item.sequence for item in before + after if item.source == source]
        assert numbers == list(range(len(numbers)))
    assert resumed.counters.updates == 20
    assert resumed.report().episodes_finished >= 20 - 2


@pytest.mark.parametrize("max_lag", [None, 1])
def test_gradients_are_computed_in_the_workers_and_as_old_as_is_said(
    start: Start, gate: Gate, max_lag: int | None
) -> None:
    workers = WorkerGroup([partial(ComputingWorker, 0), partial(ComputingWorker, 1, gate=gate.path)])
    learner = ApplyingLearner()
    grads = ParallelRollouts(workers).par_for_each(ComputeGradients()).gather_async(max_lag=max_lag)
    plan = start(ReportMetrics(grads.for_each(ApplyGradients(learner, workers)), workers))
    items = take(plan, 10)
    gate.let(1)  # its item was asked for with the first weights
    items += take_until(plan, by_slow if max_lag is None else lambda items: plan.counters.drops)
    assert len(items) == len(learner.given)
    made_with = [int(gradients.values["version"][0]) for gradients in learner.given]
    assert made_with == [item.weight_version for item in items]
    assert made_with == [int(gradients.metrics["made_with"]) for gradients in learner.given], "acted with the same"
    lags = [update - version for update, version in enumerate(made_with)]
    report = plan.report()
    assert report.train_lag == {lag: lags.count(lag) for lag in set(lags)}
    assert report.trained_samples == len(items) * 4
    assert report.env_steps_sampled == 4 * (len(items) + report.drops.get("gather_async", 0))
    pids = {int(gradients.values["pid"][0]) for gradients in learner.given}
    assert os.getpid() not in pids
    if max_lag is None:
        assert len(pids) == 2
        assert max(lags) >= 10, "the slow one is late"
    else:
        assert max(lags) <= max_lag
        assert report.drops == {"gather_async": 1}
