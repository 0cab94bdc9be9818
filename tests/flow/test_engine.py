"""What every engine has to do, on each of them."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rlweave.flow import ActorLost, Engine, FakeClock, LocalEngine, Resources
from rlweave.flow.engine import ArgumentFailed
from tests.flow.fakes import SimulatedEngine


class Counter:
    """An actor that counts."""

    def __init__(self, start: int = 0) -> None:
        self.value, self.path = start, ""

    def add(self, amount: int) -> int:
        self.value += amount
        return self.value

    next_items = add  # the simulated engine lets time pass for this one

    def fail(self) -> None:
        raise KeyError("lost")

    def both(self, amount: int) -> tuple[int, list[int]]:
        return self.add(amount), [self.value]

    def length(self, items: list[int]) -> int:
        return len(items)

    def note_closing(self, path: str) -> None:
        self.path = path

    def close(self) -> None:
        Path(self.path).touch()


ENGINES: dict[str, Callable[[], Engine]] = {
    "local": LocalEngine,
    "simulated": lambda: SimulatedEngine(FakeClock(), lambda index: 1.0 + index),
}


@pytest.fixture(params=[*ENGINES, pytest.param("ray", marks=pytest.mark.slow)])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    if request.param != "ray":
        yield ENGINES[request.param]()
        return
    pytest.importorskip("ray")
    engine = request.getfixturevalue("ray_engine")
    made: list[Any] = []
    create = engine.create_actors

    def remembering(factories: Any, resources: Any = None) -> list[Any]:
        made.extend(actors := create(factories, resources or Resources(cpus=0.5)))
        return actors

    engine.create_actors = remembering
    yield engine
    del engine.create_actors
    engine.kill(made)


def results(engine: Engine, calls: list[Any]) -> list[Any]:
    waiting = list(calls)
    while waiting:
        done = engine.wait(waiting, None)
        assert done, "waiting without a limit brings at least one"
        waiting = [call for call in waiting if call not in done]
    return [call.result() for call in calls]


def test_actors_are_made_in_order_and_keep_their_state(engine: Engine) -> None:
    first, second = engine.create_actors([lambda: Counter(10), lambda: Counter(20)])
    calls = [engine.call(actor, "next_items", 1) for actor in (first, second, first)]
    assert results(engine, calls) == [11, 21, 12]


def test_calls_of_one_actor_are_carried_out_in_order(engine: Engine) -> None:
    (actor,) = engine.create_actors([Counter])
    calls = [engine.call(actor, "next_items", amount) for amount in (1, 10, 100)]
    assert results(engine, calls) == [1, 11, 111]


def test_an_error_is_raised_by_result_with_its_type(engine: Engine) -> None:
    (actor,) = engine.create_actors([Counter])
    call = engine.call(actor, "fail")
    engine.wait([call], None)
    with pytest.raises(KeyError, match="lost"):
        call.result()


def test_looking_does_not_wait_and_waiting_gives_what_is_done_in_order(engine: Engine) -> None:
    actors = engine.create_actors([Counter, Counter])
    calls = [engine.call(actor, "next_items", 1) for actor in actors]
    seen = engine.wait(calls, 0)
    assert seen in ([], calls)
    done = engine.wait(calls, None)  # where actors are processes, the second may be first
    assert done
    assert done == [call for call in calls if call in done]
    results(engine, calls)
    assert engine.wait(calls, 0) == calls
    assert engine.wait([], 0) == []


def test_the_result_of_a_call_may_be_the_argument_of_another(engine: Engine) -> None:
    first, second = engine.create_actors([Counter, Counter])
    seven = engine.call(first, "next_items", 7)
    assert results(engine, [engine.call(second, "next_items", seven)]) == [7]
    failed = engine.call(second, "next_items", engine.call(first, "fail"))
    engine.wait([failed], None)
    with pytest.raises(ArgumentFailed) as caught:
        failed.result()
    assert isinstance(caught.value.__cause__, KeyError)


def test_each_value_of_a_call_in_parts_has_a_call(engine: Engine) -> None:
    """One is fetched here, and another one by another actor; all are done at the same time."""
    first, second = engine.create_actors([Counter, Counter])
    head, rest = engine.call_in_parts(first, "both", 2, engine.call(second, "next_items", 7))
    assert results(engine, [head]) == [7]
    assert engine.wait([rest], 60.0) == [rest]
    assert results(engine, [engine.call(second, "length", rest)]) == [1]
    assert rest.result() == [7]


def test_an_error_of_a_call_in_parts_is_that_of_each(engine: Engine) -> None:
    (actor,) = engine.create_actors([Counter])
    calls = engine.call_in_parts(actor, "fail", 3)
    assert len(calls) == 3
    for call in calls:
        engine.wait([call], None)
        with pytest.raises(KeyError, match="lost"):
            call.result()


def test_waiting_ends_after_its_time_or_when_one_is_done(engine: Engine) -> None:
    actors = engine.create_actors([Counter, Counter])
    calls = [engine.call(actor, "next_items", 1) for actor in actors]
    waiting = list(calls)
    while waiting:
        done = engine.wait(waiting, 60.0)
        assert done
        waiting = [call for call in waiting if call not in done]
    assert [call.result() for call in calls] == [1, 1]


@pytest.mark.parametrize("engine", ["simulated", pytest.param("ray", marks=pytest.mark.slow)], indirect=True)
def test_a_call_of_a_dead_actor_says_so(engine: Engine) -> None:
    (actor,) = engine.create_actors([Counter])
    results(engine, [engine.call(actor, "next_items", 1)])
    engine.kill([actor])

    def call_until_it_is_gone() -> None:
        for _ in range(200):  # a process takes a moment to end, and may answer once more
            results(engine, [engine.call(actor, "next_items", 1)])

    with pytest.raises(ActorLost):
        call_until_it_is_gone()


def test_put_values_reach_the_actor(engine: Engine) -> None:
    (actor,) = engine.create_actors([Counter])
    assert results(engine, [engine.call(actor, "next_items", engine.put(7))]) == [7]


def test_killing_closes_the_actor(engine: Engine) -> None:
    (actor,) = engine.create_actors([Counter])
    closed = Path(tempfile.mkdtemp()) / "closed"
    results(engine, [engine.call(actor, "note_closing", str(closed))])
    engine.kill([actor], grace=10.0)
    assert closed.exists()


def test_the_simulated_engine_lets_an_actor_do_one_call_after_the_other() -> None:
    clock = FakeClock()
    engine = SimulatedEngine(clock, lambda index: 2.0)
    (actor,) = engine.create_actors([Counter])
    calls = [engine.call(actor, "next_items", 1) for _ in range(3)]
    engine.wait(calls[2:], None)
    assert clock.now() == 6.0


def test_a_clock_never_goes_back() -> None:
    clock = FakeClock(3.0)
    clock.sleep(1.5)
    assert clock.now() == 4.5
    with pytest.raises(ValueError, match="never goes back"):
        clock.advance(-1)


def test_an_actor_that_cannot_close_leaves_no_other_open() -> None:
    class Door:
        closed = False

        def __init__(self, stuck: bool) -> None:
            self.stuck = stuck

        def close(self) -> None:
            self.closed = True
            if self.stuck:
                raise OSError("stuck")

    doors = [Door(stuck) for stuck in (True, False, True)]
    with pytest.raises(OSError, match="stuck"):
        LocalEngine().kill(doors, grace=1.0)
    assert all(door.closed for door in doors)
    LocalEngine().kill(doors)


def test_what_stays_on_ray_does_not_keep_the_weights_it_was_made_with() -> None:
    """References may be many, in a queue, and made with as many versions of the weights."""
    ray_engine = pytest.importorskip("rlweave.flow.ray_engine")
    engine = object.__new__(ray_engine.RayEngine)  # no cluster is needed to see what a call holds
    weights = ray_engine.RayCall("weights")
    actor = SimpleNamespace(in_parts={3: lambda parts, method, *given: ["heads", "first", "second"]})
    head, *items = engine.call_in_parts(actor, "next_apart", 3, 7, weights)
    assert head.needs == [weights]  # by which it is known whose fault a failure is
    assert all(part.is_part for part in (head, *items))
    assert [list(item.needs) for item in items] == [[], []]
