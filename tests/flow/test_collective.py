"""Collectives in threads and over gloo: sums, means, what is refused, and ranks that are lost."""

import contextlib
import os
import socket
import threading

import numpy as np
import pytest

from rlweave.errors import BackendError, PlanError
from rlweave.flow.collective import LostRankError, agree, local_collectives, run_in_step

gloo = pytest.importorskip("rlweave.flow.collective_gloo", exc_type=BackendError)


def by_gloo(size, timeout=60.0, host=gloo.LOOPBACK):
    """Collectives over gloo, whose ranks are threads of this process."""
    store, port = gloo.open_store(host, timeout=timeout)
    made = [None] * size

    def join(rank):
        made[rank] = gloo.GlooCollective(rank, size, store if rank == 0 else f"127.0.0.1:{port}", timeout)

    threads = [threading.Thread(target=join, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return made


KINDS = pytest.mark.parametrize("make", [local_collectives, by_gloo])


def on_all(collectives, function):
    """The results of a function of each rank's collective."""
    calls = [lambda own=own: function(own) for own in collectives]
    return run_in_step(calls, collectives)


@KINDS
def test_sums_means_and_what_one_rank_gives_are_the_same_everywhere(make):
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")

    def run(own):
        rank = own.rank
        tree = {"w": np.full((2, 3), rank + 0.1, np.float32), "pair": (torch.ones(2) * rank, jax.numpy.arange(3))}
        weight = [2.0, 1.0, 0.0][rank]
        x = np.float32([np.nan, 1.0]) if rank == 2 else np.float32([3.0 * rank, 1.0])
        flags = {"flags": np.array([True, False]) if rank == 1 else np.zeros(2, bool), "n": np.int64(2**40 + rank)}
        gathered = own.gather({"rank": rank, "text": "ü" * rank})
        own.barrier()
        return own.all_reduce(tree), own.all_reduce({"x": x}, weight), own.broadcast(flags, root=1), gathered

    first, *others = on_all(make(3), run)
    total, mean, flags, gathered = first
    np.testing.assert_allclose(total["w"], 3.3, rtol=1e-6)
    np.testing.assert_array_equal(total["pair"][0], [3.0, 3.0])
    np.testing.assert_array_equal(total["pair"][1], [0, 3, 6])
    assert (total["w"].dtype, total["pair"][1].dtype) == (np.float32, np.int32)
    # a rank without rows has no part in the mean
    np.testing.assert_allclose(mean["x"], [1.0, 1.0], rtol=1e-6)
    assert flags["flags"].tolist() == [True, False]
    assert flags["n"] == 2**40 + 1
    assert gathered == [{"rank": rank, "text": "ü" * rank} for rank in range(3)]
    for other in others:
        for mine, its in zip(first[:3], other[:3], strict=True):
            assert repr(mine) == repr(its)


def test_sums_are_added_in_the_order_of_ranks_whoever_comes_first():
    values = np.float32([1e8, 1.0, -1e8, 1.0])
    for order in ([0, 1, 2, 3], [3, 1, 0, 2]):
        collectives = local_collectives(4)
        came = [threading.Event() for _ in order] + [threading.Event()]
        came[0].set()

        def run(own, order=order, came=came):
            place = order.index(own.rank)
            came[place].wait(60)
            came[place + 1].set()
            return own.all_reduce(values[own.rank])

        assert on_all(collectives, run) == [np.float32(np.float32(1e8 + 1.0) - 1e8) + np.float32(1.0)] * 4


@KINDS
@pytest.mark.parametrize(
    ("brought", "named"),
    [
        (lambda rank: {"w": np.zeros(2 + rank, np.float32)}, "'w'"),
        (lambda rank: {"w": np.zeros(2, [np.float32, np.float64][rank])}, "'w'"),
        (lambda rank: {"w": np.zeros(2), **({"more": np.zeros(1)} if rank else {})}, "'more'"),
    ],
)
def test_ranks_that_bring_different_arrays_are_refused_before_anything_is_summed(make, brought, named):
    with pytest.raises(PlanError, match="different arrays or calls") as caught:
        on_all(make(2), lambda own: own.all_reduce(brought(own.rank)))
    assert caught.value.where == named
    assert "rank 0: " in caught.value.received
    assert "rank 1: " in caught.value.received
    assert caught.value.fix


def test_ranks_that_call_different_methods_or_have_other_settings_are_refused():
    def differ(own):
        own.all_reduce(np.zeros(2)) if own.rank else own.broadcast(np.zeros(2))

    with pytest.raises(PlanError, match="different arrays or calls") as caught:
        on_all(local_collectives(2), differ)
    assert caught.value.received == "rank 0: 'broadcast of rank 0', rank 1: 'all_reduce'"
    with pytest.raises(PlanError, match="different settings") as caught:
        on_all(local_collectives(2), lambda own: agree(own, {"lr": 0.1, "seed": own.rank}))
    assert (caught.value.where, caught.value.received) == ("'seed'", "rank 0: 0, rank 1: 1")


def test_means_of_integers_and_of_nothing_are_refused():
    with pytest.raises(PlanError, match="only floats have a weighted mean"):
        on_all(local_collectives(2), lambda own: own.all_reduce(np.zeros(2, np.int32), 1.0))
    with pytest.raises(PlanError, match="a mean over ranks that have nothing"):
        on_all(local_collectives(2), lambda own: own.all_reduce(np.zeros(2, np.float32), 0.0))


def test_a_rank_that_does_not_come_is_named_when_the_time_is_over():
    collectives = local_collectives(3, timeout=0.0)
    with pytest.raises(LostRankError, match="rank 1 and rank 2 did not take part") as caught:
        collectives[0].barrier()
    assert "waits for up to 0 seconds" in caught.value.where
    # those that come later do not wait for one that gave up
    with pytest.raises(LostRankError, match="rank 1 and rank 2 did not take part"):
        collectives[1].barrier()


@KINDS
def test_a_rank_that_fails_ends_the_wait_of_all_others_and_its_error_is_the_one_that_is_raised(make):
    found = {}

    def run(own):
        if own.rank == 1:
            raise ValueError("no such environment")
        try:
            own.all_reduce(np.zeros(4))
        except LostRankError as error:
            found[own.rank] = error
            raise

    with pytest.raises(ValueError, match="no such environment"):
        on_all(make(3), run)
    assert sorted(found) == [0, 2]
    for error in found.values():
        assert error.what.startswith("rank 1 did not take part")
    if make is local_collectives:
        assert found[0].received == "rank 1: ValueError: no such environment"


@pytest.mark.parametrize("host", [gloo.LOOPBACK, "0.0.0.0"])
def test_gloo_listens_at_other_addresses_than_loopback_only_where_it_is_told_to(host):
    before = listening()
    made = by_gloo(2, host=host)
    addresses = {address for address, _ in listening() - before}
    assert None not in made
    assert host in addresses
    assert addresses == {host} or host != gloo.LOOPBACK


def listening():
    """Addresses and ports at which this process listens."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(name))) as own:
            if own.family != socket.AF_UNIX and own.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                found.add(own.getsockname()[:2])
    return found


def test_gloo_names_a_peer_that_does_not_come_a_port_that_is_taken_and_an_address_where_nobody_is():
    store, port = gloo.open_store()
    with pytest.raises(LostRankError, match="rank 1 did not take part"):
        gloo.GlooCollective(0, 2, store, timeout=0.01)
    with pytest.raises(BackendError, match="the ranks have no place to meet") as caught:
        gloo.open_store(port=port)
    assert str(port) in caught.value.received
    del store
    with pytest.raises(BackendError, match="rank 0 cannot be reached"):
        gloo.GlooCollective(1, 2, "127.0.0.1:1", timeout=1.0)


def test_a_collective_that_has_left_is_of_no_use():
    first, second = by_gloo(2)
    first.close()
    second.close()
    with pytest.raises(PlanError, match="a rank that has left takes part in nothing more"):
        first.barrier()
