"""The interface of trainers, the parts that an algorithm gives them, and the events of a training."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from rlweave.agents.agent import Agent
from rlweave.agents.policy_agents import PolicyAgents
from rlweave.algorithms.callbacks import Callbacks
from rlweave.algorithms.config import TrainConfig
from rlweave.envs import Evaluation
from rlweave.flow import Every, ReportMetrics, WorkerGroup
from rlweave.runs.metrics import Report


class Trainer(Protocol):
    """The interface of trainers, as `Run` and the command line use it.

    Attributes:
        callbacks: Called for evaluations and checkpoints; the run calls them for reports and the end.
    """

    callbacks: Callbacks

    @property
    def env_steps(self) -> int:
        """Environment steps done so far, over all environments; a checkpoint keeps it."""

    def train(self) -> Iterator[Report]:
        """Trains until `config.steps`.

        Yields:
            A report about every `config.report_every` steps, and one at the end. Whenever it yields, the trainer is in
            a state that can be saved; the training pauses when iteration stops.
        """

    def evaluate(self, episodes: int, seed: int) -> Evaluation:
        """Plays episodes greedily in environments of their own, without an effect on the training."""

    def save(self) -> Path:
        """Writes a checkpoint of everything into the run directory (a trainer also does so on its own)."""

    def restore(self, path: Path) -> None:
        """Takes over everything from a checkpoint."""

    def load_model(self, path: Path) -> None:
        """Takes over the model of a checkpoint, such as `best`, in order to evaluate."""

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
    """A learner that lives in an actor of a plan; the agent here is evaluated and saved in its place."""

    def begin(self, plan: ReportMetrics) -> None:
        """Called when the plan is started: its actors are there."""

    def fetch(self, plan: ReportMetrics) -> None:
        """Brings the agent here to the state of the learner."""

    def push(self, plan: ReportMetrics) -> None:
        """Brings the learner to the state of the agent here."""


@dataclasses.dataclass
class Parts:
    """The parts that an algorithm gives its trainer.

    Attributes:
        agent: The agent; several where policies learn side by side.
        workers: Worker objects, each with `start(seed)` and `close()`, or a group of factories.
        plan: Composes a new plan (a plan is started once).
        remote: The learner, where it lives in an actor of its own; None where the agent here learns.
        one_seed: Whether the environments of all workers are seeded as those of a single one.
    """

    agent: Agent | PolicyAgents
    workers: list[Any] | WorkerGroup
    plan: Callable[[], ReportMetrics]
    remote: LearnerElsewhere | None = None
    one_seed: bool = False


class Events:
    """When a training evaluates, saves and reports.

    Args:
        config: Settings of the training.
    """

    def __init__(self, config: TrainConfig) -> None:
        self.evaluate, self.checkpoint = Every(config.evaluate_every), Every(config.checkpoint_every)
        self.report = Every(config.report_every)
        self._all = (self.evaluate, self.checkpoint, self.report)

    def is_due(self, steps: int) -> bool:
        """Whether one of them is due at so many environment steps."""
        return any(event.is_due(steps) for event in self._all)

    def next_after(self, steps: int) -> int:
        """The next number of environment steps at which one of them is due."""
        return min((steps // event.interval + 1) * event.interval for event in self._all if event.interval)

    def state_dict(self) -> list[dict[str, Any]]:
        """The events so far."""
        return [event.state_dict() for event in self._all]

    def load_state_dict(self, state: Sequence[Any]) -> None:
        """Takes over what `state_dict` gave."""
        for event, kept in zip(self._all, state, strict=True):
            event.load_state_dict(kept)
