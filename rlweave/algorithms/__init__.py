"""Algorithms: an agent, its workers, a plan and presets each; and what trains, evaluates and saves them."""
