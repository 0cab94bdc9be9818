"""Algorithms as component graphs behind one API, knowing nothing of how they are executed."""

from rlweave.agents.a2c import A2C, A3C, A2CConfig, A3CConfig
from rlweave.agents.agent import Agent, AgentConfig
from rlweave.agents.dqn import DQN, DQNConfig
from rlweave.agents.ppo import PPO, PPOConfig

__all__ = ["A2C", "A3C", "DQN", "PPO", "A2CConfig", "A3CConfig", "Agent", "AgentConfig", "DQNConfig", "PPOConfig"]
