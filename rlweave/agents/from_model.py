"""Policies that act, made of models."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rlweave.agents.agent import Agent
from rlweave.agents.model_files import Model
from rlweave.agents.policy_agents import models_of
from rlweave.agents.trained_policy import TrainedPolicy
from rlweave.errors import BackendError, CheckpointError, RlweaveError, nearest
from rlweave.spaces import Space

#: Modules of rlweave's own agents, imported only when a model asks for one.
_MODULES = {
    "a2c": "a2c", "a3c": "a2c", "ape-x": "ape_x", "appo": "appo", "dqn": "dqn", "impala": "impala", "ppo": "ppo",
}  # fmt: skip


def agent_class(name: str, import_others: Callable[[str], object] | None = None) -> type[Agent]:
    """The class of agents of a name: one of rlweave's own, or any that was imported.

    Args:
        name: Name of the agent.
        import_others: Called with the name where no class has it, to import one.

    Raises:
        CheckpointError: There is none.
    """
    if name in _MODULES:
        importlib.import_module(f"rlweave.agents.{_MODULES[name]}")
    known = _imported()
    if name not in known and import_others is not None:
        import_others(name)
        known = _imported()
    if name not in known:
        raise CheckpointError(
            "there is no agent of the model's name",
            received=repr(name),
            fix=f"import the module that defines it first; {nearest(name, {**_MODULES, **known})}",
        )
    return known[name]


def _imported() -> dict[str, type[Agent]]:
    """Classes of agents by name: those that give themselves one."""
    return {kind.name: kind for kind in _below(Agent) if "name" in vars(kind)}


def _below(kind: Any) -> Iterator[Any]:
    for child in kind.__subclasses__():
        yield child
        yield from _below(child)


def trained_policies(
    model: Model,
    where: str | Path,
    backend: str,
    seed: int = 0,
    import_others: Callable[[str], object] | None = None,
) -> TrainedPolicy | dict[str, TrainedPolicy]:
    """What acts with a model: one policy, or several by name.

    Args:
        model: The model.
        where: Where it comes from, for errors.
        backend: What computes.
        seed: Seeds exploration.
        import_others: See `agent_class`.

    Raises:
        BackendError: The backend is not installed.
        CheckpointError: The model is damaged, or its agent cannot be made.
    """
    models = models_of(model)
    if not models:
        return _trained_policy(model, where, backend, seed, import_others)
    return {
        policy: _trained_policy(own, f"{where}, policy {policy}", backend, seed, import_others)
        for policy, own in models.items()
    }


def _trained_policy(
    model: Model, where: str | Path, backend: str, seed: int, import_others: Callable[[str], object] | None
) -> TrainedPolicy:
    description = model.description
    try:
        kind = agent_class(description["agent"], import_others)
        agent = kind(
            Space.from_json(description["observation_space"]),
            Space.from_json(description["action_space"]),
            description["settings"],
            **description["arguments"],
        )
        agent.env_steps = int(description["env_steps"])
        agent.made_for = description["environment"]
        return TrainedPolicy(agent, model.weights, backend, seed)
    except (KeyError, TypeError) as error:
        raise CheckpointError("the model's description is not whole", where=str(where), received=repr(error)) from error
    except BackendError:
        raise
    except RlweaveError as error:
        raise CheckpointError(
            f"the policy of the model cannot be made: {error.what}",
            where=str(where),
            received=error.received,
            fix=error.fix or "use the version of rlweave that wrote it",
        ) from error
