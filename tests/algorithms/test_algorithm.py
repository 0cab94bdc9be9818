"""An algorithm of somebody else, in one file: agent, workers and plan of its own, and settings by name."""

import dataclasses

import pytest

from rlweave.agents.a2c import A2C, A2CConfig
from rlweave.agents.fused_ppo import FusedPPO
from rlweave.agents.ppo import PPO, PPOGraph
from rlweave.algorithms import registry
from rlweave.algorithms.algorithm import Algorithm
from rlweave.algorithms.config import RolloutTrainConfig, TrainConfig, resolve_config
from rlweave.algorithms.ppo import agent_num_envs, ppo
from rlweave.algorithms.registry import get_algorithm, register_algorithm
from rlweave.algorithms.rollout_workers import trajectory_worker
from rlweave.algorithms.run import train
from rlweave.errors import ConfigError
from rlweave.flow import ReportMetrics, TrainOneStep
from rlweave.settings.config import setting


class MineConfig(RolloutTrainConfig):
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
    agent_arguments=agent_num_envs,
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

    wrong = Algorithm("wrong", "", MineConfig, A2C, trajectory_worker, plan, agent_arguments=agent_num_envs)
    with pytest.raises(ConfigError, match="did you mean 'rollouts_skipped'"):
        wrong.compose(resolve_config(MineConfig, file={"env": "CartPole-v1", **SMALL}))


def test_every_algorithm_gets_its_mask_and_lengths_of_schedules():
    def with_settings(**own):
        settings = {"env": "Taxi-v4", "backend": "torch", "num_envs": 2, "steps": 640, **own}
        parts = mine.parts(resolve_config(MineConfig, file=settings))
        for worker in parts.workers:
            worker.close()
        return parts.agent.config

    opened = {"type": "linear", "start": 1e-3, "end": 0.0}
    small = {"network": [], "rollout_steps": 8}
    settings = with_settings(info_mask="action_mask", agent={**small, "lr": opened})
    assert settings.mask_leaf == "action_mask"
    assert settings.lr == {**opened, "steps": 640 // (2 * 8)}


def test_a_schedule_whose_length_nothing_says_names_its_setting():
    class UnknownConfig(TrainConfig):
        agent: A2CConfig = setting(A2CConfig(), "the agent")

    own = {"agent": {"lr": {"type": "linear", "start": 1e-3, "end": 0.0}}}
    algorithm = dataclasses.replace(mine, name="unknown", config_class=UnknownConfig)
    with pytest.raises(ConfigError) as raised:
        algorithm.parts(resolve_config(UnknownConfig, file={"env": "CartPole-v1", **own}))
    assert raised.value.where == "agent.lr"
    assert 'add "steps"' in raised.value.fix


def test_a_fused_form_of_another_agent_is_refused(monkeypatch):
    class Louder(PPO):
        name = "louder"

    class FusedLouder(FusedPPO, Louder):
        pass

    class LouderGraph(PPOGraph):
        pass

    config = resolve_config(ppo.config_class, file={"env": "CartPole-v1", "placement": "fused", "backend": "torch"})
    louder = dataclasses.replace(ppo, name="louder", agent=Louder)
    with pytest.raises(ConfigError, match="it would not train Louder") as raised:
        louder.parts(config)
    assert "class FusedLouder(FusedPPO, Louder)" in raised.value.fix
    monkeypatch.setattr("rlweave.agents.fused_ppo.FusedLouder", FusedLouder, raising=False)
    own = dataclasses.replace(louder, fused="rlweave.agents.fused_ppo:FusedLouder")
    assert isinstance(own.parts(config).agent, FusedLouder)
    Louder.graph_class = LouderGraph  # which FusedPPO's graph would take the place of
    with pytest.raises(ConfigError, match="it would not train Louder"):
        own.parts(config)


def test_an_algorithm_without_a_fused_form_says_so():
    config = resolve_config(MineConfig, file={"env": "CartPole-v1", "placement": "fused", **SMALL})
    with pytest.raises(ConfigError, match="no fused form"):
        mine.compose(config)
