"""Environments and callbacks of a user's module."""

import gymnasium
import numpy as np
from gymnasium import spaces

CALLS = []


class Walk(gymnasium.Env):
    """Right is 1: the return of five steps is the number of steps to the right."""

    observation_space = spaces.Box(0, 5, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, steps=5):
        self.steps = steps

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.at += 1
        return np.full(1, self.at % 6, np.float32), float(action), self.at >= self.steps, False, {}


class Drawn(Walk):
    """Draws itself: the step is the brightness."""

    metadata = {"render_modes": ["rgb_array", "human"], "render_fps": 10}
    shown = 0

    def __init__(self, render_mode=None):
        super().__init__()
        self.render_mode = render_mode

    def step(self, action):
        Drawn.shown += self.render_mode == "human"
        return super().step(action)

    def render(self):
        return np.full((33, 48, 3), 40 * self.at, np.uint8)


def make_walk(steps=5):
    return Walk(steps)


class Telling:
    """Notes what it is told, and adds a metric."""

    def on_report(self, run, report):
        CALLS.append(("report", run.env_steps))
        return {"telling": 2.5}

    def on_evaluation(self, run, report):
        CALLS.append(("evaluation", report["evaluation_return"]))
        return {"half": report["evaluation_return"] / 2}

    def on_checkpoint(self, run, path):
        CALLS.append(("checkpoint", path.name))

    def on_end(self, run):
        CALLS.append(("end", run.ended))


class Failing:
    def on_evaluation(self, run, report):
        return {"share": 1 / 0}


class Nothing:
    pass
