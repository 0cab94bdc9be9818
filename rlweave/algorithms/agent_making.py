"""The agent of a training: made for its environment, with settings that know how long the training is."""

from __future__ import annotations

from typing import Any, TypeVar

import gymnasium

from rlweave.agents.agent import Agent
from rlweave.algorithms.config import TrainConfig
from rlweave.algorithms.environments import mask_leaf_of, state_space_of
from rlweave.algorithms.schedule_lengths import linear_schedule
from rlweave.envs import VectorEnv
from rlweave.spaces.gymnasium_json import gymnasium_to_json

ConfigT = TypeVar("ConfigT", bound=TrainConfig)
AgentT = TypeVar("AgentT", bound=Agent)


def make_agent_of(agent_class: type[AgentT], config: Any, env: VectorEnv, seed: int, **arguments: Any) -> AgentT:
    """An agent for an environment; not built yet.

    Args:
        agent_class: Its class.
        config: Settings of the training, with a section `agent`.
        env: The environment.
        seed: Of weights and exploration.
        arguments: What this class needs besides, such as `num_envs`.
    """
    agent = agent_class(
        state_space_of(config, env),
        env.action_space,
        config.agent,
        backend=config.backend,
        seed=seed,
        **arguments,
    )
    agent.made_for = describe_environment(config, env.gym_observation_space, env.gym_action_space)
    return agent


def describe_environment(
    config: TrainConfig, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]
) -> dict[str, Any]:
    """What a model says of the environment that it was trained in, as plain data."""
    return {
        "id": config.env,
        "options": config.env_options,
        "info_mask": config.info_mask,
        "observation_space": gymnasium_to_json(observation_space),
        "action_space": gymnasium_to_json(action_space),
    }


def completed(config: ConfigT, optimizer_steps: int | None = None) -> ConfigT:
    """The settings with what an agent cannot know: how long the training is, and where observations have their mask.

    Args:
        config: Settings of the training, with a section `agent`.
        optimizer_steps: Those of the training, for a schedule of the learning rate without a length of its own; None
            where nobody knows them beforehand.
    """
    agent: Any = config.agent  # type: ignore[attr-defined]
    update: dict[str, Any] = {"mask_leaf": mask_leaf_of(config, agent)}
    if optimizer_steps is not None:
        update["lr"] = linear_schedule(agent.lr, optimizer_steps)
    return config.model_copy(update={"agent": agent.model_copy(update=update)})
