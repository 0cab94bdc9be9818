"""Checks of agents: the whole graph, and what the agent does with it."""
