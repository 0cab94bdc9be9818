"""Actions that are never chosen."""

import pytest

from rlweave import ops
from rlweave.graph import Component, graph_fn
from rlweave.spaces import BoolBox, FloatBox
from rlweave.testing import Cause, check

SPACES = {"q_values": FloatBox(shape=(4,), add_batch_rank=True), "epsilon": FloatBox(0.05, 1.0)}


class EpsilonGreedy(Component):
    @graph_fn
    def explore(self, q_values, epsilon):
        rows, count = q_values.shape[:-1], q_values.shape[-1]
        best = ops.argmax(q_values, -1)
        return ops.where(ops.random.uniform(rows) < epsilon, self.drawn(rows, count), best)

    def drawn(self, rows, count):
        return ops.random.randint(rows, 0, count)


class WithoutTheFirst(EpsilonGreedy):
    def drawn(self, rows, count):
        return ops.random.randint(rows, 1, count - 1)


class Masked(Component):
    @graph_fn
    def sample(self, logits, action_mask):
        return ops.random.categorical(ops.where(action_mask, logits, -1e9))


@pytest.mark.parametrize(
    ("component", "spaces"),
    [
        (EpsilonGreedy, SPACES),
        (Masked, {"logits": SPACES["q_values"], "action_mask": BoolBox(shape=(4,), add_batch_rank=True)}),
    ],
)
def test_what_chooses_each_action_passes(component, spaces):
    report = check(component, spaces)
    assert not any(f.cause is Cause.NEVER_CHOSEN for f in report), str(report)


def test_an_action_that_is_never_chosen_is_found():
    (finding,) = (f for f in check(WithoutTheFirst, SPACES) if f.cause is Cause.NEVER_CHOSEN)
    assert "it chose [0, 1, 2] in 2048 draws, and never [3]" in finding.seen
