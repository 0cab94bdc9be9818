"""Evolution strategies, the algorithm: settings, workers that play their share, and a plan of generations."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np

from rlweave.algorithms.algorithm import Algorithm
from rlweave.algorithms.config import TrainConfig
from rlweave.algorithms.learners import AgentLearner
from rlweave.algorithms.placement import RolloutWorkers
from rlweave.algorithms.rollout_workers import EnvWorker
from rlweave.envs import VectorEnv
from rlweave.envs.seeding import derived_seed
from rlweave.errors import ConfigError
from rlweave.extras.es_agent import ES, ESConfig, Generation
from rlweave.flow import Episode, ReportMetrics, SampleBatch, TrainOneStep
from rlweave.settings.config import setting
from rlweave.settings.sources import PresetFile


class ESTrainConfig(TrainConfig):
    """Settings of a training by evolution strategies.

    Its item is a worker's share of a generation, which is never cut: returns of a part of the members are useless.
    So a training may take more steps than `steps`, by less than one share: `2 * agent.pairs / workers` episodes.
    """

    agent: ESConfig = setting(ESConfig(), "the agent")
    steps: int = setting(
        100_000, "length of the training; the item that reaches it is finished first: for es one worker's share of a "
        "generation", ge=0, unit="environment steps",
    )  # fmt: skip


class GenerationWorker(EnvWorker):
    """Plays its share of a generation, one member per environment.

    Its items are small whatever the policy: offsets of the noise of each pair, and their returns.

    Args:
        agent: The agent that acts.
        env: The environments.
        pairs: Mirrored pairs in its share.
    """

    def __init__(self, agent: ES, env: VectorEnv, pairs: int) -> None:
        super().__init__(agent, env)
        self.agent: ES = agent
        self.pairs = pairs
        self._noise = np.random.default_rng(derived_seed(agent.seed, f"noise of worker {env.worker}"))

    def start(self, seed: int | None = None) -> None:
        super().start(seed)
        if seed is not None:
            self._noise = np.random.default_rng(derived_seed(seed, "noise"))

    def state_dict(self, environments: bool = True, weights: bool = True) -> dict[str, Any]:
        return {**super().state_dict(environments, weights), "noise": copy.deepcopy(self._noise.bit_generator.state)}

    def load_state_dict(self, state: Mapping[str, Any] | None, seed: int) -> str:
        begun = super().load_state_dict(state, seed)
        if state is not None:
            self._noise.bit_generator.state = state["noise"]
        return begun

    def sample(self) -> SampleBatch:
        """Offsets (n,) and returns (n, 2) of n pairs; all steps that were taken for them are counted."""
        generation = Generation(self.agent.draw_offsets(self._noise, self.pairs), self.env.num_envs)
        self.agent.perturb(generation)
        observations, steps = self.env.reset(), 0
        while not generation.complete:
            result = self.env.step(self.agent.act_perturbed(observations))
            observations = result.observations
            steps += self._count(result.valid)
            moved = False
            for episode in result.episodes:
                self._episodes.append(Episode(episode.episode_return, episode.length, info=episode.info))
                moved |= generation.finish(episode.env, episode.episode_return)
            if moved:
                self.agent.perturb(generation)
        return SampleBatch({"offsets": generation.offsets, "returns": generation.returns}, env_steps=steps)


def generation_worker(config: ESTrainConfig, agent: ES, env: VectorEnv) -> GenerationWorker:
    """A worker that plays its share of a generation."""
    return GenerationWorker(agent, env, config.agent.pairs // config.placement.workers)


def number_of_environments(config: ESTrainConfig, env: VectorEnv) -> dict[str, Any]:
    """One perturbed policy acts in each environment."""
    return {"num_envs": env.num_envs}


def checked(config: ESTrainConfig) -> ESTrainConfig:
    """The settings, checked. A schedule has to say its length: how many updates there will be depends on episodes.

    Raises:
        ConfigError: A generation cannot be divided among the workers, or has fewer members than there are environments.
    """
    pairs = config.agent.pairs
    if pairs % config.placement.workers or 2 * pairs < config.num_envs:
        raise ConfigError(
            "a generation cannot be divided among the workers",
            where="agent.pairs",
            received=f"{pairs} pairs for {config.placement.workers} workers and {config.num_envs} environments",
            fix="choose a multiple of the number of workers, with at least as many members as environments",
        )
    return config


def es_plan(workers: RolloutWorkers, learner: AgentLearner[ES]) -> ReportMetrics:
    """Every worker plays its share of a generation; one step along the gradient that the whole generation gives."""
    generations = workers.rollouts().per_worker_shares().for_each(SampleBatch.concat)
    return ReportMetrics(generations.for_each(TrainOneStep(learner, workers)), workers)


es = Algorithm(
    "es",
    "evolution strategies with mirrored sampling and shared noise",
    ESTrainConfig,
    agent=ES,
    agent_arguments=number_of_environments,
    worker=generation_worker,
    plan=es_plan,
    complete=checked,
    presets=PresetFile(__file__),
    needs_gradients=False,
)
