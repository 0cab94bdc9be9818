"""Costs of short trainings: what is timed, under which name, and that a simulation takes them as they are."""

import time

import pytest

from rlweave.algorithms.config import resolve_config
from rlweave.algorithms.measured_costs import TYPICAL, Stopwatch, Timed, _fitted, measure_costs
from rlweave.algorithms.registry import get_algorithm
from rlweave.algorithms.scaling import predicted, with_workers
from rlweave.flow import LocalEngine


def test_what_is_timed_inside_of_something_else_counts_there_alone(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "process_time", lambda: now[0])
    monkeypatch.setattr(time, "perf_counter", lambda: now[0] * 2)
    watch = Stopwatch()

    def inner(rows):
        now[0] += 2.0
        return rows

    def outer(rows):
        now[0] += 0.5
        watch.timed("inner", inner)(rows)
        watch.timed("inner", inner)(rows)
        now[0] += 0.25

    watch.timed("outer", outer)(range(3))
    now[0] += 10.0
    cpu, told = watch.told()
    assert cpu == 14.75
    assert told["outer"][:4] == (1, 3, 0.75, 1.5)
    assert told["inner"][:4] == (2, 6, 4.0, 8.0)
    assert told["inner"].mean == 2.0, "others may have had the processor meanwhile"


def timed(items, rows, seconds):
    return Timed(items, rows, seconds, wall=2 * seconds)


def test_several_threads_at_once_take_the_time_that_passes():
    assert Timed(10, 10, seconds=4.0, wall=2.0).mean == 0.2


def test_items_of_two_sizes_tell_the_cost_of_a_row():
    seconds = {100: 0.03, 200: 0.05}
    found = _fitted([Timed(10, 10 * rows, 10 * own, 10 * own, 7) for rows, own in seconds.items()])
    assert found.per_row == pytest.approx(0.0002)
    assert found.per_item == pytest.approx(0.01)
    assert (found.rows, found.bytes) == (100, 7)
    alike = _fitted([timed(10, 1000, 0.3), timed(30, 3000, 1.1)])
    assert (alike.per_row, alike.per_item) == (0.0, pytest.approx(1.4 / 40))
    smaller = _fitted([timed(10, 1000, 0.3), timed(10, 2000, 0.2)])
    assert (smaller.per_row, smaller.per_item) == (0.0, pytest.approx(0.025)), "costs do not shrink with rows"


def tiny(name, **sets):
    algorithm = get_algorithm(name)
    own = {"env": "CartPole-v1", "backend": "torch", "agent.acting_backend": "numpy", "num_envs": 2, **sets}
    return algorithm, resolve_config(algorithm.config_class, sets=own)


def configs(config):
    return [with_workers(config, number) for number in (1, 2)]


def test_a_training_is_measured_and_simulated():
    network = [{"type": "dense", "units": 4, "activation": "tanh"}]
    few = {"agent.rollout_steps": 8, "agent.epochs": 1, "agent.minibatches": 1, "agent.network": network}
    algorithm, config = tiny("ppo", **few)
    costs = measure_costs(algorithm, configs(config), LocalEngine(), seconds=0.05)
    assert list(costs.operators) == ["parallel_rollouts", "concat_batches", "train_one_step"]
    source = costs.operators["parallel_rollouts"]
    assert source.rows == 2 * 8
    assert source.bytes > 2 * 8 * 4 * 4, "at least its observations"
    assert all(own.per_item + own.per_row > 0 for own in costs.operators.values())
    assert costs.weights.bytes > 0
    assert min(costs.weights.read, costs.weights.write) > 0
    assert costs.messages == TYPICAL
    one, many = predicted(algorithm, config, costs, [1, 50], cores=16)
    update = costs.operators["train_one_step"]
    assert one.steps_per_second < many.steps_per_second
    assert many.steps_per_second < 800 / update.seconds(800)


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.parametrize("name", ["ape-x", "impala", "a3c"])
def test_processes_on_ray_time_their_own_parts(ray_engine, name):
    sets = {"impala": {"learner": "actor"}, "ape-x": {"agent.learning_starts": 100}}.get(name, {})
    algorithm, config = tiny(name, **sets)
    costs = measure_costs(algorithm, configs(config), ray_engine, seconds=0.5)
    names = {
        "ape-x": {"compute_priorities", "parallel_replay/insert", "parallel_replay/update_priorities"},
        "impala": {"train_one_step"},
        "a3c": {"compute_gradients"},
    }[name]
    assert names <= set(costs.operators)
    assert all(costs.operators[own].per_item + costs.operators[own].per_row > 0 for own in names)
    assert min(costs.messages.call, costs.messages.result, costs.messages.actor) > 0
    assert min(costs.weights.read, costs.weights.write, costs.weights.bytes) > 0
    (found,) = predicted(algorithm, config, costs, [2], cores=4)
    assert found.steps_per_second > 0
