"""`check` says nothing of components that are right, however suspicious they look."""

import pytest

from rlweave.testing import check
from tests.testing.checks.sound import SOUND


@pytest.mark.parametrize("described", SOUND, ids=lambda described: described.name)
def test_check_says_nothing_of_a_sound_component(described):
    report = check(described)
    assert not [finding for finding in report if not finding.is_advice], str(report)
