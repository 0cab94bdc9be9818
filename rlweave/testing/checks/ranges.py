"""Ranges: what cannot be negative is not."""

from __future__ import annotations

from collections.abc import Iterator

from rlweave.testing.checks.distributions import maker
from rlweave.testing.checks.findings import Cause, Finding
from rlweave.testing.checks.subject import Subject

#: Names of results that are 0 or more.
_NOT_NEGATIVE = ("priorities", "priority", "std", "stds", "stddev", "variance", "variances", "deviation", "deviations")


def not_negative(subject: Subject) -> Iterator[Finding]:
    """Results that are named priorities, variances or deviations are 0 or more."""
    for situation in subject.situations():
        for path, array in situation.base.result.items():
            name = situation.name_of(path)
            if name in _NOT_NEGATIVE and array.dtype.kind == "f" and (array < 0).any():
                yield Finding(
                    "ranges",
                    maker(situation, path),
                    f"{situation.where}: {name!r} has {array.min():.4g}",
                    Cause.NEGATIVE,
                    "priorities are sizes of errors, ops.abs(td_errors); variances are means of squared distances, and "
                    "no differences of squares",
                )
