"""Environments of many rows or several agents that are broken on purpose, each beside the right one."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from rlweave import ops
from rlweave.envs.in_graph import GraphEnvironment
from rlweave.spaces import FloatBox, IntBox
from rlweave.testing.checks.findings import Cause
from tests.mutants.env_mutant import EnvMutant


class Sleds(gymnasium.vector.VectorEnv):
    """Three sleds in arrays; each terminates beyond 1, and is cut after 20 steps. Resets in the same step."""

    num_envs = 3
    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}

    def __init__(self):
        self.single_observation_space = spaces.Box(-2, 2, (2,), np.float32)
        self.single_action_space = spaces.Discrete(2)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.position, self.speed = np.zeros(self.num_envs), np.zeros(self.num_envs)
        self.steps = np.zeros(self.num_envs, np.int64)
        self.begin(np.ones(self.num_envs, bool))
        return self.observe(), {}

    def begin(self, rows):
        self.position[rows] = self.np_random.uniform(-0.3, 0.3, rows.sum())
        self.speed[rows] = 0.0
        self.steps[rows] = 0

    def move(self, actions):
        self.speed = np.clip(self.speed + np.where(actions == 1, 0.1, -0.1), -0.2, 0.2)
        self.position = self.position + self.speed
        self.steps += 1
        terminated, truncated = np.abs(self.position) > 1, self.steps >= 20
        return self.rewards(), terminated, truncated

    def step(self, actions):
        rewards, terminated, truncated = self.move(actions)
        ended, infos = terminated | truncated, {}
        if ended.any():
            infos = {"final_obs": self.observe(), "_final_obs": ended.copy()}
            self.begin(ended)
        return self.observe(), rewards, terminated, truncated, infos

    def rewards(self):
        return 1 - np.abs(self.position)

    def observe(self):
        return np.stack([self.position, self.speed], axis=1).astype(np.float32)


class FinalIsFirst(Sleds):
    """IsaacLab #4369, mjlab #1030: rows are reset before the last observation is computed."""

    def step(self, actions):
        rewards, terminated, truncated = self.move(actions)
        ended, infos = terminated | truncated, {}
        if ended.any():
            self.begin(ended)
            infos = {"final_obs": self.observe(), "_final_obs": ended.copy()}
        return self.observe(), rewards, terminated, truncated, infos


class NoFinal(Sleds):
    """Gymnasium #1103: there is no final observation at all."""

    def step(self, actions):
        return *super().step(actions)[:4], {}


class SledsOfNextStep(Sleds):
    """The right one of the next: resets in the step after an end."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}

    def reset(self, *, seed=None, options=None):
        self.ended = np.zeros(self.num_envs, bool)
        return super().reset(seed=seed, options=options)

    def step(self, actions):
        just_begun = self.ended
        rewards, terminated, truncated = self.move(actions)
        if just_begun.any():
            self.begin(just_begun)
        going_on = ~just_begun
        rewards, terminated, truncated = rewards * going_on, terminated & going_on, truncated & going_on
        self.ended = terminated | truncated
        return self.observe(), rewards, terminated, truncated, {}


class CountsTheReset(SledsOfNextStep):
    """The step that resets a row has a reward, too: episodes are a step too long."""

    def step(self, actions):
        just_begun = self.ended
        if just_begun.any():
            self.begin(just_begun)
        rewards, terminated, truncated = self.move(actions)
        self.ended = terminated | truncated
        return self.observe(), rewards, terminated, truncated, {}


class ResetsTooEarly(SledsOfNextStep):
    """envpool #194: says NEXT_STEP, and resets in the same step; first steps are taken for resets."""

    def step(self, actions):
        just_begun = self.ended
        rewards, terminated, truncated = self.move(actions)
        going_on = ~just_begun
        rewards, terminated, truncated = rewards * going_on, terminated & going_on, truncated & going_on
        self.ended = terminated | truncated
        if self.ended.any():
            self.begin(self.ended)
        return self.observe(), rewards, terminated, truncated, {}


class RowsMeet(Sleds):
    """A mean without an axis: each row is rewarded for all."""

    def rewards(self):
        return 1 - np.abs(self.position) - np.abs(self.position).mean()


class OneDrawForAll(Sleds):
    """All rows begin at the same place."""

    def begin(self, rows):
        super().begin(rows)
        self.position[rows] = self.np_random.uniform(-0.3, 0.3)


class SpeedStays(Sleds):
    """reset() makes new arrays, and autoreset forgets one of them."""

    def begin(self, rows):
        self.position[rows] = self.np_random.uniform(-0.3, 0.3, rows.sum())
        self.steps[rows] = 0


class Unnamed(Sleds):
    """Declares no autoreset mode, so that nobody knows which rows are transitions."""

    metadata: dict[str, Any] = {}


class Pair:
    """Two agents, each with a sled on one line; each is gone when it is beyond 1, or after 20 steps."""

    metadata = {"name": "pair"}

    def __init__(self):
        self.possible_agents, self.agents = ["left", "right"], []
        box, discrete = spaces.Box(-2, 2, (1,), np.float32), spaces.Discrete(2)
        self.spaces = dict.fromkeys(self.possible_agents, (box, discrete))
        self.random = np.random.default_rng()

    def observation_space(self, agent):
        return self.spaces[agent][0]

    def action_space(self, agent):
        return self.spaces[agent][1]

    def reset(self, seed=None, options=None):
        if seed is not None:
            self.random = np.random.default_rng(seed)
        self.agents, self.steps = list(self.possible_agents), 0
        self.place = {agent: self.random.uniform(-0.3, 0.3) for agent in self.agents}
        return {agent: self.observe(agent) for agent in self.agents}, {agent: {} for agent in self.agents}

    def step(self, actions):
        self.steps += 1
        for agent in self.agents:
            self.place[agent] += (-0.2, 0.2)[actions[agent]]
        here = list(self.agents)
        observations = {agent: self.observe(agent) for agent in here}
        rewards = {agent: -abs(self.place[agent]) for agent in here}
        terminated = {agent: abs(self.place[agent]) > 1 for agent in here}
        truncated = dict.fromkeys(here, self.steps >= 20)
        self.agents = self.left(terminated, truncated)
        return observations, rewards, terminated, truncated, {agent: {} for agent in here}

    def left(self, terminated, truncated):
        return [agent for agent in self.agents if not (terminated[agent] or truncated[agent])]

    def observe(self, agent):
        return np.float32([self.place[agent]])

    def close(self):
        pass


class DeadStay(Pair):
    """PettingZoo #221: an agent that has ended is asked again, until all have."""

    def left(self, terminated, truncated):
        over = [terminated[agent] or truncated[agent] for agent in self.agents]
        self.place = {agent: float(np.clip(place, -1.5, 1.5)) for agent, place in self.place.items()}
        return [] if all(over) else self.agents


class UnseededPair(Pair):
    """reset() takes a seed, and does not use it."""

    def reset(self, seed=None, options=None):
        return super().reset(None, options)


class GraphSleds(GraphEnvironment):
    """A sled in ops."""

    def __init__(self, num_envs=4, scope="environment"):
        super().__init__(num_envs, 20, scope)
        self.observation_space, self.action_space = FloatBox(low=-2.0, high=2.0, shape=(2,)), IntBox(2)

    def state_variables(self):
        return {"position": ((), "float32", 0.0), "speed": ((), "float32", 0.0)}

    def initial(self):
        zeros = ops.zeros((self.num_envs,))
        return {"position": ops.random.uniform((self.num_envs,), -0.3, 0.3), "speed": zeros}

    def transition(self, state, actions):
        speed = ops.clip(state["speed"] + ops.where(ops.equal(actions, 1), 0.1, -0.1), -0.2, 0.2)
        position = state["position"] + speed
        return {"position": position, "speed": speed}, 1.0 - ops.abs(position), ops.abs(position) > 1.0

    def observe(self, state):
        return ops.stack([state["position"], state["speed"]], axis=-1)


class GraphSledsKeepSpeed(GraphSleds):
    """The first states are those that were, but for what is drawn."""

    def initial(self):
        position = ops.random.uniform((self.num_envs,), -0.3, 0.3)
        return {"position": position, "speed": self.state["speed"].value}


class GraphSledsMeet(GraphSleds):
    """A mean over the rows."""

    def transition(self, state, actions):
        state, rewards, terminated = super().transition(state, actions)
        return state, rewards - ops.mean(rewards), terminated


MANY: tuple[EnvMutant, ...] = (
    EnvMutant(FinalIsFirst, Sleds, Cause.FINAL_OBSERVATION_LOST),
    EnvMutant(NoFinal, Sleds, Cause.FINAL_OBSERVATION_LOST),
    EnvMutant(CountsTheReset, SledsOfNextStep, Cause.COUNTED_TWICE),
    EnvMutant(ResetsTooEarly, SledsOfNextStep, Cause.COUNTED_TWICE),
    EnvMutant(RowsMeet, Sleds, Cause.ROWS_MEET),
    EnvMutant(OneDrawForAll, Sleds, Cause.DRAWN_ONCE),
    EnvMutant(SpeedStays, Sleds, Cause.NEVER_RESET),
    EnvMutant(Unnamed, Sleds, Cause.CANNOT_RUN),
    EnvMutant(DeadStay, Pair, Cause.BAD_ENDS),
    EnvMutant(UnseededPair, Pair, Cause.SEED_IGNORED),
    EnvMutant(GraphSledsKeepSpeed, GraphSleds, Cause.NEVER_RESET),
    EnvMutant(GraphSledsMeet, GraphSleds, Cause.ROWS_MEET),
)
