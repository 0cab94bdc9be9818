"""Environments that are broken on purpose, each beside the right one.

Each is a bug that people really had; its docstring says in a line what happened. `check_env` has to find each, and to
name its cause. They are written as a user would write them: nothing in a wrong one helps to find it.
"""

from __future__ import annotations

from typing import ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces

from rlweave.testing.checks.findings import Cause
from tests.mutants.env_mutant import EnvMutant
from tests.mutants.many_environments import MANY


class Sled(gymnasium.Env):
    """A sled on ice, pushed to the left or right; it terminates beyond 1, and is cut after 15 steps."""

    max_speed = 0.2

    def __init__(self):
        self.observation_space = spaces.Box(-2, 2, (2,), np.float32)
        self.action_space = spaces.Box(-1, 1, (1,), np.float32)
        self.max_steps = 15

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.begin()
        return self.observe(), {}

    def begin(self):
        self.position = self.np_random.uniform(-0.3, 0.3)
        self.speed = 0.0
        self.steps = 0

    def step(self, action):
        self.push(float(np.clip(action, -1, 1)[0]))
        self.steps += 1
        return self.observe(), self.reward(), self.terminated(), self.steps >= self.max_steps, self.info()

    def push(self, force):
        gust = self.np_random.normal(0, 0.02)
        self.speed = float(np.clip(self.speed + 0.1 * force + gust, -self.max_speed, self.max_speed))
        self.position += self.speed

    def observe(self):
        return np.array([self.position, self.speed], np.float32)

    def reward(self):
        return -abs(self.position)

    def terminated(self):
        return bool(abs(self.position) > 1)

    def info(self):
        return {}


class Corridor(gymnasium.Env):
    """Nine cells; 1 goes to the right and 0 to the left; the last one on either side is the end."""

    def __init__(self):
        self.observation_space = spaces.Discrete(9)
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.cell = int(self.np_random.integers(2, 7))
        return self.observe(), self.info()

    def step(self, action):
        self.cell += self.move(action)
        return self.observe(), float(self.cell == 8), self.cell in (0, 8), False, self.info()

    def move(self, action):
        return (-1, 1)[action]

    def observe(self):
        return self.cell

    def info(self):
        return {}


# -- observations ------------------------------------------------------------------------------------------------------


class OneArray(Sled):
    """dm_control #34, SuperSuit #116: every step writes into the array that it returned before."""

    def __init__(self):
        super().__init__()
        self.array = np.zeros(2, np.float32)

    def observe(self):
        self.array[:] = self.position, self.speed
        return self.array


class KeepsState(Sled):
    """The right one of the next: its state is an array, of which it returns a copy."""

    def begin(self):
        super().begin()
        self.state = np.array([self.position, 0.0], np.float32)

    def push(self, force):
        speed = np.clip(self.state[1] + 0.1 * force, -self.max_speed, self.max_speed)
        self.state = np.array([self.state[0] + speed, speed], np.float32)
        self.position = float(self.state[0])

    def observe(self):
        return self.state.copy()


class HandsOutItsState(KeepsState):
    """Gymnasium's MountainCarContinuous returns self.state: a wrapper that scales in place moves the car."""

    def observe(self):
        return self.state


class WideObservation(Sled):
    """gym-pybullet-drones #87: NumPy made float64 of it, the space says float32."""

    def observe(self):
        return np.array([self.position, self.speed])


class SpaceTooSmall(Sled):
    """The bounds were those of the start; far out, values leave them."""

    def __init__(self):
        super().__init__()
        self.observation_space = spaces.Box(-1, 1, (2,), np.float32)


class DividesByZero(Sled):
    """The share of the top speed that is used, which is 0 / 0 on rough ice."""

    def observe(self):
        top = self.max_speed if abs(self.position) < 0.5 else 0.0
        with np.errstate(all="ignore"):
            return np.array([self.position, np.float32(self.speed * (top > 0)) / np.float32(top)], np.float32)


class Compass(Sled):
    """The right one of the next: an observation of two leaves."""

    def __init__(self):
        super().__init__()
        box = spaces.Box(-2, 2, (1,), np.float32)
        self.observation_space = spaces.Dict({"position": box, "speed": box})

    def observe(self):
        return {"position": np.float32([self.position]), "speed": np.float32([self.speed])}


class LeafOnlyAtReset(Compass):
    """step() put the observation together a second time, and forgot a leaf."""

    def step(self, action):
        observation, *rest = super().step(action)
        del observation["speed"]
        return observation, *rest


class Floors(Corridor):
    """The right one of the next: counts from 1."""

    def __init__(self):
        super().__init__()
        self.observation_space = spaces.Discrete(9, start=1)
        self.action_space = spaces.Discrete(2, start=1)

    def move(self, action):
        return (-1, 1)[action - 1]

    def observe(self):
        return self.cell + 1


class CountsFromZero(Floors):
    """The space starts at 1, and the cells at 0."""

    def observe(self):
        return self.cell


class ForgetsTheStartOfActions(Floors):
    """Actions begin at 1, and are used as an index."""

    def move(self, action):
        return (-1, 1)[action]


class OneStepOld(Sled):
    """gymnax #36: the observation is computed before the state moves on."""

    def step(self, action):
        before = self.observe()
        _, *rest = super().step(action)
        return before, *rest


class Fuel(Sled):
    """The right one of the next: shows its fuel in a byte."""

    def __init__(self):
        super().__init__()
        self.observation_space = spaces.Box(0, 255, (2,), np.uint8)

    def observe(self):
        return np.clip([100 + 80 * self.position, 20 - 3 * self.steps], 0, 255).astype(np.uint8)


class RunsOver(Fuel):
    """gym-super-mario-bros #94: bytes that go below zero begin anew at 255."""

    def observe(self):
        return np.array([100 + 80 * self.position, 20 - 3 * self.steps]).astype(np.int64).astype(np.uint8)


class TwoRunners(Sled):
    """The right one of the next: an action of two parts."""

    def __init__(self):
        super().__init__()
        self.action_space = spaces.Box(-1, 1, (2,), np.float32)

    def step(self, action):
        return super().step(np.array([action[0] + 0.5 * action[1]]))


class OneRunnerIsIgnored(TwoRunners):
    """The second motor was never connected."""

    def step(self, action):
        return Sled.step(self, action[:1])


# -- rewards and ends --------------------------------------------------------------------------------------------------


class RewardInArray(KeepsState):
    """A slice instead of an element: rewards of shape (1,), which broadcast against everything."""

    def reward(self):
        return -np.abs(self.state[:1])


class LogOfZero(Sled):
    """The logarithm of the steps that are left, which is one too many times taken."""

    def reward(self):
        with np.errstate(divide="ignore"):
            return float(np.log(self.max_steps - self.steps))


class RightLog(Sled):
    """The right one."""

    def reward(self):
        return float(np.log(1 + self.max_steps - self.steps)) / 4


class FlagsAreNumbers(Sled):
    """terminated is how far it went beyond."""

    def terminated(self):
        return max(0.0, abs(self.position) - 1)


class TimeIsTerminal(Sled):
    """gymnasium's migration from done: the time limit went into terminated."""

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, terminated or truncated, False, info


class Countdown(Sled):
    """The right one of the next: counts down."""

    def reset(self, **kwargs):
        result = super().reset(**kwargs)
        self.left = 12
        return result

    def step(self, action):
        observation, reward, terminated, _, info = super().step(action)
        self.left -= 1
        return observation, reward, terminated, self.left <= 0, info


class CountdownIsTerminal(Countdown):
    """CartPole of old Gym: done when the clock has run down, for whatever reason."""

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, terminated or truncated, False, info


class FarLimit(Sled):
    """The right one of the next: cut after 5000 steps, which random actions never reach."""

    def __init__(self):
        super().__init__()
        self.max_steps = 5000


class FarLimitIsTerminal(FarLimit):
    """`done = fell or self.steps >= limit`, kept from old Gym; no test ever plays that long."""

    def terminated(self):
        return bool(abs(self.position) > 1 or self.steps >= self.max_steps)


class OneStepMore(Sled):
    """Compares before it counts: episodes of 16 steps, where 15 are declared."""

    def step(self, action):
        truncated = self.steps >= self.max_steps
        observation, reward, terminated, _, info = super().step(action)
        return observation, reward, terminated, truncated, info


class OldInterface(Sled):
    """Four values, as before Gym 0.26."""

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, terminated or truncated, info


class ResetsItself(Sled):
    """Resets in the step that ends an episode, so its last observation is the first of the next."""

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        if terminated or truncated:
            observation, info = self.reset()
        return observation, reward, terminated, truncated, info


# -- seeds and resets --------------------------------------------------------------------------------------------------


class GlobalRandom(Sled):
    """bluesky-gym #43: np.random instead of self.np_random."""

    def push(self, force):
        self.speed = float(np.clip(self.speed + 0.1 * force + np.random.normal(0, 0.02), -0.2, 0.2))  # noqa: NPY002
        self.position += self.speed


class OwnGenerator(Sled):
    """A generator of its own, without a seed."""

    def __init__(self):
        super().__init__()
        self.rng = np.random.default_rng()

    def push(self, force):
        self.speed = float(np.clip(self.speed + 0.1 * force + self.rng.normal(0, 0.02), -0.2, 0.2))
        self.position += self.speed


class SeedsOnce(Sled):
    """Only the first seed counts, as the generator is there at the second reset."""

    rng = None

    def reset(self, *, seed=None, options=None):
        if self.rng is None:
            self.rng = np.random.default_rng(seed)
        self._np_random = self.rng
        return super().reset(options=options)


class AlwaysTheSameSeed(Sled):
    """Seeds at each reset, also without being asked: every episode is the first one."""

    seed = 0

    def reset(self, *, seed=None, options=None):
        self.seed = self.seed if seed is None else seed
        return super().reset(seed=self.seed, options=options)


class KeepsSpeed(Sled):
    """mjlab #170, in which air times went on: reset() forgets a part of the state."""

    def __init__(self):
        super().__init__()
        self.speed = 0.0

    def reset(self, *, seed=None, options=None):
        speed = self.speed
        super().reset(seed=seed, options=options)
        self.speed = speed
        return self.observe(), {}


class Remembers(Corridor):
    """The right one of the next: observes the last actions."""

    def __init__(self):
        super().__init__()
        self.observation_space = spaces.MultiDiscrete([9, 3, 3])
        self.history = [2, 2]

    def reset(self, *, seed=None, options=None):
        self.history = [2, 2]
        return super().reset(seed=seed, options=options)

    def move(self, action):
        self.history = [self.history[-1], int(action)]
        return super().move(action)

    def observe(self):
        return np.array([self.cell, *self.history])


class KeepsHistory(Remembers):
    """DACBench #94: the first observation holds the last actions of the episode before."""

    def reset(self, *, seed=None, options=None):
        return Corridor.reset(self, seed=seed, options=options)


class SharedByClass(Remembers):
    """The history is an attribute of the class, and changed in place: all environments have one."""

    shared: ClassVar[list] = [2, 2]

    def reset(self, *, seed=None, options=None):
        self.shared[:] = [2, 2]
        return Corridor.reset(self, seed=seed, options=options)

    def move(self, action):
        self.shared[:] = [self.shared[-1], int(action)]
        return Corridor.move(self, action)

    def observe(self):
        return np.array([self.cell, *self.shared])


class SharedDefault(Remembers):
    """A list as default argument: all environments have that one."""

    def __init__(self, history=[2, 2]):  # noqa: B006 (that is the bug)
        super().__init__()
        self.history = history

    def reset(self, *, seed=None, options=None):
        self.history[:] = [2, 2]
        return Corridor.reset(self, seed=seed, options=options)

    def move(self, action):
        self.history[:] = [self.history[-1], int(action)]
        return Corridor.move(self, action)


class Saves(Sled):
    """The right one of the next: can be saved."""

    def get_state(self):
        return {"state": [self.position, self.speed, self.steps]}

    def set_state(self, state):
        self.position, self.speed, self.steps = state["state"]


class SavesHalf(Saves):
    """A part of the state that came later was never added to what is saved."""

    def get_state(self):
        return {"state": [self.position, self.steps]}

    def set_state(self, state):
        self.position, self.steps = state["state"]


# -- actions, masks and infos ------------------------------------------------------------------------------------------


class ClipsInPlace(Sled):
    """Scales the array of the caller, so that the replay memory holds another action than was chosen."""

    def step(self, action):
        action *= 0.5
        return super().step(action)


class ShowsAction(Sled):
    """The right one of the next: observes the last action."""

    def reset(self, *, seed=None, options=None):
        self.last = np.zeros(1, np.float32)
        return super().reset(seed=seed, options=options)

    def step(self, action):
        before = self.last
        self.last = np.array(action, np.float32)
        observation, reward, *rest = super().step(action)
        return observation, reward - 0.1 * float(abs(self.last[0] - before[0])), *rest


class KeepsTheAction(ShowsAction):
    """Keeps the array of the caller, who writes the next action into it."""

    def step(self, action):
        before = self.last
        self.last = action
        observation, reward, *rest = Sled.step(self, action)
        return observation, reward - 0.1 * float(abs(self.last[0] - before[0])), *rest


class OverwritesAction(Corridor):
    """A name that is used twice: the action is never read."""

    def move(self, action):
        for action in range(2):
            direction = (-1, 1)[action]
        return direction


class OneInfo(Sled):
    """Gymnasium #1683 (Humanoid): one dict for all steps."""

    def __init__(self):
        super().__init__()
        self.shared = {}

    def info(self):
        self.shared["steps"] = self.steps
        return self.shared


class Masked(Corridor):
    """The right one of the next: does not walk into the end on the left."""

    def info(self):
        return {"action_mask": np.array([self.cell > 1, True], np.int8)}


class AllowsNothing(Masked):
    """In the middle both conditions fail."""

    def info(self):
        return {"action_mask": np.array([self.cell > 4, self.cell < 4], np.int8)}


class MaskOneShort(Masked):
    """The mask leaves out what is always allowed."""

    def info(self):
        return {"action_mask": np.array([self.cell > 1], np.int8)}


MUTANTS: tuple[EnvMutant, ...] = (
    EnvMutant(OneArray, Sled, Cause.OBSERVATION_CHANGES_LATER),
    EnvMutant(HandsOutItsState, KeepsState, Cause.SHARED_MEMORY),
    EnvMutant(WideObservation, Sled, Cause.OUTSIDE_OF_SPACE),
    EnvMutant(SpaceTooSmall, Sled, Cause.OUTSIDE_OF_SPACE),
    EnvMutant(DividesByZero, Sled, Cause.OUTSIDE_OF_SPACE),
    EnvMutant(LeafOnlyAtReset, Compass, Cause.OUTSIDE_OF_SPACE),
    EnvMutant(CountsFromZero, Floors, Cause.OUTSIDE_OF_SPACE),
    EnvMutant(ForgetsTheStartOfActions, Floors, Cause.CANNOT_RUN),
    EnvMutant(OneStepOld, Sled, Cause.ADVICE),
    EnvMutant(RunsOver, Fuel, Cause.ADVICE),
    EnvMutant(OneRunnerIsIgnored, TwoRunners, Cause.ADVICE),
    EnvMutant(RewardInArray, KeepsState, Cause.BAD_REWARD),
    EnvMutant(LogOfZero, RightLog, Cause.BAD_REWARD),
    EnvMutant(FlagsAreNumbers, Sled, Cause.BAD_ENDS),
    EnvMutant(TimeIsTerminal, Sled, Cause.TIME_LIMIT_AS_TERMINATION),
    EnvMutant(CountdownIsTerminal, Countdown, Cause.TIME_LIMIT_AS_TERMINATION),
    EnvMutant(FarLimitIsTerminal, FarLimit, Cause.TIME_LIMIT_AS_TERMINATION),
    EnvMutant(OneStepMore, Sled, Cause.BAD_ENDS),
    EnvMutant(OldInterface, Sled, Cause.CANNOT_RUN),
    EnvMutant(ResetsItself, Sled, Cause.FINAL_OBSERVATION_LOST),
    EnvMutant(GlobalRandom, Sled, Cause.SEED_IGNORED),
    EnvMutant(OwnGenerator, Sled, Cause.SEED_IGNORED),
    EnvMutant(SeedsOnce, Sled, Cause.SEED_IGNORED),
    EnvMutant(AlwaysTheSameSeed, Sled, Cause.EPISODES_REPEAT),
    EnvMutant(KeepsSpeed, Sled, Cause.NEVER_RESET),
    EnvMutant(KeepsHistory, Remembers, Cause.NEVER_RESET),
    EnvMutant(SharedByClass, Remembers, Cause.ENVIRONMENTS_SHARE),
    EnvMutant(SharedDefault, Remembers, Cause.ENVIRONMENTS_SHARE),
    EnvMutant(SavesHalf, Saves, Cause.INCOMPLETE_STATE),
    EnvMutant(ClipsInPlace, Sled, Cause.INPUT_CHANGED),
    EnvMutant(KeepsTheAction, ShowsAction, Cause.SHARED_MEMORY),
    EnvMutant(OverwritesAction, Corridor, Cause.ACTION_IGNORED),
    EnvMutant(OneInfo, Sled, Cause.INFO_CHANGES_LATER),
    EnvMutant(AllowsNothing, Masked, Cause.NOTHING_ALLOWED),
    EnvMutant(MaskOneShort, Masked, Cause.BAD_MASK),
    *MANY,
)
