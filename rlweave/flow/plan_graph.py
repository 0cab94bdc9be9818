"""The graph of a plan: all nodes that belong to it, their final names, and what they need to know of each other."""

from __future__ import annotations

from typing import Any

from rlweave.errors import PlanError
from rlweave.flow.branching import Queue
from rlweave.flow.gather_modes import GatherAsync
from rlweave.flow.learner import LearnerActor
from rlweave.flow.operator import Operator
from rlweave.flow.protocols import Learner
from rlweave.flow.resources import Resources, alike
from rlweave.flow.sources import RolloutSource
from rlweave.flow.workers import WorkerGroup


class PlanGraph:
    """All nodes that are connected with a sink, in topological order, checked.

    Args:
        sink: The end of the plan.

    Raises:
        PlanError: If an output has no consumer, two operators were given one name, or a node finds itself wrong.
    """

    def __init__(self, sink: Operator) -> None:
        self.nodes = sorted(_connected(sink), key=lambda node: node.order)
        self._name_nodes()
        self._check_consumers(sink)
        self._ancestors: dict[Operator, set[Operator]] = {}
        for node in self.nodes:
            above = {port.node for port in node.inputs}
            self._ancestors[node] = above.union(*(self._ancestors[parent] for parent in above))
        for node in self.nodes:
            if node.sends_to is not None:
                self.check_group(node.sends_to, node.name)
            node.check(self)

    def _name_nodes(self) -> None:
        taken: dict[str, Operator] = {}
        for node in sorted(self.nodes, key=lambda node: (not node.named_by_user, node.order)):
            name, number = node.base_name, 1
            if node.named_by_user and name in taken:
                raise PlanError(
                    f"two operators are named {name!r}",
                    where=f"operators {taken[name].name!r} and {name!r}",
                    received=repr(name),
                    fix="give them different names",
                )
            while name in taken:
                number += 1
                name = f"{node.base_name}-{number}"
            taken[name] = node
            node.name = name

    def _check_consumers(self, sink: Operator) -> None:
        for node in self.nodes:
            for port in node.outputs:
                if port.consumer is None:
                    raise PlanError(
                        f"nobody takes the items of {node.name!r}",
                        where=f"operators {node.name!r} and {sink.name!r}",
                        received=f"{port.describe()}, without a consumer",
                        fix=f"make it a branch of a Union that ends in {sink.name!r}, or leave it out",
                    )

    def source_of(self, group: WorkerGroup) -> RolloutSource:
        """The operator whose actors are the workers of a group that `check_group` let pass."""
        return next(node for node in self.nodes if isinstance(node, RolloutSource) and node.group.key == group.key)

    def trainer_of(self, learner: LearnerActor) -> str:
        """Name of the operator that a learner in an actor works for."""
        return next((node.name for node in self.nodes if node.trains is learner), "learner")

    def trains(self, learner: Learner | LearnerActor) -> bool:
        """Whether an operator of the plan trains a learner."""
        return any(node.trains is learner for node in self.nodes)

    def check_group(self, group: WorkerGroup, operator: str) -> None:
        """Checks that workers named by an operator are those of a ParallelRollouts of this plan.

        Raises:
            PlanError: If they are not: weights would go to workers that make no items here.
        """
        sources = [node for node in self.nodes if isinstance(node, RolloutSource)]
        if all(source.group.key != group.key for source in sources):
            shown = ", ".join(f"{len(source.group)} workers in {source.name!r}" for source in sources) or "no rollouts"
            raise PlanError(
                f"the workers of {operator!r} are not those that this plan samples from",
                where=f"operator {operator!r}, argument 'workers'",
                received=f"{len(group)} workers, where the plan has {shown}",
                fix="give ParallelRollouts and every other operator the same list or WorkerGroup",
            )

    def groups(self) -> list[WorkerGroup]:
        """The groups of workers that the plan samples from."""
        return list({node.group.key: node.group for node in self.nodes if isinstance(node, RolloutSource)}.values())

    def needs(self) -> list[tuple[int, Resources]]:
        """The actors of the plan, and those of plans in it: how many, and what each of them holds."""
        return alike([(number, resources) for _, number, resources in self.needs_by_operator()])

    def needs_by_operator(self) -> list[tuple[str, int, Resources]]:
        """The actors of the plan, and those of plans in it: of which operator, how many, what each of them holds."""
        groups = {node.group.key: (node.name, node.group) for node in self.nodes if isinstance(node, RolloutSource)}
        learners = {
            id(node.trains): (node.name, node.trains) for node in self.nodes if isinstance(node.trains, LearnerActor)
        }
        own = [(name, len(group), group.resources) for name, group in groups.values()]
        own += [(name, 1, learner.resources) for name, learner in learners.values()]
        return own + [
            (f"plans in {name}", number, resources)
            for name, group in groups.values()
            for number, resources in alike(group.inner_needs())
        ]

    def has_only_one_source(self) -> bool:
        """Whether everything waits for one stream of rollouts: nothing else could move meanwhile."""
        alone = [node for node in self.nodes if not node.inputs]
        steady = not any(isinstance(node, Queue) or isinstance(node.trains, LearnerActor) for node in self.nodes)
        return len(alone) == 1 and isinstance(alone[0], RolloutSource) and steady

    def ancestors(self, node: Operator) -> set[Operator]:
        """All nodes whose items can reach ``node``."""
        return self._ancestors[node]

    def learners_behind(self, node: Operator) -> list[Learner | LearnerActor]:
        """The learners that train on items which have come through ``node``, each once."""
        below = [other.trains for other in self.nodes if node in self._ancestors[other]]
        found = [learner for learner in below if learner is not None]
        return list({id(learner): learner for learner in found}.values())

    def max_lags_above(self, node: Operator) -> list[tuple[WorkerGroup, int]]:
        """The workers whose items come to ``node`` with a bound on their lag, with that bound."""
        gathers = [above for above in self._ancestors[node] if isinstance(above, GatherAsync)]
        return [(gather.source.group, gather.max_lag) for gather in gathers if gather.max_lag is not None]

    def stores_into(self, memory: Any) -> list[Operator]:
        """All operators that store into a memory."""
        return [node for node in self.nodes if node.fills is memory]


def _connected(sink: Operator) -> set[Operator]:
    found: set[Operator] = set()
    waiting = [sink]
    while waiting:
        node = waiting.pop()
        if node in found:
            continue
        found.add(node)
        waiting += [port.node for port in node.inputs]
        waiting += [port.consumer for port in node.outputs if port.consumer is not None]
    return found
