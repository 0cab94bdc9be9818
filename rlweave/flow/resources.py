"""Resources of actors on the machines they run on, summed and compared with the capacity before anything starts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rlweave.errors import ConfigError, PlanError


@dataclass(frozen=True)
class Resources:
    """The resources that one actor holds while it lives. The driver of a plan holds none.

    Attributes:
        cpus: Processor cores; may be a fraction.
        gpus: Accelerators; may be a fraction.
        other: Further resources by the name that the cluster gives them.
    """

    cpus: float = 1.0
    gpus: float = 0.0
    other: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, amount in self.amounts().items():
            if not amount >= 0:
                raise ConfigError("a resource must not be negative", where=f"Resources, {name}", received=str(amount))

    def amounts(self) -> dict[str, float]:
        """Amounts by name, as clusters name them.

        >>> Resources(cpus=2, other={"licence": 1}).amounts()
        {'CPU': 2, 'GPU': 0.0, 'licence': 1}
        """
        return {"CPU": self.cpus, "GPU": self.gpus, **self.other}


def total(needs: Iterable[tuple[int, Resources]]) -> dict[str, float]:
    """The sum over (number of actors, resources of each), without zeros.

    >>> total([(2, Resources()), (1, Resources(cpus=0.5, gpus=1))])
    {'CPU': 2.5, 'GPU': 1.0}
    """
    summed: dict[str, float] = {}
    for number, resources in needs:
        for name, amount in resources.amounts().items():
            summed[name] = summed.get(name, 0.0) + number * amount
    return {name: amount for name, amount in summed.items() if amount}


def alike(needs: Iterable[tuple[int, Resources]]) -> list[tuple[int, Resources]]:
    """The same needs, with actors of equal resources counted together.

    >>> [number for number, _ in alike([(2, Resources()), (1, Resources(cpus=0)), (3, Resources())])]
    [5, 1]
    """
    counted: list[tuple[int, Resources]] = []
    for number, resources in needs:
        for place, (others, same) in enumerate(counted):
            if same == resources:
                counted[place] = others + number, same
                break
        else:
            counted.append((number, resources))
    return counted


def check_capacity(needed: Mapping[str, float], capacity: Mapping[str, float] | None, parts: str, plan: str) -> None:
    """Refuses a plan that needs more than the capacity.

    Args:
        needed: Sum of the resources of its actors.
        capacity: The capacity of the engine; None where nothing is counted.
        parts: The parts of the sum, for the message.
        plan: Name of the plan.

    Raises:
        PlanError: Names the sum and the capacity.
    """
    if capacity is None:
        return
    lacking = {name: amount for name, amount in needed.items() if amount > capacity.get(name, 0.0) + 1e-9}
    if lacking:
        raise PlanError(
            "the plan needs more resources than the engine has",
            where=f"plan {plan!r}",
            received=f"{parts} need {described(needed)} in all; there is "
            + described({name: capacity.get(name, 0.0) for name in needed}),
            fix="use fewer workers, give each a smaller share (Resources(cpus=0.5)), or a larger cluster",
        )


def described(amounts: Mapping[str, float]) -> str:
    """Amounts as text.

    >>> described({"CPU": 2.5, "GPU": 1.0})
    '2.5 CPU, 1 GPU'
    """
    return ", ".join(f"{amount:g} {name}" for name, amount in amounts.items()) or "nothing"
