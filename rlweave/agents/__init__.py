"""Agents: one file per algorithm, knowing nothing of how it is executed."""
