"""The engine on Ray by itself: results of several calls at once are those of each."""

import subprocess
import sys

import numpy as np
import pytest

from rlweave.errors import install_command

pytest.importorskip("ray")


class Teller:
    def tell(self, what):
        if what == "error":
            raise ZeroDivisionError("no number")
        return np.full(3, what)


@pytest.fixture
def tell(ray_engine):
    (actor,) = ray_engine.create_actors([Teller])
    yield lambda what: ray_engine.call(actor, "tell", what)
    ray_engine.kill([actor])


def test_results_that_were_fetched_together_are_those_of_each_call(ray_engine, tell):
    calls = [tell(what) for what in (1, "error", 2)]
    for call in calls:
        ray_engine.wait([call], 60.0)
    ray_engine.fetch(calls)
    first, second = calls[0].result(), calls[0].result()
    np.testing.assert_array_equal(first, [1, 1, 1])
    assert first.flags.writeable
    first += 5
    np.testing.assert_array_equal(second, [1, 1, 1])  # each who asks has one of his own
    with pytest.raises(ZeroDivisionError, match="no number"):
        calls[1].result()
    np.testing.assert_array_equal(calls[2].result(), [2, 2, 2])


def ask_for_ever(engine, actor):
    """Until it is gone: Ray ends a process some time after it was told to, which may still answer."""
    while True:
        call = engine.call(actor, "tell", 2)
        assert engine.wait([call], 60.0)
        call.result()


def test_one_that_is_lost_takes_no_others_with_it(ray_engine):
    from rlweave.flow.engine import ActorLost

    ours, theirs = ray_engine.create_actors([Teller, Teller])
    done = ray_engine.call(ours, "tell", 1)
    ray_engine.wait([done], 60.0)
    ray_engine.wait([ray_engine.call(theirs, "tell", 1)], 60.0)
    ray_engine.kill([theirs])
    with pytest.raises(ActorLost):
        ask_for_ever(ray_engine, theirs)
    lost = ray_engine.call(theirs, "tell", 2)
    ray_engine.wait([lost], 60.0)
    ray_engine.fetch([done, lost])
    np.testing.assert_array_equal(done.result(), [1, 1, 1])
    with pytest.raises(ActorLost):
        lost.result()
    ray_engine.kill([ours])


def test_without_ray_the_error_says_what_to_install():
    code = "import sys; sys.modules['ray'] = None; import rlweave.flow.ray_engine"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert "Ray is not installed" in done.stderr
    assert install_command("ray") in done.stderr
