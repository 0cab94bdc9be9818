"""What the operators, messages and weights of a plan cost: plain data, measured or written by hand, for simulations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

from rlweave.errors import ConfigError, PlanError
from rlweave.settings.config import Config, setting


class OperatorCosts(Config):
    """The costs of one operator; of a source, those of making an item, beside operators that run at its actors."""

    per_item: float = setting(0.0, "time for an item, whatever its size", ge=0.0, unit="seconds")
    per_row: float = setting(0.0, "time for each row of an item", ge=0.0, unit="seconds")
    send: float = setting(
        0.0, "time of the driver to send what an actor's method takes, beside that of a call", ge=0.0, unit="seconds"
    )
    rows: int = setting(0, "rows of an item that a source makes", ge=0, unit="rows")
    bytes: int = setting(0, "size of an item that a source makes", ge=0, unit="bytes")

    def seconds(self, rows: int) -> float:
        """Time for an item of so many rows."""
        return self.per_item + self.per_row * rows


class WeightCosts(Config):
    """The costs of weights on their way from a learner to the workers."""

    bytes: int = setting(0, "size of all weights", ge=0, unit="bytes")
    read: float = setting(0.0, "time in which the learner gives them away, once per version", ge=0.0, unit="seconds")
    write: float = setting(0.0, "time in which a worker takes them over", ge=0.0, unit="seconds")


class MessageCosts(Config):
    """The costs of a call of an actor, beside what its method does."""

    call: float = setting(0.0, "time of the driver to send a call", ge=0.0, unit="seconds")
    result: float = setting(0.0, "time of the driver to receive a result, and to move items on", ge=0.0, unit="seconds")
    actor: float = setting(0.0, "time of the actor to receive a call and to answer", ge=0.0, unit="seconds")
    look: float = setting(
        0.0, "time of the driver for each call under way, whenever it looks which are done", ge=0.0, unit="seconds"
    )
    latency: float = setting(
        0.0, "time of a message between two processes, in which neither of them works", ge=0.0, unit="seconds"
    )


class NetworkCosts(Config):
    """The costs of messages between machines."""

    bytes_per_second: float = setting(
        1.25e9, "what a machine can send, and receive at the same time", gt=0.0, unit="bytes per second"
    )
    latency: float = setting(1e-4, "time of a message on its way to another machine", ge=0.0, unit="seconds")


class Costs(Config):
    """All costs of a plan, by the names of its operators.

    ``"replay/insert"`` is the method `insert` of the actors of the operator `replay`.
    """

    operators: dict[str, OperatorCosts] = setting({}, "costs by operator")
    weights: WeightCosts = setting(WeightCosts(), "costs of weights")
    messages: MessageCosts = setting(MessageCosts(), "costs of calls of actors")
    network: NetworkCosts = setting(NetworkCosts(), "costs of messages between machines")

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        """Makes them from plain data.

        Raises:
            ConfigError: For an unknown key, a wrong type, or a value out of range.
        """
        operators = data.get("operators")
        for name, own in operators.items() if isinstance(operators, Mapping) else ():
            try:
                OperatorCosts.from_data(own or {})
            except ConfigError as error:
                raise ConfigError(
                    error.what, where=f"costs of {name!r}", received=error.received, fix=error.fix
                ) from error
        return super().from_data(data)

    def of(self, operator: str) -> OperatorCosts:
        """The costs of an operator.

        Raises:
            PlanError: There are none.
        """
        self.check([operator])
        return self.operators[operator]

    def check(self, operators: Sequence[str]) -> None:
        """Checks that the costs of operators are known.

        Raises:
            PlanError: Names those whose costs are not.
        """
        missing = [name for name in operators if name not in self.operators]
        if missing:
            names = ", ".join(map(repr, missing))
            raise PlanError(
                f"the costs of {names} are not known",
                where="costs",
                received=f"costs of {', '.join(map(repr, self.operators)) or 'nothing'}",
                fix="add them: operators: {"
                + ", ".join(f"{name}: {{per_item: SECONDS}}" for name in missing)
                + "}; or leave the file out, and they are measured",
            )
