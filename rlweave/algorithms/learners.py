"""Agents as the learners of plans: in this process, or in an actor of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from rlweave.agents.agent import Agent
from rlweave.algorithms.config import TrainConfig
from rlweave.algorithms.environments import ShipsEnvironment, make_training_env
from rlweave.algorithms.placement import MakeAgent, set_threads
from rlweave.algorithms.rollout_workers import acting_state
from rlweave.flow import LearnerActor, ReportMetrics, Resources, SampleBatch

AgentT = TypeVar("AgentT", bound=Agent)


class AgentLearner(Generic[AgentT]):
    """The agent as a plan's learner, which updates on the workers' batches.

    Args:
        agent: The agent.
        counts: Whether it counts environment steps: the workers have their own agents.
    """

    def __init__(self, agent: AgentT, counts: bool = False) -> None:
        self.agent, self.counts = agent, counts

    def update(self, batch: SampleBatch) -> dict[str, Any]:
        """One update on a batch of the workers."""
        self._count(batch.num_steps)
        return dict(self.agent.update(batch.data))

    def _count(self, steps: int) -> None:
        """Counts environment steps, unless the workers count them on this agent."""
        if self.counts:
            self.agent.count_steps(steps)

    def get_weights(self) -> dict[str, Any]:
        """The weights and counters that acting needs."""
        return acting_state(self.agent)


def state_of(agent: Agent) -> dict[str, Any]:
    """An agent's variables, as checkpoints keep them, and its counters."""
    return {"variables": agent.state_dict(), "counters": agent.counters()}


def load_state(agent: Agent, state: Mapping[str, Any]) -> None:
    """Takes over what `state_of` gave."""
    agent.load_state_dict(state["variables"])
    agent.load_counters(state["counters"])


class WholeLearner(AgentLearner[Agent]):
    """A learner with a state, for one that lives in an actor."""

    def state_dict(self) -> dict[str, Any]:
        """The agent's variables, as checkpoints keep them, and its counters."""
        return state_of(self.agent)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over what `state_dict` gave."""
        load_state(self.agent, state)


class LearnerFactory(ShipsEnvironment):
    """Makes the learner in its process.

    Args:
        config: Settings of the training.
        make_agent: Makes its agent; it is pickled.
    """

    def __init__(self, config: TrainConfig, make_agent: MakeAgent) -> None:
        self.config, self.make_agent = config, make_agent

    def __call__(self) -> WholeLearner:
        """The learner; its agent has the seed of the one that is here, and so the same initial weights."""
        agent_config = self.config.agent.model_copy(update={"acting_backend": None})
        config = self.config.model_copy(update={"agent": agent_config})
        with make_training_env(config) as env:
            agent: Agent = self.make_agent(config, env, config.seed)
        agent.build()
        set_threads(config, agent)
        return WholeLearner(agent, counts=True)


class RemoteLearner:
    """Synchronizes a learner in an actor with the agent here, which evaluates, and which checkpoints hold.

    Args:
        config: Settings of the training, with those of a learner in an actor.
        make_agent: Makes the learner's agent.
        agent: The agent here.
    """

    def __init__(self, config: Any, make_agent: MakeAgent, agent: Agent) -> None:
        self.agent = agent
        held = Resources(cpus=config.learner_cpus)
        self.actor = LearnerActor(LearnerFactory(config, make_agent), held, config.learner_snapshots)

    def begin(self, plan: ReportMetrics) -> None:
        """Does nothing: the learner needs nobody else."""

    def fetch(self, plan: ReportMetrics) -> None:
        """Brings the agent here to the state of the learner."""
        load_state(self.agent, plan.ask_learner(self.actor, "state_dict"))

    def push(self, plan: ReportMetrics) -> None:
        """Brings the learner to the state of the agent here."""
        plan.ask_learner(self.actor, "load_state_dict", state_of(self.agent))
