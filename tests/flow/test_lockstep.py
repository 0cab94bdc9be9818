"""The engine whose actors work at the same time: they meet, each carries out its calls in order, errors are kept."""

import threading

import pytest

from rlweave.flow.lockstep import LockstepEngine


class Meets:
    def __init__(self, place):
        self.place, self.done, self.closed = place, [], False

    def meet(self, name):
        self.place.wait(60)
        self.done.append(name)
        return name

    def fail(self):
        raise ValueError("broke")

    def close(self):
        self.closed = True


def test_actors_meet_and_their_calls_are_carried_out_in_order():
    engine, place = LockstepEngine(), threading.Barrier(2)
    actors = engine.create_actors([lambda: Meets(place)] * 2)
    calls = [engine.call(actor, "meet", f"{name}{number}") for name in "ab" for number, actor in enumerate(actors)]
    assert engine.wait(calls, timeout=0) == calls
    assert [call.result() for call in calls] == ["a0", "a1", "b0", "b1"]
    assert [actor.done for actor in actors] == [["a0", "b0"], ["a1", "b1"]]
    (failed,) = engine.wait([engine.call(actors[0], "fail")])
    with pytest.raises(ValueError, match="broke"):
        failed.result()
    given = engine.call(actors[1].done, "copy")
    appended = engine.call(actors[0].done, "append", given)
    assert engine.wait([appended])[0].result() is None
    assert actors[0].done == ["a0", "b0", ["a1", "b1"]]
    engine.kill(actors, grace=1.0)
    assert all(actor.closed for actor in actors)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith(("actor 0", "actor 1"))]
    engine.kill([actors[0].done, actors[1].done])
