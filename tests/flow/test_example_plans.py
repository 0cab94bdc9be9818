"""The plans shown in the documentation of `rlweave.flow` run as they stand there."""

import inspect
import textwrap
from typing import Any

import rlweave.flow
from rlweave.flow import ReportMetrics
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
