"""Environments that take actions of every kind, and refuse any that does not lie in their space."""

import gymnasium
import numpy as np
from gymnasium import spaces as gym

INF = np.inf
EVERYTHING = "tests.envs.acting:rlweave-tests/Everything-v0"
COUNTABLE = "tests.envs.acting:rlweave-tests/Countable-v0"

COUNTED = {
    "binary": gym.MultiBinary(3),
    "byte": gym.Box(0, 3, (2,), np.uint8),
    "discrete": gym.Discrete(3, start=-1),
    "grid": gym.MultiDiscrete([2, 3], start=[5, -1]),
    "integer": gym.Box(-10, 10, (1,), np.int64),
    "nested": gym.Dict(inner=gym.Tuple([gym.Discrete(2), gym.MultiBinary(1)])),
    "scalar": gym.Box(-3, -1, (), np.int64),
}
FLOATS = {
    "exact": gym.Box(-0.3, 0.1, (), np.float64),
    "free": gym.Box(-INF, INF, (2,), np.float32),
    "huge": gym.Box(-3e38, 3e38, (1,), np.float32),
    "large": gym.Box(-1e6, 1e6, (1,), np.float32),
    "mixed": gym.Box(np.float32([-1, -INF, 0, 100, -INF, 2]), np.float32([1, INF, INF, INF, -3, 2]), dtype=np.float32),
    "offset": gym.Box(100, 200, (1,), np.float32),
    "small": gym.Box(-0.01, 0.01, (1,), np.float32),
    "tiny": gym.Box(-1e-6, 1e-6, (1,), np.float32),
}
BOXES = "tests.envs.acting:rlweave-tests/Boxes-v0"
SPACES = {
    EVERYTHING: gym.Dict(COUNTED | FLOATS),
    COUNTABLE: gym.Dict(COUNTED),
    BOXES: gym.Dict(
        FLOATS | {"nested": gym.Tuple([gym.Box(-2, 2, (2, 2), np.float32), gym.Dict(one=gym.Box(0, 9, ()))])}
    ),
}


class Taker(gymnasium.Env):
    """Takes actions, and keeps those that it is given in `Taker.taken`, which all objects share.

    Args:
        action_space: The actions.
        length: Steps of an episode. The reward is 1 each.
    """

    taken = []

    def __init__(self, action_space=SPACES[EVERYTHING], length=8):
        self.observation_space = gym.Box(-1, 1, (2,), np.float32)
        self.action_space, self.length = action_space, length

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._observation(), {}

    def step(self, action):
        if not self.action_space.contains(action):
            raise ValueError(f"an action outside of the space: {action!r}")
        self.taken.append(action)
        self.steps += 1
        return self._observation(), 1.0, False, self.steps == self.length, {}

    def _observation(self):
        return self.np_random.uniform(-1, 1, 2).astype(np.float32)


class TakerPair:
    """Two agents, each of which acts as in `Taker`: `any` with everything, `counter` with what can be counted."""

    possible_agents = ["any", "counter"]

    def __init__(self):
        self._envs = {"any": Taker(), "counter": Taker(SPACES[COUNTABLE])}
        self.agents = []

    def observation_space(self, agent):
        return self._envs[agent].observation_space

    def action_space(self, agent):
        return self._envs[agent].action_space

    def reset(self, seed=None, options=None):
        self.agents = list(self.possible_agents)
        return {agent: env.reset(seed=seed)[0] for agent, env in self._envs.items()}, {a: {} for a in self._envs}

    def step(self, actions):
        results = {agent: env.step(actions[agent]) for agent, env in self._envs.items()}
        if any(result[3] for result in results.values()):
            self.agents = []
        return tuple({agent: result[part] for agent, result in results.items()} for part in range(5))

    def close(self):
        pass


for name, space in SPACES.items():
    gymnasium.register(name.split(":")[1], f"{__name__}:Taker", kwargs={"action_space": space})


def leaves(space, values):
    """(path, space, values (N, *shape)) of each leaf of many values of a Gymnasium space."""
    if isinstance(space, gym.Dict | gym.Tuple):
        children = space.spaces.items() if isinstance(space, gym.Dict) else enumerate(space.spaces)
        for key, child in children:
            for path, leaf, found in leaves(child, [value[key] for value in values]):
                yield f"{key}/{path}".rstrip("/"), leaf, found
    else:
        yield "", space, np.array(values, np.float64)


def check_covered(space, actions):
    """Checks that many actions lie in a Gymnasium space, and that its whole range is among them."""
    assert all(space.contains(action) for action in actions)
    for path, leaf, values in leaves(space, actions):
        low, high = _range(leaf)
        for at in np.ndindex(leaf.shape):
            column, least, most = values[(slice(None), *at)], low[at], high[at]
            where = f"{path}{list(at)} in [{least}, {most}]: {column.min()} to {column.max()}"
            if not np.issubdtype(leaf.dtype, np.floating):
                assert set(column) == set(np.arange(least, most + 1)), where
            elif np.isfinite(least) and np.isfinite(most):
                middle, half = least / 2 + most / 2, most / 2 - least / 2
                own = (column - middle) / (half or 1)
                bins = np.histogram(own, 10, (-1.0001, 1.0001))[0]
                assert (bins > len(own) / 100).all() or not half, where
                assert np.abs(own).mean() > 0.4 or not half, where
            elif np.isfinite(least) or np.isfinite(most):
                nearest = np.clip(0, least, most)  # where it begins to look
                assert np.abs(column - nearest).max() < 10, where
                assert column.std() > 0.3, where
            else:
                assert 0.5 < column.std() < 2, where


def _range(leaf):
    """Lowest and highest values of a leaf, of its shape."""
    if isinstance(leaf, gym.Box):
        return leaf.low.astype(np.float64), leaf.high.astype(np.float64)
    if isinstance(leaf, gym.MultiBinary):
        return np.zeros(leaf.shape), np.ones(leaf.shape)
    numbers = leaf.n if isinstance(leaf, gym.Discrete) else leaf.nvec
    return np.asarray(leaf.start, np.float64), np.asarray(leaf.start + numbers - 1, np.float64)


class Lights(gymnasium.Env):
    """Shows what to do: the reward is the share of components of the action that equal what is seen.

    Args:
        length: Steps of an episode.
    """

    def __init__(self, length=4):
        self.observation_space = gym.Box(-1, 2, (5,), np.float32)
        self.action_space = gym.Dict(grid=gym.MultiDiscrete([2, 3]), switches=gym.MultiBinary(3))
        self.length = length

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._look(), {}

    def step(self, action):
        right = np.concatenate([action["grid"], action["switches"]]) == self.shown
        self.steps += 1
        return self._look(), float(right.mean()), False, self.steps == self.length, {}

    def _look(self):
        self.shown = self.np_random.integers(0, [2, 3, 2, 2, 2])
        return self.shown.astype(np.float32)


gymnasium.register("rlweave-tests/Lights-v0", f"{__name__}:Lights")
LIGHTS = "tests.envs.acting:rlweave-tests/Lights-v0"


class Pointing(gymnasium.Env):
    """Shows a column of an image and a direction: the action has to point there; the reward is minus the distance.

    Distances are in shares of the box, of the mean component; who always takes the middle has about -0.59 a step.

    Args:
        length: Steps of an episode.
    """

    def __init__(self, length=4):
        image = gym.Box(0, 255, (5, 5, 1), np.uint8)
        self.observation_space = gym.Dict(image=image, left=gym.Discrete(2))
        self.action_space = gym.Dict(
            aim=gym.Box(-3, 3, (), np.float32), turn=gym.Tuple([gym.Box(0, 10, (2,), np.float32)])
        )
        self.length = length

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._look(), {}

    def step(self, action):
        own = np.array([action["aim"] / 3, *(action["turn"][0] / 5 - 1)])
        distance = np.abs(own - self.goal).mean()
        self.steps += 1
        return self._look(), -float(distance), False, self.steps == self.length, {}

    def _look(self):
        column, left = self.np_random.integers(0, [5, 2])
        image = np.zeros((5, 5, 1), np.uint8)
        image[:, column] = 255
        self.goal = np.array([(column - 2) / 2.5, 0.8 if left else -0.8, (column - 2) / 2.5])
        return {"image": image, "left": left}


gymnasium.register("rlweave-tests/Pointing-v0", f"{__name__}:Pointing")
POINTING = "tests.envs.acting:rlweave-tests/Pointing-v0"
