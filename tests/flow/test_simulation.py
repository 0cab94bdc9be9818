"""Plans in simulated time: laws of plans made by hand, whose times can be added up without a simulator."""

import dataclasses
from functools import partial

import pytest

from rlweave.errors import ConfigError, PlanError
from rlweave.flow import (
    ComputePriorities,
    ConcatBatches,
    LearnerActor,
    ParallelReplay,
    ParallelRollouts,
    Replay,
    ReplayShards,
    ReportMetrics,
    Resources,
    StoreToBuffer,
    TrainOneStep,
    Union,
    UpdatePriorities,
    UpdateWeights,
    WorkerGroup,
)
from rlweave.flow.costs import Costs
from rlweave.flow.simulated_engine import Events, Machine
from rlweave.flow.simulation import simulate
from tests.flow.fake_shards import BATCH, FakeShard
from tests.flow.fakes import FakeLearner, FakeMemory, FakeWorker

STEPS = 4


def group(n, cpus=1.0):
    return WorkerGroup([FakeWorker] * n, Resources(cpus=cpus))


def costs(sample=1.0, update=0.0, concat=0.0, bytes=0, **sections):
    operators = {
        "parallel_rollouts": {"per_item": sample, "rows": STEPS, "bytes": bytes},
        "concat_batches": {"per_item": concat},
        "train_one_step": {"per_item": update},
    }
    return Costs.from_data({"operators": operators, **sections})


def rounds(n, cpus=1.0):
    workers, learner = group(n, cpus), FakeLearner()
    batches = ParallelRollouts(workers).gather_sync().for_each(ConcatBatches(min_steps=n * STEPS))
    return ReportMetrics(batches.for_each(TrainOneStep(learner, workers)), workers)


def stream(n, num_async=1, queue=0, learner=None, every=1):
    workers = group(n)
    items = ParallelRollouts(workers).gather_async(num_async).for_each(ConcatBatches(min_steps=STEPS))
    items = items.queue(queue) if queue else items
    train = TrainOneStep(learner or FakeLearner(), workers, publish_every=every)
    return ReportMetrics(items.for_each(train), workers)


def test_one_worker_in_rounds_takes_the_sum_of_all_costs():
    messages = {"call": 0.003, "result": 0.005, "actor": 0.011, "look": 0.0, "latency": 0.02}
    weights = {"bytes": 1000, "read": 0.07, "write": 0.13}
    own = costs(1.0, 2.0, 0.5, bytes=10_000, messages=messages, weights=weights)
    found = simulate(rounds(1), own, 2)
    # weights are read, a call is sent, comes, is worked off, its answer comes, is received, glued and trained on
    seconds = 0.07 + 0.003 + 0.02 + (0.011 + 0.13 + 1.0) + 0.02 + 0.005 + 0.5 + 2.0
    assert found.steps_per_second == pytest.approx(STEPS / seconds, rel=1e-9)
    assert found.updates_per_second == pytest.approx(1 / seconds, rel=1e-9)
    assert found.learner_busy == pytest.approx(2.0 / seconds)
    assert found.driver_busy == pytest.approx((0.07 + 0.003 + 0.005 + 0.5 + 2.0) / seconds)
    assert found.workers_busy == pytest.approx(1.141 / seconds)
    assert (found.lag, found.workers, found.machines) == (0.0, 1, 1)
    assert "take turns" in found.bottleneck


@pytest.mark.parametrize("n", [2, 7, 64])
def test_rounds_on_cores_of_their_own_last_as_long_as_a_worker_and_the_driver(n):
    found = simulate(rounds(n), costs(1.0, 0.5, 0.01), 100)
    assert found.steps_per_second == pytest.approx(n * STEPS / (1.0 + 0.01 * n + 0.5))


@pytest.mark.parametrize(("n", "cores"), [(3, 2), (8, 2), (5, 4), (2, 4)])
def test_processes_share_the_cores_of_their_machine(n, cores):
    found = simulate(rounds(n, cpus=0.0), costs(1.0, 0.5), cores)
    assert found.machines == 1
    assert found.steps_per_second == pytest.approx(n * STEPS / (max(1.0, n / cores) + 0.5))


BEGUN = ((0.0, 1.0), (0.25, 0.5), (0.25, 2.0), (0.7, 0.3), (5.0, 1.0))
"""When processes begin to work, and how long that takes on a core of their own."""


@pytest.mark.parametrize("cores", [1, 2, 3])
def test_processes_that_come_and_go_share_by_brute_force(cores):
    events, ended = Events(), {}
    machine = Machine(events, cores)
    for number, (time, seconds) in enumerate(BEGUN):
        finished = partial(lambda number: ended.update({number: events.now}), number)
        events.at(time, partial(machine.work, seconds, finished))
    events.run(lambda: False)
    left, now, expected, step = {number: seconds for number, (_, seconds) in enumerate(BEGUN)}, 0.0, {}, 1e-4
    while left:
        there = [number for number in left if BEGUN[number][0] <= now + 1e-9]
        for number in there:
            left[number] -= step * min(1.0, cores / len(there))
            if left[number] <= 1e-9:
                expected[number] = now + step
                del left[number]
        now += step
    assert ended == pytest.approx(expected, abs=2e-3)


def test_the_learner_limits_a_stream_whose_workers_are_fast():
    for plan in (stream(4), stream(4, queue=3), stream(32, num_async=2, queue=3)):
        found = simulate(plan, costs(0.001, 0.25), 100)
        assert found.updates_per_second == pytest.approx(1 / 0.25, rel=0.01)
        assert found.learner_busy == pytest.approx(1.0, rel=0.01)
        assert found.bottleneck == "the driver, most of it train_one_step"


def test_workers_limit_a_stream_in_proportion_to_their_number():
    for n in (1, 8, 128):
        found = simulate(stream(n, num_async=2), costs(1.0, 1e-6), 1000)
        assert found.steps_per_second == pytest.approx(n * STEPS, rel=0.01)
        assert found.bottleneck == "workers"


def test_a_learner_in_an_actor_works_beside_the_driver():
    def found(where):
        learner = LearnerActor(FakeLearner, Resources(cpus=1.0)) if where == "actor" else None
        return simulate(stream(16, queue=2, learner=learner), costs(0.01, 0.2, 0.1), 100)

    here, actor = found("driver"), found("actor")
    assert here.updates_per_second == pytest.approx(1 / 0.3, rel=0.01)
    assert actor.updates_per_second == pytest.approx(1 / 0.2, rel=0.02)
    assert here.driver_busy == pytest.approx(1.0, rel=0.01)
    assert actor.driver_busy == pytest.approx(0.5, rel=0.02)
    assert actor.bottleneck == "train_one_step"


def test_capacities_bound_the_lag():
    """What is asked for ahead, at workers and in the queue, is all that can be old."""
    for num_async, queue in ((1, 1), (2, 1), (2, 8)):
        learner = LearnerActor(FakeLearner, Resources(cpus=1.0))
        found = simulate(stream(4, num_async, queue, learner), costs(0.001, 0.25), 100)
        # a batch at the learner, those in the queue, and items that were made before it took the next one
        assert queue < found.lag <= 1 + queue + 4 * num_async
        assert found.updates_per_second == pytest.approx(4.0, rel=0.01)


def test_weights_are_sent_once_to_each_machine():
    network = {"bytes_per_second": 1000.0, "latency": 0.0}
    own = costs(1.0, weights={"bytes": 100}, network=network)
    for cores, machines in ((4, 2), (2, 4), (1, 8)):
        found = simulate(rounds(8), own, cores)
        assert found.machines == machines
        # one after the other to all but the first machine, which has the driver on it
        assert found.steps_per_second == pytest.approx(8 * STEPS / (1.0 + 0.1 * (machines - 1)))


def test_items_come_through_one_connection():
    network = {"bytes_per_second": 1000.0, "latency": 0.05}
    found = simulate(rounds(8), costs(1.0, bytes=500, network=network), 1)
    assert found.steps_per_second == pytest.approx(8 * STEPS / (0.05 + 1.0 + 7 * 0.5 + 0.05))
    assert found.shares["network of the driver's machine"] == pytest.approx(3.5 / 4.6)
    flooded = simulate(stream(64), costs(1.0, bytes=500, network=network), 1)
    assert flooded.bottleneck.split(";")[0] == "network of the driver's machine"
    # one worker is on the driver's machine, and needs no connection
    assert flooded.steps_per_second == pytest.approx(STEPS / 0.5 + STEPS / 1.0, rel=0.01)


def test_looking_at_calls_costs_time_for_each():
    quick = simulate(stream(64, num_async=2), costs(0.0), 100)
    slow = simulate(stream(64, num_async=2), costs(0.0, messages={"look": 1e-3}), 100)
    assert quick.steps_per_second == 0.0 or quick.steps_per_second > slow.steps_per_second
    assert slow.bottleneck == "the driver, most of it messages"


def replaying(n, samples_per_insert):
    workers, learner, memory = group(n), FakeLearner(), FakeMemory(batch_size=8)
    store = ParallelRollouts(workers).gather_async().for_each(StoreToBuffer(memory))
    train = Replay(memory).for_each(TrainOneStep(learner, workers))
    return ReportMetrics(Union(store, train.rate_limit(samples_per_insert, min_size=16)), workers)


@pytest.mark.parametrize("samples_per_insert", [2.0, 8.0])
def test_a_replay_ratio_holds_in_simulated_time(samples_per_insert):
    operators = {
        "parallel_rollouts": {"per_item": 1e-4, "rows": STEPS},
        "store_to_buffer": {"per_item": 0.01},
        "replay": {"per_item": 0.02, "rows": 8},
        "train_one_step": {"per_row": 0.03 / 8},
    }
    found = simulate(replaying(4, samples_per_insert), Costs.from_data({"operators": operators}), 100)
    updates = samples_per_insert * STEPS / 8  # for each item
    assert found.updates_per_second / found.steps_per_second == pytest.approx(updates / STEPS, rel=0.02)
    assert found.steps_per_second == pytest.approx(STEPS / (0.01 + updates * 0.05), rel=0.02)


def test_shards_work_in_processes_of_their_own():
    workers, learner = group(4), FakeLearner()
    shards = ReplayShards([partial(FakeShard, number) for number in range(2)], BATCH, resources=Resources(cpus=1.0))
    items = ParallelRollouts(workers).par_for_each(ComputePriorities()).gather_async(2, by_reference=True)
    store = items.for_each(StoreToBuffer(shards)).for_each(UpdateWeights(learner, workers))
    drawn = ParallelReplay(shards, min_size=8).gather_async(1)
    trained = drawn.for_each(TrainOneStep(learner)).for_each(UpdatePriorities(shards))
    plan = ReportMetrics(Union(store, trained.rate_limit(2.0, min_size=8)), workers)
    operators = {
        "parallel_rollouts": {"per_item": 0.01, "rows": STEPS, "bytes": 1000},
        "compute_priorities": {"per_row": 0.001},
        "store_to_buffer": {},
        "update_weights": {},
        "parallel_replay": {"per_item": 0.05, "rows": BATCH},
        "parallel_replay/insert": {"per_item": 0.02},
        "parallel_replay/update_priorities": {"per_item": 0.03},
        "train_one_step": {"per_item": 0.001},
        "update_priorities": {},
    }
    own = Costs.from_data({"operators": operators})
    found = simulate(plan, own, 1)
    # an update takes 8 samples for 4 items, of a shard that draws them, stores an item each, and takes priorities
    assert found.updates_per_second / found.steps_per_second == pytest.approx(2.0 / BATCH, rel=0.05)
    assert found.updates_per_second == pytest.approx(2 / (0.05 + 0.03 + 0.02), rel=0.05)
    assert found.bottleneck == "parallel_replay"
    assert found.shares["network of the driver's machine"] < 1e-3, "items do not come to the driver"


def test_a_simulation_is_repeatable():
    own = costs(0.01, 0.02, messages={"call": 1e-4, "result": 1e-4, "latency": 1e-3})
    first, second = (simulate(stream(8, num_async=2, queue=2), own, 2) for _ in range(2))
    assert dataclasses.asdict(first) == dataclasses.asdict(second)


def test_functions_of_users_are_not_called():
    def fails(batch):
        raise AssertionError("called")

    workers = group(2)
    made = ParallelRollouts(workers).par_for_each(fails).gather_sync().for_each(fails)
    plan = ReportMetrics(made.named("mine").for_each(TrainOneStep(FakeLearner(), workers)), workers)
    operators = {"parallel_rollouts": {"rows": 4}, "fails": {"per_row": 0.1}, "mine": {"per_item": 0.2}}
    found = simulate(plan, Costs.from_data({"operators": {**operators, "train_one_step": {}}}), 4)
    assert found.steps_per_second == pytest.approx(2 * STEPS / (0.4 + 2 * 0.2))


def test_what_cannot_be_simulated_says_why():
    with pytest.raises(PlanError, match="costs of 'concat_batches', 'train_one_step' are not known"):
        simulate(rounds(1), Costs.from_data({"operators": {"parallel_rollouts": {}}}), 2)
    with pytest.raises(PlanError, match="costs of 'concat', which the plan does not have"):
        simulate(rounds(1), Costs.from_data({"operators": {**costs().to_data()["operators"], "concat": {}}}), 2)
    with pytest.raises(PlanError, match="holds more cores than a machine has"):
        simulate(rounds(1, cpus=3.0), costs(), 2)
    with pytest.raises(ConfigError, match="per_itme.*\n.*costs of 'parallel_rollouts'"):
        Costs.from_data({"operators": {"parallel_rollouts": {"per_itme": 1.0}}})
