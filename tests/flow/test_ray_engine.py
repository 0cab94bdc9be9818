"""The engine on Ray by itself: results of several calls at once are those of each."""

import socket
import subprocess
import sys

import numpy as np
import pytest

from rlweave.errors import BackendError, install_command

pytest.importorskip("ray")
from rlweave.flow.ray_engine import check_address


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


@pytest.fixture
def listener():
    """Something that lets connect, and is no cluster of Ray."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def test_an_address_where_nobody_is_is_an_error_at_once(listener, monkeypatch):
    import ray

    from rlweave.flow.ray_engine import RayEngine

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    host, port = listener.getsockname()
    listener.close()
    for address in (f"{host}:{port}", f"ray://{host}:{port}"):
        with pytest.raises(BackendError, match=f"(?s)no Ray cluster answers.*{host}:{port}.*ray start --head"):
            RayEngine(address)


@pytest.mark.parametrize("address", ["somewhere", "127.0.0.1:", "127.0.0.1:99999", ":6379", "127.0.0.1:head"])
def test_what_is_no_address_is_said(address):
    with pytest.raises(BackendError, match=r"(?s)is no address.*host:port"):
        check_address(address)


def test_what_answers_and_is_no_ray_is_not_waited_for(listener):
    host, port = listener.getsockname()
    with pytest.raises(BackendError, match="nothing came of asking it as a cluster of Ray for 0.1 seconds"):
        check_address(f"{host}:{port}", seconds=0.1)


def test_the_address_that_ray_finds_by_itself_is_checked_as_well(listener, monkeypatch):
    host, port = listener.getsockname()
    listener.close()
    monkeypatch.setenv("RAY_ADDRESS", f"{host}:{port}")
    with pytest.raises(BackendError, match="no Ray cluster answers"):
        check_address("auto")


def test_a_cluster_that_is_there_passes(ray_engine):
    import ray

    check_address(ray.get_runtime_context().gcs_address)
    check_address("local")
