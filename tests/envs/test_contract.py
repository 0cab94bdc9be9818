"""What an environment returns is taken as it is meant, or is an error that names it; never another number."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rlweave.envs import VectorEnv, make_env
from rlweave.errors import EnvError
from tests.envs.test_transitions import Wrapped


class Returns(gymnasium.Env):
    """Gives what it is told to give: at the reset, and in the second step of an episode."""

    def __init__(self, space: spaces.Space, first: Any, second: Any = None, **step: Any) -> None:
        self.observation_space, self.action_space = space, spaces.Discrete(2)
        self._first, self._second, self._values = first, first if second is None else second, step
        self._step = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self._step = 0
        return self._first, {"mask": [1, 1]}

    def step(self, action: Any) -> Any:
        self._step += 1
        values = {"reward": 0.0, "terminated": False, "truncated": False, "info": {"mask": [1, 1]}}
        if self._step == 2:
            values.update(self._values)
        observation = self._second if self._step == 2 else self._first
        return observation, values["reward"], values["terminated"], values["truncated"], values["info"]


def wrapped(factories: list[Callable[[], gymnasium.Env]]) -> gymnasium.vector.VectorEnv:
    return Wrapped(SyncVectorEnv(factories, autoreset_mode=AutoresetMode.SAME_STEP))


KINDS: dict[str, Callable[[list[Callable[[], gymnasium.Env]]], VectorEnv]] = {
    "sync": lambda factories: make_env(factories, seed=0),
    "async": lambda factories: make_env(factories, vectorization="async", seed=0),
    "next_step": lambda factories: make_env(factories, seed=0, autoreset="next_step"),
    "same_step": lambda factories: make_env(factories, seed=0, autoreset="same_step"),
    "disabled": lambda factories: make_env(factories, seed=0, autoreset="disabled"),
    "async-gymnasium": lambda factories: make_env(factories, vectorization="async", seed=0, autoreset="next_step"),
    "passed-in": lambda factories: make_env(SyncVectorEnv(factories), seed=0),
    "wrapped": lambda factories: make_env(wrapped(factories), seed=0),
}
QUICK = [kind for kind in KINDS if "async" not in kind]


def failure(kind: str, good: functools.partial, bad: functools.partial, steps: int) -> str:
    """What is said of environment 1, which misbehaves in the last of some steps (0: in the reset)."""
    with KINDS[kind]([good, bad]) as env:
        if steps == 0:
            with pytest.raises(EnvError) as caught:
                env.reset()
            return str(caught.value)
        env.reset()
        for _ in range(steps - 1):
            env.step(np.zeros(2, np.int32))
        with pytest.raises(EnvError) as caught:
            env.step(np.zeros(2, np.int32))
    return str(caught.value)


SMALL, BYTES, WIDE = (
    spaces.Box(0, 10, (2,), np.int32),
    spaces.Box(0, 255, (2,), np.uint8),
    spaces.Box(0, 100, (2,), np.int64),
)
OUTSIDE = {
    "int64-into-uint8": (BYTES, np.array([3, 300]), "300 at [1]"),
    "negative-into-uint8": (BYTES, np.array([-1, 3]), "-1 at [0]"),
    "int64-into-int32": (SMALL, np.array([2**32 + 7, 0]), "4294967303 at [0]"),
    "same-dtype": (SMALL, np.array([0, 50], np.int32), "50 at [1]"),
    "int64-space": (WIDE, np.array([0, 101]), "101 at [1]"),
    "uint64": (SMALL, np.array([0, 2**63 + 1], np.uint64), "9223372036854775809 at [1]"),
    "discrete": (spaces.Discrete(3, start=2), np.int64(5), "3"),
    "binary": (spaces.MultiBinary(2), np.array([0, 2], np.int8), "2 at [1]"),
}


def nested(space: spaces.Space, value: Any) -> tuple[spaces.Space, Any]:
    other = spaces.Box(-1, 1, (1,), np.float32)
    return spaces.Dict({"a": other, "b": spaces.Tuple([other, space])}), {
        "a": np.zeros(1, np.float32),
        "b": (np.zeros(1, np.float32), value),
    }


@pytest.mark.parametrize("steps", [0, 2])
@pytest.mark.parametrize("case", OUTSIDE)
@pytest.mark.parametrize("kind", QUICK)
def test_integers_outside_of_their_box_are_refused(kind: str, case: str, steps: int) -> None:
    space, outside, told = OUTSIDE[case]
    inside = space.low.copy() if isinstance(space, spaces.Box) else space.sample()
    within, first = nested(space, inside)
    last = nested(space, outside)[1]
    good = functools.partial(Returns, within, first)
    bad = functools.partial(Returns, within, last if steps == 0 else first, last)
    said = failure(kind, good, bad, steps)
    for part in ("environment 1", "reset" if steps == 0 else "step 2", "leaf 'b/1'", told):
        assert part in said


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*(Received the following error|Traceback|Raising the last):UserWarning")
@pytest.mark.parametrize("kind", ["async", "async-gymnasium"])
def test_integers_outside_of_their_box_are_refused_in_processes(kind: str) -> None:
    good = functools.partial(Returns, BYTES, np.zeros(2, np.uint8))
    bad = functools.partial(Returns, BYTES, np.zeros(2, np.uint8), np.array([0, 300]))
    said = failure(kind, good, bad, 2)
    for part in ("environment 1", "step 2", "300 at [1]"):
        assert part in said


@pytest.mark.parametrize("kind", QUICK)
def test_the_ends_of_a_box_belong_to_it(kind: str) -> None:
    space = spaces.Tuple([SMALL, BYTES, WIDE, spaces.Box(-3, 3, (), np.int8), spaces.MultiBinary(1)])
    first = (np.array([0, 10]), np.array([0, 255]), np.array([0, 100], np.uint64), np.int64(-3), np.array([1]))
    with KINDS[kind]([functools.partial(Returns, space, first)] * 2) as env:
        env.reset()
        observed = env.step(np.zeros(2, np.int32)).observations
    assert [leaf[1].tolist() for leaf in observed] == [[0, 10], [0, 255], [0, 100], -3, [True]]
    assert [leaf.dtype for leaf in observed] == [np.int32, np.uint8, np.int32, np.int32, np.bool_]


FLOATS = spaces.Box(-1, 1, (1,), np.float32)
ZERO = np.zeros(1, np.float32)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"reward": 1e39}, "the reward is 1e+39, beyond 3.4e+38"),
        ({"reward": np.nan}, "the reward is nan"),
        ({"reward": np.array([-np.inf])}, "the reward is -inf"),
        ({"reward": 10**400}, "the reward must be one number"),
        ({"reward": None}, "received: None (of type NoneType)"),
        ({"reward": "1.0"}, "received: '1.0' (of type str)"),
        ({"reward": 1j}, "the reward must be one number"),
        ({"reward": np.zeros(2)}, "an array of shape (2,) and dtype float64"),
        ({"terminated": "False"}, "terminated must be True or False"),
        ({"terminated": None}, "received: None (of type NoneType)"),
        ({"truncated": 2}, "truncated must be True or False"),
        ({"truncated": 0.0}, "received: 0.0 (of type float)"),
        ({"truncated": np.zeros(2, bool)}, "an array of shape (2,) and dtype bool"),
        ({"info": None}, "step() must return observation, reward, terminated, truncated and info"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("kind", ["sync", "same_step", "passed-in"])
def test_rewards_and_flags_are_what_they_must_be(kind: str, values: dict[str, Any], told: str) -> None:
    good, bad = (functools.partial(Returns, FLOATS, ZERO, **own) for own in ({}, values))
    said = failure(kind, good, bad, 2)
    for part in ("environment 1", "step 2", told):
        assert part in said


@pytest.mark.parametrize("kind", [*QUICK, pytest.param("async", marks=pytest.mark.slow)])
def test_what_can_be_meant_in_one_way_only_is_taken(kind: str) -> None:
    values = {"reward": np.array([1.5], np.float32), "terminated": np.array([0]), "truncated": np.bool_(True)}
    with KINDS[kind]([functools.partial(Returns, FLOATS, ZERO, **values)] * 2) as env:
        env.reset()
        env.step(np.zeros(2, np.int32))
        result = env.step(np.zeros(2, np.int32))
    assert result.rewards.tolist() == [1.5, 1.5]
    assert result.terminated.tolist() == [False, False]
    assert result.truncated.tolist() == [True, True]
    assert [episode.episode_return for episode in result.episodes] == [1.5, 1.5]


class ForeignVector(gymnasium.vector.VectorEnv):
    """A vector environment that is not Gymnasium's own."""

    def __init__(self, rewards: Any, terminated: Any) -> None:
        self.num_envs, self.metadata = 2, {"autoreset_mode": AutoresetMode.SAME_STEP}
        self.single_observation_space, self.single_action_space = BYTES, spaces.Discrete(2)
        self.observation_space, self.action_space = spaces.Box(0, 255, (2, 2), np.uint8), spaces.MultiDiscrete([2, 2])
        self._rewards, self._terminated = rewards, terminated

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return np.zeros((2, 2), np.uint8), {}

    def step(self, actions: Any) -> Any:
        return np.zeros((2, 2), np.uint8), self._rewards, self._terminated, np.zeros(2, bool), {}


@pytest.mark.parametrize(
    ("rewards", "terminated", "told"),
    [
        (np.zeros(3), np.zeros(2, bool), "one number for each sub-environment"),
        (np.zeros((1, 2)), np.zeros(2, bool), "an array of shape (1, 2)"),
        (["a", "b"], np.zeros(2, bool), "one number for each sub-environment"),
        (np.zeros(2), np.array(["False", "False"]), "terminated must be one flag for each sub-environment"),
        (np.zeros(2), [None, None], "terminated must be one flag for each sub-environment"),
    ],
)
def test_rewards_and_flags_of_other_vector_environments(rewards: Any, terminated: Any, told: str) -> None:
    env = make_env(ForeignVector(rewards, terminated))
    env.reset()
    with pytest.raises(EnvError) as caught:
        env.step(np.zeros(2, np.int32))
    assert told in str(caught.value)
    with make_env(ForeignVector(np.ones((2, 1)), [0, 0])) as env:
        env.reset()
        assert env.step(np.zeros(2, np.int32)).rewards.tolist() == [1.0, 1.0]


# ---- the interface of Gym before 0.26 ------------------------------------------------------------------------------


class FourValues(Returns):
    def step(self, action: Any) -> Any:
        observation, reward, terminated, _, info = super().step(action)
        return observation, reward, terminated, info


class ObservationOnly(Returns):
    def reset(self, **options: Any) -> Any:
        return super().reset(**options)[0]


class NoArguments(Returns):
    def reset(self) -> Any:  # type: ignore[override]
        return self._first


class NoSpace(Returns):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        del self.observation_space


PAIR = spaces.Box(-1, 1, (2,), np.float32)


@pytest.mark.parametrize("wrap", [lambda env: env, lambda env: gymnasium.wrappers.TimeLimit(env, 5), "info_mask"])
@pytest.mark.parametrize("old", [FourValues, ObservationOnly, NoArguments])
def test_the_interface_of_old_gym_is_named(old: type[Returns], wrap: Any) -> None:
    def factory() -> Any:
        env = old(PAIR, np.zeros(2, np.float32))
        return env if wrap == "info_mask" else wrap(env)

    def play() -> None:
        with make_env(factory, 2, info_mask="mask" if wrap == "info_mask" else None) as env:
            env.reset()
            env.step(np.zeros(2, np.int32))

    with pytest.raises(EnvError, match="the interface of Gym before 0.26") as caught:
        play()
    assert "return observation, info from reset" in str(caught.value)
    assert "environment 0" in str(caught.value)


@pytest.mark.parametrize("kind", ["sync", "same_step", pytest.param("async", marks=pytest.mark.slow)])
def test_a_missing_space_is_named(kind: str) -> None:
    with pytest.raises(EnvError, match=r"(?s)no observation_space of Gymnasium.*self.observation_space"):
        KINDS[kind]([functools.partial(NoSpace, PAIR, ZERO)])


@pytest.mark.parametrize("made", [lambda: None, lambda: Returns])
def test_what_is_no_environment_is_named(made: Callable[[], Any]) -> None:
    with pytest.raises(EnvError, match=r"what was made is no environment(?s:.*)(class Returns|NoneType)"):
        make_env(made)


# ---- one object, one place -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrap", [lambda env: env, lambda env: gymnasium.wrappers.TimeLimit(env, 5)])
@pytest.mark.parametrize("kind", QUICK)
def test_one_environment_is_not_stepped_by_two(kind: str, wrap: Any) -> None:
    one = Returns(PAIR, np.zeros(2, np.float32))
    with pytest.raises(EnvError, match=r"(?s)two sub-environments are one object.*environments 0 and 1"):
        KINDS[kind]([lambda: wrap(one)] * 2)


def test_an_environment_in_use_is_not_used_by_another() -> None:
    one = Returns(PAIR, np.zeros(2, np.float32))
    vector = ForeignVector(np.zeros(2), np.zeros(2, bool))
    for again in (lambda: make_env(lambda: one), lambda: make_env(lambda: vector, vectorization="custom")):
        first = again()
        with pytest.raises(EnvError, match=r"(?s)in use already.*evaluations, too"):
            again()
        first.close()
        again().close()  # now it is free
        second = again()
        del second  # also of one that nobody closed
        again().close()
