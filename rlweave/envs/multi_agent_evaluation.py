"""Evaluation of several policies that play together, without favouring short episodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from rlweave.envs.agent_groups import BoolArray
from rlweave.envs.batching import Batch
from rlweave.envs.evaluation import MAX_EPISODE_STEPS, Evaluation
from rlweave.envs.failures import environment_failure
from rlweave.envs.multi_agent import AgentEpisode, MultiAgentEnv
from rlweave.envs.seeding import EVALUATION_WORKER
from rlweave.envs.steps import Episode
from rlweave.errors import ConfigError

GroupAct = Callable[[Batch, BoolArray, BoolArray], Batch]
"""Maps observations (rows, *shape), episode starts (rows,) and which rows act (rows,) to actions (rows, *shape).

Rows that do not act are not gone on with: a state that is carried from step to step stays there.
"""


class MultiAgentEnvFactory(Protocol):
    """Makes the copies to evaluate on."""

    def __call__(self, *, seed: int | None, worker: int) -> MultiAgentEnv: ...


def evaluate_together(
    players: Mapping[str, GroupAct],
    env_factory: MultiAgentEnvFactory,
    episodes: int,
    seed: int | None = None,
    *,
    max_episode_steps: int = MAX_EPISODE_STEPS,
) -> Evaluation:
    """Plays a number of episodes with all policies on fresh copies, and closes them; see `evaluate`.

    Args:
        players: By policy, maps ``(observations, episode_start, acting)`` of its rows to actions.
        env_factory: Called as ``env_factory(seed=seed, worker=EVALUATION_WORKER)``.
        episodes: Number of episodes in all; each copy plays a quota that is fixed beforehand.
        seed: Seed of the evaluation; None takes fresh entropy.
        max_episode_steps: Steps after which an episode counts as endless, which is an error.

    Raises:
        ConfigError: If `episodes` is less than 1.
        EnvError: If a copy fails, or an episode that counts is longer than `max_episode_steps`.
    """
    if episodes < 1:
        raise ConfigError("there is nothing to evaluate", where="episodes", received=str(episodes), fix="at least 1")
    with env_factory(seed=seed, worker=EVALUATION_WORKER) as env:
        quota, remainder = divmod(episodes, env.num_envs)
        missing = [quota + (copy < remainder) for copy in range(env.num_envs)]
        played: list[list[list[AgentEpisode]]] = [[] for _ in missing]
        lengths = np.zeros(env.num_envs, np.int64)
        env.reset()
        while any(missing):
            actions: dict[str, Any] = {}
            for name, group in env.groups.items():
                if group.acting.any():
                    actions[name] = players[name](group.observations_to_act_on(), group.episode_start, group.acting)
            parts: dict[int, list[AgentEpisode]] = {}
            for part in env.step(actions).episodes:
                parts.setdefault(part.env, []).append(part)
            lengths += 1
            for copy, own in parts.items():
                lengths[copy] = 0
                if missing[copy]:
                    played[copy].append(own)
                    missing[copy] -= 1
            for copy in (lengths >= max_episode_steps).nonzero()[0].tolist():
                if missing[copy]:
                    raise environment_failure(
                        f"an episode of the evaluation has not ended after {max_episode_steps:,} steps",
                        env=copy,
                        phase=f"step {lengths[copy]} of its episode",
                        fix="give the environment a limit, such as PettingZoo's max_cycles",
                    )
        groups = {agent: name for name, group in env.groups.items() for agent in group.agents}
    together = [own for one in played for own in one]
    policies = {
        name: Evaluation(
            tuple(
                Episode(part.env, part.episode_return, part.length, part.terminated, part.info)
                for own in together
                for part in own
                if groups[part.agent] == name
            )
        )
        for name in env.groups
    }
    return Evaluation(tuple(map(_one, together)), policies)


def _one(parts: list[AgentEpisode]) -> Episode:
    """An episode of all its agents."""
    mean = float(np.mean([part.episode_return for part in parts]))
    return Episode(parts[0].env, mean, max(part.length for part in parts), any(part.terminated for part in parts))
