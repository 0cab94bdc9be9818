"""Components that are right, as a user would write them: a check that says anything of one of them is wrong.

Some do what looks suspicious and is meant: rows that attend to each other, steps that look ahead, counters, dropout, a
gradient that passes through a sample. `tests/testing/checks/test_sound.py` shows by other means that they are right.
"""

from tests.testing.checks.sound.losses import LOSSES
from tests.testing.checks.sound.networks import NETWORKS
from tests.testing.checks.sound.returns import RETURNS
from tests.testing.checks.sound.statistics import STATISTICS

SOUND = (*NETWORKS, *LOSSES, *RETURNS, *STATISTICS)
