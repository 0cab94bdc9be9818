"""What several policies did in the same steps of the same environments, as one item."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rlweave.errors import SpaceError
from rlweave.flow.batch import SampleBatch
from rlweave.flow.codec import saved_as


@saved_as("policy_batches")
class PolicyBatches(Mapping[str, SampleBatch]):
    """A batch for each policy, by name; ``stream.select(policy)`` takes one of them out.

    >>> import numpy as np
    >>> walkers, flyer = SampleBatch({"rewards": np.zeros(6)}), SampleBatch({"rewards": np.zeros(2)})
    >>> item = PolicyBatches({"walkers": walkers, "flyer": flyer}, joint_steps=2)
    >>> item.num_steps, item.joint_steps, sorted(item)
    (8, 2, ['flyer', 'walkers'])

    Args:
        batches: By policy name.
        joint_steps: Steps of environments, all agents together.
    """

    __slots__ = ("_batches", "joint_steps")

    def __init__(self, batches: Mapping[str, SampleBatch], joint_steps: int) -> None:
        self._batches = dict(batches)
        self.joint_steps = joint_steps

    @property
    def num_steps(self) -> int:
        """Steps of single agents: what counts as environment steps where there are several agents."""
        return sum(batch.num_steps for batch in self._batches.values())

    def __getitem__(self, policy: str) -> SampleBatch:
        """The batch of one policy."""
        return self._batches[policy]

    def __iter__(self) -> Iterator[str]:
        """Names of policies."""
        return iter(self._batches)

    def __len__(self) -> int:
        """Number of policies."""
        return len(self._batches)

    def __repr__(self) -> str:
        return f"PolicyBatches({self.joint_steps} joint steps, {self._batches})"

    def copy(self) -> PolicyBatches:
        """The same with arrays of its own."""
        return PolicyBatches({name: batch.copy() for name, batch in self._batches.items()}, self.joint_steps)

    @staticmethod
    def concat(items: Sequence[PolicyBatches]) -> PolicyBatches:
        """Glues items together, policy by policy.

        Raises:
            SpaceError: If they are not of the same policies.
        """
        for other in items[1:]:
            if other.keys() != items[0].keys():
                raise SpaceError(
                    "items of different policies cannot be glued together",
                    where="PolicyBatches.concat",
                    received=f"{sorted(items[0])} and {sorted(other)}",
                )
        batches = {name: SampleBatch.concat([item[name] for item in items]) for name in items[0]}
        return PolicyBatches(batches, sum(item.joint_steps for item in items))

    def state_dict(self) -> dict[str, Any]:
        """What ``from_state`` makes the same item of."""
        return {"batches": self._batches, "joint_steps": self.joint_steps}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> PolicyBatches:
        """The item that ``state_dict`` described."""
        return cls(state["batches"], state["joint_steps"])
