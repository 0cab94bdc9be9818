"""The plans shown in the documentation of `rlweave.flow` run as they stand there, and those of RLlib Flow's slides."""

import functools
import inspect
import textwrap
from typing import Any

import pytest

import rlweave.flow
from rlweave.flow import (
    ParallelReplay,
    ParallelRollouts,
    ReplayShards,
    ReportMetrics,
    StoreToBuffer,
    TrainOneStep,
    Union,
    UpdatePriorities,
    UpdateWeights,
)
from tests.flow.fake_shards import FakeShard, Prioritizing
from tests.flow.fakes import FakeLearner, FakeMemory, workers
from tests.flow.test_gradients import Descending, computing


def shown_plans() -> dict[str, Any]:
    """Executes the code of the package's docstring."""
    documentation = inspect.getdoc(rlweave.flow) or ""
    code = "\n".join(line for line in documentation.splitlines() if line.startswith("    "))
    names: dict[str, Any] = {name: getattr(rlweave.flow, name) for name in rlweave.flow.__all__}
    exec(textwrap.dedent(code), names)
    return names


def test_the_ppo_plan_trains_on_whole_rounds_of_fresh_items() -> None:
    group, learner = workers(4, steps=32), FakeLearner()
    plan: ReportMetrics = shown_plans()["ppo"](group, learner)
    for _ in plan.run(until=lambda counters: counters.env_steps_sampled >= 1024):
        pass
    assert [batch.num_steps for batch in learner.batches] == [256] * 4
    assert plan.report().train_lag == {0: 4}
    assert learner.batches[0]["worker"].tolist()[::32] == [0, 1, 2, 3] * 2


def test_the_dqn_plan_holds_its_replay_ratio() -> None:
    group, learner, memory = workers(2), FakeLearner(), FakeMemory(batch_size=32)
    plan: ReportMetrics = shown_plans()["dqn"](group, learner, memory)
    for _ in plan.run(until=lambda counters: counters.env_steps_sampled >= 2000, every_steps=500):
        pass
    assert abs(memory.sampled - 8 * (memory.stored - 64)) <= 8 * 4 + 32
    assert plan.report().updates == memory.sampled // 32


def test_the_a3c_plan_lets_each_worker_compute_its_gradients() -> None:
    """The listing of RLlib Flow's slides, in this spelling: the learner is named beside the workers."""
    group, learner = computing(3, steps=8), Descending()
    plan: ReportMetrics = shown_plans()["a3c"](group, learner)
    for _ in plan.run(until=lambda counters: counters.env_steps_sampled >= 80):
        pass
    assert [int(number) for _, number, _ in learner.given] == [0, 1, 2, 0, 1, 2, 0, 1, 2, 0]
    assert plan.report().train_lag == {0: 1, 1: 1, 2: 8}
    assert "compute_gradients" in plan.explain()


def create_replay_actors(made: list[FakeShard]) -> ReplayShards:
    return ReplayShards([functools.partial(FakeShard, number, made) for number in range(3)], batch_size=8)


def test_the_slides_ape_x_in_our_spelling() -> None:
    """Two deviations: training comes before priorities, which it finds; and the learner is named.

    UpdatePriorities gets the memory, and knows the shard from the item: nothing is attributed by a "current actor".
    """
    made: list[FakeShard] = []
    group, learner = workers(2), Prioritizing()

    replay_buffer = create_replay_actors(made)
    rollouts = ParallelRollouts(group).gather_async()

    store_op = rollouts.for_each(StoreToBuffer(replay_buffer)).for_each(UpdateWeights(learner, group))

    replay_op = ParallelReplay(replay_buffer).gather_async()
    replay_op = replay_op.for_each(TrainOneStep(learner)).for_each(UpdatePriorities(replay_buffer))

    plan = ReportMetrics(Union(store_op, replay_op), group)
    for _ in plan.run(until=lambda counters: counters.env_steps_sampled >= 400, every_steps=100):
        pass
    assert [shard.steps for shard in made] == [pytest.approx(400 / 3, abs=4)] * 3, "stored in turns"
    assert plan.counters.updates == len(learner.trained_on) > 50
    for shard in made:
        assert {value for _, values in shard.priorities for value in values} == {shard.number + 0.25}
        assert len(shard.priorities) == learner.trained_on.count(shard.number)
    assert group[0].received[-1] > group[0].received[0], "workers got newer weights"
    names = [node.name for node in plan.graph.nodes]
    assert names.index("train_one_step") < names.index("update_priorities")
