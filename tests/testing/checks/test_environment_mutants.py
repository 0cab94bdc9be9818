"""`check_env` finds each bug of `tests/mutants/environments.py`, names its cause, and finds none in what is right."""

import pytest

from rlweave.testing import Cause, check_env
from tests.mutants.environments import MUTANTS, OneRunnerIsIgnored, OneStepOld, RunsOver

STEPS = 200
RIGHT = sorted({mutant.right for mutant in MUTANTS}, key=lambda kind: kind.__name__)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_each_bug_is_found_and_its_cause_named(mutant):
    report = check_env(mutant.wrong, steps=STEPS)
    causes = {finding.cause for finding in report}
    assert mutant.cause in causes, str(report)
    assert report.ok == (mutant.cause is Cause.ADVICE)
    text = str(report)
    for finding in report:
        assert finding.fix in text
        assert finding.where
        assert finding.seen


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (OneStepOld, "changed no observation of the same step, but those of the next"),
        (RunsOver, "uint8 begins anew at its other end"),
        (OneRunnerIsIgnored, "element 1 of the action was changed at"),
    ],
)
def test_what_may_be_meant_is_advice(kind, says):
    assert [says in finding.seen for finding in check_env(kind, steps=STEPS)] == [True]


@pytest.mark.parametrize("right", RIGHT, ids=lambda right: right.__name__)
def test_nothing_is_found_in_what_is_right(right):
    report = check_env(right, steps=STEPS)
    assert report.ok, str(report)


def test_mutants_are_distinct_and_say_what_happened():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 40
    assert all(mutant.what_happened for mutant in MUTANTS)
