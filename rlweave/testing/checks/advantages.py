"""Advantages: what they are made of learns nothing from the policy's part of a loss."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rlweave.graph.ir import Call, Value
from rlweave.testing.checks.findings import Cause, Finding
from rlweave.testing.checks.gradients import DETACH, Differentiated, losses_of
from rlweave.testing.checks.recording import input_names, place_of
from rlweave.testing.checks.subject import Subject

_VALUES = frozenset(("value", "values", "state_values", "baseline", "baselines", "new_values", "predictions"))
_POLICY = frozenset(
    ("log_prob", "log_probs", "logprobs", "target_log_probs", "new_log_probs", "logits", "action_logits")
)


def values_learn_from_returns(subject: Subject) -> Iterator[Finding]:
    """The gradient by state values does not depend on log-probabilities: advantages are constants to a loss."""
    if subject.learner is None:
        return
    for situation in subject.situations():
        declared = subject.descriptor.with_gradient.get(situation.method, ())
        for item in losses_of(subject, situation, situation.state):
            if item.is_loss and _VALUES.isdisjoint(declared):
                yield from list(_meeting(item))[:1]


def _meeting(item: Differentiated) -> Iterator[Finding]:
    loss = item.loss
    policy, values = _ports(item, _POLICY), _ports(item, _VALUES)
    for value_name, (value, _) in values.items():
        for policy_name, (log_probs, place) in policy.items():
            if value is not log_probs and np.any(np.nan_to_num(loss.mixed(log_probs, value)) != 0):
                yield Finding(
                    "advantages",
                    place,
                    f"{item.where}: the gradient of {loss.label} by {value_name!r} depends on {policy_name!r}, so that "
                    "values are trained to make likely actions look good, and not to come to their returns",
                    Cause.TARGET_HAS_GRADIENT,
                    "advantages are constants to the loss of the policy: log_probs * ops.stop_gradient(returns - "
                    "values). " + DETACH,
                )


def _ports(item: Differentiated, names: frozenset[str]) -> dict[str, tuple[Value, str]]:
    """Arguments of graph functions on the way to the loss, by name: the value, and the place."""
    found: dict[str, tuple[Value, str]] = {}
    flowing = {*item.loss.spread.values, *map(id, item.loss.values)}
    for node in item.loss.path:
        if isinstance(node, Call) and not node.plain:
            for name, value in zip(input_names(node), node.inputs(), strict=True):
                if name.split("/")[-1] in names and id(value) in flowing:
                    found.setdefault(name, (value, place_of(node)))
    return found
