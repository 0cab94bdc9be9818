"""Algorithms as component graphs behind one API, knowing nothing of how they are executed."""

from rlweave.agents.agent import Agent, AgentConfig
from rlweave.agents.dqn import DQN, DQNConfig
from rlweave.agents.ppo import PPO, PPOConfig

__all__ = ["DQN", "PPO", "Agent", "AgentConfig", "DQNConfig", "PPOConfig"]
