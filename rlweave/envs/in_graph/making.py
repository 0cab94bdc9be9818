"""Environments in ops, by the Gymnasium id of the environment that they equal."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from rlweave.envs.in_graph.cart_pole import CartPole
from rlweave.envs.in_graph.catch import Catch
from rlweave.envs.in_graph.cue_recall import CueRecall
from rlweave.envs.in_graph.environment import GraphEnvironment
from rlweave.envs.in_graph.grid_world import GridWorld
from rlweave.envs.in_graph.pendulum import Pendulum
from rlweave.envs.registration import CATCH_ID, CUE_RECALL_ID, GRID_WORLD_ID
from rlweave.errors import EnvError, nearest

#: Gymnasium id to the component, and the arguments that make it equal.
GRAPH_ENVIRONMENTS: dict[str, tuple[Callable[..., GraphEnvironment], dict[str, Any]]] = {
    "CartPole-v0": (CartPole, {"max_episode_steps": 200}),
    "CartPole-v1": (CartPole, {"max_episode_steps": 500}),
    "Pendulum-v1": (Pendulum, {"max_episode_steps": 200}),
    CATCH_ID: (Catch, {}),
    CUE_RECALL_ID: (CueRecall, {}),
    GRID_WORLD_ID: (GridWorld, {"max_episode_steps": 100}),
}


def register_graph_environment(env_id: str, make: Callable[..., GraphEnvironment], **arguments: Any) -> None:
    """Registers an environment in ops, for `placement=fused`.

    Args:
        env_id: Id of the Gymnasium environment that it equals; that one is played in evaluations.
        make: The component's class, or a function, of `num_envs` and further arguments.
        **arguments: Those that make it equal, such as `max_episode_steps`.

    Raises:
        EnvError: There is another one of this id.
    """
    if GRAPH_ENVIRONMENTS.get(env_id, (make, arguments)) != (make, arguments):
        raise EnvError("there is another environment in ops of this id", received=repr(env_id), fix="choose another id")
    GRAPH_ENVIRONMENTS[env_id] = (make, arguments)


def make_graph_environment(env_id: str, num_envs: int, options: Mapping[str, Any] | None = None) -> GraphEnvironment:
    """The environment in ops that equals a Gymnasium environment.

    Args:
        env_id: Gymnasium id.
        num_envs: How many step side by side.
        options: Further arguments of the component.

    Raises:
        EnvError: There is none of this id, or it does not take the options.

    >>> make_graph_environment("CartPole-v1", 4).max_episode_steps
    500
    """
    if env_id not in GRAPH_ENVIRONMENTS:
        raise EnvError(
            "no environment in ops equals this one",
            received=repr(env_id),
            fix=f"{nearest(env_id, GRAPH_ENVIRONMENTS)}; register_graph_environment makes one of your own known; "
            "or let it step outside of the graph, placement=local",
        )
    make, arguments = GRAPH_ENVIRONMENTS[env_id]
    known = [name for name in inspect.signature(make).parameters if name not in ("num_envs", "scope")]
    for name in options or {}:
        if name not in known:
            raise EnvError(f"{env_id} in ops does not take this option", received=repr(name), fix=nearest(name, known))
    return make(num_envs, **{**arguments, **(options or {})})
