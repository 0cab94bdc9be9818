"""Answers: each worker gets its own, before its next item, and is not asked before."""

from functools import partial
from typing import Any

import pytest

from rlweave.errors import PlanError
from rlweave.flow import FakeClock, ParallelRollouts, ReportMetrics, Stream, WorkerGroup
from rlweave.flow.workers import Answer, SourceActor, _Existing
from tests.flow.conftest import Start
from tests.flow.fakes import SimulatedEngine


class Asking:
    """A worker whose items are (its number, how many it made, the answers that it had before this one)."""

    shares_weights = True

    def __init__(self, number: int, fails_at: int = -1) -> None:
        self.number, self.made, self.fails_at = number, 0, fails_at
        self.answers: list[tuple[Any, int]] = []

    def sample(self) -> tuple[int, int, list[Any]]:
        self.made += 1
        if self.made == self.fails_at:
            raise ConnectionError("gone")
        return self.number, self.made, [answer for answer, _ in self.answers]

    def take(self, answer: Any, version: int) -> None:
        if answer == "wrong":
            raise ValueError("no such answer")
        self.answers.append((answer, version))

    def set_weights(self, weights: Any, version: int) -> None:
        raise AssertionError("it shares weights")


def asking(n: int, **options: Any) -> list[Asking]:
    return [Asking(number, **options) for number in range(n)]


def answer_of(item: tuple[int, int, list[Any]]) -> str:
    return f"{item[0]}.{item[1]}"


def take(plan: ReportMetrics, n: int) -> list[Any]:
    return [item.payload for _, item in zip(range(n), plan.items(), strict=False)]


def test_each_worker_gets_its_own_answers_before_its_next_item(start: Start) -> None:
    workers = asking(3)
    stream = ParallelRollouts(workers).gather_async()
    for number, made, answers in take(start(ReportMetrics(stream.reply(workers, "take", answer_of))), 30):
        assert answers == [f"{number}.{item}" for item in range(1, made)]
    assert {version for worker in workers for _, version in worker.answers} == {0}


def test_a_merged_item_has_an_answer_for_each_worker_in_it(start: Start) -> None:
    workers = asking(3)
    pairs = ParallelRollouts(workers).gather_async().batch(2)
    plan = start(ReportMetrics(pairs.reply(workers, "take", lambda items: list(map(answer_of, items)))))
    for pair in take(plan, 15):
        for number, made, answers in pair:
            assert answers == [f"{number}.{item}" for item in range(1, made)]


def test_in_rounds_all_are_answered_before_the_next_round(start: Start) -> None:
    workers = asking(3)
    rounds = ParallelRollouts(workers).gather_sync().queue(5).reply(workers, "take", answer_of)
    for number, made, answers in take(start(ReportMetrics(rounds)), 12):
        assert answers == [f"{number}.{item}" for item in range(1, made)]


def test_who_is_not_answered_is_not_asked_and_the_plan_says_so(start: Start) -> None:
    workers = asking(3)
    some = ParallelRollouts(workers).gather_async().filter(lambda item: item[0] != 1)
    plan = start(ReportMetrics(some.reply(workers, "take", answer_of)))
    take(plan, 12)
    assert workers[1].made == 1
    assert workers[0].made > 4

    none = ParallelRollouts(asked := asking(2)).gather_async().filter(lambda item: False)
    plan = start(ReportMetrics(none.reply(asked, "take")))
    with pytest.raises(PlanError, match=r"(?s)stalled.*0, 1 of 'parallel_rollouts' were not answered"):
        take(plan, 1)


def test_answers_that_do_not_fit_stop_the_plan(start: Start) -> None:
    workers = asking(2)
    pairs = ParallelRollouts(workers).gather_async().batch(2)
    with pytest.raises(PlanError, match=r"'reply' failed: ValueError: 3 answers for the items of 2 workers"):
        take(start(ReportMetrics(pairs.reply(workers, "take", lambda items: [1, 2, 3]))), 1)
    stream = ParallelRollouts(workers := asking(2)).gather_async()
    with pytest.raises(PlanError, match=r"(?s)'reply' failed: ValueError: no such answer.*parallel_rollouts/0#1"):
        take(start(ReportMetrics(stream.reply(workers, "take", lambda item: "wrong"))), 3)


def test_one_that_is_skipped_or_restarted_is_asked_without_an_answer() -> None:
    for rule in ("skip", "replace"):
        clock = FakeClock()
        group = WorkerGroup([partial(Asking, 0), partial(Asking, 1, fails_at=3)])
        rollouts = ParallelRollouts(group).on_error(rule, first_delay=0.0).gather_async()  # type: ignore[arg-type]
        plan = ReportMetrics(rollouts.reply(group, "take", answer_of)).start(SimulatedEngine(clock), clock)
        items = take(plan, 14)
        failed = [(made, answers) for number, made, answers in items if number == 1]
        assert failed[:2] == [(1, []), (2, ["1.1"])]
        assert failed[2] == ((4, ["1.1", "1.2"]) if rule == "skip" else (1, []))
        assert len([item for item in items if item[0] == 0]) >= 6


@pytest.mark.parametrize("steps", range(8))
def test_a_cut_plan_goes_on_with_the_same_answers(steps: int) -> None:
    def make() -> tuple[list[Asking], ReportMetrics]:
        workers = asking(3)
        pairs = ParallelRollouts(workers).gather_async().batch(2)
        return workers, ReportMetrics(pairs.reply(workers, "take", lambda items: list(map(answer_of, items)))).start()

    workers, plan = make()
    for _ in range(steps):
        plan.step()
    saved, states = plan.state_dict(), [(worker.made, list(worker.answers)) for worker in workers]
    expected = take(plan, 9)
    others, resumed = make()
    resumed.load_state_dict(saved)
    for worker, (made, answers) in zip(others, states, strict=True):
        worker.made, worker.answers = made, answers
    assert [[tuple(item) for item in pair] for pair in take(resumed, 9)] == expected


@pytest.mark.parametrize(
    ("stream", "received"),
    [
        (lambda workers: ParallelRollouts(workers, fragments=2).gather_async(), "fragments=2"),
        (lambda workers: ParallelRollouts(workers).gather_async(2), "num_async=2 of 'gather_async'"),
        (lambda workers: ParallelRollouts(workers).gather_async(max_lag=1), "max_lag of 'gather_async'"),
        (lambda workers: ParallelRollouts(workers).gather_async().reply(workers, "take"), "'reply-2' answers them"),
    ],
)
def test_plans_whose_workers_would_wait_for_ever_are_refused(stream: Any, received: str) -> None:
    workers = asking(2)
    answered: Stream = stream(workers).reply(workers, "take")
    with pytest.raises(PlanError, match="get one answer to each item") as caught:
        ReportMetrics(answered)
    assert received in caught.value.received
    assert caught.value.fix


def test_a_method_that_workers_lack_and_other_workers_are_refused() -> None:
    workers = asking(2)
    with pytest.raises(PlanError, match=r"(?s)reply\(\) names a method that Asking lacks.*did you mean 'take'"):
        ParallelRollouts(workers).gather_async().reply(workers, "tak")
    with pytest.raises(PlanError, match="not those that this plan samples from"):
        ReportMetrics(ParallelRollouts(workers).gather_async().reply(asking(2), "take"))
    by_stream = ParallelRollouts(workers)
    answered = by_stream.gather_async().reply(by_stream, "take", answer_of)
    assert "reply  " in ReportMetrics(answered).explain()


def test_an_answer_comes_before_the_item_and_after_weights() -> None:
    worker = Asking(0)
    worker.shares_weights = False
    seen: list[Any] = []
    worker.set_weights = lambda weights, version: seen.append((weights, version))  # type: ignore[method-assign]
    actor = SourceActor(_Existing(worker), [])
    ((item, _, version, _),) = actor.next_items(Answer("take", "so", 3), 3, "weights")
    assert item == (0, 1, ["so"])
    assert version == 3
    assert seen == [("weights", 3)]
    assert worker.answers == [("so", 3)]
