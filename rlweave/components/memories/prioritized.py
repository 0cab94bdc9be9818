"""Prioritized replay memory (Schaul et al. 2016, https://arxiv.org/abs/1511.05952), proportional variant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rlweave import ops
from rlweave.components.memories import sum_tree
from rlweave.components.memories.replay import ReplayMemory
from rlweave.components.schedules import Schedule, make_schedule
from rlweave.errors import ExecutionError
from rlweave.graph import graph_fn, register
from rlweave.settings.ranges import FINITE_NOT_NEGATIVE, PROBABILITY
from rlweave.spaces import Space

# Second draw that fills up the 24 random bits of a float32 to 48.
LOW_BITS = 2.0**-24


@register("prioritized_replay")
class PrioritizedReplay(ReplayMemory):
    """Records in a ring, drawn in proportion to `priority**alpha`, priority = |TD error| + epsilon.

    Draws are stratified as in the paper's appendix B.2.1: one from each of `batch_size` equal parts of the total
    priority, so a batch comes in the order of the slots. Importance weights are `(N P(i))**-beta`, divided by the
    largest of the batch. (The paper leaves open over what; the largest of the whole memory would let one record that
    is never drawn scale every step down.)

    A new record gets the largest priority seen so far (1 before any update), so that it is drawn soon. Where all
    priorities are 0, records are drawn evenly. A slot that holds no record is never drawn.

    Args:
        capacity: Number of records kept; the oldest give way.
        alpha: How much priorities count: 0 draws evenly, 1 in proportion.
        beta: How much of the bias is corrected, 1 being all of it: a number, or a schedule (or its spec) over the
            number of records inserted so far.
        epsilon: Added to |TD error|, so that a record without an error can be drawn again.
        scope: Name within the owner.
    """

    def __init__(
        self,
        capacity: int,
        alpha: float = 0.6,
        beta: float | Mapping[str, Any] | Sequence[Any] | Schedule = 0.4,
        epsilon: float = 1e-6,
        scope: str = "memory",
    ) -> None:
        super().__init__(capacity, scope)
        self.alpha, self.epsilon = checked_exponents(alpha, epsilon, scope)
        self.beta = make_schedule(beta)
        PROBABILITY.check_schedule("beta", self.beta, scope)

    def create_variables(self, records: Space) -> None:
        super().create_variables(records)
        count = sum_tree.node_count(self.capacity)
        self.nodes = self.variable("sum-tree", (count,), 0.0, trainable=False, dtype="float64")
        self.largest = self.variable("largest-priority", (), 1.0, trainable=False, dtype="float64")

    @graph_fn(host=True, flatten=True, differentiable=False, spaces="_insert_spaces")
    def insert(self, records: Any) -> None:
        """Stores a batch of records (copies them) with the largest priority seen so far.

        Args:
            records: Any nesting with a batch rank, (B, ...) per leaf.
        """
        priority = float(self.largest.value) ** self.alpha
        for slot, count in self._write(records):
            sum_tree.update_range(self.nodes.value, slot, priority, count)

    def _forget(self, slots: npt.NDArray[np.int64]) -> None:
        sum_tree.update(self.nodes.value, slots, 0.0)

    @graph_fn(host=True, differentiable=False, spaces="_update_spaces")
    def update_priorities(self, indices: Any, td_errors: Any) -> None:
        """Sets the priorities of records to (|TD error| + epsilon)**alpha. Where an index comes twice, the last wins.

        Args:
            indices: Their slots, from `sample`, int (B,).
            td_errors: Their TD errors, float (B,).

        Raises:
            ExecutionError: A TD error is not finite, or a slot holds no record; then nothing has changed.
        """
        errors = np.abs(np.asarray(td_errors, np.float64))
        slots = np.asarray(indices, np.int64)
        if not np.isfinite(errors).all():
            worst = int(np.flatnonzero(~np.isfinite(errors))[0])
            raise ExecutionError(
                "a TD error is not finite, and would poison all priorities",
                where=f"{self.path}.update_priorities",
                received=f"td_errors[{worst}] = {errors[worst]} of the record in slot {slots[worst]}",
                fix="look at the losses and observations of the last updates; NaN there comes before NaN here",
            )
        filled = min(int(self.inserted.value), self.capacity)
        if slots.size and (slots.min() < 0 or slots.max() >= filled):
            raise ExecutionError(
                "a priority was given for a slot that holds no record",
                where=f"{self.path}.update_priorities",
                received=f"slots {slots.min()} to {slots.max()}, {filled} records held",
                fix="pass the indices that sample returned",
            )
        held = (slots - self._oldest()) % self.capacity < self._filled()
        if not held.all():  # drawn before, and gone since
            slots, errors = slots[held], errors[held]
        errors += self.epsilon
        sum_tree.update(self.nodes.value, slots, errors**self.alpha)
        if errors.size:
            self.largest.assign(max(float(self.largest.value), float(errors.max())))

    @graph_fn(host=True, differentiable=False, spaces="_sample_spaces", returns=3)
    def _sample(self, batch_size: int) -> Any:
        filled = self._filled_or_refuse()
        nodes = self.nodes.value
        total = sum_tree.total(nodes)
        if total <= 0.0:  # nothing is known to be better than anything else
            indices = self._slots_of(ops.random.randint((batch_size,), 0, filled))
            return self._gather(indices), indices, np.ones(batch_size, np.float32)
        draw = ops.random.uniform((2, batch_size)).astype(np.float64)
        fractions = np.arange(batch_size) + (draw[0] + draw[1] * LOW_BITS)
        slots = sum_tree.find(nodes, fractions * (total / batch_size))
        priorities = sum_tree.get(nodes, slots)
        # (N P)**-beta over its largest: N and the total cancel out
        weights = (priorities.min() / priorities) ** self.beta(int(self.inserted.value))
        return self._gather(slots), slots.astype(np.int32), weights.astype(np.float32)

    def _update_spaces(self, indices: Space, td_errors: Space) -> None:
        return None


def checked_exponents(alpha: float, epsilon: float, where: str) -> tuple[float, float]:
    """Alpha and epsilon as floats.

    Raises:
        ConfigError: One is negative, infinite or no number.
    """
    for name, value in (("alpha", alpha), ("epsilon", epsilon)):
        FINITE_NOT_NEGATIVE.check(name, value, where)
    return float(alpha), float(epsilon)
