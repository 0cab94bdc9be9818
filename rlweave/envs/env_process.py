"""The process of one sub-environment of an `AsyncEnv`, and its messages.

The process owns one environment. It answers one reply to each request, in order. Both are a byte; what shared memory
cannot hold (text, infos that are not empty, states) follows as a message. It imports no deep-learning framework.
"""

from __future__ import annotations

import copy
import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

import cloudpickle
import gymnasium

from rlweave.envs.batching import BatchCodec, batch_codec
from rlweave.envs.contract import check_environment, plain_flag, plain_reward, reset_values, step_values
from rlweave.envs.failures import describe
from rlweave.envs.object_state import Data, NotData
from rlweave.envs.restoring import restore
from rlweave.envs.saving import save_environment
from rlweave.envs.shared_batches import TERMINATED, TRUNCATED, SharedBatches


class Attach(NamedTuple):
    """Request: use the shared memory in this file."""

    path: str
    num_envs: int


class Reset(NamedTuple):
    """Request: reset the environment."""

    seed: int | None
    options: dict[str, Any] | None


#: The first byte of a request or reply: a message follows; or all that there is to know is in shared memory.
MESSAGE, SHARED = b"m", b"s"
#: Of a reply with a message, its length follows first: what is there can be read at once.
LENGTH_BYTES = 8


class Step(NamedTuple):
    """Request: step the environment, and reset it if the episode ends; without a message the action is shared."""

    action: Any


class Save(NamedTuple):
    """Request: send the environment's state."""


class Load(NamedTuple):
    """Request: take over a state; the environment was reset before."""

    state: Data


class Saved(NamedTuple):
    """Reply to `Save` and `Load`.

    Attributes:
        state: The state, if it was asked for and there is one.
        unsaved_because: Why it could not be saved or loaded.
    """

    state: Data | None = None
    unsaved_because: str = ""


class Constructed(NamedTuple):
    """Reply of a process that has made its environment."""

    observation_space: gymnasium.Space[Any]
    action_space: gymnasium.Space[Any]


class Attached(NamedTuple):
    """Reply to `Attach`."""


class WasReset(NamedTuple):
    """Reply to `Reset`; the observation is row `index` of the second batch in shared memory."""

    info: dict[str, Any]
    observation: Any = None


class Stepped(NamedTuple):
    """Reply to `Step`; reward, flags and, as a rule, observations are row `index` of the batches in shared memory.

    Attributes:
        info: Of the step.
        reset: The result of a reset after the step, if the episode ended.
        observation: The observation itself, where the space has leaves that shared memory cannot hold.
    """

    info: dict[str, Any]
    reset: WasReset | None
    observation: Any = None


class Failed(NamedTuple):
    """Reply of a process that ends because its environment failed.

    Attributes:
        what: What happened, one sentence.
        trace: The original traceback.
        during_reset: Whether it happened in a reset.
    """

    what: str
    trace: str
    during_reset: bool


def run_env_process(connection: Connection, index: int, factory: bytes) -> None:
    """Serves one environment until the other end of the connection closes.

    Args:
        connection: Where requests come from and replies go to.
        index: Index of the environment, its row in shared memory.
        factory: A pickled function without arguments that makes the environment.
    """
    # Ctrl-C reaches the whole process group; the parent decides when environments end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    env: gymnasium.Env[Any, Any] | None = None
    service: _EnvService | None = None
    try:
        env = cloudpickle.loads(factory)()
        check_environment(env)
        service = _EnvService(env, index)
        is_connected = _send(connection, Constructed(env.observation_space, env.action_space))
        while is_connected:
            try:
                kind = os.read(connection.fileno(), 1)
                request = connection.recv() if kind == MESSAGE else None
            except (EOFError, OSError):
                break
            if not kind:
                break
            is_connected = _send(connection, service.step() if request is None else service.serve(request))
    except BaseException as error:
        what, trace = describe(error)
        _send(connection, Failed(what, trace, service is not None and service.is_resetting))
    finally:
        if env is not None:
            env.close()


class _EnvService:
    """Carries out requests on one environment."""

    def __init__(self, env: gymnasium.Env[Any, Any], index: int) -> None:
        self._env, self._index, self._codec = env, index, batch_codec(env.observation_space)
        self._action_codec: BatchCodec
        self._shared: SharedBatches
        self.is_resetting = False

    def step(self) -> Stepped | None:
        """A step with the shared action; None if all of the result is shared."""
        stepped = self._step(self._action_codec.row(self._shared.actions, self._index))
        if self._shared.final is None or stepped.info or (stepped.reset is not None and stepped.reset.info):
            return stepped
        return None

    def serve(self, request: Attach | Reset | Step | Save | Load) -> Attached | WasReset | Stepped | Saved:
        match request:
            case Step(action):
                return self._step(action)
            case Reset(seed, options):
                return self._reset(seed, options)
            case Attach(path, num_envs):
                self._action_codec = batch_codec(self._env.action_space)
                self._shared = SharedBatches(path, self._codec, self._action_codec, num_envs)
                return Attached()
            case Save():
                return _saved(lambda: save_environment(self._env))
            case Load(state):
                return _saved(lambda: restore(state, self._env), tells=False)

    def _reset(self, seed: int | None, options: dict[str, Any] | None) -> WasReset:
        self.is_resetting = True
        observation, info = reset_values(self._env.reset(seed=seed, options=options))
        if self._shared.first is not None:
            self._codec.write(self._shared.first, self._index, observation)
            observation = None
        self.is_resetting = False
        return WasReset(info, observation)

    def _step(self, action: Any) -> Stepped:
        observation, raw_reward, raw_end, raw_cut, info = step_values(self._env.step(action))
        reward = plain_reward(raw_reward)
        terminated, truncated = plain_flag("terminated", raw_end), plain_flag("truncated", raw_cut)
        self._shared.rewards[self._index] = reward
        self._shared.flags[self._index] = TERMINATED * terminated | TRUNCATED * truncated
        if self._shared.final is not None:
            self._codec.write(self._shared.final, self._index, observation)
            observation = None
        elif terminated or truncated:
            # The reset below may write into the same objects.
            observation = copy.deepcopy(observation)
        reset = self._reset(None, None) if terminated or truncated else None
        return Stepped(info, reset, observation)


def _saved(function: Callable[[], Data], tells: bool = True) -> Saved:
    try:
        state = function()
    except NotData as error:
        return Saved(None, str(error))
    return Saved(state if tells else None)


def _send(connection: Connection, reply: NamedTuple | None) -> bool:
    """Sends a reply, None without a message; returns whether the parent is there to receive it."""
    data = SHARED
    if reply is not None:
        try:
            message = pickle.dumps(reply)
        except Exception as error:
            keys = _unpicklable_keys(reply)
            name = f"key {keys[0]!r} of the environment's info" if keys else "what the environment returned"
            _, trace = describe(error)
            failed = Failed(f"{name} cannot be pickled: {error}", trace, isinstance(reply, WasReset))
            message = pickle.dumps(failed)
        data = MESSAGE + len(message).to_bytes(LENGTH_BYTES, "big") + message
    try:
        while data:
            data = data[os.write(connection.fileno(), data) :]
    except OSError:
        return False
    return True


def _unpicklable_keys(reply: NamedTuple) -> Sequence[str]:
    keys = []
    for key, value in getattr(reply, "info", {}).items():
        try:
            pickle.dumps(value)
        except Exception:
            keys.append(key)
    return keys


def _end_with_parent() -> None:
    """Ends this process when its parent has gone, even while the environment hangs."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
