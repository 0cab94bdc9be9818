"""An agent that learns from what workers send, as the learner of a plan."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from rlweave.agents.agent import Agent
from rlweave.algorithms.rollout_workers import acting_state
from rlweave.flow import SampleBatch

AgentT = TypeVar("AgentT", bound=Agent)


class AgentLearner(Generic[AgentT]):
    """The agent as a plan's learner.

    Args:
        agent: The agent.
        counts: Whether it counts environment steps, because the workers do not do so on this very agent.
    """

    def __init__(self, agent: AgentT, counts: bool = False) -> None:
        self.agent, self.counts = agent, counts

    def update(self, batch: SampleBatch) -> dict[str, Any]:
        """One update on what workers sent."""
        self._count(batch.num_steps)
        return dict(self.agent.update(batch.data))

    def _count(self, steps: int) -> None:
        """Counts environment steps that nobody has counted on this agent."""
        if self.counts:
            self.agent.count_steps(steps)

    def get_weights(self) -> dict[str, Any]:
        """What acting needs."""
        return acting_state(self.agent)
