"""Checks of the signs of losses, and of the rows that count."""

import pytest

from rlweave import ops
from rlweave.graph import Component, graph_fn
from rlweave.spaces import FloatBox
from rlweave.testing import Cause, check

ROWS = FloatBox(add_batch_rank=True)
SPACES = {
    "log_probs": FloatBox(-2.0, -0.5, add_batch_rank=True),
    "advantages": ROWS,
    "values": ROWS,
    "returns": ROWS,
    "entropies": FloatBox(0.0, 2.0, add_batch_rank=True),
}


class Loss(Component):
    """Sound; faults are in sub-classes."""

    policy_sign, value_sign, entropy_sign = -1.0, 1.0, -1.0

    @graph_fn
    def loss(self, log_probs, advantages, values, returns, entropies):
        policy_loss = self.policy_sign * ops.mean(log_probs * ops.stop_gradient(advantages))
        value_loss = self.value_sign * ops.mean(ops.square(values - ops.stop_gradient(returns)))
        return policy_loss + 0.5 * value_loss + self.entropy_sign * 0.01 * ops.mean(entropies)


class PolicySign(Loss):
    policy_sign = 1.0


class ValueSign(Loss):
    value_sign = -1.0


class EntropySign(Loss):
    entropy_sign = 1.0


class FirstRowsOnly(Loss):
    @graph_fn
    def loss(self, log_probs, advantages, values, returns, entropies):
        losses = ops.square(values - returns) - log_probs * advantages - entropies
        return ops.mean(losses[:-1])


FAULTS = [
    (PolicySign, Cause.LOSS_SIGN, "likelier"),
    (ValueSign, Cause.LOSS_SIGN, "came to 'returns'"),
    (EntropySign, Cause.ENTROPY_SIGN, "'entropies' rose"),
    (FirstRowsOnly, Cause.ROWS_LEFT_OUT, "row 4"),
]


@pytest.mark.parametrize(("component", "cause", "seen"), FAULTS, ids=lambda x: getattr(x, "__name__", ""))
def test_a_fault_in_a_loss_is_found(component, cause, seen):
    report = check(component, SPACES)
    found = [finding for finding in report if finding.check == "losses"]
    assert [finding.cause for finding in found] == [cause], str(report)
    assert seen in found[0].seen
    assert "test_losses.py:" in found[0].where


def test_a_sound_loss_has_no_finding():
    report = check(Loss, SPACES)
    assert report.ok, str(report)


def test_what_is_no_loss_has_no_sign():
    class Bonus(Component):
        @graph_fn
        def bonus(self, entropies):
            return ops.mean(entropies)

    report = check(Bonus, SPACES)
    assert report.ok, str(report)


class Surrogate(Component):
    """PPO's, with a penalty; sound."""

    @graph_fn
    def loss(self, log_probs, old_log_probs, advantages, kl):
        ratio = ops.exp(log_probs - ops.stop_gradient(old_log_probs))
        plain, clipped = ratio * advantages, ops.clip(ratio, 0.9, 1.1) * advantages
        return -ops.mean(self.objective(plain, clipped)) + self.penalty(ops.mean(kl))

    def objective(self, plain, clipped):
        return ops.minimum(plain, clipped)

    def penalty(self, kl):
        return 0.2 * kl


class Plain(Surrogate):
    def objective(self, plain, clipped):
        return plain + 0.0 * clipped


class AlwaysClipped(Surrogate):
    def objective(self, plain, clipped):
        return clipped + 0.0 * plain


class Rewarded(Surrogate):
    def penalty(self, kl):
        return -0.2 * kl


SURROGATE = {
    "log_probs": SPACES["log_probs"],
    "old_log_probs": SPACES["log_probs"],
    "advantages": ROWS,
    "kl": FloatBox(0.0, 2.0, add_batch_rank=True),
}


@pytest.mark.parametrize("component", [Surrogate, Plain])
def test_a_sound_surrogate_has_no_finding(component):
    report = check(component, SURROGATE, backends=["numpy"])
    wrong = {Cause.CLIPPED_WRONG_SIDE, Cause.LOSS_SIGN}
    assert not [finding for finding in report if finding.cause in wrong], str(report)


@pytest.mark.parametrize(
    ("component", "cause", "seen"),
    [
        (AlwaysClipped, Cause.CLIPPED_WRONG_SIDE, "was less likely than by 'old_log_probs', came back some way"),
        (Rewarded, Cause.LOSS_SIGN, "all of 'kl' rose by 1, and its result fell"),
    ],
)
def test_clipping_on_the_wrong_side_and_a_rewarded_divergence_are_found(component, cause, seen):
    (finding,) = (f for f in check(component, SURROGATE) if f.cause is cause)
    assert seen in finding.seen
