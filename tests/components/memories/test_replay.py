"""The ring of records: what goes in comes out, for any nesting, on every backend; both kinds share it."""

from pathlib import Path

import numpy as np
import pytest

from rlweave import ops
from rlweave.backends import is_installed
from rlweave.components.memories import GraphPrioritizedReplay, GraphReplay, PrioritizedReplay, ReplayMemory
from rlweave.errors import BuildError, ExecutionError, SpaceError
from rlweave.graph import Component, api, build, from_spec, graph_fn
from rlweave.spaces import BoolBox, Dict, FloatBox, IntBox, Tuple
from rlweave.testing import ComponentTest

BACKENDS = ("numpy", "torch", "jax", "tensorflow")
HOST_KINDS = (ReplayMemory, PrioritizedReplay)
KINDS = (*HOST_KINDS, GraphReplay, GraphPrioritizedReplay)
NUMBERS = Dict(number=FloatBox(), add_batch_rank=True)
NESTED = Dict(
    observations=Dict(image=IntBox(0, 256, shape=(4, 4, 1), dtype="uint8"), vector=FloatBox(shape=(3,))),
    actions=Tuple(IntBox(3), FloatBox(shape=(2,))),
    rewards=FloatBox(),
    terminated=BoolBox(),
    add_batch_rank=True,
)


def memory_of(component, records=NUMBERS, backend="numpy", **options):
    spaces = {
        "records": records,
        "indices": IntBox(component.capacity, add_batch_rank=True),
        "td_errors": FloatBox(add_batch_rank=True),
    }
    return ComponentTest(component, spaces, backend=backend, **options).executor


def numbers(*values):
    return {"number": np.array(values, np.float32)}


@pytest.mark.parametrize("kind", KINDS)
def test_eleven_into_ten(kind):
    memory = memory_of(kind(10))
    assert memory.size() == 0
    for i in range(11):
        memory.insert(numbers(i))
        assert memory.size() == min(i + 1, 10)
    state = memory.state_dict()
    position = state["memory/inserted" if kind in HOST_KINDS else "memory/position"]
    assert position % 10 == 1  # the write index
    np.testing.assert_array_equal(state["memory/records/number"], [10, 1, 2, 3, 4, 5, 6, 7, 8, 9])


@pytest.mark.parametrize("kind", KINDS)
def test_batches_of_any_size_wrap_around(kind):
    rng = np.random.default_rng(0)
    memory, kept, count = memory_of(kind(7)), [], 0
    for size in (1, 3, 7, 2, 20, 5, 7, 8, 1):
        values = np.arange(count, count + size)
        memory.insert(numbers(*values))
        kept, count = [*kept, *values][-7:], count + size
        stored = memory.state_dict()["memory/records/number"]
        assert sorted(stored[: len(kept)]) == kept
        records, indices, _ = memory.sample(batch_size=int(rng.integers(1, 30)))
        np.testing.assert_array_equal(records["number"], stored[indices])
        assert set(records["number"]) <= set(kept)
    # slot = number of the record modulo capacity, whatever the batches were
    np.testing.assert_array_equal(stored % 7, np.arange(7))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", KINDS)
def test_nested_records_come_back_whole(kind, backend):
    memory = memory_of(kind(50), NESTED, backend)
    given = NESTED.sample(40, rng=0)
    memory.insert(given)
    records, indices, weights = memory.sample(batch_size=16)
    assert NESTED.contains(records)
    assert indices.dtype == np.int32
    assert weights.dtype == np.float32
    for path, value in NESTED.flatten_value(records).items():
        expected = NESTED.flatten_value(given)[path]
        assert value.dtype == expected.dtype
        np.testing.assert_array_equal(value, expected[indices])


@pytest.mark.parametrize("space", [FloatBox(shape=(2,), add_batch_rank=True), Tuple(IntBox(4), add_batch_rank=True)])
def test_records_without_names(space):
    memory = memory_of(ReplayMemory(5), space)
    memory.insert(space.sample(5, rng=0))
    records, _, _ = memory.sample(batch_size=3)
    assert space.contains(records)


@pytest.mark.parametrize("kind", KINDS)
def test_stored_records_do_not_follow_the_callers_array(kind):
    # Fault 25: an environment that returns the same array, mutated in place.
    for backend in filter(is_installed, BACKENDS):
        memory = memory_of(kind(4), backend=backend)
        same = np.zeros(1, np.float32)
        for i in range(4):
            same[:] = i
            memory.insert({"number": same})
        same[:] = 99
        np.testing.assert_array_equal(memory.state_dict()["memory/records/number"], [0, 1, 2, 3])


@pytest.mark.parametrize("kind", KINDS)
def test_a_sample_is_the_callers_own(kind):
    memory = memory_of(kind(4))
    memory.insert(numbers(0, 1, 2, 3))
    records, _, _ = memory.sample(batch_size=8)
    before = records["number"].copy()
    memory.insert(numbers(7, 7, 7, 7))
    memory.sample(batch_size=8)
    np.testing.assert_array_equal(records["number"], before)
    records["number"][:] = -1
    np.testing.assert_array_equal(memory.state_dict()["memory/records/number"], [7, 7, 7, 7])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", HOST_KINDS)
def test_sampling_an_empty_memory_says_so(kind, backend):
    # Fault 26.
    memory = memory_of(kind(4), backend=backend)
    with pytest.raises(ExecutionError, match="empty memory"):
        memory.sample(batch_size=2)
    memory.insert(numbers(5))
    records, indices, weights = memory.sample(batch_size=3)  # one element serves any batch, with replacement
    np.testing.assert_array_equal(records["number"], [5, 5, 5])
    np.testing.assert_array_equal(indices, [0, 0, 0])
    np.testing.assert_array_equal(weights, [1, 1, 1])


class Doubler(Component):
    """Inserts records whose leaves have B and 2 B rows."""

    def __init__(self, memory):
        super().__init__("doubler")
        self.memory = memory

    @api
    def observe(self, records):
        self.memory.insert({"a": records["number"], "b": self._twice(records["number"])})

    @graph_fn
    def _twice(self, x):
        return ops.concat([x, x], axis=0)


@pytest.mark.parametrize("kind", KINDS)
def test_leaves_of_different_length_are_refused(kind):
    memory = memory_of(kind(4), Dict(a=FloatBox(), b=FloatBox(), add_batch_rank=True))
    with pytest.raises(ExecutionError, match="batch size"):
        memory.insert({"a": np.zeros(3, np.float32), "b": np.zeros(1, np.float32)})
    assert memory.size() == 0
    with pytest.raises(SpaceError, match="different batch sizes"):
        build(Doubler(kind(4)), {"records": NUMBERS})


def test_draws_are_even():
    memory = memory_of(ReplayMemory(10))
    memory.insert(numbers(*range(8)))
    _, indices, weights = memory.sample(batch_size=100_000)
    counts = np.bincount(indices, minlength=10)
    assert counts[8:].sum() == 0
    np.testing.assert_allclose(counts[:8], 12_500, atol=5 * np.sqrt(12_500))
    np.testing.assert_array_equal(weights, 1.0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rng", ["fast", "portable"])
def test_the_same_seed_draws_the_same_and_a_state_resumes(kind, rng):
    def draws(memory):
        return [memory.sample(batch_size=6)[1].tolist() for _ in range(5)]

    one, other, third = (memory_of(kind(100), rng=rng, seed=seed) for seed in (3, 3, 4))
    for memory in (one, other, third):
        memory.insert(numbers(*range(60)))
        memory.update_priorities(np.arange(30, dtype=np.int32), np.linspace(0, 9, 30, dtype=np.float32))
    first = draws(one)
    assert first == draws(other)
    assert first != draws(third)
    third.load_state_dict(one.state_dict())
    one.insert(numbers(*range(80)))
    third.insert(numbers(*range(80)))
    assert draws(one) == draws(third)
    assert one.size() == third.size() == 100


def test_portable_draws_agree_on_all_backends():
    for kind in KINDS:
        found = []
        for backend in filter(is_installed, BACKENDS):
            memory = memory_of(kind(100), backend=backend, rng="portable")
            memory.insert(numbers(*range(60)))
            found.append(memory.sample(batch_size=8)[1].tolist())
        assert found[0] == found[1] == found[2]


class Learner(Component):
    """Reads a batch from a memory on the host, computes on the device, and hands priorities back."""

    def __init__(self, memory):
        super().__init__("learner")
        self.memory = memory

    def create_variables(self):
        self.total = self.variable("total", (), 0.0, trainable=False)

    @api
    def observe(self, records):
        self.memory.insert(records)

    @api(static=("batch_size",))
    def update(self, batch_size):
        records, indices, weights = self.memory.sample(batch_size)
        errors = self._errors(records, weights)
        self.memory.update_priorities(indices, errors)
        return indices, errors

    @graph_fn
    def _errors(self, records, weights):
        self.total.assign(self.total.value + ops.sum(records["number"]))
        return records["number"] * 10.0


@pytest.mark.parametrize("mode", ["compiled", "eager"])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", KINDS)
def test_one_setting_switches_the_kind_in_an_agent(kind, backend, mode):
    executor = build(Learner(kind(8)), {"records": NUMBERS}, backend=backend, mode=mode)
    executor.observe(numbers(1, 2, 3))
    seen = 0.0
    for _ in range(20):
        indices, errors = executor.update(batch_size=4)
        seen += float(errors.sum()) / 10
        np.testing.assert_allclose(errors, 10.0 * (indices + 1))
    np.testing.assert_allclose(executor.get_weights()["learner/total"], seen, rtol=1e-5)
    if kind in (PrioritizedReplay, GraphPrioritizedReplay):
        nodes = executor.state_dict()["learner/memory/sum-tree"]
        np.testing.assert_allclose(nodes[8:11], (np.array([10, 20, 30]) + 1e-6) ** 0.6, rtol=1e-6)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads resident memory from /proc")
@pytest.mark.parametrize("backend", BACKENDS)
def test_an_empty_memory_takes_no_room(backend):
    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    space = Dict(observations=IntBox(0, 256, shape=(84, 84, 1), dtype="uint8"), add_batch_rank=True)
    memory_of(ReplayMemory(10), space, backend)  # loads what the backend needs
    before = resident()
    memory = memory_of(ReplayMemory(100_000), space, backend)
    memory.insert(space.sample(2, rng=0))
    assert resident() - before < 100e6  # of 706 MB


def test_specs():
    memory = from_spec({"type": "replay", "capacity": 5})
    assert type(memory) is ReplayMemory
    beta = {"type": "linear", "start": 0.4, "end": 1.0, "steps": 100}
    prioritized = from_spec({"type": "prioritized_replay", "capacity": 5, "beta": beta})
    assert isinstance(prioritized, PrioritizedReplay)
    assert prioritized.beta(50) == pytest.approx(0.7)


@pytest.mark.parametrize("capacity", [0, -1, 2.5, True])
def test_impossible_capacity(capacity):
    with pytest.raises(BuildError, match="capacity"):
        ReplayMemory(capacity)


@pytest.mark.parametrize("batch_size", [0, -2, 1.5])
def test_impossible_batch_size(batch_size):
    memory = memory_of(ReplayMemory(5))
    memory.insert(numbers(1))
    with pytest.raises(BuildError, match="batch size"):
        memory.sample(batch_size=batch_size)


def test_records_need_a_batch_rank_only():
    for space in (FloatBox(shape=(3,)), FloatBox(shape=(3,), add_batch_rank=True, add_time_rank=True)):
        with pytest.raises(SpaceError, match="batch rank and no time rank"):
            memory_of(ReplayMemory(5), space)
