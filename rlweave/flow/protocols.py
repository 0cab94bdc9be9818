"""Protocols of the objects that operators take: any class with these methods will do.

Methods are checked when a plan is composed, so a missing one is an error before anything starts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from rlweave.errors import PlanError, nearest
from rlweave.flow.codec import saved_as


class Batch(Protocol):
    """Environment steps that can be glued together; `rlweave.flow.SampleBatch` is the usual one."""

    @property
    def num_steps(self) -> int:
        """Number of *environment* steps in it (for a sample from a memory: number of samples)."""
        ...

    def concat(self, batches: Any, /) -> Any:
        """Glues batches of this type together in order. Usually a static method: ``type(b).concat([a, b])``."""
        ...


@saved_as("episode")
class Episode(NamedTuple):
    """A finished episode.

    Attributes:
        episode_return: Undiscounted sum of its rewards, as the environment gave them.
        length: Its number of environment steps.
        policy: Name of the policy that played it, where several learn side by side.
        info: Numbers of its last step's info that are metrics, by name.
    """

    episode_return: float
    length: int
    policy: str = ""
    info: tuple[tuple[str, float], ...] = ()

    def to_data(self) -> list[Any]:
        """JSON-able data."""
        data: list[Any] = [float(self.episode_return), int(self.length)]
        if self.policy or self.info:
            data.append(self.policy)
        return [*data, [[name, float(value)] for name, value in self.info]] if self.info else data

    @classmethod
    def from_data(cls, data: Sequence[Any]) -> Episode:
        """The episode that `to_data` described."""
        policy = str(data[2]) if len(data) > 2 else ""
        info = data[3] if len(data) > 3 else ()
        return cls(float(data[0]), int(data[1]), policy, tuple((str(name), float(value)) for name, value in info))


class Source(Protocol):
    """Makes items for a plan: the protocol of `ParallelRollouts`."""

    def sample(self) -> Any:
        """The next item, with ``num_steps`` or a length in environment steps; StopIteration when there is none.

        Its return annotation is the item type that the plan checks with.
        """
        ...


class TakesWeights(Protocol):
    """The protocol of workers that get weights."""

    def set_weights(self, weights: Any, version: int) -> None:
        """Acts with these weights (arrays by variable path) from the next ``sample`` on. Never keeps older ones.

        Called for each learner that trains for the worker; ``version`` is the number of updates of that learner.
        """
        ...


class TellsEpisodes(Protocol):
    """The protocol of workers whose episodes are reported."""

    def episode_stats(self) -> Sequence[Episode]:
        """The episodes that finished since the last call, each exactly once."""
        ...


class Worker(Source, TakesWeights, TellsEpisodes, Protocol):
    """A source that acts in environments with the weights of a learner.

    A worker that acts on the learner's own weights (the same executor) says so by the attribute
    ``shares_weights = True``. Then ``set_weights`` is never called on it, and no weights are copied.
    """


class Learner(Protocol):
    """Trains on batches. One call of ``update`` makes one new weight version."""

    def update(self, batch: Any) -> Mapping[str, Any]:
        """Trains on a batch and returns metrics: one number each, which may still be on a device.

        One that is not finite stops the plan: training has diverged. One that has no value is left out.

        Three keys are not metrics: ``"gradient_steps"``, optimizer steps taken (default 1);
        ``"trained_samples"``, samples trained on, each as often as it was used (default ``batch.num_steps``);
        ``"priorities"``, a pair (indices, priorities) for `rlweave.flow.UpdatePriorities`.
        """
        ...

    def get_weights(self) -> Any:
        """The weights that workers need, as a dict of NumPy arrays by variable path that later updates leave alone."""
        ...


class ComputesGradients(Protocol):
    """Computes gradients: a worker for its own items, or a learner for all."""

    def compute_gradients(self, batch: Any) -> Any:
        """The gradients of the mean loss over a batch, as `rlweave.flow.Gradients`; changes nothing."""
        ...


class GradientLearner(Learner, Protocol):
    """A learner that also takes gradients which were computed elsewhere."""

    def apply_gradients(self, gradients: Any) -> Mapping[str, Any]:
        """Takes one optimizer step with `rlweave.flow.Gradients`, and returns metrics as ``update`` does."""
        ...


class RestorableLearner(Learner, Protocol):
    """A learner that can be restarted, in another process, from a state that it gave before."""

    def state_dict(self) -> Any:
        """All that it has learned, and its optimizer's state: data that later updates leave alone."""
        ...

    def load_state_dict(self, state: Any, /) -> None:
        """Takes over a state."""
        ...


class Memory(Protocol):
    """Keeps batches and samples from them.

    Two optional attributes make checks and the rate limiter exact: ``capacity``, the most environment steps that it
    can hold, and ``batch_size``, the number of samples that ``sample`` returns.
    """

    def insert(self, batch: Any) -> None:
        """Stores a batch. The memory copies what it keeps."""
        ...

    def ready(self, minimum: int) -> bool:
        """Whether it holds at least ``minimum`` environment steps and ``sample`` can serve a whole batch."""
        ...

    def sample(self) -> Any:
        """A batch to train on, with ``num_steps`` or a length in samples."""
        ...


class PrioritizedMemory(Memory, Protocol):
    """A memory that samples by priority."""

    def update_priorities(self, indices: Any, priorities: Any) -> None:
        """Sets the priorities of sampled items: ``indices`` (B,), ``priorities`` (B,), such as absolute TD errors."""
        ...


BatchType = TypeVar("BatchType", bound=Batch)


def steps_of(batch: Any) -> int:
    """Environment steps (or samples) in an item: its ``num_steps``, or its length, or 0 if it has neither.

    >>> steps_of([1, 2, 3]), steps_of(object())
    (3, 0)
    """
    steps = getattr(batch, "num_steps", None)
    if steps is not None:
        return int(steps)
    if getattr(batch, "shape", None) == ():  # a single number, which has __len__ and no length
        return 0
    return len(batch) if hasattr(batch, "__len__") else 0


def methods_of(protocol: type) -> list[str]:
    """Names of the methods (not properties) that a protocol class asks for, its bases included."""
    names: list[str] = []
    for base in reversed(protocol.__mro__):
        if getattr(base, "_is_protocol", False):
            names += [name for name, value in vars(base).items() if callable(value) and not name.startswith("_")]
    return names


def require(candidate: Any, protocol: type, operator: str, argument: str) -> None:
    """Checks that an object (or a class) has the methods of a protocol.

    Raises:
        PlanError: Naming the operator, the argument and the methods that are missing.
    """
    missing = [name for name in methods_of(protocol) if not callable(getattr(candidate, name, None))]
    if missing:
        kind = candidate if isinstance(candidate, type) else type(candidate)
        there = [name for name in dir(kind) if not name.startswith("_")]
        hint = f" ({nearest(missing[0], there)})" if there else ""
        raise PlanError(
            f"{operator!r} needs a {protocol.__name__} as its {argument}",
            where=f"operator {operator!r}, argument {argument!r}",
            received=f"{kind.__name__}, which lacks {', '.join(name + '()' for name in missing)}",
            fix=f"give it the methods of rlweave.flow.{protocol.__name__}{hint}",
        )
