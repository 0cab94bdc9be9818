"""Evolution strategies as something to train: settings, workers that play their share, and a plan of generations."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np

from rlweave.agents.es import ES, ESConfig
from rlweave.agents.generation import Generation
from rlweave.algorithms.algorithm import Algorithm
from rlweave.algorithms.config import TrainConfig
from rlweave.algorithms.learners import AgentLearner
from rlweave.algorithms.placement import RolloutWorkers
from rlweave.algorithms.rollout_workers import EnvWorker
from rlweave.algorithms.schedule_lengths import fill_schedules
from rlweave.envs import VectorEnv
from rlweave.envs.seeding import derived_seed
from rlweave.errors import ConfigError
from rlweave.flow import Episode, ReportMetrics, SampleBatch, TrainOneStep
from rlweave.settings.config import setting
from rlweave.settings.sources import PresetFile


class ESTrainConfig(TrainConfig):
    """Settings of a training by evolution strategies.

    Its item is a worker's share of a generation, which is never cut: what a part of the members gained says nothing.
    So a training may take more steps than `steps`, by less than one share: `2 * agent.pairs / workers` episodes.
    """

    agent: ESConfig = setting(ESConfig(), "the agent")


class GenerationWorker(EnvWorker):
    """Has its share of a generation play, one member per environment.

    What it hands on is small whatever the policy: where the noise of each pair begins, and what they gained.

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
        self.agent.place(generation)
        observations, steps = self.env.reset(), 0
        while not generation.complete:
            result = self.env.step(self.agent.act_population(observations))
            observations = result.observations
            steps += self._count(result.valid)
            moved = False
            for episode in result.episodes:
                self._episodes.append(Episode(episode.episode_return, episode.length, info=episode.info))
                moved |= generation.finish(episode.env, episode.episode_return)
            if moved:
                self.agent.place(generation)
        return SampleBatch({"offsets": generation.offsets, "returns": generation.returns}, env_steps=steps)


def generation_worker(config: ESTrainConfig, agent: ES, env: VectorEnv) -> GenerationWorker:
    """A worker that has its share of the population play."""
    return GenerationWorker(agent, env, config.agent.pairs // config.workers)


def slots(config: ESTrainConfig, env: VectorEnv) -> dict[str, Any]:
    """A member plays in each environment."""
    return {"slots": env.num_envs}


def complete(config: ESTrainConfig) -> ESTrainConfig:
    """The settings, checked. A schedule has to say its length: how many updates there will be depends on episodes.

    Raises:
        ConfigError: The population cannot be shared out, or has fewer members than there are environments.
    """
    pairs = config.agent.pairs
    if pairs % config.workers or 2 * pairs < config.num_envs:
        raise ConfigError(
            "the population cannot be shared out",
            where="agent.pairs",
            received=f"{pairs} pairs for {config.workers} workers and {config.num_envs} environments",
            fix="choose a multiple of the number of workers, with at least as many members as environments",
        )
    return fill_schedules(config)


def es_plan(workers: RolloutWorkers, learner: AgentLearner[ES]) -> ReportMetrics:
    """Every worker has its share of a generation play; one step along the gradient that all of it gives."""
    generations = workers.rollouts().per_worker_shares().for_each(SampleBatch.concat)
    return ReportMetrics(generations.for_each(TrainOneStep(learner, workers)), workers)


es = Algorithm(
    "es",
    "evolution strategies with mirrored sampling and shared noise",
    ESTrainConfig,
    agent=ES,
    agent_arguments=slots,
    worker=generation_worker,
    plan=es_plan,
    complete=complete,
    presets=PresetFile(__file__),
    needs_gradients=False,
)
