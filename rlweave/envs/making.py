"""One function that makes a vector environment of any kind."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, cast

import gymnasium
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from rlweave.envs.async_env import DEFAULT_TIMEOUT_S, AsyncEnv
from rlweave.envs.atari import AtariEnv, is_atari, learning_options
from rlweave.envs.contract import refuse_running_statistics
from rlweave.envs.failures import SubEnvGuard, describe
from rlweave.envs.gymnasium_vector import GymnasiumVectorEnv, GymVectorEnv, autoreset_mode
from rlweave.envs.hashed_text import HashedText, TextHashing, has_text
from rlweave.envs.infos import InfoMask
from rlweave.envs.registration import resolve
from rlweave.envs.sync_env import EnvFactory, SyncEnv, construct
from rlweave.envs.vector_env import VectorEnv
from rlweave.errors import ConfigError, EnvError, nearest

AUTORESET_MODES = {
    "next_step": AutoresetMode.NEXT_STEP,
    "same_step": AutoresetMode.SAME_STEP,
    "disabled": AutoresetMode.DISABLED,
}
VECTORIZATIONS = ("sync", "async", "vector_entry_point", "custom")

EnvSource = str | EnvSpec | Callable[..., Any] | Sequence[EnvFactory] | GymVectorEnv
"""The kinds of objects that an environment can be made from; see `make_env`."""


def make_env(
    env: EnvSource,
    num_envs: int | None = None,
    vectorization: str | None = None,
    *,
    env_kwargs: Mapping[str, Any] | None = None,
    seed: int | None = None,
    worker: int = 0,
    autoreset: str | None = None,
    timeout_s: float | None = None,
    on_loss: Literal["stop", "replace"] | None = None,
    check_finite: bool = True,
    text: TextHashing | None = None,
    info_mask: str | None = None,
    training: bool = False,
    running_statistics: bool = True,
    info_metrics: Sequence[str] = (),
) -> VectorEnv:
    """Makes a vector environment; all kinds yield the same transitions for the same seed.

    Args:
        env: One of

            * an id of Gymnasium (``"CartPole-v1"``, ``"module:id"``), or its `EnvSpec`;
            * a function that returns a `gymnasium.Env`;
            * a sequence of such functions, one for each sub-environment;
            * a `gymnasium.vector.VectorEnv`, or with ``vectorization="custom"`` a function that returns one.
        num_envs: Number of sub-environments, 1 unless given; a vector environment and a sequence know it themselves.
        vectorization: ``"sync"`` steps sub-environments in turn in this process (the default), ``"async"`` each in a
            process of its own, ``"vector_entry_point"`` uses the vector environment that is registered for the id, and
            ``"custom"`` the one that was passed (the default then).
        env_kwargs: Keyword arguments of the environment or of the function.
        seed: Seed of the run; None takes fresh entropy.
        worker: Number of the worker that owns the environments.
        autoreset: Not needed as a rule. Has ``"sync"`` and ``"async"`` use Gymnasium's vector environments in the mode
            ``"next_step"``, ``"same_step"`` or ``"disabled"``, and passes the mode on to a ``"vector_entry_point"``.
            With a vector environment, its mode must be this one.
        timeout_s: For ``"async"`` only: seconds after which a step or reset without answer is an error (60).
        on_loss: For ``"async"`` only: what happens when the process of an environment ends, or does not answer in time:
            ``"stop"`` (the default) or ``"replace"``; see `AsyncEnv`.
        check_finite: Whether a NaN or infinite observation or reward is an error.
        text: Has the text of observations turned into numbers of words, if there is any. None leaves it as text, which
            no policy takes.
        info_mask: Key of the infos with masks of allowed actions; they become the leaf "action_mask" of observations,
            beside "observation". None: there are none, or they are part of the observations already.
        training: Whether a learner learns from it. Only Atari games differ in that: see `AtariEnv`, which an ALE id
            without a `vectorization` is. (``"sync"`` and ``"async"`` are the plain game, 210 x 160 in colour.)
        running_statistics: Whether wrappers that keep statistics are allowed, such as NormalizeObservation. A training
            forbids them, as its evaluations have environments of their own.
        info_metrics: Leaves of infos (``"is_success"``, ``"timing/seconds"``) whose number in the last step of an
            episode is part of it: `Episode.info`.

    Raises:
        ConfigError: If options contradict each other.
        EnvError: If the environment is unknown or cannot be made.

    >>> with make_env("CartPole-v1", num_envs=2, seed=0) as env:
    ...     observations = env.reset()
    ...     result = env.step(env.sample_actions())
    >>> observations.shape, result.rewards
    ((2, 4), array([1., 1.], dtype=float32))
    """
    kwargs = dict(env_kwargs or {})
    common: dict[str, Any] = {
        "seed": seed,
        "worker": worker,
        "check_finite": check_finite,
        "info_metrics": info_metrics,
    }
    if vectorization is None and autoreset is None and isinstance(env, (str, EnvSpec)):
        spec = resolve(env) if isinstance(env, str) else env
        if is_atari(spec):
            _check_options(env, num_envs, "vector_entry_point", kwargs, None, timeout_s)
            _refuse_masks(info_mask)
            learning = learning_options(kwargs)
            kwargs |= {"reward_clipping": False, "episodic_life": False}
            vector_env = _make_vector_env(spec, num_envs, "vector_entry_point", kwargs, "same_step")
            return AtariEnv(vector_env, training=training, **learning, **common)
    if on_loss is not None and (vectorization != "async" or autoreset is not None):
        raise ConfigError(
            "only environments with processes of their own are lost with these",
            where="on_loss",
            received=repr(on_loss),
            fix="use vectorization='async' without autoreset, or leave on_loss out",
        )
    is_vector_env = isinstance(env, gymnasium.vector.VectorEnv)
    vectorization = vectorization or ("custom" if is_vector_env else "sync")
    _check_options(env, num_envs, vectorization, kwargs, autoreset, timeout_s)
    if vectorization in ("custom", "vector_entry_point"):
        vector_env = _make_vector_env(env, num_envs, vectorization, kwargs, autoreset)
        if not running_statistics:
            refuse_running_statistics(vector_env)
        if autoreset is not None and autoreset_mode(vector_env) is not AUTORESET_MODES[autoreset]:
            raise ConfigError(
                "the vector environment has another autoreset mode",
                where="autoreset",
                received=f"{autoreset!r}, the environment has {autoreset_mode(vector_env).name}",
                fix="leave autoreset out: every mode yields the same transitions",
            )
        if text is not None and has_text(vector_env.single_observation_space):
            raise ConfigError(
                "the text of a vector environment cannot be hashed one environment at a time",
                where="text",
                received=repr(vector_env.single_observation_space),
                fix="vectorization='sync' or 'async' with the single environment, or text=None",
            )
        _refuse_masks(info_mask)
        return GymnasiumVectorEnv(vector_env, **common)
    factories = _factories(env, num_envs, kwargs)
    if not running_statistics:
        factories = [functools.partial(_without_statistics, factory) for factory in factories]
    if info_mask is not None:
        factories = [functools.partial(_mask, factory, info_mask) for factory in factories]
    if text is not None:
        factories = [functools.partial(_hash_text, factory, text) for factory in factories]
    timeout_s = DEFAULT_TIMEOUT_S if timeout_s is None else timeout_s
    if autoreset is None:
        return (
            AsyncEnv(factories, **common, timeout_s=timeout_s, on_loss=on_loss or "stop")
            if vectorization == "async"
            else SyncEnv(factories, **common)
        )
    guarded = [functools.partial(_guard, factory, index) for index, factory in enumerate(factories)]
    mode = AUTORESET_MODES[autoreset]
    if vectorization == "sync":
        return GymnasiumVectorEnv(SyncVectorEnv(guarded, autoreset_mode=mode), **common)
    return GymnasiumVectorEnv(
        AsyncVectorEnv(guarded, autoreset_mode=mode, context="forkserver"), **common, timeout_s=timeout_s
    )


def _check_options(
    env: EnvSource,
    num_envs: int | None,
    vectorization: str,
    kwargs: dict[str, Any],
    autoreset: str | None,
    timeout_s: float | None,
) -> None:
    def refuse(what: str, option: str, received: Any, fix: str) -> ConfigError:
        return ConfigError(what, where=option, received=repr(received), fix=fix)

    if vectorization not in VECTORIZATIONS:
        raise refuse("unknown vectorization", "vectorization", vectorization, nearest(vectorization, VECTORIZATIONS))
    if autoreset is not None and autoreset not in AUTORESET_MODES:
        raise refuse("unknown autoreset mode", "autoreset", autoreset, nearest(autoreset, AUTORESET_MODES))
    if timeout_s is not None and vectorization != "async":
        raise refuse("a time-out needs sub-processes", "timeout_s", timeout_s, "use vectorization='async'")
    if num_envs is not None and num_envs < 1:
        raise refuse("there must be a sub-environment", "num_envs", num_envs, "pass at least 1")
    if isinstance(env, gymnasium.vector.VectorEnv):
        if vectorization != "custom":
            fix = "leave vectorization out"
            raise refuse("a vector environment is already vectorized", "vectorization", vectorization, fix)
        if kwargs:
            raise refuse("a vector environment is already made", "env_kwargs", kwargs, "leave env_kwargs out")
        if num_envs not in (None, env.num_envs):
            fix = "leave num_envs out"
            raise refuse(f"the vector environment has {env.num_envs} sub-environments", "num_envs", num_envs, fix)
    elif vectorization == "custom" and not callable(env):
        fix = "pass a gymnasium.vector.VectorEnv or a function that returns one"
        raise refuse("'custom' needs a vector environment", "env", env, fix)
    elif vectorization == "custom" and num_envs is not None:
        raise refuse("the function decides on it", "num_envs", num_envs, "pass env_kwargs={'num_envs': ...}")
    elif vectorization == "vector_entry_point" and not isinstance(env, (str, EnvSpec)):
        raise refuse("'vector_entry_point' needs an id", "env", env, "use vectorization='custom' for a function")
    elif isinstance(env, Sequence) and not isinstance(env, str) and num_envs not in (None, len(env)):
        raise refuse(f"there are {len(env)} functions", "num_envs", num_envs, "leave num_envs out")


def _refuse_masks(info_mask: str | None) -> None:
    if info_mask is not None:
        raise ConfigError(
            "masks of a vector environment cannot be taken from its infos one environment at a time",
            where="info_mask",
            received=repr(info_mask),
            fix="vectorization='sync' or 'async' with the single environment",
        )


def _factories(env: EnvSource, num_envs: int | None, kwargs: dict[str, Any]) -> list[EnvFactory]:
    if isinstance(env, Sequence) and not isinstance(env, str):
        return [functools.partial(factory, **kwargs) for factory in env]
    if isinstance(env, (str, EnvSpec)):
        # The registration travels, not the id: a process that never saw the id being registered can make it.
        spec = resolve(env) if isinstance(env, str) else env
        return [functools.partial(_make_single, spec, kwargs)] * (num_envs or 1)
    return [functools.partial(cast(EnvFactory, env), **kwargs)] * (num_envs or 1)


def _make_single(spec: EnvSpec, kwargs: dict[str, Any]) -> gymnasium.Env[Any, Any]:
    # Gymnasium's passive checker is left out: the boundary here checks every value itself.
    return gymnasium.make(spec, disable_env_checker=True, **kwargs)


def _without_statistics(factory: EnvFactory) -> gymnasium.Env[Any, Any]:
    env = factory()
    refuse_running_statistics(env)
    return env


def _mask(factory: EnvFactory, key: str) -> gymnasium.Env[Any, Any]:
    return InfoMask(factory(), key)


def _hash_text(factory: EnvFactory, text: TextHashing) -> gymnasium.Env[Any, Any]:
    env = factory()
    return HashedText(env, text) if has_text(getattr(env, "observation_space", None)) else env


def _guard(factory: EnvFactory, index: int) -> gymnasium.Env[Any, Any]:
    return SubEnvGuard(construct(factory, index), index)


def _make_vector_env(
    env: EnvSource, num_envs: int | None, vectorization: str, kwargs: dict[str, Any], autoreset: str | None
) -> GymVectorEnv:
    if isinstance(env, gymnasium.vector.VectorEnv):
        return env
    try:
        if vectorization == "custom":
            made = cast(Callable[..., Any], env)(**kwargs)
        else:
            spec = resolve(env) if isinstance(env, str) else cast(EnvSpec, env)
            if autoreset is not None:
                kwargs["autoreset_mode"] = AUTORESET_MODES[autoreset]
            made = gymnasium.make_vec(spec, num_envs or 1, vectorization_mode="vector_entry_point", **kwargs)
    except (Exception, SystemExit) as error:
        what, trace = describe(error)
        raise EnvError(f"{what}\n{trace}".rstrip(), where="construction of a vector environment") from error
    if not isinstance(made, gymnasium.vector.VectorEnv):
        raise EnvError(
            "with vectorization='custom', the function must return a gymnasium.vector.VectorEnv",
            received=f"a {type(made).__name__}",
            fix="use vectorization='sync' or 'async' for a function that returns a gymnasium.Env",
        )
    return made
