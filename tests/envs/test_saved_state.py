"""An environment that is saved and loaded goes on as if nothing had happened."""

from __future__ import annotations

import collections
import enum
import functools
import json
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest

from rlweave.envs import VectorEnv, make_env
from rlweave.envs.multi_agent import MultiAgentEnv
from rlweave.envs.object_state import NotData, capture
from rlweave.envs.parallel_api import make_parallel_env
from rlweave.envs.restoring import restore
from rlweave.errors import EnvError
from rlweave.runs.states import join_arrays, split_arrays
from tests.envs.faulty_envs import Counting, Mutating
from tests.envs.parallel_fakes import together
from tests.envs.test_transitions import KINDS


def through_a_file(state: Any) -> Any:
    """The state as it comes back from a checkpoint; arrays are copies, as the environment goes on meanwhile."""
    arrays: dict[str, np.ndarray] = {}
    text = json.dumps(split_arrays(state, "env", arrays), allow_nan=False)
    return join_arrays(json.loads(text), {path: array.copy() for path, array in arrays.items()})


def steps_of(env: VectorEnv, steps: int) -> list[Any]:
    """Everything that some steps give, as text: equal only where every bit is."""
    told = []
    for _ in range(steps):
        actions = env.sample_actions()
        result = env.step(actions)
        told.append(repr((actions, result._replace(infos=list(result.infos)), list(env.infos))))
    return [*told, repr((env.tracker.recent, env.tracker.steps, env.tracker.current_returns))]


SAVED = {name: kind for name, kind in KINDS.items() if not name.startswith("async-")}


@pytest.mark.parametrize("kind", SAVED)
def test_every_kind_goes_on_where_it_was(kind: str) -> None:
    with SAVED[kind](lambda: Counting(0)) as env, SAVED[kind](lambda: Counting(0)) as other:
        env.reset()
        steps_of(env, 7)
        state = env.save_state()
        assert state is not None, env.unsaved_because
        state = through_a_file(state)
        expected = steps_of(env, 12)
        other.load_state(state)
        assert other.has_started
        assert steps_of(other, 12) == expected
        env.load_state(state)  # also into one that has gone on
        assert steps_of(env, 12) == expected


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Walls(enum.Flag):
    LEFT = 1
    RIGHT = 2


Point = collections.namedtuple("Point", "x y")


class Thing:
    """A part of an environment, of which there are more and more."""

    __slots__ = ("__secret", "place")

    def __init__(self, place: Any, secret: float) -> None:
        self.place, self.__secret = place, secret

    def value(self) -> float:
        return float(self.place) + self.__secret


class Screen:
    """Its only attribute has the name that stands for arrays in checkpoints."""

    def __init__(self) -> None:
        self.array = np.zeros(2)


class Rich(Counting):
    """Has attributes of all kinds; the rewards depend on each."""

    def __init__(self) -> None:
        super().__init__(0)
        self.things: list[Thing] = []
        self.grid = np.zeros((3, 3))
        self.row = self.grid[1]  # shares memory
        self.queue: collections.deque[float] = collections.deque(maxlen=2)
        self.counts = collections.defaultdict(int)
        self.seen: set[int] = set()
        self.colour, self.point = Colour.RED, Point(0, 0.5)
        self.walls, self.screen = Walls.LEFT, Screen()
        self.old = np.random.RandomState(1)
        self.best, self.step_size = -np.inf, np.float32(0.1)
        self.me, self.draw = self, self.old.random_sample
        self.names = np.array(["a", "b"])
        self.maker: Callable[[], float] | None = None

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = super().step(action)
        if int(action) or not self.things:
            self.things.append(Thing(np.float64(reward), self.draw()))
        self.row[:] += self.np_random.random(3)
        self.queue.append(float(self.grid.sum()))
        self.counts[int(action)] += 1
        self.seen.add(len(self.things))
        self.colour = Colour.BLUE if self.colour is Colour.RED else Colour.RED
        self.walls |= Walls.RIGHT
        self.screen.array += 1
        self.point = self.point._replace(x=self.point.x + self.observation_space.sample()[0])
        self.best = max(self.best, reward)
        self.names[0] = "c"
        total = [sum(thing.value() for thing in self.things), self.grid[1].sum(), sum(self.queue), len(self.seen)]
        total += [self.colour.value, self.point.x, self.best, self.step_size, self.me._step, self.counts[1]]
        total += [len(self.walls), self.screen.array[0]]
        return observation, float(np.sum(total)), terminated, truncated, {**info, "names": "".join(self.names)}


class Offering(Counting):
    """Says itself what its state is; an attribute is no data."""

    def __init__(self) -> None:
        super().__init__(0)
        self._simulator = memoryview(b"that nobody can look into")

    def get_state(self) -> Any:
        return {"counts": (self._episode, self._step, self._this_length), "number": self._number}

    def set_state(self, state: Any) -> None:
        self._episode, self._step, self._this_length = state["counts"]
        self._number = state["number"]


class Opaque(Offering):
    set_state = None


class SaysNothing(Offering):
    def get_state(self) -> Any:
        return None


class Promised(Offering):
    def get_state(self) -> Any:
        raise NotImplementedError


class DrawsFromTheModule(Counting):
    def __init__(self) -> None:
        super().__init__(0)
        self.rng = np.random


class Large(Counting):
    def __init__(self) -> None:
        super().__init__(0)
        self.data_set = np.zeros(3 << 20)


@pytest.mark.parametrize(
    ("environment", "vectorization"), [(Rich, "sync"), (Offering, "sync"), (Mutating, "sync"), (Rich, "async")]
)
def test_attributes_of_every_kind(environment: type[gymnasium.Env], vectorization: str) -> None:
    def wrapped() -> Any:
        return gymnasium.wrappers.FrameStackObservation(gymnasium.wrappers.TimeLimit(environment(), 4), 2)

    with make_env(wrapped, 2, vectorization, seed=1) as env, make_env(wrapped, 2, vectorization, seed=5) as other:
        env.reset()
        steps_of(env, 9)
        state = env.save_state()
        assert state is not None, env.unsaved_because
        state = through_a_file(state)
        expected = steps_of(env, 9)
        other.load_state(state)
        assert steps_of(other, 9) == expected


NAMES = [
    *("CartPole-v1", "Pendulum-v1", "Acrobot-v1", "FrozenLake-v1", "Blackjack-v1"),
    *(
        f"rlweave/{name}-v0"
        for name in ("GridWorld", "Catch", "CueRecall", "MaskedRecall", "SineTasks", "PointNavigation")
    ),
]


@pytest.mark.parametrize("name", NAMES)
def test_registered_environments(name: str) -> None:
    with make_env(name, 2, seed=1) as env, make_env(name, 2) as other:
        env.reset()
        steps_of(env, 20)
        state = through_a_file(env.save_state())
        other.load_state(state)
        assert steps_of(other, 30) == steps_of(env, 30)


@pytest.mark.parametrize(
    ("environment", "why", "vectorization"),
    [
        (Opaque, "_simulator is a builtins.memoryview", "sync"),
        (Opaque, "_simulator is a builtins.memoryview", "async"),
        (SaysNothing, "get_state() that returns None", "sync"),
        (Promised, "get_state() that is not implemented", "async"),
        (DrawsFromTheModule, "rng is the module numpy.random", "sync"),
        (Large, "hold 24 MiB, more than 16", "sync"),
    ],
)
def test_what_cannot_be_saved_says_why_and_goes_on(environment: Any, why: str, vectorization: str) -> None:
    with make_env(environment, 2, vectorization, seed=1) as env:
        env.reset()
        assert env.save_state() is None
        assert why in env.unsaved_because
        assert "get_state" in env.unsaved_because
        env.step(env.sample_actions())


def test_a_state_of_another_environment_is_refused_and_changes_nothing() -> None:
    with make_env("CartPole-v1", 2, seed=1) as env, make_env(Rich, 2, seed=1) as other:
        for each in (env, other):
            each.reset()
        state = env.save_state()
        assert state is not None
        with pytest.raises(EnvError, match="does not fit"):
            other.load_state(state)
        other.reset()
        steps_of(other, 5)
    with make_env("CartPole-v1", 3, seed=1) as env, pytest.raises(EnvError, match="of 2 environments, not of 3"):
        env.load_state(state)


def test_a_state_names_no_class_that_the_environment_does_not_have() -> None:
    """A class with a destructor of its own would be a way to execute something."""
    import tempfile

    state = capture(Rich())
    name = f"{tempfile.__name__}:{tempfile._TemporaryFileCloser.__qualname__}"
    state["nodes"].append({"kind": "object", "type": name, "attributes": {"name": "something"}})
    state["nodes"][0]["attributes"]["point"] = {"node": len(state["nodes"]) - 1}
    with pytest.raises(NotData, match="does not have"):
        restore(state, Rich())


def test_a_function_that_is_another_in_the_new_one_is_refused() -> None:
    env = Rich()
    env.maker = lambda: 1.0
    with pytest.raises(NotData, match="maker is .*lambda"):
        restore(capture(env), Rich())


@pytest.mark.parametrize("name", ["rlweave/MultiCartPole-v0", "mpe2.simple_spread_v3"])
def test_several_agents(name: str) -> None:
    if name.startswith("mpe2"):
        pytest.importorskip("mpe2")

    def make(seed: int) -> MultiAgentEnv:
        return MultiAgentEnv([functools.partial(make_parallel_env, name)] * 2, together, seed=seed)

    def play(env: MultiAgentEnv, seed: int) -> list[str]:
        actions = np.random.default_rng(seed).integers(0, 2, (30, env.groups["all"].rows))
        return [repr((env.step({"all": row}), env.groups["all"].observations, env.joint_steps)) for row in actions]

    with make(1) as env, make(2) as other:
        env.reset()
        play(env, 0)
        state = env.save_state()
        assert state is not None, env.unsaved_because
        state = through_a_file(state)
        expected = play(env, 1)
        other.load_state(state)
        assert play(other, 1) == expected


def test_a_simulator_that_shows_its_memory() -> None:
    """MuJoCo: contacts and the model are part of what goes on."""
    pytest.importorskip("mujoco")
    with make_env("Ant-v5", 1, seed=1) as env, make_env("Ant-v5", 1, seed=2) as other:
        env.reset()
        steps_of(env, 40)
        state = env.save_state()
        assert state is not None, env.unsaved_because
        other.load_state(through_a_file(state))
        assert steps_of(other, 40) == steps_of(env, 40)
