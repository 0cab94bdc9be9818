"""Environments behind one contract: adapters for Gymnasium and its vector environments, and a few small tasks.

`make_env` makes a `VectorEnv` from an id, a function or a vector environment. All kinds yield the same
list of transitions: see `StepResult`. Importing this registers ``rlweave/GridWorld-v0``, ``rlweave/Catch-v0``,
``rlweave/CueRecall-v0`` and ``rlweave/MaskedRecall-v0``.
"""

from rlweave.envs.async_env import AsyncEnv
from rlweave.envs.catch import Catch
from rlweave.envs.cue_recall import CueRecall
from rlweave.envs.evaluation import Evaluation, evaluate
from rlweave.envs.gridworld import GridWorld
from rlweave.envs.gymnasium_vector import GymnasiumVectorEnv
from rlweave.envs.hashed_text import HashedText, TextHashing
from rlweave.envs.making import make_env
from rlweave.envs.masked_recall import MaskedRecall
from rlweave.envs.point_navigation import PointNavigation
from rlweave.envs.registration import register_environments, resolve
from rlweave.envs.seeding import EVALUATION_WORKER
from rlweave.envs.sine_tasks import SineTasks
from rlweave.envs.steps import Episode, EpisodeTracker, StepResult
from rlweave.envs.sync_env import SyncEnv
from rlweave.envs.vector_env import VectorEnv

register_environments()

__all__ = [
    "EVALUATION_WORKER",
    "AsyncEnv",
    "Catch",
    "CueRecall",
    "Episode",
    "EpisodeTracker",
    "Evaluation",
    "GridWorld",
    "GymnasiumVectorEnv",
    "HashedText",
    "MaskedRecall",
    "PointNavigation",
    "SineTasks",
    "StepResult",
    "SyncEnv",
    "TextHashing",
    "VectorEnv",
    "evaluate",
    "make_env",
    "register_environments",
    "resolve",
]
