"""`check`: all checks of one component."""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from rlweave.backends.base import is_user_file
from rlweave.errors import RlweaveError
from rlweave.graph import Component
from rlweave.spaces import Space
from rlweave.testing.checks.advantages import values_learn_from_returns
from rlweave.testing.checks.batch_size import batch_size
from rlweave.testing.checks.bootstrapping import bootstrapping, own_steps, terminal_states
from rlweave.testing.checks.choices import all_are_chosen, masks_hold, shares_add_up
from rlweave.testing.checks.consistency import consistency, large_rewards_count
from rlweave.testing.checks.declarations import declarations_made, declarations_needed
from rlweave.testing.checks.describing import chosen_backends, described, unknown_inputs
from rlweave.testing.checks.distributions import probabilities
from rlweave.testing.checks.episodes import episode_boundaries
from rlweave.testing.checks.evaluation import evaluation
from rlweave.testing.checks.findings import Cause, Done, Finding, Report
from rlweave.testing.checks.fragments import fragments
from rlweave.testing.checks.gradients import everything_learns, targets_are_constant
from rlweave.testing.checks.inputs import unused_inputs, unused_variables
from rlweave.testing.checks.losses import losses
from rlweave.testing.checks.memories import priorities_reach_their_rows, records_stay_whole
from rlweave.testing.checks.numbers import (
    CHANGE_A_COPY,
    finite_at_edges,
    inputs_unchanged,
    integers_keep_their_digits,
    no_wide_floats,
    not_negative,
)
from rlweave.testing.checks.padding import padding
from rlweave.testing.checks.parity import (
    backends_agree,
    gradients_are_finite,
    gradients_are_right,
    modes_agree,
    state_is_complete,
)
from rlweave.testing.checks.randomness import FROM_THE_GRAPH, draws_count, repeatability
from rlweave.testing.checks.rows import batch_independence, batch_order, causality
from rlweave.testing.checks.scale import scale_laws
from rlweave.testing.checks.shared_draws import numbers_used_once, rows_draw_apart
from rlweave.testing.checks.sharing import arguments_are_free, results_stay
from rlweave.testing.checks.subject import Subject
from rlweave.testing.checks.targets import targets_follow
from rlweave.testing.checks.weights import weights
from rlweave.testing.checks.windows import windows
from rlweave.testing.descriptors import Descriptor

#: Where the checks are, which are no place of a fault.
_CHECKS = str(Path(__file__).parents[1]) + os.sep

SubjectT = TypeVar("SubjectT", bound=Subject)

#: Every check of a component, in the order in which they are made.
CHECKS: tuple[Callable[[Subject], Iterator[Finding]], ...] = (
    batch_independence,
    batch_order,
    batch_size,
    causality,
    episode_boundaries,
    terminal_states,
    bootstrapping,
    own_steps,
    consistency,
    padding,
    weights,
    fragments,
    losses,
    large_rewards_count,
    windows,
    scale_laws,
    finite_at_edges,
    no_wide_floats,
    integers_keep_their_digits,
    inputs_unchanged,
    results_stay,
    arguments_are_free,
    unused_inputs,
    unused_variables,
    repeatability,
    draws_count,
    rows_draw_apart,
    numbers_used_once,
    everything_learns,
    targets_are_constant,
    values_learn_from_returns,
    gradients_are_finite,
    gradients_are_right,
    backends_agree,
    modes_agree,
    state_is_complete,
    probabilities,
    shares_add_up,
    masks_hold,
    all_are_chosen,
    not_negative,
    targets_follow,
    records_stay_whole,
    priorities_reach_their_rows,
    evaluation,
    declarations_made,
    declarations_needed,
)

#: What makes returns inconsistent.
_OFF = (
    Cause.LOOKS_BACK,
    Cause.LOOKS_AHEAD,
    Cause.WRONG_STEP,
    Cause.CROSSES_EPISODES,
    Cause.TERMINATION_IGNORED,
    Cause.TRUNCATION_AS_TERMINATION,
    Cause.WRONG_BOOTSTRAP,
)

#: What seems to be so where a function gives something else at each call, whatever becomes of its inputs.
_OF_COMPARING = (
    Cause.ROWS_MEET,
    Cause.ROW_ORDER_COUNTS,
    Cause.BATCH_SIZE_COUNTS,
    Cause.LOOKS_AHEAD,
    Cause.LOOKS_BACK,
    Cause.FRAGMENTS_DIFFER,
)


def check(
    target: Descriptor | Component | type[Component],
    input_spaces: Mapping[str, Space] | None = None,
    backends: Sequence[str] | None = None,
) -> Report:
    """Checks a component, with no test written for it.

    Args:
        target: A descriptor; or a component, its class if it needs no arguments, or its class if that has a class
            method `descriptor()`.
        input_spaces: Space of each API input, by parameter name or "method.parameter"; others are those of the
            descriptor.
        backends: Where it is checked; "all": on all backends that are installed. None: on NumPy, and gradients on torch
            (or JAX, where torch is not installed), whose results are compared with NumPy's as well.

    Returns:
        What was found; `report.ok` where there is nothing.

    Raises:
        ConfigError: It is no component, or cannot be checked: it needs arguments, or spaces, or there is no such
            backend.
    """
    descriptor = described(target, input_spaces)
    subject = Subject(descriptor, chosen_backends(backends))
    report = run_checks(descriptor.name, subject, CHECKS)
    for name in unknown_inputs(descriptor.component, input_spaces or ()):
        report.left_out[name] = "no API method has an input of this name"
    if report.done and not descriptor.calls:
        root = subject.eager.root
        for method, names in descriptor.lacking(type(root)).items():
            if root.offers(method):
                report.left_out[method] = f"there is no space of {', '.join(map(repr, names))}"
    return report


def run_checks(name: str, subject: SubjectT, checks: Sequence[Callable[[SubjectT], Iterator[Finding]]]) -> Report:
    """Makes checks one after the other; what fails with an error is a finding, too.

    Args:
        name: What the report calls the subject.
        subject: What is checked.
        checks: Functions from it to findings.
    """
    report = Report(name)
    with np.errstate(all="ignore"):  # what is not finite is a finding
        try:
            calls = len(subject.situations())
        except Exception as error:
            report.findings.append(failure(name, error))
            return report
        for make in checks:
            start = time.perf_counter()
            try:
                found = _distinct(make(subject))
            except Exception as error:
                found = [failure(name, error)]
            known = {(finding.where, finding.cause) for finding in report}
            report.findings += [finding for finding in found if (finding.where, finding.cause) not in known]
            report.done.append(Done(make.__name__.replace("_", " "), calls, round(time.perf_counter() - start, 3)))
    report.findings = list(_without_intended(subject.descriptor, _explained(report.findings)))
    return report


def _explained(findings: list[Finding]) -> list[Finding]:
    """The findings without those that only say that something is off where another one says what."""
    told = any(finding.cause in _OFF for finding in findings)
    unsteady = {f.where for f in findings if f.check == "repeatability" and f.cause is Cause.RANDOMNESS_OUTSIDE}
    return [
        finding
        for finding in findings
        if not (told and finding.cause is Cause.INCONSISTENT_RETURNS)
        and not (finding.where in unsteady and finding.cause in _OF_COMPARING)
    ]


def _without_intended(descriptor: Descriptor, findings: list[Finding]) -> Iterator[Finding]:
    """The findings of what is no intention; and the intentions of which nothing was found."""
    yield from (finding for finding in findings if finding.cause not in descriptor.intended)
    for cause in set(descriptor.intended) - {finding.cause for finding in findings}:
        yield Finding(
            "declarations",
            descriptor.name,
            f"`intended` of its descriptor names {cause.name}, and no check found that",
            Cause.UNNEEDED_DECLARATION,
            f"leave {cause.name} out of `intended`",
        )


#: Where an action of an agent is refused.
OF_AN_ACTION = ", action"


def failure(name: str, error: Exception) -> Finding:
    """What cannot be built, or fails when it is called, as a finding.

    Args:
        name: What is checked.
        error: What was raised.
    """
    if not isinstance(error, RlweaveError):
        frames = reversed(traceback.extract_tb(error.__traceback__))
        place = next((f for f in frames if is_user_file(f.filename) and not f.filename.startswith(_CHECKS)), None)
        where = f"{name}, {place.filename}:{place.lineno}: {place.line}" if place is not None else name
        return Finding("run", where, f"{type(error).__name__}: {error}", Cause.CANNOT_RUN, "correct what raises it")
    seen = f"{error.what}; {error.received}" if error.received else error.what
    fix = error.fix or "see the error"
    if "batch axis twice" in seen:
        cause = Cause.BATCH_TWICE
    elif "read-only" in seen:  # what the build tries a function on
        cause, fix = Cause.INPUT_CHANGED, CHANGE_A_COPY
    elif "once and then stay" in seen:  # random numbers and clocks that the build refuses
        cause, fix = Cause.RANDOMNESS_OUTSIDE, FROM_THE_GRAPH
    elif "attribute" in seen and "was set" in seen:
        cause = Cause.INCOMPLETE_STATE
    elif OF_AN_ACTION in (error.where or ""):
        cause, fix = Cause.ACTION_OUTSIDE, "have Agent.env_actions turn what the policy gives into an action, once"
    else:
        cause = Cause.CANNOT_BUILD
    return Finding("build", error.where or name, seen, cause, fix)


def _distinct(found: Iterator[Finding]) -> list[Finding]:
    """One finding for each place and cause."""
    return list({(finding.where, finding.cause): finding for finding in reversed(list(found))}.values())[::-1]
