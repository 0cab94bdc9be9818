"""Memories in the graph: the same results as on the host, in float32, without a call from the compiled program."""

from collections import deque

import numpy as np
import pytest

from rlweave.components.memories import (
    FIFOQueue,
    GraphPrioritizedReplay,
    GraphReplay,
    PrioritizedReplay,
    ReplayMemory,
    RingBuffer,
)
from rlweave.errors import BuildError, SpaceError
from rlweave.spaces import Dict, FloatBox
from rlweave.testing import ComponentTest
from tests.components.memories.test_replay import BACKENDS, NESTED, NUMBERS, memory_of, numbers
from tests.host_calls import HOST_CALLS, tensorflow_operations

every = pytest.mark.parametrize("backend", BACKENDS)


def int32(*values):
    return np.array(values, np.int32)


def float32(*values):
    return np.array(values, np.float32)


@every
@pytest.mark.parametrize(
    ("ours", "host"), [(GraphReplay, ReplayMemory), (GraphPrioritizedReplay, PrioritizedReplay)], ids=["even", "prior"]
)
def test_the_same_draws_give_the_same_records_as_on_the_host(backend, ours, host):
    mine = memory_of(ours(37), backend=backend, rng="portable")
    theirs = memory_of(host(37), rng="portable")
    mine.set_weights({"random": theirs.state_dict()["random/host"]})
    rng = np.random.default_rng(0)
    for round_ in range(30):
        batch = numbers(*rng.random(rng.integers(1, 9)))
        mine.insert(batch)
        theirs.insert(batch)
        assert mine.size() == theirs.size()
        (records, indices, weights), expected = mine.sample(batch_size=6), theirs.sample(batch_size=6)
        np.testing.assert_array_equal(indices, expected[1], err_msg=str(round_))
        np.testing.assert_array_equal(records["number"], expected[0]["number"])
        np.testing.assert_allclose(weights, expected[2], rtol=1e-5)
        errors = rng.standard_normal(6).astype(np.float32)
        mine.update_priorities(indices, errors)  # repeated indices among them
        theirs.update_priorities(indices, errors)
    if ours is GraphPrioritizedReplay:
        tree, exact = mine.state_dict()["memory/sum-tree-top"], theirs.state_dict()["memory/sum-tree"]
        np.testing.assert_allclose(tree, exact, rtol=1e-5, atol=1e-6)


@every
def test_frequencies_and_weights_of_four_priorities(backend):
    memory = memory_of(GraphPrioritizedReplay(4, alpha=1.0, beta=0.4, epsilon=0.0), backend=backend)
    memory.insert(numbers(0, 1, 2, 3))
    memory.update_priorities(int32(0, 1, 2, 3), float32(0.5, -1.0, 1.0, -3.0))
    found = np.zeros(4)
    for _ in range(40):
        _, indices, weights = memory.sample(batch_size=500)
        found += np.bincount(indices, minlength=4)
        np.testing.assert_allclose(weights, np.array([1, 0.7578583, 0.7578583, 0.4883593])[indices], rtol=1e-5)
    np.testing.assert_allclose(found / found.sum(), [0.0909091, 0.1818182, 0.1818182, 0.5454545], atol=5e-3)


@every
def test_of_a_repeated_index_the_last_wins_and_what_makes_no_sense_changes_nothing(backend):
    memory = memory_of(GraphPrioritizedReplay(4, alpha=1.0, epsilon=0.0), backend=backend)
    memory.insert(numbers(0, 1, 2))
    memory.update_priorities(int32(1, 0, 1, 1, 0), float32(5.0, 2.0, 6.0, 0.25, 3.0))
    tree = memory.state_dict()["memory/sum-tree-top"]
    np.testing.assert_array_equal(tree, [0, 4.25, 3.25, 1, 3, 0.25, 1, 0])
    memory.update_priorities(int32(0, 1, 2, 3, -1), float32(np.nan, np.inf, -np.inf, 7.0, 7.0))
    np.testing.assert_array_equal(memory.state_dict()["memory/sum-tree-top"], tree)
    assert memory.state_dict()["memory/largest-priority"] == 6.0
    assert 3 not in memory.sample(batch_size=100)[1]


@every
def test_where_all_priorities_are_zero_records_are_drawn_evenly(backend):
    memory = memory_of(GraphPrioritizedReplay(8, epsilon=0.0), backend=backend)
    memory.insert(numbers(0, 1, 2))
    memory.update_priorities(int32(0, 1, 2), float32(0.0, 0.0, 0.0))
    _, indices, weights = memory.sample(batch_size=3000)
    np.testing.assert_allclose(np.bincount(indices, minlength=3) / 3000, 1 / 3, atol=0.05)
    np.testing.assert_array_equal(weights, 1.0)


@every
@pytest.mark.parametrize("kind", [GraphReplay, GraphPrioritizedReplay])
def test_an_empty_memory_teaches_nothing(backend, kind):
    memory = memory_of(kind(4), backend=backend)
    records, indices, weights = memory.sample(batch_size=3)
    np.testing.assert_array_equal(records["number"], 0.0)
    np.testing.assert_array_equal(indices, 0)
    np.testing.assert_array_equal(weights, 0.0)


@every
@pytest.mark.parametrize("top_width", [4, 4096])
def test_sums_do_not_drift(backend, top_width, monkeypatch):
    monkeypatch.setattr("rlweave.components.memories.graph_replay._TOP_WIDTH", top_width)
    memory = memory_of(GraphPrioritizedReplay(200, alpha=1.0, epsilon=0.0), backend=backend)
    memory.insert(numbers(*range(200)))
    rng, exact = np.random.default_rng(0), np.ones(200)
    for _ in range(200):
        slots = rng.integers(200, size=32).astype(np.int32)
        errors = (10.0 ** rng.integers(-4, 4) * rng.random(32)).astype(np.float32)
        memory.update_priorities(slots, errors)
        for slot, error in zip(slots, errors, strict=True):
            exact[slot] = error
    state = memory.state_dict()
    tree, top = state["memory/sum-tree"].astype(np.float64), state["memory/sum-tree-top"].astype(np.float64)
    np.testing.assert_array_equal(tree[256:456], exact)
    width = min(top_width, 256)
    tree[: 2 * width] = top
    np.testing.assert_allclose(tree[1], exact.sum(), rtol=1e-6)
    for node in range(1, 256):
        np.testing.assert_allclose(tree[node], tree[2 * node] + tree[2 * node + 1], rtol=2e-7)
    found = np.bincount(memory.sample(batch_size=20_000)[1], minlength=200) / 20_000
    np.testing.assert_allclose(found, exact / exact.sum(), atol=1e-4)  # stratified


def test_beta_follows_the_records_inserted():
    beta = {"type": "linear", "start": 0.0, "end": 1.0, "steps": 4}
    memory = memory_of(GraphPrioritizedReplay(4, alpha=1.0, beta=beta, epsilon=0.0))
    memory.insert(numbers(0, 1))
    memory.update_priorities(int32(0, 1), float32(1.0, 4.0))
    _, indices, weights = memory.sample(batch_size=10)
    np.testing.assert_allclose(weights, np.where(indices == 0, 1.0, 0.5))  # beta 1/2
    memory.set_weights({"memory/inserted": np.array(2**31 - 2, np.int32)})
    memory.insert(numbers(2, 3))
    assert memory.state_dict()["memory/inserted"] == 2**31 - 1


@pytest.mark.parametrize("kind", [GraphReplay, GraphPrioritizedReplay])
def test_a_compiled_program_does_not_call_the_host(kind):
    import jax

    memory = memory_of(kind(8), backend="jax")
    memory.insert(numbers(1, 2))
    calls = {
        "insert": lambda: memory.insert(numbers(3)),
        "sample": lambda: memory.sample(batch_size=4),
        "update_priorities": lambda: memory.update_priorities(int32(0), float32(1.0)),
    }
    for name, call in calls.items():
        call()
        for (method, _), program in memory.programs.items():
            if method != name:
                continue
            assert "to_host" not in program.source
            for run_name, run in program.runs.items():
                seen = []

                def record(*arguments, run=run, seen=seen):
                    specs = jax.tree.map(lambda x: jax.ShapeDtypeStruct(np.shape(x), x.dtype), arguments)
                    seen.append(str(jax.make_jaxpr(run)(*specs)))
                    return run(*arguments)

                program.entry.__globals__[run_name] = record
                call()
                assert seen
                assert "callback" not in seen[0]


@pytest.mark.parametrize("backend", ["tensorflow"])
@pytest.mark.parametrize("kind", [GraphReplay, GraphPrioritizedReplay])
def test_a_concrete_function_does_not_call_the_host(kind, backend):
    memory = memory_of(kind(8), backend=backend)
    memory.insert(numbers(1, 2))
    memory.sample(batch_size=4)
    memory.update_priorities(int32(0), float32(1.0))
    seen = set()
    for (method, _), program in memory.programs.items():
        assert "to_host" not in program.source
        if program.runs:
            seen.add(method)
            assert not HOST_CALLS & tensorflow_operations(program)
    assert {"insert", "sample"} <= seen


@every
def test_a_queue_is_a_bounded_deque(backend):
    queue = ComponentTest(FIFOQueue(7), {"records": NUMBERS}, backend=backend).executor
    model, rng, value = deque(), np.random.default_rng(1), 0.0
    for _ in range(60):
        if rng.random() < 0.55:
            count = int(rng.integers(1, 10))
            batch = [value + i for i in range(count)]
            value += count
            fits = batch[: 7 - len(model)]
            model.extend(fits)
            assert queue.put(numbers(*batch)) == count - len(fits)
        else:
            count = int(rng.integers(1, 4))
            records, there = queue.get(count=count)
            expected = [model.popleft() for _ in range(min(count, len(model)))]
            np.testing.assert_array_equal(there, [i < len(expected) for i in range(count)])
            np.testing.assert_array_equal(records["number"][there], expected)
        assert queue.size() == len(model)


@every
def test_a_ring_buffer_has_the_latest_in_order(backend):
    buffer = ComponentTest(RingBuffer(5), {"records": NUMBERS}, backend=backend).executor
    model, rng, value = deque(maxlen=5), np.random.default_rng(2), 0.0
    for _ in range(20):
        count = int(rng.integers(1, 8))
        batch = [value + i for i in range(count)]
        value += count
        buffer.insert(numbers(*batch))
        model.extend(batch)
        records, there = buffer.latest(count=4)
        np.testing.assert_array_equal(records["number"][there], list(model)[-4:])
        assert there.sum() == min(len(model), 4)
        assert buffer.size() == len(model)


@every
@pytest.mark.parametrize("kind", [FIFOQueue, RingBuffer])
def test_nested_records_go_through(backend, kind):
    component = ComponentTest(kind(4), {"records": NESTED}, backend=backend).executor
    records = NESTED.sample(2, rng=0)
    (component.put if kind is FIFOQueue else component.insert)(records)
    found, _ = component.get(count=2) if kind is FIFOQueue else component.latest(count=2)
    np.testing.assert_array_equal(found["observations"]["image"], records["observations"]["image"])
    np.testing.assert_array_equal(found["actions"][1], records["actions"][1])
    assert found["observations"]["image"].dtype == np.uint8


@pytest.mark.parametrize("kind", [FIFOQueue, RingBuffer, GraphReplay])
def test_bad_sizes_and_spaces_are_named(kind):
    with pytest.raises(BuildError, match="capacity of a memory"):
        kind(0)
    with pytest.raises(SpaceError, match="batch rank and no time rank"):
        ComponentTest(kind(3), {"records": FloatBox(shape=(2,))})
    two = Dict(a=FloatBox(add_batch_rank=2), b=FloatBox(add_batch_rank=3))
    with pytest.raises(SpaceError, match="different batch sizes"):
        ComponentTest(kind(3), {"records": two})
    executor = ComponentTest(kind(3), {"records": NUMBERS}).executor
    with pytest.raises(BuildError, match="batch size"):
        {FIFOQueue: lambda: executor.get(count=0), RingBuffer: lambda: executor.latest(count=1.5)}.get(
            kind, lambda: executor.sample(batch_size=-1)
        )()
