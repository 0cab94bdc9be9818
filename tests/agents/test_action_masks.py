"""Fault 14 in agents: forbidden actions are never taken, and where none is allowed the error names where."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from rlweave.agents import DQN, PPO
from rlweave.algorithms.registry import get_algorithm
from rlweave.envs import make_env
from rlweave.errors import EnvError, ExecutionError

FEW = {"network": [{"type": "dense", "units": 8}], "acting_backend": "numpy"}
PPO_SETTINGS = {**FEW, "rollout_steps": 8, "minibatches": 2}
DQN_SETTINGS = {**FEW, "learning_starts": 16, "batch_size": 16, "memory_capacity": 64, "n_step": 1}


class Forbidding(gymnasium.Env):
    """Four steps; actions are allowed at random, and taking another is a fault."""

    def __init__(self, never_at=None):
        self.observation_space = spaces.Box(0, 1, (3,))
        self.action_space = spaces.Discrete(5)
        self.never_at = never_at

    def _observe(self):
        self.allowed = self.np_random.random(5) < 0.4
        self.allowed[self.np_random.integers(5)] = True
        if self.steps == self.never_at:
            self.allowed[:] = False
        return self.np_random.random(3).astype(np.float32), {"action_mask": self.allowed.astype(np.int8)}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._observe()

    def step(self, action):
        assert self.allowed[action], f"action {action} is forbidden"
        self.steps += 1
        observation, info = self._observe()
        return observation, 1.0, self.steps == 4, False, info


@pytest.mark.parametrize("recurrent", [False, True])
@pytest.mark.parametrize("kind", [PPO, DQN])
@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_forbidden_actions_are_never_taken(kind, backend, recurrent):
    settings = dict(PPO_SETTINGS if kind is PPO else DQN_SETTINGS)
    if recurrent:
        settings["network"] = [{"type": "gru", "units": 4}]
        settings |= {"unroll": 4, "burn_in": 2} if kind is DQN else {}
    options = {"num_envs": 2} if kind is PPO else {}
    settings["mask_leaf"] = "action_mask"
    with make_env(Forbidding, 2, seed=0, info_mask="action_mask") as env:
        agent = kind(
            env.observation_space,
            env.action_space,
            {**settings, "mask_leaf": "action_mask"},
            backend=backend,
            **options,
        )
        observations = env.reset()
        for step in range(48):
            actions = agent.get_actions(observations, env_ids=(0, 1))
            result = env.step(actions)  # raises where one is forbidden
            for i in (0, 1):
                rows = [{key: value[i] for key, value in s.items()} for s in (observations, result.next_observations)]
                agent.observe(
                    rows[0], actions[i], result.rewards[i], result.terminated[i], result.truncated[i], rows[1], env_id=i
                )
            observations = result.observations
            if step % 8 == 7 and (kind is PPO or agent.ready()):
                metrics = agent.update()
                assert all(np.isfinite(value) for value in metrics.values())
                assert abs(metrics["value_loss" if kind is PPO else "loss"]) < 100  # no target is as low as a mask
        greedy = agent.get_actions(observations, explore=False)
        assert observations["action_mask"][[0, 1], greedy].all()


@pytest.mark.parametrize(("kind", "settings"), [(PPO, PPO_SETTINGS), (DQN, DQN_SETTINGS)])
def test_where_no_action_is_allowed_the_agent_says_where(kind, settings):
    with make_env(Forbidding, 2, seed=0, info_mask="action_mask") as env:
        agent = kind(env.observation_space, env.action_space, {**settings, "mask_leaf": "action_mask"}, backend="numpy")
        agent.count_steps(7)
        observations = env.reset()
        observations["action_mask"] = np.array([[1, 0, 0, 0, 0], [0, 0, 0, 0, 0]], bool)
        for explore in (True, False):
            with pytest.raises(ExecutionError, match="no action is allowed") as error:
                agent.act(observations, explore=explore)
            assert "environment 1, after 7 environment steps" in str(error.value)


def test_where_no_action_is_allowed_the_environment_says_where():
    with make_env(lambda: Forbidding(never_at=2), 2, seed=0, info_mask="action_mask") as env:
        observations = env.step(env.reset()["action_mask"].argmax(-1)).observations
        with pytest.raises(EnvError, match="no action is allowed") as error:
            env.step(observations["action_mask"].argmax(-1))
    assert "environment 0, step 2 of its episode" in str(error.value)


def test_infos_without_a_mask_are_explained():
    with pytest.raises(EnvError, match="choose one of: 'action_mask'"), make_env(Forbidding, info_mask="mask") as env:
        env.reset()
    with pytest.raises(EnvError, match="one of N is chosen"):
        make_env("Pendulum-v1", info_mask="action_mask")


@pytest.mark.parametrize("name", ["ppo", "dqn"])
def test_trainings_take_masks_from_infos(name):
    spec = get_algorithm(name)
    settings = PPO_SETTINGS if name == "ppo" else DQN_SETTINGS
    config = spec.config_class.from_data(
        {"env": "Taxi-v4", "num_envs": 2, "steps": 64, "info_mask": "action_mask", "evaluate_every": 32,
         "evaluation_episodes": 1, "backend": "torch", "agent": settings}
    )  # fmt: skip
    trainer = spec.make_trainer(config, None)
    try:
        assert trainer.agent.config.mask_leaf == "action_mask"
        reports = list(trainer.train())
        assert reports[-1]["env_steps_sampled"] >= 64
        assert np.isfinite(reports[-1]["evaluation_return"])  # played in environments of their own, with masks as well
    finally:
        trainer.close()
