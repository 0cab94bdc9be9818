"""The checks bite: of each mutant `check` names the cause, and of what is right it says nothing.

The tests of every day check what holds for an agent as a whole, of all broken agents but the slowest and those whose
fault is in a function of the graph. Those marked `thorough`, which `make checks` runs, check all of them and their
graph functions besides, which takes up to five times as long; and the right agents, too.
"""

import warnings

import pytest

from rlweave.testing import Cause, check, check_agent
from tests.mutants.registry import AGENTS, COMPONENTS

#: Causes that lie in a graph function of an agent.
OF_FUNCTIONS = (Cause.DRAWN_ONCE,)
#: Mutants that take the longest, in a check of the agent as a whole, too.
LONG = (
    "PPOThatForgetsItsOptimizer",
    "PPOThatNeverResetsItsMemory",
    "PPOThatNormalizesWhileItEvaluates",
    "PPOThatStoresClippedActions",
    "PPOWithoutItsValueFunction",
    "SACThatDoesNotScaleActions",
)
QUICK = [m for m in AGENTS if m.cause not in OF_FUNCTIONS and m.name not in LONG]


def is_found(mutant, report):
    """Whether the cause of a mutant is named."""
    return mutant.cause in {finding.cause for finding in faults(report)}


def faults(report):
    return [finding for finding in report if not finding.is_advice]


def right_ones():
    """One descriptor of each right component: several mutants share it."""
    return list({mutant.right.component: mutant.right for mutant in COMPONENTS}.values())


def right_agents():
    """One mutant of each right agent, with its environment and settings: several mutants share them."""
    return list({f"{m.right.name} {m.env} {sorted(m.settings.items())}": m for m in AGENTS}.values())


@pytest.fixture(autouse=True)
def _numbers_that_are_not_finite():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("mutant", COMPONENTS, ids=lambda mutant: mutant.name)
def test_check_finds_a_mutant_and_names_its_cause(mutant):
    report = check(mutant.wrong)
    assert is_found(mutant, report), str(report)


@pytest.mark.parametrize("described", right_ones(), ids=lambda described: described.name)
def test_check_says_nothing_of_what_is_right(described):
    report = check(described)
    assert not faults(report), str(report)


@pytest.mark.parametrize("mutant", QUICK, ids=lambda mutant: mutant.name)
def test_what_holds_for_agents_finds_a_mutant_and_names_its_cause(mutant):
    report = check_agent(mutant.wrong, mutant.env, mutant.settings, functions=False)
    assert is_found(mutant, report), str(report)


@pytest.mark.thorough
@pytest.mark.parametrize("mutant", AGENTS, ids=lambda mutant: mutant.name)
def test_check_finds_a_mutant_of_an_agent_and_names_its_cause(mutant):
    report = check_agent(mutant.wrong, mutant.env, mutant.settings)
    assert is_found(mutant, report), str(report)


@pytest.mark.thorough
@pytest.mark.parametrize("mutant", right_agents(), ids=lambda mutant: f"{mutant.right.name}-{mutant.name}")
def test_check_says_nothing_of_an_agent_that_is_right(mutant):
    report = check_agent(mutant.right, mutant.env, mutant.settings)
    assert not faults(report), str(report)
