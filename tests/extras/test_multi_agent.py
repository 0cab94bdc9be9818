"""PPO and DQN side by side: from one stream of rollouts, to the same place when resumed, with errors that explain."""

import numpy as np
import pytest

from rlweave.algorithms.config import resolve_config
from rlweave.algorithms.registry import get_algorithm
from rlweave.algorithms.trainer import PlanTrainer
from rlweave.envs.multi_agent_evaluation import evaluate_together
from rlweave.errors import ConfigError, EnvError
from rlweave.extras.multi_agent import MultiAgentTrainer
from rlweave.runs.checkpoint import find_checkpoint
from rlweave.runs.run_directory import RunDirectory
from tests.algorithms.test_trainer import assert_same_state, cut, finish, state_of

NETWORK = [{"type": "dense", "units": 8, "activation": "tanh"}]
PPO = {"network": NETWORK, "rollout_steps": 16, "epochs": 2, "minibatches": 2, "acting_backend": "numpy"}
DQN = {
    "network": NETWORK,
    "learning_starts": 40,
    "memory_capacity": 300,
    "batch_size": 16,
    "samples_per_step": 4.0,
    "target_update_interval": 50,
    "acting_backend": "numpy",
}
SETTINGS = {
    "env": "rlweave/MultiCartPole-v0",
    "env_options": {"num_agents": 3},
    "backend": "torch",
    "num_envs": 2,
    "steps": 900,
    "steps_per_item": 4,
    "report_every": 100,
    "evaluate_every": 300,
    "evaluation_episodes": 2,
    "checkpoint_every": 300,
    "tensorboard": False,
    "policies": {"pair": {"algorithm": "ppo", "agent": PPO}, "single": {"algorithm": "dqn", "agent": DQN}},
    "mapping": {"*": "pair", "cart_2": "single"},
}


def make_config(**sets):
    spec = get_algorithm("multi-agent")
    dotted = {key.replace("__", "."): value for key, value in sets.items() if "__" in key}
    whole = {key: value for key, value in sets.items() if "__" not in key}  # mappings are replaced, not merged
    return resolve_config(spec.config_class, file={**SETTINGS, **whole}, sets=dotted)


@pytest.fixture
def trainers():
    """Makes trainers and closes them at the end."""
    made = []

    def make(path=None, rule=None, **sets):
        config = make_config(**sets)
        run = None
        if path is not None:
            run = (
                RunDirectory(path) if path.exists() else RunDirectory.create("multi-agent", config.to_data(), path=path)
            )
        made.append(MultiAgentTrainer(config, run, rule))
        return made[-1]

    yield make
    for trainer in made:
        trainer.close()


@pytest.mark.parametrize("placement", ["local", "single_learner_coarse"])
def test_two_workers_are_deterministic_and_resume_exactly(trainers, tmp_path, placement):
    sets = {"placement": {"name": placement, "workers": 2}}
    uncut = trainers(tmp_path / "uncut", **sets)
    rows = finish(uncut)
    path = tmp_path / "cut"
    before = cut(trainers(path, **sets), 600)
    resumed = trainers(path, **sets)
    resumed.restore(find_checkpoint(path))
    assert 0 < resumed.env_steps < 900
    kept = [row for row in before if row["env_steps_sampled"] <= resumed.env_steps]
    assert [*kept, *finish(resumed)] == rows
    assert_same_state(state_of(uncut), state_of(resumed))


def test_every_step_is_counted_where_it_belongs(trainers):
    trainer = trainers()
    rows = list(trainer.train())
    row, agents = rows[-1], trainer.agent
    assert row["env_steps_sampled"] == trainer.env_steps == agents.env_steps >= 900
    assert row["joint_steps"] == agents.joint_steps > 0
    # a joint step has at most three agents in it, and at least one
    assert row["joint_steps"] < row["env_steps_sampled"] <= 3 * row["joint_steps"]
    pair, single = agents["pair"], agents["single"]
    assert pair.env_steps > single.env_steps > 0
    assert single.inserted <= single.env_steps
    seen = {name: value for one in rows for name, value in one.items()}
    assert seen["train_pair/entropy"] > 0
    assert seen["train_single/loss"] > 0
    # PPO trains on rollouts of 16 steps in 2 x 2 columns, twice on each; DQN on batches of 16 in the ratio of its own
    # steps, of which an item may hold 8
    operators = trainer.plan.state_dict()["operators"]
    rollouts = operators["pack_trajectories"]["state"]["made"]
    inserted = operators["store_to_buffer"]["state"]["inserted"]
    batches = row["updates"] - rollouts
    assert row["trained_samples"] == rollouts * 2 * 64 + batches * 16
    assert 0 <= 4.0 * (inserted - 40) - batches * 16 < 16 + 4 * 8
    # what is counted and not trained on yet is on its way: an item, and less than a rollout
    assert inserted <= single.env_steps <= inserted + 8
    assert rollouts * 64 <= pair.env_steps < rollouts * 64 + 64 + 2 * 16
    assert {"episode_return/pair", "episode_return/single", "evaluation_return/pair"} <= seen.keys()


def test_a_function_may_say_who_plays_whom(trainers):
    trainer = trainers(rule=lambda agent: "pair" if agent == "cart_1" else "single")
    groups = trainer.parts.workers[0].env.groups
    assert {name: group.agents for name, group in groups.items()} == {
        "pair": ("cart_1",),
        "single": ("cart_0", "cart_2"),
    }
    evaluation = trainer.evaluate(2, seed=0)
    assert [len(evaluation.policies[name].episodes) for name in ("pair", "single")] == [2, 4]


def test_an_evaluation_is_of_all_policies_and_disturbs_nothing(trainers):
    trainer = trainers()
    before = state_of(trainer)
    first, second = trainer.evaluate(3, seed=5), trainer.evaluate(3, seed=5)
    assert_same_state(before, state_of(trainer))
    assert first == second
    assert len(first.episodes) == 3
    assert [len(own.episodes) for own in first.policies.values()] == [6, 3]
    pair, single = first.policies["pair"].returns, first.policies["single"].returns
    np.testing.assert_allclose(first.returns, (pair.reshape(3, 2).sum(axis=1) + single) / 3)
    # a cart-pole's return is its length, and the longest is that of the episode
    assert first.lengths.tolist() == np.maximum(pair.reshape(3, 2).max(axis=1), single).astype(int).tolist()


def test_an_evaluation_that_never_ends_is_an_error():
    from rlweave.envs.multi_agent import MultiAgentEnv
    from tests.envs.parallel_fakes import Scripted, apart

    def factory(seed, worker):
        endless = [{"a": 0}, *[{"a": (1, 0.0, "")}] * 50]
        return MultiAgentEnv([lambda: Scripted(["a"], [endless])], apart, seed=seed, worker=worker)

    play = {"a": lambda observations, episode_start, acting: np.zeros(len(observations), np.int64)}
    with pytest.raises(EnvError, match="has not ended after 10 steps"):
        evaluate_together(play, factory, 1, seed=0, max_episode_steps=10)
    assert evaluate_together(play, factory, 1, seed=0).lengths.tolist() == [50]
    with pytest.raises(ConfigError, match="nothing to evaluate"):
        evaluate_together(play, factory, 0)


def test_the_plan_gathers_before_it_splits(trainers):
    plan = trainers().plan.explain()
    assert plan.index("gather_sync") < plan.index("split") < plan.index("select")
    for operator in ("pack_trajectories", "train_pair", "store_to_buffer", "train_single", "union"):
        assert operator in plan


def test_graphs_are_looked_at_policy_by_policy(trainers):
    trainer = trainers()
    assert trainer.draw().startswith("<")
    assert trainer.draw("single/update") != trainer.draw("pair/update")
    assert "def " in trainer.code("pair/update")
    assert "policy pair" in trainer.explain()
    with pytest.raises(ConfigError, match="component graph of its own") as caught:
        trainer.code("update")
    assert "pair/update" in caught.value.fix


@pytest.mark.parametrize(
    ("sets", "where", "said"),
    [
        ({"policies__pair__agent__clip": -1.0}, "policies.pair.agent", "clip"),
        ({"policies__pair__agent__memory_capacity": 3}, "policies.pair.agent", "memory_capacity"),
        ({"policies__single__agent__acting_backend": "auto"}, "policies.single.agent.acting_backend", "measured"),
        ({"mapping": {"cart_0": "pair"}}, "mapping", "no policy plays agent 'cart_1'"),
        ({"placement": "fused"}, "placement.name", "no fused form"),
        ({"placement": "environments_apart"}, "placement.name", "several agents"),
        ({"info_mask": "action_mask"}, "info_mask", "leaf of observations"),
        ({"vectorization": "async"}, "vectorization", "placement local"),
        ({"steps_per_item": 32}, "steps_per_item", "--set steps_per_item=16"),
        ({"env_options": {"carts": 3}}, "env_options", "does not take this option"),
        ({"env_options": {"num_agents": 0}}, "env_options", "at least one agent"),
        ({"placement": {"workers": 3}}, "placement.workers", "divided evenly"),
    ],
)
def test_settings_that_cannot_be_meant_are_explained(trainers, sets, where, said):
    with pytest.raises(ConfigError) as caught:
        trainers(**sets)
    assert caught.value.where.startswith(where)
    assert said in str(caught.value)


def test_agents_of_one_shared_policy_need_no_settings_but_the_environment():
    spec = get_algorithm("multi-agent")
    config = resolve_config(
        spec.config_class, sets={"env": "rlweave/MultiCartPole-v0", "num_envs": 1, "backend": "torch"}
    )
    trainer = spec.make_trainer(config, None)
    assert isinstance(trainer, PlanTrainer)
    assert list(trainer.agent) == ["shared"]
    assert trainer.agent["shared"].num_envs == 4  # a column for each agent
    trainer.close()


def test_simple_spread_of_mpe2_is_trained(trainers):
    pytest.importorskip("mpe2")
    sets = {"env": "mpe2.simple_spread_v3", "env_options": {"max_cycles": 10}, "steps": 300, "checkpoint_every": 0}
    rows = list(trainers(**sets, mapping={"*": "pair", "agent_0": "single"}).train())
    assert rows[-1]["env_steps_sampled"] >= 300
    assert rows[-1]["episode_length"] == 10
    assert rows[-1]["evaluation_return"] < 0


@pytest.mark.learning
@pytest.mark.long(minutes=0.5)
def test_all_four_policies_begin_to_learn(learning_seed, tmp_path):
    """At most 30,000 of 400,000 steps, on a quarter of which each agent acts; untrained ones reach 10 to 25."""
    from benchmarks.learning import TASKS, worst_policy_return

    task, spec = TASKS["multi-agent-cartpole"], get_algorithm("multi-agent")
    sets = {"env": task.env, "backend": "jax", "seed": learning_seed, "evaluate_every": 5_000, "tensorboard": False}
    config = resolve_config(spec.config_class, presets=spec.presets[task.env], sets=sets)
    trainer = spec.make_trainer(config, RunDirectory.create(spec.name, config.to_data(), path=tmp_path / "run"))
    try:
        for row in trainer.train():
            evaluated = [value for name, value in row.items() if name.startswith("evaluation_return/")]
            if trainer.env_steps >= 30_000 or min(evaluated, default=0.0) >= 200.0:
                break
        assert worst_policy_return(20)(trainer) >= 100.0
    finally:
        trainer.close()


@pytest.mark.slow
def test_workers_on_ray_train_save_and_resume(trainers, ray_engine, tmp_path):
    sets = {"placement": {"workers": 2}, "engine": "ray", "object_store_mb": 80}
    path = tmp_path / "run"
    trainer = trainers(path, **sets)
    rows = list(trainer.train())
    assert rows[-1]["env_steps_sampled"] == trainer.env_steps <= 3 * rows[-1]["joint_steps"]
    assert trainer.env_steps >= 900
    assert np.isfinite(rows[-1]["best_evaluation_return"])
    assert trainer.agent["single"].env_steps > 0
    assert trainer.agent["pair"].env_steps % 64 == 0  # counted with the rollouts
    trainer.save()
    trainer.close()
    resumed = trainers(path, **sets, steps=1200)
    resumed.restore(find_checkpoint(path))
    assert resumed.env_steps == trainer.env_steps
    assert list(resumed.train())[-1]["env_steps_sampled"] >= 1200
