"""What every engine has to do, on each of them."""

from collections.abc import Callable
from typing import Any

import pytest

from rlweave.flow import Engine, FakeClock, LocalEngine
from tests.flow.fakes import SimulatedEngine


class Counter:
    """An actor that counts."""

    def __init__(self, start: int = 0) -> None:
        self.value, self.closed = start, False

    def add(self, amount: int) -> int:
        self.value += amount
        return self.value

    next_items = add  # the simulated engine lets time pass for this one

    def fail(self) -> None:
        raise KeyError("lost")

    def close(self) -> None:
        self.closed = True


ENGINES: dict[str, Callable[[], Engine]] = {
    "local": LocalEngine,
    "simulated": lambda: SimulatedEngine(FakeClock(), lambda index: 1.0 + index),
}


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Engine:
    return ENGINES[request.param]()


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
    assert engine.wait(calls, None)[0] is calls[0]
    assert engine.wait([], 0) == []


def test_put_values_reach_the_actor(engine: Engine) -> None:
    (actor,) = engine.create_actors([Counter])
    assert results(engine, [engine.call(actor, "next_items", engine.put(7))]) == [7]


def test_killing_closes_the_actor(engine: Engine) -> None:
    (actor,) = engine.create_actors([Counter])
    engine.kill([actor], grace=1.0)
    assert actor.closed


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
