"""What becomes of a plan when actors fail, on the local and on the simulated engine: no cluster, no sleeping."""

from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Any

import pytest

from rlweave.errors import ConfigError, PlanError
from rlweave.flow import (
    END,
    NOT_READY,
    Engine,
    Envelope,
    FailureRule,
    FakeClock,
    LocalEngine,
    ParallelRollouts,
    ReportMetrics,
    SampleBatch,
    TrainOneStep,
    WorkerGroup,
)
from tests.flow.fakes import FakeLearner, FakeWorker, SimulatedEngine


class Faulty(FakeWorker):
    """Raises where ``fails(item)`` says; a replacement makes items 1000 * (number of its predecessors) and up."""

    def __init__(self, number: int, fails: Callable[[int], bool], items: int | None = None) -> None:
        super().__init__(number, items=items)
        self.fails, self.replaces = fails, 0
        self.known: list[Any] = []

    def replacing(self, number: int) -> None:
        self.replaces = number

    def sample(self) -> SampleBatch:
        self.known.append(self.version)
        if self.fails(self.made + 1000 * self.replaces):
            self.made += 1
            raise ValueError(f"worker {self.number} at {self.made - 1}")
        batch = super().sample()
        batch.data["replaces"] = batch["worker"] * 0 + self.replaces
        return batch


class Cluster:
    """A group of workers, and the engine and clock that they run on."""

    def __init__(self, kind: str, *fails: Callable[[int], bool], seconds: Callable[[int], float] | None = None) -> None:
        self.clock = FakeClock()
        self.engine: Engine = LocalEngine()
        if kind == "simulated":
            self.engine = SimulatedEngine(self.clock, seconds or (lambda index: 1.0))
        self.made: list[Faulty] = []
        self.group = WorkerGroup([partial(self.make, number, fail) for number, fail in enumerate(fails)])

    def make(self, number: int, fails: Callable[[int], bool]) -> Faulty:
        self.made.append(Faulty(number, fails))
        return self.made[-1]

    def start(self, plan: ReportMetrics) -> ReportMetrics:
        return plan.start(self.engine, self.clock)


def never(item: int) -> bool:
    return False


def always(item: int) -> bool:
    return True


@pytest.fixture(params=["local", "simulated"])
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.mark.parametrize("gather", ["gather_sync", "gather_async"])
def test_skipping_leaves_the_item_out_and_counts_it(kind: str, gather: str) -> None:
    cluster = Cluster(kind, never, lambda item: item in (1, 3))
    rollouts = ParallelRollouts(cluster.group).on_error("skip")
    plan = cluster.start(ReportMetrics(getattr(rollouts, gather)(), cluster.group))
    items = list(islice(plan.items(), 12))
    second = [item.sequence for item in items if item.source.endswith("/1")]
    assert second[:3] == [0, 2, 4], "a number that is missing is an item that failed"
    report = plan.report()
    assert report.failures == {"parallel_rollouts": 2}
    assert report.lost_items == {"parallel_rollouts": 2}
    assert report.replacements == {}
    assert report.env_steps_sampled == 12 * 4


def test_skipping_what_always_fails_ends_with_its_error(kind: str) -> None:
    cluster = Cluster(kind, always)
    plan = cluster.start(ReportMetrics(ParallelRollouts(cluster.group).on_error("skip", attempts=4).gather_async()))
    with pytest.raises(PlanError, match="operator 'parallel_rollouts' failed: ValueError: worker 0 at 3"):
        list(plan.items())


def test_an_operator_on_the_driver_may_skip_too(kind: str) -> None:
    cluster = Cluster(kind, never)
    seen = []

    def third(batch: SampleBatch) -> SampleBatch:
        seen.append(int(batch["step"][0]) // 4)
        if seen[-1] % 3 == 2:
            raise RuntimeError("every third")
        return batch

    stream = ParallelRollouts(cluster.group).gather_sync().for_each(third).on_error("skip", attempts=2)
    plan = cluster.start(ReportMetrics(stream))
    assert [item.sequence for item in islice(plan.items(), 4)] == [0, 1, 3, 4]
    assert plan.report().failures == {"third": 1}


@pytest.mark.parametrize("gather", ["gather_sync", "gather_async"])
def test_a_failed_actor_is_replaced_in_place(kind: str, gather: str) -> None:
    cluster = Cluster(kind, never, lambda item: item == 2)
    learner = FakeLearner()
    rollouts = ParallelRollouts(cluster.group).on_error("replace", first_delay=0.5)
    train = getattr(rollouts, gather)().for_each(TrainOneStep(learner, cluster.group))
    plan = cluster.start(ReportMetrics(train, cluster.group))
    items = []
    while len(items) < 20:
        item = plan.step()
        if isinstance(item, Envelope):
            items.append(item)
            cluster.clock.advance(0.1)
        elif item is NOT_READY:
            plan.wait()
    first, second, third = cluster.made
    assert (first.number, second.number, third.number) == (0, 1, 1)
    assert third.replaces == 1, "the new one knows that it is not the first, before its first item"
    assert third.known[0] >= 4, "and has the weights of now"
    assert third.made >= 2
    assert first.made > third.made, "the other one went on"
    report = plan.report()
    assert report.failures == {"parallel_rollouts": 1}
    assert report.replacements == {"parallel_rollouts": 1}
    assert report.updates == 20, "counters go on"
    sequences = [item.sequence for item in items if item.source.endswith("/1")]
    assert sequences == sorted(set(sequences)), "no number comes twice"


def test_the_others_do_not_wait_for_the_new_one() -> None:
    cluster = Cluster("simulated", never, lambda item: item == 1)
    rollouts = ParallelRollouts(cluster.group).on_error("replace", first_delay=10.0)
    plan = cluster.start(ReportMetrics(rollouts.gather_async(), cluster.group))
    times = [(item.source[-1], cluster.clock.now()) for item in islice(plan.items(), 16)]
    assert [at for source, at in times if source == "0"] == pytest.approx([*range(1, len(times))][:13], abs=1)
    back = [at for source, at in times if source == "1"]
    assert back[0] == pytest.approx(1.0)
    assert back[1] == pytest.approx(13.0), "failed at 2, made anew after 10 seconds, one second for its first item"


def test_what_was_asked_of_a_dead_actor_is_purged_and_counted() -> None:
    cluster = Cluster("simulated", never, never)
    engine = cluster.engine
    assert isinstance(engine, SimulatedEngine)
    rollouts = ParallelRollouts(cluster.group, fragments=3).on_error("replace")
    plan = cluster.start(ReportMetrics(rollouts.gather_async(num_async=2), cluster.group))
    first = next(plan.items())
    assert first.source.endswith("/0")
    actor = plan._context.actors(cluster.group)[1]  # type: ignore[union-attr]
    engine.crash(actor)
    requests = [call for node in plan.graph.nodes for call in getattr(node, "_requested", ())]
    for request in requests:
        if request.actor == 1:
            request.call.lose()
    items = list(islice(plan.items(), 40))
    from_second = [item.payload["replaces"][0] for item in items if item.source.endswith("/1")]
    assert from_second, "the new one delivers"
    assert set(from_second) == {1}, "nothing of the dead one comes after its death"
    assert plan.report().lost_items == {"parallel_rollouts": 3 + 3}


def test_delays_double_up_to_a_bound_and_all_actors_gone_is_an_error(kind: str) -> None:
    cluster = Cluster(kind, always, always)
    rollouts = ParallelRollouts(cluster.group).on_error("replace", attempts=5, first_delay=1.0, longest_delay=3.0)
    plan = cluster.start(ReportMetrics(rollouts.gather_async(), cluster.group))
    with pytest.raises(PlanError, match="all actors of 'parallel_rollouts' are gone") as caught:
        list(plan.items())
    assert isinstance(caught.value.__cause__, PlanError)
    assert "ValueError: worker" in str(caught.value.__cause__)
    assert len(cluster.made) == 10
    assert plan.counters.failures == {"parallel_rollouts": 10}
    waited = 1.0 + 2.0 + 3.0 + 3.0
    assert cluster.clock.now() == pytest.approx(waited + (5.0 if kind == "simulated" else 0.0), abs=0.1)


def test_one_given_up_actor_does_not_end_the_plan(kind: str) -> None:
    cluster = Cluster(kind, never, always)
    rollouts = ParallelRollouts(cluster.group).on_error("replace", attempts=2)
    plan = cluster.start(ReportMetrics(rollouts.gather_sync(), cluster.group))
    assert {item.source[-1] for item in islice(plan.items(), 10)} == {"0"}


def test_a_hanging_actor_is_an_error_that_names_it() -> None:
    cluster = Cluster("simulated", never, never, seconds=lambda index: 1e6 if index == 1 else 1.0)
    plan = cluster.start(ReportMetrics(ParallelRollouts(cluster.group).on_error("stop", timeout=30.0).gather_sync()))
    with pytest.raises(PlanError, match="Hanging: no answer for") as caught:
        list(plan.items())
    assert "parallel_rollouts/1#0" in str(caught.value)
    assert cluster.clock.now() == pytest.approx(30.0, abs=2.0)


def test_a_hanging_actor_is_replaced() -> None:
    cluster = Cluster("simulated", never, never, seconds=lambda index: 1e6 if index == 1 else 1.0)
    rollouts = ParallelRollouts(cluster.group).on_error("replace", timeout=5.0)
    plan = cluster.start(ReportMetrics(rollouts.gather_sync(), cluster.group))
    items = list(islice(plan.items(), 4))
    assert [item.source[-1] for item in items] == ["0", "1", "0", "1"]
    assert items[1].payload["replaces"][0] == 1
    assert plan.counters.replacements == {"parallel_rollouts": 1}


def test_an_operator_at_the_workers_follows_its_source_unless_it_has_a_policy_of_its_own(kind: str) -> None:
    for own, replaced in ((None, 1), ("skip", 0)):
        cluster = Cluster(kind, never)

        def odd(batch: SampleBatch) -> SampleBatch:
            if batch["step"][0] == 4 and batch["replaces"][0] == 0:
                raise KeyError("odd")
            return batch

        stream = ParallelRollouts(cluster.group).on_error("replace").par_for_each(odd)
        plan = cluster.start(ReportMetrics((stream.on_error(own) if own else stream).gather_async()))  # type: ignore[arg-type]
        assert len(list(islice(plan.items(), 5))) == 5
        assert plan.counters.failures == {"odd": 1}
        assert plan.counters.replacements == ({"parallel_rollouts": replaced} if replaced else {})


def test_a_late_failure_in_a_call_does_not_lose_the_items_before_it(kind: str) -> None:
    cluster = Cluster(kind, lambda item: item == 2)
    rollouts = ParallelRollouts(cluster.group, fragments=4).on_error("skip")
    plan = cluster.start(ReportMetrics(rollouts.gather_async()))
    items = list(islice(plan.items(), 6))
    assert [item.payload["step"][0] // 4 for item in items] == [0, 1, 3, 4, 5, 6]
    assert [item.sequence for item in items] == [0, 1, 3, 4, 5, 6]


def test_sources_that_end_end_the_plan_although_one_failed(kind: str) -> None:
    cluster = Cluster(kind, never, lambda item: item == 1)
    cluster.group.factories[0] = lambda: Faulty(0, never, items=2)
    cluster.group.factories[1] = lambda: Faulty(1, lambda item: item == 1, items=3)
    rollouts = ParallelRollouts(cluster.group).on_error("replace")
    plan = cluster.start(ReportMetrics(rollouts.gather_sync(), cluster.group))
    items = [(item.source[-1], item.payload["replaces"][0]) for item in plan.items()]
    assert items.count(("0", 0)) == 2
    assert items.count(("1", 0)) == 1
    assert items.count(("1", 1)) == 3
    assert plan.pull() is END


def test_settings_that_cannot_be_meant_are_refused() -> None:
    with pytest.raises(ConfigError, match="unknown failure rule"):
        FailureRule("ignore")  # type: ignore[arg-type]
    for wrong in ({"timeout": 0.0}, {"attempts": 0}, {"first_delay": 2.0, "longest_delay": 1.0}):
        with pytest.raises(ConfigError, match="a failure rule needs"):
            FailureRule("replace", **wrong)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="cannot follow the failure rule 'replace'"):
        ParallelRollouts([FakeWorker()]).gather_sync().for_each(lambda item: item).on_error("replace")
    with pytest.raises(PlanError, match="'gather_sync' cannot follow the failure rule 'skip'"):
        ParallelRollouts([FakeWorker()]).gather_sync().on_error("skip")
    with pytest.raises(PlanError, match="cannot be restarted"):
        ReportMetrics(ParallelRollouts([FakeWorker()]).on_error("replace").gather_sync())


def test_explain_shows_the_policy() -> None:
    plan = ReportMetrics(ParallelRollouts(Cluster("local", never).group, fragments=2).on_error("replace").gather_sync())
    assert "fragments=2, on_error=replace" in plan.explain()


def test_asking_all_workers_passes_over_one_that_is_lost() -> None:
    """Its gather finds out with its next item; a checkpoint that asks everybody in between ends no training."""
    cluster = Cluster("simulated", never, never)
    plan = ReportMetrics(ParallelRollouts(cluster.group).on_error("replace").gather_sync(), cluster.group)
    cluster.start(plan)
    list(islice(plan.items(), 2))
    assert isinstance(cluster.engine, SimulatedEngine)
    cluster.engine.crash(plan._context.actors(cluster.group)[1])  # type: ignore[union-attr]
    first, second = plan.ask_workers("episode_stats")
    assert first is not None
    assert second is None


def buried(kind: str, gather: str) -> tuple[Cluster, ReportMetrics]:
    """A plan whose second worker of three has failed, and is not there again yet."""
    cluster = Cluster("local", never, (lambda item: item == 1) if kind == "cut" else never, never)
    rollouts = ParallelRollouts(cluster.group).on_error("replace", first_delay=5.0)
    plan = cluster.start(ReportMetrics(getattr(rollouts, gather)(), cluster.group))
    while kind == "cut" and not plan.counters.failures:
        plan.step()
    return cluster, plan


def test_a_round_that_a_worker_is_missing_from_is_whole_after_a_resume() -> None:
    _, cut = buried("cut", "gather_sync")
    _, resumed = buried("resumed", "gather_sync")
    resumed.load_state_dict(cut.state_dict())
    assert [item.source[-1] for item in islice(resumed.items(), 6)] == ["0", "1", "2", "0", "1", "2"]


def test_a_resume_asks_a_worker_that_was_missing_no_more_than_the_others() -> None:
    _, cut = buried("cut", "gather_async")
    state = cut.state_dict()
    due = state["operators"]["gather_async"]["state"]["due"]
    assert sorted(due) == sorted(set(due))
    _, resumed = buried("resumed", "gather_async")
    resumed.load_state_dict(state)
    asked = [item.source[-1] for item in islice(resumed.items(), 12)]
    assert [asked.count(number) for number in "012"] == [4, 4, 4]


@pytest.mark.parametrize("gather", ["gather_sync", "gather_async"])
def test_the_next_replacement_after_a_resume_is_the_next_one(gather: str) -> None:
    """It is told its number, which seeds and ranges of numbers follow from."""
    cluster = Cluster("local", lambda item: item == 1)
    rollouts = ParallelRollouts(cluster.group).on_error("replace", first_delay=0.0, longest_delay=0.0)
    plan = cluster.start(ReportMetrics(getattr(rollouts, gather)(), cluster.group))
    list(islice(plan.items(), 4))
    assert cluster.made[-1].replaces == 1
    state = plan.state_dict()
    again = Cluster("local", lambda item: item == 2)
    rollouts = ParallelRollouts(again.group).on_error("replace", first_delay=0.0, longest_delay=0.0)
    resumed = again.start(ReportMetrics(getattr(rollouts, gather)(), again.group))
    resumed.load_state_dict(state)
    list(islice(resumed.items(), 6))
    assert [worker.replaces for worker in again.made] == [0, 2]


def test_rounds_that_lack_a_worker_for_good_say_so() -> None:
    cluster = Cluster("local", never, always)
    rollouts = ParallelRollouts(cluster.group).on_error("replace", attempts=2, first_delay=0.0, longest_delay=0.0)
    plan = cluster.start(ReportMetrics(rollouts.gather_sync(), cluster.group))
    assert "gather_sync/given_up" not in plan.report().measures
    list(islice(plan.items(), 4))
    assert plan.report().measures["gather_sync/given_up"] == 1
