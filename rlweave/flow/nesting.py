"""Plans in plans: a worker whose items are the progress of a plan of its own in a number of environment steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlweave.flow.codec import saved_as
from rlweave.flow.engine import Engine, LocalEngine
from rlweave.flow.item_types import positive
from rlweave.flow.plan import ReportMetrics
from rlweave.flow.protocols import Episode
from rlweave.flow.resources import Resources


@saved_as("plan_item")
@dataclass(slots=True)
class PlanItem:
    """The progress of an inner plan.

    Attributes:
        num_steps: Environment steps that it took.
        report: Single numbers by name, as in the inner plan's report.
        state: Further data, such as its state: nested string-keyed dicts and lists of JSON values
            and arrays.
    """

    num_steps: int
    report: Mapping[str, float]
    state: Mapping[str, Any] = field(default_factory=dict)

    @staticmethod
    def concat(items: Sequence[PlanItem], /) -> PlanItem:
        """Several as one: steps are summed, numbers averaged over those that have them, states listed as ``parts``.

        >>> PlanItem.concat([PlanItem(4, {"a": 1.0}), PlanItem(8, {"a": 3.0, "b": 5.0})]).report
        {'a': 2.0, 'b': 5.0}
        """
        names = dict.fromkeys(name for item in items for name in item.report)
        values = {name: [item.report[name] for item in items if name in item.report] for name in names}
        means = {name: sum(found) / len(found) for name, found in values.items()}
        return PlanItem(sum(item.num_steps for item in items), means, {"parts": [dict(item.state) for item in items]})

    def state_dict(self) -> dict[str, Any]:
        """JSON-able data and arrays."""
        return {"num_steps": self.num_steps, "report": dict(self.report), "state": dict(self.state)}


class PlanWorker:
    """A running plan as a worker of another plan.

    Args:
        plan: The inner plan, not started yet.
        engine: Where its actors live; the caller closes it.
        steps: Environment steps of the inner plan that make one item.
        on_weights: Called with weights and version when the outer plan sends them; without it they are ignored.
    """

    def __init__(
        self,
        plan: ReportMetrics,
        engine: Engine,
        steps: int,
        on_weights: Callable[[Any, int], None] | None = None,
    ) -> None:
        self.plan = plan
        self.steps = positive("steps", steps, "plan_worker")
        self._engine, self._on_weights = engine, on_weights
        self._episodes: list[Episode] = []
        self._started = False

    def sample(self) -> PlanItem:
        """Runs the inner plan for some steps; StopIteration when it is over."""
        if not self._started:
            self._started = True
            self.plan.start(self._engine)
        counters = self.plan.counters
        before = counters.env_steps_sampled
        report = None
        for report in self.plan.run(
            until=lambda now: now.env_steps_sampled >= before + self.steps, every_steps=1 << 60
        ):
            self._episodes += report.episodes
        if report is None:
            raise StopIteration
        return PlanItem(counters.env_steps_sampled - before, report.flat())

    def set_weights(self, weights: Any, version: int) -> None:
        """Passes weights of the outer plan to ``on_weights``."""
        if self._on_weights is not None:
            self._on_weights(weights, version)

    def episode_stats(self) -> Sequence[Episode]:
        """Episodes of the inner plan since the last call."""
        episodes, self._episodes = self._episodes, []
        return episodes

    def close(self) -> None:
        """Ends the actors of the inner plan."""
        self.plan.close()


class NestedPlan:
    """A factory for a `PlanWorker`: give several of them to a `WorkerGroup`, and each makes a plan of its own there.

    The outer plan adds the resources of inner plans to its own. An actor that only drives a plan whose
    workers live elsewhere takes no processor core: trials that held one each would wait for each other's for ever.

    Args:
        compose: Composes the inner plan. Called once here, too, for its resources; composing starts nothing.
        steps: Environment steps of the inner plan that make one item of the outer one.
        engine: Gives the engine of the inner plan's actors; None lets them live in the process of the actor. In an
            actor on Ray, ``RayEngine`` gives the cluster that the actor is part of.
        on_weights: As in `PlanWorker`.
    """

    makes = PlanWorker

    def __init__(
        self,
        compose: Callable[[], ReportMetrics],
        steps: int,
        engine: Callable[[], Engine] | None = None,
        on_weights: Callable[[Any, int], None] | None = None,
    ) -> None:
        self.compose, self.engine, self.on_weights = compose, engine, on_weights
        self.steps = positive("steps", steps, "nested_plan")

    @property
    def resources(self) -> Resources:
        """Resources of the actor itself: none if it only drives other actors."""
        return Resources() if self.engine is None else Resources(cpus=0.0)

    def needs(self) -> list[tuple[int, Resources]]:
        """The actors of the inner plan, those of plans in it included."""
        return [] if self.engine is None else self.compose().graph.needs()

    def capacity(self) -> Mapping[str, float] | None:
        """Capacity of the engine of the inner plan's actors."""
        return None if self.engine is None else self.engine().capacity()

    def __call__(self) -> PlanWorker:
        """The worker, with a plan that is not started yet."""
        engine = LocalEngine() if self.engine is None else self.engine()
        return PlanWorker(self.compose(), engine, self.steps, self.on_weights)
