"""An algorithm of somebody else, in one file: agent, workers and plan of its own, and settings by name."""

import pytest

from rlweave.agents.a2c import A2C, A2CConfig
from rlweave.algorithms import registry
from rlweave.algorithms.algorithm import Algorithm
from rlweave.algorithms.config import TrainConfig, resolve_config
from rlweave.algorithms.ppo import columns
from rlweave.algorithms.registry import get_algorithm, register_algorithm
from rlweave.algorithms.rollout_workers import trajectory_worker
from rlweave.algorithms.run import train
from rlweave.errors import ConfigError
from rlweave.flow import ReportMetrics, TrainOneStep
from rlweave.settings.config import setting


class MineConfig(TrainConfig):
    rollouts_skipped: int = setting(1, "rollouts left out at the start", ge=0, unit="rollouts")
    agent: A2CConfig = setting(A2CConfig(), "the agent")


def mine_plan(workers, learner, *, rollouts_skipped):
    seen = []
    rollouts = workers.rollouts().gather("sync").filter(lambda batch: seen.append(0) or len(seen) > rollouts_skipped)
    return ReportMetrics(rollouts.for_each(TrainOneStep(learner, workers)), workers)


mine = Algorithm(
    "mine",
    "learns from all rollouts but the first",
    MineConfig,
    agent=A2C,
    agent_arguments=columns,
    worker=trajectory_worker,
    plan=mine_plan,
    presets={"CartPole-*": {"num_envs": 2}},
)
SMALL = {"backend": "torch", "steps": 64, "evaluate_every": 0, "agent": {"network": [], "rollout_steps": 8}}


def test_a_plan_trains_with_the_settings_that_it_asks_for(monkeypatch):
    monkeypatch.setattr(registry, "_registered", {})
    assert get_algorithm(register_algorithm(mine).name) is mine
    for skipped in (0, 3):
        run = train("mine", "CartPole-v1", rollouts_skipped=skipped, **SMALL).finish()
        assert run.config.num_envs == 2
        assert run.reports[-1]["updates"] == 4 - skipped


def test_a_plan_can_be_looked_at_without_a_training():
    config = resolve_config(MineConfig, file={"env": "CartPole-v1", **SMALL})
    assert "filter" in mine.compose(config).explain()


def test_a_plan_that_asks_for_no_setting_is_refused():
    def plan(workers, learner, *, rollouts_skiped):
        raise AssertionError

    wrong = Algorithm("wrong", "", MineConfig, A2C, trajectory_worker, plan, agent_arguments=columns)
    with pytest.raises(ConfigError, match="did you mean 'rollouts_skipped'"):
        wrong.compose(resolve_config(MineConfig, file={"env": "CartPole-v1", **SMALL}))


def test_an_algorithm_without_a_fused_form_says_so():
    config = resolve_config(MineConfig, file={"env": "CartPole-v1", "placement": "fused", **SMALL})
    with pytest.raises(ConfigError, match="no fused form"):
        mine.compose(config)
