"""The plan of several policies, each trained by its own algorithm on its part of the same rollouts."""

from __future__ import annotations

from typing import Any, ClassVar

from rlweave.agents.agent import Agent
from rlweave.agents.dqn import DQN
from rlweave.agents.policy_agents import PolicyAgents
from rlweave.agents.ppo import PPO
from rlweave.algorithms.agent_learner import AgentLearner
from rlweave.algorithms.config import TrainConfig
from rlweave.algorithms.dqn import GraphLearner, dqn_branch
from rlweave.algorithms.placement import gathered, rollouts
from rlweave.algorithms.trajectory_packing import PackTrajectories
from rlweave.flow import Operator, PolicyBatches, ReportMetrics, Stream, TrainOneStep, Union, Workers


class PPOOfPolicy(AgentLearner[PPO]):
    """A PPO agent as a learner whose weights say which policy they are of."""

    def __init__(self, agent: PPO, policy: str, counts: bool) -> None:
        super().__init__(agent, counts)
        self.policy = policy

    def get_weights(self) -> dict[str, Any]:
        """What acting needs, and the name of the policy."""
        return {"policy": self.policy, **super().get_weights()}


class DQNOfPolicy(GraphLearner):
    """A DQN agent as a learner whose weights say which policy they are of."""

    def __init__(self, agent: DQN, policy: str) -> None:
        super().__init__(agent)
        self.policy = policy

    def get_weights(self) -> dict[str, Any]:
        """What acting needs, and the name of the policy."""
        return {"policy": self.policy, **super().get_weights()}


class CountJointSteps(Operator):
    """Counts steps of environments, all agents together."""

    at_source: ClassVar[bool] = False

    def __init__(self, agents: PolicyAgents) -> None:
        self.agents = agents

    def __call__(self, item: PolicyBatches) -> PolicyBatches:
        """Counts, and passes the item on."""
        self.agents.joint_steps += item.joint_steps
        return item


# -- the plan ----------------------------------------------------------------------------------------------------


def ppo_branch(steps: Stream, workers: Workers, learner: PPOOfPolicy) -> Stream:
    """Steps packed into rollouts, then one update on each."""
    agent = learner.agent
    packed = steps.for_each(PackTrajectories(agent.config.rollout_steps, agent.num_envs))
    return packed.for_each(TrainOneStep(learner, workers)).named(f"train_{learner.policy}")


def policy_branch(selected: Stream, workers: Workers, agent: Agent, policy: str, counts: bool) -> Stream:
    """What trains one policy, of its part of the rollouts."""
    if isinstance(agent, DQN):
        return dqn_branch(selected, workers, DQNOfPolicy(agent, policy), counts, name=f"train_{policy}")
    assert isinstance(agent, PPO)
    return ppo_branch(selected, workers, PPOOfPolicy(agent, policy, counts))


def multi_agent_plan(
    config: TrainConfig, workers: Workers, agents: PolicyAgents, counts: bool = False
) -> ReportMetrics:
    """Every policy is trained by its own algorithm on its part of the same rollouts.

    The slides split the stream while it still is at its sources. Here a split gathers first, in rounds, so that no
    policy's rollouts are sampled anew for another, and branches get copies, so that none sees another's changes.
    """
    joint = gathered(config, rollouts(config, workers), "sync").for_each(CountJointSteps(agents))
    branches = [
        policy_branch(stream.select(policy), workers, agents[policy], policy, counts)
        for policy, stream in zip(agents, joint.split(len(agents)), strict=True)
    ]
    return ReportMetrics(Union(*branches), workers)
