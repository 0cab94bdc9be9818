"""The parts of a training, and the interface of trainers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

from rlweave.agents.agent import Agent
from rlweave.agents.policy_agents import PolicyAgents
from rlweave.algorithms.callbacks import Callbacks
from rlweave.envs import Evaluation
from rlweave.flow import ReportMetrics, WorkerGroup
from rlweave.runs.metrics import Report


class Trainer(Protocol):
    """Something that trains; all that the command line needs of it.

    Attributes:
        callbacks: To be told of evaluations and checkpoints; of reports and the end the run tells them.
    """

    callbacks: Callbacks

    @property
    def env_steps(self) -> int:
        """Environment steps done so far, over all environments; a checkpoint keeps it."""

    def train(self) -> Iterator[Report]:
        """Trains from where it stands to `config.steps`.

        Yields:
            A report about every `config.report_every` steps, and one at the end. Whenever it yields, the trainer is in
            a state that can be saved; the training stops where iteration stops.
        """

    def evaluate(self, episodes: int, seed: int) -> Evaluation:
        """Plays episodes greedily in environments of their own, which disturbs nothing of the training."""

    def save(self) -> Path:
        """Writes a checkpoint of everything into the run directory (a trainer also does so on its own)."""

    def restore(self, path: Path) -> None:
        """Takes over everything from a checkpoint."""

    def load_model(self, path: Path) -> None:
        """Takes over the model of a checkpoint, such as `best`, which has nothing else: enough to evaluate."""

    def draw(self, method: str | None = None) -> str:
        """A picture of the component graph, or of one API method of it, as the text of an SVG file."""

    def code(self, method: str) -> str:
        """The code that runs for one API method of the agent's root component."""

    def explain(self) -> str:
        """How the component graph was built, phase by phase."""

    def draw_plan(self) -> str:
        """A picture of the dataflow plan, as the text of an SVG file."""

    def close(self) -> None:
        """Closes environments and ends processes."""


class LearnerElsewhere(Protocol):
    """A learner that lives in an actor of a plan; the agent here evaluates, and is saved, in its stead."""

    def fetch(self, plan: ReportMetrics) -> None:
        """Brings the agent here to the state of the learner."""

    def push(self, plan: ReportMetrics) -> None:
        """Brings the learner to the state of the agent here."""


@dataclasses.dataclass
class Parts:
    """What an algorithm hands to its trainer.

    Attributes:
        agent: Learns and acts; several where policies learn side by side.
        workers: Act in environments; each has `start(seed)` and `close()`. A group of factories lives on Ray.
        plan: Composes the plan anew (a plan is started once).
        remote: The learner, where it lives in an actor of its own; None where the agent here learns.
    """

    agent: Agent | PolicyAgents
    workers: list[Any] | WorkerGroup
    plan: Callable[[], ReportMetrics]
    remote: LearnerElsewhere | None = None
