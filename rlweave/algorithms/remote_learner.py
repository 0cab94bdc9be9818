"""A learner in an actor of its own, and the agent here that evaluates and is saved in its stead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlweave.agents.ppo import PPO
from rlweave.algorithms.agent_learner import AgentLearner
from rlweave.algorithms.config import TrainConfig
from rlweave.algorithms.placement import MakeAgent
from rlweave.algorithms.shipping import ShipsEnvironment
from rlweave.algorithms.threads import set_threads
from rlweave.algorithms.trainer import make_training_env
from rlweave.flow import LearnerActor, ReportMetrics, Resources
from rlweave.flow.learner_actor import ask_learner


class WholeLearner(AgentLearner):
    """A learner that hands out all of its state, and takes it over."""

    def whole_state(self) -> tuple[dict[str, np.ndarray], dict[str, int]]:
        """Everything that a checkpoint keeps of the agent, and its counters."""
        return self.agent.state_dict(), self.agent.counters()

    def load_whole_state(self, state: Mapping[str, np.ndarray], counters: Mapping[str, int]) -> None:
        """Takes over what `whole_state` gave."""
        self.agent.load_state_dict(state)
        self.agent.load_counters(counters)


class LearnerFactory(ShipsEnvironment):
    """Makes the learner in the process where it is to live.

    Args:
        config: Settings of the training.
        make_agent: Makes its agent.
    """

    def __init__(self, config: TrainConfig, make_agent: MakeAgent[Any, Any]) -> None:
        self.config, self.make_agent = config, make_agent

    def __call__(self) -> WholeLearner:
        """The learner; its agent has the seed of the one that is here, and so the same initial weights."""
        agent_config = self.config.agent.model_copy(update={"acting_backend": None})
        config = self.config.model_copy(update={"agent": agent_config})
        with make_training_env(config) as env:
            agent: PPO = self.make_agent(config, env, config.seed)
        agent.build()
        set_threads(config, agent)
        return WholeLearner(agent, counts=True)


class RemoteLearner:
    """The tie between a learner elsewhere and the agent here, which evaluates, and which checkpoints hold.

    Args:
        config: Settings of the training.
        make_agent: Makes the learner's agent; it travels, so it is a function of a module.
        agent: The agent here.
        cpus: Cores that the learner's process holds on a cluster.
    """

    def __init__(self, config: TrainConfig, make_agent: MakeAgent[Any, Any], agent: PPO, cpus: float = 0.0) -> None:
        self.agent = agent
        self.actor = LearnerActor(LearnerFactory(config, make_agent), Resources(cpus=cpus))

    def fetch(self, plan: ReportMetrics) -> None:
        """Brings the agent here to the state of the learner."""
        state, counters = ask_learner(plan, self.actor, "whole_state")
        self.agent.load_state_dict(state)
        self.agent.load_counters(counters)

    def push(self, plan: ReportMetrics) -> None:
        """Brings the learner to the state of the agent here."""
        ask_learner(plan, self.actor, "load_whole_state", self.agent.state_dict(), self.agent.counters())
