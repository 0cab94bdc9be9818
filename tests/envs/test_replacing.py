"""A lost process of an environment is named, and another takes its place; the others go on as if nothing was."""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from rlweave.envs import AsyncEnv, StepResult, make_env
from rlweave.errors import ConfigError, EnvError, EnvWarning
from tests.envs.faulty_envs import Counting, FailsAtStep

ACTIONS = np.array([0, 1, 1], np.int32)
THREE = [functools.partial(Counting, 5)] * 3


def begun(factories: Any = THREE, **options: Any) -> AsyncEnv:
    env = make_env(factories, vectorization="async", seed=3, on_loss="replace", **options)
    assert isinstance(env, AsyncEnv)
    env.reset()
    return env


def kill(env: AsyncEnv, row: int) -> None:
    """Kills a process, and waits until it has ended."""
    os.kill(env._processes[row].pid, signal.SIGKILL)
    env._processes[row].process.join()


def lose(env: AsyncEnv, row: int) -> StepResult:
    kill(env, row)
    with pytest.warns(EnvWarning, match=rf"(?s)SIGKILL.*environment {row}, step .*action.*takes its place"):
        return env.step(ACTIONS)


def test_the_lost_step_cuts_the_episode_and_the_others_do_not_notice() -> None:
    with begun() as env, make_env(THREE, seed=3) as whole:
        whole.reset()
        acted_on = env.step(ACTIONS).observations
        whole.step(ACTIONS)
        process = env._processes[1].pid
        result, other = lose(env, 1), whole.step(ACTIONS)
        assert env._processes[1].pid != process
        assert result.valid.all()
        assert result.rewards[1] == 0.0
        np.testing.assert_array_equal(result.truncated, [False, True, False])
        np.testing.assert_array_equal(result.episode_start, [False, True, False])
        np.testing.assert_array_equal(result.next_observations[1], acted_on[1])
        np.testing.assert_array_equal(result.observations[1][:2], [1, 0])  # its first episode, before the first step
        assert [(episode.env, episode.length, episode.terminated) for episode in result.episodes] == [(1, 2, False)]
        for _ in range(8):
            result, other = env.step(ACTIONS), whole.step(ACTIONS)
            for one, same in zip(result[:5], other[:5], strict=True):
                np.testing.assert_array_equal(one[[0, 2]], same[[0, 2]])
        assert env.tracker.steps == whole.tracker.steps == 30


def test_processes_lost_in_a_row_begin_with_other_seeds() -> None:
    numbers = set()
    with begun() as env:
        for _ in range(3):
            numbers.add(float(lose(env, 0).observations[0, 2]))
            env.step(ACTIONS)
    assert len(numbers) == 3


def test_several_at_once_and_one_before_a_reset() -> None:
    with begun() as env:
        kill(env, 0)
        with pytest.warns(EnvWarning, match="environment 0"):
            assert lose(env, 2).truncated.tolist() == [True, False, True]
        kill(env, 1)
        with pytest.warns(EnvWarning, match=r"environment 1"):
            np.testing.assert_array_equal(env.reset()[1][:2], [2, 0])  # it was asked for one when it was new
        assert env.step(ACTIONS).valid.all()


def test_one_that_hangs_is_killed() -> None:
    with begun([Counting, functools.partial(FailsAtStep, "hang")], timeout_s=1.0) as env:
        env.step(ACTIONS[:2])
        env.step(ACTIONS[:2])
        process = env._processes[1].process
        with pytest.warns(EnvWarning, match=r"(?s)not answered for 1 s.*environment 1, step 3 of its episode.*timeout"):
            assert env.step(ACTIONS[:2]).truncated[1]
        with pytest.raises(ValueError, match="closed"):  # nothing is left of it
            process.is_alive()
        env.step(ACTIONS[:2])


def test_one_that_is_lost_before_its_first_whole_step_is_an_error() -> None:
    env = begun()
    lose(env, 1)
    kill(env, 1)
    with pytest.raises(EnvError, match=r"(?s)SIGKILL.*environment 1, step 1"):
        env.step(ACTIONS)
    assert not env._processes


def test_an_exception_is_an_error_all_the_same() -> None:
    env = begun([Counting, functools.partial(FailsAtStep, "raise")])
    env.step(ACTIONS[:2])
    env.step(ACTIONS[:2])
    with pytest.raises(EnvError, match="the kettle boiled over"):
        env.step(ACTIONS[:2])


def test_a_state_is_not_saved_while_a_process_is_lost() -> None:
    with begun() as env:
        kill(env, 2)
        assert env.save_state() is None
        assert "environment 2" in env.unsaved_because
        with pytest.warns(EnvWarning):
            env.step(ACTIONS)
        assert env.save_state() is not None


def test_without_processes_there_are_none_to_replace() -> None:
    with pytest.raises(ConfigError, match="on_loss"):
        make_env(Counting, on_loss="replace")


class Everything(gymnasium.Env[Any, Any]):
    """Observes images, masks, numbers and its last action; returns it all in the same arrays."""

    observation_space = spaces.Dict(
        {
            "image": spaces.Box(0, 255, (8, 8, 3), np.uint8),
            "action_mask": spaces.MultiBinary(3),
            "numbers": spaces.Tuple([spaces.Box(-9, 9, (2,), np.float64), spaces.Discrete(5, start=2)]),
            "action": spaces.Box(-9, 9, (4,), np.float32),
        }
    )
    action_space = spaces.Dict(
        {
            "kind": spaces.Discrete(3, start=-1),
            "force": spaces.Box(-1, 1, (2,), np.float64),
            "flag": spaces.MultiBinary(1),
        }
    )

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self._image, self._steps = np.zeros((8, 8, 3), np.uint8), 0
        return self._observe(np.zeros(4, np.float32)), {}

    def step(self, action: Any) -> Any:
        self._steps += 1
        seen = np.array([action["kind"], *action["force"], *action["flag"]], np.float32)
        return self._observe(seen), float(action["force"][0]), self._steps == 4, bool(self.np_random.random() < 0.1), {}

    def _observe(self, action: Any) -> Any:
        self._image[:] = self.np_random.integers(0, 256, (8, 8, 3))
        return {
            "image": self._image,
            "action_mask": self.np_random.integers(0, 2, 3).astype(np.int8),
            "numbers": (self.np_random.normal(size=2).clip(-9, 9), int(self.np_random.integers(2, 7))),
            "action": action,
        }


def leaves(make: Callable[[], Any]) -> list[np.ndarray]:
    from rlweave.tree import tree_leaves

    with make() as env:
        env.reset()
        results = [env.step(env.sample_actions()) for _ in range(12)]
    return [np.asarray(leaf) for result in results for leaf in tree_leaves(tuple(result[:7]))]


def test_nests_images_and_masks_cross_shared_memory_unchanged() -> None:
    here = leaves(lambda: make_env(Everything, 2, seed=5))
    apart = leaves(lambda: make_env(Everything, 2, "async", seed=5))
    for one, same in zip(here, apart, strict=True):
        assert one.dtype == same.dtype
        np.testing.assert_array_equal(one, same)


def test_a_step_pickles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with make_env(Everything, 2, "async", seed=5) as env:
        env.reset()

        def refuse(*arguments: Any) -> None:
            raise AssertionError("a message travels")

        for name in ("send", "send_bytes", "recv", "recv_bytes"):
            monkeypatch.setattr(f"multiprocessing.connection.Connection.{name}", refuse)
        for _ in range(5):  # over the end of an episode
            env.step(env.sample_actions())
        monkeypatch.undo()
