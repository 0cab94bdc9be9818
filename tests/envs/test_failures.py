"""A failure inside an environment reaches the user: what, where, on which action; and leaves nothing behind."""

from __future__ import annotations

import functools
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from rlweave.envs import AsyncEnv, VectorEnv, make_env
from rlweave.envs.shared_batches import memory_file
from rlweave.errors import EnvError
from tests.envs import faulty_envs
from tests.envs.faulty_envs import (
    Counting,
    ExitsAtStart,
    FailsAtReset,
    FailsAtStep,
    FailsToStart,
    LeavesTrace,
    Nested,
    Poisoned,
    PoisonedReset,
    Shifted,
)

ACTIONS = np.array([0, 1, 0], np.int32)


def fail(env: VectorEnv, actions: Any = ACTIONS, steps: int = 3) -> EnvError:
    """Returns the error of the last of some steps, which are to go well until then."""
    env.reset()
    for _ in range(steps - 1):
        env.step(actions)
    with pytest.raises(EnvError) as caught:
        env.step(actions)
    return caught.value


def process_ids(env: AsyncEnv) -> list[int]:
    return [process.pid for process in env._processes]


def is_alive(process_id: int) -> bool:
    """Tells whether a process runs; one that has ended but was not waited for yet does not."""
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("raise", ["ZeroDivisionError: the kettle boiled over", "original traceback", "_boil_over", "faulty_envs.py"]),
        ("exit", ["ended with exit code 7"]),
        ("hang", ["has not answered for 1.5 s", "timeout_s"]),
        ("info", ["key 'lock' of the environment's info cannot be pickled"]),
    ],
)
def test_failures_in_processes(how: str, told: list[str], tmp_path: Path) -> None:
    """Fault 38."""
    trace = tmp_path / "closed"
    factories = [Counting, functools.partial(FailsAtStep, how), functools.partial(LeavesTrace, str(trace))]
    env = make_env(factories, vectorization="async", seed=0, timeout_s=1.5)
    assert isinstance(env, AsyncEnv)
    processes = process_ids(env)
    assert len(processes) == 3
    assert all(map(is_alive, processes))
    started = time.monotonic()
    error = fail(env)
    assert time.monotonic() - started < 8
    for text in [*told, "environment 1, step 3 of its episode", "action np.int64(1)"]:
        assert text in str(error)
    assert not any(map(is_alive, processes)), "no process is left"
    assert trace.exists(), "siblings were closed, not killed"
    with pytest.raises(EnvError, match="is closed"):
        env.step(ACTIONS)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)  # noqa: S301


@pytest.mark.parametrize("autoreset", [None, "next_step", "same_step", "disabled"])
def test_an_exception_in_this_process(autoreset: str | None, tmp_path: Path) -> None:
    trace = tmp_path / "closed"
    factories = [Counting, functools.partial(FailsAtStep, "raise"), functools.partial(LeavesTrace, str(trace))]
    error = fail(make_env([lambda: Counting(1000), *factories[1:]], seed=0, autoreset=autoreset))
    told = "environment 1, step 3 of its episode", "ZeroDivisionError: the kettle", "_boil_over", "action np.int64(1)"
    for text in told:
        assert text in str(error)
    assert trace.exists()


@pytest.mark.filterwarnings(
    "ignore:.*(Received the following error|Traceback|Raising the last|while waiting):UserWarning"
)
def test_failures_in_gymnasiums_processes() -> None:
    factories = [lambda: Counting(1000), functools.partial(FailsAtStep, "raise")]
    error = fail(make_env(factories, vectorization="async", seed=0, autoreset="same_step"), ACTIONS[:2])
    assert "environment 1, step 3 of its episode" in str(error)
    assert "_boil_over" in str(error)
    for how, told in (("exit", "process of an environment has ended"), ("hang", "has not answered for 1 s")):
        factories[1] = functools.partial(FailsAtStep, how)
        error = fail(make_env(factories, vectorization="async", seed=0, autoreset="disabled", timeout_s=1), ACTIONS[:2])
        assert told in str(error)


@pytest.mark.parametrize("vectorization", ["sync", "async"])
def test_failures_before_the_first_step(vectorization: str) -> None:
    with pytest.raises(EnvError, match=r"(?s)OSError: simulator not found.*environment 1, construction"):
        make_env([Counting, FailsToStart], vectorization=vectorization)
    error = fail(make_env([Counting, FailsAtReset], vectorization=vectorization), ACTIONS[:2])
    assert "RuntimeError: no second chance" in str(error)
    assert "environment 1, reset" in str(error)
    with pytest.raises(EnvError, match=r"different observation spaces(?s:.*)environment 1"):
        make_env([Counting, Nested], vectorization=vectorization)


def test_a_process_that_ends_while_it_starts() -> None:
    with pytest.raises(EnvError, match=r"(?s)exit code 9.*environment 0, construction.*__main__"):
        make_env(ExitsAtStart, vectorization="async")


def test_a_function_that_cannot_be_pickled() -> None:
    lock = __import__("threading").Lock()
    with pytest.raises(EnvError, match="cannot be pickled"):
        make_env(lambda: Counting(lock), vectorization="async")


def test_a_killed_parent_leaves_no_process() -> None:
    """Even one in which an environment hangs."""
    script = textwrap.dedent("""
        import functools, threading
        from rlweave.envs import make_env
        from tests.envs.faulty_envs import Counting, FailsAtStep
        if __name__ == "__main__":
            env = make_env([Counting, functools.partial(FailsAtStep, "hang")], vectorization="async")
            env.reset()
            print(*(process.pid for process in env._processes), flush=True)
            for _ in range(3):
                env.step([0, 0])
    """)
    root = Path(faulty_envs.__file__).parents[2]
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, cwd=root) as parent:
        assert parent.stdout is not None
        processes = [int(word) for word in parent.stdout.readline().split()]
        assert len(processes) == 2
        assert parent.stdout.readline() == "hanging\n"
        parent.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 10
    while any(map(is_alive, processes)) and time.monotonic() < deadline:
        os.sched_yield()
    assert not any(map(is_alive, processes))


def test_a_sibling_that_hangs_is_killed() -> None:
    factories = [functools.partial(FailsAtStep, how) for how in ("hang", "raise")]
    env = make_env(factories, vectorization="async", seed=0)
    assert isinstance(env, AsyncEnv)
    processes = process_ids(env)
    started = time.monotonic()
    assert "environment 1, step 3" in str(fail(env, ACTIONS[:2]))
    assert time.monotonic() - started < 8
    assert not any(map(is_alive, processes))


def test_shared_memory_has_no_name_to_leave_behind() -> None:
    before = set(os.listdir("/dev/shm"))
    with memory_file(64) as path:
        assert not {name for name in os.listdir("/dev/shm") if "rlweave" in name} - before
        assert Path(path).stat().st_size == 64
    assert not Path(path).exists()


def test_an_environment_that_is_forgotten_ends_its_processes() -> None:
    env = make_env(Counting, 2, "async", seed=0)
    assert isinstance(env, AsyncEnv)
    processes = process_ids(env)
    del env
    assert not any(map(is_alive, processes))


def test_closing_twice_and_using_a_closed_environment() -> None:
    with make_env(Counting, 2, "async", seed=0) as env:
        env.reset()
        assert isinstance(env, AsyncEnv)
        processes = process_ids(env)
    env.close()
    assert not any(map(is_alive, processes))
    with pytest.raises(EnvError, match="is closed"):
        env.reset()


def test_a_step_before_a_reset() -> None:
    env = make_env(Counting)
    with pytest.raises(EnvError, match="call reset"):
        env.step(np.zeros(1, np.int32))
    with pytest.raises(EnvError, match="call reset"):
        _ = env.observations


@pytest.mark.parametrize(
    ("actions", "told"),
    [
        (np.zeros(2, np.int32), r"must have shape \(3,\)(?s:.*)shape \(2,\)"),
        (np.zeros(3), "dtype float64"),
        (np.array([0, 1, 2]), "2 in row 2"),
        (np.array([0, -1, 1]), "-1 in row 1"),
    ],
)
def test_actions_that_do_not_fit(actions: np.ndarray, told: str) -> None:
    with make_env(Counting, 3) as env:
        env.reset()
        with pytest.raises(EnvError, match=told):
            env.step(actions)
        env.step(ACTIONS)  # nothing was stepped, nothing is broken


def test_observations_that_do_not_fit() -> None:
    error = fail(make_env(lambda: FailsAtStep("shape"), seed=0), ACTIONS[:1])
    assert "must have shape (3,)" in str(error)
    assert "environment 0, step 3" in str(error)
    error = fail(make_env(lambda: Shifted(bad=True), seed=0), ACTIONS[:1], steps=1)
    assert "not one of the choices of Discrete(3, start=-1)" in str(error)


class FloatPixels(gymnasium.Env[Any, Any]):
    observation_space = gymnasium.spaces.Box(0, 255, (2, 2, 1), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return np.full((2, 2, 1), 0.5), {}


def test_floats_are_not_cut_off_to_integers() -> None:
    with pytest.raises(EnvError, match=r"(?s)fits uint8.*float64"):
        make_env(FloatPixels).reset()


@pytest.mark.parametrize("kind", ["sync", "async", "same_step"])
@pytest.mark.parametrize("what", ["observation", "reward"])
def test_not_a_number(kind: str, what: str) -> None:
    """Fault 43."""
    options: dict[str, Any] = {"autoreset": kind} if kind == "same_step" else {"vectorization": kind}
    factories = [Counting, functools.partial(Poisoned, what)]
    error = fail(make_env(factories, **options), ACTIONS[:2], steps=2)
    told = "the observation holds NaN or infinity" if what == "observation" else "the reward is inf"
    for text in (told, "environment 1, step 2 of its episode", "action np.int64(1)", "check_finite=False"):
        assert text in str(error)
    if kind == "sync":
        with make_env(factories, check_finite=False) as env:
            env.reset()
            env.step(ACTIONS[:2])
            result = env.step(ACTIONS[:2])
        assert np.isfinite(result.next_observations[1, 1]) == (what == "reward")
        assert np.isfinite(result.rewards[1]) == (what == "observation")


def test_not_a_number_names_the_leaf_and_the_reset() -> None:
    env = make_env(lambda: Nested(bad_leaf=True), 2, seed=0)
    error = fail(env, env.sample_actions(), steps=1)
    assert "leaf 'outer/speed' of the observation holds NaN" in str(error)
    error = fail(make_env([Counting, PoisonedReset], seed=0), ACTIONS[:2], steps=3)
    assert "holds NaN or infinity" in str(error)
    assert "environment 1, reset" in str(error)
