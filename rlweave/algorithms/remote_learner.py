"""A learner in an actor of its own, and the agent here that evaluates and is saved in its stead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlweave.agents.ppo import PPO
from rlweave.algorithms.agent_learner import AgentLearner
from rlweave.algorithms.config import TrainConfig
from rlweave.algorithms.environments import make_training_env
from rlweave.algorithms.placement import MakeAgent
from rlweave.algorithms.shipping import ShipsEnvironment
from rlweave.algorithms.threads import set_threads
from rlweave.flow import LearnerActor, ReportMetrics, Resources
from rlweave.flow.learner_actor import ask_learner


def state_of(agent: PPO) -> dict[str, Any]:
    """Everything that a checkpoint keeps of an agent, and its counters."""
    return {"variables": agent.state_dict(), "counters": agent.counters()}


def load_state(agent: PPO, state: Mapping[str, Any]) -> None:
    """Takes over what `state_of` gave."""
    agent.load_state_dict(state["variables"])
    agent.load_counters(state["counters"])


class WholeLearner(AgentLearner):
    """A learner that hands out all of its state, and takes it over."""

    def state_dict(self) -> dict[str, Any]:
        """Everything that a checkpoint keeps of the agent, and its counters."""
        return state_of(self.agent)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over what `state_dict` gave."""
        load_state(self.agent, state)


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
        save_every: Updates from one snapshot of its state to the next, if it may be made anew after a failure.
    """

    def __init__(
        self, config: TrainConfig, make_agent: MakeAgent[Any, Any], agent: PPO, cpus: float, save_every: int
    ) -> None:
        self.agent = agent
        self.actor = LearnerActor(LearnerFactory(config, make_agent), Resources(cpus=cpus), save_every)

    def fetch(self, plan: ReportMetrics) -> None:
        """Brings the agent here to the state of the learner."""
        load_state(self.agent, ask_learner(plan, self.actor, "state_dict"))

    def push(self, plan: ReportMetrics) -> None:
        """Brings the learner to the state of the agent here."""
        ask_learner(plan, self.actor, "load_state_dict", state_of(self.agent))
