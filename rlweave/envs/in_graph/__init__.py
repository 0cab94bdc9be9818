"""Environments written in ops, which step inside the graph on every backend; and others, behind host nodes."""

from rlweave.envs.in_graph.cart_pole import CartPole
from rlweave.envs.in_graph.catch import Catch
from rlweave.envs.in_graph.cue_recall import CueRecall
from rlweave.envs.in_graph.environment import GraphEnvironment
from rlweave.envs.in_graph.external import ExternalEnvironment
from rlweave.envs.in_graph.grid_world import GridWorld
from rlweave.envs.in_graph.making import GRAPH_ENVIRONMENTS, make_graph_environment, register_graph_environment
from rlweave.envs.in_graph.pendulum import Pendulum
from rlweave.envs.in_graph.stepper import EnvironmentStepper

__all__ = [
    "GRAPH_ENVIRONMENTS",
    "CartPole",
    "Catch",
    "CueRecall",
    "EnvironmentStepper",
    "ExternalEnvironment",
    "GraphEnvironment",
    "GridWorld",
    "Pendulum",
    "make_graph_environment",
    "register_graph_environment",
]
